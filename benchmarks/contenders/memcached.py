"""memcached through pymemcache; for small values, which is what it is made for."""

from __future__ import annotations

import shutil
from typing import Any, Final

import pymemcache
from pymemcache.client.base import Client

from benchmarks.contender import WrongAnswer
from benchmarks.contenders.store import StoreContender
from benchmarks.processes import ServerError, free_port
from benchmarks.work import Work

VALUE_BYTES_MAX: Final = 4 << 10
CALL_BYTES_MAX: Final = 8 << 20


class Memcached(StoreContender):
    name = "memcached"
    verbs = frozenset(("exists", "get", "put", "get_many", "put_many", "exists_many"))

    walk_value_bytes = 512 << 10  # its items have at most 1 MiB

    def start(self) -> str:
        command = shutil.which("memcached")
        if command is None:
            raise ServerError("memcached is missing: apt-get install memcached")
        port = free_port()
        megabytes = max(64, 2 * self.settings.segment_bytes >> 20)
        server = self.launch(
            "server", (command, "-p", str(port), "-l", "127.0.0.1", "-m", str(megabytes), "-u", "nobody")
        )
        server.wait_for_port(port)
        self._client = Client(("127.0.0.1", port), no_delay=True, default_noreply=False)
        return f"{self._client.version().decode()}, pymemcache {pymemcache.__version__}"

    def exists(self, key: str) -> None:
        if self._client.get(key) is None:  # it has no verb that asks without reading
            raise WrongAnswer(f"{key} is missing")

    def get(self, key: str, target: Any) -> None:
        target[:] = self._client.get(key)

    def put(self, key: str, source: Any) -> None:
        if not self._client.set(key, bytes(source)):
            raise WrongAnswer(f"put of {key} was refused")

    def exists_many(self, keys: list[str]) -> None:
        if len(self._client.get_many(keys)) != len(set(keys)):
            raise WrongAnswer("exists: a key is missing")

    def get_many(self, keys: list[str], targets: list[Any]) -> None:
        found = self._client.get_many(keys)
        for key, target in zip(keys, targets, strict=True):
            target[:] = found[key]

    def put_many(self, keys: list[str], sources: list[Any]) -> None:
        if self._client.set_many(dict(zip(keys, map(bytes, sources), strict=True))):
            raise WrongAnswer("put: a key was refused")

    def remove_many(self, keys: list[str]) -> None:
        self._client.delete_many(keys)

    def can(self, work: Work) -> bool:
        return super().can(work) and work.value_bytes <= VALUE_BYTES_MAX and work.call_bytes <= CALL_BYTES_MAX
