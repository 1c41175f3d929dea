"""Masters that are elected in etcd or redis: one dies, sleeps or hands over, and nothing is lost.

Real processes: masters, nodes, and the one that keeps the election.
"""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import election_servers
import processes
import pytest
from processes import Process, free_port, wait_until

from mooncake_client import Store
from mooncake_client.cli import main as cli
from mooncake_master.ha.election import LEASE_S
from mooncake_store.errors import StoreError
from mooncake_store.masters import parse_masters

KEYS = 200
ANSWER_S = 5.0
STANDS_BY = "stands by: clients will be served"


def value_of(key: str) -> bytes:
    return key.encode() * 997


class Master:
    """One of several, with ports that are known before it leads."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.port, self.http = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._flags = (
            "--enable_ha",
            f"--metrics_port={self.http}",
            f"--state_file={folder / f'state-{self.port}'}",
            *flags,
        )
        self.process = self.run()

    def run(self) -> Process:
        return processes.master(self.port, *self._flags)

    def ask(self, path: str, *, post: bool = False) -> tuple[int, str]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http}{path}", method="POST" if post else "GET"
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()
        except OSError as error:
            return 0, str(error)  # between two roles its pages are closed for a moment


class Cluster:
    """A server for the election, two masters of which the first leads, and two nodes."""

    def __init__(self, stack: ExitStack, backend: str, folder: Path) -> None:
        make = election_servers.etcd if backend == "etcd" else election_servers.redis
        self.server = stack.enter_context(make(folder))
        flags = [f"--ha_backend_type={backend}"]
        if backend == "etcd":
            flags.append(f"--etcd_endpoints=127.0.0.1:1;{self.server.address}")
        else:
            flags.append(f"--ha_backend_connstring=redis://{self.server.address}")
        self.first = Master(folder, *flags)
        stack.enter_context(self.first.process)
        self.first.process.wait_for(processes.MASTER_READY)
        self.second = Master(folder, *flags)
        stack.enter_context(self.second.process)
        self.second.process.wait_for(STANDS_BY)
        self.both = f"{backend}://{self.server.address}"
        wait_until(lambda: len(parse_masters(self.both, field="both")) == 2, "both are in the list")
        self.nodes = [stack.enter_context(processes.node(self.both)) for _ in range(2)]
        for node in self.nodes:
            node.wait_for(processes.NODE_READY)


@pytest.fixture(params=["etcd", "redis"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(stack, request.param, tmp_path)


def fill(store: Store) -> list[str]:
    keys = [f"key-{number}" for number in range(KEYS)]
    for key in keys:
        assert store.put(key, value_of(key)) == "stored"
    return keys


def seconds_until_served(store: Store, key: str) -> float:
    """Until a get hits; wrong bytes fail."""
    began = time.monotonic()

    def is_served() -> bool:
        try:
            value = store.get(key)
        except StoreError:
            return False
        assert value is None or bytes(value) == value_of(key)
        return value is not None

    wait_until(is_served, f"{key} is served")
    return time.monotonic() - began


def check_all(store: Store, keys: list[str]) -> None:
    wait_until(lambda: all(store.get(key) == value_of(key) for key in keys), "every key is there")


def kill(cluster: Cluster) -> None:
    cluster.first.process.end(signal.SIGKILL)


def put_to_sleep(cluster: Cluster) -> None:
    cluster.first.process.stop()


def terminate(cluster: Cluster) -> None:
    assert cluster.first.process.end(signal.SIGTERM) == 0


def ask_to_resign(cluster: Cluster) -> None:
    assert cluster.second.ask("/api/v1/ha/resign", post=True)[0] == 503
    both = f"127.0.0.1:{cluster.second.http},127.0.0.1:{cluster.first.http}"
    assert cli(["ha", "resign", "--http", both]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("end", [kill, put_to_sleep, terminate, ask_to_resign])
def test_another_master_takes_over_and_every_key_is_kept(
    cluster: Cluster, end: Callable[[Cluster], None], record_property: Callable[[str, Any], None]
) -> None:
    first, second = cluster.first, cluster.second
    assert first.ask("/role") == (200, "leader")
    assert first.ask("/ha_status") == (200, "serving")
    assert second.ask("/role") == (200, "standby")
    assert second.ask("/health")[0] == 503
    wait_until(lambda: json.loads(second.ask("/leader")[1])["present"], "the standby sees the leader")
    assert json.loads(second.ask("/leader")[1]) == json.loads(first.ask("/leader")[1])
    assert second.ask("/get_all_keys")[0] == 503
    both_http = f"127.0.0.1:{first.http},127.0.0.1:{second.http}"
    assert cli(["ha", "status", "--http", both_http]) == 0
    with Store(cluster.both, location_cache="off") as store:
        keys = fill(store)
        end(cluster)
        took_s = seconds_until_served(store, keys[0])
        record_property("seconds", took_s)
        print(f"served again after {took_s:.2f} s")
        second.process.wait_for("epoch 2")
        check_all(store, keys)
        assert store.put("new", b"after") == "stored"
        if end is put_to_sleep:
            first.process.send(signal.SIGCONT)
        if end in (put_to_sleep, ask_to_resign):
            wait_until(lambda: first.ask("/role") == (200, "standby"), "the old leader stands by")
        check_all(store, keys)
        assert store.get("new") == b"after"
    assert second.ask("/role") == (200, "leader")


@pytest.mark.slow
def test_a_leader_that_cannot_ask_stops_serving_and_serves_again(cluster: Cluster) -> None:
    with Store(cluster.both, location_cache="off", rpc_timeout_ms=1_000) as store:
        keys = fill(store)
        cluster.server.kill()
        cluster.first.process.wait_for("steps down: the election could not be asked")
        wait_until(lambda: cluster.first.ask("/role") == (200, "standby"), "it stands by")
        with pytest.raises(StoreError):
            store.put("refused", b"value")
        cluster.server.start()
        seconds_until_served(store, keys[0])
        check_all(store, keys)


@pytest.mark.slow
def test_a_leader_outlives_one_member_of_etcd_and_stands_by_without_two(tmp_path: Path) -> None:
    with ExitStack() as stack:
        members = election_servers.etcd_members(tmp_path, 3)
        for member in members:
            stack.enter_context(member)
        where = ",".join(member.address for member in members)
        masters = [Master(tmp_path, f"--etcd_endpoints={where}") for _ in range(2)]
        for master in masters:
            stack.enter_context(master.process)
        wait_until(lambda: any(master.ask("/ha_status")[1] == "serving" for master in masters), "one leads")
        leader = next(master for master in masters if master.ask("/ha_status")[1] == "serving")
        node = stack.enter_context(processes.node(f"etcd://{where}"))
        node.wait_for(processes.NODE_READY)
        with Store(f"etcd://{where}", location_cache="off", rpc_timeout_ms=1_000) as store:
            keys = fill(store)
            members[0].kill()
            until = time.monotonic() + 2 * LEASE_S
            while time.monotonic() < until:
                assert store.get(keys[0]) == value_of(keys[0])
            assert leader.ask("/role") == (200, "leader")
            assert "steps down" not in leader.process.log
            members[1].kill()
            for master in masters:
                wait_until(lambda master=master: master.ask("/role") == (200, "standby"), "it stands by")  # type: ignore[misc]
            members[1].start()
            seconds_until_served(store, keys[0])
            check_all(store, keys)
