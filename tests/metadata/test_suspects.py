"""Nodes that clients cannot reach: when the master looks itself, and which node that costs its place.

The fake clock is the master's bounded one, so a starved master sees it stand still.
"""

from __future__ import annotations

from typing import Literal

import pytest
from metadata.conftest import Make
from metadata.harness import MALFORMED, NOT_FOUND, OK, SESSION_UNKNOWN, VERBS, Harness

from mooncake_store import _core

MIB = 1 << 20
TTL, GRACE, PAUSE = 10_000, 1_000, 1_000
REFUSED, RESET, TIMED_OUT = 1, 2, 3
Result = Literal["answered", "refused", "failed"]


class Pool:
    """A node that was once connected, and a client that reports it; the test ends the probes."""

    def __init__(self, pool: Harness) -> None:
        self.pool = pool
        self.node, self.client = pool.open(), pool.open()
        pool.machine.session_attached(self.node, pool.now)
        self.segment = pool.mount(self.node, "seg", MIB)
        pool.put(self.node, b"k")

    def report(self, kind: int = TIMED_OUT, client: int | None = None) -> bool:
        """Whether it made the master begin a probe."""
        body = _core.encode_heartbeat(client or self.client, [self.segment], [kind])
        assert self.pool.ask("heartbeat", body)[0] == OK
        assert set(self.pool.effects) <= {("probe", self.segment, 0, self.node)}
        return bool(self.pool.effects)

    def probe(self, result: Result, after_ms: int = 0) -> bool:
        """A report, and how the probe it leads to ends. Whether the node was expelled."""
        assert self.report()
        self.pool.now += after_ms
        effects = self.pool.machine.probed(self.node, result, self.pool.now)
        self.pool.machine.check_invariants()
        return ("end_session", 0, 0, self.node) in effects

    def detach(self) -> None:
        self.pool.machine.session_detached(self.node, self.pool.now)

    def pass_time(self, milliseconds: int, *, heard: bool) -> None:
        self.pool.advance(milliseconds)
        if heard:
            assert self.pool.heartbeat(self.node) == OK


@pytest.fixture
def world(make: Make) -> Pool:
    return Pool(make(client_ttl_ms=TTL, session_grace_ms=GRACE))


def test_a_process_that_is_gone_is_expelled_after_one_refused_probe(world: Pool) -> None:
    world.detach()
    assert world.probe("refused")
    assert world.pool.exists(world.client, b"k") == [NOT_FOUND]
    assert world.pool.heartbeat(world.node) == SESSION_UNKNOWN
    assert world.pool.stat("early_expiries_total") == world.pool.stat("sessions_expired_total") == 1
    assert world.pool.stat("suspected_node_count") == 0


def test_a_node_whose_heartbeats_arrive_is_never_expelled_whatever_probes_and_clients_say(
    world: Pool,
) -> None:
    results: list[Result] = ["refused", "failed"]
    for second in range(60):
        assert not world.probe(results[second % 2])
        world.pass_time(PAUSE, heard=True)
    assert world.pool.stat("early_expiries_total") == 0
    assert world.pool.stat("probe_failures_total") == 60
    assert world.pool.exists(world.client, b"k") == [OK]


def test_a_node_that_the_master_reaches_is_not_expelled_though_its_connection_is_gone(world: Pool) -> None:
    world.detach()
    for _ in range(8):
        assert not world.probe("answered")
        world.pass_time(PAUSE, heard=False)
    assert world.pool.heartbeat(world.node) == OK


def test_a_silent_probe_counts_only_after_the_grace_and_three_times_in_a_row(world: Pool) -> None:
    world.detach()
    assert not world.probe("failed")
    world.pass_time(PAUSE, heard=False)
    assert not world.probe("failed")
    world.pass_time(PAUSE, heard=False)
    assert world.probe("failed")


def test_three_silent_probes_within_the_grace_expel_nobody(make: Make) -> None:
    world = Pool(make(client_ttl_ms=TTL, session_grace_ms=5_000))
    world.detach()
    for _ in range(4):
        assert not world.probe("failed")
        world.pass_time(PAUSE, heard=False)
    assert not world.probe("failed", after_ms=999)
    world.pass_time(1, heard=False)
    assert world.probe("failed")


def test_an_answered_probe_between_silent_ones_begins_the_count_anew(world: Pool) -> None:
    world.detach()
    for result in ("failed", "failed", "answered", "failed", "failed"):
        assert not world.probe(result)  # type: ignore[arg-type]
        world.pass_time(PAUSE, heard=False)
    assert world.probe("failed")


def test_a_node_on_a_busy_machine_that_is_heard_in_time_stays(world: Pool) -> None:
    """Its heartbeats come late, its data port answers no probe in time, its connection is open."""
    for _ in range(6):
        for _ in range(4):
            assert not world.probe("failed")
            world.pass_time(PAUSE, heard=False)
        world.pass_time(900, heard=True)
    assert world.pool.stat("early_expiries_total") == 0


