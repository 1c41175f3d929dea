"""Tensors on a GPU are put and read in place; needs torch and a CUDA device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import pytest

from mooncake_client import Store

if "torch" not in sys.modules:
    pytest.importorskip("torch", reason="tensors on a GPU: torch is not installed", exc_type=ImportError)
import torch

if not torch.cuda.is_available():
    pytest.skip("tensors on a GPU: this machine has no CUDA device", allow_module_level=True)

HANG_S = 120


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store.embedded("512mb") as store:
        yield store


def random_on(device: str, *shape: int, dtype: Any = torch.float16) -> Any:
    return torch.randn(*shape, device=device).to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int8, torch.bool, torch.complex64])
def test_a_tensor_of_the_gpu_comes_back(store: Store, dtype: Any) -> None:
    value = (torch.randn(3, 5, 7, device="cuda") * 50).to(dtype)
    assert store.put(f"one-{dtype}", value) == "stored"
    assert torch.equal(store.get_tensor(f"one-{dtype}"), value.cpu())
    target = torch.zeros_like(value)
    assert store.get_into(f"one-{dtype}", target) == value.nbytes
    assert torch.equal(target, value)


def test_batches_larger_than_the_slabs_and_values_of_both_sides(store: Store) -> None:
    kinds = ["cuda", "cpu", "cuda", "cuda"]
    values = [random_on(kinds[i % 4], 1 + i * 37_000) for i in range(40)]  # 2 B to 2.9 MB, 57 MB in all
    values[7] = random_on("cuda", 12 << 20)  # alone above a slab
    keys = [f"mixed-{i}" for i in range(len(values))]
    assert store.put_many(keys, values) == ["stored"] * len(keys)
    for device in ("cuda", "cpu"):
        targets = [torch.zeros(value.shape, dtype=value.dtype, device=device) for value in values]
        assert store.get_into_many(keys, targets) == [value.nbytes for value in values]
        assert all(torch.equal(t.cpu(), v.cpu()) for t, v in zip(targets, values, strict=True))


def test_kernels_that_are_queued_come_first(store: Store) -> None:
    value = torch.zeros(1 << 20, device="cuda")
    torch.cuda._sleep(200_000_000)  # the value is made long after this returns
    value.fill_(7)
    assert store.put("queued", value) == "stored"
    assert torch.equal(store.get_tensor("queued"), torch.full((1 << 20,), 7.0))
    target = torch.zeros_like(value)
    torch.cuda._sleep(200_000_000)
    target.fill_(1)
    assert store.get_into("queued", target) == target.nbytes
    assert bool((target == 7).all())


def test_views_and_gradients(store: Store) -> None:
    base = torch.randn(64, 64, device="cuda", requires_grad=True)
    assert store.put("view", base.t()[3:9, ::2]) == "stored"
    assert torch.equal(store.get_tensor("view"), base.detach().t()[3:9, ::2].cpu())
    assert store.put("empty", torch.empty(0, 3, device="cuda")) == "stored"
    assert store.get_tensor("empty").shape == (0, 3)


def test_a_miss_leaves_its_target_and_the_others_are_read(store: Store) -> None:
    store.put("there", torch.ones(100, device="cuda"))
    targets = [torch.zeros(100, device="cuda") for _ in range(2)]
    assert store.get_into_many(["there", "not there"], targets) == [400, None]
    assert bool((targets[0] == 1).all())
    assert bool((targets[1] == 0).all())


def test_several_threads_at_once(store: Store) -> None:
    def work(number: int) -> bool:
        keys = [f"thread-{number}-{i}" for i in range(24)]
        values = [torch.full((1 << 18,), float(number * 100 + i), device="cuda") for i in range(24)]
        store.put_many(keys, values)
        targets = [torch.zeros_like(value) for value in values]
        store.get_into_many(keys, targets)
        return all(torch.equal(t, v) for t, v in zip(targets, values, strict=True))

    with futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4), timeout=HANG_S))
