"""The two phases of a request, as client and engines see them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from proxy.conftest import Stage
from proxy.stubs import (
    MODEL,
    StubEngine,
    answers,
    completes,
    dies_in_the_stream,
    drops,
    event,
    hangs,
)

from mooncake_proxy.config import Secrets

PATHS = ("/v1/completions", "/v1/chat/completions")
PROMPT = {"model": MODEL, "prompt": "San Francisco is a"}


@pytest.mark.parametrize("path", PATHS)
async def test_prompt_is_prefilled_for_one_token_then_decoded_as_asked(stage: Stage, path: str) -> None:
    prefill, decode = await stage.engine("p"), await stage.engine("d")
    await stage.proxy([prefill], [decode])
    asked = {
        **PROMPT,
        "max_tokens": 1000,
        "max_completion_tokens": 1000,
        "min_tokens": 5,
        "n": 3,
        "best_of": 4,
        "logprobs": 2,
        "echo": True,
        "temperature": 0.5,
    }
    answer = await stage.post(path, asked)
    assert (answer.status, answer.json["by"]) == (200, "d")
    [first], [second] = prefill.seen, decode.seen
    assert first.path == second.path == path
    assert first.body["max_tokens"] == first.body["max_completion_tokens"] == 1
    assert first.body["stream"] is False
    assert first.body["prompt"] == PROMPT["prompt"]
    assert first.body["temperature"] == 0.5
    assert {"min_tokens", "n", "best_of", "logprobs", "echo"}.isdisjoint(first.body)
    assert second.body == asked


async def test_prefill_of_a_stream_is_none_and_has_no_stream_options(stage: Stage) -> None:
    prefill, decode = await stage.engine("p"), await stage.engine("d")
    await stage.proxy([prefill], [decode])
    asked = {**PROMPT, "stream": True, "stream_options": {"include_usage": True}}
    answer = await stage.post("/v1/completions", asked)
    assert answer.body == event("one") + event("two") + b"data: [DONE]\n\n"
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert prefill.seen[0].body["stream"] is False
    assert "stream_options" not in prefill.seen[0].body
    assert "max_completion_tokens" not in prefill.seen[0].body  # engines without it would refuse it
    assert decode.seen[0].body == asked


async def test_decode_gets_the_request_byte_for_byte(stage: Stage) -> None:
    prefill, decode = await stage.engine("p"), await stage.engine("d")
    await stage.proxy([prefill], [decode])
    raw = b'{"model" :"%s", "prompt":"\\u00e9\xc3\xa9", "seed": 1.0}' % MODEL.encode()
    kind = {"Content-Type": "application/json; charset=utf-8"}
    assert (await stage.post(PATHS[0], data=raw, headers=kind)).status == 200
    assert decode.seen[0].raw == raw


async def test_what_prefill_says_of_its_blocks_goes_to_decode(stage: Stage) -> None:
    """vLLM's connectors that send blocks from instance to instance; the store's says nothing."""
    told = {"do_remote_prefill": True, "remote_block_ids": [1, 2], "remote_host": "10.0.0.1"}

    async def answer(engine: StubEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"choices": [], "kv_transfer_params": told})

    prefill, decode = await stage.engine("p", answer=answer), await stage.engine("d")
    await stage.proxy([prefill], [decode])
    await stage.post(PATHS[0], PROMPT)
    assert prefill.seen[0].body["kv_transfer_params"]["do_remote_decode"] is True
    assert decode.seen[0].body == {**PROMPT, "kv_transfer_params": told}


@pytest.mark.parametrize("answer", [answers(500), answers(503), drops])
async def test_failed_prefill_is_tried_elsewhere(stage: Stage, answer: Any) -> None:
    ill, well = await stage.engine("ill", answer=answer), await stage.engine("well")
    decode = await stage.engine("d")
    await stage.proxy([ill, well], [decode])
    for _ in range(2):  # round robin begins at the ill one at least once
        assert (await stage.post(PATHS[0], PROMPT)).status == 200
    assert len(ill.seen) >= 1
    assert len(well.seen) == len(decode.seen) == 2


@pytest.mark.parametrize("answer", [answers(500), answers(400), answers(429), drops, hangs])
async def test_a_request_is_never_failed_by_prefill(stage: Stage, answer: Any) -> None:
    prefill, decode = await stage.engine("p", answer=answer), await stage.engine("d")
    await stage.proxy([prefill], [decode], prefill_timeout_ms=200)
    answer = await stage.post(PATHS[0], PROMPT)
    assert (answer.status, answer.json["by"]) == (200, "d")


async def test_without_a_prefill_instance_decode_computes_the_prompt(stage: Stage) -> None:
    prefill, decode = await stage.engine("p"), await stage.engine("d")
    await stage.proxy([prefill], [decode])
    await prefill.stop()
    assert (await stage.post(PATHS[0], PROMPT)).status == 200
    await stage.until(prefill.address, is_well=False)
    assert (await stage.post(PATHS[0], PROMPT)).status == 200
    assert await stage.metric('proxy_prefills_total{outcome="none"}') >= 1
    await prefill.start()


async def test_an_address_in_both_roles_is_asked_once(stage: Stage) -> None:
    both = await stage.engine("both")
    await stage.proxy([both], [both])
    assert (await stage.post(PATHS[0], PROMPT)).status == 200
    assert [seen.body for seen in both.seen] == [PROMPT]
    assert len(await stage.instances()) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429])
async def test_statuses_of_the_engine_are_kept(stage: Stage, status: int) -> None:
    decode = await stage.engine("d", answer=answers(status, "its own words"))
    await stage.proxy([], [decode])
    answer = await stage.post(PATHS[0], PROMPT)
    assert (answer.status, answer.error) == (status, "its own words")
    assert len(decode.seen) == 1


@pytest.mark.parametrize("answer", [answers(500), answers(503), drops])
async def test_decode_is_tried_elsewhere_before_the_first_byte(stage: Stage, answer: Any) -> None:
    ill, well = await stage.engine("ill", answer=answer), await stage.engine("well")
    await stage.proxy([], [ill, well])
    for _ in range(2):
        answer = await stage.post(PATHS[0], PROMPT)
        assert (answer.status, answer.json["by"]) == (200, "well")
    assert len(ill.seen) >= 1
    assert await stage.metric('proxy_retries_total{role="decode"}') >= 1


async def test_headers_without_a_first_byte_are_tried_elsewhere(stage: Stage) -> None:
    async def answer(engine: StubEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        assert request.transport is not None
        request.transport.close()
        return response

    ill, well = await stage.engine("ill", answer=answer), await stage.engine("well")
    await stage.proxy([], [ill, well])
    answer_of = [await stage.post(PATHS[0], {**PROMPT, "stream": True}) for _ in range(2)]
    assert [answer.body[-8:] for answer in answer_of] == [b"[DONE]\n\n"] * 2


async def test_attempts_are_bounded_and_the_last_answer_is_the_engines(stage: Stage) -> None:
    engines = [await stage.engine(str(number), answer=answers(500, "poison")) for number in range(3)]
    await stage.proxy([], engines, attempts_max=2)
    answer = await stage.post(PATHS[0], PROMPT)
    assert (answer.status, answer.error) == (500, "poison")
    assert sum(len(engine.seen) for engine in engines) == 2


async def test_nobody_answering_is_502_with_the_cause(stage: Stage) -> None:
    decode = await stage.engine("d", answer=drops)
    await stage.proxy([], [decode])
    answer = await stage.post(PATHS[0], PROMPT)
    text = answer.error
    assert answer.status == 502
    assert decode.address in text
    assert "closed the connection without an answer" in text


async def test_a_stream_that_dies_is_broken_for_the_client_too(stage: Stage) -> None:
    decode = await stage.engine("d", answer=dies_in_the_stream)
    await stage.proxy([], [decode])
    got = b""
    async with stage.client.post(stage.url(PATHS[0]), json={**PROMPT, "stream": True}) as answer:
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):  # noqa: PT012
            async for part in answer.content.iter_any():
                got += part
    first, told, rest = got.split(b"\n\n")
    assert first + b"\n\n" == event("one")
    assert "broke off its answer" in json.loads(told.removeprefix(b"data: "))["error"]["message"]
    assert rest == b""
    assert await stage.metric("proxy_broken_streams_total") == 1


async def test_events_reach_the_client_one_by_one(stage: Stage) -> None:
    """The engine sends the second only when the client has the first."""
    client_has_one = asyncio.Event()

    async def answer(engine: StubEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event("one"))
        await client_has_one.wait()
        await response.write(event("two"))
        return response

    decode = await stage.engine("d", answer=answer)
    await stage.proxy([], [decode])
    async with stage.client.post(stage.url(PATHS[1]), json={**PROMPT, "stream": True}) as got:
        assert await got.content.readany() == event("one")
        client_has_one.set()
        assert await got.content.read() == event("two")


@pytest.mark.parametrize("phase", ["prefill", "decode", "stream"])
async def test_client_that_leaves_ends_the_request_at_the_engine(stage: Stage, phase: str) -> None:
    async def answer(engine: StubEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event("one"))
        return await hangs(engine, request, body)

    prefill = await stage.engine("p", answer=hangs if phase == "prefill" else completes)
    decode = await stage.engine("d", answer=answer if phase == "stream" else hangs)
    await stage.proxy([prefill], [decode])
    engine = prefill if phase == "prefill" else decode
    if phase == "stream":
        async with stage.client.post(stage.url(PATHS[0]), json={**PROMPT, "stream": True}) as got:
            await got.content.readany()
            got.close()
    else:
        request = asyncio.create_task(stage.post(PATHS[0], PROMPT))
        await engine.until(lambda: len(engine.seen) == 1)
        request.cancel()
    await engine.until(lambda: engine.cancelled == 1)
    await stage.until(engine.address, requests_running=0)
    assert await stage.metric("proxy_clients_left_total") == 1
    assert await stage.metric("proxy_requests_running") == 0
    assert len(decode.seen) == (0 if phase == "prefill" else 1)


async def test_silent_decode_ends_with_504_that_names_the_setting(stage: Stage) -> None:
    decode = await stage.engine("d", answer=hangs)
    await stage.proxy([], [decode], first_byte_timeout_ms=100)
    answer = await stage.post(PATHS[0], {**PROMPT, "stream": True})
    assert answer.status == 504
    assert "--first_byte_timeout" in answer.error
    await decode.until(lambda: decode.cancelled == 1)


async def test_a_stream_that_stalls_is_broken_off(stage: Stage) -> None:
    async def answer(engine: StubEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event("one"))
        return await hangs(engine, request, body)

    decode = await stage.engine("d", answer=answer)
    await stage.proxy([], [decode], stall_timeout_ms=100)
    async with stage.client.post(stage.url(PATHS[0]), json={**PROMPT, "stream": True}) as got:
        with pytest.raises(aiohttp.ClientPayloadError):
            await got.read()
    await decode.until(lambda: decode.cancelled == 1)


async def test_a_client_that_takes_nothing_is_cut_off(stage: Stage) -> None:
    """Its answer would else hold an engine, and a buffer here, for as long as it likes."""

    async def answer(engine: StubEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65_536)

    decode = await stage.engine("d", answer=answer)
    await stage.proxy([], [decode], stall_timeout_ms=100)
    assert stage.daemon is not None
    body = json.dumps({**PROMPT, "stream": True}).encode()
    head = f"POST {PATHS[0]} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    _, writer = await asyncio.open_connection("127.0.0.1", stage.daemon.port, limit=1)
    writer.write(head + body)
    await decode.until(lambda: decode.cancelled == 1)
    await stage.until(decode.address, requests_running=0)
    assert await stage.metric("proxy_clients_left_total") == 1
    writer.transport.abort()


async def test_headers_that_go_on_and_those_that_do_not(stage: Stage) -> None:
    async def answer(engine: StubEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        headers = {"X-Engine": "yes", "Keep-Alive": "timeout=5", "Set-Cookie": "a=b", "X-Request-Id": "other"}
        return web.json_response({}, headers=headers)

    prefill, decode = await stage.engine("p", answer=answer), await stage.engine("d", answer=answer)
    decode.known_as = "localhost"  # of bare addresses no client keeps cookies
    await stage.proxy([prefill], [decode])
    sent = {
        "Authorization": "Bearer client",
        "X-Request-Id": "req-7",
        "X-Tenant": "t",
        "X-API-Key": "secret",
        "Connection": "close, X-Hop",
        "X-Hop": "1",
        "TE": "trailers",
        "Proxy-Authorization": "Basic x",
    }
    answer_got = await stage.post(PATHS[0], PROMPT, headers=sent)
    for engine in (prefill, decode):
        got = engine.seen[0].headers
        assert got["Authorization"] == "Bearer client"
        assert got["X-Request-Id"] == "req-7"
        assert got["X-Tenant"] == "t"
        assert {"X-API-Key", "X-Hop", "TE", "Proxy-Authorization"}.isdisjoint(got)
        assert got["Host"] == engine.address
    assert answer_got.headers["X-Engine"] == "yes"
    assert answer_got.headers["X-Request-Id"] == "req-7"
    assert "Keep-Alive" not in answer_got.headers
    again = await stage.post(PATHS[0], PROMPT, headers={"X-Request-Id": "no blanks"})
    assert "Cookie" not in decode.seen[1].headers, "one client's cookie went to the next one's request"
    assert len(again.headers["X-Request-Id"]) == 32
    assert decode.seen[1].headers["X-Request-Id"] == again.headers["X-Request-Id"]


async def test_key_of_the_environment_is_for_clients_without_one(stage: Stage) -> None:
    decode = await stage.engine("d")
    await stage.proxy([], [decode], secrets=Secrets(upstream_api_key="house"))
    await stage.post(PATHS[0], PROMPT)
    await stage.post(PATHS[0], PROMPT, headers={"Authorization": "Bearer own"})
    assert [seen.headers["Authorization"] for seen in decode.seen] == ["Bearer house", "Bearer own"]


async def test_redirects_of_an_engine_are_not_followed(stage: Stage) -> None:
    async def answer(engine: StubEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": other.address})

    other, decode = await stage.engine("other"), await stage.engine("d", answer=answer)
    await stage.proxy([], [decode])
    assert (await stage.post(PATHS[0], PROMPT, allow_redirects=False)).status == 307
    assert other.seen == []


async def test_long_answers_come_whole(stage: Stage) -> None:
    text = "x" * (3 << 20)

    async def answer(engine: StubEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"text": text})

    decode = await stage.engine("d", answer=answer)
    await stage.proxy([], [decode])
    answer_got = await stage.post(PATHS[0], PROMPT)
    assert answer_got.json["text"] == text
    assert int(answer_got.headers["Content-Length"]) > len(text)


async def test_round_robin_takes_turns_in_both_roles(stage: Stage) -> None:
    prefill = [await stage.engine(f"p{number}") for number in range(2)]
    decode = [await stage.engine(f"d{number}") for number in range(3)]
    await stage.proxy(prefill, decode)
    for _ in range(6):
        await stage.post(PATHS[0], PROMPT)
    assert [len(engine.seen) for engine in prefill + decode] == [3, 3, 2, 2, 2]


async def test_least_loaded_leaves_the_busy_one_alone(stage: Stage) -> None:
    busy, free = await stage.engine("busy", answer=hangs), await stage.engine("free")
    await stage.proxy([], [busy, free], scheduling="least_loaded")
    stuck = asyncio.create_task(stage.post(PATHS[0], PROMPT))
    await busy.until(lambda: len(busy.seen) == 1)
    for _ in range(4):
        assert (await stage.post(PATHS[0], PROMPT)).status == 200
    assert (len(busy.seen), len(free.seen)) == (1, 4)
    stuck.cancel()


async def test_an_instance_at_its_limit_is_left_to_others_and_503_when_there_are_none(stage: Stage) -> None:
    busy = await stage.engine("busy", answer=hangs)
    await stage.proxy([], [busy], instance_requests_max=1)
    stuck = asyncio.create_task(stage.post(PATHS[0], PROMPT))
    await busy.until(lambda: len(busy.seen) == 1)
    answer = await stage.post(PATHS[0], PROMPT)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert "--instance_requests_max" in answer.error
    stuck.cancel()
