"""What ended under one master stays dead under the next, whoever of the nodes comes first."""

from __future__ import annotations

import pytest
from metadata.conftest import Make
from metadata.harness import MALFORMED, NOT_FOUND, OK, UPSERT, VERBS, Harness, uuid
from metadata.returning import OLD, REBUILDING, STALE_EPOCH, Returning, held, old_id

from mooncake_store import _core

TOLD_AFTER_MS = 400  # twice kTellTombstonesMs: since it ended, and since the last look
ENDED_MAX = 4_096
EXPELLED_MAX = 1_024
PROCESS = uuid(4_711)


def told(pool: Harness) -> _core.Tombstones:
    """What nodes and the state file keep of this master now."""
    pool.advance(TOLD_AFTER_MS)
    return _core.parse_tombstones(pool.machine.tombstones)


def hand_over(pool: Harness, session: int, kept: bytes) -> int:
    status, reply = pool.ask("tombstones", _core.encode_tombstones_request(session, kept))
    if status == OK:
        assert _core.parse_tombstones_reply(reply) == (
            pool.machine.tombstones_generation,
            pool.machine.tombstones,
        )
    return status


def successor(make: Make, before: Harness) -> Harness:
    """The next master on the same host: it has the state file of the one before."""
    before.advance(TOLD_AFTER_MS)
    pool = make(epoch=before.epoch + 1)
    assert pool.machine.restore_tombstones(before.machine.tombstones)
    return pool


@pytest.mark.parametrize("end", ["removed", "superseded", "revoked", "abandoned"])
def test_a_value_that_ended_unheard_by_its_node_does_not_come_back(make: Make, end: str) -> None:
    before = make(epoch=OLD, session_grace_ms=100)
    node, client = before.open(), before.open()
    before.mount(node, "a", 1 << 20)
    [grant] = before.put_start(client, b"k")
    [(replica, _)] = grant.places
    if end in ("removed", "superseded"):
        assert before.put_end(client, grant.written) == [OK]
    if end == "removed":
        assert before.remove(client, b"k") == [OK]
    elif end == "superseded":
        assert before.put(client, b"k", flags=UPSERT) == [OK]
    elif end == "revoked":
        assert before.put_revoke(client, grant.put_id) == [OK]
    else:
        assert before.close(client) == OK
    assert told(before)["replicas"] == [replica]

    after = successor(make, before)
    returned = Returning(after, "a")
    assert returned.tell(held(replica - old_id(0), b"k", put=grant.put_id - old_id(0))) == OK
    assert ("retire", returned.segment, replica, 0) in after.effects
    assert after.lookup(returned.session, b"k")[0][0] == REBUILDING
    assert after.list(returned.session) == []


def test_what_a_node_freed_is_forgotten_and_what_was_evicted_is_never_noted(make: Make) -> None:
    pool = make(epoch=OLD)
    node = pool.open()
    pool.mount(node, "a", 128)
    assert pool.put(node, b"k") == [OK]
    pool.remove(node, b"k")
    removed = pool.effects
    assert len(told(pool)["replicas"]) == 1
    pool.free([replica for kind, _, replica, _ in removed if kind == "retire"])
    assert told(pool)["replicas"] == []
    assert pool.put(node, b"a", b"b") == [OK, OK]
    pool.ask("put_start", _core.encode_put_start(node, pool.next_sequence(), [b"m"], [128]))
    assert pool.stat("evicted_keys_total") == 2
    assert told(pool)["replicas"] == []


