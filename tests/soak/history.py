"""Judges what readers saw by what writers did. Pure: events in, verdicts out; knows no process and no clock.

A read that returns version v is wrong if something ended v for good before the read began: a put that was
committed, or a remove that was acknowledged, and that had begun after v's own put was over. What ran at the
same time may have happened in either order, and a put without an acknowledgement may appear later, whole, or
never.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from soak import ledger
from soak.ledger import Event


@dataclass
class Write:
    """One put. committed_ns: when it was known to be visible, by its acknowledgement or by a reader."""

    version: int
    source: str
    begin_ns: int
    end_ns: float = math.inf
    outcome: str = ""
    committed_ns: float = math.inf


@dataclass
class Remove:
    number: int
    source: str
    begin_ns: int
    end_ns: float = math.inf
    is_acknowledged: bool = False


@dataclass
class KeyHistory:
    """writes and removes in the order in which they began."""

    writes: list[Write] = field(default_factory=list)
    removes: list[Remove] = field(default_factory=list)


@dataclass(frozen=True)
class Wrong:
    """kind: bytes (torn, foreign, never put), old (replaced by then) or undone (removed by then)."""

    kind: str
    key: str
    story: str


class History:
    """All keys; `add_changes` of every process before `check` of reads that may have seen them."""

    def __init__(self) -> None:
        self._keys: dict[str, KeyHistory] = defaultdict(KeyHistory)
        self._open: dict[str, dict[tuple[str, int], Write | Remove]] = defaultdict(dict)
        self.counts: Counter[str] = Counter()
        self.slowest_ns: tuple[int, str] = (0, "")
        self.failures: Counter[str] = Counter()

    def add_changes(self, source: str, events: Iterable[Event]) -> None:
        """source: the process, one life of it."""
        for event in events:
            if event.kind == ledger.PUT_BEGINS:
                write = Write(event.value, source, event.begin_ns)
                bisect.insort(self._keys[event.key].writes, write, key=_version)
                self._open[source][event.key, event.value] = write
            elif event.kind == ledger.REMOVE_BEGINS:
                remove = Remove(event.value, source, event.begin_ns)
                bisect.insort(self._keys[event.key].removes, remove, key=_begin)
                self._open[source][event.key, event.value] = remove
            elif event.kind in (ledger.PUT_ENDS, ledger.REMOVE_ENDS):
                self._end(source, event)
            elif event.kind == ledger.FAILED:
                self.failures[event.text] += 1
                self._note_duration(event)

    def _end(self, source: str, event: Event) -> None:
        change = self._open[source].pop((event.key, event.value))
        change.end_ns = event.end_ns
        self._note_duration(event)
        if isinstance(change, Write):
            change.outcome = event.text
            self.counts[f"puts {event.text}"] += 1
            if event.text == "stored":
                change.committed_ns = min(change.committed_ns, event.end_ns)
        else:
            self.counts[f"removes {event.text}"] += 1
            change.is_acknowledged = event.text != ledger.ERROR

    def died(self, source: str, at_ns: int) -> list[str]:
        """A process is gone; the keys of puts that it left unfinished."""
        left = self._open.pop(source, {})
        for change in left.values():
            change.end_ns = at_ns
        return sorted({key for (key, _), change in left.items() if isinstance(change, Write)})

    def check(self, reads: Iterable[Event]) -> list[Wrong]:
        """In the order of their ends, so that each is evidence for those that began later."""
        wrong: list[Wrong] = []
        for event in sorted(reads, key=lambda event: event.end_ns):
            if event.kind == ledger.HELD:  # no call, and no evidence: the value may have ended since
                self.counts[f"views held, {event.text}"] += 1
                continue
            if event.kind == ledger.COUNTED:
                self.counts[event.key] += event.value
                continue
            self._note_duration(event)
            if event.kind == ledger.WRONG:
                wrong.append(Wrong("bytes", event.key, event.text))
            elif event.kind == ledger.PRESENT:
                self.counts["exists"] += 1
                if event.value and (found := self._check_presence(event)):
                    wrong.append(found)
            elif event.kind == ledger.READ:
                self.counts["hits" if event.value else "misses"] += 1
                if event.value and event.text:
                    self.counts[f"hits by a view, {event.text}"] += 1
                if event.value and (found := self._check_value(event)):
                    wrong.append(found)
        return wrong

    def _note_duration(self, event: Event) -> None:
        if event.end_ns - event.begin_ns > self.slowest_ns[0]:
            names = {ledger.PUT_ENDS: "put", ledger.REMOVE_ENDS: "remove", ledger.PRESENT: "exists"}
            self.slowest_ns = (event.end_ns - event.begin_ns, names.get(event.kind, "get"))

    def _check_value(self, read: Event) -> Wrong | None:
        history = self._keys[read.key]
        place = bisect.bisect_left(history.writes, read.value, key=_version)
        if place == len(history.writes) or history.writes[place].version != read.value:
            story = f"version {read.value} was never put"
            return Wrong("bytes", read.key, story)
        write = history.writes[place]
        by = self._ended_by(history, write, read.begin_ns)
        write.committed_ns = min(write.committed_ns, read.end_ns)
        if by is None:
            return None
        kind = "undone" if isinstance(by, Remove) else "old"
        return self._wrong(kind, read, by, f"{_told(write)} was read")

    @staticmethod
    def _ended_by(history: KeyHistory, write: Write, before_ns: int) -> Write | Remove | None:
        """What had ended this value for good when a read began."""
        for other in reversed(history.writes):
            if other.begin_ns <= write.end_ns:
                break
            if other.committed_ns < before_ns:
                return other
        for remove in reversed(history.removes):
            # While a put goes on it may be stored again: its master died before it was answered.
            if remove.begin_ns <= max(write.end_ns, write.committed_ns):
                break
            if remove.is_acknowledged and remove.end_ns < before_ns:
                return remove
        return None

    def _check_presence(self, read: Event) -> Wrong | None:
        """Present although a remove had ended all that could be: each put was over and known before it."""
        history = self._keys[read.key]
        for remove in reversed(history.removes):
            if remove.is_acknowledged and remove.end_ns < read.begin_ns:
                known = (max(write.end_ns, write.committed_ns) < remove.begin_ns for write in history.writes)
                if all(known):
                    return self._wrong("undone", read, remove, "the key was said to exist")
                return None
        return None

    @staticmethod
    def _wrong(kind: str, read: Event, by: Write | Remove, what: str) -> Wrong:
        assert by.end_ns < math.inf or isinstance(by, Write)
        known_ns = by.end_ns if isinstance(by, Remove) else by.committed_ns
        seconds = (read.begin_ns - known_ns) / 1e9
        story = f"{what}, {seconds:.3f} s after {_told(by)} had ended it"
        return Wrong(kind, read.key, story)

    def story(self, key: str, last: int = 12) -> str:
        """The last changes of a key, one a line."""
        changes: list[Write | Remove] = [*self._keys[key].writes, *self._keys[key].removes]
        changes.sort(key=lambda change: change.begin_ns)
        return "\n".join(f"    {_told(change)}" for change in changes[-last:])


def _version(write: Write) -> int:
    return write.version


def _begin(remove: Remove) -> int:
    return remove.begin_ns


def _told(change: Write | Remove) -> str:
    end = "not over" if change.end_ns == math.inf else f"{change.end_ns / 1e9:.4f}"
    when = f"{change.begin_ns / 1e9:.4f}..{end} s by {change.source}"
    if isinstance(change, Remove):
        return f"remove {'acknowledged' if change.is_acknowledged else 'unanswered'} ({when})"
    known = "" if change.committed_ns == math.inf else f", visible by {change.committed_ns / 1e9:.4f}"
    return f"put {change.version} {change.outcome or 'unfinished'} ({when}{known})"
