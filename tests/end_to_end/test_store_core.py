"""The native master, nodes and client in one process, over real sockets: what is put is got, byte for byte.

Real time is needed, because the three have threads and sockets of their own; nothing here waits for a length
of time, only for conditions.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from mooncake_store._core import Client, Master, Node
from mooncake_store.status import Status

MIB = 1 << 20
OK = int(Status.OK)
EXISTS = int(Status.OBJECT_ALREADY_EXISTS)
MISS = int(Status.OBJECT_NOT_FOUND)


def pattern(seed: int, size: int) -> bytes:
    """Bytes that betray a value under another's key, shifted or torn."""
    return random.Random(seed).randbytes(size)


class Cluster:
    """A master, nodes, and clients of one lane; what it made it stops."""

    def __init__(self, stack: ExitStack, **master: int) -> None:
        self._stack = stack
        self.master = Master(**master)  # type: ignore[arg-type]
        self.master.start()
        stack.callback(self.master.stop)
        self.lane = f"127.0.0.1:{self.master.lane_port}"
        self.nodes: list[Node] = []

    def node(self, size: int = 64 * MIB, name: str = "", host_id: str = "") -> Node:
        node = Node([(name, size)], lane=self.lane, data_host="127.0.0.1", host_id=host_id)
        node.start()
        self._stack.callback(node.stop)
        assert node.wait_mounted(10_000)
        wait_until(lambda: node.status()["stats"]["ready_bytes"] >= size)
        self.nodes.append(node)
        return node

    def client(self, **options: object) -> Client:
        client = Client(lane=self.lane, **options)  # type: ignore[arg-type]
        self._stack.callback(client.close)
        return client

    def check(self) -> None:
        self.master.check_invariants()
        for node in self.nodes:
            node.check_invariants()


