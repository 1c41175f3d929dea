"""What the processes of a soak did, one line an event, in files that outlive a kill.

A line is written when an operation begins and when it has ended, by one system call: a process that is killed
leaves operations without an end. Times are CLOCK_MONOTONIC in ns, the same in all processes of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PUT_BEGINS, PUT_ENDS, REMOVE_BEGINS, REMOVE_ENDS = "p", "P", "x", "X"
READ, WRONG, PRESENT, FAILED = "r", "w", "e", "f"
HELD, COUNTED = "h", "c"

MAPPED, COPIED = "mapped", "copied"
"""Text of a read by a view, and of a view that was held: memory of a node's, or a copy."""

ERROR = "error"
"""The outcome of an operation that raised: it may have happened, or may happen yet."""


@dataclass(frozen=True)
class Event:
    """kind: of the above. value: version of a put or a read (0: a miss), number of a remove, 1 if present.

    A view held has the version that it showed from begin to end; something counted its name as key and the
    increase as value. begin_ns and end_ns are equal where the event is one moment. text: outcome, or what was
    wrong.
    """

    kind: str
    begin_ns: int
    end_ns: int
    value: int
    key: str
    text: str

    def line(self) -> str:
        return f"{self.kind}\t{self.begin_ns}\t{self.end_ns}\t{self.value}\t{self.key}\t{self.text}\n"


def parse(line: str) -> Event:
    kind, begin, end, value, key, text = line.split("\t")
    return Event(kind, int(begin), int(end), int(value), key, text)


class Ledger:
    """One process's file, which only it writes."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, events: Iterable[Event]) -> None:
        """Events that belong to one call."""
        os.write(self._file, "".join(event.line() for event in events).encode())


class LedgerReader:
    """Follows one process's file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_events(self) -> list[Event]:
        """Those since the last time, without a line that is not finished."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [parse(line) for line in whole.decode().splitlines()]
