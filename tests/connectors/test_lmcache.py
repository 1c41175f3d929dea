"""The remote plugin and the L2 adapter: chunks come back whole, and a chunk's memory is never lost."""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from connectors.stand_ins import CacheKey, Chunk, LocalBackend, ObjectKey

from mooncake_client import Store
from mooncake_client.connectors.block_pool import BlockPool
from mooncake_store.errors import InvalidArgument

KEYS = [CacheKey(f"m@1@0@{number:x}@bfloat16") for number in range(4)]
HANG_MS = 60_000


def chunk(seed: int, size: int = 1024) -> Chunk:
    return Chunk(np.random.default_rng(seed).integers(0, 256, size, np.uint8))


@pytest.fixture
def remote(connector_module: Any, pool: BlockPool) -> Any:
    [module] = connector_module("lmcache", "lmcache")

    def make(local: LocalBackend | None = None) -> Any:
        return module.MooncakeRemote(None, local or LocalBackend(), pool=pool)

    return make


async def test_chunks_come_back_also_the_last_which_is_shorter(remote: Any) -> None:
    one, local = remote(), LocalBackend()
    chunks = [chunk(1), chunk(2), chunk(3, 192)]
    await one.batched_put(KEYS[:3], chunks)
    other = remote(local)
    assert other.batched_contains(KEYS) == 3
    assert await other.batched_async_contains("id", KEYS) == 3
    assert await other.exists(KEYS[0])
    assert not other.exists_sync(KEYS[3])
    found = await other.batched_get(KEYS)
    assert [None if one is None else one.array.tobytes() for one in found] == [
        *(one.array.tobytes() for one in chunks),
        None,
    ]
    assert [one.references for one in local.given] == [1, 1, 1, 0]


async def test_only_the_prefix_is_given_and_the_rest_is_let_go(remote: Any) -> None:
    one, local = remote(), LocalBackend()
    for number in (0, 2):
        await one.put(KEYS[number], chunk(number))
    found = await remote(local).batched_get_non_blocking("id", KEYS[:3])
    assert len(found) == 1
    assert [one.references for one in local.given] == [1, 0, 0]


async def test_without_room_there_is_no_chunk(remote: Any) -> None:
    one = remote()
    await one.batched_put(KEYS, [chunk(number) for number in range(4)])
    found = await remote(LocalBackend(room=2)).batched_get(KEYS)
    assert [one is None for one in found] == [False, False, True, True]
    assert await remote(LocalBackend(room=0)).get(KEYS[0]) is None


async def test_a_chunk_of_a_broken_token_or_too_long_is_none(remote: Any) -> None:
    one, local = remote(), LocalBackend()
    await one.batched_put(KEYS[:2], [chunk(1, 100), chunk(2, 2048)])
    assert await remote(local).batched_get(KEYS[:2]) == [None, None]
    assert [one.references for one in local.given] == [0, 0]


async def test_a_store_that_is_gone_is_a_miss(remote: Any, store: Store) -> None:
    one = remote()
    await one.put(KEYS[0], chunk(1))
    store.close()
    assert one.batched_contains(KEYS) == 0
    assert await one.batched_get(KEYS[:1]) == [None]
    await one.put(KEYS[0], chunk(1))
    assert not one.remove_sync(KEYS[0])


async def test_remove_ends_a_chunk(remote: Any) -> None:
    one = remote()
    await one.put(KEYS[0], chunk(1))
    assert [one.remove_sync(KEYS[0]), one.remove_sync(KEYS[0])] == [True, False]
    assert await one.list() == []


