"""A writer or a reader of a soak: a process with a store of its own that works until SIGTERM or a kill.

Some map the nodes' memory, some read and write over TCP alone, some ask the master each time. Every
operation goes into its ledger. Readers compare every byte; history.py judges what it means.
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
from mooncake_store._core import View
from mooncake_store.errors import StoreError

PAUSE_S = 0.003  # between two operations: the machine has other work
OWN_KEYS, SHARED_KEYS = 60, 20
BATCH_MAX = 12
COUNTS_EVERY_S = 0.5
VIEWS_HELD_MAX = 6  # of a reader: up to 24 MiB that no node can use again meanwhile
HOLD_MAX_S = 5.0  # on both sides of a node's restart

WAYS: tuple[dict[str, str], ...] = ({}, {"shared_memory": "off"}, {"location_cache": "off"})
"""How the processes of one kind reach values, by their numbers: all that is on by default, and without."""


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


class HeldViews:
    """Views that are kept for a while and then compared again: whatever becomes of key and node meanwhile."""

    def __init__(self, book: Ledger, chance: random.Random) -> None:
        self._book = book
        self._chance = chance
        self._held: list[tuple[int, Event, View]] = []  # until when, in ns

    def take(self, events: Sequence[Event], views: Sequence[object]) -> None:
        """Keep some, release the others. events: what each view showed at first."""
        for event, view in zip(events, views, strict=True):
            if not isinstance(view, View):
                continue
            is_kept = event.kind == ledger.READ and self._chance.random() < 0.5
            if is_kept and len(self._held) < VIEWS_HELD_MAX:
                until_ns = event.end_ns + round(self._chance.uniform(0, HOLD_MAX_S) * 1e9)
                self._held.append((until_ns, event, view))
            else:
                view.release()

    def release(self, *, all_of_them: bool = False) -> None:
        """Those whose time is over."""
        now = time.monotonic_ns()
        over = [held for held in self._held if all_of_them or held[0] <= now]
        self._held = [held for held in self._held if held not in over]
        for _, event, view in over:
            self._book.write([held_event(event, view, now)])
            view.release()


class Reader:
    """Reads keys of all writers, one and many, into new memory, its own and by views; asks for presence."""

    def __init__(self, recorder: Recorder, slots: int, chance: random.Random, book: Ledger) -> None:
        self._recorder = recorder
        self._book = book
        self._views = HeldViews(book, chance)
        self._counted: dict[str, int] = {}
        self._counts_at = time.monotonic() + COUNTS_EVERY_S
        self._store = recorder.store
        self._chance = chance
        self._keys = keys_of(slots)
        self._targets = [bytearray(values.SIZE_MAX) for _ in range(4)]

    def step(self) -> None:
        self._views.release()
        if time.monotonic() >= self._counts_at:
            self._tell_counts()
        keys = self._chance.sample(self._keys, self._chance.randint(2, BATCH_MAX))
        draw = self._chance.random()
        if draw < 0.25:
            self._recorder.read(keys[:1], lambda: [self._store.get(keys[0])])
        elif draw < 0.4:  # again and at once: where it was found, unless it has ended meanwhile
            for _ in range(3):
                self._recorder.read(keys[:1], lambda: [self._store.get(keys[0])])
        elif draw < 0.6:
            self._look(keys)
        elif draw < 0.75:
            self._recorder.read(keys, lambda: self._store.get_many(keys))
        elif draw < 0.9:
            some = keys[: len(self._targets)]
            self._recorder.read(some, lambda: self._into(some))
        else:
            self._recorder.read(keys, lambda: self._store.exists_many(keys))

    def finish(self) -> None:
        self._views.release(all_of_them=True)
        self._tell_counts()

    def _look(self, keys: Sequence[str]) -> None:
        views: list[object] = []

        def call() -> list[object]:
            views.extend(self._store.get_view_many(keys))
            return views

        self._views.take(self._recorder.read(keys, call)[: len(views)], views)

    def _tell_counts(self) -> None:
        """What the location cache did since the last time."""
        self._counts_at = time.monotonic() + COUNTS_EVERY_S
        now, counts = time.monotonic_ns(), self._store.location_counts
        names = [name for name in ("hits", "stale") if name in counts]
        self._book.write(
            Event(ledger.COUNTED, now, now, counts[name] - self._counted.get(name, 0), f"location {name}", "")
            for name in names
        )
        self._counted = counts

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
    assert isinstance(answer, bytes | memoryview | View)
    text = how_seen(answer) if isinstance(answer, View) else ""
    try:
        return Event(ledger.READ, begin, end, values.version_of(key, answer), key, text)
    except values.WrongBytes as error:
        return Event(ledger.WRONG, begin, end, 0, key, str(error))


def held_event(seen: Event, view: View, now: int) -> Event:
    """What a view that was held since `seen` shows now: the same value, or something is wrong."""
    what = f"a {how_seen(view)} view held for {(now - seen.end_ns) / 1e9:.3f} s"
    try:
        version = values.version_of(seen.key, view)
    except values.WrongBytes as error:
        return Event(ledger.WRONG, now, now, 0, seen.key, f"{what}: {error}")
    if version != seen.value:
        return Event(ledger.WRONG, now, now, 0, seen.key, f"{what}: {seen.value} became {version}")
    return Event(ledger.HELD, seen.end_ns, now, version, seen.key, how_seen(view))


def how_seen(view: View) -> str:
    return ledger.MAPPED if view.is_mapped else ledger.COPIED


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
            store = Store(chosen.master, **WAYS[chosen.slot % len(WAYS)])
        except StoreError:
            over.wait(0.1)  # the master is away
    if store is None:
        return 0
    with store:
        recorder = Recorder(store, book, chosen.slot)
        actor: Writer | Reader = (
            Writer(recorder, chosen.slot, chance)
            if chosen.role == "writer"
            else Reader(recorder, chosen.slots, chance, book)
        )
        print("works", flush=True)
        while not over.wait(PAUSE_S):
            actor.step()
        if isinstance(actor, Reader):
            actor.finish()
    return 0
