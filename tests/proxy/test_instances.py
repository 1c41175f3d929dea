"""Health, the rotation, and instances that come and go while the proxy runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from proxy.conftest import Got, Stage
from proxy.stubs import HANG_S, KEY, MODEL, StubEngine, answers, drops

from mooncake_proxy.config import Secrets

PATH = "/v1/completions"
PROMPT = {"model": MODEL, "prompt": "Hello"}


async def change(stage: Stage, verb: str, role: Any, instance: Any, *, key: str | None = KEY) -> Got:
    headers = {} if key is None else {"X-API-Key": key}
    return await stage.post(f"/instances/{verb}", {"type": role, "instance": instance}, headers=headers)


async def test_instance_that_dies_leaves_and_returns_when_well(stage: Stage) -> None:
    one, two = await stage.engine("one"), await stage.engine("two")
    await stage.proxy([], [one, two])
    await one.stop()
    for _ in range(4):
        assert (await stage.post(PATH, PROMPT)).json["by"] == "two"
    assert (await stage.instances())[one.address]["cause"] == "connection refused"
    await one.start()
    await stage.until(one.address, is_well=True, cause="")
    assert {(await stage.post(PATH, PROMPT)).json["by"] for _ in range(2)} == {"one", "two"}


async def test_one_broken_connection_is_no_reason_to_leave(stage: Stage) -> None:
    """Two in a row are, until a probe finds the instance well."""
    ill = await stage.engine("ill", answer=drops)
    await stage.proxy([], [ill], probe_interval_ms=3_600_000)
    assert (await stage.post(PATH, PROMPT)).status == 502
    told = (await stage.instances())[ill.address]
    assert (told["failures"], told["is_well"]) == (1, True)


async def test_unhealthy_instance_takes_no_requests_until_it_says_otherwise(stage: Stage) -> None:
    one, two = await stage.engine("one"), await stage.engine("two")
    await stage.proxy([], [one, two])
    one.is_healthy = False
    await stage.until(one.address, is_well=False, cause="answers 503 at /health")
    assert [(await stage.post(PATH, PROMPT)).json["by"] for _ in range(2)] == ["two", "two"]
    one.is_healthy = True
    await stage.until(one.address, is_well=True)


async def test_instance_of_another_model_is_left_out_and_told(stage: Stage) -> None:
    right, wrong = await stage.engine("right"), await stage.engine("wrong", models=("other-7b",))
    await stage.proxy([], [right, wrong], waits=False)
    await stage.until(right.address, is_well=True)
    await stage.until(wrong.address, cause=f"serves other-7b, not {MODEL} (--model)")
    assert [(await stage.post(PATH, PROMPT)).json["by"] for _ in range(2)] == ["right", "right"]


async def test_proxy_that_starts_before_its_instances_finds_them(stage: Stage) -> None:
    engine = await stage.engine("late")
    await engine.stop()
    await stage.proxy([], [engine], waits=False)
    refused = await stage.post(PATH, PROMPT)
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert engine.address in refused.error
    assert (await stage.client.get(stage.url("/health"))).status == 503
    assert (await stage.client.get(stage.url("/v1/models"))).status == 503
    await engine.start()
    await stage.until(engine.address, is_well=True)
    assert (await stage.client.get(stage.url("/health"))).status == 200
    assert (await stage.post(PATH, PROMPT)).status == 200


async def test_models_are_those_of_the_instances_each_once(stage: Stage) -> None:
    one = await stage.engine("one", models=(MODEL, "adapter-a"))
    two = await stage.engine("two", models=(MODEL, "adapter-b"))
    await stage.proxy([], [one, two])
    listed = await stage.get("/v1/models")
    assert [entry["id"] for entry in listed["data"]] == [MODEL, "adapter-a", "adapter-b"]
    for _ in range(2):
        assert (await stage.post(PATH, {**PROMPT, "model": "adapter-b"})).json["by"] == "two"


async def test_model_by_its_last_part_is_the_same(stage: Stage) -> None:
    """`--model Qwen/Qwen2.5` before engines that were started with `--served-model-name Qwen2.5`."""
    engine = await stage.engine("short", models=(MODEL.rsplit("/", 1)[1],))
    await stage.proxy([], [engine])
    assert (await stage.post(PATH, PROMPT)).status == 200


async def test_unknown_model_is_404_and_no_model_is_the_engines_affair(stage: Stage) -> None:
    engine = await stage.engine()
    await stage.proxy([], [engine])
    refused = await stage.post(PATH, {**PROMPT, "model": "gpt-x"})
    assert (refused.status, engine.seen) == (404, [])
    assert "gpt-x" in refused.error
    assert MODEL in refused.error
    assert (await stage.post(PATH, {"prompt": "Hello"})).status == 200


async def test_status_tells_the_guides_fields(stage: Stage) -> None:
    prefill, decode = await stage.engine("p"), await stage.engine("d")
    await stage.proxy([prefill], [decode])
    told = await stage.get("/status")
    assert told["prefill_node_count"] == told["decode_node_count"] == 1
    assert (told["prefill_nodes"], told["decode_nodes"]) == ([prefill.address], [decode.address])


@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_instance_is_added_to_its_role(stage: Stage, role: str) -> None:
    prefill, decode, new = [await stage.engine(name) for name in ("p", "d", "new")]
    await stage.proxy([prefill], [decode])
    added = await change(stage, "add", role, new.address)
    assert (added.status, added.json["message"]) == (200, f"Added {new.address} to {role}_instances.")
    for _ in range(4):
        assert (await stage.post(PATH, PROMPT)).status == 200
    other = decode if role == "prefill" else prefill
    assert (len(new.seen), len(other.seen)) == (2, 4)
    again = await change(stage, "add", role, new.address)
    assert (again.status, again.error[:24]) == (400, "Instance already exists.")


async def test_one_address_is_added_to_both_roles(stage: Stage) -> None:
    decode, new = await stage.engine("d"), await stage.engine("new")
    await stage.proxy([], [decode])
    for role in ("prefill", "decode"):
        assert (await change(stage, "add", role, new.address)).status == 200
    assert (await stage.instances())[new.address]["roles"] == ["prefill", "decode"]


async def test_add_refuses_who_does_not_serve_the_model(stage: Stage) -> None:
    decode, wrong = await stage.engine("d"), await stage.engine("w", models=("other",))
    ill = await stage.engine("ill", is_healthy=False)
    await stage.proxy([], [decode])
    for engine, cause in ((wrong, "serves other"), (ill, "answers 503")):
        refused = await change(stage, "add", "decode", engine.address)
        assert refused.status == 400
        assert refused.error.startswith("Instance validation failed.")
        assert cause in refused.error
    await wrong.stop()
    assert "connection refused" in (await change(stage, "add", "decode", wrong.address)).error
    await wrong.start()
    assert list(await stage.instances()) == [decode.address]


@pytest.mark.parametrize(
    ("role", "instance", "text"),
    [
        ("both", "127.0.0.1:1", "Invalid instance type."),
        (["prefill"], "127.0.0.1:1", "Invalid instance type."),
        ("decode", "127.0.0.1", "Invalid instance format."),
        ("decode", "http://127.0.0.1:1", "Invalid instance format."),
        ("decode", "127.0.0.1:0", "Invalid instance format."),
        ("decode", "127.0.0.1:99999", "Invalid instance format."),
        ("decode", "a b:1", "Invalid instance format."),
        ("decode", "host/../x:1", "Invalid instance format."),
        ("decode", 8100, "Invalid instance format."),
        ("decode", "0.0.0.0:8100", "Invalid instance address."),
    ],
)
async def test_add_names_what_is_wrong(stage: Stage, role: Any, instance: Any, text: str) -> None:
    await stage.proxy([], [await stage.engine()])
    refused = await change(stage, "add", role, instance)
    assert (refused.status, refused.error[: len(text)]) == (400, text)


@pytest.mark.parametrize("verb", ["add", "remove"])
@pytest.mark.parametrize(
    ("key", "status"), [(None, 401), ("", 403), ("wrong", 403), (KEY[:-1], 403), (KEY + "x", 403), ("é", 403)]
)
async def test_changes_need_the_key(stage: Stage, verb: str, key: str | None, status: int) -> None:
    engine = await stage.engine()
    await stage.proxy([], [engine])
    refused = await change(stage, verb, "decode", engine.address, key=key)
    assert refused.status == status
    assert KEY not in refused.body.decode()
    assert list(await stage.instances()) == [engine.address]


@pytest.mark.parametrize("key", [None, "", "any"])
async def test_without_a_key_in_the_environment_nothing_is_changed(stage: Stage, key: str | None) -> None:
    engine = await stage.engine()
    await stage.proxy([], [engine], secrets=Secrets())
    refused = await change(stage, "remove", "decode", engine.address, key=key)
    assert refused.status == 403
    assert "ADMIN_API_KEY is not set" in refused.error


async def test_removed_instance_ends_what_it_has_and_takes_nothing_more(stage: Stage) -> None:
    may_end = asyncio.Event()

    async def waits(engine: StubEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.wait_for(may_end.wait(), HANG_S)
        return web.json_response({"by": engine.name})

    old, new = await stage.engine("old", answer=waits), await stage.engine("new")
    await stage.proxy([], [old, new])
    running = asyncio.create_task(stage.post(PATH, PROMPT))
    await old.until(lambda: len(old.seen) == 1)
    removed = await change(stage, "remove", "decode", old.address)
    assert (removed.status, removed.json["requests_running"]) == (200, 1)
    assert [(await stage.post(PATH, PROMPT)).json["by"] for _ in range(2)] == ["new", "new"]
    assert (await change(stage, "remove", "decode", old.address)).status == 404
    may_end.set()
    assert (await running).json["by"] == "old"


async def test_remove_of_the_last_one_is_carried_out_and_requests_say_why(stage: Stage) -> None:
    engine = await stage.engine()
    await stage.proxy([], [engine])
    assert (await change(stage, "remove", "decode", engine.address)).status == 200
    refused = await stage.post(PATH, PROMPT)
    assert (refused.status, refused.error) == (503, "there is no decode instance")


async def test_names_and_ipv6_are_dialled(stage: Stage) -> None:
    six = await stage.engine("six", host="::1")
    named = await stage.engine("named", known_as="localhost")
    assert six.address.startswith("[::1]:")
    await stage.proxy([six], [named])
    assert (await stage.post(PATH, PROMPT)).json["by"] == "named"
    assert six.seen[0].headers["Host"] == six.address


async def test_metrics_tell_instances_and_answers(stage: Stage) -> None:
    prefill, decode = await stage.engine("p"), await stage.engine("d", answer=answers(400))
    await stage.proxy([prefill], [decode])
    await stage.post(PATH, PROMPT)
    await stage.post(PATH, data=b"{", headers={"Content-Type": "application/json"})
    await stage.client.get(stage.url("/nonsense"))
    for line, number in {
        f'proxy_requests_total{{code="400",path="{PATH}"}}': 2,
        'proxy_requests_total{code="404",path="other"}': 1,
        'proxy_refusals_total{reason="bad_body"}': 1,
        'proxy_prefills_total{outcome="done"}': 1,
        f'proxy_instance_well{{instance="{decode.address}",role="decode"}}': 1,
        f'proxy_instance_requests_total{{instance="{prefill.address}"}}': 1,
        "proxy_first_byte_seconds_count": 1,
    }.items():
        assert await stage.metric(line) == number, line


async def test_instance_that_does_not_answer_probes_is_out(stage: Stage) -> None:
    async def answers_nobody(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(answers_nobody, "127.0.0.1", 0)
    engine = await stage.engine()
    deaf = StubEngine(port=silent.sockets[0].getsockname()[1])
    await stage.proxy([], [engine, deaf], waits=False, probe_timeout_ms=100)
    await stage.until(deaf.address, cause="no answer in time", is_well=False)
    await stage.until(engine.address, is_well=True)
    await stage.end()
    silent.close()
    await silent.wait_closed()
