"""`AsyncStore`: the verbs of `Store` on an event loop, and what cancellation, closing and other loops do."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import os
import pickle
import queue
import random
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client.pools import Pool, pool
from slow_node import SlowNode

from mooncake_client import AsyncStore, Store
from mooncake_store import _core
from mooncake_store.errors import (
    BufferTooSmall,
    Busy,
    ClosedError,
    DeadlineExceeded,
    InvalidArgument,
    ObjectNotFound,
    StoreError,
    Unavailable,
)

MIB = 1 << 20
HANG_S = 60
LONG_MS = 600_000  # no call of these tests may come to its deadline
NO_VERBS = {"close", "aclose", "embedded", "connect", "from_config"}


async def soon(waiting: queue.Queue[str]) -> str:
    """What another thread tells; the loop goes on meanwhile."""
    return await asyncio.wait_for(asyncio.to_thread(waiting.get, True, HANG_S), HANG_S)


@pytest.fixture(scope="module", params=["lane", "grpc"])
def shared(request: pytest.FixtureRequest) -> Iterator[Pool]:
    with pool(request.param) as shared:
        yield shared


@pytest.fixture
async def store(shared: Pool, request: pytest.FixtureRequest) -> AsyncIterator[AsyncStore]:
    async with AsyncStore(**shared.settings, tenant=request.node.name[:200]) as store:
        yield store


@pytest.fixture
def lane() -> Iterator[str]:
    """Of a master that has no node yet and expires nobody."""
    master = _core.Master(lane_host="127.0.0.1", client_ttl_ms=LONG_MS)
    master.start()
    yield f"127.0.0.1:{master.lane_port}"
    master.stop()


@pytest.fixture
def slow(lane: str) -> Iterator[SlowNode]:
    """The only node; it holds "k"."""
    with SlowNode(lane) as node:
        node.hold(b"k", MIB)
        yield node


# ---- the same verbs


def public(kind: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


def test_both_stores_have_the_same_verbs_with_the_same_signatures_and_texts() -> None:
    ours, theirs = public(AsyncStore), public(Store)
    assert set(ours) - NO_VERBS == set(theirs) - NO_VERBS
    for name in set(theirs) - NO_VERBS:
        assert theirs[name].__doc__, name
        assert ours[name].__doc__ == theirs[name].__doc__, name
        if not callable(theirs[name]):
            continue
        mine, other = inspect.signature(ours[name]), inspect.signature(theirs[name])
        assert list(mine.parameters.values()) == list(other.parameters.values()), name
        expected = str(other.return_annotation).replace("Iterator[", "AsyncIterator[")
        assert mine.return_annotation == expected, name
        is_waited_for = inspect.iscoroutinefunction(ours[name]) or "AsyncIterator" in expected
        assert is_waited_for == (name not in ("register", "unregister")), name
        assert ours[name].__qualname__ in (f"AsyncStore.{name}", f"StoreHandle.{name}")


def test_both_stores_take_the_same_settings() -> None:
    for make in ("__init__", "embedded"):
        ours = inspect.signature(getattr(AsyncStore, make)).parameters
        theirs = inspect.signature(getattr(Store, make)).parameters
        assert {name: value for name, value in ours.items() if not name.startswith("calls_")} == dict(theirs)


async def test_every_verb_answers_as_the_one_that_waits(shared: Pool, store: AsyncStore) -> None:
    with Store(**shared.settings, tenant=store.config.tenant) as waiting:
        assert await store.put("k", b"value") == "stored"
        assert await store.put("k", b"other") == "exists"
        assert await store.put("k", b"newer", replace=True) == "stored"
        *stored, refused = await store.put_many(["a", "b", ""], [b"1", b"22", b"3"])
        assert stored == ["stored", "stored"]
        assert isinstance(refused, InvalidArgument)
        assert await store.get("k") == waiting.get("k") == b"newer"
        assert await store.get("missing") is None
        assert await store.get_many(["a", "missing", "b"]) == [b"1", None, b"22"]
        target = bytearray(8)
        assert await store.get_into("b", target) == 2
        assert target == b"22" + bytes(6)
        assert await store.get_into_many(["a", "missing"], [bytearray(1), bytearray(1)]) == [1, None]
        await store.put("tensor", np.arange(6, dtype=np.float16).reshape(2, 3))
        assert np.array_equal(await store.get_tensor("tensor"), waiting.get_tensor("tensor"))
        assert await store.get_tensor("missing") is None
        assert await store.exists("a")
        assert await store.exists_many(["a", "missing"]) == [True, False]
        assert await store.match_prefix(["a", "b", "missing"]) == 2
        assert await store.touch("a")
        assert await store.stat("a") == waiting.stat("a")
        assert sorted([key async for key in store.keys(b"")]) == sorted(waiting.keys())
        assert [found.size_bytes async for found in store.objects("b")] == [2]
        assert await store.segments() == waiting.segments()
        assert (await store.stats())["key_count"] >= 4
        assert await store.remove("a") is True
        assert await store.remove_many(["b", "missing"]) == [True, False]
        await store.put_many(["x1", "x2"], [b"v", b"v"])
        assert await store.remove_all("x", pattern="2$") == 1
        assert await store.remove_all("x") == 1
        with store.register(bytearray(16)) as registration:
            pass
        with pytest.raises(InvalidArgument):
            store.unregister(registration)


async def test_wrong_calls_raise_what_the_waiting_store_raises(store: AsyncStore) -> None:
    await store.put("k", bytes(100))
    for wrong, kind, text in (
        (store.get_into("k", bytearray(99)), BufferTooSmall, r"'k' has 100 bytes.*99"),
        (store.get_into("k", bytes(100)), InvalidArgument, "read-only"),
        (store.get_into("k", memoryview(bytearray(400))[::2]), InvalidArgument, "not contiguous"),
        (store.get(""), InvalidArgument, "key"),
        (store.put("x", object()), InvalidArgument, "object"),
        (store.put_many(["a"], []), InvalidArgument, "1 keys but 0 values"),
        (store.exists("k", timeout_ms=0), InvalidArgument, "timeout_ms"),
        (store.stat("missing"), ObjectNotFound, "'missing'"),
        (store.remove("missing", missing_ok=False), ObjectNotFound, "'missing'"),
    ):
        with pytest.raises(kind, match=text):
            await wrong
    assert await store.get_into("k", bytearray(100)) == 100


@pytest.mark.parametrize("size", [0, 1, 4096, 65_536, 65_537, MIB, 8 * MIB + 1])
async def test_every_size_comes_back(store: AsyncStore, size: int) -> None:
    value = random.Random(size).randbytes(size)
    await store.put_many(["k", "tail"], [value, b"tail"])
    assert await store.get("k") == value
    assert await store.get_many(["tail", "k", "missing"]) == [b"tail", value, None]
    target = bytearray(size)
    assert await store.get_into("k", target) == size
    assert target == value


# ---- many at once


def call_threads() -> int:
    names = (task / "comm" for task in Path("/proc/self/task").iterdir())
    return sum(name.read_text() == "mc-call\n" for name in names if name.exists())


async def test_hundreds_of_calls_at_once_need_few_threads(store: AsyncStore) -> None:
    values = [random.Random(index).randbytes(1 + 37 * index) for index in range(400)]

    async def work(index: int) -> None:
        assert await store.put(index, values[index]) == "stored"
        target = bytearray(len(values[index]))
        assert await asyncio.gather(
            store.get(index), store.get_into(index, target), store.exists(index), store.get(f"no {index}")
        ) == [values[index], len(target), True, None]
        assert target == values[index]

    await asyncio.gather(*(work(index) for index in range(len(values))))
    assert 1 <= call_threads() <= 16


async def test_calls_begin_in_the_order_in_which_they_were_made(shared: Pool) -> None:
    async with AsyncStore(**shared.settings, tenant="order", calls_at_once_max=1) as store:
        ended: list[int] = []

        async def put(index: int) -> None:
            assert await store.put("k", bytes([index]), replace=True) == "stored"
            ended.append(index)

        await asyncio.gather(*(put(index) for index in range(50)))
        assert ended == list(range(50))
        assert await store.get("k") == bytes([49])


async def test_a_call_beyond_the_bound_is_refused_and_names_it(lane: str, slow: SlowNode) -> None:
    async with AsyncStore(
        lane=lane, rpc_timeout_ms=LONG_MS, calls_at_once_max=1, calls_waiting_max=3
    ) as store:
        holding = asyncio.create_task(store.get_into("k", bytearray(MIB)))
        assert await soon(slow.begun) == "read"
        waiting = [asyncio.create_task(store.exists("k")) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Busy, match=r"3 calls wait.*calls_waiting_max"):
            await store.exists("k")
        holding.cancel()
        assert await asyncio.gather(*waiting) == [True] * 3
        assert await store.exists("k")
        assert holding.cancelled()


async def test_a_call_that_gets_no_thread_ends_at_its_deadline(lane: str, slow: SlowNode) -> None:
    async with AsyncStore(lane=lane, rpc_timeout_ms=LONG_MS, calls_at_once_max=1) as store:
        holding = asyncio.create_task(store.get_into("k", bytearray(MIB)))
        await soon(slow.begun)
        with pytest.raises(DeadlineExceeded, match="calls_at_once_max"):
            await store.exists("k", timeout_ms=20)
        assert not holding.done()
        holding.cancel()
        assert await store.exists("k")


# ---- cancellation


@pytest.mark.parametrize("how", ["cancel", "wait_for", "cancel twice"])
@pytest.mark.parametrize("verb", ["get_into", "get_into_many", "get", "get_many", "get_tensor"])
async def test_a_read_cancelled_amid_its_value_leaves_its_target_alone(
    lane: str, slow: SlowNode, verb: str, how: str
) -> None:
    async with AsyncStore(lane=lane, rpc_timeout_ms=LONG_MS) as store:
        target = bytearray(MIB)
        calls = {
            "get_into": lambda: store.get_into("k", target),
            "get_into_many": lambda: store.get_into_many(["missing", "k"], [bytearray(1), target]),
            "get": lambda: store.get("k"),
            "get_many": lambda: store.get_many(["missing", "k"]),
            "get_tensor": lambda: store.get_tensor("k"),
        }
        task = asyncio.create_task(calls[verb]())
        assert await soon(slow.begun) == "read"
        # The loop and other calls go on meanwhile.
        assert await store.exists("k")
        assert not task.done()
        if how == "wait_for":
            with pytest.raises((asyncio.TimeoutError, TimeoutError)):
                await asyncio.wait_for(task, 0)
        else:
            task.cancel()
            if how == "cancel twice":
                await asyncio.sleep(0)
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        seen = bytes(target)
        assert await soon(slow.ended) == "read"  # it sent on until then
        assert target == seen
        assert await store.exists("k")


async def test_a_put_cancelled_amid_its_value_may_be_put_again(lane: str, slow: SlowNode) -> None:
    value = bytearray(64 * MIB)
    async with AsyncStore(lane=lane, rpc_timeout_ms=LONG_MS) as store:
        task = asyncio.create_task(store.put("new", value))
        assert await soon(slow.begun) == "write"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        value.append(0)  # no export of its memory is left
        assert await soon(slow.ended) == "write"
        assert not await store.exists("new")
        node = _core.Node([("good", 16 * MIB)], lane=lane, data_host="127.0.0.1")
        node.start()
        try:
            assert await asyncio.to_thread(node.wait_mounted, HANG_S * 1000)
            assert await store.put("new", b"x", preferred_segments=["good"]) == "stored"
            assert await store.get("new") == b"x"
        finally:
            node.stop()


async def test_a_call_cancelled_before_its_turn_never_runs(lane: str, slow: SlowNode) -> None:
    async with AsyncStore(lane=lane, rpc_timeout_ms=LONG_MS, calls_at_once_max=1) as store:
        holding = asyncio.create_task(store.get_into("k", bytearray(MIB)))
        await soon(slow.begun)
        target = bytearray(MIB)
        waiting = [asyncio.create_task(store.get_into("k", target)) for _ in range(5)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        # At once, though the one thread is held up for good.
        assert {type(error) for error in await asyncio.gather(*waiting, return_exceptions=True)} == {
            asyncio.CancelledError
        }
        holding.cancel()
        assert await store.exists("k")
        assert target == bytes(MIB)
        assert slow.begun.empty()


async def test_a_task_cancelled_before_it_began_makes_no_call(store: AsyncStore) -> None:
    task = asyncio.create_task(store.put("k", b"x"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await store.exists("k")


async def test_cancelling_when_the_answer_is_here_loses_only_the_answer(store: AsyncStore) -> None:
    for turn in range(200):
        task = asyncio.create_task(store.put(turn, b"x" * turn))
        for _ in range(turn % 7):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await store.get(turn) in (None, b"x" * turn)
    assert await store.put("after", b"y") == "stored"


async def test_closing_a_coroutine_amid_its_value_leaves_its_target_alone(lane: str, slow: SlowNode) -> None:
    async with AsyncStore(lane=lane, rpc_timeout_ms=LONG_MS) as store:
        target = bytearray(MIB)
        coroutine = store.get_into("k", target)
        coroutine.send(None)
        await soon(slow.begun)
        coroutine.close()
        seen = bytes(target)
        await soon(slow.ended)
        assert target == seen
        target.append(0)  # no export of its memory is left
        assert await store.exists("k")


async def test_connecting_can_be_cancelled_and_blocks_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for settings in ({"lane": address}, {"master_server_addr": address}):
            store = AsyncStore(connect_timeout_ms=60_000, **settings)  # type: ignore[arg-type]
            task = asyncio.create_task(store.connect())
            connection, _ = await asyncio.to_thread(silent.accept)
            with connection:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert store.closed
            with pytest.raises(ClosedError):
                await store.connect()


async def test_a_cancelled_embedded_start_leaves_nothing() -> None:
    task = asyncio.create_task(AsyncStore.embedded("1mb").connect())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# ---- its life


async def test_a_store_that_is_not_connected_says_how(shared: Pool) -> None:
    store = AsyncStore(**shared.settings)
    assert store.closed
    with pytest.raises(ClosedError, match="async with"):
        await store.exists("k")
    assert await store.connect() is store
    assert (store.closed, store.is_connected) == (False, True)
    with pytest.raises(ClosedError, match="connected before"):
        await store.connect()
    await store.aclose()
    await store.aclose()
    assert "closed" in repr(store)
    for call in (store.get("k"), store.put("k", b""), store.connect()):
        with pytest.raises(ClosedError):
            await call
    with pytest.raises(ClosedError):
        store.keys()


async def test_a_store_closed_before_it_was_connected_stays_closed(shared: Pool) -> None:
    store = AsyncStore(**shared.settings)
    await store.aclose()
    with pytest.raises(ClosedError):
        await store.connect()


async def test_a_master_that_is_not_there_is_named_with_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
    with pytest.raises(Unavailable, match=rf"{address}.*master_server_addr"):
        await AsyncStore(address, connect_timeout_ms=200).connect()


async def test_settings_are_checked_by_name() -> None:
    for settings in ({"calls_at_once_max": 0}, {"calls_waiting_max": 0}, {"tenant": ""}):
        with pytest.raises(InvalidArgument, match=next(iter(settings))):
            AsyncStore("127.0.0.1:1", **settings)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="no setting 'colour'"):
        await AsyncStore.embedded("1mb", master_settings={"colour": 1}).connect()


async def test_closing_ends_calls_under_way_and_those_that_wait(lane: str, slow: SlowNode) -> None:
    store = await AsyncStore(lane=lane, rpc_timeout_ms=LONG_MS, calls_at_once_max=2).connect()
    target = bytearray(MIB)
    tasks = [asyncio.create_task(store.get_into("k", target)) for _ in range(2)]
    for _ in tasks:
        await soon(slow.begun)
    tasks += [asyncio.create_task(store.exists("k")) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.gather(store.aclose(), store.aclose())
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [ClosedError] * 22
    seen = bytes(target)
    assert {await soon(slow.ended), await soon(slow.ended)} == {"read"}
    assert target == seen


async def test_an_embedded_store_ends_with_calls_under_way() -> None:
    async with AsyncStore.embedded("16mb") as store:
        tasks = [asyncio.create_task(store.put(index, bytes(100_000))) for index in range(100)]
        await tasks[0]
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(end == "stored" or isinstance(end, ClosedError) for end in ends)
    assert ends[0] == "stored"


def test_another_loop_is_refused_by_name(shared: Pool) -> None:
    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(AsyncStore(**shared.settings).connect())

    async def elsewhere() -> None:
        for call in (store.exists("k"), store.aclose()):
            with pytest.raises(InvalidArgument, match="another event loop"):
                await call

    asyncio.run(elsewhere())
    assert loop.run_until_complete(store.exists("k")) is False
    loop.run_until_complete(store.aclose())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def test_threads_with_loops_of_their_own_have_stores_of_their_own(shared: Pool) -> None:
    failures: list[BaseException] = []

    async def work(who: int) -> None:
        async with AsyncStore(**shared.settings, tenant="threads") as store:
            for index in range(30):
                value = random.Random(index).randbytes(1 + 1000 * index)
                await store.put(f"{who}/{index}", value)
                assert await store.get(f"{who}/{index}") == value

    def run(who: int) -> None:
        try:
            asyncio.run(work(who))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert failures == []


async def test_a_store_that_nobody_closed_warns_and_ends(shared: Pool) -> None:
    def sessions() -> int:
        return shared.store.stats()["active_session_count"]

    before = sessions()
    store = await AsyncStore(**shared.settings).connect()
    assert await store.exists("k") is False
    assert sessions() == before + 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del store
        gc.collect()
    assert [warning.category for warning in caught] == [ResourceWarning]
    assert "never closed" in str(caught[0].message)
    caught.clear()  # the warning names its source and so holds it
    assert sessions() == before
    await asyncio.sleep(0)


async def test_a_store_is_neither_pickled_nor_copied_but_its_settings_are(store: AsyncStore) -> None:
    for use in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"AsyncStore cannot be pickled.*AsyncStore\.from_config"):
            use(store)
    async with AsyncStore.from_config(pickle.loads(pickle.dumps(store.config))) as other:
        assert await other.put("k", b"v") == "stored"
        assert await store.get("k") == b"v"


# ---- in processes of its own


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )


BEGUN_READ = """
import asyncio, gc, sys
from mooncake_client import AsyncStore
from mooncake_store import _core
from slow_node import SlowNode
master = _core.Master(lane_host="127.0.0.1", client_ttl_ms=600_000)
master.start()
lane = f"127.0.0.1:{master.lane_port}"
node = SlowNode(lane)
node.hold(b"k", 1 << 20)
target = bytearray(1 << 20)
async def begin():
    global store, task
    store = await AsyncStore(lane=lane, rpc_timeout_ms=600_000).connect()
    task = asyncio.ensure_future(store.get_into("k", target))
    await asyncio.to_thread(node.begun.get)
