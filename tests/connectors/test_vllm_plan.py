"""What vLLM's scheduler is promised, and what its workers are told: pure, over a set of keys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_client.connectors.vllm_plan import MATCH_KEPT_S, Ranks, Scheduled, SchedulerCore, rank_key

TOKENS = list(range(18))  # four full blocks of four, and two tokens


class World:
    def __init__(self, **settings: Any) -> None:
        self.keys: set[bytes] = set()
        self.asked = 0
        self.now = 0.0
        self.settings = {"prefix": b"p/", "block_tokens": 4, "ranks": Ranks(), **settings}

    def core(self, **settings: Any) -> SchedulerCore:
        return SchedulerCore(self.present, clock=lambda: self.now, **{**self.settings, **settings})

    def present(self, keys: list[bytes]) -> list[bool]:
        self.asked += 1
        return [key in self.keys for key in keys]

    def saved_by(self, core: SchedulerCore, request_id: str = "a", tokens: Any = TOKENS, **who: str) -> Any:
        """Let a request be computed by that engine, and its blocks of all ranks be in the pool."""
        core.track(request_id, tokens, **who)
        blocks = list(range(len(tokens) // 4 + 1))
        plan = core.plan([Scheduled(request_id, blocks, True, 0, len(tokens))])
        for save in plan.saves:
            for key in save.keys:
                self.keys.update(self.settings["ranks"].keys(key))
        return plan


@pytest.fixture
def world() -> World:
    return World()


def test_another_engine_finds_the_longest_prefix(world: World) -> None:
    world.saved_by(world.core())
    other = world.core()
    other.track("b", [*TOKENS[:10], 99, 99])
    assert other.matched_tokens("b", 0) == 8
    assert other.matched_tokens("b", 4) == 4
    assert other.matched_tokens("b", 8) == 0
    assert other.matched_tokens("unknown", 0) == 0


def test_one_token_is_always_computed(world: World) -> None:
    world.saved_by(world.core())
    other = world.core()
    other.track("b", TOKENS[:16])
    assert other.matched_tokens("b", 0) == 12


@pytest.mark.parametrize("who", [{"salt": "s"}, {"lora": "l"}])
def test_salt_and_lora_separate(world: World, who: dict[str, str]) -> None:
    world.saved_by(world.core())
    other = world.core()
    other.track("b", TOKENS, **who)
    assert other.matched_tokens("b", 0) == 0
    world.saved_by(world.core(), **who)
    other.track("c", TOKENS, **who)
    assert other.matched_tokens("c", 0) == 16


def test_identity_separates(world: World) -> None:
    world.saved_by(world.core())
    other = world.core(prefix=b"q/")
    other.track("b", TOKENS)
    assert other.matched_tokens("b", 0) == 0


def test_a_block_counts_when_every_rank_has_it() -> None:
    world = World(ranks=Ranks(tp=2, pp=2))
    core = world.core()
    plan = world.saved_by(core)
    core.track("b", TOKENS)
    assert core.matched_tokens("b", 0) == 16
    world.keys.discard(rank_key(plan.saves[0].keys[2], 1, 1))
    core.track("c", TOKENS)
    assert core.matched_tokens("c", 0) == 8


def test_chunks_of_a_prompt_are_saved_as_they_fill_blocks(world: World) -> None:
    core = world.core()
    core.track("a", TOKENS)
    first = core.plan([Scheduled("a", [7, 3], True, 0, 6)]).saves
    assert [(save.blocks, save.before) for save in first] == [([7], None)]
    second = core.plan([Scheduled("a", [9, 2, 5], False, 6, 12)]).saves
    assert [save.blocks for save in second] == [[3, 9, 2]]
    assert second[0].before == first[0].keys[0]
    # what is sampled is not saved
    assert core.plan([Scheduled("a", [], False, 18, 1)]).saves == []
    assert core.plan([Scheduled("a", [], False, 19, 1)]).saves == []


def test_what_was_loaded_is_not_saved(world: World) -> None:
    world.saved_by(world.core(), tokens=TOKENS[:9])
    core = world.core()
    core.track("b", TOKENS)
    assert core.matched_tokens("b", 0) == 8
    core.allocated("b", [4, 5, 6], 8)
    plan = core.plan([])
    assert [(load.request_id, load.blocks) for load in plan.loads] == [("b", [4, 5])]
    assert core.plan([]).loads == []
    core.ended(["b"], [])
    core.allocated("b", [4, 5, 6, 7, 8], 0)  # vLLM asks again when the load is over
    plan = core.plan([Scheduled("b", [4, 5, 6, 7, 8], True, 8, 10)])
    assert [save.blocks for save in plan.saves] == [[6, 7]]
    assert plan.loads == []


def test_fewer_tokens_than_promised_may_be_taken(world: World) -> None:
    world.saved_by(world.core())
    core = world.core()
    core.track("b", TOKENS)
    assert core.matched_tokens("b", 4) == 12
    core.allocated("b", [1, 2, 3, 4, 5], 8)
    [load] = core.plan([]).loads
    assert load.blocks == [2, 3]


def test_a_failed_block_is_never_promised_again_to_its_request(world: World) -> None:
    world.saved_by(world.core())
    core = world.core()
    core.track("b", TOKENS)
    assert core.matched_tokens("b", 0) == 16
    core.allocated("b", [11, 12, 13, 14], 16)
    core.plan([])
    core.ended(["b"], [13, 14])
    for _ in range(3):  # the master says for a while yet that it is there
        world.now += 2 * MATCH_KEPT_S
        assert core.matched_tokens("b", 0) == 8
    core.track("c", TOKENS)
    assert core.matched_tokens("c", 0) == 16
    # it is computed, and then saved
    plan = core.plan([Scheduled("b", [11, 12, 13, 14, 15], True, 8, 10)])
    assert [save.blocks for save in plan.saves] == [[13, 14]]


def test_failures_of_one_request_are_not_of_another(world: World) -> None:
    world.saved_by(world.core())
    core = world.core()
    for name, blocks in (("b", [1, 2, 3, 4]), ("c", [5, 6, 7, 8])):
        core.track(name, TOKENS)
        core.matched_tokens(name, 0)
        core.allocated(name, blocks, 16)
    core.ended(["b"], [1])
    core.ended(["c"], [])
    world.now += 2 * MATCH_KEPT_S
    assert (core.matched_tokens("b", 0), core.matched_tokens("c", 0)) == (0, 16)


def test_blocks_stay_while_they_may_be_read(world: World) -> None:
    core = world.core()
    world.saved_by(core, "a")
    core.track("b", TOKENS[:3])
    core.plan([Scheduled("b", [1], True, 0, 3)])
    assert core.finished("a")
    assert not core.finished("b")
    assert not core.finished("a")
    assert core.tracked() == {}


def test_the_engine_is_told_the_end_of_what_it_waits_for(world: World) -> None:
    """vLLM waits for each load that it was promised, and for each request of which `finished` was True."""
    core = world.core()
    world.saved_by(core, "a")
    core.track("b", TOKENS)
    assert core.matched_tokens("b", 0) == 16
    core.allocated("b", [1, 2, 3, 4], 16)
    assert core.finished("a")
    assert not core.finished("b")
    plan = core.plan([])
    assert ([load.request_id for load in plan.loads], plan.over) == (["b"], ["a"])
    assert core.plan([]).over == []


def test_a_preempted_request_needs_not_be_told_of(world: World) -> None:
    core = world.core()
    world.saved_by(core, "a")
    assert core.plan([], ["a", "unknown"]).preempted == ["a", "unknown"]
    assert not core.finished("a")


def test_a_resumed_request_saves_the_rest_from_its_new_blocks(world: World) -> None:
    core = world.core()
    core.track("a", TOKENS)
    core.plan([Scheduled("a", [1, 2], True, 0, 8)])
    core.plan([], ["a"])
    plan = core.plan([Scheduled("a", [5, 6, 7, 8, 9], True, 0, 18)])
    assert [save.blocks for save in plan.saves] == [[7, 8]]


def test_roles(world: World) -> None:
    producer, consumer = world.core(loads=False), world.core(saves=False)
    world.saved_by(producer)
    producer.track("b", TOKENS)
    consumer.track("b", TOKENS)
    assert (producer.matched_tokens("b", 0), consumer.matched_tokens("b", 0)) == (0, 16)
    assert consumer.plan([Scheduled("b", [1, 2, 3, 4, 5], True, 0, 18)]).saves == []


def test_a_request_that_waits_for_room_does_not_ask_at_every_step(world: World) -> None:
    world.saved_by(world.core())
    core = world.core()
    core.track("b", TOKENS)
    for _ in range(10):
        assert core.matched_tokens("b", 0) == 16
    assert world.asked == 1
    world.now += MATCH_KEPT_S
    core.matched_tokens("b", 0)
    assert world.asked == 2


@given(st.lists(st.integers(1, 7), min_size=1, max_size=12), st.integers(1, 40))
def test_every_full_block_is_saved_once_however_it_is_cut(chunks: list[int], length: int) -> None:
    world = World()
    core = world.core()
    core.track("a", list(range(length)))
    done, saved = 0, []
    for chunk in [*chunks, length]:
        count = min(chunk, length - done)
        blocks = list(range((done + 3) // 4, (done + count + 3) // 4))
        if count:
            for save in core.plan([Scheduled("a", blocks, done == 0, done, count)]).saves:
                saved += save.blocks
        done += count
    assert saved == list(range(length // 4))
