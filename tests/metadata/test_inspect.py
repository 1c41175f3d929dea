"""What operators are told: a key or node now, what happened to it, and what the bounded journal forgot."""

from __future__ import annotations

from typing import Any

import pytest
from metadata.conftest import Make
from metadata.harness import FORCE, MALFORMED, NOT_FOUND, NOT_READY, OK, UPSERT, Harness

from mooncake_store import _core

POOL, KEY, NAME = range(3)
PLACED, COMMITTED, FAILED, REVOKED, REAPED, SUPERSEDED = range(1, 7)
REMOVED, EVICTED, EXPIRED, FREED, LOST, ADOPTED = range(7, 13)
OPENED, ENDED, CONNECTION_LOST, MOUNTED, TOLD, LEFT, EPOCH, REBUILT = range(20, 28)
IN_ORDER, SILENT = 1, 2
REPLACED = 5
UNFINISHED, LIVE, RETIRING = 1, 2, 3
MIB = 1 << 20


def inspect(pool: Harness, session: int, subject: int, name: bytes = b"", limit: int = 0) -> dict[str, Any]:
    status, body = pool.ask("inspect", _core.encode_inspect(session, subject, name, limit))
    assert status == OK, (status, body)
    return dict(_core.parse_inspect_reply(body))


def kinds(story: dict[str, Any]) -> list[int]:
    """Oldest first."""
    return [event["kind"] for event in reversed(story["events"])]


def test_a_values_story_is_told_from_its_grant_to_its_freed_range(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "seg", MIB)
    pool.put(node, b"k")
    pool.advance(500)
    pool.remove(node, b"k", flags=FORCE)
    pool.free_retired()
    pool.advance(250)
    story = inspect(pool, node, KEY, b"k")
    assert kinds(story) == [PLACED, COMMITTED, REMOVED, FREED]
    assert [event["ms_ago"] for event in story["events"]] == [250, 250, 750, 750]
    assert {event["name"] for event in story["events"]} == {"seg"}
    assert len({event["id"] for event in story["events"]}) == 1
    assert story["key"]["status"] == NOT_FOUND
    assert not story["copies"]
    assert (story["dropped_events"], story["has_older_events"]) == (0, False)
    assert kinds(inspect(pool, node, KEY, b"other")) == []


def test_what_remains_of_each_wish_and_limit_is_told(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "seg", MIB)
    pool.put(node, b"k", size=100, ttl_ms=60_000, flags=2, soft_pin_ms=30_000)
    pool.lookup(node, b"k")
    pool.lookup(node, b"k")
    pool.exists(node, b"k")
    pool.advance(1_500)
    key = inspect(pool, node, KEY, b"k")["key"]
    assert (key["status"], key["reason"], key["size"], key["flags"]) == (OK, 0, 100, 2)
    assert (key["lease_count"], key["lease_ms"], key["hold_ms"]) == (2, 8_500, 500)
    assert (key["soft_pin_ms"], key["ttl_ms"]) == (28_500, 58_500)
    pool.advance(500)
    assert inspect(pool, node, KEY, b"k")["key"]["hold_ms"] == 0
    pool.put(node, b"pinned", flags=1)
    pinned = inspect(pool, node, KEY, b"pinned")["key"]
    assert (pinned["flags"], pinned["ttl_ms"], pinned["lease_count"]) == (1, 0, 0)


def test_asking_keeps_nothing_and_changes_no_recency(make: Make) -> None:
    pool = make()
    node = pool.open()
    pool.mount(node, "seg", 128)
    pool.put(node, b"old")
    pool.put(node, b"new")
    inspect(pool, node, KEY, b"old")
    pool.ask("put_start", _core.encode_put_start(node, pool.next_sequence(), [b"next"], [64]))
    assert pool.exists(node, b"old", b"new") == [NOT_FOUND, OK]


def test_an_unfinished_put_names_its_owner_and_age_beside_the_visible_value(pool: Harness) -> None:
    node, writer = pool.open(), pool.open()
    pool.mount(node, "seg", MIB)
    pool.put(node, b"k", size=10)
    [grant] = pool.put_start(writer, b"k", size=2_000, flags=UPSERT)
    pool.advance(750)
    story = inspect(pool, node, KEY, b"k")
    key = story["key"]
    assert (key["size"], key["unfinished_put_id"], key["unfinished_size"]) == (10, grant.put_id, 2_000)
    assert (key["unfinished_owner"], key["unfinished_owner_name"]) == (writer, "test")
    assert key["unfinished_age_ms"] == 750
    assert [copy["status"] for copy in story["copies"]] == [LIVE, UNFINISHED]
    [other] = pool.put_start(writer, b"fresh")
    assert other.status == OK
    fresh = inspect(pool, node, KEY, b"fresh")["key"]
    assert (fresh["status"], fresh["put_id"]) == (NOT_READY, 0)


