"""The HTTP metadata server: `/metadata?key=K`, `/health`, `/metrics`; alone and inside the master.

Owns paths, codes and bodies, which are Mooncake's; its two servers differ in some, and so do `ALONE` and
`EMBEDDED`. Needs aiohttp and prometheus-client. What it holds ends with it; those who put it put it again.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mooncake_store.endpoints import Endpoint
from mooncake_store.http_faults import is_our_fault
from mooncake_store.metadata_server.entries import KEY_BYTES_MAX, VALUE_BYTES_MAX, Entries, Outcome
from mooncake_store.ports import cannot_listen

PATH: Final = "/metadata"
TTL_MS_MAX: Final = 86_400_000
GRACE_S: Final = 0.5
IDLE_S: Final = 15.0
"""A connection that asks nothing for so long is closed."""
BODY_S: Final = 10.0
"""For a value to arrive; then its put is answered 408."""


@dataclass(frozen=True)
class Form:
    """Where Mooncake's two servers answer differently.

    refuses_the_same: also the address that stands there already, of a process that renews nothing.
    """

    missing_key: str
    strips_keys: bool
    refuses_the_same: bool
    text_type: str


ALONE: Final = Form("metadata key is required", True, True, "application/json")
EMBEDDED: Final = Form("Missing key parameter", False, False, "text/plain")


class HttpMetadataServer:
    """Routes and handlers over `entries`; `start` and `stop` belong to one event loop."""

    def __init__(
        self,
        entries: Entries | None = None,
        *,
        form: Form = ALONE,
        value_bytes_max: int = VALUE_BYTES_MAX,
        body_s: float = BODY_S,
    ) -> None:
        self.entries = Entries() if entries is None else entries
        self.port = 0
        self._form = form
        self._value_bytes_max = value_bytes_max
        self._body_s = body_s
        self._runner: web.AppRunner | None = None
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "metadata_server_requests",
            "Requests for an entry, by method and HTTP status",
            ("method", "status"),
            registry=self._registry,
        )
        self._registry.register(_Held(self.entries))

    def application(self) -> web.Application:
        app = web.Application(client_max_size=self._value_bytes_max)
        for method, answer in (("GET", self._get), ("PUT", self._put), ("DELETE", self._delete)):
            app.router.add_route(method, PATH, self._counted(answer))
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        return app

    async def start(self, endpoint: Endpoint, flag: str) -> None:
        """Listen; port 0 takes any. Raises StoreError naming a port that is taken, and its flag."""
        logging.getLogger("aiohttp.server").addFilter(is_our_fault)
        runner = web.AppRunner(
            self.application(), access_log=None, shutdown_timeout=GRACE_S, keepalive_timeout=IDLE_S
        )
        self._runner = runner
        await runner.setup()
        try:
            await web.TCPSite(runner, endpoint.host, endpoint.port).start()
        except OSError as error:
            await self.stop()
            raise cannot_listen(endpoint, flag, error) from error
        self.port = runner.addresses[0][1]

    async def stop(self) -> None:
        """Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def _counted(self, answer: Callable[[str, web.Request], Any]) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.Response:
            response = await self._answer(answer, request)
            self._requests.labels(request.method, str(response.status)).inc()
            return response

        return handle

    async def _answer(self, answer: Callable[[str, web.Request], Any], request: web.Request) -> web.Response:
        key = request.query.get("key", "")
        key = key.strip() if self._form.strips_keys else key
        if not key:
            return self._text(400, self._form.missing_key)
        if len(key.encode("utf-8", "surrogateescape")) > KEY_BYTES_MAX:
            return self._text(400, f"metadata key is longer than {KEY_BYTES_MAX} bytes")
        response: web.Response = await answer(key, request)
        return response

    async def _get(self, key: str, request: web.Request) -> web.Response:
        value = self.entries.get(key)
        if value is None:
            return self._text(404, "metadata not found")
        return web.Response(body=value, content_type="application/json")

    async def _put(self, key: str, request: web.Request) -> web.Response:
        ttl = request.query.get("ttl_ms")
        if ttl is not None and not (re.fullmatch("[0-9]{1,9}", ttl) and 0 < int(ttl) <= TTL_MS_MAX):
            return self._text(400, f"ttl_ms {ttl[:32]!r} is not in 1..{TTL_MS_MAX}")
        try:
            value = await asyncio.wait_for(request.read(), self._body_s)
        except asyncio.TimeoutError:
            return self._text(408, f"the metadata value did not arrive within {self._body_s:g} s")
        except web.HTTPRequestEntityTooLarge:
            return self._text(413, f"metadata value is longer than {self._value_bytes_max} bytes")
        outcome = self.entries.put(key, value, None if ttl is None else int(ttl) / 1000)
        if outcome is Outcome.UNCHANGED and self._form.refuses_the_same:
            outcome = Outcome.DUPLICATE
        match outcome:
            case Outcome.UPDATED | Outcome.UNCHANGED:
                return self._text(200, f"metadata {outcome.value}")
            case Outcome.DUPLICATE:
                return self._text(400, "Duplicate rpc_meta key not allowed")
            case Outcome.FULL:
                return self._text(507, "the metadata server is full")

    async def _delete(self, key: str, request: web.Request) -> web.Response:
        found = self.entries.delete(key)
        return self._text(200, "metadata deleted") if found else self._text(404, "metadata not found")

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="OK")

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    def _text(self, status: int, text: str) -> web.Response:
        return web.Response(status=status, text=text, content_type=self._form.text_type)


class _Held(Collector):
    """What the table holds, read when asked."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    def collect(self) -> list[Metric]:
        count, size = self._entries.counts()
        expired = CounterMetricFamily("metadata_server_expired", "Entries that ended with their TTL")
        expired.add_metric((), self._entries.expired_total)
        return [
            GaugeMetricFamily("metadata_server_entries", "Entries held", value=count),
            GaugeMetricFamily("metadata_server_bytes", "Bytes of their keys and values", value=size),
            expired,
        ]
