"""Stub engines: they wait as long as a model of a given speed would, and use the real store as connectors do.

One process has all engines of a run, each with a port and a client of the store of its own. A request's
prompt is a list of token ids. An engine computes what neither its own cache nor the store has, one prompt at
a time, as a GPU does; prefill engines put what they computed before they answer. Run by `python -m
benchmarks.xypd.engines` with the settings as JSON; prints the ports.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import OrderedDict
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from typing import Any, Final

from aiohttp import web

from mooncake_client import AsyncStore
from mooncake_store.keys import BlockIdentity, block_keys

MODEL: Final = "stub"
IDENTITY: Final = BlockIdentity(model=MODEL, dtype="bfloat16")


@dataclass(frozen=True)
class Speed:
    """What the engines of a run are like. Tokens a second; local_blocks: of an engine's own cache."""

    prefill_tokens_s: float
    decode_tokens_s: float
    block_tokens: int
    block_bytes: int
    local_blocks: int


@dataclass
class Counts:
    """Prompt tokens by where their blocks came from."""

    prompt_tokens: int = 0
    local_tokens: int = 0
    store_tokens: int = 0
    computed_tokens: int = 0
    requests: int = 0


class StubEngine:
    """store: None: a run without it."""

    def __init__(self, role: str, speed: Speed, store: AsyncStore | None) -> None:
        self.role = role
        self.counts = Counts()
        self._speed = speed
        self._store = store
        self._local: OrderedDict[bytes, None] = OrderedDict()
        self._computing = asyncio.Lock()
        self._block = bytes(speed.block_bytes)

    async def prefill(self, tokens: list[int]) -> None:
        """Until the prompt's blocks are here."""
        keys = block_keys(tokens, self._speed.block_tokens, identity=IDENTITY)
        local = next((n for n, key in enumerate(keys) if key not in self._local), len(keys))
        stored = await self._load(keys, local)
        present = (local + stored) * self._speed.block_tokens
        async with self._computing:
            await asyncio.sleep((len(tokens) - present) / self._speed.prefill_tokens_s)
        counts = self.counts
        counts.requests += 1
        counts.prompt_tokens += len(tokens)
        counts.local_tokens += local * self._speed.block_tokens
        counts.store_tokens += stored * self._speed.block_tokens
        counts.computed_tokens += len(tokens) - present
        if self._store is not None and self.role == "prefill" and (new := keys[local + stored :]):
            await self._store.put_many(new, [self._block] * len(new))
        for key in keys:
            self._local[key] = None
            self._local.move_to_end(key)
        while len(self._local) > self._speed.local_blocks:
            self._local.popitem(last=False)

    async def _load(self, keys: list[bytes], local: int) -> int:
        """How many blocks behind the local ones came from the store: their bytes are really fetched."""
        if self._store is None or local == len(keys):
            return 0
        present = await self._store.match_prefix(keys[local:])
        values = await self._store.get_many(keys[local : local + present])
        return next((n for n, value in enumerate(values) if not isinstance(value, bytes)), present)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        await self.prefill(body["prompt"])
        if not body.get("stream"):
            return web.json_response({"choices": [{"text": "x"}]})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(body["max_tokens"]):
            if number:
                await asyncio.sleep(1 / self._speed.decode_tokens_s)
            await response.write(b'data: {"choices": [{"text": "x"}]}\n\n')
        await response.write(b"data: [DONE]\n\n")
        return response

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL}]})

    async def stats(self, request: web.Request) -> web.Response:
        return web.json_response({"role": self.role, **asdict(self.counts)})


async def serve(settings: dict[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        ports = []
        for role in ["prefill"] * settings["prefill"] + ["decode"] * settings["decode"]:
            store = None
            if settings["master"]:
                store = await stack.enter_async_context(AsyncStore(settings["master"]))
            engine = StubEngine(role, Speed(**settings["speed"]), store)
            app = web.Application(client_max_size=64 << 20)
            app.router.add_post("/v1/completions", engine.complete)
            app.router.add_get("/v1/models", engine.models)
            app.router.add_get("/stats", engine.stats)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            ports.append(runner.addresses[0][1])
        print(f"engines on {json.dumps(ports)}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])))
