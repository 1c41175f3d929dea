"""Copies: repair of lost replicas, handover by a node that leaves, and every way a copy can end."""

from __future__ import annotations

from typing import Any

import pytest
from metadata.harness import FORCE, GONE, HARD_PIN, NO_SPACE, OK, SEALED, UPSERT, Harness

from mooncake_store import _core

COPY_BEGUN, COPIED, COPY_FAILED, MOVED = range(13, 17)  # native/wire/inspect.h
KEYS = [b"key-%d" % number for number in range(20)]


def pool(segments: int, capacity: int = 64 * 100, **settings: Any) -> tuple[Harness, list[int], list[int]]:
    """So many nodes on hosts of their own: the harness, the nodes' sessions, the segments."""
    harness = Harness(settings)
    nodes = [harness.open() for _ in range(segments)]
    mounted = [harness.mount(node, f"s{number}", capacity) for number, node in enumerate(nodes)]
    return harness, nodes, mounted


def places(harness: Harness, client: int, key: bytes) -> dict[int, int]:
    """replica -> segment of what a lookup finds."""
    [(status, _, _, _, found)] = harness.lookup(client, key)
    harness.release(client, key)
    return dict(found) if status == OK else {}


def story(harness: Harness, client: int, key: bytes) -> list[tuple[int, int]]:
    """(kind, replica) of all that happened to the key's copies, oldest first."""
    status, body = harness.ask("inspect", _core.encode_inspect(client, 1, key, 0))
    assert status == OK
    return [(event["kind"], event["id"]) for event in reversed(_core.parse_inspect_reply(body)["events"])]


def lose_one(harness: Harness, client: int, nodes: list[int], mounted: list[int], key: bytes) -> int:
    """Ends the node of the key's first replica; the segment that has the other one."""
    first, second = places(harness, client, key).values()
    assert harness.close(nodes[mounted.index(first)]) == OK
    harness.tick()
    return second


# -- repair


def test_a_lost_replica_is_copied_to_a_node_that_has_none() -> None:
    harness, nodes, mounted = pool(3)
    client = harness.open()
    assert harness.put(client, KEYS[0], size=100, replica_count=2) == [OK]
    before = places(harness, client, KEYS[0])
    stays = lose_one(harness, client, nodes, mounted, KEYS[0])
    [target] = harness.ordered()
    order = harness.machine.copy_order(target)
    free = next(segment for segment in mounted if segment not in before.values())
    assert (order["segment"], order["size"], order["endpoints"]) == (
        free,
        100,
        [f"tcp://s{mounted.index(stays)}:1"],
    )
    assert before[order["source"]] == stays
    assert places(harness, client, KEYS[0]) == {order["source"]: stays}  # not before it is there
    assert harness.machine.settled_id < target
    harness.copied(target)
    assert places(harness, client, KEYS[0]) == {order["source"]: stays, target: free}
    assert harness.machine.settled_id >= target
    assert (harness.stat("copies_committed_total"), harness.stat("copied_bytes_total")) == (1, 100)
    assert [kind for kind, replica in story(harness, client, KEYS[0]) if replica == target] == [
        COPY_BEGUN,
        COPIED,
    ]


def test_a_replica_that_put_end_reports_failed_is_made_anew() -> None:
    harness, _, _ = pool(3)
    client = harness.open()
    [grant] = harness.put_start(client, KEYS[0], replica_count=2)
    (good, where), (bad, _) = grant.places
    assert harness.put_end(client, (grant.put_id, [(good, OK), (bad, -800)])) == [OK]
    harness.tick()
    [target] = harness.ordered()
    harness.copied(target, SEALED)
    assert set(places(harness, client, KEYS[0])) == {good, target}
    assert places(harness, client, KEYS[0])[good] == where


def test_a_value_of_one_replica_is_lost_with_its_node() -> None:
    harness, nodes, _ = pool(2)
    client = harness.open()
    assert harness.put(client, *KEYS[:4]) == [OK] * 4
    harness.close(nodes[0])
    harness.tick()
    assert harness.ordered() == []
    assert harness.stat("repair_queue_count") == 0


def test_only_so_many_are_wanted_as_the_put_asked_for() -> None:
    harness, nodes, mounted = pool(5)
    client = harness.open()
    assert harness.put(client, KEYS[0], replica_count=3) == [OK]
    for segment in list(places(harness, client, KEYS[0]).values())[:2]:
        harness.close(nodes[mounted.index(segment)])
    harness.tick()
    for _ in range(2):
        [target] = harness.ordered()  # one after the other
        harness.copied(target)
    assert harness.ordered() == []
    assert len(places(harness, client, KEYS[0])) == 3


