"""The HiCache backend: pages come back as they were, and only to who has the same cache."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from connectors.stand_ins import HostPool, Tensor, sglang_config

from mooncake_client import Store
from mooncake_client.connectors.block_pool import BlockPool
from mooncake_store.errors import InvalidArgument

PAGES = ["aa", "bb", "cc"]


@pytest.fixture
def backend(connector_module: Any, pool: BlockPool) -> Any:
    """Makes backends of one pool: (backend, its pages of memory)."""
    [module] = connector_module("sglang", "sglang")

    def make(host: HostPool | None = None, **config: Any) -> Any:
        made = module.MooncakeHiCache(sglang_config(**config), {}, pool=pool)
        made.register_mem_pool_host(host or HostPool(8))
        return made

    return make


def tokens(*pages: int) -> Any:
    return np.concatenate([np.arange(4 * page, 4 * page + 4) for page in pages])


def filled(seed: int) -> HostPool:
    host = HostPool(8)
    host.memory[:] = np.random.default_rng(seed).integers(0, 256, host.memory.shape, np.uint8)
    return host


def test_pages_come_back_to_other_places_of_another_pool(backend: Any) -> None:
    source, target = filled(1), HostPool(8)
    assert backend(source).batch_set_v1(PAGES, tokens(5, 0, 2)) == [True] * 3
    reader = backend(target)
    assert reader.batch_exists([*PAGES, "dd", "aa"]) == 3
    assert reader.batch_get_v1([*PAGES, "dd"], tokens(1, 7, 3, 0)) == [True, True, True, False]
    for there, here in ((5, 1), (0, 7), (2, 3)):
        assert (source.memory[:, :, there] == target.memory[:, :, here]).all()
    assert not target.memory[:, :, [2, 4, 5, 6]].any()


def test_tensors_of_the_caller_are_filled(backend: Any) -> None:
    one = backend()
    rows = np.arange(64, dtype=np.uint8).reshape(8, 8)
    turned = rows.T  # not contiguous: stored as it reads
    assert one.batch_set(["x", "y"], [Tensor(rows), Tensor(turned)])
    targets = [Tensor(np.zeros((8, 8), np.uint8)) for _ in range(3)]
    found = one.batch_get(["x", "y", "z"], targets)
    assert found[:2] == targets[:2]
    assert found[2] is None
    assert (targets[0].array == rows).all()
    assert (targets[1].array == turned).all()
    assert one.exists("x")
    assert not one.exists("z")


@pytest.mark.parametrize(
    "changes",
    [
        {"model_name": "other"},
        {"tp_rank": 1},
        {"tp_size": 4},
        {"pp_size": 2},
        {"extra_config": {"extra_backend_tag": "tenant"}},
        {"is_mla_model": True},
    ],
)
def test_only_the_same_cache_finds_a_page(backend: Any, changes: dict[str, Any]) -> None:
    assert backend(filled(2)).batch_set_v1(PAGES, tokens(0, 1, 2)) == [True] * 3
    assert backend(**changes).batch_exists(PAGES) == 0
    assert backend().batch_exists(PAGES) == 3


@pytest.mark.parametrize(("name", "value"), [("dtype", "float8"), ("layout", "page_first"), ("page_size", 8)])
def test_another_form_of_pages_is_another_cache(backend: Any, name: str, value: Any) -> None:
    assert backend(filled(3)).batch_set_v1(PAGES, tokens(0, 1, 2)) == [True] * 3
    host = HostPool(8)
    setattr(host, name, value)
    assert backend(host).batch_exists(PAGES) == 0


def test_ranks_of_mla_share_their_pages(backend: Any) -> None:
    assert backend(filled(4), is_mla_model=True).batch_set_v1(PAGES, tokens(0, 1, 2)) == [True] * 3
    assert backend(is_mla_model=True, tp_rank=1).batch_exists(PAGES) == 3


def test_a_page_of_another_size_is_no_page(backend: Any) -> None:
    one = backend()
    assert one.batch_set(["x"], [Tensor(np.ones(10, np.uint8))])
    assert one.batch_get(["x"], [Tensor(np.zeros(20, np.uint8))]) == [None]
    assert one.batch_get(["x"], [Tensor(np.zeros(5, np.uint8))]) == [None]


def test_a_store_that_is_gone_is_a_miss(backend: Any, store: Store) -> None:
    one = backend(filled(5))
    assert one.batch_set_v1(PAGES, tokens(0, 1, 2)) == [True] * 3
    store.close()
    assert one.batch_exists(PAGES) == 0
    assert one.batch_get_v1(PAGES, tokens(0, 1, 2)) == [False] * 3
    assert one.batch_set_v1(PAGES, tokens(0, 1, 2)) == [False] * 3


def test_clear_ends_the_pages_of_this_cache_alone(backend: Any) -> None:
    one, other = backend(filled(6)), backend(filled(6), tp_rank=1)
    for each in (one, other):
        assert each.batch_set_v1(PAGES, tokens(0, 1, 2)) == [True] * 3
    one.clear()
    assert (one.batch_exists(PAGES), other.batch_exists(PAGES)) == (0, 3)


def test_pages_follow_the_page_before(backend: Any, pool: BlockPool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(
        pool, "save", lambda keys, memory, parents: seen.append((keys, parents)) or [True] * 2
    )
    one = backend()
    one.batch_set_v1(["b", "c"], tokens(0, 1), SimpleNamespace(prefix_keys=["z", "a"]))
    [(keys, parents)] = seen
    assert [key[-2:] for key in keys] == [b"/b", b"/c"]
    assert [parent[-2:] for parent in parents] == [b"/a", b"/b"]


def test_what_cannot_work_is_refused(backend: Any, connector_module: Any, monkeypatch: Any) -> None:
    with pytest.raises(InvalidArgument, match="pool mamba"):
        backend().register_mem_host_pool_v2(None, "mamba")
    with pytest.raises(InvalidArgument, match="tp_lcm_size"):
        backend(should_split_heads=True)
    [module] = connector_module("sglang", "sglang")
    monkeypatch.setenv("MOONCAKE_MASTER", "127.0.0.1:1")
    config = sglang_config(extra_config={"backend_name": "x", "globl_segment_size": 1})
    with pytest.raises(InvalidArgument, match="'globl_segment_size'; did you mean 'global_segment_size'"):
        module.MooncakeHiCache(config, {})
