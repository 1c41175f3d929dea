"""Messages packed from Python unpack to the same, and bad input is refused by name."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from node.value_header import value_header

from mooncake_store import _core

UUID = bytes(range(16))
HEADER = value_header(b"k", 5, put_id=11, tenant=b"t", user_metadata=b"m", ttl_ms=7)
SEGMENT: dict[str, Any] = {
    "tier": 1,
    "capacity_bytes": 1 << 30,
    "incarnation": UUID,
    "name": "node-a/0",
    "host_id": "host-a",
    "endpoints": ["tcp://10.0.0.7:41234", "shm:///run/a"],
}
INFO = {
    **SEGMENT,
    "status": 0,
    "segment": 7,
    "owner": 3,
    "charged_bytes": 64,
    "retiring_bytes": 0,
    "replica_count": 1,
}
PREFIX = {"session": 5, "sequence": 9, "flags": 1, "avoid": [1, 2]}
REQUEST = {"session": 5, "sequence": 9, "flags": 0, "avoid": []}
REPORTED = {
    "segment": 7,
    "ready_bytes": 1,
    "receiving_bytes": 2,
    "draining_bytes": 3,
    "largest_free_bytes": 4,
    "sealed_count": 5,
    "sealed_checksum": 2**64 - 1,
}

ROUND_TRIPS: list[tuple[str, dict[str, Any], Any]] = [
    ("prefix", PREFIX, PREFIX),
    ("open_session", {"process": UUID, "name": "n", "host_id": "h", "tenant": "t"}, None),
    (
        "open_session_reply",
        {
            "session": 5,
            "epoch": 2,
            "master": UUID,
            "client_ttl_ms": 10_000,
            "heartbeat_interval_ms": 1_000,
            "lease_ttl_ms": 10_000,
            "exists_hold_ms": 2_000,
        },
        None,
    ),
    (
        "mount",
        {
            "session": 5,
            "sequence": 9,
            "known_epoch": 4,
            "known_master": UUID,
            "segments": [SEGMENT],
            "flags": 1,
        },
        {**REQUEST, "known_epoch": 4, "known_master": UUID, "mount_flags": 1, "segments": [SEGMENT]},
    ),
    ("mount_reply", {"answers": [(0, 7), (-600, 0)]}, [(0, 7), (-600, 0)]),
    ("segment_ids", {"session": 5, "sequence": 9, "segments": [7]}, {**REQUEST, "ids": [7]}),
    ("segments_reply", {"segments": [INFO]}, [INFO]),
    ("keys_request", {**PREFIX, "keys": [b"a", b"", b"\xff"]}, {**PREFIX, "keys": [b"a", b"", b"\xff"]}),
    ("statuses", {"statuses": [0, -704, -2012]}, [0, -704, -2012]),
    ("match_prefix_reply", {"length": 3, "miss": -704}, (3, -704)),
    (
        "lookup_reply",
        {"items": [(0, 11, 4096, 10_000, [(21, 7), (22, 8)]), (-704, 0, 0, 0, [])]},
        [(0, 11, 4096, 10_000, [(21, 7), (22, 8)]), (-704, 0, 0, 0, [])],
    ),
    (
        "put_start",
        {
            "session": 5,
            "sequence": 9,
            "keys": [b"a", b"b"],
            "sizes": [1, 2**40],
            "parents": [0, 3],
            "replica_count": 2,
            "flags": 6,
            "preferred": ["node-a/0"],
            "soft_pin_ms": 1,
            "ttl_ms": 2,
            "avoid": [4],
        },
        {
            **REQUEST,
            "avoid": [4],
            "keys": [b"a", b"b"],
            "sizes": [1, 2**40],
            "parents": [0, 3],
            "replica_count": 2,
            "put_flags": 6,
            "preferred": ["node-a/0"],
            "soft_pin_ms": 1,
            "ttl_ms": 2,
        },
    ),
    (
        "put_start_reply",
        {"items": [(-705, 0, []), (0, 11, [(21, 7)])]},
        [(-705, 0, []), (0, 11, [(21, 7)])],
    ),
    (
        "put_end",
        {"session": 5, "sequence": 9, "items": [(11, [(21, 0), (22, -2002)]), (12, [])]},
        {**REQUEST, "items": [(11, [(21, 0), (22, -2002)]), (12, [])]},
    ),
    ("put_revoke", {"session": 5, "sequence": 9, "put_ids": [11]}, {**REQUEST, "put_ids": [11]}),
    (
        "list",
        {"session": 5, "cursor": 1, "limit": 2, "key_prefix": b"k"},
        {**REQUEST, "sequence": 0, "cursor": 1, "limit": 2, "key_prefix": b"k"},
    ),
    ("list_reply", {"cursor": 3, "objects": [(b"k", 1, 11, 2, 3)]}, (3, [(b"k", 1, 11, 2, 3)])),
    ("stats_reply", {"stats": {"key_count": 3}}, {"key_count": 3}),
    ("retire", {"command_id": 1, "replicas": [21]}, (1, [21])),
    ("retire_reply", {"command_id": 1, "freed": []}, (1, [])),
    (
        "report",
        {"session": 5, "last_command_id": 4, "settled_id": 9, "segments": [REPORTED], "freed": [21]},
        {
            **REQUEST,
            "sequence": 0,
            "last_command_id": 4,
            "settled_id": 9,
            "segments": [REPORTED],
            "freed": [21],
        },
    ),
    (
        "inventory",
        {"session": 5, "flags": 3, "items": [(21, 7, HEADER)], "total_count": 4, "total_checksum": 9},
        {
            **REQUEST,
            "sequence": 0,
            "inventory_flags": 3,
            "items": [(21, 7, HEADER)],
            "total_count": 4,
            "total_checksum": 9,
        },
    ),
    (
        "tombstones",
        {
            "epoch": 4,
            "closed_epoch": 3,
            "expelled": [UUID],
            "floors": [(UUID, 21)],
            "replicas": [21, 22],
            "keys": [(77, 11)],
        },
        None,
    ),
    (
        "report_reply",
        {
            "settled_id": 10,
            "unknown_segments": [7],
            "tombstones_generation": 3,
            "comparison": 5,
            "compared_segment": 11,
        },
        None,
    ),
    (
        "holdings",
        {"session": 5, "comparison": 5, "replicas": [21, 22], "flags": 1},
        {**REQUEST, "sequence": 0, "comparison": 5, "replicas": [21, 22], "holdings_flags": 1},
    ),
    ("welcome", {"version": 1, "process": UUID, "software": "s"}, None),
    (
        "hello",
        {
            "role": 2,
            "process": UUID,
            "tenant": "t",
            "software": "s",
            "auth": b"x",
            "auth_kind": 1,
            "version_min": 1,
            "version_max": 2,
        },
        None,
    ),
]


@pytest.mark.parametrize(("name", "fields", "expected"), ROUND_TRIPS, ids=[row[0] for row in ROUND_TRIPS])
def test_message_unpacks_to_what_was_packed(name: str, fields: dict[str, Any], expected: Any) -> None:
    body = getattr(_core, f"encode_{name}")(**fields)
    assert getattr(_core, f"parse_{name}")(body) == (fields if expected is None else expected)


@pytest.mark.parametrize(
    ("name", "fields"), [row[:2] for row in ROUND_TRIPS], ids=[r[0] for r in ROUND_TRIPS]
)
def test_cut_message_is_malformed(name: str, fields: dict[str, Any]) -> None:
    body = getattr(_core, f"encode_{name}")(**fields)
    for length in range(len(body)):
        with pytest.raises(ValueError, match="malformed"):
            getattr(_core, f"parse_{name}")(body[:length])


def test_frame_header_carries_every_field() -> None:
    verb = _core.verb_numbers()["lookup"]
    frame = _core.encode_frame(verb, b"body", request_id=7, flags=1, status=-704, epoch=3)
    assert _core.parse_frame_header(frame[:24]) == {
        "body_bytes": 4,
        "verb": verb,
        "flags": 1,
        "status": -704,
        "request_id": 7,
        "epoch": 3,
    }
    assert frame[24:] == b"body"


def test_over_long_key_is_cut_just_above_the_limit_so_that_it_alone_is_refused() -> None:
    body = _core.encode_keys_request(1, [b"a", b"k" * 70_000, b"b"])
    assert _core.parse_keys_request(body)["keys"] == [b"a", b"k" * 1025, b"b"]


@pytest.mark.parametrize(
    "call",
    [
        lambda: _core.encode_keys_request(1, [b"k"] * 16_385),
        lambda: _core.encode_keys_request(1, [], avoid=[1] * 1_025),
        lambda: _core.encode_open_session(b"short", "n", "h", "t"),
        lambda: _core.encode_open_session(UUID, "n" * 256, "h", "t"),
        lambda: _core.encode_put_start(1, 1, [b"a", b"b"], [1]),
        lambda: _core.encode_put_start(1, 1, [b"a"], [1], parents=[1, 2]),
        lambda: _core.encode_put_end(1, 1, [(1, [(1, 0)] * 9)]),
    ],
)
def test_what_no_frame_can_carry_is_refused(call: Any) -> None:
    with pytest.raises(ValueError, match=r"above|16 bytes|put_start takes"):
        call()


@pytest.mark.parametrize(
    ("body_bytes", "verb", "flags"),
    [(16 * 2**20 + 1, 12, 0), (2**32 - 1, 12, 1), (0, 0, 0), (0, 99, 0), (0, 12, 4), (0, 12, 0x83)],
)
def test_bytes_that_cannot_be_a_frame_header_are_refused(body_bytes: int, verb: int, flags: int) -> None:
    header = struct.pack("<IBBhQQ", body_bytes, verb, flags, 0, 1, 1)
    with pytest.raises(ValueError, match="frame"):
        _core.parse_frame_header(header)
    assert _core.parse_frame_header(struct.pack("<IBBhQQ", 16 * 2**20, 12, 3, 0, 1, 1))["flags"] == 3


def test_an_epoch_that_no_id_can_carry_is_refused() -> None:
    last = (1 << 24) - 1
    assert _core.parse_frame_header(struct.pack("<IBBhQQ", 0, 12, 0, 0, 1, last))["epoch"] == last
    with pytest.raises(ValueError, match="frame"):
        _core.parse_frame_header(struct.pack("<IBBhQQ", 0, 12, 0, 0, 1, last + 1))
    opened = {"session": 1, "master": UUID, "client_ttl_ms": 1, "heartbeat_interval_ms": 1, "lease_ttl_ms": 1}
    with pytest.raises(ValueError, match="open_session"):
        _core.parse_open_session_reply(
            _core.encode_open_session_reply(**opened, epoch=last + 1, exists_hold_ms=1)
        )


def test_put_end_whose_items_claim_other_results_is_malformed() -> None:
    """Results are handed to each put by the items' counts: more than came would be read from behind."""
    prefix = _core.encode_prefix(1, 1)
    for claimed in (0, 2, 2**32 - 1):
        item, result = struct.pack("<QII", 5, claimed, 0), struct.pack("<QhhI", 6, 0, 0, 0)
        with pytest.raises(ValueError, match="malformed"):
            _core.parse_put_end(prefix + struct.pack("<II", 1, 1) + item + result)


@pytest.mark.parametrize(
    ("name", "count"), [("segment_ids", 16_385), ("put_revoke", 16_385), ("prefix", 1_025)]
)
def test_counts_above_their_limits_are_malformed(name: str, count: int) -> None:
    """However many bytes come with them: what a request makes the master hold and do has a bound."""
    ids = struct.pack(f"<{count}Q", *range(count))
    if name == "prefix":
        body = struct.pack("<QQII", 1, 1, 0, count) + ids
    else:
        body = _core.encode_prefix(1, 1) + struct.pack("<I", count) + ids
    with pytest.raises(ValueError, match="malformed"):
        getattr(_core, f"parse_{name}")(body)