@pytest.mark.parametrize("verb", ["load", "save"])
async def test_a_cancelled_call_ends_when_nobody_uses_its_chunks(
    remote: Any, pool: BlockPool, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go, events = threading.Event(), threading.Event(), []

    def slow(keys: list[bytes], *_: Any) -> list[int]:
        begun.set()
        assert go.wait(HANG_MS / 1000)
        events.append("ended")
        return [1024] * len(keys)

    monkeypatch.setattr(pool, verb, slow)
    local = LocalBackend()
    one = remote(local)
    call = one.batched_get(KEYS[:2]) if verb == "load" else one.batched_put(KEYS[:1], [chunk(1)])
    task = asyncio.ensure_future(call)
    assert await asyncio.to_thread(begun.wait, HANG_MS / 1000)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    task.add_done_callback(lambda _: events.append("cancelled"))
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events == ["ended", "cancelled"]
    assert [one.references for one in local.given] == [0] * len(local.given)


def test_layerwise_chunks_are_refused(remote: Any) -> None:
    with pytest.raises(InvalidArgument, match="use_layerwise"):
        remote(LocalBackend(use_layerwise=True))


def test_settings_of_the_pool_have_a_prefix(connector_module: Any) -> None:
    [module] = connector_module("lmcache", "lmcache")
    extra = {"save_chunk_meta": True, "mooncake_store.tenant_id": "t", "remote_storage_plugin.a.b": 1}
    assert module.pool_settings(extra) == {"tenant_id": "t"}


# ---- L2


@pytest.fixture
def l2(connector_module: Any, pool: BlockPool) -> Iterator[Any]:
    _, module = connector_module("lmcache", "lmcache", "lmcache_l2")
    adapter = module.MooncakeL2({}, pool=pool)
    yield adapter
    adapter.close()
    adapter.close()


def wait(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(HANG_MS)


def stored(l2: Any, keys: list[Any], chunks: list[Chunk]) -> int:
    task = l2.submit_store_task(keys, chunks)
    wait(l2.get_store_event_fd())
    [(done, result)] = l2.pop_completed_store_tasks().items()
    assert done == task
    return int(result)


def loaded(l2: Any, keys: list[Any], chunks: list[Chunk]) -> list[bool]:
    task = l2.submit_load_task(keys, chunks)
    wait(l2.get_load_event_fd())
    bits = l2.query_load_result(task).bits
    assert l2.query_load_result(task) is None  # once only
    return list(bits)


def test_objects_are_stored_found_and_loaded(l2: Any) -> None:
    keys = [ObjectKey(number) for number in range(3)]
    chunks = [chunk(number) for number in range(2)]
    assert stored(l2, keys[:2], chunks) == 2048
    assert l2.told == [(keys[:2], [1024, 1024])]
    task = l2.submit_lookup_and_lock_task(keys, {})
    wait(l2.get_lookup_and_lock_event_fd())
    assert l2.query_lookup_and_lock_result(task).bits == [True, True, False]
    targets = [Chunk(np.zeros(1024, np.uint8)) for _ in keys]
    assert loaded(l2, keys, targets) == [True, True, False]
    assert [one.array.tobytes() for one in targets[:2]] == [one.array.tobytes() for one in chunks]
    l2.submit_unlock(keys)
    l2.delete(keys)
    assert l2.report_status()["is_healthy"]
    assert len({l2.get_store_event_fd(), l2.get_lookup_and_lock_event_fd(), l2.get_load_event_fd()}) == 3


@pytest.mark.parametrize(
    "changes", [{"model_name": "n"}, {"kv_rank": 1}, {"object_group_id": 1}, {"cache_salt": "s"}]
)
def test_only_the_same_key_finds_an_object(l2: Any, changes: dict[str, Any]) -> None:
    stored(l2, [ObjectKey(1)], [chunk(1)])
    assert loaded(l2, [ObjectKey(1, **changes)], [chunk(0)]) == [False]


def test_an_object_of_another_size_is_not_loaded(l2: Any) -> None:
    stored(l2, [ObjectKey(1)], [chunk(1, 100)])
    assert loaded(l2, [ObjectKey(1)], [chunk(0, 200)]) == [False]


def test_every_task_ends_whatever_happens(l2: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(l2.pool, "load", lambda *_: 1 / 0)
    assert loaded(l2, [ObjectKey(1)], [chunk(0)]) == [False]
    store.close()
    assert stored(l2, [ObjectKey(1)], [chunk(0)]) == -1


def test_a_wrong_number_of_workers_is_refused(connector_module: Any, pool: BlockPool) -> None:
    _, module = connector_module("lmcache", "lmcache", "lmcache_l2")
    with pytest.raises(InvalidArgument, match="num_workers 0"):
        module.MooncakeL2({"num_workers": 0}, pool=pool)
