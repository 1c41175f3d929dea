"""prefix_aware: what counts as one prefix, where it sends, and what it never does."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from proxy.conftest import Stage
from proxy.stubs import MODEL, StubEngine, hangs

from mooncake_proxy.fleet import Instance
from mooncake_proxy.prefixes import (
    CHUNK_BYTES,
    CHUNKS_MAX,
    HOLDERS_MAX,
    KEYS_MAX,
    Affinity,
    Prefix,
    hashes_of,
    keys_function,
)
from mooncake_proxy.scheduling import PrefixAware
from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import InvalidArgument

PATH = "/v1/completions"


def words(seed: int, chunks: float = 4) -> str:
    return "".join(random.Random(seed).choices("abcdefgh ", k=int(chunks * CHUNK_BYTES)))


def completion(prompt: Any, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": prompt, **more}


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text} for text in texts], **more}


def shared(one: dict[str, Any], other: dict[str, Any]) -> int:
    """Chunks from the first on that are the same."""
    pairs = zip(hashes_of(one), hashes_of(other), strict=False)
    return next(
        (length for length, (a, b) in enumerate(pairs) if a != b), min(map(len, map(hashes_of, (one, other))))
    )


def test_equal_beginnings_have_equal_hashes_until_they_part() -> None:
    start = words(1, 3)
    one, other = completion(start + words(2)), completion(start + words(3))
    assert shared(one, other) == 3
    assert len(set(hashes_of(one))) == 7
    assert hashes_of(completion(start[:-1])) == hashes_of(one)[:2]
    assert hashes_of(completion("short")) == []


def test_a_chunk_counts_with_all_before_it() -> None:
    same = words(1, 2)
    one, other = (hashes_of(completion(words(seed, 1) + same)) for seed in (2, 3))
    assert set(one).isdisjoint(other)


@pytest.mark.parametrize(
    "difference", [{"model": "adapter"}, {"cache_salt": "tenant-2"}, {"tools": [{"name": "f"}]}]
)
def test_who_must_not_share_has_other_hashes(difference: dict[str, Any]) -> None:
    text = words(1)
    assert shared(completion(text), {**completion(text), **difference}) == 0


def test_what_does_not_touch_the_prompt_touches_no_hash() -> None:
    text = words(1)
    assert hashes_of(completion(text)) == hashes_of(completion(text, temperature=0.3, n=2, stream=True))


def test_a_longer_conversation_goes_on_from_the_shorter_one() -> None:
    first, second = words(1, 2.5), words(2, 3)
    assert shared(chat(first), chat(first, second)) == len(hashes_of(chat(first)))
    assert shared(chat("x" + first), chat(first)) == 0


def test_prompts_of_tokens_and_of_several_texts_have_hashes() -> None:
    tokens = list(range(5_000))
    assert shared(completion(tokens), completion([*tokens[:4_000], 7])) >= 15
    text = words(1)
    assert hashes_of(completion([text, "second"])) == hashes_of(completion(text))


@pytest.mark.parametrize("prompt", [None, 7, {}, [], [None], [[]], [{}], "\ud800" * 2_000, True])
def test_prompts_that_are_none_have_hashes_or_none_and_no_error(prompt: Any) -> None:
    hashes_of(completion(prompt))
    hashes_of({"messages": prompt})


def test_long_prompts_are_looked_at_up_to_the_bound() -> None:
    assert len(hashes_of(completion(words(1, CHUNKS_MAX * 3)))) == CHUNKS_MAX


def instances(count: int) -> list[Instance]:
    made = [Instance(Endpoint(f"host-{number}", 1)) for number in range(count)]
    for instance in made:
        instance.is_well = True
    return made


def test_a_prefix_returns_to_where_it_was() -> None:
    policy, three = PrefixAware(2.0, 1_000), instances(3)
    prompts = [Prefix(hashes_of(completion(words(seed)))) for seed in range(9)]
    first = [policy.choose(three, prompt) for prompt in prompts]
    for _ in range(3):
        assert [policy.choose(three, prompt) for prompt in prompts] == first
    assert len(set(first)) == 3


def test_the_longer_match_wins() -> None:
    policy, [one, other] = PrefixAware(2.0, 1_000), instances(2)
    start, long = words(1, 2), words(2, 4)
    policy.choose([one], Prefix(hashes_of(completion(start + words(3)))))
    policy.choose([other], Prefix(hashes_of(completion(start + long))))
    assert policy.choose([one, other], Prefix(hashes_of(completion(start + long + words(4))))) is other


@given(
    st.integers(2, 8),
    st.floats(1.0, 3.0),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7)), max_size=120),
)
def test_nobody_gets_more_than_the_bound_of_the_mean(
    count: int, bound: float, steps: list[tuple[int, int]]
) -> None:
    """Whatever prompts come, one hot prefix among them, and whichever requests end."""
    policy, all_of = PrefixAware(bound, 64), instances(count)
    prompts = [Prefix([bytes([seed])]) for seed in range(4)]
    for prompt, ends in steps:
        chosen = policy.choose(all_of, prompts[prompt])
        chosen.running += 1
        mean = sum(instance.running for instance in all_of) / count
        assert chosen.running <= math.ceil(bound * mean)
        if all_of[ends % count].running:
            all_of[ends % count].running -= 1


def test_a_hot_prefix_spreads_and_its_second_place_is_remembered() -> None:
    policy, two = PrefixAware(1.0, 100), instances(2)
    hot = Prefix([b"hot"])
    for _ in range(2):
        policy.choose(two, hot).running += 1
    assert [instance.running for instance in two] == [1, 1]
    assert policy.affinity.matches([b"hot"]) == {instance.name: 1 for instance in two}


def test_blocks_on_the_host_decide_where_nobody_was_asked_yet() -> None:
    policy, three = PrefixAware(2.0, 100), instances(3)
    prefix = Prefix([b"1"], {"host-1": 3, "host-2": 9})
    assert policy.choose(three, prefix) is three[2]
    assert policy.choose(three, Prefix([b"1"], {"host-1": 99})) is three[2], "its own cache is nearer"


def test_the_table_is_bounded_and_keeps_what_was_used_last() -> None:
    table = Affinity(100)
    for number in range(1_000):
        table.note([b"system prompt", b"%d" % number], "a")
    assert len(table) == 100
    assert table.matches([b"system prompt", b"999"]) == {"a": 2}
    assert table.matches([b"system prompt", b"0"]) == {"a": 1}
    for number in range(10):
        table.note([b"system prompt"], str(number))
    assert len(table.matches([b"system prompt"])) == HOLDERS_MAX


async def test_requests_of_one_conversation_go_to_one_instance(stage: Stage) -> None:
    prefill = [await stage.engine(f"p{number}") for number in range(3)]
    decode = [await stage.engine(f"d{number}") for number in range(2)]
    await stage.proxy(prefill, decode, scheduling="prefix_aware", prefix_load_bound=3.0)
    texts = [words(1)]
    for turn in range(4):
        await stage.post("/v1/chat/completions", chat(*texts))
        texts.append(words(turn + 2))
    assert sorted(len(engine.seen) for engine in prefill) == [0, 0, 4]
    assert sorted(len(engine.seen) for engine in decode) == [0, 4]
    for seed in range(100, 104):
        await stage.post(PATH, completion(words(seed)))
    assert min(len(engine.seen) for engine in prefill) >= 1


async def test_a_busy_instance_is_passed_over_for_its_own_prefix(stage: Stage) -> None:
    one, two = await stage.engine("one"), await stage.engine("two")
    await stage.proxy([], [one, two], scheduling="prefix_aware", prefix_load_bound=1.0)
    body = completion(words(1))
    assert (await stage.post(PATH, body)).status == 200
    busy, free = (one, two) if one.seen else (two, one)
    busy.answer = hangs
    stuck = asyncio.create_task(stage.post(PATH, body))
    await busy.until(lambda: len(busy.seen) == 2)
    assert (await stage.post(PATH, body)).json["by"] == free.name
    stuck.cancel()


def keys_of_words(path: str, fields: dict[str, Any]) -> list[str]:
    """A hook as an operator writes it."""
    return [f"block/{word}" for word in fields["prompt"].split()]


async def keys_later(path: str, fields: dict[str, Any]) -> list[str]:
    await asyncio.sleep(0)
    return keys_of_words(path, fields)


def keys_that_fail(path: str, fields: dict[str, Any]) -> list[str]:
    raise RuntimeError("no tokenizer")


class Master:
    """Tells where blocks are, in the form of mooncake_master's /batch_query_keys."""

    def __init__(self, places: dict[str, list[str]]) -> None:
        self.places = places
        self.asked: list[list[str]] = []
        self.answers = True

    async def start(self) -> Endpoint:
        app = web.Application()
        app.router.add_get("/batch_query_keys", self._query)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return Endpoint("127.0.0.1", self._runner.addresses[0][1])

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _query(self, request: web.Request) -> web.Response:
        keys = request.query["keys"].split(",")
        self.asked.append(keys)
        if not self.answers:
            await asyncio.sleep(60)
        data = {
            key: {
                "ok": key in self.places,
                "values": [{"transport_endpoint_": place} for place in self.places.get(key, [])],
            }
            for key in keys
        }
        return web.json_response({"success": True, "data": data})


