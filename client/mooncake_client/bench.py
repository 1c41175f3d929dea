"""What `mooncake bench` does to a pool: puts, gets and asks for values of one size for a while.

Owns the work, its timing and its keys; printing is the command's. Values are checked byte for byte, outside
the times. Nothing else in the pool is touched, and nothing of it is evicted: a work that needs more than the
pool has free is refused. Keys are removed, and carry a TTL for a process that is killed before it can.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from mooncake_client.store import Store
from mooncake_store.errors import InvalidArgument, NoSpace, StoreError
from mooncake_store.units import format_size

WORKS: Final = ("put", "get", "exists")
THREADS_MAX: Final = 256
BATCH_MAX: Final = 16_384
USABLE_RATIO: Final = 0.85
"""Of the pool: beyond its high watermark (0.90 by default) a master evicts, which would cost others' data."""
SETS_HELD: Final = 3
"""A thread's batches that take room at once: one that is read, one that is put, one that goes."""
TTL_SLACK_S: Final = 120


@dataclass(frozen=True)
class Plan:
    """What is asked for. seconds: of all works together."""

    size_bytes: int
    batch: int = 1
    threads: int = 1
    seconds: float = 10.0
    works: tuple[str, ...] = WORKS

    def __post_init__(self) -> None:
        if self.size_bytes < 1:
            raise InvalidArgument(f"size: {self.size_bytes} is not at least 1 byte")
        if not 1 <= self.batch <= BATCH_MAX:
            raise InvalidArgument(f"batch: {self.batch} is not in 1..{BATCH_MAX}")
        if not 1 <= self.threads <= THREADS_MAX:
            raise InvalidArgument(f"threads: {self.threads} is not in 1..{THREADS_MAX}")
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise InvalidArgument(f"seconds: {self.seconds} is not a time")
        for work in self.works:
            if work not in WORKS:
                raise InvalidArgument(f"work: {work!r} is none of {', '.join(WORKS)}")

    @property
    def bytes_needed(self) -> int:
        """Room in the pool."""
        return self.size_bytes * self.batch * self.threads * SETS_HELD


@dataclass
class Figures:
    """What one work gave. Times are of a call, that is of one batch."""

    work: str
    calls: int = 0
    values: int = 0
    misses: int = 0
    wrong: int = 0
    elapsed_s: float = 0.0
    bytes_a_second: float = 0.0
    values_a_second: float = 0.0
    p50_ms: float = 0.0
    p90_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Tally:
    """One thread's part of a work."""

    times_s: list[float] = field(default_factory=list)
    values: int = 0
    misses: int = 0
    wrong: int = 0


def figures_of(work: str, tallies: Sequence[Tally], elapsed_s: float, size_bytes: int) -> Figures:
    """All threads together. Rates count values that were moved (exists: answered) while calls were under way.

    What a thread does between its calls, comparing and taking keys away, is no time of the pool's.
    """
    times = sorted(time_s for tally in tallies for time_s in tally.times_s)
    values = sum(tally.values for tally in tallies)
    figures = Figures(
        work,
        calls=len(times),
        values=values,
        misses=sum(tally.misses for tally in tallies),
        wrong=sum(tally.wrong for tally in tallies),
        elapsed_s=elapsed_s,
    )
    if times:
        figures.values_a_second = sum(
            tally.values / sum(tally.times_s) for tally in tallies if sum(tally.times_s) > 0
        )
        figures.bytes_a_second = 0.0 if work == "exists" else figures.values_a_second * size_bytes
        figures.p50_ms, figures.p90_ms, figures.p99_ms = (
            1000 * times[math.ceil(share * len(times)) - 1] for share in (0.5, 0.9, 0.99)
        )
        figures.max_ms = 1000 * times[-1]
    return figures


def check_room(store: Store, plan: Plan) -> None:
    """Raises NoSpace, naming sizes and settings, where the pool has no room without evicting anything."""
    segments = store.segments()
    if not segments:
        raise NoSpace(
            f"no node lends memory to the pool of {store.config.where()}: start one with "
            "mooncake_client --master_server_address=HOST:PORT --global_segment_size=4gb"
        )
    largest = max(segment.capacity_bytes for segment in segments)
    if plan.size_bytes > largest:
        raise NoSpace(
            f"--size {format_size(plan.size_bytes)} is more than the largest segment, {format_size(largest)}"
        )
    usable = sum(
        max(0, int(segment.capacity_bytes * USABLE_RATIO) - segment.charged_bytes) for segment in segments
    )
    if usable == 0:
        raise NoSpace(
            f"every segment of the pool is used beyond {USABLE_RATIO:.0%}: values put to measure it would "
            "evict others'; lend it more memory, remove what nobody wants, or measure another (--master)"
        )
    if plan.bytes_needed > usable:
        raise NoSpace(
            f"{plan.threads} threads x {plan.batch} values x {format_size(plan.size_bytes)} x {SETS_HELD} "
            f"need {format_size(plan.bytes_needed)}, and the pool has {max(0, usable) >> 20} MiB before it "
            "would evict; take a smaller --size, --batch or --threads"
        )


