"""Mooncake by its own `mooncake.store`: its master, a client that owns a segment, and a pure client here.

Values travel over TCP between the two clients, which are two processes. The module's `main` is the owner.
"""

from __future__ import annotations

import importlib.metadata
import signal
import sys
from pathlib import Path
from typing import Any, Final

from mooncake.store import MooncakeDistributedStore

from benchmarks.contender import Settings, WrongAnswer
from benchmarks.contenders.store import StoreContender, address_of, step_of
from benchmarks.processes import ServerError, free_port

DISTRIBUTION: Final = "mooncake-transfer-engine-non-cuda"
LOCAL_BUFFER_BYTES: Final = 64 << 20
MISSING: Final = -704
QUIET: Final = {"GLOG_minloglevel": "2", "MC_LOG_LEVEL": "error"}


class Mooncake(StoreContender):
    name = "mooncake"
    verbs = frozenset(
        (
            "exists",
            "get",
            "put",
            "get_many",
            "put_many",
            "exists_many",
            "lookup_many",
            "get_same_host",
            "put_same_host",
            "step",
        )
    )

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._store: Any = None

    def start(self) -> str:
        port = free_port()
        master = self.launch(
            "master",
            (
                Path(sys.executable).parent / "mooncake_master",
                f"--rpc_port={port}",
                f"--metrics_port={free_port()}",
                "--enable_metric_reporting=false",
                "--logtostderr",
            ),
        )
        master.wait_for_port(port)
        address = f"127.0.0.1:{port}"
        owner = self.launch(
            "owner",
            (
                sys.executable,
                "-m",
                "benchmarks.contenders.mooncake",
                address,
                str(self.settings.segment_bytes),
            ),
            QUIET,
        )
        owner.wait_for("owns a segment")
        self._store = _connected(address, 0)
        for memory in (self.memory.source, self.memory.target):
            _expect(
                0, self._store.register_buffer(address_of(memory), self.memory.size_bytes), "register_buffer"
            )
        return importlib.metadata.version(DISTRIBUTION)

    def stop(self) -> None:
        if self._store is not None:
            self._store.close()
        super().stop()

    def metadata_pids(self) -> list[int]:
        return [self.servers[0].pid]

    def pieces(self, memory: Any, value_bytes: int, count: int) -> list[Any]:
        base = address_of(memory)
        return [(base + index * value_bytes, value_bytes) for index in range(count)]

    def exists(self, key: str) -> None:
        _expect(1, self._store.is_exist(key), "is_exist")

    def get(self, key: str, target: Any) -> None:
        address, size = target
        _expect(size, self._store.get_into(key, address, size), "get_into")

    def put(self, key: str, source: Any) -> None:
        address, size = source
        _expect(0, self._store.put_from(key, address, size), "put_from")

    def exists_many(self, keys: list[str]) -> None:
        if self._store.batch_is_exist(keys) != [1] * len(keys):
            raise WrongAnswer("batch_is_exist: a key is missing")

    def lookup_many(self, keys: list[str]) -> None:
        if len(self._store.batch_get_replica_desc(keys)) != len(set(keys)):
            raise WrongAnswer("batch_get_replica_desc: a key is missing")

    def get_many(self, keys: list[str], targets: list[Any]) -> None:
        addresses, sizes = [target[0] for target in targets], [target[1] for target in targets]
        if self._store.batch_get_into(keys, addresses, sizes) != sizes:
            raise WrongAnswer("batch_get_into: a value is missing")

    def step(
        self, asked: list[str], keys: list[str], addresses: list[list[int]], sizes: list[list[int]]
    ) -> None:
        step_of(self._store, asked, keys, addresses, sizes)

    def put_many(self, keys: list[str], sources: list[Any]) -> None:
        addresses, sizes = [source[0] for source in sources], [source[1] for source in sources]
        answers = self._store.batch_put_from(keys, addresses, sizes)
        if any(answers):
            raise WrongAnswer(f"batch_put_from: {set(answers)}")

    def remove_many(self, keys: list[str]) -> None:
        answers = self._store.batch_remove(keys, True)
        if any(answer not in (0, MISSING) for answer in answers):
            raise WrongAnswer(f"batch_remove: {set(answers)}")


def _expect(wanted: int, got: int, call: str) -> None:
    if got != wanted:
        raise WrongAnswer(f"{call}: {got}, not {wanted}")


def _connected(master: str, segment_bytes: int) -> Any:
    store = MooncakeDistributedStore()
    status = store.setup("127.0.0.1", "P2PHANDSHAKE", segment_bytes, LOCAL_BUFFER_BYTES, "tcp", "", master)
    if status != 0:
        raise ServerError(f"MooncakeDistributedStore.setup answers {status}")
    return store


def main() -> None:
    """Owns a segment until SIGTERM: the master's address, bytes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    store = _connected(sys.argv[1], int(sys.argv[2]))
    print("owns a segment", flush=True)
    signal.sigwait([signal.SIGTERM])
    store.close()


if __name__ == "__main__":
    main()