def test_copies_on_their_way_out_are_told_until_their_range_is_free(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "seg", MIB)
    pool.put(node, b"k")
    pool.put(node, b"k", flags=UPSERT)
    retires = pool.effects
    copies = inspect(pool, node, KEY, b"k")["copies"]
    assert [(copy["status"], copy["segment_name"], copy["tier"]) for copy in copies] == [
        (LIVE, "seg", 1),
        (RETIRING, "seg", 1),
    ]
    pool.free([replica for kind, _, replica, _ in retires if kind == "retire"])
    assert [copy["status"] for copy in inspect(pool, node, KEY, b"k")["copies"]] == [LIVE]


def test_another_tenants_key_is_named_as_why_names_it_and_its_story_is_not_told(pool: Harness) -> None:
    ours, theirs = pool.open(), pool.open(tenant="theirs")
    pool.mount(ours, "seg", MIB)
    pool.put(theirs, b"k")
    story = inspect(pool, ours, KEY, b"k")
    assert story["key"]["reason"] == 10
    assert not story["events"]
    assert kinds(inspect(pool, theirs, KEY, b"k")) == [PLACED, COMMITTED]


def test_the_journal_forgets_the_oldest_and_says_so(make: Make) -> None:
    pool = make(journal_events=4)
    node = pool.open()
    pool.mount(node, "seg", MIB)
    pool.put(node, b"k")
    pool.advance(1_000)
    pool.put(node, b"l")
    assert kinds(inspect(pool, node, KEY, b"k")) == [PLACED, COMMITTED]
    pool.advance(10)
    pool.put_start(node, b"m")
    story = inspect(pool, node, KEY, b"k")
    assert kinds(story) == [COMMITTED]
    assert (story["dropped_events"], story["oldest_event_ms_ago"]) == (1, 1_010)
    assert pool.stat("journal_events_max") == 4
    assert pool.stat("journal_events_dropped_total") == 1


def test_no_wave_of_values_pushes_out_why_a_node_went(make: Make) -> None:
    pool = make(journal_events=8, client_ttl_ms=1_000)
    node, other = pool.open(), pool.open()
    pool.mount(node, "lost", MIB)
    pool.mount(other, "kept", MIB)
    pool.advance(900)
    pool.heartbeat(other)
    pool.advance(100)
    for index in range(50):
        pool.put(other, b"%d" % index)
    for _ in range(50):
        pool.close(pool.open())
    events = inspect(pool, other, POOL)["events"]
    assert [(event["name"], event["reason"]) for event in events if event["kind"] == LEFT] == [
        ("lost", SILENT)
    ]


def test_a_journal_of_nothing_is_allowed(make: Make) -> None:
    pool = make(journal_events=0)
    node = pool.open()
    pool.mount(node, "seg", MIB)
    pool.put(node, b"k")
    story = inspect(pool, node, KEY, b"k")
    assert (story["events"], story["dropped_events"]) == ([], 2)
    assert story["key"]["status"] == OK


def test_a_long_walk_through_the_journal_is_taken_in_bounded_steps(make: Make) -> None:
    pool = make(keys_a_step_max=2)
    node = pool.open()
    pool.mount(node, "seg", MIB)
    pool.put(node, b"first")
    for index in range(50):
        pool.put(node, b"%d" % index)
    command = _core.Metadata.command(22, _core.encode_inspect(node, KEY, b"first"))
    steps = 1
    while not pool.machine.step(command, pool.now)[0]:
        steps += 1
        pool.put(node, b"meanwhile %d" % steps)  # what is new does not lengthen the walk
    assert steps == 102 // 32 + 1
    assert [event["kind"] for event in _core.parse_inspect_reply(command.body)["events"]] == [
        COMMITTED,
        PLACED,
    ]


def test_the_newest_events_are_told_and_that_there_are_older_ones(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "seg", MIB)
    pool.put(node, b"k")
    pool.remove(node, b"k", flags=FORCE)
    story = inspect(pool, node, KEY, b"k", limit=2)
    assert (kinds(story), story["has_older_events"]) == ([COMMITTED, REMOVED], True)
    everything = inspect(pool, node, KEY, b"k", limit=3)
    assert (len(everything["events"]), everything["has_older_events"]) == (3, False)
    lately = inspect(pool, node, POOL, limit=1)
    assert (kinds(lately), lately["has_older_events"]) == ([MOUNTED], True)


