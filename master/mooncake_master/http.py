"""The operators' HTTP door: health, metrics, and read-only questions about keys and segments.

Owns paths and response bodies, which are Mooncake's where its admin server has the endpoint. Asks the state
machine through `door.Door`; changes nothing but, when asked to, who of several masters leads.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from mooncake_master.door import Door, HouseSession
from mooncake_master.ha.role_http import add_role_routes, not_in_this_role
from mooncake_master.metrics import MetricsPage
from mooncake_store import _core
from mooncake_store.errors import StoreError
from mooncake_store.status import Status

KEYS_A_PAGE: Final = 4_096
QUERY_KEYS_MAX: Final = 16_384
DEFAULT_TENANT: Final = "default"
TIERS: Final = {1: "dram", 2: "ssd"}


def _is_loopback(remote: str | None) -> bool:
    try:
        address = ipaddress.ip_address(remote or "")
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HTTP_STATUS: Final = {
    Status.INVALID_PARAMS: 400,
    Status.INVALID_KEY: 400,
    Status.OBJECT_NOT_FOUND: 404,
    Status.SEGMENT_NOT_FOUND: 404,
    Status.BUSY: 503,
    Status.DEADLINE: 503,
    Status.CLOSED: 503,
}


class AdminHttp:
    """Routes and handlers; the daemon owns the listening socket."""

    def __init__(
        self,
        door: Door,
        metrics: MetricsPage,
        *,
        describe: Callable[[], dict[str, Any]],
        resign: Callable[[], bool] | None = None,
    ) -> None:
        """describe: what /health says of this master beyond its status. resign: with --enable_ha."""
        self._door = door
        self._metrics = metrics
        self._describe = describe
        self._resign = resign
        self._session = HouseSession(door, DEFAULT_TENANT)

    async def keep_session(self) -> None:
        """`HouseSession.keep`."""
        await self._session.keep()

    def application(self) -> web.Application:
        app = web.Application(middlewares=[_errors_as_json], client_max_size=1 << 20)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_get("/metrics/summary", self.summary)
        app.router.add_get("/health", self.health)
        add_role_routes(app, self._describe)
        app.router.add_post("/api/v1/ha/resign", self.resign)
        app.router.add_get("/query_key", self.query_key)
        app.router.add_get("/batch_query_keys", self.batch_query_keys)
        app.router.add_get("/get_all_keys", self.all_keys)
        app.router.add_get("/get_all_segments", self.all_segments)
        app.router.add_get("/get_segments_detail", self.segments_detail)
        app.router.add_get("/query_segment", self.query_segment)
        return app

    async def metrics(self, request: web.Request) -> web.Response:
        page, content_type = self._metrics.render(await self.segments())
        return web.Response(body=page, headers={"Content-Type": content_type})

    async def summary(self, request: web.Request) -> web.Response:
        return web.Response(text=self._metrics.summary() + "\n")

    async def health(self, request: web.Request) -> web.Response:
        described = self._describe()
        is_ready = described["service_ready"]
        return web.json_response(
            {"status": "ok" if is_ready else "deposed", **described}, status=200 if is_ready else 503
        )

    async def resign(self, request: web.Request) -> web.Response:
        """Hand over to another master; answered before that one reigns."""
        if not _is_loopback(request.remote):
            # There are no tokens yet, so nothing is changed for who is not on this host (docs/ha.md).
            return not_in_this_role(
                f"{request.path} is answered to this host only, not to {request.remote}: ask at 127.0.0.1, "
                "or send the leader SIGTERM",
                status=403,
            )
        if self._resign is None or not self._resign():
            return not_in_this_role(
                "this master has no term to give back (is it run with --enable_ha?)", status=409
            )
        return web.json_response({"success": True})

    async def query_key(self, request: web.Request) -> web.Response:
        """Where one key's value is; grants a lease, as any lookup does."""
        key = request.query.get("key", "")
        found = (await self._lookup([key]))[key]
        if not found["ok"]:
            code, name = found["error_code"], found["error"]
            return web.json_response(
                {"success": False, "error_code": code, "error_message": name},
                status=_HTTP_STATUS.get(Status(code), 404),
            )
        return web.json_response({"success": True, "data": found["values"]})

    async def batch_query_keys(self, request: web.Request) -> web.Response:
        keys = [key for key in request.query.get("keys", "").split(",") if key]
        if not keys:
            return web.Response(status=400, text="No keys provided. Use ?keys=key1,key2,...")
        if len(keys) > QUERY_KEYS_MAX:
            return web.Response(status=400, text=f"{len(keys)} keys; at most {QUERY_KEYS_MAX}")
        found = await self._lookup(keys)
        data = {
            key: {
                "ok": one["ok"],
                "error": one["error"],
                "values": one["values"],
                "disk_values": [],
                "local_disk_values": [],
                "nof_values": [],
            }
            for key, one in found.items()
        }
        return web.json_response({"success": True, "data": data})

    async def all_keys(self, request: web.Request) -> web.StreamResponse:
        """One key a line; keys that are not UTF-8 are shown with escapes. Streamed in pages."""
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        cursor, first = 0, True
        while first or cursor:
            body = _core.encode_list(await self._session.id(), cursor, KEYS_A_PAGE, b"")
            cursor, objects = _core.parse_list_reply(await self._door.ask("list", body))
            if first:
                await response.prepare(request)
                first = False
            page = "".join(key.decode("utf-8", "backslashreplace") + "\n" for key, *_ in objects)
            await response.write(page.encode())
        await response.write_eof()
        return response

    async def all_segments(self, request: web.Request) -> web.Response:
        return web.Response(text="".join(f"{info['name']}\n" for info in await self.segments()))

    async def segments_detail(self, request: web.Request) -> web.Response:
        segments = [_segment_detail(info) for info in await self.segments()]
        return web.json_response({"total_segments": len(segments), "segments": segments})

    async def query_segment(self, request: web.Request) -> web.Response:
        name = request.query.get("segment", "")
        for info in await self.segments():
            if info["name"] == name:
                used, capacity = info["charged_bytes"], info["capacity_bytes"]
                return web.Response(text=f"{name}\nUsed(bytes): {used}\nCapacity(bytes) : {capacity}\n")
        return web.Response(status=404, text=f"segment {name!r} is not mounted\n")

    async def segments(self) -> list[_core.SegmentInfo]:
        """All mounted segments, as the state machine describes them."""
        body = _core.encode_segment_ids(await self._session.id(), [])
        return _core.parse_segments_reply(await self._door.ask("segments", body))

    async def _lookup(self, keys: list[str]) -> dict[str, dict[str, Any]]:
        packed_keys = [key.encode("utf-8", "surrogateescape") for key in keys]
        body = _core.encode_keys_request(await self._session.id(), packed_keys)
        records = _core.parse_lookup_reply(await self._door.ask("lookup", body))
        endpoints = {info["segment"]: info for info in await self.segments()}
        found: dict[str, dict[str, Any]] = {}
        for key, (status, _, size, _, places) in zip(keys, records, strict=True):
            ok = status == Status.OK
            found[key] = {
                "ok": ok,
                "error_code": status,
                "error": "" if ok else Status(status).name,
                "values": [_replica(size, replica, endpoints.get(segment)) for replica, segment in places],
            }
        return found


