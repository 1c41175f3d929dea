"""The HTTP port of a master that stands by: who leads, and 503 for all that only a leader can answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from mooncake_master.ha.role_http import add_role_routes, not_in_this_role
from mooncake_master.metrics import HaPage


class StandbyHttp:
    """Routes and handlers; the daemon owns the listening socket."""

    def __init__(
        self, describe: Callable[[], dict[str, Any]], numbers: Callable[[], Mapping[str, float]]
    ) -> None:
        self._describe = describe
        self._page = HaPage(numbers)

    def application(self) -> web.Application:
        app = web.Application(client_max_size=1 << 20)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/health", self.health)
        add_role_routes(app, self._describe)
        app.router.add_route("*", "/{path:.*}", self.refused)
        return app

    async def metrics(self, request: web.Request) -> web.Response:
        page, content_type = self._page.render()
        return web.Response(body=page, headers={"Content-Type": content_type})

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "standby", **self._describe()}, status=503)

    async def refused(self, request: web.Request) -> web.Response:
        return not_in_this_role("service plane is not active", status=503)
