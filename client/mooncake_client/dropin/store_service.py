"""`mc_store_rest_server`: a store behind HTTP, for programs that are not Python and for operators.

Owns routes, forms of requests and answers, and the process: setting up with retries, signals, the end. The
store is called on threads, so that a slow call holds up no other. Needs aiohttp. It listens on loopback
unless it is told
otherwise: anybody who reaches it can remove everything.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
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
_PREFILL, _DECODE = "prefill", "decode"
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[["MooncakeStoreService", web.Request], Awaitable[web.Response]]


class Refused(Exception):
    """An answer other than 200, and what its JSON says beside `error`."""

    def __init__(self, status: int, error: str, **beside: Any) -> None:
        super().__init__(error)
        self.status, self.body = status, {"error": error, **beside}


def _answered(handler: Handler) -> Handler:
    """A handler that answers what it raises, as JSON, instead of raising it."""

    @functools.wraps(handler)
    async def answer(service: MooncakeStoreService, request: web.Request) -> web.Response:
        try:
            return await handler(service, request)
        except Refused as refused:
            return web.json_response(refused.body, status=refused.status)
        except Exception as error:
            log.exception("%s", handler.__name__)
            return web.json_response({"error": str(error)}, status=500)

    return answer


class MooncakeStoreService:
    """The routes over one store that has joined the pool; must not outlive it.

    current_mode, mounted_segment_ids, last_mount_info: what /api/reconfigure has made of the process. It
    begins as `prefill`, which lends no path; `decode` lends one.
    """

    def __init__(self, store: MooncakeDistributedStore, config: MooncakeConfig) -> None:
        self.store = store
        self.config = config
        self.current_mode = _PREFILL
        self.mounted_segment_ids: list[str] = []
        self.last_mount_info: dict[str, Any] = {}
        self._state_lock = asyncio.Lock()

    def application(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.add_routes(
            [
                web.put("/api/put", self.handle_put),
                web.get("/api/get/{key:.+}", self.handle_get),
                web.get("/api/exist/{key:.+}", self.handle_exist),
                web.delete("/api/remove/{key:.+}", self.handle_remove),
                web.delete("/api/remove_all", self.handle_remove_all),
                web.post("/api/mount_shm", self.handle_mount_shm),
                web.post("/api/unmount_shm", self.handle_unmount_shm),
                web.post("/api/mount", self.handle_mount),
                web.post("/api/unmount", self.handle_unmount),
                web.post("/api/unmount_local_disk", self.handle_unmount_local_disk),
                web.post("/api/reconfigure", self.handle_reconfigure),
            ]
        )
        return app

    # ---- values

    @_answered
    async def handle_put(self, request: web.Request) -> web.Response:
        body = await _json(request)
        key, value = body.get("key"), body.get("value")
        if not isinstance(key, str) or not isinstance(value, str) or not key or not value:
            raise Refused(400, "Missing key or value")
        if await asyncio.to_thread(self.store.put, key, value.encode("utf-8")) != 0:
            raise Refused(500, "PUT operation failed")
        return web.json_response({"status": "success"})

    @_answered
    async def handle_get(self, request: web.Request) -> web.Response:
        value = await asyncio.to_thread(self.store.get, request.match_info["key"])
        if not value:
            raise Refused(404, "Key not found")
        return web.Response(body=value, content_type="application/octet-stream")

    @_answered
    async def handle_exist(self, request: web.Request) -> web.Response:
        found = await asyncio.to_thread(self.store.is_exist, request.match_info["key"])
        if found < 0:
            raise Refused(500, f"Exist operation failed, ret={found}")
        return web.json_response({"exists": found == 1})

    @_answered
    async def handle_remove(self, request: web.Request) -> web.Response:
        if await asyncio.to_thread(self.store.remove, request.match_info["key"]) != 0:
            raise Refused(500, "Remove operation failed")
        return web.json_response({"status": "success"})

    @_answered
    async def handle_remove_all(self, request: web.Request) -> web.Response:
        removed = await asyncio.to_thread(self.store.remove_all)
        if removed < 0:
            raise Refused(500, "RemoveAll operation failed")
        return web.json_response({"status": f"success removed {removed} keys"})

    # ---- memory

    @_answered
    async def handle_mount(self, request: web.Request) -> web.Response:
        body = await _json(request)
        size = _count(body.get("size"))
        if not size:
            raise Refused(400, "Invalid size")
        mounted = await asyncio.to_thread(
            self.store.allocate_and_mount_segment, size, *self._transport_of(body)
        )
        segment_ids = _segment_ids(mounted)
        return web.json_response(
            {"status": "success", "segment_ids": segment_ids, "allocated_size": mounted["allocated_size"]}
        )

    @_answered
    async def handle_unmount(self, request: web.Request) -> web.Response:
        return _unmounted(
            await self._take_back(self.store.unmount_and_free_segment, *_segments_of(await _json(request)))
        )

    @_answered
    async def handle_mount_shm(self, request: web.Request) -> web.Response:
        body = await _json(request)
        path = _shm_name_to_path(body.get("name"))
        size, offset = _count(body.get("size")), _count(body.get("offset", 0))
        if path is None or not size or offset is None:
            raise Refused(400, "Missing or invalid name or size")
        mounted = await asyncio.to_thread(
            self.store.mount_segment, path, size, offset, *self._transport_of(body)
        )
        return web.json_response({"status": "success", "segment_ids": _segment_ids(mounted)})

    @_answered
    async def handle_unmount_shm(self, request: web.Request) -> web.Response:
        segment_ids, grace_s = _segments_of(await _json(request))
        async with self._state_lock:
            failed = await self._take_back(self.store.unmount_segment, segment_ids, grace_s)
            self._forget(set(segment_ids) - set(failed))
        return _unmounted(failed)

    @_answered
    async def handle_unmount_local_disk(self, request: web.Request) -> web.Response:
        grace_s = _grace_of(await _json(request))
        code = await asyncio.to_thread(self.store.unmount_local_disk_segment, grace_s)
        if code != 0:
            raise Refused(500, f"Unmount failed, ret={code}")
        return web.json_response({"status": "success"})

    @_answered
    async def handle_reconfigure(self, request: web.Request) -> web.Response:
        """`decode`: lend a path, then take the one before back. `prefill`: lend none."""
        body = await _json(request)
        mode = body.get("mode")
        if mode not in (_DECODE, _PREFILL):
            raise Refused(400, f"Invalid mode {mode!r}: it is {_DECODE} or {_PREFILL}")
        async with self._state_lock:
            if mode == _DECODE:
                return await self._lend_path(body)
            return await self._lend_none({"status": "success", "mode": _PREFILL})

    async def _lend_path(self, body: dict[str, Any]) -> web.Response:
        path, size, offset = body.get("path"), _count(body.get("size")), _count(body.get("offset", 0))
        if not isinstance(path, str) or not path or not size or offset is None:
            raise Refused(400, "Missing path or size")
        protocol, location = self._transport_of(body)
        told = {"path": path, "size": size, "offset": offset, "protocol": protocol, "location": location}
        older = list(self.mounted_segment_ids)
        if not older or told != self.last_mount_info:
            mounted = await asyncio.to_thread(
                self.store.mount_segment, path, size, offset, protocol, location
            )
            if mounted["ret"] != 0:
                error = f"Mount failed, ret={mounted['ret']}; rolled back to {_PREFILL}"
                return await self._lend_none({"error": error, "mode": _PREFILL}, status=500)
            self.mounted_segment_ids = [*mounted["segment_ids"], *older]
            self.current_mode, self.last_mount_info = _DECODE, told
            failed = await self._take_back(self.store.unmount_segment, older, 0)
            self._forget(set(older) - set(failed))
            if failed:
                return _unmounted(failed)
        return web.json_response(
            {"status": "success", "mode": _DECODE, "segment_ids": self.mounted_segment_ids}
        )

    async def _lend_none(self, answer: dict[str, Any], status: int = 200) -> web.Response:
        segment_ids = list(self.mounted_segment_ids)
        failed = await self._take_back(self.store.unmount_segment, segment_ids, 0)
        self._forget(set(segment_ids) - set(failed))
        if failed:
            return _unmounted(failed)
        self.current_mode, self.last_mount_info = _PREFILL, {}
        return web.json_response(answer, status=status)

    def _forget(self, segment_ids: set[str]) -> None:
        """These are lent no more; without any the process is as it began."""
        known = self.mounted_segment_ids
        self.mounted_segment_ids = [one for one in known if one not in segment_ids]
        if known and not self.mounted_segment_ids:
            self.current_mode, self.last_mount_info = _PREFILL, {}

    def _transport_of(self, body: dict[str, Any]) -> tuple[str, str]:
        return str(body.get("protocol") or self.config.protocol), str(body.get("location") or "")

    async def _take_back(
        self, unmount: Callable[..., int], segment_ids: Sequence[str], grace_s: int
    ) -> list[str]:
        """Those that could not be unmounted."""
        beside = (grace_s,) if grace_s else ()
        return [
            identity for identity in segment_ids if await asyncio.to_thread(unmount, [identity], *beside) != 0
        ]


async def _json(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except ValueError as error:
        raise Refused(400, f"The body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refused(400, "The body is not a JSON object")
    return body


def _segment_ids(mounted: dict[str, Any]) -> list[str]:
    if mounted["ret"] != 0:
        raise Refused(500, f"Mount failed, ret={mounted['ret']}")
    return list(mounted["segment_ids"])


def _unmounted(failed: list[str]) -> web.Response:
    if failed:
        return web.json_response({"error": "Unmount failed", "failed_segment_ids": failed}, status=500)
    return web.json_response({"status": "success"})


def _segments_of(body: dict[str, Any]) -> tuple[list[str], int]:
    """Which segments a body names, one or several, and the grace period in seconds."""
    named = body.get("segment_ids")
    segment_ids = [named] if isinstance(named, str) else named
    if not isinstance(segment_ids, list) or not segment_ids or not all(map(_is_text, segment_ids)):
        raise Refused(400, "Missing segment_ids, or not names of segments")
    return segment_ids, _grace_of(body)


def _grace_of(body: dict[str, Any]) -> int:
    grace_s = _count(body.get("grace_period_seconds", 0))
    if grace_s is None or grace_s > GRACE_S_MAX:
        raise Refused(400, f"grace_period_seconds is not in 0..{GRACE_S_MAX}")
    return grace_s


def _shm_name_to_path(name: object) -> str | None:
    """The file of a shared-memory object; None for what is no name of one, such as a path."""
    if not isinstance(name, str):
        return None
    bare = name.removeprefix("/")
    return f"/dev/shm/{bare}" if bare not in ("", ".", "..") and "/" not in bare else None


def _count(value: Any) -> int | None:
    """A whole number that is not negative; None: it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


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
    runner = web.AppRunner(MooncakeStoreService(store, config).application(), access_log=None)
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
