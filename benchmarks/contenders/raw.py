"""The raw limits of `raw/raw.cc`, bound by ctypes: memcpy, one and several sockets, one round trip.

Compiles the library when it is older than its source. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

from benchmarks.contender import Contender, Memory, Settings, WrongAnswer
from benchmarks.figures import Sample, sample_of
from benchmarks.processes import ROOT, ServerError, cpu_ns
from benchmarks.work import RAW, Work

SOURCE: Final = ROOT / "benchmarks/raw/raw.cc"
LIBRARY: Final = ROOT / "build/bench/raw.so"
ROUND_TRIP_BYTES: Final = 64
CONNECTIONS: Final = (1, 2, 4)
GET, PUT = 1, 2
CHUNK_CALLS: Final = 50
CHUNK_BYTES: Final = 32 << 20
"""Calls of one loop in C before the clock is looked at in Python: so many, or for so many bytes."""

PUMP_FACTOR: Final = 4  # as CPU_SAMPLE_FACTOR of the stores


def compile_library() -> Path:
    """The library, compiled where it is missing or old. Raises ServerError without a compiler."""
    if LIBRARY.exists() and LIBRARY.stat().st_mtime >= SOURCE.stat().st_mtime:
        return LIBRARY
    if shutil.which("g++") is None:
        raise ServerError("the raw limits need a compiler: apt-get install g++")
    LIBRARY.parent.mkdir(parents=True, exist_ok=True)
    fresh = LIBRARY.with_suffix(f".{os.getpid()}")
    command = ["g++", "-std=c++20", "-O3", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"]
    subprocess.run([*command, "-o", str(fresh), str(SOURCE)], check=True)
    fresh.replace(LIBRARY)  # several may compile at once
    return LIBRARY


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(compile_library()))
    size, pointer, integer = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
    signatures: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "raw_serve": (integer, (size,)),
        "raw_serve_unix": (integer, (ctypes.c_char_p, size)),
        "raw_connect": (pointer, (integer, ctypes.c_char_p, integer)),
        "raw_close": (None, (pointer,)),
        "raw_round_trips": (integer, (pointer, pointer, size, integer, pointer)),
        "raw_transfers": (integer, (pointer, integer, integer, pointer, integer, size, integer, pointer)),
        "raw_copies": (None, (pointer, pointer, integer, size, integer, pointer)),
        "raw_pump": (
            ctypes.c_int64,
            (pointer, integer, ctypes.c_char_p, size, size, integer, ctypes.c_int64),
        ),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def serve(memory_bytes: int, unix_path: str = "") -> int:
    """Serve from this process; the TCP port."""
    port: int = library().raw_serve(memory_bytes)
    if unix_path:
        Path(unix_path).unlink(missing_ok=True)
    failed: int = library().raw_serve_unix(unix_path.encode(), memory_bytes) if unix_path else 0
    for code in (port, failed):
        if code < 0:
            raise OSError(-code, os.strerror(-code))
    return port


def connect(port: int, unix_path: str, count: int) -> int:
    handle: int | None = library().raw_connect(port, unix_path.encode(), count)
    if handle is None:
        raise ServerError(f"cannot connect to the raw server at {unix_path or port}")
    return handle


def pump(
    sockets: Sequence[socket.socket], request: bytes, answer_bytes: int, depth: int, duration_s: float
) -> int:
    """Keep `depth` equal requests under way on each socket; the number of answers."""
    fds = (ctypes.c_int * len(sockets))(*(one.fileno() for one in sockets))
    answers: int = library().raw_pump(
        fds, len(sockets), request, len(request), answer_bytes, depth, int(duration_s * 1000)
    )
    if answers < 0:
        raise WrongAnswer(f"the pump ended early: {os.strerror(-answers)}")
    return answers


def round_trips(handle: int, answer: Any, answer_bytes: int, count: int) -> list[int]:
    """Times in ns; answer: at least answer_bytes of memory."""
    times = (ctypes.c_int64 * count)()
    failed = library().raw_round_trips(handle, answer, answer_bytes, count, times)
    if failed:
        raise WrongAnswer(f"round trip: {os.strerror(-failed)}")
    return list(times)


class Raw(Contender):
    name = RAW
    verbs = frozenset(
        (
            *("exists", "get", "put", "read", "get_many", "put_many", "get_same_host", "put_same_host"),
            *("pump", "step", "view_same_host"),
        )
    )

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.memory = Memory(settings.buffer_bytes)
        self._handles: dict[str, int] = {}

    def start(self) -> str:
        compile_library()
        path = str(self.settings.logs / "raw.socket")
        server = self.launch(
            "server",
            (sys.executable, "-m", "benchmarks.contenders.raw", str(self.settings.buffer_bytes), path),
        )
        self._port = int(server.wait_for(r"port (\d+)").group(1))
        for count in CONNECTIONS:
            self._handles[_socket_name(count)] = connect(self._port, "", count)
            self._handles[_socket_name(count, "Unix ")] = connect(0, path, count)
        return "g++ -O3"

    def stop(self) -> None:
        for handle in self._handles.values():
            library().raw_close(handle)
        self._handles = {}
        super().stop()

    def prepare(self, work: Work) -> dict[str, float]:
        return {}

    def finish(self, work: Work) -> None:
        pass

    def sample(self, work: Work, duration_s: float) -> Mapping[str, Sample]:
        if work.verb == "pump":
            return {f"{RAW}, echo": self._pumped(work, duration_s * PUMP_FACTOR)}
        if work.floor_trips:
            trips = "round trip" if work.floor_trips == 1 else f"{work.floor_trips} round trips"
            return {f"{RAW}, {trips}": self._round_trips(work, duration_s)}
        if work.verb == "get_same_host":
            return {f"{RAW}, memcpy": self._timed(work, duration_s, lambda n: self._copies(work, n))}
        family = "Unix " if work.verb == "put_same_host" else ""
        operation = PUT if work.verb.startswith("put") else GET
        loops = [(_socket_name(count, family), 0) for count in CONNECTIONS]
        if operation == GET:
            loops.append((_socket_name(2, family), 1))
        return {
            f"{RAW}, {name}{', poll' if by_poll else ''}": self._timed(
                work,
                duration_s,
                lambda n, name=name, by_poll=by_poll: self._transfers(work, name, operation, by_poll, n),
            )
            for name, by_poll in loops
        }

    def _timed(self, work: Work, duration_s: float, loop: Any) -> Sample:
        """Chunks of a loop in C until the time is over; the first call is not counted."""
        client, servers = [os.getpid()], self.server_pids()
        loop(1)
        chunk = max(1, min(CHUNK_CALLS, CHUNK_BYTES // max(1, work.call_bytes)))
        server_before, client_before = cpu_ns(servers), cpu_ns(client)
        deadline = perf_counter_ns() + int(duration_s * 1e9)
        times: list[int] = []
        while perf_counter_ns() < deadline or len(times) < 3:
            times += loop(chunk)
        return sample_of(times, cpu_ns(servers) - server_before, cpu_ns(client) - client_before, work.count)

    def _round_trips(self, work: Work, duration_s: float) -> Sample:
        answer = ctypes.create_string_buffer(ROUND_TRIP_BYTES)
        handle = self._handles[_socket_name(1)]

        def loop(count: int) -> list[int]:
            trips = round_trips(handle, answer, ROUND_TRIP_BYTES, count * work.floor_trips)
            return [
                sum(trips[begin : begin + work.floor_trips])
                for begin in range(0, len(trips), work.floor_trips)
            ]

        return self._timed(work, duration_s, loop)

    def _transfers(self, work: Work, name: str, operation: int, by_poll: int, count: int) -> list[int]:
        times = (ctypes.c_int64 * count)()
        memory = self.memory.target if operation == GET else self.memory.source
        failed = library().raw_transfers(
            self._handles[name],
            operation,
            by_poll,
            _address(memory),
            work.slots,
            work.call_bytes,
            count,
            times,
        )
        if failed:
            raise WrongAnswer(f"transfer: {os.strerror(-failed)}")
        return list(times)

    def _copies(self, work: Work, count: int) -> list[int]:
        times = (ctypes.c_int64 * count)()
        target, source = _address(self.memory.target), _address(self.memory.source)
        library().raw_copies(target, source, work.slots, work.call_bytes, count, times)
        return list(times)

    def _pumped(self, work: Work, duration_s: float) -> Sample:
        servers, client = self.server_pids(), [os.getpid()]
        sockets = [socket.create_connection(("127.0.0.1", self._port)) for _ in range(work.connections)]
        try:
            server_before, client_before = cpu_ns(servers), cpu_ns(client)
            begun = perf_counter_ns()
            answers = pump(sockets, bytes(ROUND_TRIP_BYTES), ROUND_TRIP_BYTES, work.depth, duration_s)
            each = (perf_counter_ns() - begun) / answers
            server, used = cpu_ns(servers) - server_before, cpu_ns(client) - client_before
        finally:
            for one in sockets:
                one.close()
        return Sample(answers, each, each, each, server / answers, used / answers, server / answers)


def _socket_name(count: int, family: str = "") -> str:
    return f"{count} {family}socket{'s' if count > 1 else ''}"


def _address(memory: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def main() -> None:
    """The server: memory in bytes and the path of a Unix socket; serves until it is told to end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    port = serve(int(sys.argv[1]), sys.argv[2])
    print(f"port {port}", flush=True)
    signal.sigwait([signal.SIGTERM])


if __name__ == "__main__":
    main()