@pytest.mark.parametrize("by", ["another value", "a remove"])
@pytest.mark.parametrize("confirmed", [False, True])
def test_an_evicted_value_does_not_come_back_after_another_one_or_a_remove(
    make: Make, by: str, confirmed: bool
) -> None:
    """Its node had not heard of the eviction when the key got another value: met again it would no longer be
    a hit of a value that was put, and who put the other is answered only when the node has heard."""
    pool = make(epoch=OLD)
    node = pool.open()
    segment = pool.mount(node, "a", 256)
    [old] = pool.put_start(node, b"k", size=256)
    assert pool.put_end(node, old.written) == [OK]
    pool.ask("put_start", _core.encode_put_start(node, pool.next_sequence(), [b"m"], [64]))
    assert pool.stat("evicted_keys_total") == 1
    [(replica, _)] = old.places
    if confirmed:  # a reader keeps the range meanwhile
        pool.machine.retire_confirmed(node, 1, [replica])
    pool.mount(node, "b", 1 << 20)
    if by == "a remove":
        assert pool.remove(node, b"k") == [NOT_FOUND]
    else:
        assert pool.put(node, b"k") == [OK]
    awaited = [effect for effect in pool.effects if effect[0] == "await"]
    assert awaited == ([] if confirmed else [("await", segment, replica, 0)])
    assert pool.retired == ([] if confirmed else [replica])
    assert told(pool)["replicas"] == ([] if confirmed else [replica])
    assert pool.free([replica])
    assert told(pool)["replicas"] == []


def test_a_retire_that_is_answered_at_once_is_told_to_nobody(make: Make) -> None:
    pool = make(epoch=OLD)
    node = pool.open()
    for _ in range(21):  # in the first of them every remove is told: nodes of an earlier reign may come
        pool.advance(1_000)
        pool.heartbeat(node)
    pool.mount(node, "a", 1 << 20)
    pool.advance(TOLD_AFTER_MS)
    generation = pool.machine.tombstones_generation
    for number in range(20):
        assert pool.put(node, b"k%d" % number) == [OK]
        pool.remove(node, b"k%d" % number)
        pool.free_retired()
        pool.advance(60)
    assert pool.machine.tombstones_generation == generation


@pytest.mark.parametrize("asked", [True, False])
def test_a_node_that_comes_first_is_put_right_by_one_that_heard_of_it(make: Make, asked: bool) -> None:
    pool = make(epoch=OLD + 1)
    silent, other = Returning(pool, "silent"), Returning(pool, "other")
    assert silent.tell(held(1, b"k"), held(2, b"two copies", put=2), held(3, b"stays")) == OK
    assert other.tell(held(4, b"two copies", put=2)) == OK
    assert pool.exists(other.session, b"k") == [OK]
    assert hand_over(pool, other.session, _core.encode_tombstones(replicas=[old_id(1), old_id(2)])) == OK
    if asked:
        answers = pool.lookup(other.session, b"k", b"two copies", b"stays")
        assert [answer[0] for answer in answers] == [REBUILDING, OK, OK]
        assert answers[1][4] == [(old_id(4), other.segment)]
    assert sorted(entry[0] for entry in pool.list(other.session)) == [b"stays", b"two copies"]
    retired = {replica for kind, _, replica, _ in pool.tick() if kind == "retire"}
    assert asked or retired == {old_id(1), old_id(2)}
    assert pool.stat("key_count") == 2
    # What it was handed it hands on: the next master hears it from anybody.
    assert _core.parse_tombstones(pool.machine.tombstones)["replicas"] == [old_id(1), old_id(2)]


def test_more_than_can_be_named_gives_up_all_that_the_node_held_then(make: Make) -> None:
    before = make(epoch=OLD, keys_a_step_max=10_000)
    node = before.open()
    before.mount(node, "a", 1 << 20, incarnation=PROCESS)
    keys = [b"k%d" % number for number in range(ENDED_MAX + 2)]
    assert before.put(node, *keys, b"innocent", size=0) == [OK] * (len(keys) + 1)
    before.remove(node, *keys[:ENDED_MAX])
    assert told(before)["floors"] == []
    before.remove(node, *keys[ENDED_MAX:])
    last = before.effects
    floors = told(before)["floors"]
    [(process, floor)] = floors
    assert process == PROCESS
    assert before.put(node, b"later") == [OK]
    [(_, put_id, _, _, [(replica, _)])] = before.lookup(node, b"later")
    assert replica > floor
    assert told(before)["floors"] == floors

    after = successor(make, before)
    returned = Returning(after, "a", incarnation=PROCESS)
    assert (
        returned.tell(held(2, b"innocent"), held(replica - old_id(0), b"later", put=put_id - old_id(0))) == OK
    )
    assert [answer[0] for answer in after.lookup(returned.session, b"innocent", b"later")] == [REBUILDING, OK]

    everything = [replica for kind, _, replica, _ in last if kind == "retire"] + told(before)["replicas"]
    before.free(everything)
    assert told(before) == {**told(before), "floors": [], "replicas": []}


