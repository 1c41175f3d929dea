"""By which door a store asks the master: the lane, gRPC alone, or gRPC where only the lane is closed."""

from __future__ import annotations

import logging
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from client.pools import closed_port, lending, master_without_lane
from master.running import RunningMaster
from processes import wait_until

from mooncake_client import AsyncStore, Store, grpc_bridge
from mooncake_client.grpc_verbs import VERBS
from mooncake_store import _core
from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import ClosedError, InvalidArgument, StoreError, Unavailable
from mooncake_store.v1 import master_pb2 as pb
from mooncake_store.v1 import master_pb2_grpc as pb_grpc

HANG_S = 60

OF_NODES = {
    "hello",
    "mount",
    "unmount",
    "drain",
    "retire",
    "report",
    "inventory",
    "copy",
    "tombstones",
    "holdings",
}
OF_DATA = {
    "read",
    "write",
    "ping",
    "map",
    "open",
    "close",
    "transfer_read",
    "transfer_write",
    "notify",
    "first_buffer",
}


def test_every_question_of_a_client_has_a_verb_of_the_public_contract() -> None:
    assert set(VERBS) == set(_core.verb_numbers()) - OF_NODES - OF_DATA
    methods = {method.name for method in pb.DESCRIPTOR.services_by_name["MasterService"].methods}
    assert {verb.method for verb in VERBS.values()} <= methods


@pytest.fixture(scope="module")
def master() -> Iterator[Any]:
    with RunningMaster() as daemon, lending(Endpoint("127.0.0.1", daemon.lane_port)):
        yield daemon


def test_grpc_alone_never_dials_the_lane() -> None:
    with socket.socket() as trap:
        trap.bind(("127.0.0.1", 0))
        trap.listen()
        trap.setblocking(False)
        with (
            master_without_lane(trap.getsockname()[1]) as daemon,
            lending(Endpoint("127.0.0.1", daemon.lane_port)),
            Store(f"127.0.0.1:{daemon.grpc_port}", control="grpc") as store,
        ):
            assert store.put("k", b"value") == "stored"
            assert store.get("k") == b"value"
            assert store.remove("k")
            assert store.door == "grpc"
        with pytest.raises(BlockingIOError):
            trap.accept()


def test_auto_prefers_the_lane(master: Any) -> None:
    with Store(f"127.0.0.1:{master.grpc_port}") as store:
        store.put("auto", b"value")
        assert store.door == "lane"
    assert store.door == ""


def test_auto_goes_on_over_grpc_where_only_the_lane_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    with (
        closed_port() as lane,
        master_without_lane(lane) as daemon,
        lending(Endpoint("127.0.0.1", daemon.lane_port)),
        caplog.at_level(logging.WARNING, "mooncake_store.client"),
        Store(f"127.0.0.1:{daemon.grpc_port}") as store,
    ):
        assert store.put("k", b"value") == "stored"
        with futures.ThreadPoolExecutor(8) as pool:
            assert set(pool.map(store.get, ["k"] * 64)) == {b"value"}
        assert store.door == "grpc"
        [told] = [record.getMessage() for record in caplog.records if record.name == "mooncake_store.client"]
        assert f"127.0.0.1:{lane}" in told
        assert f"127.0.0.1:{daemon.grpc_port}" in told


async def test_auto_does_so_on_an_event_loop_too() -> None:
    with (
        closed_port() as lane,
        master_without_lane(lane) as daemon,
        lending(Endpoint("127.0.0.1", daemon.lane_port)),
    ):
        async with AsyncStore(f"127.0.0.1:{daemon.grpc_port}") as store:
            assert await store.put("k", b"value") == "stored"
            assert await store.get("k") == b"value"
            assert store.door == "grpc"


def test_the_lane_alone_is_refused_by_a_closed_port() -> None:
    with (
        closed_port() as lane,
        master_without_lane(lane) as daemon,
        pytest.raises(Unavailable, match=f"127.0.0.1:{lane}"),
    ):
        Store(f"127.0.0.1:{daemon.grpc_port}", control="lane")


