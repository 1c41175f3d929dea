"""Nodes that go: a killed one's lost replicas come back on another, a stopped one's hot values move first.

Real processes, because they are killed and stopped.
"""

from __future__ import annotations

import random
import signal
import threading
from contextlib import ExitStack

import processes
import pytest
from processes import metric, wait_until

from mooncake_client import Store
from mooncake_client.records import Absence

KEYS = [f"k{index}" for index in range(200)]
VALUES = [random.Random(key).randbytes(20_000) for key in KEYS]
VALUE_OF = dict(zip(KEYS, VALUES, strict=True))


def wait_expelled(master: processes.Process, count: int) -> None:
    """Until so many segments have left the pool and nothing names them any more."""
    wait_until(lambda: metric(master, "master_segments_expelled_total") >= count, "expelled")
    wait_until(lambda: metric(master, "master_expelled_segment_count") == 0, "swept")


def wait_for_replicas(store: Store, count: int, keys: int = len(KEYS)) -> None:
    """Until so many keys have so many replicas each."""
    wait_until(
        lambda: [info.replica_count for info in store.objects()].count(count) == keys, f"{count} replicas"
    )


def start_node(stack: ExitStack, address: str, name: str, *flags: str) -> processes.Process:
    node = stack.enter_context(
        processes.node(address, f"--segment_name={name}", f"--host_id=host-{name}", *flags)
    )
    node.wait_for(processes.NODE_READY)
    return node


@pytest.mark.slow
def test_replicas_lost_with_a_killed_node_are_made_anew() -> None:
    with processes.master(0, "--client_ttl=3") as master, ExitStack() as stack:
        address = processes.address_of(master)
        nodes = [start_node(stack, address, name) for name in ("a", "b", "c")]
        store = stack.enter_context(Store(address))
        assert store.put_many(KEYS, VALUES, replicas=2) == ["stored"] * len(KEYS)
        nodes[0].end(signal.SIGKILL)
        assert store.get_many(KEYS) == VALUES  # every key has another replica: read within the same call
        wait_expelled(master, 1)
        wait_for_replicas(store, 2)
        # All keys are on both that are left now. With one more node gone every byte comes from the last one.
        nodes[1].end(signal.SIGKILL)
        assert store.get_many(KEYS) == VALUES
        assert metric(master, "master_lost_keys_total") == 0
        assert metric(master, "master_copies_committed_total") > 0
        # And a node that joins late takes what had no place.
        wait_expelled(master, 2)
        wait_for_replicas(store, 1)
        start_node(stack, address, "d")
        wait_for_replicas(store, 2)
        nodes[2].end(signal.SIGKILL)
        assert store.get_many(KEYS) == VALUES


class Readers:
    """Threads that read keys over and over, each through a store of its own."""

    def __init__(self, address: str, threads: int, keys: list[str]) -> None:
        self._address = address
        self._keys = keys
        self._over = threading.Event()
        self._changed = threading.Condition()
        self.rounds = [0] * threads
        self.failed: list[object] = []
        self.missed: set[str] = set()
        self._threads = [threading.Thread(target=self._run, args=[index]) for index in range(threads)]

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, index: int) -> None:
        try:
            with Store(self._address) as store:
                while not self._over.is_set():
                    self._read_all(store)
                    with self._changed:
                        self.rounds[index] += 1
                        self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self.failed.append(error)
                self._changed.notify_all()

    def _read_all(self, store: Store) -> None:
        for key, value in zip(self._keys, store.get_many(self._keys), strict=True):
            if value is None:
                self.missed.add(key)
            elif value != VALUE_OF[key]:
                self.failed.append(("wrong bytes", key))

    def wait_rounds(self, more: int) -> None:
        """Until every thread has read all keys so many times more."""
        with self._changed:
            goal = [done + more for done in self.rounds]
            assert self._changed.wait_for(
                lambda: self.failed or all(d >= g for d, g in zip(self.rounds, goal, strict=True)),
                processes.HANG_S,
            )


