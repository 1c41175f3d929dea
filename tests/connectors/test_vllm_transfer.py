"""A worker's loads and saves between its tensors and a real store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from connectors.vllm_world import BLOCKS, KvTensor, block_of, caches

from mooncake_client import Store
from mooncake_client.connectors import vllm_transfer
from mooncake_client.connectors.block_pool import BlockPool
from mooncake_client.connectors.vllm_plan import Load, Plan, Save
from mooncake_client.connectors.vllm_transfer import Tensors, WorkerCore
from mooncake_store.errors import InvalidArgument

HANG_S = 60
KEYS = [bytes([number]) * 32 for number in range(6)]


@pytest.fixture
def worker(pool: BlockPool) -> Iterator[Any]:
    made: list[WorkerCore] = []

    def make(tensors: dict[str, KvTensor], **settings: Any) -> WorkerCore:
        made.append(WorkerCore(pool, **settings))
        made[-1].register(tensors, BLOCKS)
        return made[-1]

    yield make
    for one in made:
        one.close()


def until(worker: WorkerCore, what: str, request_id: str, finished: set[str] = frozenset()) -> Any:  # type: ignore[assignment]
    """Look at what ended, as steps of an engine do, until the request is there."""
    failed: set[int] = set()
    pause = threading.Event()
    for _ in range(HANG_S * 1000):
        ended = worker.poll(finished)
        failed |= ended.failed_blocks
        if request_id in getattr(ended, what):
            return failed
        pause.wait(0.001)
    raise AssertionError(f"{request_id} was never {what}")


def save(worker: WorkerCore, keys: list[bytes], blocks: list[int], request_id: str = "a") -> None:
    worker.save(Plan(saves=[Save(request_id, keys, blocks, None)]))
    until(worker, "sent", request_id, {request_id})


def load(worker: WorkerCore, keys: list[bytes], blocks: list[int], request_id: str = "b") -> set[int]:
    worker.load(Plan(loads=[Load(request_id, keys, blocks)]))
    failed: set[int] = until(worker, "received", request_id)
    return failed


@pytest.mark.parametrize("split", [False, True])
def test_blocks_come_back_into_other_blocks_of_another_worker(worker: Any, split: bool) -> None:
    source, target = caches(1, split=split), caches(split=split)
    save(worker(source), KEYS[:3], [5, 0, 15])
    assert load(worker(target), KEYS[:3], [2, 9, 4]) == set()
    for there, here in ((5, 2), (0, 9), (15, 4)):
        assert block_of(source, there, split=split) == block_of(target, here, split=split)
    assert not any(block_of(target, block, split=split).strip(b"\0") for block in (0, 1, 3, 15))


def test_large_loads_go_in_parts(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = caches(2), caches()
    monkeypatch.setattr(vllm_transfer, "BATCH_BYTES_MAX", 2 * Tensors(source, BLOCKS).block_bytes)
    save(worker(source), KEYS[:5], [0, 1, 2, 3, 4])
    assert load(worker(target), KEYS[:5], [4, 3, 2, 1, 0]) == set()
    assert [block_of(target, 4 - block) for block in range(5)] == [block_of(source, b) for b in range(5)]


def test_exactly_the_missing_blocks_fail(worker: Any, store: Store) -> None:
    source, target = caches(3), caches()
    save(worker(source), KEYS[:4], [0, 1, 2, 3])
    assert store.remove(KEYS[1] + b"/0.0")
    assert load(worker(target), KEYS[:4], [10, 11, 12, 13]) == {11}
    assert block_of(target, 13) == block_of(source, 3)


def test_parts_after_a_missing_block_are_not_loaded(
    worker: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = caches(2), caches()
    monkeypatch.setattr(vllm_transfer, "BATCH_BYTES_MAX", 2 * Tensors(source, BLOCKS).block_bytes)
    save(worker(source), KEYS[:6], [0, 1, 2, 3, 4, 5])
    assert store.remove(KEYS[2] + b"/0.0")
    assert load(worker(target), KEYS[:6], [0, 1, 2, 3, 4, 5]) == {2, 4, 5}
    assert not block_of(target, 5).strip(b"\0")


def test_a_block_of_another_form_is_not_loaded(worker: Any) -> None:
    """The same key and the same number of bytes, but keys and values lie otherwise: never wrong bytes."""
    save(worker(caches(4)), KEYS[:1], [0])
    assert load(worker(caches(split=True)), KEYS[:1], [7]) == {7}
    assert load(worker(caches(dims=16)), KEYS[:1], [8], "c") == {8}


def test_a_stage_that_begins_with_another_layer_loads_nothing(worker: Any) -> None:
    """Engines of one model and 3 pipeline ranks, with 1+2+1 and 2+1+1 layers say, have such stages."""
    source = caches(4)
    save(worker(source), KEYS[:1], [0])
    moved = dict(zip(("layer.1", "layer.2", "layer.3"), caches().values(), strict=True))
    assert load(worker(moved), KEYS[:1], [7]) == {7}


def test_ranks_do_not_meet(worker: Any) -> None:
    save(worker(caches(5), tp_rank=1), KEYS[:1], [0])
    assert load(worker(caches(), tp_rank=0), KEYS[:1], [7]) == {7}
    assert load(worker(caches(), tp_rank=1), KEYS[:1], [7], "c") == set()


def test_blocks_follow_the_block_before(worker: Any, pool: BlockPool, monkeypatch: Any) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(
        pool, "save", lambda keys, memory, parents, **_: seen.append(parents) or [True] * len(keys)
    )
    one = worker(caches(1))
    one.save(Plan(saves=[Save("a", KEYS[1:3], [0, 1], KEYS[0])]))
    until(one, "sent", "a", {"a"})
    assert seen == [[KEYS[0] + b"/0.0", KEYS[1] + b"/0.0"]]


def test_a_store_that_is_gone_fails_loads_and_ends_saves(worker: Any, store: Store) -> None:
    one = worker(caches(6))
    store.close()
    save(one, KEYS[:2], [0, 1])
    assert load(one, KEYS[:2], [3, 4]) == {3, 4}


def test_whatever_goes_wrong_the_request_is_received(worker: Any, pool: BlockPool, monkeypatch: Any) -> None:
    one = worker(caches(7))
    monkeypatch.setattr(pool, "load", lambda *_, **__: 1 / 0)
    assert load(one, KEYS[:2], [3, 4]) == {3, 4}
    assert load(one, KEYS[:1], [BLOCKS], "c") == {BLOCKS}


def test_a_load_that_waited_too_long_fails_without_asking(
    worker: Any, pool: BlockPool, monkeypatch: Any
) -> None:
    times = iter([0.0])
    one = worker(caches(8), clock=lambda: next(times, 100.0))
    monkeypatch.setattr(pool, "load", lambda *_, **__: pytest.fail("it was asked"))
    assert load(one, KEYS[:2], [3, 4]) == {3, 4}


def test_a_load_has_what_its_wait_left_of_its_deadline(
    worker: Any, pool: BlockPool, monkeypatch: Any
) -> None:
    times = iter([0.0])
    one = worker(caches(8), clock=lambda: next(times, 9.5))
    asked: list[int] = []
    for verb in ("load", "save"):
        monkeypatch.setattr(
            pool, verb, lambda keys, *_, within_ms: asked.append(within_ms) or [0] * len(keys)
        )
    assert load(one, KEYS[:1], [3]) == {3}
    times = iter([0.0])
    save(one, KEYS[:1], [3])
    assert asked == [500, 500]


def test_preempted_blocks_are_read_by_nobody_afterwards(
    worker: Any, pool: BlockPool, monkeypatch: Any
) -> None:
    begun, go, order = threading.Event(), threading.Event(), []

    def slow(keys: list[bytes], memory: Any, parents: Any, **_: Any) -> list[bool]:
        begun.set()
        assert go.wait(HANG_S)
        order.append("saved")
        return [True] * len(keys)

    monkeypatch.setattr(pool, "save", slow)
    one = worker(caches(9))
    one.save(Plan(saves=[Save("a", KEYS[:1], [0], None), Save("a", KEYS[1:2], [1], None)]))
    assert begun.wait(HANG_S)
    threading.Timer(0.01, go.set).start()
    one.preempted(["a", "unknown"])
    assert order == ["saved"]  # the second one never began
    assert one.poll(()).sent == set()
    assert one.poll({"a"}).sent == {"a"}  # it was aborted, and the engine waits


def test_saves_beyond_the_bound_are_dropped(worker: Any, pool: BlockPool, monkeypatch: Any) -> None:
    go = threading.Event()
    monkeypatch.setattr(vllm_transfer, "SAVES_WAITING_MAX", 1)
    monkeypatch.setattr(pool, "save", lambda keys, *_, **__: [go.wait(HANG_S)] * len(keys))
    one = worker(caches(9))
    for name in "ab":
        one.save(Plan(saves=[Save(name, KEYS[:3], [0, 1, 2], None)]))
    assert one.counts()["dropped_save_blocks"] == 3
    until(one, "sent", "b", {"a", "b"})  # its blocks are free at once
    go.set()
    until(one, "sent", "a")


def test_tensors_that_cannot_be_read_so_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"layer.0 has shape \(16, 2, 4, 8\), no axis of 17 blocks"):
        Tensors(caches(), 17)
    turned = KvTensor(np.zeros((BLOCKS, 4, 8), np.uint16)[:, :, ::2])
    with pytest.raises(InvalidArgument, match="not contiguous"):
        Tensors({"layer.0": turned}, BLOCKS)
    on_gpu = caches()
    on_gpu["layer.1"].device = type("D", (), {"type": "cuda"})  # type: ignore[assignment]
    with pytest.raises(InvalidArgument, match=r"layer\.1 is on cuda"):
        Tensors(on_gpu, BLOCKS)
    with pytest.raises(InvalidArgument, match="no KV cache"):
        Tensors({}, BLOCKS)
