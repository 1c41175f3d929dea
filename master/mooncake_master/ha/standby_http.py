"""The HTTP port of a master that stands by: who leads, and 503 for all that only a leader can answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from mooncake_master.metrics import HaPage
from mooncake_store.status import Status


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
        app.router.add_get("/role", self.role)
        app.router.add_get("/ha_status", self.ha_status)
        app.router.add_get("/leader", self.leader)
        app.router.add_route("*", "/{path:.*}", self.refused)
        return app

    async def metrics(self, request: web.Request) -> web.Response:
        page, content_type = self._page.render()
        return web.Response(body=page, headers={"Content-Type": content_type})

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "standby", **self._describe()}, status=503)

    async def role(self, request: web.Request) -> web.Response:
        return web.Response(text=self._describe()["role"])

    async def ha_status(self, request: web.Request) -> web.Response:
        return web.Response(text=self._describe()["ha_state"])

    async def leader(self, request: web.Request) -> web.Response:
        return leader_response(self._describe())

    async def refused(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "success": False,
                "error_code": int(Status.UNAVAILABLE_IN_CURRENT_MODE),
                "error_message": "service plane is not active",
            },
            status=503,
        )


def leader_response(described: Mapping[str, Any]) -> web.Response:
    """The answer of /leader, of a standby and of a leader."""
    address = described["leader_address"]
    return web.json_response(
        {"present": bool(address), "leader_address": address, "view_version": described["view_version"]}
    )
