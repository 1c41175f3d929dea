"""What clients send that no request should be: each is refused with its cause, and the proxy serves on."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from typing import Any

import pytest
from proxy.conftest import Stage
from proxy.stubs import KEY, MODEL, hangs

PATH = "/v1/completions"
PROMPT = {"model": MODEL, "prompt": "Hello"}
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'{"model": 7}', "model must be a string"),
        (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"n": ' + b"1" * 5_000 + b"}", "not JSON"),
        (b'{"kv_transfer_params": {"remote_host": "evil"}}', "set by the proxy"),
    ],
)
async def test_a_body_that_is_no_request_is_400(stage: Stage, body: bytes, cause: str) -> None:
    prefill, decode = await stage.engine(), await stage.engine()
    await stage.proxy([prefill], [decode])
    refused = await stage.post(PATH, data=body, headers=JSON)
    assert refused.status == 400
    assert cause in refused.error
    assert refused.json["error"]["type"] == "invalid_request_error"
    assert prefill.seen == decode.seen == []
    assert (await stage.post(PATH, PROMPT)).status == 200


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "application/x-pickle"])
async def test_other_media_types_are_415(stage: Stage, kind: str) -> None:
    await stage.proxy([], [await stage.engine()])
    refused = await stage.post(PATH, data=b"{}", headers={"Content-Type": kind})
    assert refused.status == 415
    assert "application/json" in refused.error


@pytest.mark.parametrize("form", ["length", "chunked", "compressed"])
async def test_a_body_above_the_bound_is_413(stage: Stage, form: str) -> None:
    engine = await stage.engine()
    await stage.proxy([], [engine], body_bytes_max=4_096)
    raw = json.dumps({**PROMPT, "prompt": "x" * 1_000_000}).encode()

    async def parts() -> Any:
        for start in range(0, len(raw), 65_536):
            yield raw[start : start + 65_536]

    data, headers = raw, JSON
    if form == "compressed":
        data, headers = zlib.compress(raw), {**JSON, "Content-Encoding": "deflate"}
        assert len(data) < 4_096
    refused = await stage.post(PATH, data=parts() if form == "chunked" else data, headers=headers)
    assert refused.status == 413
    assert "--body_bytes_max" in refused.error
    assert engine.seen == []
    assert await stage.metric("proxy_bodies_bytes") == 0


async def test_a_body_of_exactly_the_bound_is_served(stage: Stage) -> None:
    await stage.proxy([], [await stage.engine()], body_bytes_max=4_096)
    raw = json.dumps(PROMPT).encode()
    raw += b" " * (4_096 - len(raw))
    assert (await stage.post(PATH, data=raw, headers=JSON)).status == 200
    assert (await stage.post(PATH, data=raw + b" ", headers=JSON)).status == 413


async def ask_raw(stage: Stage, request: bytes) -> bytes:
    """What the proxy answers to bytes, until it closes the connection."""
    assert stage.daemon is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.daemon.port)
    writer.write(request)
    await writer.drain()
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_body_that_does_not_come_is_408(stage: Stage) -> None:
    await stage.proxy([], [await stage.engine()], body_timeout_ms=50)
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
    answer = await ask_raw(stage, head.encode() + b"Connection: close\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"--body_timeout" in answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x80\x04\x95\x10\x00\x00\x00\r\n\r\n",
        b"POST / HTTP/9.9\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X-H: 1\r\n" * 10_000 + b"\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    ],
    ids=["pickle", "version", "long header", "long path", "many headers", "smuggling", "negative length"],
)
async def test_bytes_that_are_no_request_are_refused_and_the_proxy_serves_on(
    stage: Stage, request_bytes: bytes
) -> None:
    engine = await stage.engine()
    await stage.proxy([], [engine])
    assert re.match(rb"HTTP/1\.[01] 400 ", await ask_raw(stage, request_bytes))
    assert engine.seen == []
    assert (await stage.post(PATH, PROMPT)).status == 200


async def test_requests_beyond_the_bound_are_503_with_retry_after(stage: Stage) -> None:
    engine = await stage.engine(answer=hangs)
    await stage.proxy([], [engine], requests_max=2)
    stuck = [asyncio.create_task(stage.post(PATH, PROMPT)) for _ in range(2)]
    await engine.until(lambda: len(engine.seen) == 2)
    refused = await stage.post(PATH, PROMPT)
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert "--requests_max" in refused.error
    for request in stuck:
        request.cancel()
    await engine.until(lambda: engine.cancelled == 2)


async def test_bodies_are_bounded_together_until_their_answers_begin(stage: Stage) -> None:
    engine = await stage.engine(answer=hangs)
    await stage.proxy([], [engine], body_bytes_max=4_096, bodies_bytes_max=5_000)
    large = {**PROMPT, "prompt": "x" * 3_000}
    stuck = asyncio.create_task(stage.post(PATH, large))
    await engine.until(lambda: len(engine.seen) == 1)
    refused = await stage.post(PATH, large)
    assert refused.status == 503
    assert "--bodies_bytes_max" in refused.error
    stuck.cancel()
    await engine.until(lambda: engine.cancelled == 1)
    await stage.until(engine.address, requests_running=0)
    assert await stage.metric("proxy_bodies_bytes") == 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", PATH, 405),
        ("DELETE", "/status", 405),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/../etc/passwd", 404),
    ],
)
async def test_other_paths_and_methods_are_refused_in_the_same_form(
    stage: Stage, method: str, path: str, status: int
) -> None:
    await stage.proxy([], [await stage.engine()])
    async with stage.client.request(method, stage.url(path)) as answer:
        assert answer.status == status
        assert (await answer.json())["error"]["code"] == status


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 60_000, b"x" * 100_000])
async def test_hostile_bodies_of_the_admin_are_refused(stage: Stage, body: bytes) -> None:
    await stage.proxy([], [await stage.engine()])
    refused = await stage.post("/instances/add", data=body, headers={"X-API-Key": KEY})
    assert refused.status == (413 if len(body) > 65_536 else 400)