def test_where_no_node_may_take_it_a_repair_waits_for_one_that_joins() -> None:
    harness, nodes, mounted = pool(2)
    client = harness.open()
    assert harness.put(client, KEYS[0], replica_count=2) == [OK]
    lose_one(harness, client, nodes, mounted, KEYS[0])
    assert harness.ordered() == []
    late = harness.open()
    harness.mount(late, "late", 6400)
    harness.tick()
    [target] = harness.ordered()
    harness.copied(target)
    assert len(places(harness, client, KEYS[0])) == 2


def test_replicas_that_a_put_found_no_segment_for_are_made_when_a_node_joins() -> None:
    harness, _, _ = pool(1)
    client = harness.open()
    assert harness.put(client, *KEYS[:5], replica_count=2) == [OK] * 5
    assert harness.tick() == []
    for _ in range(20):  # nothing is looked for again and again meanwhile
        harness.tick()
    assert harness.stat("repair_searches_total") == 0
    late = harness.open()
    harness.mount(late, "late", 6400)
    harness.tick()
    targets = harness.ordered()
    assert len(targets) == 5
    for target in targets:
        harness.copied(target)
    assert all(len(places(harness, client, key)) == 2 for key in KEYS[:5])


def test_nothing_is_repaired_above_the_low_watermark() -> None:
    harness, nodes, mounted = pool(3, 64 * 10, repair_low_watermark_ratio=0.5)
    client = harness.open()
    assert harness.put(client, KEYS[0], replica_count=2) == [OK]
    assert harness.put(client, *KEYS[1:14]) == [OK] * 13
    stays = lose_one(harness, client, nodes, mounted, KEYS[0])
    used = sum(harness.charged(client))
    assert used > 0.5 * 2 * 640, "the test's own premise"
    assert harness.ordered() == []
    gone = [key for key in KEYS[1:14] if harness.remove(client, key, flags=FORCE) == [OK]]
    assert gone
    harness.tick()
    [target] = harness.ordered()
    assert harness.machine.copy_order(target)["segment"] != stays


def test_repairs_keep_to_their_rate() -> None:
    value = 64 << 10
    harness, nodes, _mounted = pool(3, value * 100, repair_bytes_per_s=10 * value)
    client = harness.open()
    # Two replicas on the first two nodes, so that one loss is all keys' loss.
    for key in KEYS:
        assert harness.put(client, key, size=value, replica_count=2, preferred=["s0", "s1"]) == [OK]
    harness.now += 5_000
    for node in (*nodes, client):
        harness.heartbeat(node)
    harness.close(nodes[0])
    harness.tick()
    begun = 0
    for _ in range(10):
        while ordered := harness.ordered():
            begun += len(ordered)
            for target in ordered:
                harness.copied(target)
        for node in (*nodes[1:], client):
            harness.heartbeat(node)
        harness.advance(100)
    begun += len(harness.ordered())
    assert 10 <= begun <= 12, begun  # a second of it, and what one tenth may make up for


def test_a_repair_of_zero_bytes_a_second_is_none() -> None:
    harness, nodes, mounted = pool(3, repair_bytes_per_s=0)
    client = harness.open()
    assert harness.put(client, KEYS[0], replica_count=2) == [OK]
    lose_one(harness, client, nodes, mounted, KEYS[0])
    assert harness.ordered() == []


def test_what_the_queue_had_no_room_for_is_found_by_searching() -> None:
    harness, nodes, _ = pool(3, repair_queue_max=2, copies_a_node_max=1)
    client = harness.open()
    for key in KEYS:
        assert harness.put(client, key, replica_count=2, preferred=["s0", "s1"]) == [OK]
    harness.close(nodes[0])
    harness.tick()
    for _ in range(len(KEYS)):
        [target] = harness.ordered()
        assert harness.stat("repair_queue_count") <= 2
        harness.copied(target)
        if not harness.ordered():
            harness.advance(50)
    assert harness.ordered() == []
    assert all(len(places(harness, client, key)) == 2 for key in KEYS)
    assert harness.stat("repair_searches_total") > 0


def test_copies_under_way_are_bounded_in_all_and_for_each_node() -> None:
    harness, nodes, _ = pool(4, copies_max=5, copies_a_node_max=3)
    client = harness.open()
    for key in KEYS:
        assert harness.put(client, key, replica_count=2, preferred=["s0", "s1"]) == [OK]
    harness.close(nodes[0])
    harness.tick()
    assert len(harness.ordered()) == 3  # all from one node
    harness.close(nodes[1])  # and with it all is lost
    harness.tick()
    assert harness.stat("copy_count") == 0


