"""A pool for tests of stores, reached by the lane or by gRPC alone."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from master.running import RunningMaster

from mooncake_client import Store
from mooncake_master.servicer import MasterServicer
from mooncake_store import _core
from mooncake_store.endpoints import Endpoint

MIB = 1 << 20
HANG_MS = 60_000


class Pool(NamedTuple):
    """settings: of a Store or AsyncStore that joins it; store: one that has."""

    settings: dict[str, Any]
    store: Store


@contextmanager
def closed_port() -> Iterator[int]:
    """A port of this host at which nobody listens, and at which nobody can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@contextmanager
def master_without_lane(lane_port: int) -> Iterator[Any]:
    """A master that tells a lane which is not there, as behind a firewall; `lane_port` is the true one."""

    class Behind(MasterServicer):
        def __init__(self, door: Any, **told: Any) -> None:
            super().__init__(door, **{**told, "lane_endpoint": f"127.0.0.1:{lane_port}"})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mooncake_master.daemon.MasterServicer", Behind)
        running = RunningMaster()
        daemon = running.__enter__()
    try:
        yield daemon
    finally:
        running.__exit__(None, None, None)


@contextmanager
def lending(lane: Endpoint, capacity: int = 64 * MIB) -> Iterator[_core.Node]:
    node = _core.Node([("", capacity)], lane=str(lane), data_host="127.0.0.1")
    node.start()
    try:
        assert node.wait_mounted(HANG_MS)
        yield node
    finally:
        node.stop()


@contextmanager
def pool(control: str) -> Iterator[Pool]:
    """64 MiB. control `grpc`: of a master whose lane nobody can reach by what it tells."""
    if control == "lane":
        with Store.embedded("64mb") as store:
            yield Pool({"lane": store.lane}, store)
        return
    with (
        closed_port() as lane_port,
        master_without_lane(lane_port) as daemon,
        lending(Endpoint("127.0.0.1", daemon.lane_port)),
    ):
        settings = {"master_server_addr": f"127.0.0.1:{daemon.grpc_port}", "control": "grpc"}
        with Store(**settings) as store:
            yield Pool(settings, store)
