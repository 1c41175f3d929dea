"""A master that is killed and started again finds every value where it was: the nodes tell it.

Real processes, because they are killed.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import processes
import pytest

from mooncake_client import Store
from mooncake_store.errors import StoreError, Unavailable

KEYS = [f"k{index}" for index in range(300)]
VALUES = [random.Random(key).randbytes(3_000) for key in KEYS]


def wait_until_readable(store: Store, keys: list[str]) -> list[bytes | None]:
    """Misses are allowed while the nodes come back, wrong bytes never."""
    deadline = time.monotonic() + processes.HANG_S
    while time.monotonic() < deadline:
        try:
            found = store.get_many(keys)
        except StoreError:
            continue  # the master is not there yet
        for key, value in zip(keys, found, strict=True):
            assert value is None or value == VALUES[KEYS.index(key)]
        if all(value is not None for value in found):
            return found
    raise AssertionError("the values did not come back")


@pytest.mark.slow
@pytest.mark.parametrize("state_file", [True, False])
def test_every_value_is_readable_after_a_master_was_killed(state_file: bool, tmp_path: Path) -> None:
    port = processes.free_port()
    flags = [f"--state_file={tmp_path / 'reign.json' if state_file else 'none'}", "--client_ttl=2"]
    with processes.master(port, *flags) as first:
        address = processes.address_of(first)
        with processes.node(address) as one, processes.node(address) as other, Store(address) as store:
            for node in (one, other):
                node.wait_for(processes.NODE_READY)
            assert store.put_many(KEYS, VALUES) == ["stored"] * len(KEYS)
            assert store.put(KEYS[0], VALUES[0], replace=True) == "stored"
            store.remove(KEYS[1])
            first.end(signal.SIGKILL)
            with processes.master(port, *flags) as second:
                second.wait_for(processes.MASTER_READY)
                kept = [KEYS[0], *KEYS[2:]]
                wait_until_readable(store, kept)
                assert store.get(KEYS[1]) is None
                store.remove(KEYS[2])
                assert store.put(KEYS[1], VALUES[1]) == "stored"
                second.end(signal.SIGKILL)
                with processes.master(port, *flags) as third:
                    third.wait_for(processes.MASTER_READY)
                    wait_until_readable(store, [*KEYS[:2], *KEYS[3:]])
                    assert store.get(KEYS[2]) is None


@pytest.mark.slow
@pytest.mark.parametrize("many", [False, True])
def test_a_remove_answered_without_a_stopped_node_outlives_the_master(many: bool, tmp_path: Path) -> None:
    """UP 6: the node holds the value and has not heard; the master that knew is killed."""
    port = processes.free_port()
    flags = [f"--state_file={tmp_path / 'reign.json'}", "--client_ttl=10", "--remove_confirm_timeout_ms=500"]
    with processes.master(port, *flags) as first:
        address = processes.address_of(first)
        with processes.node(address) as node, Store(address) as store:
            node.wait_for(processes.NODE_READY)
            assert store.put_many(KEYS, VALUES) == ["stored"] * len(KEYS)
            node.stop()
            assert store.remove(KEYS[0])
            if many:
                store.remove_many(KEYS[1:100])
            first.end(signal.SIGKILL)
            with processes.master(port, *flags) as second:
                second.wait_for(processes.MASTER_READY)
                node.send(signal.SIGCONT)
                wait_until_readable(store, KEYS[100:])
                assert store.get_many(KEYS[:1]) == [None]
                if many:
                    assert store.get_many(KEYS[:100]) == [None] * 100
                else:
                    wait_until_readable(store, KEYS[1:])


class Storm:
    """Threads that put, remove and read values of their own until they are told to end."""

    def __init__(self, address: str, control: str, threads: int) -> None:
        self._address = address
        self._control = control
        self._over = threading.Event()
        self._changed = threading.Condition()
        self.stored: set[str] = set()
        self.removed: set[str] = set()
        self.wrong: list[str] = []
        self._threads = [threading.Thread(target=self._work, args=(who,)) for who in range(threads)]

    @staticmethod
    def value(key: str) -> bytes:
        chance = random.Random(key)
        return chance.randbytes(chance.randrange(1, 30_000))

    def wait_for_more(self, puts: int) -> None:
        """Until so many more puts were acknowledged."""
        with self._changed:
            wanted = len(self.stored) + puts
            assert self._changed.wait_for(lambda: len(self.stored) >= wanted, processes.HANG_S)

    def _work(self, who: int) -> None:
        with Store(self._address, control=self._control) as store:
            number = 0
            while not self._over.is_set():
                key, earlier, doomed = f"{who}/{number}", f"{who}/{number // 2}", f"{who}/{number - 5}"
                number += 1
                try:
                    store.put(key, self.value(key))
                    with self._changed:
                        self.stored.add(key)
                        self._changed.notify_all()
                    was_removed = earlier in self.removed
                    read = store.get(earlier)
                    if read is not None and (was_removed or read != self.value(earlier)):
                        self.wrong.append(earlier)
                    if number % 10 == 9:
                        with self._changed:
                            self.stored.discard(doomed)
                        store.remove(doomed)
                        self.removed.add(doomed)
                except StoreError:
                    continue  # no master for longer than the call's deadline

    def __enter__(self) -> Storm:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(processes.HANG_S)


@pytest.mark.slow
@pytest.mark.parametrize("control", ["lane", "grpc"])
def test_masters_killed_amid_calls_lose_no_acknowledged_put_and_undo_no_remove(
    control: str, tmp_path: Path
) -> None:
    """UP 3: amid puts, reads and removes too."""
    port = processes.free_port()
    flags = [f"--state_file={tmp_path / 'reign.json'}"]
    with contextlib.ExitStack() as running:
        master = running.enter_context(processes.master(port, *flags))
        address = processes.address_of(master)
        for _ in range(2):
            node = running.enter_context(processes.node(address, "--global_segment_size=512mb"))
            node.wait_for(processes.NODE_READY)
        with Storm(address, control, threads=3) as storm:
            for _ in range(3):
                storm.wait_for_more(300)
                master.end(signal.SIGKILL)
                master = running.enter_context(processes.master(port, *flags))
                master.wait_for(processes.MASTER_READY)
        assert storm.wrong == []
        with Store(address, control=control) as store:
            kept = sorted(storm.stored)
            deadline = time.monotonic() + processes.HANG_S
            while None in (found := store.get_many(kept)) and time.monotonic() < deadline:
                continue
            assert found == [storm.value(key) for key in kept]
            assert store.get_many(sorted(storm.removed)) == [None] * len(storm.removed)


@pytest.mark.parametrize("control", ["lane", "grpc"])
def test_a_stopped_master_costs_a_call_its_deadline_and_no_more(control: str) -> None:
    """It goes on where it was: clients, leases and values are as before."""
    with contextlib.ExitStack() as running:
        master = running.enter_context(processes.master())
        address = processes.address_of(master)
        node = running.enter_context(processes.node(address, "--global_segment_size=64mb"))
        node.wait_for(processes.NODE_READY)
        store = running.enter_context(Store(address, control=control))
        store.put("k", b"value")
        processes.stop(master.pid)
        try:
            for _ in range(3):
                with pytest.raises(Unavailable):
                    store.get("k", timeout_ms=300)
        finally:
            master.send(signal.SIGCONT)
        assert store.get("k") == b"value"
        assert store.put("another", b"value") == "stored"
        assert store.door == control


@pytest.mark.parametrize("control", ["lane", "grpc"])
def test_a_call_made_without_a_master_is_answered_by_the_next(control: str) -> None:
    """In another reign and session."""
    port = processes.free_port()
    with contextlib.ExitStack() as running:
        master = running.enter_context(processes.master(port))
        store = running.enter_context(Store(processes.address_of(master), control=control))
        store.stats()
        master.end(signal.SIGKILL)
        asking = running.enter_context(ThreadPoolExecutor(1)).submit(store.stats, timeout_ms=60_000)
        running.enter_context(processes.master(port))
        assert asking.result(processes.HANG_S)["active_session_count"] >= 1
