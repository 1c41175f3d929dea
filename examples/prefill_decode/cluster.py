"""A small cluster of real processes on this machine: one master and some nodes, on free ports.

Owns the processes: they are started here and ended here, by their own handles, whatever happens in between.
Knows the daemons only by their flags and by the line each logs when it is ready.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, Final

READY_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 5.0
LOG_TAIL_LINES: Final = 20

MASTER_READY: Final = re.compile(r"serves gRPC on \S*?:(\d+), the lane on port (\d+), HTTP on port (\d+)")
NODE_READY: Final = re.compile(r"lending .* to the master at")


class ClusterError(Exception):
    """A process did not start or ended too early; the message holds the end of its log."""


class Daemon:
    """One process, its log in a file, and the match of its ready line."""

    def __init__(
        self, name: str, module: str, arguments: list[str], ready: re.Pattern[str], logs: Path
    ) -> None:
        self.name = name
        self._ready = ready
        self._log = logs / f"{name}.log"
        self._match: re.Match[str] | None = None
        self._is_ready = threading.Event()
        command = [
            sys.executable,
            "-c",
            f"import sys; from {module} import main; sys.exit(main())",
            *arguments,
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, output: IO[str]) -> None:
        with self._log.open("w") as log:
            for line in output:
                log.write(line)
                log.flush()
                if self._match is None and (match := self._ready.search(line)):
                    self._match = match
                    self._is_ready.set()
        self._is_ready.set()  # it ended: nobody must wait longer

    def wait_ready(self) -> re.Match[str]:
        self._is_ready.wait(READY_TIMEOUT_S)
        if self._match is None:
            state = "did not get ready" if self.is_running() else f"ended with status {self._process.wait()}"
            raise ClusterError(f"{self.name} {state}:\n{self._tail()}")
        return self._match

    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> int:
        """SIGTERM, and SIGKILL if that is not heard in time. The exit status."""
        self._process.terminate()
        try:
            status = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._reader.join(STOP_TIMEOUT_S)
        return status

    def _tail(self) -> str:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return "\n".join(f"  | {line}" for line in lines[-LOG_TAIL_LINES:])


class Cluster:
    """Context manager: a master and `nodes` nodes of `node_bytes` each, all on 127.0.0.1."""

    def __init__(self, *, nodes: int, node_bytes: int) -> None:
        self._node_count = nodes
        self._node_bytes = node_bytes
        self._logs = tempfile.TemporaryDirectory(prefix="mooncake-demo-")
        self._daemons: list[Daemon] = []
        self.master_address = ""
        self.http_address = ""

    def __enter__(self) -> Cluster:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def _start(self) -> None:
        logs = Path(self._logs.name)
        master = Daemon(
            "master",
            "mooncake_master.cli",
            [
                "--port=0",
                "--lane_port=0",
                "--metrics_port=0",
                "--rpc_address=127.0.0.1",
                "--metrics_host=127.0.0.1",
            ],
            MASTER_READY,
            logs,
        )
        self._daemons.append(master)
        grpc_port, _, http_port = master.wait_ready().groups()
        self.master_address = f"127.0.0.1:{grpc_port}"
        self.http_address = f"127.0.0.1:{http_port}"
        nodes = [
            Daemon(
                f"node-{index}",
                "mooncake_client.node_daemon",
                [
                    f"--master_server_address={self.master_address}",
                    f"--global_segment_size={self._node_bytes}",
                    f"--segment_name=node-{index}",
                    "--host=127.0.0.1",
                    "--port=0",
                    "--data_port=0",
                ],
                NODE_READY,
                logs,
            )
            for index in range(self._node_count)
        ]
        self._daemons.extend(nodes)
        for node in nodes:
            node.wait_ready()

    def check_running(self) -> None:
        """Raises ClusterError when a daemon has ended."""
        for daemon in self._daemons:
            if not daemon.is_running():
                daemon.wait_ready()
                raise ClusterError(f"{daemon.name} ended while it was needed")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.stop()
        self._logs.cleanup()
