"""A writer or a reader of a soak: a process with a store of its own that works until SIGTERM or a kill.

Every operation goes into its ledger. Readers compare every byte; history.py judges what it means.
"""

from __future__ import annotations

import argparse
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from soak import ledger, values
from soak.ledger import Event, Ledger

from mooncake_client import Store
from mooncake_store.errors import StoreError

PAUSE_S = 0.003  # between two operations: the machine has other work
OWN_KEYS, SHARED_KEYS = 60, 20
BATCH_MAX = 12


def keys_of(slots: int) -> list[str]:
    """Each writer's own, and some that all of them write."""
    own = [f"w{slot}/{number}" for slot in range(slots) for number in range(OWN_KEYS)]
    return own + [f"shared/{number}" for number in range(SHARED_KEYS)]


def draw_size(chance: random.Random) -> int:
    """Mostly small values; some are long enough to be caught amid their bytes."""
    largest = chance.choices([4 << 10, 200 << 10, values.SIZE_MAX], [50, 35, 15])[0]
    return chance.randint(values.HEADER.size, largest)


class Recorder:
    """Calls of a store that leave their story in a ledger. slot: of the writer, in its versions."""

    def __init__(self, store: Store, book: Ledger, slot: int) -> None:
        self.store = store
        self._book = book
        self._slot = slot

    def put(self, keys: Sequence[str], sizes: Sequence[int], **options: Any) -> list[str]:
        """options: of `Store.put_many`. What became of each: stored, exists or error."""
        versions = [values.new_version(self._slot) for _ in keys]
        data = [values.value_of(key, *rest) for key, *rest in zip(keys, versions, sizes, strict=True)]
        kinds = (ledger.PUT_BEGINS, ledger.PUT_ENDS)
        return self._change(kinds, keys, versions, lambda: self.store.put_many(keys, data, **options))

    def remove(self, keys: Sequence[str]) -> list[str]:
        """True, False (there was none: an answer too) or error of each."""
        numbers = [values.new_version(self._slot) for _ in keys]
        kinds = (ledger.REMOVE_BEGINS, ledger.REMOVE_ENDS)
        return self._change(kinds, keys, numbers, lambda: self.store.remove_many(keys))

    def _change(
        self,
        kinds: tuple[str, str],
        keys: Sequence[str],
        numbers: Sequence[int],
        call: Callable[[], Sequence[object]],
    ) -> list[str]:
        pairs = [(key, number, values.begin_ns(number)) for key, number in zip(keys, numbers, strict=True)]
        self._book.write(Event(kinds[0], at, at, number, key, "") for key, number, at in pairs)
        try:
            answers = list(call())
        except StoreError as error:
            answers = [error] * len(keys)
        end = time.monotonic_ns()
        outcomes, events = [], []
        for (key, number, at), answer in zip(pairs, answers, strict=True):
            outcome = str(answer)
            if isinstance(answer, StoreError):
                outcome = ledger.ERROR
                events.append(Event(ledger.FAILED, at, end, 0, key, f"{kinds[1]} {type(answer).__name__}"))
            outcomes.append(outcome)
            events.append(Event(kinds[1], at, end, number, key, outcome))
        self._book.write(events)
        return outcomes

    def read(self, keys: Sequence[str], call: Callable[[], Sequence[object]]) -> list[Event]:
        """call: asks for the keys by get, get_into or exists."""
        begin = time.monotonic_ns()
        try:
            answers: Sequence[object] = call()
        except StoreError as error:
            answers = [error] * len(keys)
        end = time.monotonic_ns()
        events = [read_event(key, answer, begin, end) for key, answer in zip(keys, answers, strict=True)]
        self._book.write(events)
        return events


class Writer:
    """Puts, replaces and removes its own keys and the shared ones."""

    def __init__(self, recorder: Recorder, slot: int, chance: random.Random) -> None:
        self._recorder = recorder
        self._chance = chance
        self._keys = [key for key in keys_of(slot + 1) if key.startswith((f"w{slot}/", "shared/"))]

    def step(self) -> None:
        keys = self._chance.sample(self._keys, self._chance.randint(2, BATCH_MAX))
        draw = self._chance.random()
        if draw < 0.55:
            self._put(keys[:1], replace=draw < 0.45)
        elif draw < 0.75:
            self._put(keys, replace=draw < 0.7)
        else:
            self._recorder.remove(keys[:1] if draw < 0.9 else keys)

    def _put(self, keys: Sequence[str], *, replace: bool) -> None:
        replicas = 2 if self._chance.random() < 0.25 else 1
        sizes = [draw_size(self._chance) for _ in keys]
        self._recorder.put(keys, sizes, replace=replace, replicas=replicas)


class Reader:
    """Reads keys of all writers, one and many, into new memory and into its own, and asks for presence."""

    def __init__(self, recorder: Recorder, slots: int, chance: random.Random) -> None:
        self._recorder = recorder
        self._store = recorder.store
        self._chance = chance
        self._keys = keys_of(slots)
        self._targets = [bytearray(values.SIZE_MAX) for _ in range(4)]

    def step(self) -> None:
        keys = self._chance.sample(self._keys, self._chance.randint(2, BATCH_MAX))
        draw = self._chance.random()
        if draw < 0.5:
            self._recorder.read(keys[:1], lambda: [self._store.get(keys[0])])
        elif draw < 0.75:
            self._recorder.read(keys, lambda: self._store.get_many(keys))
        elif draw < 0.9:
            some = keys[: len(self._targets)]
            self._recorder.read(some, lambda: self._into(some))
        else:
            self._recorder.read(keys, lambda: self._store.exists_many(keys))

    def _into(self, keys: Sequence[str]) -> list[object]:
        lengths = self._store.get_into_many(keys, self._targets[: len(keys)])
        return [
            memoryview(target)[:length] if isinstance(length, int) else length
            for target, length in zip(self._targets, lengths, strict=False)
        ]


def read_event(key: str, answer: object, begin: int, end: int) -> Event:
    """What one answer to get, get_into or exists was."""
    if isinstance(answer, StoreError):
        return Event(ledger.FAILED, begin, end, 0, key, f"read {type(answer).__name__}")
    if isinstance(answer, bool):
        return Event(ledger.PRESENT, begin, end, int(answer), key, "")
    if answer is None:
        return Event(ledger.READ, begin, end, 0, key, "")
    assert isinstance(answer, bytes | memoryview)
    try:
        return Event(ledger.READ, begin, end, values.version_of(key, answer), key, "")
    except values.WrongBytes as error:
        return Event(ledger.WRONG, begin, end, 0, key, str(error))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--role", choices=("writer", "reader"), required=True)
    parser.add_argument("--slot", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--master", required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    chosen = parser.parse_args(argv)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    chance = random.Random(chosen.seed)
    book = Ledger(chosen.ledger)
    store = None
    while store is None and not over.is_set():
        try:
            store = Store(chosen.master)
        except StoreError:
            over.wait(0.1)  # the master is away
    if store is None:
        return 0
    with store:
        recorder = Recorder(store, book, chosen.slot)
        actor: Writer | Reader = (
            Writer(recorder, chosen.slot, chance)
            if chosen.role == "writer"
            else Reader(recorder, chosen.slots, chance)
        )
        print("works", flush=True)
        while not over.wait(PAUSE_S):
            actor.step()
    return 0
