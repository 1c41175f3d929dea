"""The processes of a soak, each with a place to which it returns: the same address, the same state file."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import processes
from processes import Process
from soak.ledger import LedgerReader

WORKER = "soak.worker"
SETTLE_S = 60.0  # only turns a hang into a failure


class Role:
    """One place in the cast, filled by one process at a time; called by one thread at a time."""

    kind = ""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.process: Process | None = None
        self.lives = 0

    def flags(self) -> tuple[str, ...]:
        raise NotImplementedError

    def module(self) -> str:
        raise NotImplementedError

    def ready(self) -> str:
        """The pattern in the log that says it is there."""
        raise NotImplementedError

    def start(self, *, wait: bool = True) -> None:
        self.lives += 1
        self.process = Process(self.module(), *self.flags())
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        assert self.process is not None
        self.process.wait_for(self.ready())

    def kill(self) -> int:
        """kill -9; CLOCK_MONOTONIC in ns when it was gone."""
        assert self.process is not None
        self.process.end(signal.SIGKILL)
        gone_ns = time.monotonic_ns()
        self._bury()
        return gone_ns

    def end(self) -> int:
        """In good order; the exit status."""
        assert self.process is not None
        status = self.process.end()
        self._bury()
        return status

    def abandon(self) -> None:
        """Whatever state it is in, it is gone afterwards."""
        if self.process is not None:
            self._bury()

    def _bury(self) -> None:
        assert self.process is not None
        self.process.__exit__(None, None, None)
        log = self.folder / f"{self.name.replace(' ', '-')}-{self.lives}.log"
        log.write_text(self.process.log, encoding="utf-8")
        self.process = None


class Master(Role):
    kind = "master"

    def __init__(self, folder: Path, client_ttl_s: int) -> None:
        super().__init__("master", folder)
        self._flags = (
            f"--port={processes.free_port()}",
            "--lane_port=0",
            "--metrics_port=0",
            "--rpc_address=127.0.0.1",
            "--metrics_host=127.0.0.1",
            f"--state_file={folder / 'reign.json'}",
            f"--client_ttl={client_ttl_s}",
        )
        self.address = "127.0.0.1:" + self._flags[0].rpartition("=")[2]

    def flags(self) -> tuple[str, ...]:
        return self._flags

    def module(self) -> str:
        return processes.MASTER

    def ready(self) -> str:
        return processes.MASTER_READY


class Node(Role):
    kind = "node"

    def __init__(self, number: int, master: str, size: str, folder: Path) -> None:
        super().__init__(f"node {number}", folder)
        self._flags = (
            f"--master_server_address={master}",
            f"--global_segment_size={size}",
            "--host=127.0.0.1",
            f"--data_port={processes.free_port()}",
            f"--host_id=host-{number}",
        )

    def flags(self) -> tuple[str, ...]:
        return self._flags

    def module(self) -> str:
        return processes.NODE

    def ready(self) -> str:
        return processes.NODE_READY


class Worker(Role):
    """A writer or reader. Each life has a ledger and a seed of its own."""

    def __init__(self, kind: str, slot: int, slots: int, master: str, folder: Path, seed: str) -> None:
        super().__init__(f"{kind} {slot}", folder)
        self.kind = kind
        self._slot, self._slots = slot, slots
        self._master = master
        self._seed = seed

    def _ledger(self) -> Path:
        return self.folder / f"{self.kind}-{self._slot}-{self.lives}.ledger"

    def source(self) -> tuple[str, LedgerReader]:
        """Name and events of the life that has begun last."""
        return f"{self.name}, life {self.lives}", LedgerReader(self._ledger())

    def flags(self) -> tuple[str, ...]:
        return (
            f"--role={self.kind}",
            f"--slot={self._slot}",
            f"--slots={self._slots}",
            f"--seed={self._seed} {self.name} {self.lives}",
            f"--master={self._master}",
            f"--ledger={self._ledger()}",
        )

    def module(self) -> str:
        return WORKER

    def ready(self) -> str:
        return "works\n"
