"""A story in plain words, for the terminal, and as JSON. Owns the words; asks nobody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any, Final

from mooncake_client.story import Copy, Event, EventKind, KeyState, SegmentState, Story
from mooncake_store.units import format_size

_WORDS: Final = {
    EventKind.PLACED: "a put reserved room on {name}",
    EventKind.COMMITTED: "written whole on {name}: readable from here on",
    EventKind.FAILED: "its put ended without this copy on {name}",
    EventKind.REVOKED: "its put was given up, or its writer went ({name})",
    EventKind.REAPED: "its put was never ended, and was given up ({name})",
    EventKind.SUPERSEDED: "a newer value took the place of the one on {name}",
    EventKind.REMOVED: "removed ({name})",
    EventKind.EVICTED: "evicted from {name}",
    EventKind.EXPIRED: "its TTL ended ({name})",
    EventKind.FREED: "{name} gave its memory back",
    EventKind.LOST: "lost: {name} left the pool",
    EventKind.ADOPTED: "told by {name}, which held it from before the master's restart",
    EventKind.COPY_BEGUN: "to be copied to {name}",
    EventKind.COPIED: "copied to {name}: readable there from here on",
    EventKind.COPY_FAILED: "not copied to {name} after all",
    EventKind.MOVED: "moved away from {name}",
    EventKind.FORGOTTEN: "lost: {name} does not hold it any more, though nobody ended it",
    EventKind.SESSION_OPENED: "session of {name} opened",
    EventKind.SESSION_ENDED: "session of {name} ended",
    EventKind.CONNECTION_LOST: "{name} lost its connection to the master",
    EventKind.SEGMENT_MOUNTED: "segment {name} joined the pool",
    EventKind.SEGMENT_TOLD: "segment {name}: its node has told all that it held",
    EventKind.SEGMENT_LEFT: "segment {name} left the pool",
    EventKind.EPOCH_TAKEN: "the master took epoch {number}",
    EventKind.REBUILD_ENDED: "the rebuild ended, {number} copies were taken in",
    EventKind.REPORTED_UNREACHABLE: "clients report that they cannot reach {name}",
    EventKind.PROBE_ANSWERED: "the master reaches {name}",
    EventKind.PROBE_FAILED: "the master cannot reach {name} either",
    EventKind.SEGMENT_DRAINING: "segment {name} is about to leave: what is hot moves elsewhere",
    EventKind.SEGMENT_DIFFERS: "segment {name} holds other copies than the master believes: they compare",
    EventKind.DEPOSED: "nodes follow a master of epoch {number}: this one stepped down",
    EventKind.SEGMENT_RECONCILED: "segment {name} and the master agree again, {number} copies were put right",
}

_COPY_STATUS: Final = {
    "unfinished": "being written",
    "live": "readable",
    "retiring": "on its way out",
    "copying": "being copied there",
}


def ago(ms: int) -> str:
    """A duration before now, such as "12.3 s ago" or "2 h 5 min ago"."""
    return f"{duration(ms)} ago"


def duration(ms: int) -> str:
    if ms < 1_000:
        return f"{ms} ms"
    seconds = ms // 1_000
    if seconds < 60:
        return f"{ms / 1_000:.1f} s"
    if seconds < 3_600:
        return f"{seconds // 60} min {seconds % 60} s"
    if seconds < 86_400:
        return f"{seconds // 3_600} h {seconds % 3_600 // 60} min"
    return f"{seconds // 86_400} d {seconds % 86_400 // 3_600} h"


def event_line(event: Event) -> str:
    """What happened, in words."""
    name = _printable(event.name or f"segment {event.segment}")
    words = _WORDS[event.kind].format(name=name, number=event.number)
    if event.reason.value:
        words += f": {event.reason}"
    return f"{words} (replica {event.replica_id})" if event.replica_id else words


def key_lines(shown_key: str, story: Story) -> Iterator[str]:
    """One key: what is, then what happened."""
    assert story.key is not None
    yield f"key {shown_key}: {story.key.explanation}"
    for line in _state_lines(story.key):
        yield f"  {line}"
    for copy in story.copies:
        yield f"  {_copy_line(copy)}"
    yield from event_lines(story)


def node_lines(name: str, story: Story) -> Iterator[str]:
    """A segment, node or host by its name: what is, then what happened."""
    if not story.segments:
        yield f"{name}: no segment of it is in the pool"
    for segment in story.segments:
        yield f"segment {_printable(segment.name)}: in the pool"
        for line in _segment_lines(segment):
            yield f"  {line}"
    yield from event_lines(story)


def event_lines(story: Story) -> Iterator[str]:
    """What happened, oldest first, and what is missing from it."""
    yield "what happened:" if story.events else "what happened: nothing that the journal remembers"
    if story.has_older_events:
        yield "  (older events are left out: raise --limit)"
    width = max((len(ago(event.ms_ago)) for event in story.events), default=0)
    for event in story.events:
        yield f"  {ago(event.ms_ago):>{width}}  {event_line(event)}"
    if story.forgotten_events:
        yield (
            f"the journal has forgotten {story.forgotten_events} events, all from before "
            f"{ago(story.oldest_event_ms_ago)} (--journal_events of the master)"
        )


def without_sessions_of(story: Story, name: str, events_max: int) -> Story:
    """The newest events but those of sessions of this name: of a command, say, that asks every minute."""
    kept = [
        event
        for event in story.events
        if event.name != name or event.kind not in (EventKind.SESSION_OPENED, EventKind.SESSION_ENDED)
    ]
    has_older = story.has_older_events or len(kept) > events_max
    return replace(story, events=tuple(kept[-events_max:]), has_older_events=has_older)


def as_json(story: Story, **subject: str) -> str:
    """The same as one JSON object; names of fields are those of `mooncake_client.story`."""
    fields: dict[str, Any] = asdict(story)
    now = fields.pop("key")
    if story.key is not None:
        now = {"is_visible": story.key.is_visible, **now.pop("explanation"), **now}
    return json.dumps({**subject, "now": now, **fields}, indent=2)


def _state_lines(key: KeyState) -> Iterator[str]:
    if key.put_id is not None:
        yield f"value: {key.size_bytes} bytes, put_id {key.put_id}"
    if key.pin == "hard":
        yield "pinned: hard, never evicted"
    elif key.pin == "soft":
        yield f"pinned: soft, {duration(key.soft_pin_ms or 0)} left"
    if key.ttl_ms is not None:
        yield f"TTL: {duration(key.ttl_ms)} left"
    if key.lease_ms is not None:
        yield f"leased: by {key.lease_count} reads, {duration(key.lease_ms)} left"
    if key.hold_ms is not None:
        yield f"held by an exists: {duration(key.hold_ms)} left"
    put = key.unfinished_put
    if put is not None:
        yield (
            f"put under way: {put.size_bytes} bytes, put_id {put.put_id}, begun {ago(put.age_ms)} by "
            f"{_printable(put.owner) or 'a client without a name'} (session {put.session})"
        )


def _copy_line(copy: Copy) -> str:
    where = f"{_printable(copy.segment)} ({copy.tier}, host {_printable(copy.host_id) or 'unknown'})"
    left = ", whose segment has left the pool" if copy.has_left else ""
    return (
        f"copy on {where}: {_COPY_STATUS[copy.status]}{left}, {copy.charged_bytes} bytes charged, "
        f"replica {copy.replica_id}"
    )


def _segment_lines(segment: SegmentState) -> Iterator[str]:
    used = 100 * segment.charged_bytes / max(1, segment.capacity_bytes)
    yield (
        f"{segment.tier}, {format_size(segment.capacity_bytes)}, {used:.1f} % used by "
        f"{segment.replica_count} copies, {segment.retiring_bytes} bytes on their way out"
    )
    connection = "connected" if segment.is_connected else "without connection to the master"
    yield (
        f"node {_printable(segment.owner) or 'without a name'} (session {segment.session}) on host "
        f"{_printable(segment.host_id) or 'unknown'} at {_printable(segment.endpoint)}: {connection}, "
        f"heard {ago(segment.heard_ms_ago)}"
    )
    if not segment.is_told:
        yield "its node has not yet told all that it held before the master's restart: no puts go there"
    if segment.is_suspected:
        yield "clients report that they cannot reach it"


def _printable(name: str) -> str:
    """Nothing that a peer calls itself may steer a terminal."""
    return name if name.isprintable() else ascii(name)[1:-1]
