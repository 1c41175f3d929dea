"""A node and its master compare what the node holds, and put right what nobody has told the other of."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metadata.harness import FORCE, NOT_FOUND, OK, UPSERT, WRITE_FAIL, Harness
from mix64 import mix64

from mooncake_store import _core

LOST = 5  # a reason of why
FORGOTTEN, DIFFERS, RECONCILED = 17, 32, 33


@dataclass
class HonestNode:
    """What a node holds and answers; retires wait in order until the test lets it carry them out."""

    pool: Harness
    name: str = "a"
    held: set[int] = field(default_factory=set)
    queue: list[int] = field(default_factory=list)
    settled_id: int = 0
    command: int = 0

    def __post_init__(self) -> None:
        self.session = self.pool.open(host=f"host-{self.name}")
        self.segment = self.pool.mount(self.session, self.name, 1 << 20)
        self.asked: tuple[int, int] = (0, 0)

    def note_effects(self) -> None:
        """The retires of the last command, queued."""
        self.queue += [
            r for kind, segment, r, _ in self.pool.effects if (kind, segment) == ("retire", self.segment)
        ]

    def carry_out(self) -> None:
        """One command with all that is queued; confirmed, and every range is free."""
        if not self.queue:
            return
        done, self.queue = self.queue, []
        self.command += 1
        self.held -= set(done)
        self.pool.machine.retire_confirmed(self.session, self.command, done)
        self.pool.free(done)

    def snapshot(self, freed: tuple[int, ...] = ()) -> bytes:
        """A report as it is now, encoded."""
        settled = [replica for replica in self.held if replica <= self.settled_id]
        checksum = 0
        for replica in settled:
            checksum ^= mix64(replica)
        segment = {
            "segment": self.segment,
            "ready_bytes": 1 << 20,
            "receiving_bytes": 0,
            "draining_bytes": 0,
            "largest_free_bytes": 1 << 20,
            "sealed_count": len(settled),
            "sealed_checksum": checksum,
        }
        return _core.encode_report(self.session, self.command, [segment], list(freed), self.settled_id)  # type: ignore[list-item]

    def report(self, body: bytes | None = None) -> None:
        status, answer = self.pool.ask("report", body if body is not None else self.snapshot())
        assert status == OK
        reply = _core.parse_report_reply(answer)
        self.settled_id = max(self.settled_id, reply["settled_id"])
        self.asked = (reply["comparison"], reply["compared_segment"])
        self.note_effects()

    def list_all(self, chunk: int = 1 << 16, last: int = 1) -> None:
        """Answers a comparison that was asked for."""
        comparison, segment = self.asked
        assert segment == self.segment
        ids = sorted(replica for replica in self.held if replica <= self.settled_id)
        chunks = [ids[at : at + chunk] for at in range(0, len(ids), chunk)] or [[]]
        for number, part in enumerate(chunks):
            flags = last if number == len(chunks) - 1 else 0
            body = _core.encode_holdings(self.session, comparison, part, flags)
            assert self.pool.ask("holdings", body)[0] == OK
            self.note_effects()

    def put(self, key: bytes, seals: bool = True, **options: object) -> int:
        """A value here; the node has it unless it does not seal it."""
        [grant] = self.pool.put_start(self.session, key, **options)
        self.note_effects()
        assert grant.status == OK
        replicas = [replica for replica, segment in grant.places if segment == self.segment]
        if seals:
            self.held |= set(replicas)
        assert self.pool.put_end(self.session, grant.written) == [OK]
        self.note_effects()
        return replicas[0] if replicas else 0

    def compare(self) -> None:
        """Reports until both sides have compared, then what a comparison asks for."""
        for _ in range(3):
            self.report()
        self.pool.tick()
        self.report()
        if self.asked[0] != 0:
            self.list_all()
            self.pool.tick()
            self.note_effects()


@pytest.fixture
def node(pool: Harness) -> HonestNode:
    return HonestNode(pool)


def mismatches(pool: Harness) -> int:
    return pool.stat("reconcile_mismatches_total")


def events(pool: Harness, session: int, key: bytes | None = None) -> list[int]:
    body = _core.encode_inspect(session, 0 if key is None else 1, key or b"")
    status, reply = pool.ask("inspect", body)
    assert status == OK
    return [event["kind"] for event in _core.parse_inspect_reply(reply)["events"]]


def test_sides_that_agree_find_no_mismatch(pool: Harness, node: HonestNode) -> None:
    for number in range(5):
        node.put(b"k%d" % number)
        node.compare()
    assert pool.stat("reconcile_checks_total") >= 5
    assert mismatches(pool) == 0


def test_an_orphan_is_ended_at_the_node(pool: Harness, node: HonestNode) -> None:
    kept = node.put(b"k")
    node.held.add(node.segment)  # an id below, and no replica's
    node.compare()
    assert node.queue == [node.segment]
    node.carry_out()
    assert node.held == {kept}
    assert pool.stat("reconcile_orphans_total") == 1
    assert pool.lookup(node.session, b"k")[0][0] == OK
    node.compare()
    node.compare()
    assert mismatches(pool) == 1
    assert events(pool, node.session)[:2] == [RECONCILED, DIFFERS]


def test_a_ghost_is_forgotten_and_why_tells_that_it_was_lost(pool: Harness, node: HonestNode) -> None:
    node.held.remove(node.put(b"gone"))
    node.put(b"stays")
    node.compare()
    assert [answer[0] for answer in pool.lookup(node.session, b"gone", b"stays")] == [NOT_FOUND, OK]
    assert (pool.stat("reconcile_ghosts_total"), pool.stat("lost_keys_total")) == (1, 1)
    assert pool.charged(node.session) == [64]
    status, reply = pool.ask("why", _core.encode_keys_request(node.session, [b"gone"]))
    assert status == OK
    assert _core.parse_why_reply(reply)[0][1] == LOST
    assert events(pool, node.session, b"gone")[0] == FORGOTTEN
    node.compare()
    assert mismatches(pool) == 1


def test_of_two_copies_only_the_ghost_is_forgotten_and_repaired(pool: Harness, node: HonestNode) -> None:
    other = HonestNode(pool, "b")
    replica = node.put(b"k", replica_count=2)
    node.held.remove(replica)
    node.compare()
    [(status, _, _, _, places)] = pool.lookup(node.session, b"k")
    assert status == OK
    assert [segment for _, segment in places] == [other.segment]
    assert pool.stat("lost_keys_total") == 0
    pool.advance(1_000)
    assert pool.stat("copies_started_total") == 1


@pytest.mark.parametrize("carried_out", [False, True])
def test_a_retire_under_way_is_no_mismatch(pool: Harness, node: HonestNode, carried_out: bool) -> None:
    for number in range(3):
        node.put(b"k%d" % number)
    node.compare()
    pool.remove(node.session, b"k1", flags=FORCE)
    node.note_effects()
    if carried_out:  # and its confirmation was lost
        node.held -= set(node.queue)
        node.command += 1
    checks = pool.stat("reconcile_checks_total")
    node.compare()
    assert (pool.stat("reconcile_checks_total") > checks) == (not carried_out)
    assert mismatches(pool) == 0
    node.carry_out()
    node.compare()
    assert pool.stat("reconcile_checks_total") > checks
    assert mismatches(pool) == 0


@pytest.mark.parametrize("seals", [False, True])
def test_a_put_that_failed_may_be_there_until_its_retire_is_confirmed(
    pool: Harness, node: HonestNode, seals: bool
) -> None:
    [grant] = pool.put_start(node.session, b"k")
    [(replica, _)] = grant.places
    if seals:
        node.held.add(replica)
    assert pool.put_end(node.session, (grant.put_id, [(replica, WRITE_FAIL)])) == [WRITE_FAIL]
    node.note_effects()
    node.compare()
    assert (pool.stat("reconcile_checks_total"), mismatches(pool)) == (0, 0)
    node.carry_out()
    node.compare()
    assert pool.stat("reconcile_checks_total") > 0
    assert mismatches(pool) == 0


def test_an_unfinished_put_holds_the_comparison_back_and_is_never_ended(
    pool: Harness, node: HonestNode
) -> None:
    node.compare()
    [grant] = pool.put_start(node.session, b"slow")
    [(replica, _)] = grant.places
    node.held.add(replica)  # sealed, put_end is on its way
    lost = node.put(b"later")
    node.held.remove(lost)
    node.compare()
    node.compare()
    assert mismatches(pool) == 0  # the one that is lost is above the unfinished put
    assert pool.put_end(node.session, grant.written) == [OK]
    node.compare()
    node.compare()
    assert pool.stat("reconcile_ghosts_total") == 1
    assert [answer[0] for answer in pool.lookup(node.session, b"slow", b"later")] == [OK, NOT_FOUND]


def test_a_report_that_comes_late_or_twice_is_no_mismatch(pool: Harness, node: HonestNode) -> None:
    node.put(b"a")
    node.compare()
    old = node.snapshot()
    node.put(b"b")
    pool.remove(node.session, b"a", flags=FORCE)
    node.note_effects()
    node.carry_out()
    for _ in range(3):
        node.report()
        assert pool.ask("report", old)[0] == OK
    assert mismatches(pool) == 0


def test_what_ends_while_it_is_compared_is_neither_orphan_nor_ghost(pool: Harness, node: HonestNode) -> None:
    node.put(b"removed")
    node.put(b"replaced")
    node.held.remove(node.put(b"ghost"))
    for _ in range(3):
        node.report()
    pool.tick()
    node.report()
    assert node.asked[1] == node.segment
    pool.remove(node.session, b"removed", flags=FORCE)
    node.note_effects()
    node.put(b"replaced", flags=UPSERT)
    node.list_all(chunk=1)
    node.list_all()  # again, as after a broken connection: the comparison is over
    node.carry_out()
    pool.tick()
    assert (pool.stat("reconcile_orphans_total"), pool.stat("reconcile_ghosts_total")) == (0, 1)
    assert pool.lookup(node.session, b"replaced")[0][0] == OK


def test_what_retires_before_the_index_is_walked_is_no_orphan(pool: Harness, node: HonestNode) -> None:
    node.put(b"removed")
    node.held.remove(node.put(b"ghost"))
    for _ in range(3):
        node.report()
    pool.remove(node.session, b"removed", flags=FORCE)
    node.note_effects()
    pool.tick()
    node.report()
    node.list_all()
    pool.tick()
    assert (pool.stat("reconcile_orphans_total"), pool.stat("reconcile_ghosts_total")) == (0, 1)


def test_a_list_that_begins_again_ends_nothing_twice(pool: Harness, node: HonestNode) -> None:
    for number in range(4):
        node.put(b"k%d" % number)
    node.held.add(node.segment)
    for _ in range(3):
        node.report()
    pool.tick()
    node.report()
    node.list_all(chunk=2, last=0)
    node.list_all()
    pool.tick()
    assert node.queue == [node.segment]
    assert pool.stat("key_count") == 4


def test_a_node_that_does_not_list_is_asked_again_by_the_next_comparison(
    pool: Harness, node: HonestNode
) -> None:
    node.held.remove(node.put(b"ghost"))
    for _ in range(3):
        node.report()
    pool.tick()
    node.report()
    for _ in range(12):
        assert pool.heartbeat(node.session) == OK
        pool.advance(1_000)
    assert pool.stat("reconcile_given_up_total") == 1
    node.compare()
    assert pool.stat("reconcile_ghosts_total") == 1
    assert mismatches(pool) == 2


def test_a_comparison_ends_with_its_segment(pool: Harness, node: HonestNode) -> None:
    node.held.remove(node.put(b"ghost"))
    for _ in range(3):
        node.report()
    pool.tick()
    assert pool.unmount(node.session, node.segment) == [OK]
    pool.tick()
    other = HonestNode(pool, "b")
    other.held.remove(other.put(b"another"))
    other.compare()
    assert pool.stat("reconcile_ghosts_total") == 1


STEPS = st.lists(st.sampled_from(["put", "fail", "remove", "carry", "report", "stale", "tick"]), max_size=60)


@given(steps=STEPS, seed=st.integers(0, 3))
def test_a_node_that_does_as_it_is_told_never_differs(steps: list[str], seed: int) -> None:
    pool = Harness(seed=seed, settings={"keys_a_step_max": 3})
    node = HonestNode(pool)
    stale = node.snapshot()
    for number, step in enumerate(steps):
        key = b"k%d" % (number % 4)
        if step == "put":
            node.put(key, flags=UPSERT)
        elif step == "fail":
            [grant] = pool.put_start(node.session, key, flags=UPSERT)
            node.note_effects()
            if number % 2:
                node.held |= {replica for replica, _ in grant.places}
            pool.put_revoke(node.session, grant.put_id)
            node.note_effects()
        elif step == "remove":
            pool.remove(node.session, key, flags=FORCE)
            node.note_effects()
        elif step == "carry":
            node.carry_out()
        elif step == "report":
            stale = node.snapshot()
            node.report()
        elif step == "stale":
            pool.ask("report", stale)
        else:
            pool.tick()
            node.note_effects()
        assert mismatches(pool) == 0
    node.carry_out()
    node.compare()
    assert mismatches(pool) == 0
    assert pool.stat("reconcile_checks_total") > 0
