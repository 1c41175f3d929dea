"""The same promises for every kind of metadata server; etcd and redis as real ones."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import election_servers
import pytest
from processes import HANG_S, free_port

from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import InvalidArgument, Unavailable
from mooncake_store.metadata_server.descriptor import find_endpoint, segment_entries
from mooncake_store.metadata_server.interface import MetadataServer
from mooncake_store.metadata_server.opening import open_metadata_server
from mooncake_store.metadata_server.server import HttpMetadataServer

TTL_S = 60
HERE = Endpoint("127.0.0.1", 4321)


class Http:
    """The HTTP metadata server in this loop, with the same handles as the others'."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._server = HttpMetadataServer()

    async def start(self) -> None:
        self._server = HttpMetadataServer()
        await self._server.start(Endpoint("127.0.0.1", self.port), "--port")

    async def kill(self) -> None:
        await self._server.stop()


class Real:
    """One of etcd or redis."""

    def __init__(self, server: election_servers.Server) -> None:
        self.port = server.port
        self._server = server

    async def start(self) -> None:
        await asyncio.to_thread(self._server.start)

    async def kill(self) -> None:
        await asyncio.to_thread(self._server.kill)


class Case:
    def __init__(self, kind: str, server: Http | Real, url: str) -> None:
        self.kind, self.server, self.url = kind, server, url

    def client(self, timeout_s: float = HANG_S) -> MetadataServer:
        client = open_metadata_server(self.url, timeout_s=timeout_s)
        assert client is not None
        return client


@pytest.fixture(params=["http", "etcd", "redis"])
async def case(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Case]:
    server: Http | Real
    if request.param == "http":
        server = Http(free_port())
        url = f"http://127.0.0.1:{server.port}/metadata"
    elif request.param == "etcd":
        server = Real(election_servers.etcd(tmp_path))
        url = f"127.0.0.1:1,127.0.0.1:{server.port}"  # the first member is dead
    else:
        server = Real(election_servers.redis(tmp_path))
        url = f"redis://127.0.0.1:{server.port}/2"
    await server.start()
    try:
        yield Case(request.param, server, url)
    finally:
        await server.kill()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + HANG_S
    while not await holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_put_get_delete(case: Case) -> None:
    async with (
        contextlib.aclosing(Closing(case.client())) as one,
        contextlib.aclosing(Closing(case.client())) as two,
    ):
        a, b = one.server, two.server
        assert await a.get("k") is None
        assert await a.delete("k") is False
        await a.put("k/ü", b"\x00\xff", ttl_s=TTL_S)
        assert await b.get("k/ü") == b"\x00\xff"
        # Who comes back under the same key is never a duplicate, with whatever value.
        await b.put("mooncake/rpc_meta/n", b"old", ttl_s=TTL_S)
        await a.put("mooncake/rpc_meta/n", b"new", ttl_s=TTL_S)
        assert await b.get("mooncake/rpc_meta/n") == b"new"
        assert await b.delete("mooncake/rpc_meta/n", only=b"old") is False
        assert await b.delete("mooncake/rpc_meta/n", only=b"new") is True
        assert await a.delete("k/ü") is True
        assert await b.get("k/ü") is None


