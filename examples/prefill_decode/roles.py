"""The two engine roles of the demo, each a process with a client of its own: prefill and decode.

Prefill asks which blocks of a prompt are stored, reads the longest present prefix and puts the rest. Decode
reads the whole prompt, then puts the blocks of the answer, so that the next turn finds them. Both check every
byte they read. Counters are shared with the parent; latencies are handed over at the end.
"""

from __future__ import annotations

import ctypes
import queue
import time
from collections.abc import Sequence
from ctypes import Array
from dataclasses import dataclass, field
from enum import IntEnum
from multiprocessing.context import SpawnContext
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from workload import fill_block, verify_block

from mooncake_client import Store
from mooncake_store.errors import StoreError

if TYPE_CHECKING:
    from workload import Request

QUEUE_REQUESTS_MAX: Final = 32
"""Requests that may wait between two roles; a slow role holds up the one before it."""
WAIT_S: Final = 60.0
BATCH_BLOCKS_MAX: Final = 256
"""Blocks read or put in one call: 16 MiB of 64 KiB blocks, one buffer reused for all."""
FAILURES_KEPT_MAX: Final = 5


class Count(IntEnum):
    """What a role counts, by its place in the shared array."""

    REQUESTS = 0
    BLOCKS_ASKED = 1
    BLOCKS_PRESENT = 2
    PREFIX_BLOCKS = 3
    BLOCKS_READ = 4
    BLOCKS_MISSED = 5
    BLOCKS_PUT = 6
    BLOCKS_EXISTED = 7
    BLOCKS_REFUSED = 8
    BYTES_READ = 9
    BYTES_PUT = 10
    WRONG_BLOCKS = 11
    FAILED_CALLS = 12


Counters = Any  # a shared ctypes array of uint64, one a Count


def new_counters(context: SpawnContext) -> Counters:
    counters: Array[ctypes.c_uint64] = context.RawArray(ctypes.c_uint64, len(Count))
    return counters


@dataclass
class Outcome:
    """What a role hands over when it has ended. Latencies in seconds, one a call."""

    role: str
    lookup_s: list[float] = field(default_factory=list)
    get_s: list[float] = field(default_factory=list)
    put_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RoleSettings:
    """master_address: where the store's master is. block_bytes: size of every block."""

    master_address: str
    block_bytes: int


class Worker:
    """One store, one buffer for a batch of blocks, and the counting round every call."""

    def __init__(self, role: str, store: Store, settings: RoleSettings, counters: Counters) -> None:
        self._store = store
        self._size = settings.block_bytes
        self._counters = counters
        self.outcome = Outcome(role)
        self._memory = np.empty((BATCH_BLOCKS_MAX, self._size), dtype=np.uint8)
        store.register(self._memory)

    def add(self, count: Count, amount: int = 1) -> None:
        self._counters[count] += amount

    def present(self, keys: Sequence[bytes]) -> list[bool]:
        """Which blocks are stored now; all absent when the store did not answer."""
        begun = time.perf_counter()
        try:
            answers = self._store.exists_many(keys)
        except StoreError as error:
            self._failed("lookup", error)
            return [False] * len(keys)
        self.outcome.lookup_s.append(time.perf_counter() - begun)
        return answers

    def read(self, keys: Sequence[bytes]) -> None:
        """Reads and checks blocks; a miss is counted, wrong bytes are counted as such."""
        for start in range(0, len(keys), BATCH_BLOCKS_MAX):
            batch = keys[start : start + BATCH_BLOCKS_MAX]
            targets = [self._memory[index] for index in range(len(batch))]
            begun = time.perf_counter()
            try:
                lengths = self._store.get_into_many(batch, targets)
            except StoreError as error:
                self._failed("get", error)
                continue
            self.outcome.get_s.append(time.perf_counter() - begun)
            for key, target, length in zip(batch, targets, lengths, strict=True):
                self._check(key, target, length)

    def _check(self, key: bytes, target: np.ndarray[Any, Any], length: int | StoreError | None) -> None:
        if isinstance(length, StoreError):
            self._failed("get", length)
        elif length is None:
            self.add(Count.BLOCKS_MISSED)
        else:
            self.add(Count.BLOCKS_READ)
            self.add(Count.BYTES_READ, length)
            if length != self._size or not verify_block(key, target):
                self.add(Count.WRONG_BLOCKS)

    def put(self, keys: Sequence[bytes]) -> None:
        """Puts blocks whose bytes follow from their keys."""
        for start in range(0, len(keys), BATCH_BLOCKS_MAX):
            batch = keys[start : start + BATCH_BLOCKS_MAX]
            values = [self._memory[index] for index in range(len(batch))]
            for key, value in zip(batch, values, strict=True):
                fill_block(key, value)
            begun = time.perf_counter()
            try:
                answers = self._store.put_many(batch, values)
            except StoreError as error:
                self._failed("put", error)
                self.add(Count.BLOCKS_REFUSED, len(batch))
                continue
            self.outcome.put_s.append(time.perf_counter() - begun)
            for answer in answers:
                if answer == "stored":
                    self.add(Count.BLOCKS_PUT)
                    self.add(Count.BYTES_PUT, self._size)
                elif answer == "exists":
                    self.add(Count.BLOCKS_EXISTED)
                else:
                    self.add(Count.BLOCKS_REFUSED)
                    self._keep(f"put: {answer}")

    def _failed(self, call: str, error: StoreError) -> None:
        self.add(Count.FAILED_CALLS)
        self._keep(f"{call}: {error}")

    def _keep(self, failure: str) -> None:
        if len(self.outcome.failures) < FAILURES_KEPT_MAX:
            self.outcome.failures.append(failure)

    def prefill(self, request: Request) -> None:
        present = self.present(request.blocks)
        prefix = next((index for index, is_present in enumerate(present) if not is_present), len(present))
        self.add(Count.BLOCKS_ASKED, len(present))
        self.add(Count.BLOCKS_PRESENT, sum(present))
        self.add(Count.PREFIX_BLOCKS, prefix)
        self.read(request.blocks[:prefix])
        self.put([key for key, is_present in zip(request.blocks, present, strict=True) if not is_present])

    def decode(self, request: Request) -> None:
        self.read(request.blocks)
        self.put(request.output_blocks)


def run_role(
    role: str, settings: RoleSettings, counters: Counters, inbox: Any, onward: Any, outcomes: Any
) -> None:
    """Body of a role's process: serves requests until None comes, passing each on; then its outcome."""
    with Store(settings.master_address, name=role) as store:
        worker = Worker(role, store, settings, counters)
        serve = worker.prefill if role == "prefill" else worker.decode
        while (request := _next(inbox)) is not None:
            serve(request)
            worker.add(Count.REQUESTS)
            if onward is not None:
                onward.put(request, timeout=WAIT_S)
        if onward is not None:
            onward.put(None, timeout=WAIT_S)
        outcomes.put(worker.outcome)


def _next(inbox: Any) -> Request | None:
    try:
        request: Request | None = inbox.get(timeout=WAIT_S)
    except queue.Empty:
        return None  # the parent is gone or stuck: end rather than wait for ever
    return request
