"""Redis without persistence, through redis-py with hiredis; batches are pipelined.

A get into the caller's buffer includes the copy out of the bytes object that the client makes.
"""

from __future__ import annotations

import shutil
import socket
from typing import Any

import redis

from benchmarks.contender import WrongAnswer
from benchmarks.contenders import raw
from benchmarks.contenders.store import StoreContender
from benchmarks.processes import ServerError, free_port
from benchmarks.work import Work


class Redis(StoreContender):
    name = "redis"
    verbs = frozenset(("exists", "get", "put", "get_many", "put_many", "exists_many", "pump"))

    def start(self) -> str:
        command = shutil.which("redis-server")
        if command is None:
            raise ServerError("redis-server is missing: apt-get install redis-server")
        self._port = free_port()
        server = self.launch(
            "server",
            (command, "--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"),
        )
        server.wait_for_port(self._port)
        self._client = redis.Redis(host="127.0.0.1", port=self._port)
        self._client.ping()
        parser = type(self._client.connection_pool.make_connection()._parser).__name__
        return f"{self._client.info('server')['redis_version']}, redis-py {redis.__version__}, {parser}"

    def exists(self, key: str) -> None:
        if self._client.exists(key) != 1:
            raise WrongAnswer(f"{key} is missing")

    def get(self, key: str, target: Any) -> None:
        target[:] = self._client.get(key)

    def put(self, key: str, source: Any) -> None:
        if not self._client.set(key, source):
            raise WrongAnswer(f"put of {key} was refused")

    def exists_many(self, keys: list[str]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.exists(key)
        if not all(pipeline.execute()):
            raise WrongAnswer("exists: a key is missing")

    def get_many(self, keys: list[str], targets: list[Any]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.get(key)
        for target, value in zip(targets, pipeline.execute(), strict=True):
            target[:] = value

    def put_many(self, keys: list[str], sources: list[Any]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for key, source in zip(keys, sources, strict=True):
            pipeline.set(key, source)
        if not all(pipeline.execute()):
            raise WrongAnswer("put: a key was refused")

    def remove_many(self, keys: list[str]) -> None:
        if keys:
            self._client.delete(*keys)

    def pump(self, work: Work, key: str, duration_s: float) -> int:
        name = key.encode()
        request = b"*2\r\n$6\r\nEXISTS\r\n$%d\r\n%s\r\n" % (len(name), name)
        sockets = [socket.create_connection(("127.0.0.1", self._port)) for _ in range(work.connections)]
        try:
            return raw.pump(sockets, request, len(b":1\r\n"), work.depth, duration_s)
        finally:
            for one in sockets:
                one.close()
