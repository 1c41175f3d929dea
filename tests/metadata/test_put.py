"""What a put promises: grants, the moment of visibility, its owner, its end, and that it happens once."""

from __future__ import annotations

import pytest
from metadata.conftest import Make
from metadata.harness import (
    ALREADY_EXISTS,
    BUSY,
    HARD_PIN,
    ILLEGAL_CLIENT,
    INVALID_KEY,
    INVALID_PARAMS,
    KEEP_SOFT_PIN,
    NO_RANGE,
    NO_SPACE,
    NOT_FOUND,
    NOT_READY,
    OK,
    SEALED,
    SESSION_UNKNOWN,
    SOFT_PIN,
    STALE_GRANT,
    STALE_REQUEST,
    UPSERT,
    VALUE_TOO_LARGE,
    VERBS,
    WRITE_FAIL,
    Grant,
    Harness,
)

from mooncake_store import _core


def test_put_is_visible_at_its_end_and_not_before(pool: Harness) -> None:
    node = pool.open()
    segment = pool.mount(node, "a", 1_024)
    [grant] = pool.put_start(node, b"k", size=100)
    assert grant.status == OK
    assert [place[1] for place in grant.places] == [segment]
    assert pool.exists(node, b"k") == [NOT_READY]
    assert pool.lookup(node, b"k") == [(NOT_READY, 0, 0, 0, [])]
    assert pool.charged(node) == [128]
    assert pool.put_end(node, grant.written) == [OK]
    [(status, put_id, size, _, places)] = pool.lookup(node, b"k")
    assert (status, put_id, size, places) == (OK, grant.put_id, 100, grant.places)


def test_ids_carry_the_epoch_and_rise(make: Make) -> None:
    pool = make(epoch=7)
    node = pool.open()
    pool.mount(node, "a", 1_024)
    first, second = pool.put_start(node, b"a", b"b")
    assert first.put_id >> 40 == second.put_id >> 40 == 7
    assert first.put_id < first.places[0][0] < second.put_id < second.places[0][0]


