"""A transfer engine in a process of its own, for tests that need one to write to, to stop and to kill.

Run as a program it obeys lines of JSON on its standard input, one answer each; `TransferPeer` is its handle.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from dropin.memory import Memory, pattern
from processes import HANG_S, stop

from mooncake_client.dropin.transfer_engine import TransferEngine


class TransferPeer:
    """The handle: `address` and `size` of its registered memory, `name` for its peers."""

    def __init__(self, size: int, hostname: str = "127.0.0.1", server: str = "P2PHANDSHAKE") -> None:
        here = Path(__file__)
        self._process = subprocess.Popen(
            [sys.executable, here, str(size), hostname, server],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(here.parents[1]), *sys.path])},
        )
        ready = self._answer()
        self.size = size
        self.address: int = ready["address"]
        self.port: int = ready["port"]
        self.name = f"127.0.0.1:{self.port}" if server == "P2PHANDSHAKE" else hostname

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the peer has ended"
        return json.loads(line)

    def ask(self, what: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, *arguments]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def bytes(self, start: int, end: int) -> bytes:
        return bytes.fromhex(self.ask("bytes", start, end))

    def holds(self, start: int, content: bytes) -> bool:
        return self.ask("digest", start, start + len(content)) == digest(content)

    def stop(self) -> None:
        stop(self._process.pid)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(HANG_S)

    def __enter__(self) -> TransferPeer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


class _Obeying:
    def __init__(self, size: int, hostname: str, server: str) -> None:
        self.engine = TransferEngine()
        assert self.engine.initialize(hostname, server, "tcp", "") == 0
        self.memory = Memory(size)
        assert self.engine.register_memory(self.memory.ptr, size) == 0

    def fill(self, seed: int) -> None:
        self.memory.array[:] = np.frombuffer(pattern(self.memory.size, seed), dtype=np.uint8)

    def bytes(self, start: int, end: int) -> str:
        return self.memory.bytes(start, end).hex()

    def digest(self, start: int, end: int) -> str:
        return digest(self.memory.bytes(start, end))

    def notifies(self) -> list[list[str]]:
        return [[notice.name, notice.msg] for notice in self.engine.get_notifies()]

    def unregister(self) -> int:
        return self.engine.unregister_memory(self.memory.ptr)

    def register(self, start: int, end: int) -> int:
        return self.engine.register_memory(self.memory.ptr + start, end - start)


def main(size: str, hostname: str, server: str) -> None:
    peer = _Obeying(int(size), hostname, server)
    print(json.dumps({"port": peer.engine.get_rpc_port(), "address": peer.memory.ptr}), flush=True)
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        print(json.dumps(getattr(peer, what)(*arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