@pytest.mark.parametrize("comes_first", [True, False])
def test_a_node_that_was_expelled_brings_nothing_back(make: Make, comes_first: bool) -> None:
    before = make(epoch=OLD)
    node, other = before.open(), before.open()
    before.mount(node, "a", 1 << 20, incarnation=PROCESS)
    before.put(node, b"k")
    for _ in range(11):
        before.advance(1_000)
        before.heartbeat(other)
    assert told(before)["expelled"] == [PROCESS]

    after = make(epoch=OLD + 1)
    carrier = Returning(after, "carrier")
    if not comes_first:
        assert hand_over(after, carrier.session, before.machine.tombstones) == OK
        assert Returning(after, "a", incarnation=PROCESS).mount_status == STALE_EPOCH
        return
    returned = Returning(after, "a", incarnation=PROCESS)
    assert returned.tell(held(2, b"k")) == OK
    assert after.exists(carrier.session, b"k") == [OK]
    assert hand_over(after, carrier.session, before.machine.tombstones) == OK
    assert ("expel", returned.segment, 0, returned.session) in after.effects
    assert after.exists(carrier.session, b"k") == [REBUILDING]


def test_a_node_that_leaves_in_good_order_is_no_case_of_it(make: Make) -> None:
    pool = make(epoch=OLD)
    first, second = pool.open(), pool.open()
    segment = pool.mount(first, "a", 1 << 20)
    pool.mount(second, "b", 1 << 20)
    assert pool.unmount(first, segment) == [OK]
    assert pool.close(second) == OK
    assert told(pool)["expelled"] == []


def test_more_expelled_nodes_than_can_be_named_are_told_apart_by_a_new_epoch(make: Make) -> None:
    pool = make(epoch=OLD, segments_max=2 * EXPELLED_MAX, sessions_max=10)
    node = pool.open()
    for number in range(EXPELLED_MAX + 1):
        pool.mount(node, "again", 1 << 20, incarnation=uuid(10_000 + number))
    assert (pool.machine.epoch, told(pool)["closed_epoch"]) == (OLD, 0)
    pool.mount(node, "again", 1 << 20, incarnation=uuid(5))
    assert (pool.machine.epoch, told(pool)["closed_epoch"]) == (OLD + 1, OLD + 1)
    after = make(epoch=OLD + 2)
    assert after.machine.restore_tombstones(pool.machine.tombstones)
    assert Returning(after, "lost", known_epoch=OLD).mount_status == STALE_EPOCH
    assert Returning(after, "heard", known_epoch=OLD + 1).mount_status == OK


def test_a_node_that_missed_a_whole_reign_is_too_late(make: Make) -> None:
    first = make(epoch=OLD)
    first.open()
    assert told(first)["closed_epoch"] == 0
    first.advance(20_000)
    assert told(first)["closed_epoch"] == OLD
    second = successor(make, first)
    assert Returning(second, "in time", known_epoch=OLD).mount_status == OK
    second.advance(20_000)
    third = make(epoch=OLD + 2)
    third.open()
    assert third.machine.restore_tombstones(second.machine.tombstones)
    assert Returning(third, "late", known_epoch=OLD).mount_status == STALE_EPOCH
    assert Returning(third, "in time", known_epoch=OLD + 1).mount_status == OK


