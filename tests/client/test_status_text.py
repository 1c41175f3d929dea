"""What `mooncake status` says first, from the master's numbers."""

from __future__ import annotations

import pytest

from mooncake_client.records import SegmentUse
from mooncake_client.status_text import status_lines

CALM = {
    "epoch": 3,
    "deposed_by_epoch": 0,
    "unreported_segment_count": 0,
    "key_count": 1,
    "value_bytes": 1 << 20,
    "hard_pin_key_count": 0,
    "active_session_count": 2,
}


def segment(charged_bytes: int, retiring_bytes: int = 0) -> SegmentUse:
    return SegmentUse("a-0", 1 << 30, charged_bytes, retiring_bytes, 1, "dram", "host", ("tcp://h:1",))


def test_a_calm_pool_is_four_lines() -> None:
    assert list(status_lines(CALM, [segment(1 << 28), segment(1 << 29)])) == [
        "master: serving, epoch 3",
        "memory: 2 segments, 2GiB, 37.5 % used",
        "values: 1 key, 1MiB",
        "sessions: 2, this one included",
    ]


@pytest.mark.parametrize(
    ("number", "line"),
    [
        ("deposed_by_epoch", "master: stepped down, nodes follow one of epoch 7, epoch 3"),
        ("unreported_segment_count", "master: serving, 7 segments still to tell what they hold, epoch 3"),
        ("hard_pin_key_count", "values: 1 key, 1MiB, 7 hard-pinned"),
        ("suspected_node_count", "  7 nodes that clients cannot reach (mooncake events)"),
        ("repair_queue_count", "  7 values that wait for another copy"),
    ],
)
def test_what_is_not_calm_is_told(number: str, line: str) -> None:
    assert line in list(status_lines(CALM | {number: 7}, [segment(0)]))


def test_memory_on_its_way_out_and_none_at_all_are_told() -> None:
    assert "memory: 1 segment, 1GiB, 25.0 % used, 1MiB of it on its way out" in status_lines(
        CALM, [segment(1 << 28, 1 << 20)]
    )
    assert any("no node has joined" in line for line in status_lines(CALM, []))
