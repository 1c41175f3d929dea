"""A master that starts knows nothing; its nodes tell it what they hold, and removes stay removes."""

from __future__ import annotations

import pytest
from metadata.conftest import Make
from metadata.harness import (
    ALREADY_EXISTS,
    INVALID_PARAMS,
    NOT_FOUND,
    OK,
    STALE_GRANT,
    UPSERT,
    Harness,
    uuid,
)
from metadata.returning import (
    CLIENT_TTL_MS,
    FIRST,
    LAST,
    OLD,
    REBUILDING,
    STALE_EPOCH,
    Returning,
    held,
    old_id,
)
from mix64 import mix64
from node.value_header import HARD_PIN, SOFT_PIN, value_header

from mooncake_store import _core

WINDOW_MS = 2 * CLIENT_TTL_MS


@pytest.fixture
def pool(make: Make) -> Harness:
    return make(epoch=2)


def test_what_a_node_held_is_found_again_under_its_id_and_size(pool: Harness) -> None:
    node = Returning(pool, "a")
    assert pool.lookup(node.session, b"k")[0][0] == REBUILDING
    assert node.tell(held(3, b"k", put=2, size=100), held(5, b"other")) == OK
    [(status, put_id, size, _, places)] = pool.lookup(node.session, b"k")
    assert (status, put_id, size, places) == (OK, old_id(2), 100, [(old_id(3), node.segment)])
    assert pool.charged(node.session) == [128 + 64]
    assert pool.stat("adopted_replicas_total") == 2
    assert pool.put_start(node.session, b"k")[0].status == ALREADY_EXISTS


def test_nothing_is_granted_on_a_segment_before_its_inventory_ended(pool: Harness) -> None:
    """UP 3: no write lands on memory that may still hold a listed key."""
    node = Returning(pool, "a")
    assert pool.put_start(node.session, b"new")[0].status == REBUILDING
    assert node.tell(held(1, b"k"), flags=FIRST) == OK
    assert pool.lookup(node.session, b"k")[0][0] == OK  # what was told is read at once
    assert pool.put_start(node.session, b"new")[0].status == REBUILDING
    assert node.tell(flags=LAST) == OK
    assert ("space_returned", node.segment, 0, 0) in pool.effects
    assert pool.put(node.session, b"new") == [OK]


def test_other_segments_take_puts_meanwhile(pool: Harness) -> None:
    node = Returning(pool, "a")
    fresh = pool.open()
    segment = pool.mount(fresh, "b", 1 << 20)
    [grant] = pool.put_start(fresh, b"new")
    assert (grant.status, [place for _, place in grant.places]) == (OK, [segment])
    assert pool.put_start(fresh, b"large", size=(1 << 20) + 1)[0].status == REBUILDING
    assert node.tell() == OK


def test_the_higher_put_id_wins_whoever_comes_first(pool: Harness) -> None:
    first, second = Returning(pool, "a"), Returning(pool, "b")
    assert first.tell(held(1, b"old first", put=1), held(9, b"new first", put=9)) == OK
    assert second.tell(held(8, b"old first", put=8)) == OK
    assert [(kind, replica) for kind, _, replica, _ in pool.effects if kind == "retire"] == [
        ("retire", old_id(1))
    ]
    third = Returning(pool, "c")
    assert third.tell(held(2, b"new first", put=2)) == OK
    assert [(kind, replica) for kind, _, replica, _ in pool.effects if kind == "retire"] == [
        ("retire", old_id(2))
    ]
    answers = pool.lookup(first.session, b"old first", b"new first")
    assert [answer[1] for answer in answers] == [old_id(8), old_id(9)]
    assert pool.charged(third.session) == [64 + 64, 64, 0]  # the superseded one until it is freed


def test_equal_put_ids_are_copies_of_one_object(pool: Harness) -> None:
    nodes = [Returning(pool, name) for name in "abc"]
    for number, node in enumerate(nodes):
        assert node.tell(held(10 + number, b"k", put=7, ttl_ms=500, soft_pin_ms=900, pins=SOFT_PIN)) == OK
    [(_, _, _, _, places)] = pool.lookup(nodes[0].session, b"k")
    assert places == [(old_id(10 + number), node.segment) for number, node in enumerate(nodes)]
    assert pool.close(nodes[1].session) == OK
    assert len(pool.lookup(nodes[0].session, b"k")[0][4]) == 2
    assert pool.stat("soft_pin_key_count") == pool.stat("ttl_key_count") == 1


