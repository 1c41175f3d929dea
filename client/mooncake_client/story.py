"""What the master tells of one key, node or segment, and of what happened lately. Data only.

Owns the names of `proto/FRAMES.md`'s numbers (verb inspect); how a story reads is in `story_text`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from mooncake_client.arguments import HARD_PIN, SOFT_PIN
from mooncake_client.records import ABSENCES, ENDS, Absence, Explanation
from mooncake_store import _core

EVENTS_MAX: Final = 1_024
"""Events that one answer may hold."""

_CONNECTED: Final = 1
_TOLD: Final = 2
_SUSPECTED: Final = 4


class EventKind(str, Enum):
    """What happened: first to one copy of a value, from SESSION_OPENED on to a session, segment or reign."""

    PLACED = "placed"
    COMMITTED = "committed"
    FAILED = "failed"
    REVOKED = "revoked"
    REAPED = "reaped"
    SUPERSEDED = "superseded"
    REMOVED = "removed"
    EVICTED = "evicted"
    EXPIRED = "expired"
    FREED = "freed"
    LOST = "lost"
    ADOPTED = "adopted"
    COPY_BEGUN = "copy begun"
    COPIED = "copied"
    COPY_FAILED = "copy failed"
    MOVED = "moved"
    FORGOTTEN = "forgotten"
    SESSION_OPENED = "session opened"
    SESSION_ENDED = "session ended"
    CONNECTION_LOST = "connection lost"
    SEGMENT_MOUNTED = "segment mounted"
    SEGMENT_TOLD = "segment told"
    SEGMENT_LEFT = "segment left"
    EPOCH_TAKEN = "epoch taken"
    REBUILD_ENDED = "rebuild ended"
    REPORTED_UNREACHABLE = "reported unreachable"
    PROBE_ANSWERED = "probe answered"
    PROBE_FAILED = "probe failed"
    SEGMENT_DRAINING = "segment draining"
    SEGMENT_DIFFERS = "segment differs"
    SEGMENT_RECONCILED = "segment reconciled"
    DEPOSED = "deposed"

    def __str__(self) -> str:
        return self.value


class EventReason(str, Enum):
    NONE = ""
    ASKED = "in order"
    SILENT = "not heard for client_ttl"
    STALLED = "left a command unanswered for client_ttl"
    UNREACHABLE = "neither clients nor the master reached it"
    REPLACED = "a newer life of its node took its place"
    REFUSED = "connection refused"
    RESET = "connection broken"
    TIMED_OUT = "no answer in time"

    def __str__(self) -> str:
        return self.value


_KINDS: Final = dict(zip((*range(1, 18), *range(20, 35)), EventKind, strict=True))
_REASONS: Final = tuple(EventReason)


@dataclass(frozen=True)
class Event:
    """One thing that happened. name: of the segment, or of the session where there is none.

    replica_id: of the copy it happened to, else 0. number: the epoch taken, the copies a rebuild took in.
    """

    ms_ago: int
    kind: EventKind
    reason: EventReason
    name: str
    replica_id: int
    segment: int
    session: int
    number: int


@dataclass(frozen=True)
class Copy:
    """One copy of the key's value, or of one that is under way or on its way out."""

    replica_id: int
    status: Literal["unfinished", "live", "retiring", "copying"]
    segment: str
    segment_id: int
    host_id: str
    tier: Literal["dram", "ssd"]
    charged_bytes: int
    has_left: bool
    """Its segment is out of the pool: the copy is about to be forgotten."""


@dataclass(frozen=True)
class UnfinishedPut:
    put_id: int
    size_bytes: int
    age_ms: int
    session: int
    owner: str


@dataclass(frozen=True)
class KeyState:
    """A key now. Times are what remains; None where there is no value, lease, hold, pin or TTL."""

    explanation: Explanation
    """As `Store.why` answers."""
    put_id: int | None
    size_bytes: int | None
    pin: Literal["hard", "soft"] | None
    soft_pin_ms: int | None
    ttl_ms: int | None
    lease_count: int
    lease_ms: int | None
    hold_ms: int | None
    unfinished_put: UnfinishedPut | None

    @property
    def is_visible(self) -> bool:
        return self.explanation.reason is Absence.PRESENT


