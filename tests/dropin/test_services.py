"""The store behind HTTP: endpoints, forms, codes, and the processes that serve them."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from dropin.conftest import MIB, JoinPool
from processes import Process

from mooncake_client.dropin import MooncakeDistributedStore
from mooncake_client.dropin.http_metadata_server import Metadata
from mooncake_client.dropin.store_service import StoreService, main

Client = TestClient[Any, Any]


@pytest.fixture
async def rest(store: MooncakeDistributedStore) -> AsyncIterator[Client]:
    membership = store._membership
    assert membership is not None
    async with TestClient(TestServer(StoreService(store, membership.config).application())) as client:
        yield client


async def ask(client: Client, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    async with client.request(method, path, json=body) as answer:
        text = await answer.read()
        return answer.status, json.loads(text) if answer.content_type == "application/json" else text


async def test_values_over_http(rest: Client) -> None:
    success = (200, {"status": "success"})
    assert await ask(rest, "PUT", "/api/put", {"key": "a/b", "value": "größe"}) == success
    assert await ask(rest, "GET", "/api/get/a/b") == (200, "größe".encode())
    assert await ask(rest, "GET", "/api/exist/a/b") == (200, {"exists": True})
    assert await ask(rest, "GET", "/api/exist/zz") == (200, {"exists": False})
    assert await ask(rest, "GET", "/api/get/zz") == (404, {"error": "Key not found"})
    assert await ask(rest, "DELETE", "/api/remove/a/b") == success
    assert await ask(rest, "DELETE", "/api/remove/a/b") == (500, {"error": "Remove operation failed"})
    for body in ({"key": "k"}, {"value": "v"}, {"key": "", "value": "v"}, {"key": 3, "value": "v"}):
        assert await ask(rest, "PUT", "/api/put", body) == (400, {"error": "Missing key or value"})
    assert (await ask(rest, "PUT", "/api/put", ["k"]))[0] == 400
    assert await ask(rest, "PUT", "/api/put", {"key": "k" * 2000, "value": "v"}) == (
        500,
        {"error": "PUT operation failed"},
    )
    for key in ("a", "b"):
        assert await ask(rest, "PUT", "/api/put", {"key": key, "value": "v"}) == success
    assert await ask(rest, "DELETE", "/api/remove_all") == (200, {"status": "success removed 2 keys"})


async def test_body_that_is_not_json(rest: Client) -> None:
    async with rest.put("/api/put", data=b"{") as answer:
        assert answer.status == 400
        assert "not JSON" in (await answer.json())["error"]


async def test_memory_over_http(rest: Client) -> None:
    status, mounted = await ask(rest, "POST", "/api/mount", {"size": 16 * MIB})
    assert (status, mounted["status"], mounted["allocated_size"]) == (200, "success", 16 * MIB)
    [identity] = mounted["segment_ids"]
    assert await ask(rest, "POST", "/api/unmount", {"segment_ids": identity}) == (200, {"status": "success"})
    status, refused = await ask(rest, "POST", "/api/unmount_shm", {"segment_ids": [identity]})
    assert (status, refused["failed_segment_ids"]) == (500, [identity])
    for body in ({}, {"size": 0}, {"size": "1"}, {"size": -1}):
        assert (await ask(rest, "POST", "/api/mount", body))[0] == 400
    for body in ({}, {"segment_ids": []}, {"segment_ids": ["1-1"], "grace_period_seconds": 3601}):
        assert (await ask(rest, "POST", "/api/unmount", body))[0] == 400
    assert await ask(rest, "POST", "/api/mount_shm", {"name": "n"}) == (
        400,
        {"error": "Missing or invalid name or size"},
    )
    assert await ask(rest, "POST", "/api/mount_shm", {"name": "n", "size": 4096}) == (
        500,
        {"error": "Mount failed, ret=-1"},
    )
    assert (await ask(rest, "POST", "/api/unmount_local_disk", {"grace_period_seconds": 5}))[0] == 200
    assert (await ask(rest, "POST", "/api/unmount_local_disk", {"grace_period_seconds": -1}))[0] == 400


async def test_reconfigure_lends_before_it_takes_back(rest: Client, store: MooncakeDistributedStore) -> None:
    status, first = await ask(rest, "POST", "/api/reconfigure", {"mode": "prefill"})
    assert status == 200
    status, second = await ask(rest, "POST", "/api/reconfigure", {"mode": "prefill"})
    assert status == 200
    assert store.unmount_segment(first["segment_ids"]) == -1
    assert store.unmount_segment(second["segment_ids"]) == 0
    assert (await ask(rest, "POST", "/api/reconfigure", {"mode": "other"}))[0] == 400
    assert (await ask(rest, "POST", "/api/reconfigure", {"mode": "decode"}))[0] == 400


async def test_metadata_over_http() -> None:
    async with TestClient(TestServer(Metadata().application())) as client:

        async def say(method: str, key: str, body: bytes = b"") -> tuple[int, str]:
            async with client.request(method, "/metadata", params={"key": key}, data=body) as answer:
                return answer.status, await answer.text()

        assert await say("GET", "k") == (404, "metadata not found")
        assert await say("PUT", "k", b"v") == (200, "metadata updated")
        assert await say("PUT", " k ", b"w") == (200, "metadata updated")
        assert await say("GET", "k") == (200, "w")
        assert await say("PUT", "x/rpc_meta/y", b"v") == (200, "metadata updated")
        assert await say("PUT", "x/rpc_meta/y", b"v") == (400, "Duplicate rpc_meta key not allowed")
        assert await say("DELETE", "k") == (200, "metadata deleted")
        assert await say("DELETE", "k") == (404, "metadata not found")
        assert await say("GET", "  ") == (400, "metadata key is required")
        assert (await say("POST", "k"))[0] == 405


SERVICE = "mooncake_client.dropin.store_service"


def test_server_process(master_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOONCAKE_MASTER", "192.0.2.1:1")
    flags = ("-D", f"master_server_address={master_address}", "-D", "global_segment_size=16mb", "--port=0")
    with Process(SERVICE, *flags) as process:
        address = process.wait_for(r"serves HTTP on (\S+)").group(1)
        request = urllib.request.Request(
            f"http://{address}/api/put", json.dumps({"key": "k", "value": "v"}).encode(), method="PUT"
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer) == {"status": "success"}
        assert process.end() == 0


def test_server_names_what_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOONCAKE_MASTER", "127.0.0.1:1")
    for flags, named in (
        (["-D", "golbal=1"], "golbal"),
        (["-D", "protocol"], "KEY=VALUE"),
        (["--config", "/no/such/file"], "/no/such/file"),
        (["-D", "global_segment_size=50%"], "50%"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(flags)
        assert ended.value.code == 2
        assert named in capsys.readouterr().err
    assert main(["--max-wait-time=0"]) == 1


def test_client_http_port(join: JoinPool, master_address: str) -> None:
    store = MooncakeDistributedStore()
    settings = ("127.0.0.1", "x", 16 * MIB, 0, "tcp", "", master_address)
    assert store.setup(*settings, enable_client_http_server=True, client_http_port=0) == 0
    membership = store._membership
    assert membership is not None
    assert membership.http is not None
    port = membership.http.port

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    assert get("/health") == (200, '{"status": "healthy", "code": 0}')
    status, metrics = get("/metrics")
    assert status == 200
    assert "mooncake_client_nodes 1\n" in metrics
    assert get("/metrics/summary")[0] == 200
    assert get("/nothing")[0] == 404
    other = MooncakeDistributedStore()
    assert other.setup(*settings, enable_client_http_server=True, client_http_port=port) < 0
    assert store.close() == 0
    with socket.create_server(("127.0.0.1", port)):
        pass