def test_pins_and_times_live_on(pool: Harness) -> None:
    node = Returning(pool, "a")
    assert (
        node.tell(
            held(1, b"hard", pins=HARD_PIN),
            held(2, b"soft", pins=SOFT_PIN, soft_pin_ms=300),
            held(3, b"short", ttl_ms=200),
        )
        == OK
    )
    assert (pool.stat("hard_pin_key_count"), pool.stat("soft_pin_key_count")) == (1, 1)
    pool.advance(199)
    assert pool.exists(node.session, b"short", flags=2) == [OK]
    pool.advance(1)
    assert pool.exists(node.session, b"short", flags=2) == [REBUILDING]
    pool.advance(100)
    assert pool.stat("soft_pin_key_count") == 0
    # A copy that comes now is no longer alive either.
    late = Returning(pool, "b")
    assert late.tell(held(4, b"short", put=3, ttl_ms=1)) == OK
    assert pool.exists(node.session, b"short") == [REBUILDING]


def test_an_inventory_told_again_changes_nothing(pool: Harness) -> None:
    node = Returning(pool, "a")
    assert node.tell(held(1, b"a"), held(2, b"b"), flags=FIRST) == OK
    assert node.mount() == [(OK, node.segment)]  # its connection broke
    assert node.tell(held(1, b"a"), held(2, b"b"), flags=FIRST) == OK
    assert node.tell(held(3, b"c"), flags=LAST) == OK
    assert pool.charged(node.session) == [3 * 64]
    assert pool.stat("refused_replicas_total") == 0


def test_a_lost_chunk_is_noticed(pool: Harness) -> None:
    node = Returning(pool, "a")
    assert node.tell(held(1, b"a"), flags=FIRST) == OK
    assert node.tell(held(3, b"c"), flags=LAST, lost=1) == INVALID_PARAMS
    assert pool.put_start(node.session, b"new")[0].status == REBUILDING
    assert node.tell(held(1, b"a"), held(2, b"b"), held(3, b"c")) == OK
    assert pool.charged(node.session) == [3 * 64]


@pytest.mark.parametrize("end", ["remove", "remove unknown", "upsert", "upsert, remove", "put, evict", "ttl"])
def test_what_ended_while_nodes_come_back_does_not_come_back(make: Make, end: str) -> None:
    pool = make(epoch=2)
    fresh = pool.open()
    pool.mount(fresh, "fresh", 128)
    if end != "remove unknown" and not end.startswith("put"):
        first = Returning(pool, "a")
        assert first.tell(held(5, b"k", ttl_ms=50 if end == "ttl" else 0)) == OK
    if end == "remove":
        assert pool.remove(fresh, b"k") == [OK]
    elif end == "remove unknown":
        assert pool.remove(fresh, b"k") == [NOT_FOUND]
    elif end.startswith("upsert"):
        assert pool.put(fresh, b"k", flags=UPSERT) == [OK]
        if end == "upsert, remove":
            assert pool.remove(fresh, b"k") == [OK]
    elif end == "put, evict":
        assert pool.put(fresh, b"k") == [OK]
        fills = _core.encode_put_start(fresh, pool.next_sequence(), [b"fills"], [128])
        pool.ask("put_start", fills)  # waits for the room of the other
        assert pool.stat("evicted_keys_total") == 1
    else:
        pool.advance(50)
    late = Returning(pool, "late")
    assert late.tell(held(4, b"k", put=5 if end == "ttl" else 4)) == OK
    assert ("retire", late.segment, old_id(4), 0) in pool.effects
    [(status, put_id, *_)] = pool.lookup(fresh, b"k")
    assert put_id != old_id(4)
    assert (status == OK) == (end == "upsert")


def test_a_value_that_was_lost_comes_back_by_its_other_copy_but_not_by_an_older_value(pool: Harness) -> None:
    first = Returning(pool, "a")
    assert first.tell(held(5, b"k", put=5), held(6, b"l", put=6)) == OK
    assert pool.close(first.session) == OK
    pool.tick()
    second = Returning(pool, "b")
    assert second.tell(held(3, b"k", put=3), held(7, b"l", put=6)) == OK
    answers = pool.lookup(second.session, b"k", b"l")
    assert [answer[0] for answer in answers] == [REBUILDING, OK]
    assert answers[1][4] == [(old_id(7), second.segment)]