def test_a_copy_waits_for_a_host_of_its_own_rather_than_share_one() -> None:
    harness = Harness({"copies_a_node_max": 1})
    nodes = [harness.open() for _ in range(5)]
    hosts = ["one", "two", "two", "one", "three"]
    mounted = [
        harness.mount(node, f"s{number}", 6400, host_id=host)
        for number, (node, host) in enumerate(zip(nodes, hosts, strict=True))
    ]
    client = harness.open()
    # One replica each on host one, from two nodes, so that no source is busy; the other one is lost.
    assert harness.put(client, KEYS[0], replica_count=2, preferred=["s0", "s4"]) == [OK]
    assert harness.put(client, KEYS[1], replica_count=2, preferred=["s3", "s4"]) == [OK]
    harness.close(nodes[2])
    harness.close(nodes[4])
    harness.tick()
    [target] = harness.ordered()
    assert harness.machine.copy_order(target)["segment"] == mounted[1]
    harness.copied(target)
    [other] = harness.ordered()
    assert harness.machine.copy_order(other)["segment"] == mounted[1]


# -- ends of a copy


@pytest.fixture
def copying() -> tuple[Harness, int, list[int], list[int], int]:
    """A pool of three with a copy of KEYS[0] under way: harness, client, nodes, segments, target."""
    harness, nodes, mounted = pool(3)
    client = harness.open()
    assert harness.put(client, KEYS[0], size=100, replica_count=2) == [OK]
    lose_one(harness, client, nodes, mounted, KEYS[0])
    [target] = harness.ordered()
    return harness, client, nodes, mounted, target


Copying = tuple[Harness, int, list[int], list[int], int]


def test_a_copy_that_failed_is_retired_and_tried_again(copying: Copying) -> None:
    harness, client, _, _, target = copying
    harness.copied(target, GONE)
    assert [(kind, replica) for kind, _, replica, _ in harness.effects] == [("retire", target)]
    harness.free([target])
    assert len(places(harness, client, KEYS[0])) == 1
    harness.advance(1_000)
    [again] = harness.ordered()
    assert again > target
    harness.copied(again)
    assert again in places(harness, client, KEYS[0])


def test_a_copy_that_fails_again_and_again_is_left_for_a_minute(copying: Copying) -> None:
    harness, client, nodes, _, target = copying
    alive = [*nodes, client]
    for _ in range(3):
        harness.copied(target, GONE)
        harness.advance(1_000)
        if ordered := harness.ordered():
            [target] = ordered
    assert harness.ordered() == []
    assert harness.stat("repairs_given_up_total") == 1
    for _ in range(60):
        for session in alive:
            harness.heartbeat(session)
        harness.advance(1_000)
        if harness.ordered():
            return
    raise AssertionError("it was never looked for again")


def test_a_copy_without_an_answer_ends_at_its_deadline(copying: Copying) -> None:
    harness, client, nodes, _, target = copying
    for _ in range(11):
        for session in (*nodes, client):
            harness.heartbeat(session)
        harness.advance(1_000)
        if harness.stat("copies_timed_out_total"):
            break
    assert harness.stat("copies_timed_out_total") == 1
    assert harness.machine.copy_order(target) is None
    assert target not in places(harness, client, KEYS[0])
    for node in nodes:
        assert harness.copied(target, OK, node) == []
    assert target not in places(harness, client, KEYS[0])


def test_a_late_or_repeated_answer_changes_nothing(copying: Copying) -> None:
    harness, client, _nodes, _, target = copying
    node = harness.node_of(target)
    harness.copied(target)
    found = places(harness, client, KEYS[0])
    for status in (OK, GONE):
        assert harness.copied(target, status, node) == []
    assert places(harness, client, KEYS[0]) == found


def test_another_nodes_answer_is_not_believed(copying: Copying) -> None:
    harness, client, nodes, _, target = copying
    for node in (*nodes, client, 12345):
        if node == harness.node_of(target):
            continue
        assert harness.copied(target, OK, node) == []
        assert harness.copied(target, GONE, node) == []
    assert harness.stat("copy_count") == 1
    assert target not in places(harness, client, KEYS[0])


