"""One store, called by several threads at once, as vLLM's lookup, sender and receivers do."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any, cast

from dropin.conftest import MIB
from dropin.memory import Memory, pattern
from processes import Process, address_of, master, stop, wait_until

from mooncake_client.dropin import MooncakeDistributedStore, ReplicateConfig
from mooncake_store import _core

Dropin = MooncakeDistributedStore


class Counted:
    """A native client that counts the calls which have entered it and those which have returned."""

    def __init__(self, client: _core.Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self.entered = self.returned = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name not in ("exists_many", "put_many", "get_into_many"):
            return found

        def call(*arguments: Any, **settings: Any) -> Any:
            with self._lock:
                self.entered += 1
            try:
                return found(*arguments, **settings)
            finally:
                with self._lock:
                    self.returned += 1

        return call


def joined(daemon: Process) -> Dropin:
    store = MooncakeDistributedStore()
    settings = ("127.0.0.1", "P2PHANDSHAKE", 64 * MIB, MIB, "tcp", "", address_of(daemon))
    assert store.setup(*settings) == 0
    return store


def started(*work: Callable[[], Any]) -> tuple[list[threading.Thread], list[Any]]:
    answers: list[Any] = [None] * len(work)

    def run(index: int) -> None:
        answers[index] = work[index]()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(work))]
    for thread in threads:
        thread.start()
    return threads, answers


def test_calls_of_three_threads_are_under_way_at_once() -> None:
    """The master stands still, so that each call waits in native code. All three are there, none has come
    back, and this thread goes on to wake the master: nobody holds a lock, or the interpreter's, meanwhile.
    """
    source, target = Memory(pattern(8192, 1)), Memory(8192)
    halves = [[source.ptr, source.ptr + 4096]], [[4000, 4000]]
    into = [[target.ptr, target.ptr + 4096]], [[4000, 4000]]
    with master() as daemon:
        store = joined(daemon)
        assert store.batch_put_from_multi_buffers(["old"], *halves, ReplicateConfig()) == [0]
        membership = store._membership
        assert membership is not None
        counted = Counted(membership.client)
        membership.client = cast(_core.Client, counted)
        stop(daemon.pid)
        threads, answers = started(
            lambda: store.batch_is_exist(["old", "absent"]),
            lambda: store.batch_put_from_multi_buffers(["new"], *halves, ReplicateConfig()),
            lambda: store.batch_get_into_multi_buffers(["old"], *into),
        )
        wait_until(lambda: counted.entered == 3, "three calls are under way")
        under_way = counted.entered - counted.returned
        os.kill(daemon.pid, signal.SIGCONT)
        for thread in threads:
            thread.join()
        assert under_way == 3
        assert answers == [[1, 0], [0], [8000]]
        assert target.bytes(0, 4000) == source.bytes(0, 4000)
        assert target.bytes(4096, 8096) == source.bytes(4096, 8096)
        assert store.get("new") == store.get("old")
        assert store.close() == 0


def test_threads_share_nothing_by_accident() -> None:
    """Values of one size, in pieces, so that all want the same memory to gather and spread them."""
    rounds, pieces, size = 30, 5, 3000

    def work(number: int) -> int:
        good = 0
        source, target = Memory(pattern(pieces * 4096, number)), Memory(pieces * 4096)
        sizes = [[size] * pieces] * 2
        keys = [f"{number}-{index}" for index in range(2)]

        def places(memory: Memory) -> list[list[int]]:
            return [[memory.ptr + 4096 * piece + 500 * key for piece in range(pieces)] for key in range(2)]

        for _ in range(rounds):
            put = store.batch_put_from_multi_buffers(keys, places(source), sizes, ReplicateConfig())
            got = store.batch_get_into_multi_buffers(keys, places(target)[:1], sizes[:1])
            mismatched = got == [-600, -600]
            got = store.batch_get_into_multi_buffers(keys[:1], places(target)[:1], sizes[:1])
            same = all(
                target.bytes(4096 * piece, 4096 * piece + size)
                == source.bytes(4096 * piece, 4096 * piece + size)
                for piece in range(pieces)
            )
            removed = store.batch_remove(keys, True)
            good += put == [0, 0] and mismatched and got == [pieces * size] and same and removed == [0, 0]
            target.array[:] = 0
        return good

    with master() as daemon:
        store = joined(daemon)
        threads, answers = started(*(lambda number=number: work(number) for number in range(3)))
        for thread in threads:
            thread.join()
        assert answers == [rounds] * 3
        assert store.remove_all(True) == 0
        assert store.close() == 0