@pytest.mark.parametrize("end", ["removed unseen", "removed", "upserted", "upserted unseen"])
def test_what_ended_during_a_rebuild_is_dead_for_the_master_after_that(make: Make, end: str) -> None:
    second = make(epoch=OLD + 1)
    node = second.open()
    second.mount(node, "fresh", 1 << 20)
    if not end.endswith("unseen"):
        assert Returning(second, "a").tell(held(5, b"k")) == OK
    if end.startswith("removed"):
        second.remove(node, b"k")
    else:
        assert second.put(node, b"k", flags=UPSERT) == [OK]
    third = successor(make, second)
    late = Returning(third, "late")
    assert late.tell(held(3, b"k"), held(6, b"l")) == OK  # the same value's, or an older one's, copy
    assert ("retire", late.segment, old_id(3), 0) in third.effects
    assert [answer[0] for answer in third.lookup(late.session, b"k", b"l")] == [REBUILDING, OK]


def test_key_tombstones_end_what_came_in_before_them(make: Make) -> None:
    pool = make(epoch=OLD + 2)
    node = Returning(pool, "a")
    assert node.tell(held(3, b"k"), held(9, b"k newer"), held(4, b"l")) == OK
    digests = [_core.key_digest("", key) for key in (b"k", b"k newer")]
    kept = _core.encode_tombstones(keys=[(digest, old_id(5)) for digest in digests])
    assert hand_over(pool, node.session, kept) == OK
    assert pool.exists(node.session, b"k", b"k newer", b"l") == [REBUILDING, OK, OK]


def test_a_list_after_the_rebuild_ends_nothing(make: Make) -> None:
    pool = make(epoch=OLD + 1)
    node = Returning(pool, "a")
    assert node.tell(held(3, b"k")) == OK
    for _ in range(21):
        pool.advance(1_000)
        pool.heartbeat(node.session)
    assert hand_over(pool, node.session, _core.encode_tombstones(replicas=[old_id(3)])) == OK
    assert pool.exists(node.session, b"k") == [OK]
    assert told(pool)["replicas"] == []


def test_a_list_of_a_reign_to_come_closes_nothing(make: Make) -> None:
    pool = make(epoch=OLD + 1)
    node = Returning(pool, "a")
    assert hand_over(pool, node.session, _core.encode_tombstones(closed_epoch=(1 << 24) - 1)) == OK
    assert Returning(pool, "b").mount_status == OK


def test_more_than_can_be_kept_ends_the_rebuild_rather_than_a_remove(make: Make) -> None:
    pool = make(epoch=OLD + 1)
    node = Returning(pool, "a")
    for part in range(2):
        replicas = [old_id(1 + number + part * 30_000) for number in range(30_000)]
        assert hand_over(pool, node.session, _core.encode_tombstones(replicas=replicas)) == OK
    assert Returning(pool, "b").mount_status == STALE_EPOCH
    assert told(pool)["closed_epoch"] == OLD + 1


@pytest.mark.parametrize("cut", range(1, 24))
def test_half_a_list_is_malformed(make: Make, cut: int) -> None:
    pool = make(epoch=OLD + 1)
    node = pool.open()
    kept = _core.encode_tombstones(replicas=[old_id(1)])[:-cut]
    body = _core.encode_tombstones_request(node, kept)
    assert pool.ask("tombstones", body)[0] == MALFORMED
    assert pool.machine.restore_tombstones(kept) is False
    assert "tombstones" in VERBS


def test_a_value_ended_so_is_counted(make: Make) -> None:
    pool = make(epoch=OLD + 1)
    node = Returning(pool, "a")
    assert node.tell(held(3, b"k")) == OK
    assert hand_over(pool, node.session, _core.encode_tombstones(replicas=[old_id(3)])) == OK
    assert pool.exists(node.session, b"k") == [REBUILDING]
    assert (pool.stat("dead_keys_total"), pool.stat("tombstone_lists_total")) == (1, 1)
