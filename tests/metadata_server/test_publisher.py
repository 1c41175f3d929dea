"""What a process tells of itself stays told: renewed, told anew, tried again, taken back."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

import pytest
from processes import HANG_S, free_port, wait_until

from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import InvalidArgument, Unavailable
from mooncake_store.metadata_server.address import ServerAddress
from mooncake_store.metadata_server.interface import MetadataServer
from mooncake_store.metadata_server.publisher import (
    RETRY_FIRST_S,
    RETRY_MAX_S,
    Publication,
    Publisher,
    publish,
    retry_delay_s,
)
from mooncake_store.metadata_server.server import HttpMetadataServer

TTL_S = 30


class Fake(MetadataServer):
    """A server in memory that can be away."""

    def __init__(self) -> None:
        super().__init__(ServerAddress("http", (Endpoint("fake", 1),), path="/metadata"))
        self.values: dict[str, bytes] = {}
        self.is_away = False
        self.renewals = 0

    def _reach(self) -> None:
        if self.is_away:
            raise ConnectionRefusedError("away")

    async def _put(self, key: str, value: bytes, ttl_s: int) -> None:
        self._reach()
        assert ttl_s == TTL_S
        self.values[key] = value

    async def _renew(self, key: str, value: bytes, ttl_s: int) -> None:
        await self._put(key, value, ttl_s)
        self.renewals += 1

    async def _get(self, key: str) -> bytes | None:
        self._reach()
        return self.values.get(key)

    async def _delete(self, key: str, only: bytes | None) -> bool:
        self._reach()
        if only is not None and self.values.get(key) != only:
            return False
        return self.values.pop(key, None) is not None

    async def _close(self) -> None:
        return


async def test_rounds() -> None:
    server, told = Fake(), {"a": b"1", "b": b"2"}
    publication = Publication(server, lambda: told, ttl_s=TTL_S)
    assert not publication.is_current
    assert await publication.round() == TTL_S / 3
    assert publication.is_current
    assert (server.values, server.renewals) == (told, 0)
    server.values.clear()  # it came back empty
    assert await publication.round() == TTL_S / 3
    assert (server.values, server.renewals) == (told, 2)
    told["a"] = b"3"
    del told["b"]
    assert not publication.is_current
    await publication.round()
    assert server.values == told
    server.values["a"] = b"of one who took the name"
    await publication.withdraw()
    assert server.values == {"a": b"of one who took the name"}


async def test_an_absent_server_is_one_warning_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    server = Fake()
    publication = Publication(server, lambda: {"a": b"1"}, ttl_s=TTL_S)
    server.is_away = True
    with caplog.at_level(logging.INFO, "mooncake_store.metadata_server"):
        delays = [await publication.round() for _ in range(20)]
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "http://fake:1/metadata" in caplog.text
        assert RETRY_FIRST_S / 2 <= delays[0] <= RETRY_FIRST_S
        assert all(delay <= RETRY_MAX_S for delay in delays)
        assert publication.counters["metadata_server_failures_total"] == 20
        assert publication.counters["metadata_server_published"] == 0
        server.is_away = False
        await publication.round()
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert server.values == {"a": b"1"}
    assert publication.counters["metadata_server_published"] == 1


async def test_nothing_to_tell_yet_is_looked_at_soon() -> None:
    publication = Publication(Fake(), dict, ttl_s=TTL_S)
    assert await publication.round() == RETRY_FIRST_S
    assert publication.counters["metadata_server_published"] == 0


def test_retries_are_spread_and_bounded() -> None:
    assert retry_delay_s(1, 0.0) == RETRY_FIRST_S / 2
    assert retry_delay_s(1, 1.0) == RETRY_FIRST_S
    assert retry_delay_s(10**9, 1.0) == RETRY_MAX_S


def test_handshake_publishes_nothing_and_a_wrong_url_is_refused() -> None:
    assert publish("P2PHANDSHAKE", dict) is None
    with pytest.raises(InvalidArgument, match="metadata_server"):
        publish("ftp://h:1", dict)


class Running:
    """The HTTP metadata server on a loop of this thread, driven while a condition is waited for."""

    def __init__(self, port: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._port = port
        self.server = HttpMetadataServer()

    def start(self) -> None:
        self.server = HttpMetadataServer()
        self._loop.run_until_complete(self.server.start(Endpoint("127.0.0.1", self._port), "--port"))

    def stop(self) -> None:
        self._loop.run_until_complete(self.server.stop())

    def until(self, holds: Callable[[], bool]) -> None:
        async def look() -> None:
            while not holds():
                await asyncio.sleep(0.01)

        self._loop.run_until_complete(asyncio.wait_for(look(), HANG_S))

    def close(self) -> None:
        self.stop()
        self._loop.close()


def test_the_thread_tells_tells_anew_and_takes_back() -> None:
    port = free_port()
    publisher = publish(f"http://127.0.0.1:{port}/metadata", lambda: {"k": b"v"}, ttl_s=1)
    assert publisher is not None
    wait_until(lambda: publisher.counters()["metadata_server_failures_total"] > 0, "a failure is counted")
    running = Running(port)
    for _ in range(2):
        running.start()
        running.until(lambda: running.server.entries.get("k") == b"v")
        running.stop()
    running.start()
    running.until(lambda: running.server.entries.get("k") == b"v")
    running.until(lambda: publisher.counters()["metadata_server_published"] == 1)

    async def end() -> None:
        await asyncio.to_thread(publisher.end)

    running._loop.run_until_complete(end())
    assert running.server.entries.get("k") is None
    publisher.end()
    running.close()


def test_a_put_under_way_at_the_end_is_taken_back_too() -> None:
    class Slow(Fake):
        begun = threading.Event()

        async def _put(self, key: str, value: bytes, ttl_s: int) -> None:
            # It arrives, whether or not it is waited for.
            self.arrival = threading.Timer(0.2, self.values.update, [{key: value}])
            self.arrival.start()
            self.begun.set()
            await asyncio.sleep(0.3)

    server = Slow()
    publisher = Publisher(server, lambda: {"k": b"v"}, ttl_s=TTL_S)
    assert server.begun.wait(HANG_S)
    publisher.end()
    server.arrival.join(HANG_S)
    assert server.values == {}


def test_the_end_does_not_wait_for_a_server_that_is_away() -> None:
    publisher = publish(f"http://127.0.0.1:{free_port()}/metadata", lambda: {"k": b"v"})
    assert publisher is not None
    wait_until(lambda: publisher.counters()["metadata_server_failures_total"] > 0, "a failure is counted")
    begun = time.monotonic()
    publisher.end()
    assert time.monotonic() - begun < HANG_S / 2


async def test_what_a_library_raises_is_unavailable() -> None:
    server = Fake()
    server.is_away = True
    with pytest.raises(Unavailable, match="ConnectionRefusedError: away"):
        await server.get("k")