def wait_until(is_so: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for a condition; the limit only turns a hang into a failure."""
    pause = threading.Event()
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        pause.wait(0.005)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with ExitStack() as stack:
        made = Cluster(stack, **getattr(request, "param", {}))
        yield made
        made.check()


SIZES = [0, 1, 63, 64, 65, 4096, MIB - 1, MIB, MIB + 1, 20 * MIB]


@pytest.mark.parametrize("checksums", [True, False])
def test_values_of_every_size_come_back_whole(cluster: Cluster, checksums: bool) -> None:
    cluster.node()
    client = cluster.client(checksums=checksums)
    keys = [f"size-{size}" for size in SIZES]
    values = [pattern(size, size) for size in SIZES]
    assert client.put_many(keys, values) == [OK] * len(SIZES)
    assert client.get_many(keys) == values
    targets = [bytearray(size) for size in SIZES]
    assert client.get_into_many(keys, targets) == ([OK] * len(SIZES), SIZES)
    assert targets == values
    for key, value in zip(keys, values, strict=True):
        assert client.get_many([key]) == [value]


def test_a_value_is_put_once_and_found_by_any_spelling_of_its_key(cluster: Cluster) -> None:
    cluster.node()
    client = cluster.client()
    assert client.put_many([12, "é", b"\xff"], [b"twelve", b"accent", b"raw"]) == [OK, OK, OK]
    assert client.put_many(["12", "new", 12], [b"other", b"n", b"x"]) == [EXISTS, OK, EXISTS]
    assert client.get_many([b"12", "é".encode(), b"\xff"]) == [b"twelve", b"accent", b"raw"]
    assert client.exists_many([12, "none", "new"]) == [OK, MISS, OK]
    assert client.match_prefix([12, "é", "none", "new"]) == (OK, 2, MISS)
    assert client.match_prefix([12, "é"]) == (OK, 2, OK)
    assert client.match_prefix([]) == (OK, 0, OK)


def test_a_removed_value_is_gone_and_may_be_put_anew(cluster: Cluster) -> None:
    cluster.node()
    client = cluster.client()
    assert client.put_many(["a"], [b"one"]) == [OK]
    assert client.remove_many(["a", "none"], force=True) == [OK, MISS]
    assert client.get_many(["a"]) == [MISS]
    assert client.put_many(["a"], [b"two"]) == [OK]
    assert client.get_many(["a"]) == [b"two"]
    assert client.put_many(["a"], [b"three"], flags=4) == [OK]
    assert client.get_many(["a"]) == [b"three"]


def test_a_batch_of_many_keys_over_two_nodes(cluster: Cluster) -> None:
    cluster.node()
    cluster.node()
    client = cluster.client()
    count = 20_000  # more than one request carries
    keys = list(range(count))
    values = [b"%d" % i * 3 for i in keys]
    assert client.put_many(keys, values) == [OK] * count
    assert client.exists_many(keys) == [OK] * count
    assert client.get_many(keys) == values
    assert client.match_prefix(keys) == (OK, count, OK)
    assert all(node.status()["stats"]["sealed_count"] > count / 4 for node in cluster.nodes)


def test_replicas_lie_on_different_nodes_and_one_is_enough(cluster: Cluster) -> None:
    nodes = [cluster.node(), cluster.node()]
    client = cluster.client()
    values = [pattern(i, 100_000) for i in range(20)]
    keys = [f"r{i}" for i in range(20)]
    assert client.put_many(keys, values, replica_count=2) == [OK] * 20
    assert [node.status()["stats"]["sealed_count"] for node in nodes] == [20, 20]
    nodes[0].stop()
    assert client.get_many(keys) == values


def test_pieces_are_joined_and_metadata_comes_back(cluster: Cluster) -> None:
    cluster.node()
    client = cluster.client()
    pieces = [b"head", bytearray(b"-"), memoryview(b"tail"), b""]
    assert client.put_many(["p", "e"], [pieces, []], user_metadata=[b"shape=3", b"empty"]) == [OK, OK]
    assert client.get_many(["p", "e", "none"], with_user_metadata=True) == (
        [b"head-tail", b"", MISS],
        [b"shape=3", b"empty", b""],
    )
    opened = client.open(["none", "p"], user_metadata=True)
    assert (opened.statuses, opened.sizes) == ([MISS, OK], [0, 9])
    target = bytearray(9)
    assert client.read_into(opened, [None, target]) == ([MISS, OK], [0, 9])
    assert (target, opened.user_metadata[1]) == (b"head-tail", b"shape=3")
    with pytest.raises(ValueError, match="read already"):
        client.read_into(opened, [None, target])


def test_own_reads_that_ended_refuse_no_remove(cluster: Cluster) -> None:
    """Their leases go back in the background, but before the remove; those of others still count."""
    cluster.node(16 * MIB)
    client, other = cluster.client(), cluster.client()
    for _ in range(20):
        assert client.put_many(["a", "b"], [b"apple", b"berry"]) == [OK, OK]
        assert client.get_many(["a", "b"]) == [b"apple", b"berry"]
        assert client.remove_many(["a"], force=False) == [OK]
        opened = other.open(["b"])
        assert client.remove_many(["a", "b"], force=False) == [MISS, Status.OBJECT_HAS_LEASE]
        del opened
        assert other.remove_many(["b"], force=False) == [OK]


@pytest.mark.parametrize("cluster", [{"lease_ttl_ms": 1}], indirect=True)
def test_eviction_under_pressure_loses_values_but_never_mixes_them(cluster: Cluster) -> None:
    cluster.node(16 * MIB)
    cluster.node(16 * MIB)
    client = cluster.client()
    count, size = 400, 256 << 10
    for first in range(0, count, 20):
        keys = list(range(first, first + 20))
        assert client.put_many(keys, [pattern(i, size) for i in keys]) == [OK] * 20
        got = client.get_many(keys)
        assert [value for value in got if isinstance(value, int)].count(MISS) <= 5
        assert all(value in (MISS, pattern(i, size)) for i, value in zip(keys, got, strict=True))
    everything = client.get_many(list(range(count)))
    kept = {i: value for i, value in enumerate(everything) if value != MISS}
    assert 30 <= len(kept) < count
    assert all(value == pattern(i, size) for i, value in kept.items())


def test_threads_put_and_get_at_once(cluster: Cluster) -> None:
    cluster.node(128 * MIB)
    cluster.node(128 * MIB)
    client = cluster.client()
    wrong: list[object] = []

    def work(worker: int) -> None:
        chance = random.Random(worker)
        for turn in range(30):
            keys = [f"{worker}-{turn}-{i}" for i in range(8)]
            values = [
                pattern(chance.getrandbits(30), chance.choice([0, 5, 4096, 70_000, 700_000])) for _ in keys
            ]
            if client.put_many(keys, values) != [OK] * 8 or client.get_many(keys) != values:
                wrong.append((worker, turn, client.why()))
            client.remove_many(keys[4:], force=True)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_two_clients_racing_for_one_key_store_one_whole_value(cluster: Cluster) -> None:
    cluster.node()
    clients = [cluster.client(), cluster.client()]
    keys = list(range(50))
    answers: dict[int, list[int]] = {}

    def put(which: int) -> None:
        answers[which] = clients[which].put_many(keys, [pattern(which, 100_000)] * 50)

    threads = [threading.Thread(target=put, args=(which,)) for which in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all({a, b} == {OK, EXISTS} for a, b in zip(answers[0], answers[1], strict=True))
    for i, value in enumerate(clients[0].get_many(keys)):
        assert value == pattern(0 if answers[0][i] == OK else 1, 100_000)


def test_bad_arguments_name_what_is_wrong(cluster: Cluster) -> None:
    cluster.node()
    client = cluster.client()
    with pytest.raises(TypeError, match=r"keys\[1\] must be str, bytes or int, not bool"):
        client.exists_many(["a", True])
    with pytest.raises(ValueError, match=r"keys\[0\] is -5"):
        client.exists_many([-5])
    with pytest.raises(TypeError, match="keys must be a list, not one str"):
        client.exists_many("abc")
    with pytest.raises(ValueError, match="2 keys but 1 values"):
        client.put_many(["a", "b"], [b"x"])
    with pytest.raises(TypeError, match=r"targets\[0\]"):
        client.get_into_many(["a"], [b"read only"])
    with pytest.raises(ValueError, match="replica_count is 9"):
        client.put_many(["a"], [b"x"], replica_count=9)
    long = "k" * 1025
    invalid = int(Status.INVALID_KEY)
    assert client.put_many(["", "good", long], [b"1", b"2", b"3"]) == [invalid, OK, invalid]
    assert client.exists_many(["", "good", long, 10**5000]) == [invalid, OK, invalid, invalid]
    assert client.get_many(["", "good"]) == [invalid, b"2"]
    small = bytearray(0)
    assert client.get_into_many(["good"], [small]) == ([int(Status.BUFFER_OVERFLOW)], [1])
    assert client.put_many(["huge"], [bytes(65 * MIB)])[0] == int(Status.VALUE_TOO_LARGE)


def test_a_master_that_is_not_there_is_named(cluster: Cluster) -> None:
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1\b.*"):
        Client(["127.0.0.1:1"], connect_timeout_ms=500)
    with pytest.raises(ValueError, match="rpc_timeout_ms is 0"):
        Client(lane=cluster.lane, rpc_timeout_ms=0)


def test_close_ends_blocked_calls_and_refuses_later_ones(cluster: Cluster) -> None:
    client = cluster.client()
    started = threading.Event()
    answers: list[list[int]] = []

    def put() -> None:
        started.set()
        # The master is gone, so this waits for its deadline.
        answers.append(client.put_many(["a"], [b"x"], timeout_ms=60_000))

    cluster.master.stop()
    thread = threading.Thread(target=put)
    thread.start()
    started.wait()
    client.close()
    thread.join(10)
    assert not thread.is_alive()
    assert answers == [[int(Status.CLOSED)]]
    client.close()
    assert client.is_closed
    assert client.exists_many(["a"]) == [int(Status.CLOSED)]
    assert client.why() == "the client is closed"


def test_close_while_values_travel_answers_each_call(cluster: Cluster) -> None:
    cluster.node(256 * MIB)
    client = cluster.client()
    values = [pattern(i, MIB) for i in range(4)]
    rounds = [0]
    wrong: list[object] = []

    def work(worker: int) -> None:
        while not client.is_closed:
            keys = [f"{worker}-{i}" for i in range(4)]
            client.put_many(keys, values)
            for value, expected in zip(client.get_many(keys), values, strict=True):
                if value != expected and not isinstance(value, int):
                    wrong.append(worker)
            rounds[0] += 1

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: rounds[0] >= 10)
    client.close()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_ctrl_c_ends_a_blocked_call(cluster: Cluster) -> None:
    client = cluster.client()
    cluster.master.stop()
    pressed: list[float] = []

    def press() -> None:
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.2, press)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        client.exists_many(["a"], timeout_ms=60_000)
    # 0.1 s on a machine that has time; the bound here only tells it from the deadline.
    assert time.monotonic() - pressed[0] < 10
    timer.join()


def test_a_forked_child_is_refused_and_the_parent_goes_on(cluster: Cluster) -> None:
    cluster.node()
    client = cluster.client()
    assert client.put_many(["a"], [b"apple"]) == [OK]
    pid = os.fork()
    if pid == 0:
        is_refused = client.get_many(["a"]) == [int(Status.CLOSED)] and "fork" in client.why()
        os._exit(0 if is_refused else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert client.get_many(["a"]) == [b"apple"]


def test_questions_about_the_cluster(cluster: Cluster) -> None:
    cluster.node(name="first")
    client = cluster.client()
    assert client.put_many(["x1", "x2", "y"], [b"1", b"22", b"333"]) == [OK] * 3
    status, segments = client.segments()
    assert status == OK
    assert [(s["name"], s["replica_count"]) for s in segments] == [("first", 3)]
    status, cursor, objects = client.list_keys(key_prefix=b"x")
    assert (status, cursor) == (OK, 0)
    assert sorted((key, size) for key, size, *_ in objects) == [(b"x1", 1), (b"x2", 2)]
    status, stats = client.stats()
    assert status == OK
    assert stats
    assert client.touch_many(["x1", "none"]) == [OK, MISS]


def test_tenants_do_not_see_each_other(cluster: Cluster) -> None:
    cluster.node()
    one, other = cluster.client(tenant="one"), cluster.client(tenant="other")
    assert one.put_many(["k"], [b"mine"]) == [OK]
    assert other.get_many(["k"]) == [MISS]
    assert other.put_many(["k"], [b"theirs"]) == [OK]
    assert one.get_many(["k"]) == [b"mine"]