def _replica(size: int, replica: int, segment: _core.SegmentInfo | None) -> dict[str, Any]:
    """Mooncake's fields. Addresses are the node's affair and unknown here: the replica's id stands there."""
    endpoint = segment["endpoints"][0] if segment and segment["endpoints"] else ""
    protocol, _, address = endpoint.partition("://")
    return {
        "size_": size,
        "buffer_address_": replica,
        "protocol_": protocol,
        "transport_endpoint_": address,
    }


def _segment_detail(info: _core.SegmentInfo) -> dict[str, Any]:
    capacity, used = info["capacity_bytes"], info["charged_bytes"]
    endpoint = info["endpoints"][0] if info["endpoints"] else ""
    protocol, _, address = endpoint.partition("://")
    return {
        "segment_name": info["name"],
        "segment_id": f"{info['segment']:x}",
        "client_id": f"{info['owner']:x}",
        "base_address": 0,
        "size_bytes": capacity,
        "size_human": _human(capacity),
        "te_endpoint": address,
        "protocol": protocol,
        "status": "OK",
        "tier": TIERS.get(info["tier"], "unknown"),
        "host_id": info["host_id"],
        "replica_count": info["replica_count"],
        "allocator_used_bytes": used,
        "allocator_capacity_bytes": capacity,
        "allocator_retiring_bytes": info["retiring_bytes"],
        "allocator_usage_percent": round(100 * used / capacity, 2) if capacity else 0.0,
    }


def _human(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.2f} {unit}" if unit != "B" else f"{size:.0f} B"
        size /= 1024
    return f"{size:.2f} TiB"


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except StoreError as error:
        try:
            http_status = _HTTP_STATUS.get(Status(error.code), 500)
        except ValueError:
            http_status = 500
        return web.json_response(
            {"success": False, "error_code": error.code, "error_message": str(error)}, status=http_status
        )
    except ValueError as error:
        return web.json_response(
            {"success": False, "error_code": int(Status.INVALID_PARAMS), "error_message": str(error)},
            status=400,
        )
