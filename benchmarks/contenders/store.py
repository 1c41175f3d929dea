"""What all stores have in common: the verbs, and how they are timed; a clock reading on each side of a call.

Owns the keys: which exist, which are put next, what is taken away again. What is checked is checked between
calls, outside the times. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import random
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count, pairwise, repeat
from time import perf_counter_ns
from typing import Any, Final

from benchmarks.contender import Contender, Memory, Settings, WrongAnswer
from benchmarks.figures import Sample, sample_of
from benchmarks.processes import cpu_ns, resident_bytes
from benchmarks.work import KEY_BYTES, STEP_ASKED, STEP_BUFFERS, Work

CALLS_MIN: Final = 3
CALLS_MAX: Final = 5_000
PUT_BYTES_MAX: Final = 192 << 20
"""What one sample may put before it is removed; a segment holds more than twice that."""
TABLE_BATCH: Final = 1_000
TABLE_LISTS: Final = 32
"""Lists of keys that are asked for in turn, drawn anew for each work."""

CPU_SAMPLE_FACTOR: Final = 4
"""Samples of which the CPU time matters are longer: small requests cost the servers microseconds."""

SAME_HOST: Final = {"get_same_host": "get", "put_same_host": "put", "view_same_host": "view"}
"""With all that a store can do because the two ends are on one host; other works go over TCP."""

Call = Callable[[], object]


class StoreContender(Contender):
    """A store seen through its client.

    The pieces of memory that a verb takes were made by `pieces`. Keys that are put do not exist yet; keys
    that are read do. A verb raises WrongAnswer for anything else than what a caller hopes for.
    """

    walk_value_bytes = 16 << 20

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.memory = Memory(settings.buffer_bytes)
        self._present: list[str] = []
        self._lists: list[list[str]] = []
        self._table_keys = 0
        self._numbers = count(1)

    # ---- the verbs; what is not in `verbs` is not called

    def exists(self, key: str) -> None:
        raise NotImplementedError

    def get(self, key: str, target: Any) -> None:
        raise NotImplementedError

    def view(self, key: str, size_bytes: int) -> None:
        """See a value where it lies, and let it go."""
        raise NotImplementedError

    def put(self, key: str, source: Any) -> None:
        raise NotImplementedError

    def exists_many(self, keys: list[str]) -> None:
        raise NotImplementedError

    def lookup_many(self, keys: list[str]) -> None:
        """Where the values are, without reading them."""
        raise NotImplementedError

    def get_many(self, keys: list[str], targets: list[Any]) -> None:
        raise NotImplementedError

    @abstractmethod
    def put_many(self, keys: list[str], sources: list[Any]) -> None: ...

    @abstractmethod
    def remove_many(self, keys: list[str]) -> None:
        """Of keys that may be gone already."""

    def locate(self, key: str) -> Any:
        """What `read` needs to know; not timed."""
        raise NotImplementedError

    def read(self, located: Any, target: Any) -> None:
        """Get a value whose place is known."""
        raise NotImplementedError

    def step(
        self, asked: list[str], keys: list[str], addresses: list[list[int]], sizes: list[list[int]]
    ) -> None:
        """See how many of the keys asked for are there from the first on, and read these, spread."""
        raise NotImplementedError

    def pack(self, addresses: list[int], sizes: list[int]) -> None:
        """Make of Python's lists what the native client takes."""
        raise NotImplementedError

    def pump(self, work: Work, key: str, duration_s: float) -> int:
        """Ask whether a key is there, again and again on many connections; how many answers came."""
        raise NotImplementedError

    # ---- works

    def prepare(self, work: Work) -> dict[str, float]:
        facts: dict[str, float] = {}
        if work.table_keys and self._table_keys != work.table_keys:
            facts = self._fill_table(work.table_keys)
        if work.table_keys:
            draw = random.Random(work.name)
            keys = min(work.count, self._table_keys)
            self._lists = [
                [key_of("table", draw.randrange(self._table_keys)) for _ in range(keys)]
                for _ in range(TABLE_LISTS)
            ]
            return facts
        if work.verb.startswith("put"):
            # Walk over the servers' memory once, so that no sample pays for its first touch.
            self._walk_over_segment()
            return facts
        value_bytes = work.value_bytes or 4096
        pieces = self.pieces(self.memory.source, value_bytes, work.slots * work.count)
        self._present = [self._new_key(work) for _ in pieces]
        for begin in range(0, len(pieces), TABLE_BATCH):
            end = begin + TABLE_BATCH
            self.put_many(self._present[begin:end], pieces[begin:end])
        return facts

    def _fill_table(self, table_keys: int) -> dict[str, float]:
        """Keys with values of one byte; what they cost in the memory of the servers that know them."""
        before = resident_bytes(self.metadata_pids())
        source = self.pieces(self.memory.source, 1, 1) * TABLE_BATCH
        begun = perf_counter_ns()
        for begin in range(0, table_keys, TABLE_BATCH):
            numbers = range(begin, min(begin + TABLE_BATCH, table_keys))
            self.put_many([key_of("table", number) for number in numbers], source[: len(numbers)])
        seconds = (perf_counter_ns() - begun) / 1e9
        self._table_keys = table_keys
        grown = resident_bytes(self.metadata_pids()) - before
        return {
            "table keys": table_keys,
            "key bytes": KEY_BYTES,
            "metadata bytes a key, the key included": grown / table_keys,
            "seconds to fill the table": seconds,
        }

    def _walk_over_segment(self) -> None:
        size = min(self.walk_value_bytes, self.settings.buffer_bytes)
        source = self.pieces(self.memory.source, size, 1)
        keys = [
            key_of("walk", next(self._numbers)) for _ in range(self.settings.segment_bytes * 3 // 4 // size)
        ]
        for key in keys:
            self.put_many([key], source)
        self.remove_many(keys)

    def finish(self, work: Work) -> None:
        present, self._present = self._present, []
        for begin in range(0, len(present), TABLE_BATCH):
            self.remove_many(present[begin : begin + TABLE_BATCH])

    def _new_key(self, work: Work) -> str:
        return key_of(work.verb, next(self._numbers))

    def sample(self, work: Work, duration_s: float) -> Mapping[str, Sample]:
        client, servers = [os.getpid()], self.server_pids()
        if work.table_keys or work.connections:
            duration_s *= CPU_SAMPLE_FACTOR
        if work.verb == "pump":
            return {self.name: self._pumped(work, duration_s)}
        calls, after = self._calls(work)
        call = next(calls)
        call()  # warm: caches, connections, page tables
        times: list[int] = []
        server_before, client_before = cpu_ns(servers), cpu_ns(client)
        deadline = perf_counter_ns() + int(duration_s * 1e9)
        for call in calls:
            begun = perf_counter_ns()
            call()
            ended = perf_counter_ns()
            times.append(ended - begun)
            if len(times) >= CALLS_MAX or (ended > deadline and len(times) >= CALLS_MIN):
                break
        server, client_used = cpu_ns(servers) - server_before, cpu_ns(client) - client_before
        after()
        return {self.name: sample_of(times, server, client_used, work.count)}

    def _pumped(self, work: Work, duration_s: float) -> Sample:
        servers, client = self.server_pids(), [os.getpid()]
        server_before, client_before = cpu_ns(servers), cpu_ns(client)
        begun = perf_counter_ns()
        answers = self.pump(work, self._present[0], duration_s)
        elapsed = perf_counter_ns() - begun
        server, client_used = cpu_ns(servers) - server_before, cpu_ns(client) - client_before
        each = elapsed / answers
        return Sample(
            calls=answers,
            median_ns=each,
            p99_ns=each,
            mean_ns=each,
            server_cpu_ns=server / answers,
            client_cpu_ns=client_used / answers,
            server_cpu_ns_a_key=server / answers,
        )

    def _calls(self, work: Work) -> tuple[Iterator[Call], Callable[[], None]]:
        """Calls of the work without end (puts: as many as fit), and what is done after the last."""
        if work.verb == "read":
            return self._reads(work)
        if work.verb.startswith("put"):
            return self._puts(work)
        if work.verb == "step":
            return self._steps(work)
        if work.verb == "pack":
            base, size = address_of(self.memory.target), work.value_bytes
            addresses = [base + index * size for index in range(work.count)]
            return repeat(partial(self.pack, addresses, [size] * work.count)), _nothing
        targets = self.pieces(self.memory.target, work.value_bytes, work.slots * work.count)

        def in_turn(call: Callable[[int], object], length: int) -> Iterator[Call]:
            """The call for each slot or list, round and round."""
            while True:
                for index in range(length):
                    yield partial(call, index)

        def check() -> None:
            self.memory.check(0, work.call_bytes)  # slot 0, which every sample has read

        verb, keys, slots = SAME_HOST.get(work.verb, work.verb), self._present, work.slots
        if verb == "exists":
            return in_turn(lambda slot: self.exists(keys[slot]), slots), _nothing
        if verb == "get":
            return in_turn(lambda slot: self.get(keys[slot], targets[slot]), slots), check
        if verb == "view":
            return in_turn(lambda slot: self.view(keys[slot], work.value_bytes), slots), _nothing
        if verb == "get_many":
            parts = [slice(slot * work.count, (slot + 1) * work.count) for slot in range(slots)]
            whole = [(keys[part], targets[part]) for part in parts]
            return in_turn(lambda slot: self.get_many(*whole[slot]), slots), check
        ask = {"exists_many": self.exists_many, "lookup_many": self.lookup_many}[verb]
        lists = self._lists
        return in_turn(lambda index: ask(lists[index]), len(lists)), _nothing

    def _reads(self, work: Work) -> tuple[Iterator[Call], Callable[[], None]]:
        targets = self.pieces(self.memory.target, work.value_bytes, work.slots)

        def reads() -> Iterator[Call]:
            while True:
                for key, target in zip(self._present, targets, strict=True):
                    located = self.locate(key)
                    yield partial(self.read, located, target)

        return reads(), lambda: self.memory.check(0, work.value_bytes)

    def _steps(self, work: Work) -> tuple[Iterator[Call], Callable[[], None]]:
        """Into memory as engines have it: a buffer of all keys a layer."""
        keys, base = self._present, address_of(self.memory.target)
        asked = keys + [self._new_key(work) for _ in range((STEP_ASKED - 1) * len(keys))]
        cuts = [index * work.value_bytes // STEP_BUFFERS for index in range(STEP_BUFFERS + 1)]
        places = [
            [(cut * len(keys) + number * (end - cut), end - cut) for cut, end in pairwise(cuts)]
            for number in range(len(keys))
        ]
        addresses = [[base + offset for offset, _ in one] for one in places]
        sizes = [[size for _, size in one] for one in places]

        def check() -> None:
            for number in (0, len(keys) - 1):
                read = b"".join(self.memory.target[at : at + size] for at, size in places[number])
                begin = number * work.value_bytes
                if read != self.memory.source[begin : begin + work.value_bytes]:
                    raise WrongAnswer(f"the value of {keys[number]} is not what was put")

        return repeat(partial(self.step, asked, keys, addresses, sizes)), check

    def _puts(self, work: Work) -> tuple[Iterator[Call], Callable[[], None]]:
        sources = self.pieces(self.memory.source, work.value_bytes, work.slots * work.count)
        put: list[str] = []
        calls_max = max(CALLS_MIN + 1, min(CALLS_MAX, PUT_BYTES_MAX // work.call_bytes))

        def puts() -> Iterator[Call]:
            for turn in range(calls_max):
                keys = [self._new_key(work) for _ in range(work.count)]
                put.extend(keys)
                begin = turn % work.slots * work.count
                if work.count == 1:
                    yield partial(self.put, keys[0], sources[begin])
                else:
                    yield partial(self.put_many, keys, sources[begin : begin + work.count])

        def check_and_remove() -> None:
            target = self.pieces(self.memory.target, work.value_bytes, 1)
            self.get(put[0], target[0])  # the first was put from slot 0
            self.memory.check(0, work.value_bytes)
            for begin in range(0, len(put), TABLE_BATCH):
                self.remove_many(put[begin : begin + TABLE_BATCH])

        return puts(), check_and_remove


def step_of(
    store: Any, asked: list[str], keys: list[str], addresses: list[list[int]], sizes: list[list[int]]
) -> None:
    """A step by the methods of Mooncake's store, which ours has too."""
    found = store.batch_is_exist(asked)
    hit = next((index for index, one in enumerate(found) if one != 1), len(found))
    if hit != len(keys):
        raise WrongAnswer(f"{hit} keys are there, not {len(keys)}")
    answers = store.batch_get_into_multi_buffers(keys, addresses, sizes)
    if answers != [sum(one) for one in sizes]:
        raise WrongAnswer(f"batch_get_into_multi_buffers: {answers[:3]}...")


def address_of(memory: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _nothing() -> None:
    """Nothing to check that a verb has not checked."""


def key_of(group: str, number: int) -> str:
    """A key of KEY_BYTES characters, in the form of engines' block hashes; numbers are scattered."""
    scattered = number * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    return f"{group}@bf16@tp8@rank0@{scattered:016x}{number:016x}".rjust(KEY_BYTES, "m")