@pytest.mark.parametrize("how", ["remove", "replace"])
def test_a_value_that_ends_takes_its_copy_along(copying: Copying, how: str) -> None:
    harness, client, _, _, target = copying
    node = harness.node_of(target)
    if how == "remove":
        assert harness.remove(client, KEYS[0]) == [OK]
    else:
        assert harness.put(client, KEYS[0], size=7, flags=UPSERT) == [OK]
    assert target in [replica for kind, _, replica, _ in harness.effects if kind == "retire"]
    found = places(harness, client, KEYS[0])
    assert harness.copied(target, OK, node) == []
    assert places(harness, client, KEYS[0]) == found
    assert target not in found


def test_a_copy_ends_with_the_node_it_goes_to(copying: Copying) -> None:
    harness, client, _, _, target = copying
    node = harness.node_of(target)
    harness.close(node)
    harness.tick()
    assert harness.stat("copy_count") == 0
    assert harness.stat("expelled_segment_count") == 0  # nothing names its slot any more
    assert len(places(harness, client, KEYS[0])) == 1


def test_a_copy_ends_with_the_node_it_comes_from(copying: Copying) -> None:
    harness, client, nodes, mounted, _target = copying
    [source] = places(harness, client, KEYS[0]).values()
    harness.close(nodes[mounted.index(source)])
    harness.tick()
    assert places(harness, client, KEYS[0]) == {}
    assert harness.stat("copy_count") == 0


def test_no_eviction_takes_what_is_being_copied() -> None:
    harness, nodes, mounted = pool(3, 64 * 4)
    client = harness.open()
    assert harness.put(client, KEYS[0], replica_count=2) == [OK]
    stays = lose_one(harness, client, nodes, mounted, KEYS[0])
    [target] = harness.ordered()
    for key in KEYS[1:]:
        grants = harness.put_start(client, key, flags=HARD_PIN)
        if grants[0].status == NO_SPACE:
            break
        harness.put_end(client, grants[0].written)
    else:
        raise AssertionError("the pool never was full")
    assert list(places(harness, client, KEYS[0]).values()) == [stays]
    harness.copied(target)
    # From here on it may go like any other, from both segments.
    assert len(places(harness, client, KEYS[0])) == 2
    harness.now += 10_000  # what was looked up is not wanted any more
    for session in (*nodes, client):
        harness.heartbeat(session)
    harness.put_start(client, KEYS[1] + b"x")
    assert places(harness, client, KEYS[0]) == {}


def test_a_node_that_reconnects_is_told_its_copies_again(copying: Copying) -> None:
    harness, _, _, _, target = copying
    node = harness.node_of(target)
    assert harness.machine.copies_to(node) == [target]
    assert harness.machine.copy_order(target)["timeout_ms"] == 10_000
    harness.copied(target)
    assert harness.machine.copies_to(node) == []


# -- a node that leaves


def run_handover(harness: Harness, node: int, segment: int) -> list[int]:
    """Drains the segment until nothing is left to do; the targets in the order they were begun."""
    begun: list[int] = []
    harness.drain(node, segment)
    harness.tick()
    while ordered := harness.ordered():
        begun += ordered
        later: list[int] = []
        for target in ordered:
            harness.copied(target)
            later += harness.ordered()
        harness.effects = [("copy", 0, target, 0) for target in later]
        if not later:
            harness.tick()
    assert harness.drain(node, segment)[1] == 0
    return begun


def test_a_leaving_nodes_values_move_to_the_others() -> None:
    harness, nodes, mounted = pool(3)
    client = harness.open()
    assert harness.put(client, *KEYS[:8], size=100, preferred=["s0"]) == [OK] * 8
    run_handover(harness, nodes[0], mounted[0])
    assert harness.drain(nodes[0], mounted[0]) == (8, 0)
    for key in KEYS[:8]:
        [segment] = places(harness, client, key).values()
        assert segment != mounted[0]
    assert harness.stat("handed_over_keys_total") == 8
    assert harness.unmount(nodes[0], mounted[0]) == [OK]
    harness.tick()
    assert harness.exists(client, *KEYS[:8]) == [OK] * 8
    assert harness.stat("expelled_segment_count") == 0


def test_nothing_is_placed_on_a_leaving_node() -> None:
    harness, nodes, mounted = pool(2)
    client = harness.open()
    harness.drain(nodes[0], mounted[0])
    assert harness.put(client, *KEYS, preferred=["s0"]) == [OK] * len(KEYS)
    assert {segment for key in KEYS for segment in places(harness, client, key).values()} == {mounted[1]}
    harness.drain(nodes[1], mounted[1])
    assert harness.put(client, b"nowhere") == [NO_SPACE]


