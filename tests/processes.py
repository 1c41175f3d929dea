"""Real daemons for tests that need processes to kill, stop and lose: started and ended here."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from urllib.request import urlopen

HANG_S = 60.0  # only turns a hang into a failure

MASTER = "mooncake_master.cli"
NODE = "mooncake_client.node_daemon"
MASTER_READY = r"serves gRPC on \S*?:(\d+), the lane on port (\d+), HTTP on port (\d+)"
NODE_READY = r"lending (\S+) at (\S+) to the master"


class Process:
    """One daemon and its log. Context manager: killed at the end if it still runs."""

    def __init__(self, module: str, *flags: str) -> None:
        command = [sys.executable, "-c", f"import sys; from {module} import main; sys.exit(main())", *flags]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.pid = self._process.pid
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def log(self) -> str:
        with self._changed:
            return "".join(self._lines)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first match in the log; fails when the process ends without one."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: re.search(pattern, "".join(self._lines)) or self._ended, HANG_S
            )
        assert isinstance(found, re.Match), f"no {pattern!r} in:\n{self.log}"
        return found

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
        stop(self.pid)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait. The exit status."""
        self.send(number)
        return self.wait()

    def poll(self) -> int | None:
        """The exit status if it has ended."""
        return self._process.poll()

    def wait(self) -> int:
        status = self._process.wait(HANG_S)
        self._reader.join(HANG_S)
        return status

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def master(port: int = 0, *flags: str) -> Process:
    return Process(
        MASTER,
        f"--port={port}",
        "--lane_port=0",
        "--metrics_port=0",
        "--rpc_address=127.0.0.1",
        "--metrics_host=127.0.0.1",
        *flags,
    )


def node(master_address: str, *flags: str) -> Process:
    return Process(
        NODE,
        f"--master_server_address={master_address}",
        "--global_segment_size=16mb",
        "--host=127.0.0.1",
        *flags,
    )


def address_of(master: Process) -> str:
    return f"127.0.0.1:{master.wait_for(MASTER_READY).group(1)}"


def metric(master: Process, name: str) -> float:
    """A number of the master's metrics page, summed over its labels."""
    port = master.wait_for(MASTER_READY).group(3)
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANG_S) as page:
        lines = page.read().decode().splitlines()
    found = [float(line.rsplit(" ", 1)[1]) for line in lines if re.split(r"[ {]", line)[0] == name]
    assert found, f"no metric {name}"
    return sum(found)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Until a condition is true; the limit only turns a hang into a failure."""
    deadline = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < deadline, f"never: {what}"


def state(task: Path) -> str:
    """What a thread does, as the kernel says: R runs, S waits, T is stopped. task: its folder in /proc."""
    return (task / "stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()[0]


def stop(pid: int) -> None:
    """SIGSTOP, and wait until every thread has stopped: until then one may still answer."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + HANG_S
    while any(state(task) != "T" for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline, f"process {pid} does not stop"


# Below what the kernel gives to those who ask for any port, and to connections (ip_local_port_range): between
# its being found and its being bound, nobody else comes to a port from there.
_PORTS = range(15_000, 32_768)
_given_ports: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on, each given once; a soak's two nodes once got the same."""
    drawn = random.Random()  # by the system: other runs of the tests draw beside this one
    while True:
        port = drawn.choice(_PORTS)
        if port in _given_ports:
            continue
        _given_ports.add(port)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
