"""A trace through pools of several sizes and policies, with the bounds beside them.

Owns what a run is and its figures; the state machine is driven by `_core.TraceReplay`, many requests a call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from mooncake_client.trace import Part, Trace
from mooncake_store import _core
from mooncake_store.errors import InvalidArgument
from mooncake_store.units import parse_size

POLICIES: Final = tuple(_core.eviction_policies())
"""The first is the default."""
RUNS_MAX: Final = 256
"""Sizes times policies of one call."""
CAPACITY_BLOCKS_MAX: Final = 1 << 32
BLOCK_BYTES_MAX: Final = 1 << 28
"""Far above any block of KV cache; with CAPACITY_BLOCKS_MAX it is 2^60 bytes."""
REQUESTS_A_CALL: Final = 256
"""Between two looks for Ctrl-C and moves of the bar: some milliseconds."""

Tell = Callable[[str, float], None]


@dataclass(frozen=True)
class Plan:
    capacities: tuple[int, ...]
    block_bytes: int
    policies: tuple[str, ...]


def plan(*, blocks: str, dram: str, ssd: str, block_size: str, policy: str) -> Plan:
    """From the command's options; raises InvalidArgument naming the one that is wrong."""
    if ssd:
        raise InvalidArgument(f"--ssd: {ssd!r}: there are no disk segments yet; leave it out")
    block_bytes = parse_size(block_size, field="--block_size")
    if not 1 <= block_bytes <= BLOCK_BYTES_MAX:
        raise InvalidArgument(f"--block_size: {block_bytes} is not in 1 ... {BLOCK_BYTES_MAX} bytes")
    if bool(blocks) == bool(dram):
        raise InvalidArgument("say how large the pool is, by either --blocks or --dram")
    capacities: tuple[int, ...]
    if dram:
        capacities = (parse_size(dram, field="--dram") // _core.range_bytes(block_bytes),)
    else:
        capacities = tuple(_count(part) for part in _parts(blocks))
    policies = tuple(_parts(policy)) or POLICIES[:1]
    for name in policies:
        if name not in POLICIES:
            raise InvalidArgument(f"--policy: {name!r} is none of {', '.join(POLICIES)}")
    for capacity in capacities:
        if not 1 <= capacity <= CAPACITY_BLOCKS_MAX:
            raise InvalidArgument(f"a pool of {capacity} blocks: it is 1 ... {CAPACITY_BLOCKS_MAX}")
    if len(capacities) * len(policies) > RUNS_MAX:
        raise InvalidArgument(f"{len(capacities)} sizes x {len(policies)} policies: at most {RUNS_MAX} runs")
    return Plan(tuple(dict.fromkeys(capacities)), block_bytes, tuple(dict.fromkeys(policies)))


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise InvalidArgument(f"--blocks: {text!r:.40} is no number of blocks, such as 1000,5000")
    return int(text)


@dataclass(frozen=True)
class Score:
    requests: int
    accesses: int
    hits: int
    prefix_hits: int

    @property
    def block_hit_rate(self) -> float:
        return self.hits / max(1, self.accesses)

    @property
    def prefix_hit_rate(self) -> float:
        return self.prefix_hits / max(1, self.accesses)

    def since(self, earlier: Score) -> Score:
        return Score(
            self.requests - earlier.requests,
            self.accesses - earlier.accesses,
            self.hits - earlier.hits,
            self.prefix_hits - earlier.prefix_hits,
        )


@dataclass(frozen=True)
class Halves:
    """Of the whole trace, and of the second half of its requests: the first one begins with an empty pool."""

    whole: Score
    second: Score


@dataclass(frozen=True)
class Run:
    policy: str
    capacity_blocks: int
    block_bytes: int
    found: Halves
    belady: Halves
    infinite: Halves
    accesses_a_second: float

    def as_json(self) -> dict[str, Any]:
        figures: dict[str, Any] = {
            "policy": self.policy,
            "capacity_blocks": self.capacity_blocks,
            "block_bytes": self.block_bytes,
            "requests": self.found.whole.requests,
            "accesses": self.found.whole.accesses,
            "block_hits": self.found.whole.hits,
            "prefix_hits": self.found.whole.prefix_hits,
        }
        for name, halves in (("", self.found), ("belady_", self.belady), ("infinite_", self.infinite)):
            for half, score in (("", halves.whole), ("second_half_", halves.second)):
                figures[f"{half}{name}block_hit_rate"] = score.block_hit_rate
                figures[f"{half}{name}prefix_hit_rate"] = score.prefix_hit_rate
        figures["accesses_per_second"] = round(self.accesses_a_second)
        return figures


def simulate(trace: Trace, wanted: Plan, tell: Tell) -> Iterator[Run]:
    """The runs, each as it is done: all policies of a size, then the next size."""
    infinite = _halves(trace, _bound(trace, 0))
    for capacity in wanted.capacities:
        belady = _halves(trace, _bound(trace, capacity))
        for policy in wanted.policies:
            began_s = time.process_time()
            pool = _pool(capacity, wanted.block_bytes, policy)
            found = _halves(trace, pool, partial(tell, f"{policy} {capacity}"))
            spent_s = max(time.process_time() - began_s, 1e-9)
            rate = found.whole.accesses / spent_s
            yield Run(policy, capacity, wanted.block_bytes, found, belady, infinite, rate)


RunPart = Callable[[Part], tuple[int, int, int, int]]


def _pool(capacity: int, block_bytes: int, policy: str) -> RunPart:
    pool = _core.TraceReplay(capacity, block_bytes, policy)
    return lambda part: pool.run(part.blocks, part.lengths, part.times_ms)


def _bound(trace: Trace, capacity: int) -> RunPart:
    bound = _core.TraceBound(trace.blocks, capacity)
    return lambda part: bound.run(part.blocks, part.lengths)


def _halves(trace: Trace, run: RunPart, tell: Callable[[float], None] = lambda _: None) -> Halves:
    first = whole = Score(0, 0, 0, 0)
    half = len(trace.lengths) // 2
    for part in trace.parts(REQUESTS_A_CALL, half):
        whole = Score(*run(part))
        if whole.requests == half:
            first = whole
        tell(whole.requests / len(trace.lengths))
    return Halves(whole, whole.since(first))
