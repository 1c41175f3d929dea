"""Elections: one leader at a time, epochs that only rise, and a leader that stops before its lease ends.

The same promises for the one in memory, etcd and redis; those two as real servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import election_servers
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from master.fake_election import Board, FakeElection

from mooncake_master.ha.election import LEASE_S, ElectionUnavailable, Tenure
from mooncake_master.ha.etcd_election import EtcdElection
from mooncake_master.ha.redis_election import RedisElection
from mooncake_store.endpoints import Endpoint

A, B = "10.0.0.1:50001", "10.0.0.2:50001"


class Pair:
    """Two masters' access to one backend, and its server if it is one."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.server: election_servers.Server | None = None
        self.board = Board()
        self.made: list[Any] = []
        self.kind = kind
        if kind != "memory":
            self.server = election_servers.etcd(folder) if kind == "etcd" else election_servers.redis(folder)
            self.server.start()

    def join(self) -> Any:
        if self.server is None:
            return FakeElection(self.board)
        made: EtcdElection | RedisElection
        if self.kind == "etcd":
            dead = Endpoint("127.0.0.1", 1)
            made = EtcdElection([dead, Endpoint("127.0.0.1", self.server.port)], "c")
        else:
            made = RedisElection(f"redis://{self.server.address}", "c")
        self.made.append(made)
        return made

    async def let_lapse(self, asker: Any) -> None:
        self.board.now += LEASE_S
        deadline = time.monotonic() + 10 * LEASE_S
        while await asker.leader() is not None:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


@pytest.fixture(params=["memory", pytest.param("etcd", marks=pytest.mark.slow), "redis"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    pair = Pair(request.param, tmp_path)
    try:
        await answered(pair.join().leader)  # etcd listens before it has elected itself
        yield pair
        for made in pair.made:
            await made.close()
    finally:
        if pair.server is not None:
            pair.server.kill()


async def answered(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Its answer, once a backend answers."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return await ask()
        except ElectionUnavailable:
            assert time.monotonic() < deadline


async def test_one_leads_and_the_next_has_a_higher_epoch(pair: Pair) -> None:
    a, b = pair.join(), pair.join()
    assert await a.leader() is None
    first = await a.campaign(A, above=0)
    assert first is not None
    assert first.epoch == 1
    assert await b.campaign(B, above=0) is None
    told = await b.leader()
    assert (told.address, told.epoch) == (A, 1)
    assert await a.renew(first, epoch=1)
    await a.resign(first)
    assert not await a.renew(first, epoch=1) or pair.kind == "redis"
    await a.resign(first)
    second = await b.campaign(B, above=0)
    assert second is not None
    assert second.epoch == 2
    assert not await a.renew(first, epoch=1)
    await a.resign(first)  # must not end the other's term
    assert await b.renew(second, epoch=2)


async def test_epochs_that_masters_know_are_passed_over(pair: Pair) -> None:
    a, b = pair.join(), pair.join()
    first = await a.campaign(A, above=41)
    assert first is not None
    assert first.epoch == 42
    assert await a.renew(first, epoch=50)
    assert (await b.leader()).epoch == 50
    await a.resign(first)
    second = await b.campaign(B, above=7)
    assert second is not None
    assert second.epoch == 51


@pytest.mark.slow
async def test_a_term_that_is_not_renewed_lapses(pair: Pair) -> None:
    a, b = pair.join(), pair.join()
    first = await a.campaign(A, above=0)
    assert first is not None
    await pair.let_lapse(b)
    second = await b.campaign(B, above=0)
    assert second is not None
    assert second.epoch == 2
    assert not await a.renew(first, epoch=1)


async def test_masters_announce_themselves(pair: Pair) -> None:
    a = pair.join()
    await a.announce(A)
    await a.announce(A)


async def test_of_many_that_campaign_at_once_one_wins(pair: Pair) -> None:
    won = await asyncio.gather(*(pair.join().campaign(f"10.0.0.{i}:1", above=0) for i in range(5)))
    assert sum(term is not None for term in won) == 1


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["etcd", "redis"], indirect=True)
async def test_a_backend_that_is_away_is_told_and_found_again(pair: Pair) -> None:
    a = pair.join()
    first = await a.campaign(A, above=0)
    assert first is not None
    assert pair.server is not None
    pair.server.kill()
    asked = time.monotonic()
    with pytest.raises(ElectionUnavailable):
        await a.renew(first, epoch=1)
    assert time.monotonic() - asked < LEASE_S
    pair.server.start()
    # etcd has kept the lease on disk; redis came back empty and gives the term again.
    assert await answered(lambda: a.renew(first, epoch=1))
    assert (await a.leader()).address == A


class Reigns(RuleBasedStateMachine):
    """Masters that campaign, renew, lose answers and sleep: never do two trust their terms at once."""

    masters = st.integers(0, 2)

    def __init__(self) -> None:
        super().__init__()
        self.board = Board()
        self.elections = [FakeElection(self.board) for _ in range(3)]
        self.tenures: list[Tenure | None] = [None] * 3
        self.epochs: list[int] = []

    def _run(self, coroutine: Any) -> Any:
        try:
            coroutine.send(None)
        except StopIteration as answer:
            return answer.value
        raise AssertionError("a fake waits")

    @rule(seconds=st.floats(0, 2 * LEASE_S))
    def time_passes(self, seconds: float) -> None:
        self.board.now += seconds

    @rule(i=masters, cut=st.booleans(), mute=st.booleans())
    def network(self, i: int, cut: bool, mute: bool) -> None:
        self.elections[i].is_cut, self.elections[i].is_mute = cut, mute

    @rule(i=masters, delay=st.floats(0, LEASE_S))
    def campaign(self, i: int, delay: float) -> None:
        asked_at = self.board.now
        self.board.now += delay
        try:
            term = self._run(self.elections[i].campaign(str(i), above=0))
        except ElectionUnavailable:
            return
        if term is not None:
            self.tenures[i] = Tenure(term, asked_at=asked_at)
            self.epochs.append(term.epoch)

    @rule(i=masters, delay=st.floats(0, LEASE_S))
    def renew(self, i: int, delay: float) -> None:
        tenure = self.tenures[i]
        if tenure is None:
            return
        asked_at = self.board.now
        self.board.now += delay
        try:
            kept = self._run(self.elections[i].renew(tenure.term, epoch=tenure.term.epoch))
        except ElectionUnavailable:
            return
        if kept:
            tenure.extend(asked_at)
        else:
            self.tenures[i] = None

    @rule(i=masters)
    def resign(self, i: int) -> None:
        tenure, self.tenures[i] = self.tenures[i], None  # it stops serving first
        if tenure is not None:
            with contextlib.suppress(ElectionUnavailable):
                self._run(self.elections[i].resign(tenure.term))

    @invariant()
    def one_reigns(self) -> None:
        now = self.board.now
        assert sum(tenure is not None and tenure.holds(now) for tenure in self.tenures) <= 1

    @invariant()
    def epochs_rise(self) -> None:
        assert self.epochs == sorted(set(self.epochs))


TestReigns = Reigns.TestCase
TestReigns.settings = settings(deadline=None)
