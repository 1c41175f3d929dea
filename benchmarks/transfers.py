"""`make bench-transfers`: bytes that a transfer engine moves between two processes, here and at Mooncake,
beside one plain socket in Python.

Each contender is a pair of processes of its own environment, all of them run side by side; what is timed is
one call on the initiator, in interleaved rounds. Run with `--worker` it is one of those processes.
Nothing here decides a test.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from benchmarks.processes import ROOT

KIB: Final = 1 << 10
MIB: Final = 1 << 20
MEMORY_BYTES: Final = 128 * MIB
CONTENDERS: Final = ("ours", "mooncake", "socket")
ROUND_S: Final = 0.1
HANG_S: Final = 120.0


@dataclass(frozen=True)
class Work:
    """count pieces of size bytes in one call. gap: bytes between them at either end."""

    name: str
    verb: str
    size: int
    count: int = 1
    gap: int = 0

    @property
    def bytes(self) -> int:
        return self.size * self.count

    def offsets(self) -> list[int]:
        return [i * (self.size + self.gap) for i in range(self.count)]


WORKS: Final = tuple(
    Work(f"{verb} {name}", verb, size, count, gap)
    for verb in ("write", "read")
    for name, size, count, gap in (
        ("4 KiB", 4 * KIB, 1, 0),
        ("1 MiB", MIB, 1, 0),
        ("64 MiB", 64 * MIB, 1, 0),
        ("256 x 64 KiB", 64 * KIB, 256, 64 * KIB),
    )
)


# ---- in the contender's own processes


def engine_class(contender: str) -> Any:
    if contender == "mooncake":
        from mooncake.engine import TransferEngine
    else:
        from mooncake_client.dropin.transfer_engine import TransferEngine
    return TransferEngine


def started(contender: str) -> tuple[Any, int]:
    """An engine, and the address of its registered memory, every page of it touched."""
    engine = engine_class(contender)()
    if engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
        raise SystemExit(f"{contender}: the engine does not start")
    address = engine.allocate_managed_buffer(MEMORY_BYTES)
    engine.write_bytes_to_buffer(address, bytes(MEMORY_BYTES), MEMORY_BYTES)
    return engine, address


def serve(contender: str) -> None:
    """The process whose memory is written and read; ends with its standard input."""
    if contender == "socket":
        with socket.create_server(("127.0.0.1", 0)) as server:
            print(json.dumps([server.getsockname()[1], 0]), flush=True)
            _serve_socket(server.accept()[0])
        return
    engine, address = started(contender)
    print(json.dumps([engine.get_rpc_port(), address]), flush=True)
    sys.stdin.read()


def _serve_socket(connection: socket.socket) -> None:
    """Requests of 9 bytes: W or R, and how many."""
    memory = memoryview(bytearray(MEMORY_BYTES))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while head := connection.recv(9, socket.MSG_WAITALL):
        size = int.from_bytes(head[1:], "little")
        if head[:1] == b"R":
            connection.sendall(memory[:size])
        else:
            _receive(connection, memory[:size])
            connection.sendall(b"!")


def _receive(connection: socket.socket, target: memoryview) -> None:
    while len(target):
        target = target[connection.recv_into(target) :]


def _socket_calls(port: int) -> Callable[[Work], Callable[[], None]]:
    memory = memoryview(bytearray(MEMORY_BYTES))
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call_of(work: Work) -> Callable[[], None]:
        head = (b"R" if work.verb == "read" else b"W") + work.bytes.to_bytes(8, "little")

        def read() -> None:
            connection.sendall(head)
            _receive(connection, memory[: work.bytes])

        def write() -> None:
            connection.sendall(head)
            connection.sendall(memory[: work.bytes])
            connection.recv(1)

        return read if work.verb == "read" else write

    return call_of


def _engine_calls(contender: str, port: int, peer_address: int) -> Callable[[Work], Callable[[], None]]:
    engine, address = started(contender)
    peer = f"127.0.0.1:{port}"

    def call_of(work: Work) -> Callable[[], None]:
        transfer = getattr(engine, f"batch_transfer_sync_{work.verb}")
        buffers = [address + at for at in work.offsets()]
        remotes = [peer_address + at for at in work.offsets()]
        sizes = [work.size] * work.count

        def call() -> None:
            if transfer(peer, buffers, remotes, sizes) != 0:
                raise SystemExit(f"{contender}: {work.name} failed")

        return call

    return call_of


def initiate(contender: str, port: int, peer_address: int) -> None:
    """Obeys names of works, one a line: answers the seconds of each call."""
    call_of = _socket_calls(port) if contender == "socket" else _engine_calls(contender, port, peer_address)
    works = {work.name: work for work in WORKS}
    print("ready", flush=True)
    for line in sys.stdin:
        call = call_of(works[line.strip()])
        call()
        seconds: list[float] = []
        while sum(seconds) < ROUND_S or len(seconds) < 3:
            begin = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begin)
        print(json.dumps(seconds), flush=True)


# ---- the rounds


class Pair:
    """A contender's two processes."""

    def __init__(self, contender: str, python: Path) -> None:
        self._python, self._contender = python, contender
        self._target = self._launch("serve")
        port, address = json.loads(self._line(self._target))
        self._initiator = self._launch("initiate", str(port), str(address))
        if self._line(self._initiator).strip() != "ready":
            raise SystemExit(f"{contender}: its initiator did not start")

    def _launch(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self._python, "-m", "benchmarks.transfers", "--worker", self._contender, *arguments],
            cwd=ROOT,
            env={**os.environ, "GLOG_minloglevel": "2", "MC_LOG_LEVEL": "error"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._contender}: a process ended with {process.wait(HANG_S)}")
        return line

    def median_s(self, work: Work) -> float:
        assert self._initiator.stdin is not None
        self._initiator.stdin.write(work.name + "\n")
        self._initiator.stdin.flush()
        seconds = sorted(json.loads(self._line(self._initiator)))
        return float(seconds[len(seconds) // 2])

    def __enter__(self) -> Pair:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (self._initiator, self._target):
            process.kill()
            process.wait(HANG_S)


def measured(contenders: Sequence[str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of a call, a median a round, by work and contender."""
    from benchmarks.rounds import VENVS

    found: dict[str, dict[str, list[float]]] = {work.name: {} for work in WORKS}
    with ExitStack() as stack:
        pairs: dict[str, Pair] = {}
        for name in contenders:
            python = VENVS / "mooncake" / "bin" / "python" if name == "mooncake" else Path(sys.executable)
            if not python.exists():
                print("mooncake: left out; make bench-peers PEERS=mooncake sets it up", file=sys.stderr)
                continue
            pairs[name] = stack.enter_context(Pair(name, python))
        for _ in range(rounds):
            for work in WORKS:
                for name, pair in pairs.items():
                    found[work.name].setdefault(name, []).append(pair.median_s(work))
    return found


def told(work: Work, seconds: Sequence[float]) -> str:
    from benchmarks.figures import spread

    low, median, high = spread(seconds)
    if work.bytes < MIB:
        return f"{median * 1e6:.0f} us ({low * 1e6:.0f}-{high * 1e6:.0f})"
    return (
        f"{work.bytes / median / 1e9:.2f} GB/s ({work.bytes / high / 1e9:.2f}-{work.bytes / low / 1e9:.2f})"
    )


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["--worker"]:
        _, contender, role, *numbers = arguments
        if role == "serve":
            serve(contender)
        else:
            initiate(contender, int(numbers[0]), int(numbers[1]))
        return 0
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transfers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, help="of each work (11)")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="by comma (all)")
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="folder of the JSON")
    chosen = parser.parse_args(arguments)
    contenders = chosen.contenders.split(",")
    for name in set(contenders) - set(CONTENDERS):
        parser.error(f"--contenders: {name!r} is none of {', '.join(CONTENDERS)}")
    from benchmarks.environment import environment

    found = measured(contenders, chosen.rounds)
    for work in WORKS:
        figures = [f"{name} {told(work, seconds)}" for name, seconds in found[work.name].items()]
        print(f"{work.name:20} " + "   ".join(figures))
    chosen.output.mkdir(parents=True, exist_ok=True)
    path = chosen.output / "transfers.json"
    path.write_text(json.dumps({"environment": environment(), "seconds": found}, indent=1) + "\n")
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