def test_the_environment_names_the_door(master: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{master.grpc_port}"
    monkeypatch.setenv("MOONCAKE_CONTROL", "grpc")
    with Store(address) as store:
        assert store.door == "grpc"
    with Store(address, control="lane") as store:
        assert store.door == "lane"
    monkeypatch.setenv("MOONCAKE_CONTROL", "carrier")
    with pytest.raises(InvalidArgument, match="MOONCAKE_CONTROL='carrier'"):
        Store(address)


@pytest.mark.parametrize("control", ["auto", "grpc"])
def test_several_masters_of_which_one_runs(master: Any, control: str) -> None:
    with closed_port() as nobody:
        addresses = [f"127.0.0.1:{nobody}", f"127.0.0.1:{master.grpc_port}"]
        with Store(addresses, control=control) as store:
            store.put(f"several {control}", b"value")
            assert store.get(f"several {control}") == b"value"


def test_nobody_there_is_found_out_by_name() -> None:
    with closed_port() as nobody, pytest.raises(Unavailable, match=f"127.0.0.1:{nobody}"):
        Store(f"127.0.0.1:{nobody}", control="grpc")


def test_a_batch_of_the_largest_size_is_one_request(master: Any) -> None:
    keys = [f"{index:0>1024}" for index in range(16_384)]
    with Store(f"127.0.0.1:{master.grpc_port}", control="grpc", tenant="batch") as store:
        assert store.put_many(keys, [b"x"] * len(keys)) == ["stored"] * len(keys)
        assert store.match_prefix(keys) == len(keys)
        assert store.get_many(keys) == [b"x"] * len(keys)
        assert store.remove_all() == len(keys)


def test_closing_ends_calls_of_other_threads_and_the_threads_of_the_bridge(master: Any) -> None:
    def of_bridges() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("grpc-bridge")}

    before = of_bridges()  # of stores that tests before this one closed may still be ending
    store = Store(f"127.0.0.1:{master.grpc_port}", control="grpc", tenant="closing")

    def ask() -> str:
        try:
            while True:
                store.exists("k")
        except ClosedError:
            return "closed"

    with futures.ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        wait_until(lambda: len(of_bridges() - before) >= 3, "calls are under way")
        store.close()
        assert {call.result(HANG_S) for call in asking} == {"closed"}
    wait_until(lambda: not of_bridges() - before, "its threads end")


def test_connections_beyond_the_bound_are_refused_and_calls_end_in_time(
    master: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_bridge, "CONNECTIONS_MAX", 1)  # the keeper's
    with (
        Store(f"127.0.0.1:{master.grpc_port}", control="grpc", rpc_timeout_ms=200) as store,
        pytest.raises(Unavailable, match="rpc_timeout_ms"),
    ):
        store.exists("k")


# ---- a master that answers what cannot be


class Liar(pb_grpc.MasterServiceServicer):
    """Opens sessions as it should; every other reply is `reply(method)`."""

    def __init__(self, reply: Callable[[str], Any]) -> None:
        self.reply = reply

    def Discover(self, request: Any, context: Any) -> pb.DiscoverReply:
        return pb.DiscoverReply(lane_endpoint="127.0.0.1:1", epoch=1, master_uuid=bytes(range(16)))

    def OpenSession(self, request: Any, context: Any) -> pb.OpenSessionReply:
        return pb.OpenSessionReply(
            session=1,
            epoch=1,
            master_uuid=bytes(range(16)),
            client_ttl_ms=10_000,
            heartbeat_interval_ms=1_000,
        )

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name[0].islower() or name in ("Discover", "OpenSession"):
            return super().__getattribute__(name)
        return lambda request, context: self.reply(name)


