"""A node in a process whose Python can keep the GIL busy, read from here; beside it a raw echo thread.

The owner is an engine's process in small: `Store.embedded()` lends the memory, a Python thread computes.
Reads and raw round trips (64 bytes out, a value's size back) take turns within a round. The module's `main`
is the owner.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter_ns
from typing import Final

from benchmarks.contender import Contender, Settings, WrongAnswer
from benchmarks.contenders import raw
from benchmarks.figures import Sample, sample_of
from benchmarks.processes import cpu_ns
from benchmarks.work import OURS, RAW, Work
from mooncake_client import Store
from mooncake_store import _core

ECHO: Final = f"{RAW}, echo thread there"
SEGMENT_BYTES: Final = 64 << 20
TURN_CALLS: Final = 25
"""Reads, then as many raw round trips, and so on: both see the same moments of the machine."""
BUSY, IDLE = signal.SIGUSR1, signal.SIGUSR2


class Owner(Contender):
    name = "owner"
    verbs = frozenset(("owner",))

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._store: Store | None = None
        self._echo: int | None = None

    def start(self) -> str:
        raw.compile_library()
        owner = self.launch("process", (sys.executable, "-m", "benchmarks.contenders.owner"))
        lane, port = owner.wait_for(r"lane (\S+), echo (\d+)").groups()
        self._store = Store(lane=lane, name="benchmark-owner")
        client = self._store._client()
        assert isinstance(client, _core.Client)  # a Store waits
        self._client = client
        self._echo = raw.connect(int(port), "", 1)
        return _core.version()

    def stop(self) -> None:
        if self._echo is not None:
            raw.library().raw_close(self._echo)
        if self._store is not None:
            self._store.close()
        super().stop()

    def prepare(self, work: Work) -> dict[str, float]:
        assert self._store is not None
        self._value = os.urandom(work.value_bytes)
        self._target = bytearray(work.value_bytes)
        self._answer = ctypes.create_string_buffer(work.value_bytes)
        self._store.put("value", self._value, replace=True)
        os.kill(self.servers[0].pid, BUSY if work.owner_is_busy else IDLE)
        return {}

    def finish(self, work: Work) -> None:
        os.kill(self.servers[0].pid, IDLE)

    def sample(self, work: Work, duration_s: float) -> Mapping[str, Sample]:
        assert self._echo is not None
        servers, client = self.server_pids(), [os.getpid()]
        deadline = perf_counter_ns() + int(4 * duration_s * 1e9)  # p99 wants many calls
        reads: list[int] = []
        echoes: list[int] = []
        server_before, client_before = cpu_ns(servers), cpu_ns(client)
        while perf_counter_ns() < deadline or not reads:
            reads += [self._read() for _ in range(TURN_CALLS)]
            echoes += raw.round_trips(self._echo, self._answer, work.value_bytes, TURN_CALLS)
        server, used = cpu_ns(servers) - server_before, cpu_ns(client) - client_before
        if self._target != self._value:
            raise WrongAnswer("the owner's node sent other bytes than were put")
        # The CPU times are of both together: they share the processes.
        return {OURS: sample_of(reads, server, used, 1), ECHO: sample_of(echoes, server, used, 1)}

    def _read(self) -> int:
        opened = self._client.open(["value"])
        begun = perf_counter_ns()
        statuses, _ = self._client.read_into(opened, [self._target])
        ended = perf_counter_ns()
        if statuses != [0]:
            raise WrongAnswer(f"read: status {statuses}")
        return ended - begun


def main() -> None:
    """The owner's process: SIGUSR1 keeps its GIL busy, SIGUSR2 lets it rest, SIGTERM ends it."""
    busy, ended = threading.Event(), threading.Event()
    for number, act in ((BUSY, busy.set), (IDLE, busy.clear), (signal.SIGTERM, ended.set)):
        signal.signal(number, lambda *_, act=act: act())

    def compute() -> None:
        number = 0
        while True:
            busy.wait()
            for _ in range(10_000):
                number = (number * 1_103_515_245 + 12_345) & 0x7FFFFFFF

    threading.Thread(target=compute, daemon=True).start()
    with Store.embedded(SEGMENT_BYTES) as store:
        print(f"lane {store.lane}, echo {raw.serve(SEGMENT_BYTES)}", flush=True)
        ended.wait()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main()