class Bench:
    """One run over a pool. `run` gives the figures; `remove_keys` must follow, whatever happened."""

    def __init__(self, store: Store, plan: Plan) -> None:
        self.prefix = f"mooncake-bench/{secrets.token_hex(8)}/"
        self._store = store
        self._plan = plan
        self._ttl_ms = int((plan.seconds + TTL_SLACK_S) * 1000)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._keys: set[str] = set()
        # A value begins with the number of its key, so that none can stand for another unseen.
        self._tail = secrets.token_bytes(plan.size_bytes)
        self._buffers = [memoryview(bytearray(plan.size_bytes * plan.batch)) for _ in range(plan.threads)]

    def run(self, progress: Callable[[str, float], None]) -> Iterator[Figures]:
        """The figures of each work as it ends. progress: hears the work's name and the share that is done."""
        residents = [
            [self._key(thread, number) for number in range(self._plan.batch)]
            for thread in range(self._plan.threads)
        ]
        for keys in residents:
            self._put(keys, [self._value(number) for number in range(len(keys))])
        acts = {"put": self._puts, "get": self._gets, "exists": self._exists}
        for work in self._plan.works:
            yield self._timed(work, acts[work], residents, progress)

    def _timed(
        self,
        work: str,
        act: Callable[[int, list[str], Tally], None],
        residents: list[list[str]],
        progress: Callable[[str, float], None],
    ) -> Figures:
        seconds = self._plan.seconds / len(self._plan.works)
        begun = time.monotonic()
        tallies = [Tally() for _ in residents]

        def loop(thread: int) -> None:
            while not self._stopping.is_set() and time.monotonic() - begun < seconds:
                act(thread, residents[thread], tallies[thread])

        with ThreadPoolExecutor(self._plan.threads) as pool, self._stopping_on_error():
            running = [pool.submit(loop, thread) for thread in range(self._plan.threads)]
            while not all(future.done() for future in running):
                progress(work, min(1.0, (time.monotonic() - begun) / seconds))
                threading.Event().wait(0.05)  # Ctrl-C is heard here, while the calls are other threads'
            for future in running:
                future.result()
        return figures_of(work, tallies, time.monotonic() - begun, self._plan.size_bytes)

    @contextmanager
    def _stopping_on_error(self) -> Iterator[None]:
        """Threads end after their call, so that the pool's exit waits no longer than that."""
        try:
            yield
        except BaseException:
            self._stopping.set()
            raise

    def _puts(self, thread: int, _: list[str], tally: Tally) -> None:
        keys = [self._key(thread, number) for number in range(self._plan.batch)]
        values = [self._value(number) for number in range(len(keys))]
        begun = time.perf_counter()
        self._put(keys, values)
        tally.times_s.append(time.perf_counter() - begun)
        tally.values += len(keys)
        self._remove(keys)

    def _gets(self, thread: int, keys: list[str], tally: Tally) -> None:
        size, buffer = self._plan.size_bytes, self._buffers[thread]
        targets = [buffer[number * size : (number + 1) * size] for number in range(len(keys))]
        begun = time.perf_counter()
        answers = self._store.get_into_many(keys, targets)
        tally.times_s.append(time.perf_counter() - begun)
        for number, answer in enumerate(answers):
            if isinstance(answer, StoreError):
                raise answer
            tally.values += answer is not None
            tally.misses += answer is None
            tally.wrong += answer is not None and targets[number] != self._value(number)
        buffer[:] = bytes(len(buffer))  # what is not read again must not pass for right

    def _exists(self, thread: int, keys: list[str], tally: Tally) -> None:
        begun = time.perf_counter()
        answers = self._store.exists_many(keys)
        tally.times_s.append(time.perf_counter() - begun)
        tally.values += len(answers)
        tally.misses += answers.count(False)

    def _put(self, keys: list[str], values: list[bytes]) -> None:
        with self._lock:
            self._keys.update(keys)  # before the put: one that fails may appear later
        for answer in self._store.put_many(keys, values, ttl_ms=self._ttl_ms):
            if isinstance(answer, StoreError):
                raise answer

    def _remove(self, keys: list[str]) -> None:
        for answer in self._store.remove_many(keys):
            if isinstance(answer, StoreError):
                raise answer
        with self._lock:
            self._keys.difference_update(keys)

    def remove_keys(self) -> None:
        """Take away what is left. Raises what the store says when it cannot; the TTL then ends the keys."""
        with self._lock:
            keys = sorted(self._keys)
        for begin in range(0, len(keys), BATCH_MAX):
            self._remove(keys[begin : begin + BATCH_MAX])

    def _key(self, thread: int, number: int) -> str:
        return f"{self.prefix}{thread}/{number}/{secrets.token_hex(8)}"

    def _value(self, number: int) -> bytes:
        head = number.to_bytes(8, "little")[: self._plan.size_bytes]
        return head + self._tail[len(head) :]
