"""Starts and stops one master: the native part, gRPC, HTTP and the periodic summary, in that order and back.

Owns lifetimes and listening ports. A failure to start is one line, a StoreError, that names port and flag.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import grpc
from aiohttp import web

from mooncake_master.config import MasterConfig
from mooncake_master.door import Door
from mooncake_master.ha.backends import open_election
from mooncake_master.ha.election import Tenure, Term
from mooncake_master.ha.member import Member
from mooncake_master.ha.standby_http import StandbyHttp
from mooncake_master.http import AdminHttp
from mooncake_master.metrics import MetricsPage
from mooncake_master.native import start_native
from mooncake_master.reign import Reign
from mooncake_master.servicer import MasterServicer, RefusingMalformed
from mooncake_master.watch import PoolWatch
from mooncake_store import _core
from mooncake_store._version import __version__
from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import StoreError
from mooncake_store.http_faults import is_our_fault
from mooncake_store.logs import fields
from mooncake_store.metadata_server.server import EMBEDDED, HttpMetadataServer
from mooncake_store.ports import cannot_listen
from mooncake_store.v1 import master_pb2_grpc as pb_grpc

log = logging.getLogger("mooncake_store.master")

GRPC_GRACE_S: Final = 0.5
HTTP_GRACE_S: Final = 0.5
HTTP_IDLE_S: Final = 15.0
"""An HTTP connection that asks nothing, or not a whole request, for so long is closed (Prometheus' usual
interval: its connections stay)."""
SUMMARY_INTERVAL_S: Final = 10.0
LOOK_INTERVAL_S: Final = 1.0  # between looks at the pool, for the log
STATE_LOOK_S: Final = 0.05
"""How often what --state_file keeps is looked at: below remove_confirm_timeout, after which a remove is
answered although a node has not carried it out."""
STATE_RETRY_S: Final = 5.0
"""After a write that failed: a full disk is worth a line now and then, not ten a second."""
MESSAGE_BYTES_MAX: Final = 32 << 20
"""Largest gRPC message: 16,384 keys of 1,024 bytes, and what goes with them."""

GRPC_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # Two masters on one port would each get half of the clients; a busy port must be an error.
    ("grpc.so_reuseport", 0),
)


class Daemon:
    """One running master. `start` and `stop` belong to one event loop."""

    def __init__(
        self,
        config: MasterConfig,
        *,
        term: Term | None = None,
        resign: Callable[[], bool] | None = None,
        ha_numbers: Callable[[], Mapping[str, float]] | None = None,
    ) -> None:
        """term: of one that was elected; then `resign` ends it and ha_numbers are its part of /metrics."""
        self.config = config
        self._term = term
        self._resign = resign
        self._ha_numbers = ha_numbers
        self._serve_until_ms: int | None = None
        self.grpc_port = 0
        self.http_port = 0
        self.lane_port = 0
        self._native: _core.Master | None = None
        self._grpc: grpc.aio.Server | None = None
        self._http: web.AppRunner | None = None
        self._metadata_server: HttpMetadataServer | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listens on all ports. On failure everything that was started is stopped before this raises."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        listen = self.config.listen_endpoint()
        # Probed first: gRPC's own message for a busy port names neither the cause nor a flag.
        _check_port_is_free(listen, self.config.grpc_port_flag)
        _check_port_is_free(Endpoint(self.config.metrics_host, self.config.metrics_port), "--metrics_port")
        reign = Reign.of(self.config)
        epoch = reign.take() if self._term is None else self._elected(reign, self._term)
        native = start_native(
            self.config,
            lane_host=listen.host,
            epoch=epoch,
            tombstones=reign.tombstones,
            keeps_tombstones=reign.path is not None,
        )
        self._native = native
        if self._serve_until_ms is not None:
            native.serve_until(self._serve_until_ms)
        self.lane_port = native.lane_port
        door = Door(native)
        await self._start_grpc(native, door, listen)
        admin = await self._start_http(native, door)
        if self.config.enable_http_metadata_server:
            await self._start_metadata_server()
        if self.config.enable_metric_reporting:
            self._tasks.append(asyncio.create_task(self._log_summaries(native)))
        self._tasks.append(asyncio.create_task(self._log_changes(native, admin)))
        self._tasks.append(asyncio.create_task(self._keep_state(native, reign)))
        log.info(
            "mooncake_master %s serves gRPC on %s, the lane on port %d, HTTP on port %d; epoch %d",
            __version__,
            Endpoint(listen.host, self.grpc_port),
            self.lane_port,
            self.http_port,
            native.epoch,
        )

    def _elected(self, reign: Reign, term: Term) -> int:
        reign.last()  # for its tombstones: they say of values what stays true
        reign.note(term.epoch, reign.tombstones)
        return term.epoch

    @property
    def epoch(self) -> int:
        """Of the native master; 0 while there is none."""
        return self._native.epoch if self._native is not None else 0

    @property
    def deposed_by(self) -> int:
        """The epoch of a later master that nodes follow, or 0."""
        return self._native.stats()["deposed_by_epoch"] if self._native is not None else 0

    def serve_until(self, boottime_s: float) -> None:
        """Refuse every request from this moment of CLOCK_BOOTTIME on, also if this process sleeps then."""
        self._serve_until_ms = int(boottime_s * 1_000)
        if self._native is not None:
            self._native.serve_until(self._serve_until_ms)

    async def _start_grpc(self, native: _core.Master, door: Door, listen: Endpoint) -> None:
        server = grpc.aio.server(options=GRPC_OPTIONS, interceptors=[RefusingMalformed()])
        servicer = MasterServicer(
            door,
            epoch=lambda: native.epoch,
            hear_of_reign=native.hear_of_reign,
            master_uuid=native.uuid,
            lane_endpoint=str(Endpoint(self.config.advertise_host, self.lane_port)),
        )
        pb_grpc.add_MasterServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
        try:
            self.grpc_port = server.add_insecure_port(str(listen))
        except RuntimeError as error:
            raise cannot_listen(listen, self.config.grpc_port_flag, str(error)) from error
        if self.grpc_port == 0:
            raise cannot_listen(listen, self.config.grpc_port_flag, "gRPC could not bind it")
        self._grpc = server
        await server.start()

    async def _start_http(self, native: _core.Master, door: Door) -> AdminHttp:
        metrics = MetricsPage(
            native,
            identity=lambda: {"epoch": str(native.epoch), "eviction_policy": self.config.eviction_policy},
            ha_numbers=self._ha_numbers,
        )
        admin = AdminHttp(door, metrics, describe=lambda: self._description(native), resign=self._resign)
        logging.getLogger("aiohttp.server").addFilter(is_our_fault)
        self._http = await open_http(self.config, admin.application())
        self.http_port = self._http.addresses[0][1]
        return admin

    async def _start_metadata_server(self) -> None:
        server = self._metadata_server = HttpMetadataServer(form=EMBEDDED)
        listen = Endpoint(self.config.http_metadata_server_host, self.config.http_metadata_server_port)
        await server.start(listen, "--http_metadata_server_port")
        log.info("the HTTP metadata server is open at http://%s/metadata", Endpoint(listen.host, server.port))

    def _description(self, native: _core.Master) -> dict[str, Any]:
        host = self.config.advertise_host or socket.gethostname()
        deposed_by = native.stats()["deposed_by_epoch"]
        return {
            "role": "standby" if deposed_by else "leader",
            "ha_state": "deposed" if deposed_by else "serving",
            "service_ready": not deposed_by,
            "leader_address": self._term.address if self._term else str(Endpoint(host, self.grpc_port)),
            "view_version": native.epoch,
            "version": __version__,
            "lane_port": self.lane_port,
        }

    async def _keep_state(self, native: _core.Master, reign: Reign) -> None:
        kept = (native.epoch, 0)
        retry_at = 0.0
        while True:
            await asyncio.sleep(STATE_LOOK_S)
            now = (native.epoch, native.tombstones_generation)
            if now == kept:
                continue
            if time.monotonic() >= retry_at:
                if await asyncio.to_thread(reign.note, now[0], native.tombstones):
                    kept = now
                else:
                    retry_at = time.monotonic() + STATE_RETRY_S
            native.tombstones_kept(now[1])  # where it cannot be kept, no remove gains by waiting for it

    async def _log_summaries(self, native: _core.Master) -> None:
        metrics = MetricsPage(native, identity=dict)
        while True:
            await asyncio.sleep(SUMMARY_INTERVAL_S)
            # Not as the whole text: the summary is one message, however its numbers change.
            log.info("summary: %s", metrics.summary(), extra=fields(numbers=native.stats()))

    async def _log_changes(self, native: _core.Master, admin: AdminHttp) -> None:
        watch = PoolWatch()
        # Its session is kept as clients keep theirs.
        interval_s = min(LOOK_INTERVAL_S, self.config.client_ttl_ms / 4_000)
        while True:
            await asyncio.sleep(interval_s)
            stats = native.stats()
            for notice in watch.look_at_reign(stats):
                log.log(notice.level, notice.text, notice.fields, extra=fields(**notice.fields))
            try:
                await admin.keep_session()
                segments = await admin.segments() if watch.moved(stats) else None
            except StoreError as error:
                log.debug("the segments are not told now: %s", error)
                continue
            for notice in watch.look(stats, segments):
                log.log(notice.level, notice.text, notice.fields, extra=fields(**notice.fields))

    async def stop(self) -> None:
        """Stops what was started, newest first; idempotent. Within two seconds, by the grace times."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._metadata_server is not None:
            await self._metadata_server.stop()
            self._metadata_server = None
        if self._http is not None:
            await self._http.cleanup()
            self._http = None
        if self._grpc is not None:
            await self._grpc.stop(GRPC_GRACE_S)
            self._grpc = None
        if self._native is not None:
            await asyncio.to_thread(self._native.stop)
            self._native = None


