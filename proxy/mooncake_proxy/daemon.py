"""Starts and stops one proxy: session, prober and listening socket, in that order and back.

Owns lifetimes. A failure to start is one line, a StoreError, that names port and flag.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
from typing import Final

import aiohttp
from aiohttp import web

from mooncake_proxy.admin import InstancesAdmin
from mooncake_proxy.admission import Admission
from mooncake_proxy.config import ProxyConfig, Secrets
from mooncake_proxy.fleet import Fleet, Role
from mooncake_proxy.http import ProxyHttp
from mooncake_proxy.metrics import ProxyMetrics
from mooncake_proxy.prefixes import BlockFinder, keys_function
from mooncake_proxy.prober import Prober
from mooncake_proxy.relay import Relay
from mooncake_proxy.upstream import open_session
from mooncake_store._version import __version__
from mooncake_store.endpoints import Endpoint
from mooncake_store.http_faults import is_our_fault
from mooncake_store.ports import cannot_listen

log = logging.getLogger("mooncake_store.proxy")

HTTP_IDLE_S: Final = 75.0
"""A client's connection that asks nothing, or not a whole request, for so long is closed. Longer than clients
keep theirs (httpx: 5 s), so that no request meets the close."""
LINGER_S: Final = 1.0
"""For the rest of a body that was refused to come in, so that its sender reads the refusal."""
FILES_BESIDES: Final = 64
"""Descriptors for everything but the two connections of each request."""


STOP_LOOK_S: Final = 0.05
CUT_OFF_S: Final = 0.1
"""For handlers to end when `stop` has waited in vain. Not 0, which aiohttp takes for "without end"."""


class Daemon:
    """One running proxy. `start` and `stop` belong to one event loop."""

    def __init__(self, config: ProxyConfig, secrets: Secrets) -> None:
        self.config = config
        self.port = 0
        self._secrets = secrets
        self._admission = Admission(config)
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None
        self._session: aiohttp.ClientSession | None = None
        self._probing: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()

    async def start(self) -> None:
        """Listens. On failure everything that was started is stopped before this raises."""
        try:
            await self._start()
        except BaseException:
            await self.stop(grace_s=0)
            raise

    async def _start(self) -> None:
        config = self.config
        raise_file_limit(config.requests_max)
        fleet = Fleet(config.model, instance_requests_max=config.instance_requests_max)
        for role, endpoints in ((Role.PREFILL, config.prefill), (Role.DECODE, config.decode)):
            for endpoint in endpoints:
                fleet.add(endpoint, role)
        self._session = open_session(config)
        metrics = ProxyMetrics(config, fleet, self._admission)
        prober = Prober(config, self._secrets, fleet, self._session)
        blocks = None
        if config.prefix_keys:
            keys_of = keys_function(config.prefix_keys)
            [master] = config.prefix_master
            blocks = BlockFinder(self._session, master, keys_of, timeout_ms=config.prefix_timeout_ms)
        relay = Relay(config, self._secrets, fleet, self._session, self._admission, metrics, blocks)
        admin = InstancesAdmin(self._secrets, fleet, prober)
        http = ProxyHttp(fleet, relay, admin, self._admission, metrics, scheduling=config.scheduling)
        await self._listen(http)
        self._probing = asyncio.create_task(prober.run())
        log.info(
            "mooncake_proxy %s serves %s on %s: %d prefill and %d decode instances, %s",
            __version__,
            config.model,
            Endpoint(config.host, self.port),
            len(config.prefill),
            len(config.decode),
            config.scheduling,
        )

    async def _listen(self, http: ProxyHttp) -> None:
        logging.getLogger("aiohttp.server").addFilter(is_our_fault)
        runner = web.AppRunner(
            http.application(),
            access_log=None,
            handler_cancellation=True,  # a client that leaves ends its request at the instances
            keepalive_timeout=HTTP_IDLE_S,
            shutdown_timeout=CUT_OFF_S,
            lingering_time=LINGER_S,
        )
        self._runner = runner
        await runner.setup()
        listen = Endpoint(self.config.host, self.config.port)
        self._site = web.TCPSite(runner, listen.host, listen.port, backlog=1_024)
        try:
            await self._site.start()
        except OSError as error:
            raise cannot_listen(listen, "--port", error) from error
        self.port = runner.addresses[0][1]

    async def stop(self, grace_s: float) -> None:
        """New connections are refused at once; running requests have `grace_s`. Idempotent."""
        self._admission.is_stopping = True
        if self._site is not None:
            await self._site.stop()
            self._site = None
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + grace_s
        while self._admission.running and loop.time() < ends_s:
            await asyncio.sleep(STOP_LOOK_S)
        if self._admission.running:
            log.warning("%d requests are cut off (--stop_timeout)", self._admission.running)
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)
            self._probing = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._session is not None:
            await self._session.close()
            self._session = None


def raise_file_limit(requests_max: int) -> None:
    """The soft limit of descriptors, as far as the hard one allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * requests_max + FILES_BESIDES
    if hard != resource.RLIM_INFINITY and hard < wanted:
        log.warning(
            "%d descriptors (ulimit -n) are too few for --requests_max=%d, which needs %d",
            hard,
            requests_max,
            wanted,
        )
        wanted = hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def serve(config: ProxyConfig, secrets: Secrets) -> None:
    """Runs a proxy until SIGTERM or SIGINT; running requests may end, a second signal ends it at once."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stopping.set)
    daemon = Daemon(config, secrets)
    await daemon.start()
    try:
        await stopping.wait()
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        log.info("stopping; running requests may take --stop_timeout")
        await daemon.stop(config.stop_timeout_ms / 1_000)
