"""The store behind HTTP: endpoints, forms, codes, and the processes that serve them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp.test_utils import TestClient, TestServer
from dropin.conftest import MIB
from processes import Process

from mooncake_client.dropin import MooncakeDistributedStore
from mooncake_client.dropin.http_metadata_server import KVBootstrapServer
from mooncake_client.dropin.mooncake_config import MooncakeConfig
from mooncake_client.dropin.store_service import MooncakeStoreService, main

Client = TestClient[Any, Any]


@pytest.fixture
async def rest(store: MooncakeDistributedStore) -> AsyncIterator[Client]:
    membership = store._membership
    assert membership is not None
    async with TestClient(TestServer(MooncakeStoreService(store, membership.config).application())) as client:
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


class Segments:
    """A store that lends paths, and tells in which order it was asked."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.refused: set[str] = set()

    def mount_segment(
        self, path: str, size: int, offset: int, protocol: str, location: str
    ) -> dict[str, Any]:
        self.calls.append((path, size, offset, protocol, location))
        if path in self.refused:
            return {"ret": -1, "segment_ids": []}
        return {"ret": 0, "segment_ids": [f"id of {path}"]}

    def unmount_segment(self, segment_ids: list[str], grace_period_seconds: int = 0) -> int:
        self.calls.append((*segment_ids, grace_period_seconds))
        return -1 if self.refused.intersection(segment_ids) else 0


@pytest.fixture
async def paths(master_address: str) -> AsyncIterator[tuple[Client, Segments, MooncakeStoreService]]:
    config = MooncakeConfig("localhost", "m", 0, 0, "tcp", "", master_address)
    segments = Segments()
    service = MooncakeStoreService(cast(Any, segments), config)
    async with TestClient(TestServer(service.application())) as client:
        yield client, segments, service


async def test_reconfigure_lends_before_it_takes_back(
    paths: tuple[Client, Segments, MooncakeStoreService],
) -> None:
    client, segments, service = paths
    decode = {"mode": "decode", "path": "/dev/shm/a", "size": 4096}
    assert await ask(client, "POST", "/api/reconfigure", decode) == (
        200,
        {"status": "success", "mode": "decode", "segment_ids": ["id of /dev/shm/a"]},
    )
    assert await ask(client, "POST", "/api/reconfigure", decode) == (
        200,
        {"status": "success", "mode": "decode", "segment_ids": ["id of /dev/shm/a"]},
    )
    other = {**decode, "path": "/dev/shm/b", "offset": 8, "protocol": "rdma", "location": "cpu:0"}
    status, answer = await ask(client, "POST", "/api/reconfigure", other)
    assert (status, answer["segment_ids"]) == (200, ["id of /dev/shm/b"])
    assert segments.calls == [
        ("/dev/shm/a", 4096, 0, "tcp", ""),
        ("/dev/shm/b", 4096, 8, "rdma", "cpu:0"),
        ("id of /dev/shm/a", 0),
    ]
    assert await ask(client, "POST", "/api/reconfigure", {"mode": "prefill"}) == (
        200,
        {"status": "success", "mode": "prefill"},
    )
    assert segments.calls[3:] == [("id of /dev/shm/b", 0)]
    assert (service.current_mode, service.mounted_segment_ids) == ("prefill", [])


async def test_reconfigure_that_cannot_lend_goes_back_to_prefill(
    paths: tuple[Client, Segments, MooncakeStoreService],
) -> None:
    client, segments, service = paths
    segments.refused.add("/dev/shm/b")
    await ask(client, "POST", "/api/reconfigure", {"mode": "decode", "path": "/dev/shm/a", "size": 1})
    status, answer = await ask(
        client, "POST", "/api/reconfigure", {"mode": "decode", "path": "/dev/shm/b", "size": 1}
    )
    assert (status, answer["mode"]) == (500, "prefill")
    assert "rolled back to prefill" in answer["error"]
    assert (service.mounted_segment_ids, service.last_mount_info) == ([], {})
    for body in ({"mode": "other"}, {}):
        status, answer = await ask(client, "POST", "/api/reconfigure", body)
        assert (status, "Invalid mode" in answer["error"]) == (400, True)
    for body in ({"mode": "decode", "size": 1}, {"mode": "decode", "path": "/dev/shm/a"}):
        status, answer = await ask(client, "POST", "/api/reconfigure", body)
        assert (status, answer["error"]) == (400, "Missing path or size")


async def test_what_cannot_be_taken_back_stays_known(
    paths: tuple[Client, Segments, MooncakeStoreService],
) -> None:
    client, segments, service = paths
    decode = {"mode": "decode", "path": "/dev/shm/a", "size": 1}
    await ask(client, "POST", "/api/reconfigure", decode)
    segments.refused.add("id of /dev/shm/a")
    status, answer = await ask(client, "POST", "/api/reconfigure", {"mode": "prefill"})
    assert (status, answer["failed_segment_ids"]) == (500, ["id of /dev/shm/a"])
    assert (service.current_mode, service.mounted_segment_ids) == ("decode", ["id of /dev/shm/a"])
    segments.refused.clear()
    gone = {"segment_ids": "id of /dev/shm/a", "grace_period_seconds": 3}
    assert await ask(client, "POST", "/api/unmount_shm", gone) == (200, {"status": "success"})
    assert segments.calls[-1] == ("id of /dev/shm/a", 3)
    assert (service.current_mode, service.mounted_segment_ids) == ("prefill", [])


async def test_shared_memory_is_named_and_not_reached_by_a_path(
    paths: tuple[Client, Segments, MooncakeStoreService],
) -> None:
    client, segments, _ = paths
    for name in ("kv", "/kv"):
        assert (await ask(client, "POST", "/api/mount_shm", {"name": name, "size": 5}))[0] == 200
    assert segments.calls == [("/dev/shm/kv", 5, 0, "tcp", "")] * 2
    for name in ("", "/", ".", "..", "/..", "../etc/passwd", "a/b", None, 3):
        assert await ask(client, "POST", "/api/mount_shm", {"name": name, "size": 5}) == (
            400,
            {"error": "Missing or invalid name or size"},
        )


async def test_store_that_raises_is_answered_with_what_it_said(rest: Client, store: Any) -> None:
    def crash(*arguments: Any) -> None:
        raise RuntimeError("the store crashed")

    for name in ("get", "is_exist", "remove", "remove_all"):
        setattr(store, name, crash)
    answers = [
        await ask(rest, method, path)
        for method, path in (
            ("GET", "/api/get/k"),
            ("GET", "/api/exist/k"),
            ("DELETE", "/api/remove/k"),
            ("DELETE", "/api/remove_all"),
        )
    ]
    assert answers == [(500, {"error": "the store crashed"})] * 4


async def test_metadata_over_http() -> None:
    async with TestClient(TestServer(KVBootstrapServer().application())) as client:

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


def test_server_names_the_flag_and_not_the_file_where_the_flag_is_wrong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mooncake.json"
    file.write_text('{"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE"}', encoding="utf-8")
    for flag, named in (
        ("golbal=1", "-D golbal: unknown setting 'golbal'"),
        ("master_server_addr", "-D 'master_server_addr' is not KEY=VALUE"),
    ):
        with pytest.raises(SystemExit):
            main(["--config", str(file), "-D", flag])
        told = capsys.readouterr().err
        assert named in told
        assert str(file) not in told
