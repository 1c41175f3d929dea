"""The entries of the HTTP metadata server: values by key, each with an end of its own, all bounded.

Owns the rules of duplicates, expiry and bounds. No IO; the clock is injected. One thread at a time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

KEY_BYTES_MAX: Final = 1_024
VALUE_BYTES_MAX: Final = 1 << 20
ENTRIES_MAX: Final = 65_536
BYTES_MAX: Final = 256 << 20
"""Of keys and values together."""
SWEEP_INTERVAL_S: Final = 1.0
"""Between looks for what has expired; an expired entry is never given out, swept or not."""
ADDRESS_OF_A_PROCESS: Final = "rpc_meta"
"""In a key: what stands there names a process, and two of one name would be served each other's."""


class Outcome(Enum):
    """What became of a put."""

    UPDATED = "updated"
    UNCHANGED = "unchanged"
    DUPLICATE = "duplicate"
    FULL = "full"


@dataclass(frozen=True)
class _Entry:
    value: bytes
    ends_s: float  # math.inf: it stays until it is deleted


class Entries:
    """A table of at most `entries_max` entries and `bytes_max` bytes."""

    def __init__(
        self,
        *,
        entries_max: int = ENTRIES_MAX,
        bytes_max: int = BYTES_MAX,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._clock_s = clock_s
        self._entries: dict[str, _Entry] = {}
        self._bytes = 0
        self._swept_s = clock_s()
        self.expired_total = 0

    def counts(self) -> tuple[int, int]:
        """(entries, bytes of keys and values) of what has not expired."""
        self._sweep()
        return len(self._entries), self._bytes

    def get(self, key: str) -> bytes | None:
        entry = self._live(key)
        return None if entry is None else entry.value

    def put(self, key: str, value: bytes, ttl_s: float | None = None) -> Outcome:
        """Set a value, for ttl_s or, with None, until it is deleted.

        A put with a TTL comes from a process that renews it, so it is never a duplicate: a process that was
        started again may be here before its old entry has expired. Without a TTL the address of a process is
        put once, until it is deleted.
        """
        old = self._live(key)
        if ttl_s is None and old is not None and ADDRESS_OF_A_PROCESS in key:
            return Outcome.UNCHANGED if old.value == value else Outcome.DUPLICATE
        if not self._has_room(key, value, old):
            self._sweep(now=True)
            if not self._has_room(key, value, old):
                return Outcome.FULL
        self._drop(key)
        ends_s = math.inf if ttl_s is None else self._clock_s() + ttl_s
        self._entries[key] = _Entry(value, ends_s)
        self._bytes += _size(key, value)
        self._sweep()
        return Outcome.UPDATED

    def delete(self, key: str) -> bool:
        """Whether there was one."""
        return self._live(key) is not None and self._drop(key)

    def _has_room(self, key: str, value: bytes, old: _Entry | None) -> bool:
        freed = 0 if old is None else _size(key, old.value)
        count = len(self._entries) + (old is None)
        return count <= self._entries_max and self._bytes - freed + _size(key, value) <= self._bytes_max

    def _live(self, key: str) -> _Entry | None:
        entry = self._entries.get(key)
        if entry is not None and entry.ends_s <= self._clock_s():
            self._expire(key)
            return None
        return entry

    def _sweep(self, *, now: bool = False) -> None:
        now_s = self._clock_s()
        if now or now_s - self._swept_s >= SWEEP_INTERVAL_S:
            self._swept_s = now_s
            for key in [key for key, entry in self._entries.items() if entry.ends_s <= now_s]:
                self._expire(key)

    def _expire(self, key: str) -> None:
        self._drop(key)
        self.expired_total += 1

    def _drop(self, key: str) -> bool:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= _size(key, entry.value)
        return entry is not None


def _size(key: str, value: bytes) -> int:
    return len(key.encode("utf-8", "surrogateescape")) + len(value)