PLACE = pb.Place(replica=1 << 40, segment=1 << 40)
LIES = {
    "no statuses": lambda name: {"Exists": pb.StatusesReply()}.get(name),
    "too many statuses": lambda name: {"Exists": pb.StatusesReply(statuses=[0] * 9)}.get(name),
    "a status of 32 bits": lambda name: {"Exists": pb.StatusesReply(statuses=[65_536])}.get(name),  # type: ignore[list-item]
    "a length beyond the keys": lambda name: {"MatchPrefix": pb.MatchPrefixReply(length=1 << 31)}.get(name),
    "nobody found": lambda name: {"Lookup": pb.LookupReply()}.get(name),
    "a thousand copies": lambda name: {
        "Lookup": pb.LookupReply(found=[pb.LookupReply.Found(put_id=1, size=8, places=[PLACE] * 1_000)])
    }.get(name),
    "no grants": lambda name: {"PutStart": pb.PutStartReply()}.get(name),
    "a value of 2^63 bytes": lambda name: {
        "Lookup": pb.LookupReply(found=[pb.LookupReply.Found(put_id=1, size=1 << 63, places=[PLACE])])
    }.get(name),
    "an incarnation of 3 bytes": lambda name: {
        "GetSegments": pb.GetSegmentsReply(
            segments=[pb.SegmentInfo(description=pb.SegmentDescription(incarnation=b"abc"))]
        )
    }.get(name),
    "empty messages": lambda name: getattr(pb, f"{name}Reply", pb.StatusesReply)(),
    "nothing at all": lambda name: None,
}


@pytest.mark.parametrize("name", LIES)
def test_a_master_that_answers_what_cannot_be_is_an_error_in_time(name: str) -> None:
    lie = LIES[name]
    server = grpc.server(futures.ThreadPoolExecutor(4))
    pb_grpc.add_MasterServiceServicer_to_server(Liar(lie), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with Store(f"127.0.0.1:{port}", control="grpc", rpc_timeout_ms=1_000) as store:
            calls: dict[str, Callable[[], Any]] = {
                "exists": lambda: store.exists("k"),
                "get": lambda: store.get("k"),
                "put": lambda: store.put("k", b"v"),
                "match_prefix": lambda: store.match_prefix(["k"]),
                "segments": lambda: store.segments(),
            }
            for verb, call in calls.items():
                if name == "empty messages" and verb in ("match_prefix", "segments"):
                    continue  # nothing there: that can be
                with pytest.raises(StoreError):
                    pytest.fail(f"{verb} answered {call()!r}")
    finally:
        server.stop(0)


# ---- processes of their own

SCRIPT = """
import os, sys
from mooncake_client import Store
store = Store(sys.argv[1], control=sys.argv[2])
"""


def run(master: Any, control: str, script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT + script, f"127.0.0.1:{master.grpc_port}", control]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)


@pytest.mark.parametrize("control", ["auto", "lane"])
def test_grpc_is_not_imported_where_the_lane_is_used(master: Any, control: str) -> None:
    ended = run(master, control, "store.exists('k'); print('grpc' in sys.modules); store.close()")
    assert (ended.stdout, ended.returncode) == ("False\n", 0), ended.stderr


def test_an_interpreter_ends_though_the_store_is_open(master: Any) -> None:
    ended = run(master, "grpc", "store.exists('k'); sys.exit(3)")
    assert (ended.returncode, ended.stderr) == (3, "")


def test_a_forked_child_ends_as_it_would_without_a_store(master: Any) -> None:
    ended = run(
        master,
        "grpc",
        """
store.exists('k')
if (child := os.fork()) == 0:
    try:
        store.exists('k')
    except Exception as error:
        print(type(error).__name__)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print(store.exists('k'))
store.close()
""",
    )
    assert (ended.stdout, ended.returncode) == ("ClosedError\nFalse\n", 0), ended.stderr
    assert not re.search("Traceback|Error", ended.stderr)