@dataclass(frozen=True)
class SegmentState:
    """A segment of the pool now, and the node that lends it."""

    name: str
    segment_id: int
    host_id: str
    endpoint: str
    tier: Literal["dram", "ssd"]
    capacity_bytes: int
    charged_bytes: int
    retiring_bytes: int
    replica_count: int
    owner: str
    session: int
    heard_ms_ago: int
    is_connected: bool
    """Its node's control connection is open."""
    is_told: bool
    """Its node has told all that it held before a restart of the master: puts may go there."""
    is_suspected: bool
    """Clients report that they cannot reach it."""


@dataclass(frozen=True)
class Story:
    """What is now, and what happened. events: oldest first.

    forgotten_events: how many the bounded journal (`--journal_events`) has dropped since the master's start,
    of all keys or all nodes; what it still holds begins oldest_event_ms_ago. has_older_events: of this
    subject it holds more than were asked for.
    """

    key: KeyState | None
    copies: tuple[Copy, ...]
    segments: tuple[SegmentState, ...]
    events: tuple[Event, ...]
    has_older_events: bool
    forgotten_events: int
    oldest_event_ms_ago: int


def story(packed: bytes) -> Story:
    """The story that a packed answer holds. Raises ValueError when it is malformed."""
    reply = _core.parse_inspect_reply(packed)
    return Story(
        key=None if reply["key"] is None else _key(reply["key"]),
        copies=tuple(map(_copy, reply["copies"])),
        segments=tuple(map(_segment, reply["segments"])),
        events=tuple(map(_event, reversed(reply["events"]))),
        has_older_events=reply["has_older_events"],
        forgotten_events=reply["dropped_events"],
        oldest_event_ms_ago=reply["oldest_event_ms_ago"],
    )


def _key(key: _core.InspectedKey) -> KeyState:
    absence = ABSENCES[key["reason"]]
    there = key["put_id"] != 0
    unfinished = None
    if key["unfinished_put_id"]:
        unfinished = UnfinishedPut(
            key["unfinished_put_id"],
            key["unfinished_size"],
            key["unfinished_age_ms"],
            key["unfinished_owner"],
            key["unfinished_owner_name"],
        )
    flags = key["flags"]
    return KeyState(
        explanation=Explanation(absence, key["ended_ms_ago"] if absence in ENDS else None),
        put_id=key["put_id"] if there else None,
        size_bytes=key["size"] if there else None,
        pin="hard" if flags & HARD_PIN else "soft" if flags & SOFT_PIN else None,
        soft_pin_ms=key["soft_pin_ms"] or None,
        ttl_ms=key["ttl_ms"] or None,
        lease_count=key["lease_count"],
        lease_ms=key["lease_ms"] or None,
        hold_ms=key["hold_ms"] or None,
        unfinished_put=unfinished,
    )


_STATUSES: Final[dict[int, Literal["unfinished", "live", "retiring", "copying"]]] = {
    1: "unfinished",
    2: "live",
    3: "retiring",
    4: "copying",
}


def _copy(copy: _core.InspectedCopy) -> Copy:
    return Copy(
        replica_id=copy["replica"],
        status=_STATUSES[copy["status"]],
        segment=copy["segment_name"],
        segment_id=copy["segment"],
        host_id=copy["host_id"],
        tier="ssd" if copy["tier"] == 2 else "dram",
        charged_bytes=copy["charged_bytes"],
        has_left=copy["has_left"],
    )


def _segment(segment: _core.InspectedSegment) -> SegmentState:
    flags = segment["flags"]
    return SegmentState(
        name=segment["name"],
        segment_id=segment["segment"],
        host_id=segment["host_id"],
        endpoint=segment["endpoint"],
        tier="ssd" if segment["tier"] == 2 else "dram",
        capacity_bytes=segment["capacity_bytes"],
        charged_bytes=segment["charged_bytes"],
        retiring_bytes=segment["retiring_bytes"],
        replica_count=segment["replica_count"],
        owner=segment["owner_name"],
        session=segment["owner"],
        heard_ms_ago=segment["heard_ms_ago"],
        is_connected=bool(flags & _CONNECTED),
        is_told=bool(flags & _TOLD),
        is_suspected=bool(flags & _SUSPECTED),
    )


def _event(event: _core.InspectedEvent) -> Event:
    return Event(
        ms_ago=event["ms_ago"],
        kind=_KINDS[event["kind"]],
        reason=_REASONS[event["reason"]],
        name=event["name"],
        replica_id=event["id"],
        segment=event["segment"],
        session=event["session"],
        number=event["number"],
    )
