"""What vLLM's scheduler decides for its workers: which blocks to load, which to save, under which keys.

Pure: the pool is a function that says which keys are there, time is a function; knows no class of vLLM's. One
thread, the scheduler's.

A key is the engines' identity, the block's hash (of its tokens and those before, salt and LoRA; our own, so
that no PYTHONHASHSEED matters), and the rank that holds this part of the block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mooncake_store.errors import InvalidArgument
from mooncake_store.keys import BlockIdentity, block_keys

MATCH_KEPT_S: Final = 1.0
"""A request that waits for room is asked about at every step; the pool is asked again after this."""


@dataclass(frozen=True)
class Ranks:
    """The workers that hold a part of each block."""

    tp: int = 1
    pp: int = 1

    def keys(self, block: bytes) -> list[bytes]:
        """One block's keys, of all ranks."""
        return [rank_key(block, tp, pp) for pp in range(self.pp) for tp in range(self.tp)]


def rank_key(block: bytes, tp_rank: int, pp_rank: int) -> bytes:
    return block + f"/{tp_rank}.{pp_rank}".encode("ascii")


@dataclass
class Load:
    """Blocks of one request, in the order of its tokens, and where they go."""

    request_id: str
    keys: list[bytes]
    blocks: list[int]


@dataclass
class Save:
    """The same, to be stored. before: the key of the block before the first; None: it is the first."""

    request_id: str
    keys: list[bytes]
    blocks: list[int]
    before: bytes | None


@dataclass
class Plan:
    """Of one step.

    preempted: requests whose blocks are others' from this step on.
    over: requests that have ended and whose blocks the engine keeps until every worker says `sent`. These and
        no others: the engine ends itself over a request that it does not wait for.
    """

    loads: list[Load] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)


@dataclass
class Scheduled:
    """A request in a step: its blocks (all, or those that came), and its tokens that the step computes."""

    request_id: str
    blocks: Sequence[int]
    blocks_are_all: bool
    computed_tokens: int
    scheduled_tokens: int


@dataclass
class _Request:
    """saved: blocks that are stored, or planned to be. limit: blocks that may still be promised."""

    keys: list[bytes]
    limit: int
    saved: int = 0
    has_saves: bool = False
    blocks: list[int] = field(default_factory=list)
    loading: dict[int, int] = field(default_factory=dict)
    asked_from: int = 0
    matched: int = 0
    matched_at: float | None = None


