"""The HTTP metadata server, alone and inside the master: codes and bodies of Mooncake's, and bounds."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp.test_utils import TestClient, TestServer
from master.running import RunningMaster
from processes import HANG_S, Process

from mooncake_master.daemon import Daemon
from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import StoreError
from mooncake_store.metadata_server.command import METADATA_SERVER_FLAGS
from mooncake_store.metadata_server.entries import Entries
from mooncake_store.metadata_server.server import ALONE, EMBEDDED, Form, HttpMetadataServer

ADDRESS = "mooncake/rpc_meta/10.0.0.1:12345"
COMMAND = "mooncake_store.metadata_server.command"


def ask(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Asking:
    """A server in this loop, and a client of it."""

    def __init__(self, server: HttpMetadataServer) -> None:
        self._client: TestClient[Any, Any] = TestClient(TestServer(server.application()))

    async def __aenter__(self) -> Asking:
        await self._client.start_server()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.close()

    async def say(
        self, method: str, key: str | None, body: bytes = b"", **parameters: str
    ) -> tuple[int, str]:
        query = parameters if key is None else {"key": key, **parameters}
        async with self._client.request(method, "/metadata", params=query, data=body) as answer:
            return answer.status, await answer.text()

    async def page(self, path: str) -> tuple[int, str]:
        async with self._client.get(path) as answer:
            return answer.status, await answer.text()


@pytest.mark.parametrize("form", [ALONE, EMBEDDED], ids=["alone", "embedded"])
async def test_values_by_key(form: Form) -> None:
    async with Asking(HttpMetadataServer(form=form)) as server:
        assert await server.say("GET", "k") == (404, "metadata not found")
        assert await server.say("DELETE", "k") == (404, "metadata not found")
        assert await server.say("PUT", "k", b'{"a": 1}') == (200, "metadata updated")
        assert await server.say("GET", "k") == (200, '{"a": 1}')
        assert await server.say("PUT", "k", b"w") == (200, "metadata updated")
        assert await server.say("DELETE", "k") == (200, "metadata deleted")
        assert await server.say("GET", "k") == (404, "metadata not found")
        assert (await server.say("POST", "k"))[0] == 405
        assert await server.page("/health") == (200, "OK")


@pytest.mark.parametrize(
    ("form", "missing", "same"),
    [
        (ALONE, "metadata key is required", (400, "Duplicate rpc_meta key not allowed")),
        (EMBEDDED, "Missing key parameter", (200, "metadata unchanged")),
    ],
    ids=["alone", "embedded"],
)
async def test_where_mooncakes_servers_differ(form: Form, missing: str, same: tuple[int, str]) -> None:
    async with Asking(HttpMetadataServer(form=form)) as server:
        for method in ("GET", "PUT", "DELETE"):
            assert await server.say(method, None) == (400, missing)
            assert await server.say(method, "") == (400, missing)
        assert await server.say("PUT", ADDRESS, b"here") == (200, "metadata updated")
        assert await server.say("PUT", ADDRESS, b"here") == same
        assert await server.say("PUT", ADDRESS, b"there") == (400, "Duplicate rpc_meta key not allowed")
        assert await server.say("PUT", " k ", b"v") == (200, "metadata updated")
        assert (await server.say("GET", "k"))[0] == (200 if form is ALONE else 404)


async def test_with_a_ttl_nothing_is_a_duplicate_and_it_ends() -> None:
    now_s = 0.0
    async with Asking(HttpMetadataServer(Entries(clock_s=lambda: now_s))) as server:
        for value in (b"old", b"new", b"new"):
            assert await server.say("PUT", ADDRESS, value, ttl_ms="1500") == (200, "metadata updated")
        now_s = 1.49
        assert await server.say("GET", ADDRESS) == (200, "new")
        now_s = 1.5
        assert await server.say("GET", ADDRESS) == (404, "metadata not found")
        assert await server.say("PUT", ADDRESS, b"v") == (200, "metadata updated")
        for wrong in ("", "0", "-1", "1e3", "86400001", "9" * 40, "x"):
            status, text = await server.say("PUT", "k", b"v", ttl_ms=wrong)
            assert (status, text.startswith("ttl_ms")) == (400, True)


async def test_bounds_are_answered_not_exceeded() -> None:
    server_of_two = HttpMetadataServer(Entries(entries_max=2), value_bytes_max=1000)
    async with Asking(server_of_two) as server:
        assert await server.say("PUT", "a", b"x" * 1000) == (200, "metadata updated")
        assert await server.say("PUT", "b", b"x" * 1001) == (413, "metadata value is longer than 1000 bytes")
        assert await server.say("PUT", "b", b"") == (200, "metadata updated")
        assert await server.say("PUT", "c", b"") == (507, "the metadata server is full")
        assert (await server.say("PUT", "é" * 513, b""))[0] == 400
        status, page = await server.page("/metrics")
        assert status == 200
        for line in (
            "metadata_server_entries 2.0",
            "metadata_server_bytes 1002.0",
            "metadata_server_expired_total 0.0",
            'metadata_server_requests_total{method="PUT",status="200"} 2.0',
            'metadata_server_requests_total{method="PUT",status="507"} 1.0',
        ):
            assert line in page.splitlines()


async def test_a_value_that_does_not_arrive_is_given_up() -> None:
    server = HttpMetadataServer(body_s=0.05)
    await server.start(Endpoint("127.0.0.1", 0), "--port")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"PUT /metadata?key=k HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf")
    assert (await asyncio.wait_for(reader.readline(), HANG_S)).split()[1] == b"408"
    writer.close()
    await writer.wait_closed()
    assert server.entries.counts() == (0, 0)
    await server.stop()


async def test_any_bytes_are_a_key_or_a_refusal() -> None:
    async with Asking(HttpMetadataServer()) as server:
        for key in ("\x00", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), "a\nb", "%", "../x"):
            assert await server.say("PUT", key, b"\xff\x00") == (200, "metadata updated")
            assert (await server.say("DELETE", key))[0] == 200


def test_the_command() -> None:
    with Process(
        COMMAND, "--host=127.0.0.1", "-port", "0", "--log-level", "INFO", "--entries_max=1"
    ) as server:
        port = int(server.wait_for(r"serves on 127\.0\.0\.1:(\d+)").group(1))
        path = f"/metadata?key={quote(ADDRESS, safe='')}"
        assert ask(port, "PUT", path, b"{}") == (200, "metadata updated")
        assert ask(port, "GET", path) == (200, "{}")
        assert ask(port, "PUT", "/metadata?key=%ff%fe", b"{}") == (507, "the metadata server is full")
        with Process(COMMAND, "--host=127.0.0.1", f"--port={port}") as second:
            assert second.wait() == 1
            assert re.search(
                rf"cannot listen on 127\.0\.0\.1:{port} .*--port\): the port is in use", second.log
            )
        with socket.create_connection(("127.0.0.1", port), HANG_S) as rude:
            rude.sendall(b"GET \xff\x00 nonsense\r\n\r\n")
            assert b" 400 " in rude.recv(1000)
        assert server.end(signal.SIGTERM) == 0
        assert "Traceback" not in server.log


def test_wrong_flags_are_named() -> None:
    for wrong in ("--prot=1", "--port=70000", "--entries_max=0"):
        with pytest.raises(StoreError, match=wrong.partition("=")[0]):
            METADATA_SERVER_FLAGS.load([wrong])


def test_inside_the_master() -> None:
    flags = (
        "--enable_http_metadata_server",
        "--http_metadata_server_port=0",
        "--http_metadata_server_host=127.0.0.1",
    )
    with RunningMaster(*flags) as daemon:
        port = metadata_port(daemon)
        assert ask(port, "GET", "/metadata") == (400, "Missing key parameter")
        assert ask(port, "PUT", "/metadata?key=k", b"v") == (200, "metadata updated")
        assert ask(port, "GET", "/health") == (200, "OK")
        taken = RunningMaster(*flags[:1], f"--http_metadata_server_port={port}", flags[2])
        with pytest.raises(StoreError, match=f"port {port}, flag --http_metadata_server_port"):
            taken.__enter__()
    with pytest.raises(urllib.error.URLError):
        ask(port, "GET", "/health")


def metadata_port(daemon: Daemon) -> int:
    server = daemon._metadata_server
    assert server is not None
    return server.port
