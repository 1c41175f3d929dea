"""Engines for tests of the proxy: HTTP servers on free ports that answer as they are told, and record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from multidict import CIMultiDict

from mooncake_proxy.config import ProxyConfig, Secrets
from mooncake_proxy.daemon import Daemon
from mooncake_store.endpoints import Endpoint

MODEL = "org/stub-1b"
HANG_S = 30.0
KEY = "admin-key-of-tests"

Answer = Callable[["StubEngine", web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


@dataclass
class Seen:
    """One request as the engine got it."""

    path: str
    headers: CIMultiDict[str]
    body: dict[str, Any]
    raw: bytes


@dataclass
class StubEngine:
    """Answers each request by `answer`; `is_healthy` and `models` are what probes find."""

    name: str = "engine"
    answer: Answer | None = None
    is_healthy: bool = True
    models: tuple[str, ...] = (MODEL,)
    host: str = "127.0.0.1"
    known_as: str = ""
    seen: list[Seen] = field(default_factory=list)
    cancelled: int = 0
    port: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.known_as or self.host, self.port)

    @property
    def address(self) -> str:
        return str(self.endpoint)

    async def start(self) -> StubEngine:
        """Again on the same port after `stop`."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self.is_healthy else 503)

    async def _models(self, request: web.Request) -> web.Response:
        data = [{"id": name, "object": "model", "owned_by": self.name} for name in self.models]
        return web.json_response({"object": "list", "data": data})

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw)
        async with self.changed:
            self.seen.append(Seen(request.path, CIMultiDict(request.headers), body, raw))
            self.changed.notify_all()
        try:
            return await (self.answer or completes)(self, request, body)
        except asyncio.CancelledError:
            async with self.changed:
                self.cancelled += 1
                self.changed.notify_all()
            raise

    async def until(self, holds: Callable[[], bool]) -> None:
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(holds), HANG_S)


async def completes(engine: StubEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """A whole answer, or a stream of three events."""
    if body.get("stream"):
        return await streams(engine, request, body)
    return web.json_response({"id": "cmpl-1", "by": engine.name, "choices": [{"text": " ok"}]})


async def streams(engine: StubEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for word in ("one", "two"):
        await response.write(event(word))
    await response.write(b"data: [DONE]\n\n")
    return response


def event(word: str) -> bytes:
    return f"data: {json.dumps({'text': word})}\n\n".encode()


def answers(status: int, text: str = "told to") -> Answer:
    async def answer(engine: StubEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": text, "code": status}}, status=status)

    return answer


async def hangs(engine: StubEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Until the other end closes the connection."""
    await asyncio.sleep(HANG_S * 2)
    raise AssertionError("nobody cancelled it")


async def drops(engine: StubEngine, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """The connection ends without an answer, as when the process dies."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def dies_in_the_stream(
    engine: StubEngine, request: web.Request, body: dict[str, Any]
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(event("one"))
    assert request.transport is not None
    request.transport.close()
    return response


def settings(prefill: list[StubEngine], decode: list[StubEngine], **changed: Any) -> ProxyConfig:
    """Of a proxy in front of these, on a free port of the loopback interface."""
    return ProxyConfig(
        **{
            "model": MODEL,
            "prefill": tuple(engine.endpoint for engine in prefill),
            "decode": tuple(engine.endpoint for engine in decode),
            "host": "127.0.0.1",
            "port": 0,
            "probe_interval_ms": 50,
            **changed,
        }
    )


async def started(config: ProxyConfig, secrets: Secrets | None = None) -> Daemon:
    daemon = Daemon(config, secrets or Secrets(admin_api_key=KEY))
    await daemon.start()
    return daemon