def test_a_stopped_node_keeps_what_it_holds_for_all_its_time(world: Pool) -> None:
    """UP 9: a client_ttl of 10 s, stopped for 8: nobody reaches it, and its connection is open."""
    for _ in range(TTL // PAUSE - 1):
        assert not world.probe("failed")
        world.pass_time(PAUSE, heard=False)
    assert world.pool.heartbeat(world.node) == OK
    assert world.pool.exists(world.client, b"k") == [OK]


def test_a_starved_master_expels_nobody_for_probes_that_it_missed_itself(world: Pool) -> None:
    """UP 9: every probe fails for want of its own time; its clock counts 500 ms a reading at most."""
    world.pass_time(500, heard=True)
    assert not world.probe("failed")
    world.pass_time(500, heard=False)
    assert not world.report()  # the pause of the bounded clock has not passed
    world.pass_time(500, heard=True)
    assert not world.probe("failed")
    assert world.pool.stat("early_expiries_total") == 0


def test_a_node_that_never_had_a_connection_is_judged_by_its_heartbeats(make: Make) -> None:
    pool = make(client_ttl_ms=TTL)
    node, client = pool.open(), pool.open()
    segment = pool.mount(node, "seg", MIB)
    pool.ask("heartbeat", _core.encode_heartbeat(client, [segment], [REFUSED]))
    assert ("end_session", 0, 0, node) not in pool.machine.probed(node, "refused", pool.now)
    assert pool.heartbeat(node) == OK


def test_reports_lead_to_one_probe_a_second_and_one_at_a_time(world: Pool) -> None:
    other = world.pool.open()
    assert world.report()
    assert not world.report()
    assert not world.report(client=other)
    world.pool.now += PAUSE
    assert not world.report()  # the first is still under way
    world.pool.machine.probed(world.node, "answered", world.pool.now)
    assert world.report()
    world.pool.machine.probed(world.node, "answered", world.pool.now)
    world.pool.now += PAUSE - 1
    assert not world.report()
    world.pool.now += 1
    assert world.report()
    assert world.pool.stat("unreachable_reports_total") == 7
    assert world.pool.stat("probes_total") == 3


def test_probes_under_way_are_bounded_and_a_lost_one_frees_its_place(make: Make) -> None:
    pool = make()
    client = pool.open()
    nodes = [pool.open() for _ in range(20)]
    segments = [pool.mount(node, f"n{number}", MIB) for number, node in enumerate(nodes)]
    pool.ask("heartbeat", _core.encode_heartbeat(client, segments))
    assert len(pool.effects) == 16
    pool.machine.probed(nodes[0], "answered", pool.now)
    pool.ask("heartbeat", _core.encode_heartbeat(client, segments))
    assert [effect[3] for effect in pool.effects] == [nodes[16]]
    pool.now += 5_000
    pool.ask("heartbeat", _core.encode_heartbeat(client, segments))
    assert len(pool.effects) == 16


def test_what_is_said_of_oneself_or_of_an_unknown_segment_leads_to_nothing(world: Pool) -> None:
    assert not world.report(client=world.node)
    body = _core.encode_heartbeat(world.client, [1, 2**63], [REFUSED, RESET])
    assert world.pool.ask("heartbeat", body)[0] == OK
    assert world.pool.effects == []
    assert world.pool.machine.probed(world.node, "refused", world.pool.now) == []
    assert world.pool.machine.probed(12_345, "refused", world.pool.now) == []


def test_a_report_without_kinds_is_taken_and_one_with_too_few_is_malformed(world: Pool) -> None:
    plain = _core.encode_prefix(world.client, avoid=[world.segment])
    assert world.pool.ask("heartbeat", plain)[0] == OK
    assert world.pool.effects == [("probe", world.segment, 0, world.node)]
    two = _core.encode_prefix(world.client, avoid=[world.segment, 5])
    assert world.pool.ask("heartbeat", two + b"\x01")[0] == MALFORMED
    assert world.pool.ask("heartbeat", two + b"\x01\xff")[0] == OK  # a kind of a later version


def test_operators_are_told_once_of_a_suspicion_what_came_of_it_and_of_the_end(world: Pool) -> None:
    def told() -> list[tuple[int, int]]:
        status, body, *_ = world.pool.machine.execute(
            VERBS["inspect"], _core.encode_inspect(world.client, 2, b"seg"), world.pool.now
        )
        assert status == OK
        events = _core.parse_inspect_reply(body)["events"]
        return [(event["kind"], event["reason"]) for event in reversed(events) if event["kind"] >= 25]

    for _ in range(3):
        world.probe("answered")
        world.pass_time(PAUSE, heard=True)
    assert told() == [(28, 8), (29, 0)]
    world.detach()
    assert world.probe("refused")
    assert told()[2:] == [(30, 6), (25, 4)]


def test_the_endpoint_to_dial_is_the_segments_first(world: Pool) -> None:
    assert world.pool.machine.endpoint(world.segment) == "tcp://seg:1"
    world.pool.unmount(world.node, world.segment)
    assert world.pool.machine.endpoint(world.segment) == ""
