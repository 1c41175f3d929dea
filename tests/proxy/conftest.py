"""A proxy and its engines in the test's own event loop; everything is ended afterwards."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from proxy.stubs import HANG_S, StubEngine, settings, started

from mooncake_proxy.config import Secrets
from mooncake_proxy.daemon import Daemon
from mooncake_proxy.deadlines import timeout


@dataclass
class Got:
    """An answer, all of it."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"]["message"])


class Stage:
    """Starts engines and one proxy, and asks it as a client."""

    def __init__(self) -> None:
        self.engines: list[StubEngine] = []
        self.daemon: Daemon | None = None
        self.client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=HANG_S))

    async def engine(self, name: str = "engine", **told: Any) -> StubEngine:
        engine = await StubEngine(name, **told).start()
        self.engines.append(engine)
        return engine

    async def proxy(
        self,
        prefill: list[StubEngine],
        decode: list[StubEngine],
        *,
        secrets: Secrets | None = None,
        waits: bool = True,
        **changed: Any,
    ) -> Daemon:
        """waits: until every instance is in the rotation."""
        self.daemon = await started(settings(prefill, decode, **changed), secrets)
        if waits:
            await self.until_well(prefill + decode)
        return self.daemon

    def url(self, path: str) -> str:
        assert self.daemon is not None
        return f"http://127.0.0.1:{self.daemon.port}{path}"

    async def post(self, path: str, body: Any = None, **options: Any) -> Got:
        """body: as JSON; or `data=` as it is."""
        if "data" not in options:
            options["json"] = body
        async with self.client.post(self.url(path), **options) as answer:
            return Got(answer.status, answer.headers, await answer.read())

    async def get(self, path: str) -> Any:
        async with self.client.get(self.url(path)) as answer:
            return await (answer.json() if answer.content_type == "application/json" else answer.text())

    async def instances(self) -> dict[str, dict[str, Any]]:
        return {told["instance"]: told for told in (await self.get("/status"))["instances"]}

    async def until(self, name: str, **values: Any) -> None:
        """Until /status tells these of an instance."""
        async with timeout(HANG_S):
            while True:
                told = (await self.instances()).get(name, {})
                if all(told.get(field) == value for field, value in values.items()):
                    return

    async def until_well(self, engines: list[StubEngine]) -> None:
        for engine in engines:
            await self.until(engine.address, is_well=True)

    async def metric(self, line: str) -> float:
        """The number behind this name (with its labels); 0 where there is no such line yet."""
        page = await self.get("/metrics")
        found = [row.rsplit(" ", 1)[1] for row in page.splitlines() if row.startswith(line + " ")]
        return float(found[0]) if found else 0.0

    async def end(self) -> None:
        """Idempotent."""
        await self.client.close()
        if self.daemon is not None:
            await self.daemon.stop(grace_s=0)
        while self.engines:
            await self.engines.pop().stop()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.end()
