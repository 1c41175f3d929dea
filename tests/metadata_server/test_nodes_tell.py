"""Nodes and drop-in stores tell real metadata servers where they are, stay told there, and take it back."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import election_servers
import pytest
from processes import HANG_S, NODE_READY, Process, address_of, free_port, master, node, wait_until

from mooncake_client.dropin import MooncakeDistributedStore
from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import Unavailable
from mooncake_store.metadata_server.descriptor import find_endpoint, key_of
from mooncake_store.metadata_server.opening import open_metadata_server

COMMAND = "mooncake_store.metadata_server.command"
MIB = 1 << 20


class HttpProcess:
    """`mooncake_http_metadata_server`, with the handles of `election_servers.Server`."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: Process | None = None

    def start(self) -> None:
        self._process = Process(COMMAND, "--host=127.0.0.1", f"--port={self.port}").__enter__()
        self._process.wait_for("serves on")

    def kill(self) -> None:
        if self._process is not None:
            self._process.__exit__(None, None, None)
            self._process = None


class Case:
    """A running server and its URL."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self._folder = kind, folder
        makes = {"etcd": election_servers.etcd, "redis": election_servers.redis}
        self.server = HttpProcess() if kind == "http" else makes[kind](folder)
        address = f"127.0.0.1:{self.server.port}"
        self.url = {"http": f"http://{address}/metadata", "etcd": address, "redis": f"redis://{address}"}[
            kind
        ]

    def comes_back_empty(self) -> None:
        self.server.kill()
        for folder in self._folder.glob("etcd-*"):
            if folder.is_dir():
                shutil.rmtree(folder)
        self.server.start()

    def find(self, name: str) -> Endpoint | None:
        async def find() -> Endpoint | None:
            server = open_metadata_server(self.url)
            assert server is not None
            try:
                return await find_endpoint(server, name)
            except Unavailable:
                return None
            finally:
                await server.close()

        return asyncio.run(find())


@pytest.fixture(params=["http", "etcd", "redis"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    case = Case(request.param, tmp_path)
    case.server.start()
    yield case
    case.server.kill()


@pytest.fixture(scope="module")
def leader() -> Iterator[str]:
    with master() as leader:
        yield address_of(leader)


def page_of(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=HANG_S) as answer:
        return str(answer.read().decode())


@pytest.mark.slow
def test_a_node_tells_where_it_is_through_every_kind_of_failure(case: Case, leader: str) -> None:
    port = free_port()
    name = f"127.0.0.1:{port}"
    flags = (f"--metadata_server={case.url}", f"--data_port={port}", "--metadata_ttl_s=2")
    with node(leader, *flags) as process:
        process.wait_for(NODE_READY)
        wait_until(lambda: case.find(name) == Endpoint("127.0.0.1", port), "the node is found")
        case.comes_back_empty()
        wait_until(lambda: case.find(name) is not None, "a server that lost everything is told anew")
        process.end(signal.SIGKILL)
    # At once, while the entry of the killed one may still stand.
    with node(leader, *flags) as process:
        process.wait_for(NODE_READY)
        wait_until(lambda: case.find(name) is not None, "it is found again")
        assert process.end() == 0
        assert "Duplicate" not in process.log
    assert case.find(name) is None, "taken back at the end"
    with node(leader, *flags) as process:
        wait_until(lambda: case.find(name) is not None, "it is found again")
        process.end(signal.SIGKILL)
    wait_until(lambda: case.find(name) is None, "a dead process leaves nothing behind")


def test_a_metadata_server_that_is_not_there_stops_no_node(leader: str) -> None:
    http = free_port()
    url = f"redis://user:s3cret@127.0.0.1:{free_port()}"
    flags = (f"--metadata_server={url}", "--enable_http_server", f"--http_port={http}")
    with node(leader, *flags) as process:
        process.wait_for(NODE_READY)
        failures = re.compile(r"mooncake_client_metadata_server_failures_total ([2-9])")
        wait_until(lambda: bool(failures.search(page_of(http))), "failures are counted")
        assert "mooncake_client_metadata_server_published 0" in page_of(http)
        assert process.end() == 0
    assert len(re.findall("WARNING mooncake_store.metadata_server", process.log)) == 1
    assert "s3cret" not in process.log


@pytest.mark.slow
def test_a_stopped_metadata_server_delays_no_end(leader: str, tmp_path: Path) -> None:
    case = Case("redis", tmp_path)
    server = case.server
    assert isinstance(server, election_servers.Server)
    with server, node(leader, f"--metadata_server={case.url}", "--stop_handover_s=0") as process:
        name = process.wait_for(NODE_READY).group(1)
        wait_until(lambda: case.find(name) is not None, "the node is found")
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)
        assert process.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["http"])
def test_a_drop_in_store_tells_what_it_lends(kind: str, leader: str, tmp_path: Path) -> None:
    case = Case(kind, tmp_path)
    case.server.start()
    store = MooncakeDistributedStore()
    try:
        assert store.setup("127.0.0.1", case.url, 16 * MIB, MIB, "tcp", "", leader) == 0
        name = store.get_hostname()
        wait_until(lambda: case.find(name) is not None, "the store is found")
        [more] = store.allocate_and_mount_segment(16 * MIB)["segment_ids"]
        membership = store._membership
        assert membership is not None
        names = {name for node in membership._lent() for name in node.status()["segment_names"]}
        assert len(names) == 2
        for each in names:
            wait_until(lambda each=each: case.find(each) is not None, "each of its segments is found")
        assert store.unmount_and_free_segment([more]) == 0
        [gone] = names - {name for node in membership._lent() for name in node.status()["segment_names"]}
        wait_until(lambda: case.find(gone) is None, "what is lent no more is taken back")
        assert store.close() == 0
        assert case.find(name) is None
    finally:
        store.close()
        case.server.kill()


def test_setup_refuses_what_is_no_metadata_server(leader: str, caplog: pytest.LogCaptureFixture) -> None:
    store = MooncakeDistributedStore()
    assert store.setup("127.0.0.1", "redis://u:s3cret@h:1/x", 0, MIB, "tcp", "", leader) == -600
    assert "metadata_server" in caplog.text
    with caplog.at_level("INFO"):
        assert store.setup("127.0.0.1", "redis://u:s3cret@h:1", 0, MIB, "tcp", "", leader) == 0
    store.close()
    assert "s3cret" not in caplog.text


def test_clusters_are_told_apart_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MC_METADATA_CLUSTER_ID", "west")
    assert key_of("ram", "n") == "mooncake/west/ram/n"
    monkeypatch.setenv("MC_METADATA_CLUSTER_ID", "../x")
    with pytest.raises(ValueError, match="MC_METADATA_CLUSTER_ID"):
        key_of("ram", "n")