class SchedulerCore:
    """prefix: the engines' identity. present: which keys are in the pool. loads, saves: the engine's role."""

    def __init__(
        self,
        present: Callable[[list[bytes]], list[bool]],
        *,
        prefix: bytes,
        block_tokens: int,
        ranks: Ranks,
        loads: bool = True,
        saves: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if block_tokens < 1:
            raise InvalidArgument(f"block_size is {block_tokens}; a block holds at least one token")
        self._present = present
        self._prefix = prefix
        self._block_tokens = block_tokens
        self._ranks = ranks
        self._loads, self._saves = loads, saves
        self._clock = clock
        self._requests: dict[str, _Request] = {}
        self._new_loads: dict[str, Load] = {}
        self._over: list[str] = []

    def track(self, request_id: str, tokens: Sequence[int], *, salt: str = "", lora: str = "") -> None:
        """Know a request by its prompt, once; salt and lora separate who must not share."""
        if request_id not in self._requests:
            identity = BlockIdentity(model="vllm", dtype="vllm", salt=salt, lora=lora)
            hashes = block_keys(tokens, self._block_tokens, identity=identity)
            keys = [self._prefix + one for one in hashes]
            # At least one token is computed, so that there is something to sample from.
            self._requests[request_id] = _Request(keys, limit=(len(tokens) - 1) // self._block_tokens)

    def matched_tokens(self, request_id: str, computed_tokens: int) -> int:
        """How many tokens beyond those computed here can be loaded: whole blocks that are there now."""
        request = self._requests.get(request_id)
        start = computed_tokens // self._block_tokens
        if (
            request is None
            or not self._loads
            or computed_tokens % self._block_tokens
            or start >= request.limit
        ):
            return 0
        request.asked_from = start
        now = self._clock()
        if request.matched_at is None or now >= request.matched_at + MATCH_KEPT_S or request.matched < start:
            request.matched = start + self._ask(request.keys[start : request.limit])
            request.matched_at = now
        return (min(request.matched, request.limit) - start) * self._block_tokens

    def _ask(self, blocks: list[bytes]) -> int:
        """How many blocks are there, with all their ranks, before the first that is not."""
        by_block = [self._ranks.keys(block) for block in blocks]
        found = self._present([key for keys in by_block for key in keys])
        if False not in found:
            return len(blocks)
        return found.index(False) // len(by_block[0])

    def allocated(self, request_id: str, blocks: Sequence[int], external_tokens: int) -> None:
        """vLLM gave the request its blocks; those after its own computed ones get external_tokens loaded.

        blocks: all of the request's. The load is part of the next plan.
        """
        request = self._requests.get(request_id)
        if request is None or external_tokens <= 0:
            return
        start = request.asked_from
        end, rest = divmod(external_tokens, self._block_tokens)
        end += start
        assert rest == 0, f"{external_tokens} tokens of {request_id} are not whole blocks"
        assert end <= min(request.matched, len(blocks)), f"{request_id}: block {end} was not matched"
        wanted = list(blocks[start:end])
        request.loading = {block: index for index, block in enumerate(wanted, start=start)}
        request.saved = max(request.saved, end)
        request.matched_at = None
        self._new_loads[request_id] = Load(request_id, request.keys[start:end], wanted)

    def plan(self, scheduled: Iterable[Scheduled], preempted: Iterable[str] = ()) -> Plan:
        """What the workers do with this step."""
        plan = Plan(list(self._new_loads.values()), preempted=list(preempted), over=self._over)
        self._new_loads.clear()
        self._over = []
        for request_id in plan.preempted:
            if request_id in self._requests:
                self._requests[request_id].has_saves = False
                self._requests[request_id].blocks = []
        for one in scheduled:
            request = self._requests.get(one.request_id)
            if request is not None:
                request.blocks = list(one.blocks) if one.blocks_are_all else [*request.blocks, *one.blocks]
                if self._saves:
                    self._plan_save(plan, one, request)
        return plan

    def _plan_save(self, plan: Plan, one: Scheduled, request: _Request) -> None:
        # Of the prompt alone, whose tokens are certain; those sampled may yet be rejected.
        full = (one.computed_tokens + one.scheduled_tokens) // self._block_tokens
        end = min(full, len(request.keys), len(request.blocks))
        start = request.saved
        if end <= start:
            return
        plan.saves.append(
            Save(
                one.request_id,
                request.keys[start:end],
                request.blocks[start:end],
                request.keys[start - 1] if start else None,
            )
        )
        request.saved = end
        request.has_saves = True

    def ended(self, received: Iterable[str], failed_blocks: Iterable[int]) -> None:
        """What the workers told of a step. A block that failed, and those after it, are promised no more to
        the request that wanted them, however often it is scheduled again.
        """
        failed = set(failed_blocks)
        if failed:
            for request in self._requests.values():
                indices = [index for block, index in request.loading.items() if block in failed]
                if indices:
                    request.limit = min(request.limit, *indices)
                    request.saved = min(request.saved, *indices)
                    request.matched_at = None
        for request_id in received:
            if request_id in self._requests:
                self._requests[request_id].loading = {}

    def finished(self, request_id: str) -> bool:
        """The request is over. True: workers may still read its blocks; they say when they do no more.

        A load that it waits for goes on, for the engine waits for its end.
        """
        request = self._requests.pop(request_id, None)
        if request is None or not request.has_saves:
            return False
        self._over.append(request_id)
        return True

    def tracked(self) -> Mapping[str, int]:
        """Requests that are known, and how many of their blocks are stored or planned to be."""
        return {request_id: request.saved for request_id, request in self._requests.items()}
