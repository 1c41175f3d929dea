"""What the HTTP ports of a leader and of a standby tell alike: /role, /ha_status, /leader, and refusals.

Owns these paths and bodies, which are Mooncake's. Knows neither the daemon nor the election.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from mooncake_store.status import Status


def add_role_routes(app: web.Application, describe: Callable[[], dict[str, Any]]) -> None:
    """describe: `role`, `ha_state`, `leader_address` and `view_version` of this master, now."""

    async def role(_: web.Request) -> web.Response:
        return web.Response(text=describe()["role"])

    async def ha_status(_: web.Request) -> web.Response:
        return web.Response(text=describe()["ha_state"])

    async def leader(_: web.Request) -> web.Response:
        told = describe()
        address = told["leader_address"]
        return web.json_response(
            {"present": bool(address), "leader_address": address, "view_version": told["view_version"]}
        )

    app.router.add_get("/role", role)
    app.router.add_get("/ha_status", ha_status)
    app.router.add_get("/leader", leader)


def not_in_this_role(message: str, *, status: int) -> web.Response:
    """What this master does not do as what it is."""
    code = int(Status.UNAVAILABLE_IN_CURRENT_MODE)
    return web.json_response({"success": False, "error_code": code, "error_message": message}, status=status)
