"""What the master's log tells of the pool: segments that come and go, and numbers that rise with trouble.

Owns which changes are worth a line and its words. Native code writes no log: the daemon hands two looks at
its numbers to this, and this says what happened between them. Must not ask anybody itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mooncake_store.units import format_size

TROUBLE: Final = {
    "allocation_failures_total": "%(count)d puts were refused: no segment had room",
    "busy_answers_total": "%(count)d calls were answered Busy: too many are waiting already",
    "clock_dropped_ms": "this process did not run for %(count)d ms; deadlines were moved by as much",
    "early_expiries_total": "%(count)d nodes were expelled early: neither clients nor the master reach them",
    "evicted_leased_keys_total": "%(count)d values were evicted that somebody had just asked for",
    "evicted_soft_pinned_keys_total": "%(count)d soft-pinned values were evicted: nothing else was left",
    "lane_malformed_total": "%(count)d connections on the lane were closed for bytes that do not parse",
    "lane_role_refusals_total": "%(count)d connections or requests on the lane were refused for their role",
    "lane_version_refusals_total": "%(count)d connections on the lane were refused for their version",
    "lost_keys_total": "%(count)d values went with the segment of their last copy",
    "reconcile_mismatches_total": "%(count)d segments held other replicas than the index says: put right",
    "retire_refusals_total": "%(count)d commands to end replicas were refused by a node",
    "sessions_expired_total": "%(count)d clients or nodes were not heard for client_ttl and were expelled",
    "stalled_nodes_total": "%(count)d nodes left a command unanswered and were disconnected",
    "unreachable_mounts_total": "%(count)d mounts were refused: their node cannot be dialled from here",
}
"""Numbers of `_core.Master.stats` whose rise is a warning, and how to say it."""


@dataclass(frozen=True)
class Notice:
    """One record for the log: a text of logging's %-form over `fields`, which JSON shows by their names."""

    level: int
    text: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass
class PoolWatch:
    """Remembers the last look."""

    _numbers: Mapping[str, int] = field(default_factory=dict)
    _segments: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    _deposed_by: int = 0

    def look_at_reign(self, stats: Mapping[str, int]) -> Iterator[Notice]:
        """Whether this master stepped down, or serves again; both once."""
        now, before = stats.get("deposed_by_epoch", 0), self._deposed_by
        self._deposed_by = now
        if now and not before:
            yield Notice(
                logging.ERROR,
                "this master, of epoch %(epoch)d, stepped down: nodes follow one of epoch %(later)d. Two "
                "masters run by mistake; stop one. Requests are answered STALE_EPOCH meanwhile",
                {"epoch": stats.get("epoch", 0), "later": now},
            )
        elif before and not now:
            yield Notice(
                logging.WARNING,
                "this master, of epoch %(epoch)d, serves again: no node has said for client_ttl that it "
                "follows the one of epoch %(later)d",
                {"epoch": stats.get("epoch", 0), "later": before},
            )

    def moved(self, stats: Mapping[str, int]) -> bool:
        """Whether segments came or went since the last look, so that asking for them is worth it."""
        names = ("segments_mounted_total", "segments_expelled_total")
        return any(stats.get(name, 0) != self._numbers.get(name, 0) for name in names)

    def look(
        self, stats: Mapping[str, int], segments: Iterable[Mapping[str, Any]] | None = None
    ) -> Iterator[Notice]:
        """What changed. segments: as `parse_segments_reply` gives them; None: as at the last look."""
        before, self._numbers = self._numbers, dict(stats)
        if segments is not None:
            yield from self._look_at_segments({segment["segment"]: segment for segment in segments})
        rises = {name: stats.get(name, 0) - before.get(name, 0) for name in TROUBLE}
        # An early expiry is counted in both, and told with its reason.
        rises["sessions_expired_total"] -= rises["early_expiries_total"]
        for name, words in TROUBLE.items():
            count = rises[name]
            if count > 0:
                yield Notice(logging.WARNING, words, {"count": count, "metric": name})

    def _look_at_segments(self, now: dict[int, Mapping[str, Any]]) -> Iterator[Notice]:
        before, self._segments = self._segments, now
        for number, segment in now.items():
            if number not in before:
                yield Notice(
                    logging.INFO,
                    "segment %(segment)s joined the pool: %(capacity)s at %(endpoint)s",
                    _described(segment),
                )
        for number, segment in before.items():
            if number not in now:
                yield Notice(
                    logging.INFO,
                    "segment %(segment)s left the pool: %(capacity)s at %(endpoint)s",
                    _described(segment),
                )


def _described(segment: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "segment": segment["name"],
        "capacity": format_size(segment["capacity_bytes"]),
        "endpoint": " ".join(segment["endpoints"]),
    }
