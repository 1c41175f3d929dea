"""Keeps what one process tells of itself at a metadata server, from a thread of its own, until `end`.

Owns renewing, retrying and withdrawing. A server that is away or comes back empty is tried again and told
anew; it never stops or delays who publishes: one warning, and the counters, say that it is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Callable, Mapping
from typing import Final

from mooncake_store.errors import StoreError
from mooncake_store.metadata_server.interface import MetadataServer
from mooncake_store.metadata_server.opening import open_metadata_server

log = logging.getLogger("mooncake_store.metadata_server")

TTL_S: Final = 30
RENEWALS_A_TTL: Final = 3
LOOK_S: Final = 1.0
"""Between looks whether there is something else to tell."""
RETRY_FIRST_S: Final = 0.5
RETRY_MAX_S: Final = 5.0
WITHDRAW_S: Final = 2.0
"""For taking everything back at the end; what is left ends with its TTL."""

ROUND_END_S: Final = 1.0
"""For the call that is under way at the end."""

Told = Callable[[], Mapping[str, bytes]]


def retry_delay_s(failures: int, draw: float) -> float:
    """After so many failures in a row, from 1. draw: 0..1, so that a thousand nodes do not come at once."""
    full = min(RETRY_MAX_S, RETRY_FIRST_S * 2.0 ** min(failures - 1, 10))
    return full * (0.5 + draw / 2)


class Publication:
    """What is told to one server, and how that goes; one round at a time. No thread, no clock."""

    def __init__(self, server: MetadataServer, told: Told, *, ttl_s: int = TTL_S) -> None:
        self._server = server
        self._told = told
        self._ttl_s = ttl_s
        self._standing: dict[str, bytes] = {}
        self._failures = 0
        self.counters = dict.fromkeys(
            (
                "metadata_server_published",
                "metadata_server_publishes_total",
                "metadata_server_failures_total",
            ),
            0,
        )

    @property
    def is_current(self) -> bool:
        """Whether the server was told what there is to tell."""
        return not self._failures and self._standing == dict(self._told())

    async def round(self) -> float:
        """Tell or renew everything; seconds until the next round."""
        try:
            count = await self._tell()
        except StoreError as error:
            self._failures += 1
            self.counters["metadata_server_failures_total"] += 1
            self.counters["metadata_server_published"] = 0
            if self._failures == 1:
                log.warning("%s; what others find there may be missing; trying on", error)
            return retry_delay_s(self._failures, random.random())
        if self._failures:
            log.info("metadata server %s answers again", self._server.where)
        self._failures = 0
        self.counters["metadata_server_published"] = int(count > 0)
        return self._ttl_s / RENEWALS_A_TTL if count else RETRY_FIRST_S

    async def _tell(self) -> int:
        told = dict(self._told())
        for key in [key for key in self._standing if key not in told]:
            await self._server.delete(key, only=self._standing[key])
            del self._standing[key]
        for key, value in told.items():
            if self._standing.get(key) == value:
                await self._server.renew(key, value, ttl_s=self._ttl_s)
            else:
                # Before it is there: a put that is given up half-way may have arrived.
                self._standing[key] = value
                await self._server.put(key, value, ttl_s=self._ttl_s)
            self.counters["metadata_server_publishes_total"] += 1
        return len(told)

    async def withdraw(self) -> None:
        """Take back what still stands there as it was told, or left by an earlier process; never raises.

        A server that is away is not waited for.
        """
        if self._failures:
            return
        with contextlib.suppress(StoreError):
            for key, value in {**self._told(), **self._standing}.items():
                await self._server.delete(key, only=value)
        self._standing.clear()


class Publisher:
    """A thread that keeps a Publication. `end` is idempotent, and ends within WITHDRAW_S and ROUND_END_S."""

    def __init__(self, server: MetadataServer, told: Told, *, ttl_s: int = TTL_S) -> None:
        self._server = server
        self._publication = Publication(server, told, ttl_s=ttl_s)
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="metadata-publisher", daemon=True)
        self._thread.start()

    def counters(self) -> Mapping[str, int]:
        return self._publication.counters

    def end(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(WITHDRAW_S + ROUND_END_S)

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._keep())

    async def _keep(self) -> None:
        keeping = asyncio.create_task(self._publish())
        ending = asyncio.create_task(self._ending.wait())
        await asyncio.wait((keeping, ending), return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            # A put that is under way is waited for: given up, it might arrive after all is taken back.
            await asyncio.wait((keeping,), timeout=ROUND_END_S)
        for task in (keeping, ending):
            task.cancel()
        outcome, _ = await asyncio.gather(keeping, ending, return_exceptions=True)
        if isinstance(outcome, Exception):
            log.error("nothing is told to metadata server %s any more: %r", self._server.where, outcome)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._leave(), WITHDRAW_S)

    async def _publish(self) -> None:
        while not self._ending.is_set():
            left_s = await self._publication.round()
            while left_s > 0 and not self._ending.is_set():
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), min(left_s, LOOK_S))
                left_s -= LOOK_S
                if (
                    self._publication.counters["metadata_server_published"]
                    and not self._publication.is_current
                ):
                    break  # something else is to be told

    async def _leave(self) -> None:
        await self._publication.withdraw()
        await self._server.close()


def publish(url: str, told: Told, *, ttl_s: int = TTL_S) -> Publisher | None:
    """Begin to tell; None for P2PHANDSHAKE. told: the entries, asked for again each second, from a thread.

    Raises InvalidArgument for a URL that is none or whose library is missing; a server that does not answer
    is no error.
    """
    server = open_metadata_server(url)
    return None if server is None else Publisher(server, told, ttl_s=ttl_s)
