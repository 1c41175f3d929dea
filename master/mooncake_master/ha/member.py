"""One master of several: stands by until it is elected, reigns while its term holds, and steps down in time.

Owns the way from one role to the next, and the HTTP port while it stands by. The daemon of a reign is
`mooncake_master.daemon.Daemon`; who is elected is the backend's affair (ha/election.py). docs/ha.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from mooncake_master.config import MasterConfig
from mooncake_master.ha.election import (
    ANNOUNCE_S,
    POLL_S,
    RENEW_RETRY_S,
    RENEW_S,
    Election,
    ElectionUnavailable,
    Leader,
    Tenure,
    boottime,
)
from mooncake_master.reign import EPOCH_MAX, Reign
from mooncake_store.errors import StoreError

log = logging.getLogger("mooncake_store.master")

RESIGN_PAUSE_S: Final = 3.0
"""Who resigned lets the others campaign alone for so long."""
TOLD_UNAVAILABLE_S: Final = 30.0  # between two lines of the log about a backend that is away


class Reigning(Protocol):
    """What a member asks of the daemon that serves during its term."""

    @property
    def epoch(self) -> int: ...
    @property
    def deposed_by(self) -> int: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def serve_until(self, boottime_s: float) -> None: ...


class Member:
    """Runs one master's part in an election. All of it belongs to one event loop."""

    def __init__(
        self,
        config: MasterConfig,
        election: Election,
        address: str,
        *,
        reign: Callable[[Member, Tenure], Reigning],
        stand_by: Callable[[Member], Awaitable[Callable[[], Awaitable[None]]]],
        clock: Callable[[], float] = boottime,
    ) -> None:
        """address: where clients reach this master's gRPC.

        reign: makes the daemon of a term. stand_by: opens the pages of a standby, and gives what closes them.
        """
        self.address = address
        self.leader: Leader | None = None
        self.ha_state = "starting"
        self.numbers = {
            "elections_won_total": 0,
            "terms_lost_total": 0,
            "terms_resigned_total": 0,
            "backend_failures_total": 0,
        }
        self._config = config
        self._election = election
        self._make_reign = reign
        self._open_pages = stand_by
        self._clock = clock
        self._tenure: Tenure | None = None
        self._resign = asyncio.Event()
        self._campaign_at = 0.0
        self._known_epoch = 0
        self._told_unavailable_at = -TOLD_UNAVAILABLE_S

    def description(self) -> dict[str, Any]:
        """What /health says of a standby."""
        leader = self.leader
        return {
            "role": "standby",
            "ha_state": self.ha_state,
            "service_ready": False,
            "leader_address": leader.address if leader else "",
            "view_version": leader.epoch if leader else 0,
        }

    def stats(self) -> dict[str, float]:
        """Numbers for /metrics."""
        left_s = 0.0 if self._tenure is None else max(0.0, self._tenure.until - self._clock())
        return {**self.numbers, "is_leader": int(self._tenure is not None), "term_left_seconds": left_s}

    def resign(self) -> bool:
        """Hand over to another master, if this one leads."""
        if self._tenure is None:
            return False
        self._resign.set()
        return True

    async def run(self, stopping: asyncio.Event) -> None:
        """Until `stopping`. Raises StoreError when this master cannot serve where it should."""
        self._known_epoch = Reign.of(self._config).last()
        announcing = asyncio.create_task(self._announce())
        try:
            while not stopping.is_set():
                tenure = await self._stand_by(stopping)
                if tenure is not None:
                    await self._reign(tenure, stopping)
        finally:
            announcing.cancel()
            await asyncio.gather(announcing, return_exceptions=True)
            await self._election.close()

    async def _announce(self) -> None:
        while True:
            with contextlib.suppress(ElectionUnavailable):
                await self._election.announce(self.address)
            await asyncio.sleep(ANNOUNCE_S)

    async def _stand_by(self, stopping: asyncio.Event) -> Tenure | None:
        """Until it is elected, or None when it is to stop."""
        self.ha_state = "standby"
        close_pages = await self._open_pages(self)
        log.info("stands by: clients will be served at %s when this master is elected", self.address)
        try:
            while not stopping.is_set():
                if tenure := await self._campaign():
                    return tenure
                await _wait(stopping, POLL_S)
            return None
        finally:
            await close_pages()

    async def _campaign(self) -> Tenure | None:
        try:
            before, self.leader = self.leader, await self._election.leader()
            if self.leader is not None:
                if self.leader != before:
                    log.info("follows the master at %s, epoch %d", self.leader.address, self.leader.epoch)
                return None
            asked_at = self._clock()
            if asked_at < self._campaign_at:
                return None
            term = await self._election.campaign(self.address, above=self._known_epoch)
        except ElectionUnavailable as error:
            self._tell_unavailable(error)
            return None
        if term is None:
            return None
        if term.epoch > EPOCH_MAX:
            await self._give_up(Tenure(term, asked_at=asked_at))
            raise StoreError(f"no epoch is left: the election gave {term.epoch}, the last is {EPOCH_MAX}")
        self.leader = Leader(term.address, term.epoch)
        return Tenure(term, asked_at=asked_at)

    async def _reign(self, tenure: Tenure, stopping: asyncio.Event) -> None:
        self._tenure = tenure
        self._resign.clear()
        self.ha_state = "starting"
        self.numbers["elections_won_total"] += 1
        log.info("elected, epoch %d", tenure.term.epoch)
        daemon = self._make_reign(self, tenure)
        daemon.serve_until(tenure.until)
        holding = asyncio.create_task(self._hold(tenure, daemon))
        ends = [holding, *(asyncio.create_task(event.wait()) for event in (stopping, self._resign))]
        try:
            await daemon.start()
            self.ha_state = "serving"
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # In this order: nothing is served any more, then another may be elected, then this one cleans up.
            daemon.serve_until(0)
            is_lost = holding.done()
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
            self._known_epoch = max(daemon.epoch, daemon.deposed_by, tenure.term.epoch)
            self._tenure = None
            self.leader = None
            self.ha_state = "stopping"
            if is_lost:
                self.numbers["terms_lost_total"] += 1
            else:
                self.numbers["terms_resigned_total"] += 1
                self._campaign_at = self._clock() + RESIGN_PAUSE_S
            await self._give_up(tenure)
            await daemon.stop()
            log.info("the term of epoch %d is over", tenure.term.epoch)

    async def _give_up(self, tenure: Tenure) -> None:
        try:
            await self._election.resign(tenure.term)
        except ElectionUnavailable as error:
            log.warning("the term lapses by itself: %s", error)

    async def _hold(self, tenure: Tenure, daemon: Reigning) -> None:
        """Renews the term; returns when it is over."""
        pause = RENEW_S
        while True:
            await asyncio.sleep(pause)
            if daemon.deposed_by:
                log.error("steps down: nodes follow a master of epoch %d", daemon.deposed_by)
                return
            asked_at = self._clock()
            if not tenure.holds(asked_at):
                log.error("steps down: the election could not be asked, or this process did not run, in time")
                return
            epoch = max(daemon.epoch, tenure.term.epoch)
            try:
                kept = await asyncio.wait_for(
                    self._election.renew(tenure.term, epoch=epoch), tenure.until - asked_at
                )
            except (ElectionUnavailable, asyncio.TimeoutError) as error:
                self._tell_unavailable(error)
                pause = RENEW_RETRY_S
                continue
            if not kept:
                log.error("steps down: its term, of epoch %d, is over", epoch)
                return
            tenure.extend(asked_at)
            daemon.serve_until(tenure.until)
            self.leader = Leader(self.address, epoch)
            pause = RENEW_S

    def _tell_unavailable(self, error: Exception) -> None:
        self.numbers["backend_failures_total"] += 1
        if self._clock() - self._told_unavailable_at >= TOLD_UNAVAILABLE_S:
            self._told_unavailable_at = self._clock()
            log.warning("the election: %s; trying on", str(error) or "no answer in time")


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