async def open_http(config: MasterConfig, pages: web.Application) -> web.AppRunner:
    """Serves these pages on --metrics_port until cleanup() of what it gives. StoreError names the flag."""
    runner = web.AppRunner(
        pages, access_log=None, shutdown_timeout=HTTP_GRACE_S, keepalive_timeout=HTTP_IDLE_S
    )
    await runner.setup()
    listen = Endpoint(config.metrics_host, config.metrics_port)
    try:
        await web.TCPSite(runner, listen.host, listen.port).start()
    except OSError as error:
        await runner.cleanup()
        raise cannot_listen(listen, "--metrics_port", error) from error
    return runner


async def serve(config: MasterConfig) -> None:
    """Runs a master until SIGTERM or SIGINT."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if config.enable_ha:
        await _member(config).run(stopping)
        return
    daemon = Daemon(config)
    await daemon.start()
    try:
        await stopping.wait()
    finally:
        log.info("stopping")
        await daemon.stop()


def _member(config: MasterConfig) -> Member:
    listen = config.listen_endpoint()
    _check_port_is_free(listen, config.grpc_port_flag)  # now, and not when it is elected

    def reign(member: Member, tenure: Tenure) -> Daemon:
        return Daemon(config, term=tenure.term, resign=member.resign, ha_numbers=member.stats)

    async def stand_by(member: Member) -> Callable[[], Awaitable[None]]:
        pages = StandbyHttp(member.description, member.stats)
        return (await open_http(config, pages.application())).cleanup

    return Member(config, open_election(config), config.ha_address(), reign=reign, stand_by=stand_by)


def _check_port_is_free(endpoint: Endpoint, flag: str) -> None:
    if endpoint.port == 0:
        return
    host = endpoint.host or "0.0.0.0"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, endpoint.port))
            probe.listen(1)
        except socket.gaierror as error:
            raise cannot_listen(endpoint, flag, f"the host is not known ({error.strerror})") from error
        except OSError as error:
            raise cannot_listen(endpoint, flag, error) from error
