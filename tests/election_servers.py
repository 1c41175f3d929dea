"""etcd and redis as tests need them: real servers on free ports, that can be killed and started again."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from processes import HANG_S, free_port


class Server:
    """A process that listens on `port`. Context manager; the data of `folder` outlives start and kill."""

    def __init__(self, command: list[str], port: int, folder: Path) -> None:
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]} is not installed (Debian: apt-get install etcd-server redis-server)")
        self.port = port
        self.address = f"127.0.0.1:{port}"
        self._command = command
        self._log = folder / f"{command[0]}-{port}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + HANG_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self.process.poll() is None, self._log.read_text()[-2_000:]
                assert time.monotonic() < deadline, self._log.read_text()[-2_000:]
                time.sleep(0.02)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(HANG_S)
            self.process = None

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def etcd(folder: Path) -> Server:
    """A cluster of one member."""
    [member] = etcd_members(folder, 1)
    return member


def etcd_members(folder: Path, count: int) -> list[Server]:
    """A cluster; it serves while most of its members run."""
    ports = [(free_port(), free_port()) for _ in range(count)]
    cluster = ",".join(f"m{port}=http://127.0.0.1:{peers}" for port, peers in ports)
    members = []
    for port, peers in ports:
        client_url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
        command = ["etcd", f"--name=m{port}", f"--data-dir={folder / f'etcd-{port}'}", "--log-level=error"]
        command += [f"--listen-client-urls={client_url}", f"--advertise-client-urls={client_url}"]
        command += [f"--listen-peer-urls={peer_url}", f"--initial-advertise-peer-urls={peer_url}"]
        members.append(Server([*command, f"--initial-cluster={cluster}"], port, folder))
    return members


def redis(folder: Path) -> Server:
    """It keeps nothing: started again it is empty."""
    port = free_port()
    return Server(
        ["redis-server", f"--port {port}", "--bind 127.0.0.1", "--save", "", "--appendonly no"], port, folder
    )
