"""A pool's state in a few lines, from the master's numbers. Owns the words; asks nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mooncake_client.records import SegmentUse
from mooncake_store.units import format_size

_TROUBLE: Final = {
    "suspected_node_count": "nodes that clients cannot reach (mooncake events)",
    "unfinished_put_count": "puts under way",
    "repair_queue_count": "values that wait for another copy",
    "draining_segment_count": "segments about to leave",
}


def status_lines(stats: Mapping[str, int], segments: Sequence[SegmentUse]) -> Iterator[str]:
    """What an operator asks first: does it serve, how full is it, what is it busy with."""
    yield f"master: {state_of(stats)}, epoch {stats['epoch']}"
    if segments:
        capacity = sum(segment.capacity_bytes for segment in segments)
        used = sum(segment.charged_bytes for segment in segments)
        retiring = sum(segment.retiring_bytes for segment in segments)
        yield (
            f"memory: {len(segments)} segment{_s(len(segments))}, {format_size(capacity)}, "
            f"{100 * used / max(1, capacity):.1f} % used"
            + (f", {format_size(retiring)} of it on its way out" if retiring else "")
        )
    else:
        yield "memory: none, no node has joined (mooncake_client --master_server_address HOST:PORT)"
    pinned = stats["hard_pin_key_count"]
    yield (
        f"values: {stats['key_count']} key{_s(stats['key_count'])}, {format_size(stats['value_bytes'])}"
        + (f", {pinned} hard-pinned" if pinned else "")
    )
    yield f"sessions: {stats['active_session_count']}, this one included"
    for name, words in _TROUBLE.items():
        if count := stats.get(name, 0):
            yield f"  {count} {words}"


def state_of(stats: Mapping[str, int]) -> str:
    """Whether the master serves: `serving` alone where all is well."""
    if deposed_by := stats["deposed_by_epoch"]:
        return f"stepped down, nodes follow one of epoch {deposed_by}"
    if unreported := stats["unreported_segment_count"]:
        return f"serving, {unreported} segment{_s(unreported)} still to tell what they hold"
    return "serving"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