def test_a_node_is_found_by_segment_session_and_host(pool: Harness) -> None:
    node = pool.open(host="host-x")
    pool.machine.session_attached(node, pool.now)
    pool.mount(node, "seg", MIB, host_id="host-x")
    pool.advance(300)
    for name in (b"seg", b"test", b"host-x"):
        [segment] = inspect(pool, node, NAME, name)["segments"]
        assert (segment["name"], segment["owner_name"], segment["endpoint"]) == ("seg", "test", "tcp://seg:1")
        assert (segment["flags"], segment["heard_ms_ago"]) == (3, 300)
    assert inspect(pool, node, NAME, b"nobody")["segments"] == []


def test_the_story_of_a_node_that_went_is_told_by_its_segments_name(make: Make) -> None:
    pool = make(client_ttl_ms=1_000)
    node, other = pool.open(), pool.open()
    pool.machine.session_attached(node, pool.now)
    pool.mount(node, "seg", MIB)
    pool.machine.session_detached(node, pool.now)
    pool.advance(900)
    pool.heartbeat(other)
    pool.advance(100)
    story = inspect(pool, other, NAME, b"seg")
    assert story["segments"] == []
    assert kinds(story) == [OPENED, MOUNTED, CONNECTION_LOST, ENDED, LEFT]
    assert [event["reason"] for event in story["events"][:2]] == [SILENT, SILENT]
    assert {event["session"] for event in story["events"]} == {node}


def test_why_a_segment_left_is_told(pool: Harness) -> None:
    node, other = pool.open(), pool.open()
    first = pool.mount(node, "unmounted", MIB)
    pool.mount(node, "replaced", MIB)
    pool.mount(node, "closed", MIB)
    pool.unmount(node, first)
    pool.mount(other, "replaced", MIB)
    pool.close(node)
    left = {
        event["name"]: event["reason"]
        for event in inspect(pool, other, POOL)["events"]
        if event["kind"] == LEFT
    }
    assert left == {"unmounted": IN_ORDER, "replaced": REPLACED, "closed": IN_ORDER}


def test_reigns_and_the_end_of_a_rebuild_are_told(make: Make) -> None:
    pool = make(epoch=3, client_ttl_ms=1_000)
    node = pool.open()
    pool.mount_all(node, [pool.describe("seg", MIB)], known_epoch=7, known_master=bytes(16))
    for _ in range(4):
        pool.heartbeat(node)
        pool.advance(500)
    events = inspect(pool, node, POOL)["events"]
    told = [
        (event["kind"], event["number"]) for event in reversed(events) if event["kind"] in (EPOCH, REBUILT)
    ]
    assert told == [(EPOCH, 3), (EPOCH, 8), (REBUILT, 0)]


@pytest.mark.parametrize(
    "body",
    [
        _core.encode_inspect(1, KEY, b"k")[:-1],
        _core.encode_inspect(1, KEY, b"k") + b"x",
        _core.encode_prefix(1) + (3).to_bytes(4, "little") + bytes(4) + b"\1\0k",
        _core.encode_prefix(1) + (KEY).to_bytes(4, "little") + (1_025).to_bytes(4, "little") + b"\1\0k",
        _core.encode_prefix(1) + (KEY).to_bytes(4, "little") + bytes(4) + bytes(2),
        _core.encode_prefix(1) + (POOL).to_bytes(4, "little") + bytes(4) + b"\1\0k",
        _core.encode_prefix(1) + (NAME).to_bytes(4, "little") + bytes(4) + b"\0\1" + bytes(256),
    ],
    ids=["short", "long", "subject", "limit", "no key", "pool with a name", "name"],
)
def test_a_question_that_cannot_be_is_malformed(pool: Harness, body: bytes) -> None:
    assert pool.ask("inspect", body)[0] == MALFORMED


def test_the_binding_refuses_what_cannot_be_asked() -> None:
    for subject, name, limit in ((3, b"k", 0), (KEY, b"", 0), (KEY, b"k" * 1_025, 0), (POOL, b"", 1_025)):
        with pytest.raises(ValueError, match=r"subject|byte|limit|key|name"):
            _core.encode_inspect(1, subject, name, limit)