@pytest.mark.parametrize("hook", ["keys_of_words", "keys_later"])
async def test_the_master_tells_whose_host_has_the_blocks(stage: Stage, hook: str) -> None:
    far = await stage.engine("far", known_as="localhost")
    near = await stage.engine("near")
    master = Master({"block/a": ["127.0.0.1:41001"], "block/b": ["127.0.0.1:41001", "10.0.0.9:1"]})
    endpoint = await master.start()
    await stage.proxy(
        [],
        [far, near],
        scheduling="prefix_aware",
        prefix_keys=f"tests.proxy.test_prefixes:{hook}",
        prefix_master=(endpoint,),
        prefix_timeout_ms=10_000,
    )
    for _ in range(3):
        assert (await stage.post(PATH, completion("a b c"))).json["by"] == "near"
    assert master.asked[0] == ["block/a", "block/b", "block/c"]
    await stage.post(PATH, completion(" ".join(map(str, range(1_000)))))
    assert len(master.asked[-1]) == KEYS_MAX
    await master.stop()


@pytest.mark.parametrize("trouble", ["silent", "gone", "hook fails", "nonsense"])
async def test_without_the_masters_answer_requests_are_served(stage: Stage, trouble: str) -> None:
    engine: StubEngine = await stage.engine()
    master = Master({"block/a": ["no endpoint"]})
    master.answers = trouble != "silent"
    endpoint = await master.start()
    if trouble == "gone":
        await master.stop()
    hook = "keys_that_fail" if trouble == "hook fails" else "keys_of_words"
    await stage.proxy(
        [],
        [engine],
        scheduling="prefix_aware",
        prefix_keys=f"tests.proxy.test_prefixes:{hook}",
        prefix_master=(endpoint,),
        prefix_timeout_ms=100,
    )
    assert (await stage.post(PATH, completion("a b"))).status == 200
    if trouble != "gone":
        await master.stop()


@pytest.mark.parametrize("name", ["no_such_module:f", "math", "math:no_such", "math:pi"])
def test_a_wrong_hook_is_named(name: str) -> None:
    with pytest.raises(InvalidArgument, match="--prefix_keys"):
        keys_function(name)
