"""`mc_store_rest_server`: a store behind HTTP, for programs that are not Python and for operators.

Owns routes, forms of requests and answers, and the process: setting up with retries, signals, the end. The
store is called on threads, so that a slow call holds up no other. Needs aiohttp. It listens on loopback
unless it is told
otherwise: anybody who reaches it can remove everything.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from aiohttp import web

from mooncake_client.dropin.mooncake_config import MooncakeConfig, load_config
from mooncake_client.dropin.store import MooncakeDistributedStore
from mooncake_store.endpoints import Endpoint, is_wildcard
from mooncake_store.ports import cannot_listen

log = logging.getLogger("mooncake_store.dropin.rest")

BODY_BYTES_MAX: Final = 100 << 20
GRACE_S_MAX: Final = 3_600
_RETRY_S: Final = 1.0
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Refused(Exception):
    """An answer other than 200, and what its JSON says beside `error`."""

    def __init__(self, status: int, error: str, **beside: Any) -> None:
        super().__init__(error)
        self.status, self.body = status, {"error": error, **beside}


class StoreService:
    """The routes over one store that has joined the pool. Must not outlive it."""

    def __init__(self, store: MooncakeDistributedStore, config: MooncakeConfig) -> None:
        self._store = store
        self._config = config
        self._mounted: list[str] = []  # of the last /api/reconfigure
        self._reconfiguring = asyncio.Lock()

    def application(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_refusals])
        app.add_routes(
            [
                web.put("/api/put", self.put),
                web.get("/api/get/{key:.+}", self.get),
                web.get("/api/exist/{key:.+}", self.exist),
                web.delete("/api/remove/{key:.+}", self.remove),
                web.delete("/api/remove_all", self.remove_all),
                web.post("/api/mount_shm", self.mount_shm),
                web.post("/api/unmount_shm", self.unmount),
                web.post("/api/mount", self.mount),
                web.post("/api/unmount", self.unmount),
                web.post("/api/unmount_local_disk", self.unmount_local_disk),
                web.post("/api/reconfigure", self.reconfigure),
            ]
        )
        return app

    # ---- values

    async def put(self, request: web.Request) -> web.StreamResponse:
        body = await _json(request)
        key, value = body.get("key"), body.get("value")
        if not isinstance(key, str) or not isinstance(value, str) or not key or not value:
            raise Refused(400, "Missing key or value")
        if await asyncio.to_thread(self._store.put, key, value.encode("utf-8")) != 0:
            raise Refused(500, "PUT operation failed")
        return web.json_response({"status": "success"})

    async def get(self, request: web.Request) -> web.StreamResponse:
        key = request.match_info["key"]
        handle = await asyncio.to_thread(self._store.get_buffer, key)
        if handle is None:
            raise Refused(404, "Key not found")
        return web.Response(body=bytes(memoryview(handle)), content_type="application/octet-stream")

    async def exist(self, request: web.Request) -> web.StreamResponse:
        found = await asyncio.to_thread(self._store.is_exist, request.match_info["key"])
        if found < 0:
            raise Refused(500, f"Exist operation failed, ret={found}")
        return web.json_response({"exists": found == 1})

    async def remove(self, request: web.Request) -> web.StreamResponse:
        if await asyncio.to_thread(self._store.remove, request.match_info["key"]) != 0:
            raise Refused(500, "Remove operation failed")
        return web.json_response({"status": "success"})

    async def remove_all(self, request: web.Request) -> web.StreamResponse:
        removed = await asyncio.to_thread(self._store.remove_all)
        if removed < 0:
            raise Refused(500, "RemoveAll operation failed")
        return web.json_response({"status": f"success removed {removed} keys"})

    # ---- memory

    async def mount(self, request: web.Request) -> web.StreamResponse:
        size = _count((await _json(request)).get("size"))
        if not size:
            raise Refused(400, "Missing or invalid size")
        return web.json_response(await self._lend(size))

    async def mount_shm(self, request: web.Request) -> web.StreamResponse:
        body = await _json(request)
        name, size, offset = body.get("name"), _count(body.get("size")), _count(body.get("offset", 0))
        if not isinstance(name, str) or not name or not size or offset is None:
            raise Refused(400, "Missing or invalid name or size")
        return web.json_response(await self._lend_path(f"/dev/shm/{name.lstrip('/')}", size, offset))

    async def unmount(self, request: web.Request) -> web.StreamResponse:
        body = await _json(request)
        identities = body.get("segment_ids")
        identities = [identities] if isinstance(identities, str) else identities
        grace = _count(body.get("grace_period_seconds", 0))
        if not isinstance(identities, list) or not identities or not all(map(_is_text, identities)):
            raise Refused(400, "Missing or invalid segment_ids")
        if grace is None or grace > GRACE_S_MAX:
            raise Refused(400, f"grace_period_seconds is not in 0..{GRACE_S_MAX}")
        failed = await self._take_back(identities, grace)
        if failed:
            raise Refused(500, "Unmount failed", failed_segment_ids=failed)
        return web.json_response({"status": "success"})

    async def unmount_local_disk(self, request: web.Request) -> web.StreamResponse:
        grace = _count((await _json(request)).get("grace_period_seconds", 0))
        if grace is None or grace > GRACE_S_MAX:
            raise Refused(400, f"grace_period_seconds is not in 0..{GRACE_S_MAX}")
        code = await asyncio.to_thread(self._store.unmount_local_disk_segment, grace)
        if code != 0:
            raise Refused(500, f"Unmount failed, ret={code}")
        return web.json_response({"status": "success"})

    async def reconfigure(self, request: web.Request) -> web.StreamResponse:
        """Lend other memory, then take back what the last one lent: of a path (decode) or of this process."""
        body = await _json(request)
        mode = body.get("mode")
        async with self._reconfiguring:
            if mode == "decode":
                path, size, offset = body.get("path"), _count(body.get("size")), _count(body.get("offset", 0))
                if not isinstance(path, str) or not path or not size or offset is None:
                    raise Refused(400, "Missing or invalid path or size")
                mounted = await self._lend_path(path, size, offset)
            elif mode == "prefill":
                mounted = await self._lend(self._config.global_segment_size)
            else:
                raise Refused(400, f"mode {mode!r} is neither decode nor prefill")
            failed = await self._take_back(self._mounted, 0) if self._mounted else []
            self._mounted = mounted["segment_ids"]
        if failed:
            raise Refused(500, "Unmount failed", failed_segment_ids=failed)
        return web.json_response(mounted)

    async def _lend(self, size: int) -> dict[str, Any]:
        mounted = await asyncio.to_thread(self._store.allocate_and_mount_segment, size)
        return _mounted(mounted, allocated_size=mounted["allocated_size"])

    async def _lend_path(self, path: str, size: int, offset: int) -> dict[str, Any]:
        return _mounted(await asyncio.to_thread(self._store.mount_segment, path, size, offset))

    async def _take_back(self, identities: Sequence[str], grace_s: int) -> list[str]:
        """Those that could not be unmounted."""
        codes = [
            await asyncio.to_thread(self._store.unmount_segment, [identity], grace_s)
            for identity in identities
        ]
        return [identity for identity, code in zip(identities, codes, strict=True) if code != 0]


@web.middleware
async def _refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refused as refused:
        return web.json_response(refused.body, status=refused.status)


async def _json(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except ValueError as error:
        raise Refused(400, f"The body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refused(400, "The body is not a JSON object")
    return body


def _mounted(answer: dict[str, Any], **beside: Any) -> dict[str, Any]:
    if answer["ret"] != 0:
        raise Refused(500, f"Mount failed, ret={answer['ret']}")
    return {"status": "success", "segment_ids": answer["segment_ids"], **beside}


def _count(value: Any) -> int | None:
    """A whole number that is not negative; None: it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


