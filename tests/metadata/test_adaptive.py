"""The default eviction policy: what it learns from who comes again, and what it never does."""

from __future__ import annotations

import random
from array import array

import pytest
from metadata.conftest import Make
from metadata.harness import NO_SPACE, NOT_FOUND, WITHOUT_HOLD, Harness

from mooncake_store import _core

Requests = list[list[int]]


def hit_rates(requests: Requests, capacity: int, policy: str) -> tuple[float, float]:
    """Of blocks, and of those with all before them there."""
    blocks = array("I", [block for one in requests for block in one])
    pool = _core.TraceReplay(capacity, 64, policy)
    times = array("Q", range(0, 100 * len(requests), 100))
    _, accesses, hits, prefix_hits = pool.run(blocks, array("I", map(len, requests)), times)
    pool.check_invariants()
    return hits / accesses, prefix_hits / accesses


def conversations(count: int, seed: int = 1) -> Requests:
    """Every third prompt begins a conversation that goes on after a while, a few blocks at a time; the others
    are never seen again."""
    draw = random.Random(seed)
    fresh = iter(range(1, 1 << 30))
    due: list[tuple[int, list[int]]] = []
    requests: Requests = []
    for turn in range(count):
        if due and due[0][0] <= turn:
            _, prompt = due.pop(0)
        else:
            prompt = [0, *(next(fresh) for _ in range(draw.randint(4, 40)))]
            if draw.random() < 0.67:
                requests.append(prompt)
                continue
        prompt = prompt + [next(fresh) for _ in range(draw.randint(1, 2))]
        requests.append([*prompt, next(fresh)])  # the last block is cut off where the prompt ends
        if draw.random() < 0.8:
            due.append((turn + draw.randint(40, 80), prompt))
            due.sort()
    return requests


def single(blocks: list[int]) -> Requests:
    return [[block] for block in blocks]


def zipf(count: int, keys: int, seed: int = 1) -> list[int]:
    weights = [1 / (index + 1) ** 0.9 for index in range(keys)]
    return random.Random(seed).choices(range(keys), weights, k=count)


def test_conversations_outlive_prompts_that_are_never_seen_again() -> None:
    requests = conversations(6_000)
    lru, _ = hit_rates(requests, 1_000, "lru")
    adaptive, prefix = hit_rates(requests, 1_000, "adaptive")
    assert adaptive > lru + 0.1
    assert prefix == adaptive


def test_a_scan_does_not_push_out_what_is_asked_for_again() -> None:
    hot = zipf(30_000, 5_000)
    requests: Requests = []
    for index, block in enumerate(hot):
        requests.append([block])
        if index % 10 == 0:
            requests.append([10_000 + 10 * index + offset for offset in range(10)])
    lru, _ = hit_rates(requests, 1_000, "lru")
    adaptive, _ = hit_rates(requests, 1_000, "adaptive")
    assert adaptive > lru + 0.05


@pytest.mark.parametrize(
    ("requests", "capacity"),
    [
        (single(zipf(40_000, 10_000)), 1_000),
        (single([index % 1_500 for index in range(30_000)]), 1_000),
        ([[20 * (index % 100) + block for block in range(20)] for index in range(2_000)], 1_000),
        (single([index % 900 for index in range(30_000)]), 1_000),
        (single([random.Random(7 + index).randrange(3_000) for index in range(40_000)]), 1_000),
        ([list(dict.fromkeys(zipf(16, 5_000, seed))) for seed in range(2_000)], 1_000),
        (conversations(2_000), 20_000),
    ],
    ids=["zipf", "loop", "loop of prompts", "loop that fits", "uniform", "unrelated keys", "ample"],
)
def test_no_workload_falls_below_lru(requests: Requests, capacity: int) -> None:
    lru = hit_rates(requests, capacity, "lru")
    adaptive = hit_rates(requests, capacity, "adaptive")
    assert adaptive[0] >= lru[0] - 0.002
    assert adaptive[1] >= lru[1] - 0.002