@pytest.mark.slow
def test_a_stopped_node_hands_its_hot_values_over_without_a_failed_read() -> None:
    """UP 2: SIGTERM of a node under read load fails no read."""
    with processes.master() as master, ExitStack() as stack:
        address = processes.address_of(master)
        leaving = start_node(stack, address, "leaving")
        store = stack.enter_context(Store(address))
        assert store.put_many(KEYS, VALUES) == ["stored"] * len(KEYS)  # 4 MB, all there
        start_node(stack, address, "small", "--global_segment_size=2mb")
        hot = KEYS[::4]  # 1 MB
        with Readers(address, 2, hot) as readers:
            readers.wait_rounds(3)
            assert leaving.end() == 0
            readers.wait_rounds(3)
        assert readers.failed == []
        assert readers.missed == set()
        found = store.get_many(KEYS)
        assert all(value in (None, VALUE_OF[key]) for key, value in zip(KEYS, found, strict=True))
        assert store.get_many(hot) == [VALUE_OF[key] for key in hot]
        assert len(hot) <= metric(master, "master_handed_over_keys_total") < len(KEYS)
        assert 0 < found.count(None) < len(KEYS) - len(hot)


@pytest.mark.slow
def test_without_a_handover_a_stopped_node_costs_misses_and_no_failed_read() -> None:
    with processes.master() as master, ExitStack() as stack:
        address = processes.address_of(master)
        leaving = start_node(stack, address, "leaving", "--stop_handover_s=0")
        store = stack.enter_context(Store(address))
        assert store.put_many(KEYS, VALUES) == ["stored"] * len(KEYS)
        start_node(stack, address, "other")
        with Readers(address, 2, KEYS) as readers:
            readers.wait_rounds(2)
            assert leaving.end() == 0
            readers.wait_rounds(3)
        assert readers.failed == []
        assert store.get_many(KEYS) == [None] * len(KEYS)
        assert store.why(KEYS[0]).reason is Absence.LOST


@pytest.mark.slow
def test_a_second_signal_ends_a_stopping_node_at_once() -> None:
    with processes.master() as master, ExitStack() as stack:
        address = processes.address_of(master)
        leaving = start_node(stack, address, "leaving", "--stop_handover_s=600")
        store = stack.enter_context(Store(address))
        assert store.put_many(KEYS, VALUES) == ["stored"] * len(KEYS)
        # Nobody takes them: the other node stands still, and so does every copy to it.
        stack.enter_context(stopped(start_node(stack, address, "other")))
        leaving.send(signal.SIGTERM)
        leaving.wait_for("stopping")
        wait_until(lambda: metric(master, "master_draining_segment_count") == 1, "draining")
        assert leaving.end(signal.SIGTERM) == -signal.SIGTERM


class stopped:
    """A process that stands still until the end of the block."""

    def __init__(self, process: processes.Process) -> None:
        self._process = process

    def __enter__(self) -> None:
        self._process.stop()

    def __exit__(self, *_: object) -> None:
        self._process.send(signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["source", "target"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_node_lost_amid_copies_leaves_nothing_stuck(victim: str, number: signal.Signals) -> None:
    with processes.master(0, "--client_ttl=3", "--copies_a_node_max=1") as master, ExitStack() as stack:
        address = processes.address_of(master)
        leaving = start_node(stack, address, "leaving", "--stop_handover_s=60")
        store = stack.enter_context(Store(address))
        assert store.put_many(KEYS, VALUES) == ["stored"] * len(KEYS)
        target = start_node(stack, address, "target")
        leaving.send(signal.SIGTERM)
        wait_until(lambda: metric(master, "master_copies_started_total") > 0, "copying")
        gone = leaving if victim == "source" else target
        gone.stop() if number == signal.SIGSTOP else gone.send(number)
        wait_expelled(master, 1)
        wait_until(lambda: metric(master, "master_copy_count") == 0, "copies over")
        if victim == "target":
            assert leaving.wait() == 0  # there is nobody to hand over to
        found = store.get_many(KEYS)
        assert all(value in (None, VALUE_OF[key]) for key, value in zip(KEYS, found, strict=True))
        if number == signal.SIGSTOP:
            gone.send(signal.SIGKILL)