# ---- the process


def join(config: MooncakeConfig, max_wait_s: float) -> MooncakeDistributedStore | None:
    """A store that has joined, tried again every second; None when the time is over."""
    deadline = time.monotonic() + max_wait_s
    while True:
        store = MooncakeDistributedStore()
        code = store.setup(
            config.local_hostname,
            config.metadata_server,
            config.global_segment_size,
            config.local_buffer_size,
            config.protocol,
            config.device_name,
            config.master_server_address,
            tenant_id=config.tenant_id,
            enable_ssd_offload=config.enable_ssd_offload,
            enable_client_http_server=config.enable_client_http_server,
            client_http_port=config.client_http_port,
        )
        if code == 0:
            return store
        if time.monotonic() + _RETRY_S > deadline:
            log.error("the store could not be set up within %.0f s: %d", max_wait_s, code)
            return None
        time.sleep(_RETRY_S)


async def serve(store: MooncakeDistributedStore, config: MooncakeConfig, endpoint: Endpoint) -> int:
    """Until a stop signal. Exit status."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop.set)
    runner = web.AppRunner(StoreService(store, config).application(), access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, endpoint.host, endpoint.port).start()
        except OSError as error:
            log.error("%s", cannot_listen(endpoint, "--port", error))
            return 1
        host, port = runner.addresses[0][:2]
        log.info("serves HTTP on %s", Endpoint(host, port))
        if is_wildcard(host):
            log.warning("HTTP listens on every interface, without authentication; --host limits it")
        await stop.wait()
        return 0
    finally:
        await runner.cleanup()


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 after SIGTERM or SIGINT, 1 when it could not start, 2 for a wrong flag."""
    parser = argparse.ArgumentParser(prog="mc_store_rest_server", description="A store behind HTTP.")
    parser.add_argument("--config", default="", help="JSON file; without it the environment is asked")
    parser.add_argument(
        "-D",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one setting; repeatable",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8080, help="port to listen on; 0: any free one")
    parser.add_argument("--max-wait-time", type=float, default=60.0, help="seconds to wait for the master")
    flags = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    overrides = {}
    for setting in flags.settings:
        name, equals, value = setting.partition("=")
        if not equals:
            parser.error(f"-D {setting!r} is not KEY=VALUE")
        overrides[name.strip()] = value.strip()
    try:
        config = load_config(flags.config, overrides)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    try:
        store = join(config, flags.max_wait_time)
    except KeyboardInterrupt:
        return 130
    if store is None:
        return 1
    try:
        return asyncio.run(serve(store, config, Endpoint(flags.host, flags.port)))
    finally:
        store.close()


if __name__ == "__main__":
    sys.exit(main())