"""


def test_a_loop_closed_with_calls_under_way_leaves_their_targets_alone() -> None:
    ended = run(
        BEGUN_READ
        + """
loop = asyncio.new_event_loop()
loop.run_until_complete(begin())
loop.run_until_complete(loop.shutdown_default_executor())
loop.close()
assert not task.done() and not store.closed
asyncio.run(store.aclose())
seen = bytes(target)
node.ended.get()
assert target == seen
del task
gc.collect()
target.append(0)  # no export of its memory is left
node.__exit__(None, None, None)
master.stop()
print("over")
"""
    )
    assert (ended.returncode, ended.stdout) == (0, "over\n"), ended.stderr
    assert "Fatal" not in ended.stderr


def test_asyncio_run_ends_though_a_read_never_would() -> None:
    ended = run(
        BEGUN_READ
        + """
asyncio.run(begin())   # cancels the task
assert task.cancelled()
seen = bytes(target)
node.ended.get()
assert target == seen
node.__exit__(None, None, None)
print("over")
"""
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "over\n", "")


@pytest.mark.parametrize("closes_loop", [True, False])
def test_the_interpreter_ends_with_a_read_under_way(closes_loop: bool) -> None:
    ended = run(
        BEGUN_READ
        + f"""
loop = asyncio.new_event_loop()
loop.run_until_complete(begin())
loop.run_until_complete(loop.shutdown_default_executor())
if {closes_loop}: loop.close()
print("over", flush=True)
"""
    )
    assert (ended.returncode, ended.stdout) == (0, "over\n"), ended.stderr
    assert "Fatal" not in ended.stderr


def test_errors_are_of_one_tree() -> None:
    assert issubclass(DeadlineExceeded, (StoreError, TimeoutError))
