"""Server processes of the contenders: started, found ready, pinned to cores, measured and ended.

Standard library only: it runs in every peer's virtual environment.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.02
_LOG_TAIL_BYTES: Final = 2_000


class ServerError(Exception):
    """A server did not start; the message holds the end of its log."""


class Server:
    """One process with its log in a file."""

    def __init__(
        self, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        self._name = Path(command[0]).name
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
            )
        self.pid = self._process.pid

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first match in the log."""
        found: list[re.Match[str]] = []

        def is_there() -> bool:
            match = re.search(pattern, self._log.read_text(errors="replace"))
            if match is not None:
                found.append(match)
            return match is not None

        self._wait(is_there, f"say {pattern!r}")
        return found[0]

    def wait_for_port(self, port: int) -> None:
        """Until somebody accepts connections there."""

        def accepts() -> bool:
            with socket.socket() as probe:
                probe.settimeout(1)
                return probe.connect_ex(("127.0.0.1", port)) == 0

        self._wait(accepts, f"listen on port {port}")

    def _wait(self, is_ready: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not is_ready():
            ended = self._process.poll()
            if ended is not None or time.monotonic() > deadline:
                state = f"ended with {ended}" if ended is not None else f"did not in {READY_TIMEOUT_S:.0f} s"
                tail = self._log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
                raise ServerError(f"{self._name} was to {what} but {state}:\n{tail}")
            time.sleep(_POLL_S)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and gone. Idempotent."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL where that is not heard in time."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def pin(pids: Iterable[int], cores: Iterable[int]) -> None:
    """Every thread of these processes runs on these cores only, and so do those that they start."""
    wanted = set(cores)
    for pid in pids:
        moved = True
        while moved:  # a thread that was not moved yet may have started another meanwhile
            moved = False
            for task in _tasks(pid):
                try:
                    if os.sched_getaffinity(task) != wanted:
                        os.sched_setaffinity(task, wanted)
                        moved = True
                except ProcessLookupError:
                    continue


def _tasks(pid: int) -> list[int]:
    try:
        return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    except FileNotFoundError:
        return []


def cpu_ns(pids: Iterable[int]) -> int:
    """User and system time that the processes used so far, ended threads included, in ns."""
    # The kernel's id of another process's CPU clock (clock_getcpuclockid(3)): its pid inverted, and type 2.
    return sum(time.clock_gettime_ns(((~pid) << 3) | 2) for pid in pids)


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory of the processes that is in RAM now."""
    page = os.sysconf("SC_PAGE_SIZE")
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page for pid in pids)