def test_answers_of_a_batch_keep_the_order_of_its_keys(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    assert pool.put(node, b"old") == [OK]
    grants = pool.put_start(node, b"old", b"", b"x", b"large", b"y", size=[1, 1, 1, 4_096, 1])
    assert [grant.status for grant in grants] == [ALREADY_EXISTS, INVALID_KEY, OK, VALUE_TOO_LARGE, OK]
    x, y = grants[2], grants[4]
    assert pool.put_end(node, y.written, (99, []), x.written) == [OK, STALE_GRANT, OK]
    assert [found[1] for found in pool.lookup(node, b"x", b"y")] == [x.put_id, y.put_id]


def test_key_given_twice_in_one_batch_is_granted_once(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    assert [grant.status for grant in pool.put_start(node, b"k", b"k")] == [OK, NOT_READY]


def test_second_put_waits_for_the_first_even_with_upsert(pool: Harness) -> None:
    node, other = pool.open(), pool.open()
    pool.mount(node, "a", 1_024)
    [grant] = pool.put_start(node, b"k")
    assert [g.status for g in pool.put_start(other, b"k")] == [NOT_READY]
    assert [g.status for g in pool.put_start(other, b"k", flags=UPSERT)] == [NOT_READY]
    pool.put_end(node, grant.written)
    assert [g.status for g in pool.put_start(other, b"k")] == [ALREADY_EXISTS]


def test_upsert_shows_the_old_value_until_the_new_one_is_written(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    [old] = pool.put_start(node, b"k")
    pool.put_end(node, old.written)
    [new] = pool.put_start(node, b"k", size=65, flags=UPSERT)
    assert pool.lookup(node, b"k")[0][1] == old.put_id
    assert pool.put_end(node, new.written) == [OK]
    assert pool.retired == [old.places[0][0]]
    assert pool.effects == [("retire", old.places[0][1], old.places[0][0], 0)]
    pool.free_retired()
    assert pool.charged(node) == [128]
    assert pool.lookup(node, b"k")[0][1:3] == (new.put_id, 65)


def test_failed_upsert_leaves_the_old_value(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    [old] = pool.put_start(node, b"k")
    pool.put_end(node, old.written)
    [new] = pool.put_start(node, b"k", flags=UPSERT)
    assert pool.put_end(node, (new.put_id, [(new.places[0][0], NO_RANGE)])) == [WRITE_FAIL]
    assert pool.lookup(node, b"k")[0][1] == old.put_id


def no_range(pool: Harness, session: int, grant: Grant) -> None:
    assert pool.put_end(session, (grant.put_id, [(grant.places[0][0], NO_RANGE)])) == [WRITE_FAIL]
    pool.free_retired()


def test_a_value_for_which_a_node_found_no_range_goes_to_another(pool: Harness) -> None:
    node = pool.open()
    fragmented = pool.mount(node, "fragmented", 10_240)
    assert pool.put(node, *(b"s%d" % number for number in range(4)), size=1_024) == [OK] * 4
    [grant] = pool.put_start(node, b"k", size=1_024)
    other = pool.mount(node, "other", 2_048, endpoints=["tcp://10.0.0.2:1"])
    no_range(pool, node, grant)
    for key in (b"k", b"l"):
        [again] = pool.put_start(node, key, size=1_024)
        assert again.places[0][1] == other
    pool.advance(1_000)
    assert pool.put_start(node, b"m", size=2_048)[0].places[0][1] == fragmented


def test_a_value_without_a_range_evicts_twice_as_much_each_time_up_to_all(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 64 * 1_024)
    small = [b"s%d" % number for number in range(40)]
    assert pool.put(node, *small, size=1_024) == [OK] * 40
    assert pool.put(node, b"pinned", size=1_024, flags=HARD_PIN) == [OK]
    gone: list[int] = []
    while True:
        before = pool.stat("evicted_keys_total")
        [grant] = pool.put_start(node, b"k", size=2_048)
        if grant.status == NO_SPACE:  # what goes is on its way
            pool.free_retired()
            [grant] = pool.put_start(node, b"k", size=2_048)
        gone.append(pool.stat("evicted_keys_total") - before)
        if sum(gone) == len(small):
            break
        no_range(pool, node, grant)
    assert gone == [0, 2, 4, 8, 16, 10]
    assert pool.exists(node, b"pinned") == [OK]
    assert pool.put_end(node, grant.written) == [OK]
    assert pool.put(node, b"m", size=40 * 1_024) == [OK]  # a range was found: free bytes count again


def test_only_the_owner_ends_or_revokes_a_put(pool: Harness) -> None:
    node, other = pool.open(), pool.open()
    pool.mount(node, "a", 1_024)
    [grant] = pool.put_start(node, b"k")
    assert pool.put_end(other, grant.written) == [ILLEGAL_CLIENT]
    assert pool.put_revoke(other, grant.put_id) == [ILLEGAL_CLIENT]
    assert pool.effects == []
    assert pool.exists(node, b"k") == [NOT_READY]
    assert pool.put_end(node, grant.written) == [OK]


def test_end_of_an_unknown_or_finished_put_is_stale(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    [grant] = pool.put_start(node, b"k")
    assert pool.put_end(node, (grant.put_id + 1, [(grant.places[0][0], OK)])) == [STALE_GRANT]
    assert pool.put_end(node, (0, [])) == [STALE_GRANT]
    assert pool.put_end(node, grant.written) == [OK]
    assert pool.put_end(node, grant.written) == [STALE_GRANT]
    assert pool.lookup(node, b"k")[0][1] == grant.put_id


def test_result_for_a_replica_of_another_put_counts_for_nothing(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    mine, other = pool.put_start(node, b"mine", b"other")
    assert pool.put_end(node, (mine.put_id, [(other.places[0][0], OK)])) == [WRITE_FAIL]
    assert pool.exists(node, b"mine", b"other") == [NOT_FOUND, NOT_READY]
    assert pool.put_end(node, other.written) == [OK]


@pytest.mark.parametrize(
    ("first", "second", "outcome", "kept"),
    [
        (OK, OK, OK, [0, 1]),
        (SEALED, NO_RANGE, OK, [0]),
        (NO_RANGE, OK, OK, [1]),
        (NO_RANGE, NO_RANGE, WRITE_FAIL, []),
        (OK, None, OK, [0]),
        (None, None, WRITE_FAIL, []),
    ],
)
def test_one_written_replica_commits_and_failed_ones_retire(
    pool: Harness, first: int | None, second: int | None, outcome: int, kept: list[int]
) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.mount(node, "b", 1_024)
    [grant] = pool.put_start(node, b"k", replica_count=2)
    results = [(grant.places[i][0], s) for i, s in enumerate((first, second)) if s is not None]
    assert pool.put_end(node, (grant.put_id, results)) == [outcome]
    gone = [place for i, place in enumerate(grant.places) if i not in kept]
    assert pool.effects == [("retire", segment, replica, 0) for replica, segment in gone]
    [(status, _, _, _, places)] = pool.lookup(node, b"k")
    assert (status, places) == (OK if kept else NOT_FOUND, [grant.places[i] for i in kept])
    pool.free([replica for replica, _ in gone])
    assert sum(pool.charged(node)) == 64 * len(kept)


def test_replicas_lie_on_distinct_segments_and_hosts(pool: Harness) -> None:
    node = pool.open()
    hosts = {
        pool.mount(node, name, 65_536, host_id=host)
        for name, host in (("a", "one"), ("b", "one"), ("c", "one"), ("d", "two"))
    }
    of_host_two = max(hosts)
    for index in range(20):
        [grant] = pool.put_start(node, b"k%d" % index, replica_count=2)
        chosen = [segment for _, segment in grant.places]
        assert len(set(chosen)) == 2
        assert of_host_two in chosen
    [grant] = pool.put_start(node, b"many", replica_count=3)
    assert len({segment for _, segment in grant.places}) == 3


def test_fewer_segments_than_replicas_gives_what_there_is(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    [grant] = pool.put_start(node, b"k", replica_count=3)
    assert (grant.status, len(grant.places)) == (OK, 1)
    assert pool.stat("partial_allocations_total") == 1


def test_preferred_and_avoided_segments_are_honoured(pool: Harness) -> None:
    node = pool.open()
    a, b = pool.mount(node, "a", 65_536), pool.mount(node, "b", 65_536)
    for index in range(10):
        [preferred] = pool.put_start(node, b"p%d" % index, preferred=["b"])
        assert preferred.places[0][1] == b
        [avoided] = pool.put_start(node, b"q%d" % index, preferred=["b"], avoid=[b])
        assert avoided.places[0][1] == a
    assert [g.status for g in pool.put_start(node, b"none", avoid=[a, b])] == [NO_SPACE]


def test_freest_segment_is_chosen_with_free_ratio_first(make: Make) -> None:
    pool = make(allocation="free_ratio_first")
    node = pool.open()
    a, b = pool.mount(node, "a", 1_024), pool.mount(node, "b", 1_024)
    pool.put(node, b"fill", size=512, preferred=["a"])
    [first] = pool.put_start(node, b"x", size=576)
    assert first.places[0][1] == b
    [second] = pool.put_start(node, b"y", size=64)
    assert second.places[0][1] == a


def test_segments_of_different_sizes_fill_alike(pool: Harness) -> None:
    """UP 18: 64 and 256 KiB, half full of values placed at random, differ by less than ten points."""
    node = pool.open()
    for name, capacity in (("small", 64 << 10), ("large", 256 << 10)):
        pool.mount(node, name, capacity)
    for first in range(0, 2_560, 40):
        pool.put(node, *(b"%d" % number for number in range(first, first + 40)))
    small, large = (info["charged_bytes"] / info["capacity_bytes"] for info in pool.segments(node))
    assert small + large == pytest.approx(1, abs=0.1)
    assert abs(small - large) < 0.1


def test_repeated_put_start_gets_the_same_grant_and_charges_once(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    first = pool.put_start(node, b"k", sequence=50)
    assert pool.put_start(node, b"k", sequence=50) == first
    assert pool.charged(node) == [64]
    assert pool.stat("replayed_requests_total") == 1
    assert pool.put_end(node, first[0].written, sequence=51) == [OK]
    assert pool.put_end(node, first[0].written, sequence=51) == [OK]
    assert pool.put_start(node, b"k", sequence=50) == first


def test_repeated_remove_does_not_take_the_next_value(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.put(node, b"k")
    assert pool.remove(node, b"k", sequence=70) == [OK]
    pool.put(node, b"k")
    assert pool.remove(node, b"k", sequence=70) == [OK]
    assert pool.effects == []
    assert pool.exists(node, b"k") == [OK]


def test_sequences_of_two_sessions_are_apart(pool: Harness) -> None:
    node, other = pool.open(), pool.open()
    pool.mount(node, "a", 1_024)
    [one] = pool.put_start(node, b"a", sequence=9)
    [two] = pool.put_start(other, b"b", sequence=9)
    assert (one.status, two.status) == (OK, OK)
    assert one.put_id != two.put_id


def test_sequence_that_left_the_window_is_refused(make: Make) -> None:
    pool = make(replay_window=2)
    node = pool.open()
    pool.mount(node, "a", 1_024)
    for sequence in (10, 11, 12):
        pool.put_start(node, b"k%d" % sequence, sequence=sequence)
    status, _ = pool.ask("put_start", _core.encode_put_start(node, 10, [b"k10"], [64]))
    assert status == STALE_REQUEST
    assert pool.stat("unfinished_put_count") == 3
    assert pool.put_start(node, b"k12", sequence=12)[0].status == OK


def test_changes_need_a_sequence_and_a_session(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    assert pool.ask("put_start", _core.encode_put_start(node, 0, [b"k"], [1]))[0] == INVALID_PARAMS
    assert pool.ask("put_start", _core.encode_put_start(12_345, 1, [b"k"], [1]))[0] == SESSION_UNKNOWN
    assert pool.stat("unfinished_put_count") == 0


def test_first_request_of_a_sequence_under_way_is_not_started_twice(pool: Harness) -> None:
    """A put_start that waits for space is repeated: busy, not a second grant."""
    node = pool.open()
    pool.mount(node, "a", 128)
    pool.put(node, b"old", size=128)
    body = _core.encode_put_start(node, 500, [b"new"], [128])
    waiting = _core.Metadata.command(VERBS["put_start"], body)
    assert pool.machine.step(waiting, pool.now)[0]
    assert waiting.waits_for_space
    assert pool.ask("put_start", body)[0] == BUSY
    pool.machine.refuse_waiting(waiting, pool.now)
    assert _core.parse_put_start_reply(waiting.body) == [(NO_SPACE, 0, [])]


def test_request_under_way_is_not_forgotten_by_the_replay_window(make: Make) -> None:
    """Later requests may fill the window meanwhile; forgotten, a repeat of the first would begin it anew."""
    pool = make(replay_window=2)
    node = pool.open()
    pool.mount(node, "a", 128)
    pool.put(node, b"old", size=128)
    body = _core.encode_put_start(node, 500, [b"new"], [128])
    waiting = _core.Metadata.command(VERBS["put_start"], body)
    _, effects = pool.machine.step(waiting, pool.now)
    assert waiting.waits_for_space
    for sequence in (501, 502, 503):
        pool.remove(node, b"none", sequence=sequence)
    assert pool.ask("put_start", body)[0] == BUSY
    pool.free([replica for kind, _, replica, _ in effects if kind == "retire"])
    pool.machine.step(waiting, pool.now)
    assert waiting.done
    assert pool.ask("put_start", body) == (OK, waiting.body)


def test_unfinished_put_is_replaced_after_the_discard_timeout(make: Make) -> None:
    pool = make(put_start_discard_ms=300, client_ttl_ms=60_000)
    node, other = pool.open(), pool.open()
    pool.mount(node, "a", 1_024)
    [old] = pool.put_start(node, b"k")
    pool.advance(299)
    assert [g.status for g in pool.put_start(other, b"k")] == [NOT_READY]
    pool.advance(1)
    [new] = pool.put_start(other, b"k", size=65)
    assert new.status == OK
    assert pool.effects == [("retire", old.places[0][1], old.places[0][0], 0)]
    assert new.put_id > old.put_id
    assert pool.put_end(node, old.written) == [STALE_GRANT]
    assert pool.exists(node, b"k") == [NOT_READY]
    assert pool.put_end(other, new.written) == [OK]
    assert pool.put_end(node, old.written) == [STALE_GRANT]
    assert pool.lookup(node, b"k")[0][1:3] == (new.put_id, 65)


def test_put_of_a_session_that_is_gone_is_replaced_at_once(pool: Harness) -> None:
    """UP 4: the key of a dead writer is not stuck."""
    node, other = pool.open(), pool.open()
    pool.mount(node, "a", 1_024)
    [old] = pool.put_start(other, b"k")
    assert pool.close(other) == OK
    assert ("retire", old.places[0][1], old.places[0][0], 0) in pool.effects
    [new] = pool.put_start(node, b"k")
    assert new.status == OK


def test_put_of_a_session_that_is_ending_is_replaced_before_its_turn_comes(make: Make) -> None:
    """A session's many puts are revoked in steps; nobody waits for a client that is gone meanwhile."""
    pool = make(client_ttl_ms=1_000, keys_a_step_max=2)
    node, other = pool.open(), pool.open()
    pool.mount(node, "a", 1_024)
    pool.put_start(other, *[b"%d" % index for index in range(6)])
    pool.now += 1_000
    pool.heartbeat(node)
    assert pool.machine.tick(pool.now)[0] is False
    assert pool.stat("active_session_count") == 1
    assert pool.stat("unfinished_put_count") > 1
    assert [g.status for g in pool.put_start(node, b"0")] == [OK]


def test_forgotten_put_is_reaped_after_the_release_timeout(make: Make) -> None:
    pool = make(put_start_release_ms=700, client_ttl_ms=60_000)
    node = pool.open()
    pool.mount(node, "a", 1_024)
    [grant] = pool.put_start(node, b"k")
    assert pool.advance(699) == []
    assert pool.advance(1) == [("retire", grant.places[0][1], grant.places[0][0], 0)]
    assert pool.exists(node, b"k") == [NOT_FOUND]
    assert pool.put_end(node, grant.written) == [STALE_GRANT]


def test_revoke_is_idempotent_and_frees_the_key(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    [grant] = pool.put_start(node, b"k")
    assert pool.put_revoke(node, grant.put_id) == [OK]
    assert pool.retired == [grant.places[0][0]]
    assert pool.put_revoke(node, grant.put_id) == [OK]
    assert (pool.retired, pool.effects) == ([], [])
    assert pool.put_end(node, grant.written) == [STALE_GRANT]
    assert pool.exists(node, b"k") == [NOT_FOUND]
    assert pool.put(node, b"k") == [OK]


def test_revoke_after_the_end_leaves_the_value(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    [grant] = pool.put_start(node, b"k")
    pool.put_end(node, grant.written)
    assert pool.put_revoke(node, grant.put_id) == [OK]
    assert pool.exists(node, b"k") == [OK]


def test_value_that_fits_nowhere_is_refused_by_its_size(pool: Harness) -> None:
    node = pool.open()
    assert [g.status for g in pool.put_start(node, b"k")] == [NO_SPACE]
    pool.mount(node, "a", 256)
    assert [g.status for g in pool.put_start(node, b"k", size=257)] == [VALUE_TOO_LARGE]
    assert pool.put(node, b"k", size=256) == [OK]


@pytest.mark.parametrize("count", [0, 200])
def test_impossible_replica_counts_are_refused(pool: Harness, count: int) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    assert [g.status for g in pool.put_start(node, b"k", replica_count=count)] == [INVALID_PARAMS]


def test_empty_value_costs_one_line(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    assert pool.put(node, b"k", size=0) == [OK]
    assert pool.charged(node) == [64]
    assert pool.lookup(node, b"k")[0][2] == 0


def test_a_value_out_of_the_clients_reach_gives_way_to_a_put(pool: Harness) -> None:
    node = pool.open()
    dead = pool.mount(node, "dead", 1_024)
    assert pool.put(node, b"k") == [OK]
    [old] = pool.lookup(node, b"k")
    alive = pool.mount(node, "alive", 1_024, endpoints=["tcp://10.0.0.2:1"])
    assert pool.put_start(node, b"k")[0].status == ALREADY_EXISTS
    assert pool.put_start(node, b"k", avoid=[alive])[0].status == ALREADY_EXISTS
    [grant] = pool.put_start(node, b"k", avoid=[dead])
    assert (grant.status, [segment for _, segment in grant.places]) == (OK, [alive])
    assert pool.lookup(node, b"k")[0][1] == old[1]
    assert pool.put_end(node, grant.written) == [OK]
    assert pool.lookup(node, b"k")[0][1] == grant.put_id > old[1]


def test_a_sequence_that_was_answered_is_no_other_requests(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    assert pool.put_start(node, b"k", sequence=50)[0].status == OK
    body = _core.encode_keys_request(node, [b"k"], sequence=50)
    status, why = pool.ask("remove", body)
    assert status == INVALID_PARAMS
    assert b"put_start" in why


def soft_pin_ms(pool: Harness, client: int, key: bytes) -> int:
    status, body = pool.ask("inspect", _core.encode_inspect(client, 1, key))
    assert status == OK
    told = _core.parse_inspect_reply(body)["key"]
    assert told is not None
    return told["soft_pin_ms"]


def test_an_upsert_may_keep_what_remains_of_the_soft_pin_before() -> None:
    pool = Harness({"soft_pin_ms": 60_000, "client_ttl_ms": 3_600_000})
    node = pool.open()
    pool.mount(node, "seg", 6_400)
    keeps = UPSERT | KEEP_SOFT_PIN
    assert pool.put(node, b"k", flags=keeps) == [OK]
    assert soft_pin_ms(pool, node, b"k") == 0, "there was none before"
    assert pool.put(node, b"k", flags=UPSERT | SOFT_PIN, soft_pin_ms=10_000) == [OK]
    pool.advance(4_000)
    [grant] = pool.put_start(node, b"k", flags=keeps)
    pool.advance(1_000)
    assert pool.put_end(node, grant.written) == [OK]
    assert soft_pin_ms(pool, node, b"k") == 5_000, "the deadline stays, however long the put took"
    assert pool.stat("soft_pin_key_count") == 1
    pool.advance(5_000)
    assert soft_pin_ms(pool, node, b"k") == 0
    assert pool.put(node, b"k", flags=keeps) == [OK]
    assert soft_pin_ms(pool, node, b"k") == 0, "it has ended"


def test_what_an_upsert_asks_for_goes_before_what_was() -> None:
    pool = Harness({"soft_pin_ms": 60_000, "client_ttl_ms": 3_600_000})
    node = pool.open()
    pool.mount(node, "seg", 6_400)
    assert pool.put(node, b"k", flags=SOFT_PIN) == [OK]
    assert pool.put(node, b"k", flags=UPSERT | KEEP_SOFT_PIN | SOFT_PIN, soft_pin_ms=7_000) == [OK]
    assert soft_pin_ms(pool, node, b"k") == 7_000
    assert pool.put(node, b"k", flags=UPSERT) == [OK]
    assert soft_pin_ms(pool, node, b"k") == 0
    assert pool.put(node, b"k", flags=UPSERT | SOFT_PIN) == [OK]
    assert pool.put(node, b"k", flags=UPSERT | KEEP_SOFT_PIN | HARD_PIN) == [OK]
    assert soft_pin_ms(pool, node, b"k") == 0
    assert pool.stat("hard_pin_key_count") == 1