def test_a_value_that_was_evicted_stays_away(make: Make) -> None:
    pool = make(epoch=2)
    first = Returning(pool, "a", capacity=128)
    assert first.tell(held(5, b"k", put=5), held(6, b"l", put=6)) == OK
    body = _core.encode_put_start(first.session, pool.next_sequence(), [b"m"], [128])
    pool.ask("put_start", body)  # waits for the room of both
    assert pool.stat("evicted_keys_total") == 2
    second = Returning(pool, "b")
    assert second.tell(held(3, b"k", put=3), held(7, b"l", put=6)) == OK
    answers = pool.lookup(first.session, b"k", b"l")
    assert [answer[0] for answer in answers] == [REBUILDING, REBUILDING]


def test_after_the_window_a_node_is_told_to_give_up_what_it_holds(pool: Harness) -> None:
    pool.open()
    pool.advance(WINDOW_MS)
    late = Returning(pool, "a")
    assert late.mount_status == STALE_EPOCH
    assert pool.exists(late.session, b"k") == [NOT_FOUND]
    [(status, _)] = pool.mount_all(late.session, [late.described], known_epoch=OLD, known_master=uuid(77))
    assert status == OK


def test_values_that_do_not_fit_or_belong_to_this_reign_are_refused(pool: Harness) -> None:
    node = Returning(pool, "a", capacity=128)
    own = (2 << 40) | 1
    body = _core.encode_inventory(
        node.session,
        FIRST | LAST,
        [
            (old_id(1), node.segment, value_header(b"a", 64, put_id=old_id(1))),
            (old_id(2), node.segment, value_header(b"b", 128, put_id=old_id(2))),
            (own, node.segment, value_header(b"c", 64, put_id=old_id(3))),
            (old_id(4), node.segment, value_header(b"d", 64, put_id=own)),
            (old_id(5), node.segment + 1, value_header(b"e", 64, put_id=old_id(5))),
        ],
        5,
        mix64(old_id(1)) ^ mix64(old_id(2)) ^ mix64(own) ^ mix64(old_id(4)) ^ mix64(old_id(5)),
    )
    assert pool.ask("inventory", body)[0] == OK
    retired = [replica for kind, _, replica, _ in pool.effects if kind == "retire"]
    assert retired == [old_id(2), own, old_id(4)]
    assert pool.charged(node.session) == [64]
    assert pool.stat("refused_replicas_total") == 3


def test_a_late_commit_of_the_earlier_reign_is_stale(pool: Harness) -> None:
    node = Returning(pool, "a")
    assert node.tell() == OK
    assert pool.put_end(node.session, (old_id(1), [(old_id(2), OK)])) == [STALE_GRANT]


def test_max_keys_holds_while_nodes_come_back(make: Make) -> None:
    pool = make(epoch=2, max_keys=3)
    node = Returning(pool, "a")
    assert node.tell(*[held(number, b"k%d" % number) for number in range(1, 9)]) == OK
    assert pool.stat("key_count") <= 3


def test_no_node_tells_another_ones_replica_or_one_for_two_keys(pool: Harness) -> None:
    honest, liar = Returning(pool, "a"), Returning(pool, "b")
    assert honest.tell(held(3, b"k", put=2)) == OK
    assert (
        liar.tell(held(3, b"k", put=2), held(3, b"other", put=2), held(4, b"mine"), held(4, b"twice")) == OK
    )
    assert [effect for effect in pool.effects if effect[0] == "retire"] == []
    answers = pool.lookup(honest.session, b"k", b"other", b"mine", b"twice")
    assert [(answer[0], answer[4]) for answer in answers] == [
        (OK, [(old_id(3), honest.segment)]),
        (REBUILDING, []),
        (OK, [(old_id(4), liar.segment)]),
        (REBUILDING, []),
    ]
    assert pool.remove(honest.session, b"k", b"mine", flags=1) == [OK, OK]
    pool.free_retired()
    assert pool.charged(honest.session) == [0, 0]