def test_the_hottest_values_move_first() -> None:
    harness, nodes, mounted = pool(2, copies_a_node_max=1)
    client = harness.open()
    assert harness.put(client, *KEYS[:6], preferred=["s0"]) == [OK] * 6
    assert harness.put(client, KEYS[6], preferred=["s0"], flags=HARD_PIN) == [OK]
    harness.touch(client, KEYS[2])
    harness.lookup(client, KEYS[4])  # leased
    harness.touch(client, KEYS[1])
    harness.drain(nodes[0], mounted[0])
    harness.tick()
    order = []
    while ordered := harness.ordered():
        [target] = ordered
        before = {key: times_moved(harness, client, key) for key in KEYS[:7]}
        harness.copied(target)
        after = {key: times_moved(harness, client, key) for key in KEYS[:7]}
        order += [key for key in before if before[key] != after[key]]
        harness.effects = [("copy", 0, t, 0) for t in harness.machine.copies_to(nodes[1])]
    assert order == [KEYS[6], KEYS[4], KEYS[1], KEYS[2], KEYS[5], KEYS[3], KEYS[0]]


def times_moved(harness: Harness, client: int, key: bytes) -> int:
    """Looked up without touching it."""
    return [kind for kind, _ in story(harness, client, key)].count(MOVED)


def test_what_no_other_node_has_room_for_is_dropped() -> None:
    harness, nodes, mounted = pool(2, 64 * 10)
    client = harness.open()
    assert harness.put(client, *KEYS[:8], preferred=["s0"]) == [OK] * 8
    assert harness.put(client, *KEYS[8:14], preferred=["s1"]) == [OK] * 6
    run_handover(harness, nodes[0], mounted[0])
    moved, _ = harness.drain(nodes[0], mounted[0])
    assert moved == 3  # up to the high watermark of the other
    assert harness.stat("evicted_keys_total") == 0
    harness.unmount(nodes[0], mounted[0])
    harness.tick()
    assert harness.exists(client, *KEYS[:14]).count(OK) == 9


def test_a_value_with_another_replica_needs_no_handover() -> None:
    harness, nodes, mounted = pool(3)
    client = harness.open()
    assert harness.put(client, KEYS[0], replica_count=2, preferred=["s0", "s1"]) == [OK]
    assert run_handover(harness, nodes[0], mounted[0]) == []
    harness.unmount(nodes[0], mounted[0])
    harness.tick()
    [target] = harness.ordered()  # it is repaired when the node has gone
    harness.copied(target)
    assert set(places(harness, client, KEYS[0]).values()) == set(mounted[1:])


def test_a_put_that_was_granted_before_its_node_began_to_leave_moves_too() -> None:
    harness, nodes, mounted = pool(2)
    client = harness.open()
    [grant] = harness.put_start(client, KEYS[0], preferred=["s0"])
    run_handover(harness, nodes[0], mounted[0])
    assert harness.put_end(client, grant.written) == [OK]
    harness.tick()
    [target] = harness.ordered()
    harness.copied(target)
    assert places(harness, client, KEYS[0]) == {target: mounted[1]}


def test_only_so_many_of_the_hottest_are_handed_over() -> None:
    harness, nodes, mounted = pool(2, handover_keys_max=3)
    client = harness.open()
    assert harness.put(client, *KEYS, preferred=["s0"]) == [OK] * len(KEYS)
    run_handover(harness, nodes[0], mounted[0])
    moved, _ = harness.drain(nodes[0], mounted[0])
    assert moved == 3
    assert all(list(places(harness, client, key).values()) == [mounted[1]] for key in KEYS[-3:])


def test_a_node_cannot_drain_anothers_segment() -> None:
    harness, nodes, mounted = pool(2)
    status, _ = harness.ask("drain", _core.encode_segment_ids(nodes[1], (mounted[0],)))
    assert status != OK
    assert harness.stat("draining_segment_count") == 0


def test_a_handover_ends_with_the_node_that_leaves() -> None:
    harness, nodes, mounted = pool(2)
    client = harness.open()
    assert harness.put(client, *KEYS[:5], preferred=["s0"]) == [OK] * 5
    harness.drain(nodes[0], mounted[0])
    harness.tick()
    assert harness.ordered()
    harness.close(nodes[0])
    harness.tick()
    assert (harness.stat("copy_count"), harness.stat("handover_queue_count")) == (0, 0)
    assert harness.exists(client, *KEYS[:5]).count(OK) == 0