class Listener:
    """A server of this loop that is whatever `handle` is."""

    def __init__(
        self, handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    ) -> None:
        self._handle = handle
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._handle(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Closing:
    def __init__(self, server: MetadataServer) -> None:
        self.server = server

    async def aclose(self) -> None:
        await self.server.close()


@pytest.mark.slow
async def test_nothing_stays_of_who_renews_no_more_and_renewing_keeps_it(case: Case) -> None:
    left, kept = case.client(), case.client()
    await left.put("left", b"v", ttl_s=1)
    await kept.put("kept", b"v", ttl_s=2)

    async def gone() -> bool:
        await kept.renew("kept", b"v", ttl_s=2)
        return await kept.get("left") is None

    begun = time.monotonic()
    await until(gone)
    while time.monotonic() < begun + 3:
        await kept.renew("kept", b"v", ttl_s=2)
        await asyncio.sleep(0.3)
    assert await kept.get("kept") == b"v"
    await left.close()
    await kept.close()


async def test_renewing_puts_anew_what_the_server_lost(case: Case) -> None:
    client, other = case.client(), case.client()
    await client.put("k", b"v", ttl_s=TTL_S)
    assert await other.delete("k")
    await client.renew("k", b"v", ttl_s=TTL_S)
    assert await other.get("k") == b"v"
    await other.put("k", b"of another", ttl_s=TTL_S)
    await client.renew("k", b"v", ttl_s=TTL_S)
    assert await other.get("k") == b"v"
    await client.close()
    await other.close()


@pytest.mark.slow
async def test_a_server_that_goes_and_comes_back_empty(case: Case, tmp_path: Path) -> None:
    client = case.client(timeout_s=10)
    await client.put("k", b"v", ttl_s=TTL_S)
    await case.server.kill()
    with pytest.raises(Unavailable, match="metadata server"):
        await client.get("k")
    if case.kind == "etcd":
        import shutil

        for folder in tmp_path.glob("etcd-*"):
            if folder.is_dir():
                shutil.rmtree(folder)
    await case.server.start()

    async def renewed() -> bool:
        try:
            await client.renew("k", b"v", ttl_s=TTL_S)
        except Unavailable:
            return False
        return True

    await until(renewed)
    assert await client.get("k") == b"v"
    await client.close()


@pytest.mark.parametrize(
    "form", ["http://127.0.0.1:{}/metadata", "etcd://127.0.0.1:{}", "redis://u:secret@127.0.0.1:{}"]
)
async def test_who_does_not_answer_is_given_up_at_the_deadline(form: str) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while await reader.read(1000):
                pass

    listener = Listener(silent)
    url = form.format(await listener.start())
    client = open_metadata_server(url, timeout_s=0.3)
    assert client is not None
    for call in (client.get("k"), client.put("k", b"v", ttl_s=5), client.delete("k")):
        begun = time.monotonic()
        with pytest.raises(Unavailable) as failed:
            await call
        assert time.monotonic() - begun < HANG_S / 2
        assert "secret" not in str(failed.value)
    await client.close()
    await listener.end()


@pytest.mark.parametrize(
    "answer", [b"", b"\xff" * 100, b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (2 << 20), b"HTTP/1.1 500 No\r\n\r\n"]
)
async def test_http_answers_that_are_none(answer: bytes) -> None:
    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

    listener = Listener(answering)
    port = await listener.start()
    client = open_metadata_server(f"http://127.0.0.1:{port}", timeout_s=HANG_S)
    assert client is not None
    with pytest.raises(Unavailable, match="metadata server"):
        await client.get("k")
    await listener.end()


async def test_a_redis_password_is_asked_for_and_never_shown(tmp_path: Path) -> None:
    with election_servers.redis(tmp_path) as server:
        from redis import Redis

        with Redis(port=server.port) as admin:
            admin.config_set("requirepass", "s3cret")
        right = open_metadata_server(f"redis://:s3cret@127.0.0.1:{server.port}/1")
        wrong = open_metadata_server(f"redis://:n0secret@127.0.0.1:{server.port}/1")
        assert right is not None
        assert wrong is not None
        await right.put("k", b"v", ttl_s=TTL_S)
        assert await right.get("k") == b"v"
        with pytest.raises(Unavailable) as refused:
            await wrong.get("k")
        assert "n0secret" not in str(refused.value)
        await right.close()
        await wrong.close()


async def test_mooncakes_own_server_knows_no_ttl_and_is_used_all_the_same() -> None:
    """As it is there: an address that stands is refused, with whatever value."""

    class WithoutTtl(HttpMetadataServer):
        async def _put(self, key: str, request: Any) -> Any:
            request = request.clone(rel_url=request.rel_url.with_query(key=key))
            return await super()._put(key, request)

    server = WithoutTtl()
    await server.start(Endpoint("127.0.0.1", 0), "--port")
    client = open_metadata_server(f"http://127.0.0.1:{server.port}/metadata")
    assert client is not None
    for value in (b"old", b"new", b"new"):
        await client.put("mooncake/rpc_meta/n", value, ttl_s=TTL_S)
        assert await client.get("mooncake/rpc_meta/n") == value
    await server.stop()


async def test_endpoints_are_found_by_name(case: Case) -> None:
    client = case.client()
    entries = segment_entries({"n:1": 100}, HERE, "now")
    assert sorted(entries) == ["mooncake/ram/n:1", "mooncake/rpc_meta/n:1"]
    for key, value in entries.items():
        await client.put(key, value, ttl_s=TTL_S)
    assert await find_endpoint(client, "n:1") == HERE
    assert await find_endpoint(client, "n:2") is None
    for hostile in (
        b"",
        b"[]",
        b'{"ip_or_host_name": "a b", "rpc_port": 1}',
        b'{"ip_or_host_name": "a", "rpc_port": 0}',
        b"[" * 5000,
    ):
        await client.put("mooncake/rpc_meta/n:3", hostile or b" ", ttl_s=TTL_S)
        with pytest.raises(Unavailable, match="n:3"):
            await find_endpoint(client, "n:3")
    await client.close()


async def test_bounds(case: Case) -> None:
    client = case.client()
    for key, value in (("", b"v"), ("k" * 1025, b"v"), ("k", b"v" * ((1 << 20) + 1))):
        with pytest.raises(InvalidArgument, match="metadata"):
            await client.put(key, value, ttl_s=TTL_S)
    await client.close()


@pytest.mark.parametrize(
    ("url", "library", "extra"), [("h:1", "aetcd", "etcd"), ("redis://h:1", "redis", "redis")]
)
def test_a_missing_library_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, url: str, library: str, extra: str
) -> None:
    import sys

    monkeypatch.delitem(sys.modules, f"mooncake_store.metadata_server.{extra}_backend", raising=False)
    real_import = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == library:
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)
        return real_import(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        InvalidArgument, match=rf"{library} is missing: pip install 'mooncake-store\[{extra}\]'"
    ):
        open_metadata_server(url)