def press(pool: Harness, node: int, blocks: int = 1) -> None:
    """Somebody needs room for so many."""
    [grant] = pool.put_start(node, b"press", size=blocks * 64)
    assert grant.status == NO_SPACE
    pool.free_retired()


def there(pool: Harness, node: int, keys: list[bytes]) -> list[bytes]:
    found = pool.exists(node, *keys, flags=WITHOUT_HOLD)
    return [key for key, status in zip(keys, found, strict=True) if status != NOT_FOUND]


def test_a_prefix_goes_from_its_end(make: Make) -> None:
    pool = make(eviction_policy="adaptive", eviction_high_watermark_ratio=1.0, exists_hold_ms=0)
    node = pool.open()
    pool.mount(node, "a", 6 * 64)
    blocks = [b"block-%d" % index for index in range(6)]
    assert pool.exists(node, *blocks) == [NOT_FOUND] * 6
    pool.put(node, *blocks)
    press(pool, node, blocks=4)
    assert there(pool, node, blocks) == blocks[:2]


def test_what_was_asked_for_last_stays_while_nothing_is_learnt(make: Make) -> None:
    pool = make(eviction_policy="adaptive", eviction_high_watermark_ratio=1.0, exists_hold_ms=0)
    node = pool.open()
    pool.mount(node, "a", 4 * 64)
    keys = [b"a", b"b", b"c", b"d"]
    for key in keys:
        pool.put(node, key)
    pool.exists(node, b"a")
    press(pool, node)
    assert there(pool, node, keys) == [b"a", b"c", b"d"]


def test_history_takes_at_most_64_bytes_a_key_whatever_is_asked_for(make: Make) -> None:
    keys = 5_000
    pool = make(eviction_policy="adaptive", exists_hold_ms=0)
    node = pool.open()
    pool.mount(node, "a", 2 * keys * 64)
    empty = pool.stat("eviction_history_bytes")
    for first in range(0, keys, 1_000):
        pool.put(node, *(b"key-%d" % index for index in range(first, first + 1_000)))
    for first in range(0, 20_000, 1_000):
        pool.exists(node, *(b"none-%d" % index for index in range(first, first + 1_000)))
    taken = pool.stat("eviction_history_bytes") - empty
    assert 0 < taken <= 64 * keys
    assert 1_000 < pool.stat("eviction_history_entries") <= taken * 6 // 60 + 400


def test_history_of_a_large_pool_takes_less_of_each_key(make: Make) -> None:
    keys = 300_000
    pool = make(eviction_policy="adaptive", exists_hold_ms=0)
    node = pool.open()
    pool.mount(node, "a", 2 * keys * 64)
    pool.check_each_step = False
    for first in range(0, keys, 1_000):
        pool.put(node, *(b"key-%d" % index for index in range(first, first + 1_000)))
    for first in range(0, keys, 1_000):
        pool.exists(node, *(b"none-%d" % index for index in range(first, first + 1_000)))
    pool.machine.check_invariants()
    assert 65_536 * 60 // 2 < pool.stat("eviction_history_bytes") <= max(65_536, keys // 4) * 64


def test_the_policy_tells_what_it_expects() -> None:
    requests = conversations(6_000)
    blocks = array("I", [block for one in requests for block in one])
    pool = _core.TraceReplay(1_000, 64, "adaptive")
    lengths, times = array("I", map(len, requests)), array("Q", [0] * len(requests))
    _, accesses, hits, _ = pool.run(blocks, lengths, times)
    stats = pool.stats()
    reachable = (len(blocks) - len(set(blocks))) / accesses
    assert abs(stats["eviction_expected_hits_millionths"] / 1e6 - hits / accesses) < 0.1
    assert abs(stats["eviction_reachable_hits_millionths"] / 1e6 - reachable) < 0.1


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="'fifo'"):
        _core.Metadata(eviction_policy="fifo")
    with pytest.raises(ValueError, match="'fifo'"):
        _core.TraceReplay(4, 64, "fifo")
    with pytest.raises(ValueError, match="fifo"):
        _core.Master(lane_host="127.0.0.1", eviction_policy="fifo")
    assert _core.eviction_policies() == ["adaptive", "lru"]
