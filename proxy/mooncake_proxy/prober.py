"""Asks every instance how it is, all the time: who fails leaves the rotation, who is well returns.

Owns when and how it is asked; what follows from an answer is `fleet`'s. Well is: 200 at /health (or 404: an
engine without that path) and, at /v1/models, the model that the proxy serves.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, Final

import aiohttp

from mooncake_proxy.config import ProxyConfig, Secrets
from mooncake_proxy.deadlines import timeout
from mooncake_proxy.fleet import Fleet, Instance
from mooncake_proxy.upstream import FAILURES, cause_of, get

log = logging.getLogger("mooncake_store.proxy")

PROBES_MAX: Final = 64
"""Instances asked at a time."""
PAUSE_S: Final = 0.1
"""The least time between two rounds, however many failures ask for one."""
MODELS_MAX: Final = 1_024


class NotWell(Exception):
    """Why an instance takes no requests."""


class Prober:
    """`run` it in a task."""

    def __init__(
        self, config: ProxyConfig, secrets: Secrets, fleet: Fleet, session: aiohttp.ClientSession
    ) -> None:
        self._config = config
        self._key = secrets.upstream_api_key
        self._fleet = fleet
        self._session = session
        self._at_once = asyncio.Semaphore(PROBES_MAX)
        self._soon = asyncio.Event()
        fleet.on_failure = self._soon.set

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._soon.clear()
            await asyncio.gather(*(self.probe(instance) for instance, _ in self._fleet.all()))
            await asyncio.sleep(min(PAUSE_S, self._config.probe_interval_ms / 1_000))
            try:
                # Not wait_for, which before Python 3.12 drops a cancellation that meets the event.
                async with timeout(self._config.probe_interval_ms / 1_000):
                    await self._soon.wait()
            except asyncio.TimeoutError:
                continue

    async def probe(self, instance: Instance) -> None:
        """Ask one, and note what it says. Never raises but by cancellation."""
        try:
            models = await self.ask(instance)
        except NotWell as error:
            is_news = self._fleet.unwell(instance, str(error))
        else:
            is_news = self._fleet.well(instance, models)
        if is_news and instance.is_well:
            log.info("instance %s is well and takes requests", instance.name)
        elif is_news:
            log.warning("instance %s takes no requests: %s", instance.name, instance.cause)

    async def ask(self, instance: Instance) -> dict[str, dict[str, Any]]:
        """Its models by id. Raises NotWell."""
        async with self._at_once:
            try:
                async with timeout(self._config.probe_timeout_ms / 1_000):
                    return await self._ask(instance)
            except FAILURES as error:
                raise NotWell(cause_of(error)) from error

    async def _ask(self, instance: Instance) -> dict[str, dict[str, Any]]:
        status, _ = await get(self._session, instance, "/health", key=self._key)
        if status not in (200, 404):
            raise NotWell(f"answers {status} at /health")
        status, body = await get(self._session, instance, "/v1/models", key=self._key)
        if status != 200:
            raise NotWell(f"answers {status} at /v1/models")
        return models_of(body)


def models_of(body: bytes) -> dict[str, dict[str, Any]]:
    """The entries of /v1/models by id. Raises NotWell."""
    try:
        entries = json.loads(body)["data"]
        found = {entry["id"]: entry for entry in entries[:MODELS_MAX] if isinstance(entry["id"], str)}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NotWell("its answer at /v1/models is no list of models") from None
    return found
