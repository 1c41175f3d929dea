"""What a Store tells about objects, segments and buffers. Data only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from mooncake_client.arguments import HARD_PIN, SOFT_PIN
from mooncake_store import _core


@dataclass(frozen=True)
class ObjectInfo:
    """One object as the master knows it. put_id names the value: a replaced one has a higher id."""

    key: bytes
    size_bytes: int
    put_id: int
    replica_count: int | None = None
    is_hard_pinned: bool | None = None
    is_soft_pinned: bool | None = None


class Absence(str, Enum):
    """Why a key has no value that could be read now."""

    PRESENT = "present"
    NEVER_STORED = "never stored"
    """Or so long ago, and so many ends ago, that the master has forgotten it."""
    EVICTED = "evicted"
    REMOVED = "removed"
    EXPIRED = "expired"
    """Its ttl_ms passed."""
    LOST = "lost with its node"
    ABANDONED = "its put was not finished"
    """Revoked or failed, or its writer went."""
    NOT_READY = "its put is under way"
    REBUILDING = "rebuilding"
    """The master was restarted, and nodes may still tell it."""
    UNREACHABLE = "unreachable"
    """It is there, on nodes that this client cannot reach now."""
    OTHER_TENANT = "another tenant's"

    def __str__(self) -> str:
        return self.value


ABSENCES: Final = tuple(Absence)
"""By the number of proto/FRAMES.md."""
ENDS: Final = frozenset({Absence.EVICTED, Absence.REMOVED, Absence.EXPIRED, Absence.LOST, Absence.ABANDONED})
"""Those of which the master knows when it was."""


@dataclass(frozen=True)
class Explanation:
    """Why a key is (not) there. ended_ms_ago: of a key that was there, to the second; else None."""

    reason: Absence
    ended_ms_ago: int | None = None

    def __str__(self) -> str:
        if self.ended_ms_ago is None:
            return str(self.reason)
        return f"{self.reason}, {self.ended_ms_ago // 1000} s ago"


@dataclass(frozen=True)
class SegmentUse:
    """One segment of the pool. charged_bytes include retiring_bytes, which are about to be free."""

    name: str
    capacity_bytes: int
    charged_bytes: int
    retiring_bytes: int
    replica_count: int
    tier: Literal["dram", "ssd"]
    host_id: str
    endpoints: tuple[str, ...]


@dataclass(frozen=True)
class LocalNode:
    """How a client reaches one node's memory. why_not: it is not mapped; empty where it is."""

    endpoint: str
    is_mapped: bool
    mapped_bytes: int
    why_not: str


def object_info(key: bytes, size_bytes: int, put_id: int, replica_count: int, flags: int) -> ObjectInfo:
    """What the native client lists about one object."""
    return ObjectInfo(key, size_bytes, put_id, replica_count, bool(flags & HARD_PIN), bool(flags & SOFT_PIN))


def segment_use(segment: _core.ClientSegment) -> SegmentUse:
    """What the native client tells about one segment."""
    return SegmentUse(
        name=segment["name"],
        capacity_bytes=segment["capacity_bytes"],
        charged_bytes=segment["charged_bytes"],
        retiring_bytes=segment["retiring_bytes"],
        replica_count=segment["replica_count"],
        tier="ssd" if segment["tier"] == 2 else "dram",
        host_id=segment["host_id"],
        endpoints=tuple(segment["endpoints"]),
    )


class Registration:
    """A buffer that was announced with `Store.register`; a context manager that withdraws it.

    hold: what keeps the memory in place. withdraw: called when the context ends.
    """

    def __init__(
        self, buffer: object, size_bytes: int, hold: object, withdraw: Callable[[Registration], None]
    ) -> None:
        self.buffer = buffer
        self.size_bytes = size_bytes
        self._hold = hold
        self._withdraw = withdraw

    def __repr__(self) -> str:
        return f"<Registration of {self.size_bytes} bytes of {type(self.buffer).__name__}>"

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self._withdraw(self)
