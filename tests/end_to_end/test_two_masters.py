"""Two masters by mistake: the older one stops serving, and whoever knows both goes on at the later one.

Real processes, because what stands still for a while and wakes again is a process.
"""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import processes
import pytest
from master.running import RunningMaster
from processes import Process, wait_until

from mooncake_client import Store
from mooncake_store import _core
from mooncake_store.errors import StoreError
from mooncake_store.v1 import master_pb2 as pb
from mooncake_store.v1 import master_pb2_grpc as pb_grpc

TTL = "--client_ttl=2"  # a master that was told keeps still for so long


def http_port(master: Process) -> int:
    return int(master.wait_for(processes.MASTER_READY).group(3))


def health(port: int) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=processes.HANG_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.loads(refusal.read())


@pytest.mark.slow
def test_the_older_of_two_masters_stands_back_as_long_as_the_later_one_reigns(tmp_path: Path) -> None:
    """It stood still, its nodes went to another one, and it woke."""
    older_file, newer_file = tmp_path / "older", tmp_path / "newer"
    with processes.master(0, TTL, f"--state_file={older_file}") as older:
        older_address, older_http = processes.address_of(older), http_port(older)
        newer_file.write_bytes(older_file.read_bytes())  # the mistake
        with processes.master(0, TTL, f"--state_file={newer_file}") as newer:
            newer_address = processes.address_of(newer)
            both = f"{older_address},{newer_address}"
            with processes.node(both) as node:
                node.wait_for(processes.NODE_READY)
                older.wait_for("joined the pool")
                older.stop()
                newer.wait_for("joined the pool")
                older.send(signal.SIGCONT)
                older.wait_for("this master, of epoch 1, stepped down: nodes follow one of epoch 2")
                assert health(older_http)[0] == 503
                assert health(older_http)[1]["ha_state"] == "deposed"
                assert health(http_port(newer))[0] == 200
                with Store(both) as store, Store(newer_address) as certain:
                    assert store.put("k", b"value") == "stored"
                    assert certain.get("k") == b"value"
                with pytest.raises(StoreError, match="stepped down: one of epoch 2 reigns"):
                    Store(older_address, connect_timeout_ms=1_000)
                newer.end(signal.SIGKILL)  # nobody tells the older one any more, and there is no other
                older.wait_for("this master, of epoch 1, serves again")
                with Store(both) as store:
                    wait_until(lambda: store.segments() != [], "the node is back")
                    wait_until(lambda: store.put("new", b"value", replace=True) == "stored", "a put")
                    assert store.get("new") == b"value"
                assert health(older_http)[1]["view_version"] == 3  # above that of the one its node followed


class Stranger(pb_grpc.MasterServiceServicer):
    """A master of another pool; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[pb.DiscoverRequest] = []

    def Discover(self, request: pb.DiscoverRequest, context: grpc.ServicerContext) -> pb.DiscoverReply:
        self.asked.append(request)
        return pb.DiscoverReply(lane_endpoint=":1", epoch=1, master_uuid=b"s" * 16, software="0")


def test_a_node_tells_no_master_that_it_never_followed(tmp_path: Path) -> None:
    """A wrong address in its list must not end another pool's healthy reign."""
    state = tmp_path / "state"
    with ThreadPoolExecutor(1) as threads, RunningMaster(TTL, f"--state_file={state}") as later:
        stranger, server = Stranger(), grpc.server(threads)
        pb_grpc.add_MasterServiceServicer_to_server(stranger, server)  # type: ignore[no-untyped-call]
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        # The first one ends, so that the node has a master behind it that it might tell.
        with RunningMaster(TTL) as first:
            ports = [first.grpc_port, later.grpc_port, port]
            node = _core.Node(
                [("", 1 << 20)], masters=[f"127.0.0.1:{number}" for number in ports], data_host="127.0.0.1"
            )
            node.start()
            assert node.wait_mounted(int(processes.HANG_S * 1000))
            before = node.status()["master"]
        try:
            wait_until(lambda: node.status()["mounted"] and node.status()["master"] != before, "it moves on")
            asked = len(stranger.asked)
            wait_until(lambda: len(stranger.asked) > asked + 2, "the stranger is looked at")
            assert {request.followed_epoch for request in stranger.asked} == {0}
        finally:
            node.stop()
            server.stop(0)
