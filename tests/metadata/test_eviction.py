"""Who goes when there is too much, in which order, and how much: never more than it takes."""

from __future__ import annotations

import pytest
from metadata.conftest import Make
from metadata.harness import (
    HARD_PIN,
    NO_SPACE,
    NOT_FOUND,
    NOT_READY,
    OK,
    SOFT_PIN,
    VERBS,
    WITHOUT_HOLD,
    Harness,
)

from mooncake_store import _core

# Only a put that finds no room evicts.
UNDER_PRESSURE_ONLY = {"eviction_high_watermark_ratio": 1.0}


def names(count: int) -> list[bytes]:
    return [b"%03d" % index for index in range(count)]


def absent(pool: Harness, session: int, *keys: bytes) -> list[bytes]:
    found = pool.exists(session, *keys, flags=WITHOUT_HOLD)
    return [key for key, status in zip(keys, found, strict=True) if status == NOT_FOUND]


def press(pool: Harness, session: int, size: int = 64) -> bool:
    """One put that finds no room, twice: the second time what the first evicted is free."""
    key = b"press-%d" % pool.next_sequence()
    [first] = pool.put_start(session, key, size=size)
    assert first.status == NO_SPACE
    pool.free_retired()
    [second] = pool.put_start(session, key, size=size)
    if second.status == OK:
        pool.put_revoke(session, second.put_id)
        pool.free_retired()
    return second.status == OK


def test_oldest_access_goes_first_exactly(make: Make) -> None:
    """UP 7: of unread values the oldest goes first."""
    pool = make(**UNDER_PRESSURE_ONLY)
    node = pool.open()
    pool.mount(node, "a", 8 * 64)
    keys = names(8)
    pool.put(node, *keys)
    order = [keys[i] for i in (5, 2, 7, 0, 3, 6, 1, 4)]
    for key in order:
        pool.touch(node, key)
    gone: list[bytes] = []
    for index in range(8):
        [new] = pool.put_start(node, b"new-%d" % index)
        assert new.status == NO_SPACE
        pool.free_retired()
        [victim] = [key for key in absent(pool, node, *keys) if key not in gone]
        gone.append(victim)
        assert pool.put(node, b"new-%d" % index, flags=HARD_PIN) == [OK]
    assert gone == order


def test_access_after_an_eviction_has_begun_counts_too(make: Make) -> None:
    """What stands next in line moves back when it is read, not only what was read before anything went."""
    pool = make(**UNDER_PRESSURE_ONLY)
    node = pool.open()
    pool.mount(node, "a", 4 * 64)
    pool.put(node, *names(4))
    assert press(pool, node)
    assert absent(pool, node, *names(4)) == [b"000"]
    pool.touch(node, b"001")
    pool.put(node, b"new")
    assert press(pool, node)
    assert absent(pool, node, *names(4)) == [b"000", b"002"]


def test_put_takes_no_more_than_it_needs(make: Make) -> None:
    pool = make(**UNDER_PRESSURE_ONLY)
    node = pool.open()
    pool.mount(node, "a", 10 * 64)
    pool.put(node, *names(10))
    assert press(pool, node, size=3 * 64)
    assert absent(pool, node, *names(10)) == names(3)
    assert pool.stat("evicted_keys_total") == 3
    assert pool.stat("evicted_bytes_total") == 3 * 64


def test_bytes_already_retiring_are_counted_before_more_is_evicted(make: Make) -> None:
    pool = make(**UNDER_PRESSURE_ONLY)
    node = pool.open()
    pool.mount(node, "a", 4 * 64)
    pool.put(node, *names(4))
    pool.remove(node, b"000", b"001")
    assert [g.status for g in pool.put_start(node, b"x", size=128)] == [NO_SPACE]
    assert pool.effects == []
    assert pool.stat("evicted_keys_total") == 0


@pytest.mark.parametrize("ratio", [0.05, 0.10, 0.20])
def test_watermark_round_frees_what_it_aims_at(make: Make, ratio: float) -> None:
    """UP 7: max(ratio, used - high + ratio) of the capacity, within a tenth or one object."""
    pool = make(eviction_high_watermark_ratio=0.9, eviction_ratio=ratio)
    node = pool.open()
    capacity = 1_000 * 64
    pool.mount(node, "a", capacity)
    pool.put(node, *names(900))
    assert pool.effects == pool.tick() == []
    pool.put_start(node, *[b"more-%d" % index for index in range(50)])
    effects = pool.effects
    aim = (0.05 + ratio) * capacity
    freed = 64 * len(effects)
    assert abs(freed - aim) <= max(0.1 * aim, 64)
    assert absent(pool, node, *names(900)) == names(len(effects))
    assert pool.tick() == []
    assert pool.stat("attempted_evictions_total") == pool.stat("successful_evictions_total") == 1


def test_watermark_round_over_several_steps_frees_the_same(make: Make) -> None:
    pool = make(eviction_high_watermark_ratio=0.9, eviction_ratio=0.1, keys_a_step_max=7)
    node = pool.open()
    pool.mount(node, "a", 200 * 64)
    pool.put(node, *names(190))
    assert abs(pool.stat("evicted_keys_total") + len(pool.tick()) - 30) <= 3


def test_watermark_round_over_segments_keeps_the_common_order(make: Make) -> None:
    pool = make(eviction_high_watermark_ratio=0.9, eviction_ratio=0.1)
    node = pool.open()
    for name in ("a", "b", "c", "d"):
        pool.mount(node, name, 32 * 64)
    pool.put(node, *names(120))
    count = len(pool.tick())
    assert count > 0
    assert absent(pool, node, *names(120)) == names(count)


def test_watermark_round_respects_leases_and_takes_what_is_held_last(make: Make) -> None:
    """Who asks for all there is must not keep a tier full; who reads it may."""
    pool = make(eviction_high_watermark_ratio=0.5, eviction_ratio=0.25, lease_ttl_ms=100, exists_hold_ms=40)
    node = pool.open()
    pool.mount(node, "a", 8 * 64)
    pool.put(node, *names(4))
    pool.lookup(node, b"000")
    pool.exists(node, b"001", b"002", b"003")
    pool.put(node, b"new")
    assert absent(pool, node, *names(4), b"new") == names(4)[1:]
    assert pool.stat("evicted_leased_keys_total") == 3
    more = [b"new", b"beyond", b"more", b"most"]
    pool.lookup(node, b"new")
    pool.put(node, *more[1:])
    pool.lookup(node, *more)
    assert pool.tick() == []
    assert absent(pool, node, b"000", *more) == []


def test_a_put_that_crosses_the_watermark_begins_the_round_itself(make: Make) -> None:
    """A writer may fill a tier between two ticks."""
    pool = make(eviction_high_watermark_ratio=0.75, eviction_ratio=0.25)
    node = pool.open()
    pool.mount(node, "a", 16 * 64)
    for key in names(60):
        [grant] = pool.put_start(node, key)
        pool.free_retired()
        assert pool.put_end(node, grant.written) == [OK]
        used = sum(s["charged_bytes"] - s["retiring_bytes"] for s in pool.segments(node))
        assert used <= (0.75 * 16 + 1) * 64
    assert pool.stat("allocation_failures_total") == 0


def test_watermark_round_leaves_soft_pinned_while_others_are_leased(make: Make) -> None:
    """A lease ends soon; what somebody pinned is worth more than the bytes a round frees early."""
    pool = make(eviction_high_watermark_ratio=0.5, eviction_ratio=0.5)
    node = pool.open()
    pool.mount(node, "a", 4 * 64)
    pool.put(node, b"soft", flags=SOFT_PIN)
    pool.put(node, *names(3))
    pool.lookup(node, *names(3))
    assert pool.tick() == []
    assert absent(pool, node, b"soft", *names(3)) == []


def test_unleased_goes_before_leased_however_young(make: Make) -> None:
    pool = make(**UNDER_PRESSURE_ONLY)
    node = pool.open()
    pool.mount(node, "a", 4 * 64)
    pool.put(node, *names(4))
    pool.lookup(node, b"000", b"001", b"002")
    pool.touch(node, b"003")
    assert press(pool, node)
    assert absent(pool, node, *names(4)) == [b"003"]
    assert pool.stat("evicted_leased_keys_total") == 0


def test_held_goes_after_what_is_not(make: Make) -> None:
    pool = make(**UNDER_PRESSURE_ONLY)
    node = pool.open()
    pool.mount(node, "a", 2 * 64)
    pool.put(node, b"held", b"other")
    pool.exists(node, b"held")
    pool.touch(node, b"other")
    assert press(pool, node)
    assert absent(pool, node, b"held", b"other") == [b"other"]


def test_leases_break_under_pressure_oldest_first(make: Make) -> None:
    pool = make(**UNDER_PRESSURE_ONLY)
    node = pool.open()
    pool.mount(node, "a", 4 * 64)
    pool.put(node, *names(4))
    for key in (b"002", b"000", b"003", b"001"):
        pool.lookup(node, key)
        pool.now += 1
    gone: list[bytes] = []
    for index in range(4):
        assert pool.put_start(node, b"new-%d" % index)[0].status == NO_SPACE
        pool.free_retired()
        [victim] = [key for key in absent(pool, node, *names(4)) if key not in gone]
        gone.append(victim)
        assert pool.put(node, b"new-%d" % index, flags=HARD_PIN) == [OK]
    assert gone == [b"002", b"000", b"003", b"001"]
    assert pool.stat("evicted_leased_keys_total") == 4


def test_released_goes_before_leased_at_its_old_place(make: Make) -> None:
    pool = make(**UNDER_PRESSURE_ONLY)
    node = pool.open()
    pool.mount(node, "a", 3 * 64)
    pool.put(node, *names(3))
    pool.lookup(node, *names(3))
    pool.release(node, b"001")
    assert press(pool, node)
    assert absent(pool, node, *names(3)) == [b"001"]


def test_released_goes_at_its_old_place_also_when_it_was_passed_over_before(make: Make) -> None:
    pool = make(**UNDER_PRESSURE_ONLY)
    node = pool.open()
    pool.mount(node, "a", 4 * 64)
    pool.put(node, *names(4))
    pool.lookup(node, b"000")
    pool.touch(node, b"001", b"002", b"003")
    assert press(pool, node)
    assert absent(pool, node, *names(4)) == [b"001"]
    pool.put(node, b"new")
    pool.release(node, b"000")
    assert press(pool, node)
    assert absent(pool, node, *names(4)) == [b"000", b"001"]


def test_hard_pinned_never_goes(make: Make) -> None:
    pool = make(eviction_high_watermark_ratio=0.1, soft_pin_ms=1)
    node = pool.open()
    pool.mount(node, "a", 4 * 64)
    pool.put(node, *names(4), flags=HARD_PIN | SOFT_PIN)
    for _ in range(3):
        assert [g.status for g in pool.put_start(node, b"x")] == [NO_SPACE]
        assert pool.advance(1_000) == []
    assert absent(pool, node, *names(4)) == []
    assert pool.remove(node, b"002") == [OK]
    pool.free_retired()
    assert pool.put(node, b"x") == [OK]


def test_room_is_not_made_where_pins_leave_none(make: Make) -> None:
    """Nothing goes for a put that could not be placed even so."""
    pool = make(**UNDER_PRESSURE_ONLY)
    node = pool.open()
    pool.mount(node, "a", 4 * 64)
    pool.put(node, b"pinned", flags=HARD_PIN)
    pool.put(node, *names(3))
    assert [g.status for g in pool.put_start(node, b"x", size=4 * 64)] == [NO_SPACE]
    assert pool.effects == []
    assert absent(pool, node, *names(3)) == []


def test_soft_pinned_goes_last_even_after_leased(make: Make) -> None:
    pool = make(**UNDER_PRESSURE_ONLY)
    node = pool.open()
    pool.mount(node, "a", 3 * 64)
    pool.put(node, b"soft", flags=SOFT_PIN)
    pool.put(node, b"leased", b"plain")
    pool.lookup(node, b"leased")
    gone = []
    for index in range(3):
        assert pool.put_start(node, b"new-%d" % index)[0].status == NO_SPACE
        pool.free_retired()
        gone.append(absent(pool, node, b"soft", b"leased", b"plain"))
        assert pool.put(node, b"new-%d" % index, flags=HARD_PIN) == [OK]
    assert gone == [[b"plain"], [b"leased", b"plain"], [b"soft", b"leased", b"plain"]]
    assert pool.stat("evicted_soft_pinned_keys_total") == 1


def test_soft_pin_ends_after_its_time(make: Make) -> None:
    pool = make(**UNDER_PRESSURE_ONLY, soft_pin_ms=200)
    node = pool.open()
    pool.mount(node, "a", 2 * 64)
    pool.put(node, b"soft", flags=SOFT_PIN)
    pool.put(node, b"plain")
    pool.advance(200)
    assert pool.stat("soft_pin_key_count") == 0
    assert press(pool, node)
    assert absent(pool, node, b"soft", b"plain") == [b"soft"]


def test_soft_pinned_stays_where_the_setting_says_so(make: Make) -> None:
    pool = make(**UNDER_PRESSURE_ONLY, evict_soft_pinned=False)
    node = pool.open()
    pool.mount(node, "a", 2 * 64)
    pool.put(node, b"a", b"b", flags=SOFT_PIN)
    assert [g.status for g in pool.put_start(node, b"x")] == [NO_SPACE]
    assert pool.effects == []
    assert absent(pool, node, b"a", b"b") == []


def test_unfinished_put_never_goes(make: Make) -> None:
    pool = make(eviction_high_watermark_ratio=0.1)
    node = pool.open()
    pool.mount(node, "a", 2 * 64)
    grants = pool.put_start(node, b"a", b"b")
    assert [g.status for g in pool.put_start(node, b"x")] == [NO_SPACE]
    assert pool.effects == []
    assert pool.tick() == []
    assert pool.exists(node, b"a", b"b") == [NOT_READY, NOT_READY]
    assert pool.put_end(node, *[grant.written for grant in grants]) == [OK, OK]


def test_key_limit_is_kept_by_eviction(make: Make) -> None:
    pool = make(max_keys=4, eviction_high_watermark_ratio=1.0)
    node = pool.open()
    pool.mount(node, "a", 65_536)
    assert pool.put(node, *names(4)) == [OK] * 4
    assert pool.put(node, b"new") == [OK]
    assert absent(pool, node, *names(4)) == [b"000"]
    assert pool.stat("key_count") == 4
    pool.put_start(node, b"u1", b"u2", b"u3", b"u4")
    assert [g.status for g in pool.put_start(node, b"u5")] == [NO_SPACE]


def test_put_that_waits_goes_on_when_space_returns(make: Make) -> None:
    pool = make(**UNDER_PRESSURE_ONLY)
    node = pool.open()
    segment = pool.mount(node, "a", 2 * 64)
    pool.put(node, b"old", b"young")
    body = _core.encode_put_start(node, pool.next_sequence(), [b"first", b"second"], [64, 64])
    command = _core.Metadata.command(VERBS["put_start"], body)
    paused, effects = pool.machine.step(command, pool.now)
    assert (paused, command.waits_for_space, command.done) == (True, True, False)
    replicas = [replica for kind, _, replica, _ in effects if kind == "retire"]
    assert len(replicas) == 2
    assert pool.free(replicas[:1]) == [("space_returned", segment, 0, 0)]
    pool.machine.step(command, pool.now)
    assert command.waits_for_space
    pool.free(replicas[1:])
    pool.machine.step(command, pool.now)
    assert (command.waits_for_space, command.done) == (False, True)
    grants = _core.parse_put_start_reply(command.body)
    assert [status for status, _, _ in grants] == [OK, OK]
    assert pool.stat("evicted_keys_total") == 2
    assert pool.stat("waits_for_space_total") == 2


def test_promise_of_a_put_that_waited_ends_with_its_grant(make: Make) -> None:
    pool = make(**UNDER_PRESSURE_ONLY)
    node = pool.open()
    pool.mount(node, "a", 2 * 64)
    pool.put(node, b"old", b"young")
    body = _core.encode_put_start(node, pool.next_sequence(), [b"first"], [64])
    command = _core.Metadata.command(VERBS["put_start"], body)
    _, effects = pool.machine.step(command, pool.now)
    pool.free([replica for kind, _, replica, _ in effects if kind == "retire"])
    pool.machine.step(command, pool.now)
    [(status, put_id, _)] = _core.parse_put_start_reply(command.body)
    assert status == OK
    pool.put_revoke(node, put_id)
    pool.free_retired()
    assert [g.status for g in pool.put_start(node, b"next")] == [OK]
    assert absent(pool, node, b"young") == []


def test_promise_of_a_put_that_gave_up_ends_with_its_refusal(make: Make) -> None:
    pool = make(**UNDER_PRESSURE_ONLY)
    node = pool.open()
    pool.mount(node, "a", 2 * 64)
    pool.put(node, b"old", b"young")
    assert [g.status for g in pool.put_start(node, b"impatient")] == [NO_SPACE]
    pool.free_retired()
    assert [g.status for g in pool.put_start(node, b"next")] == [OK]
    assert absent(pool, node, b"old", b"young") == [b"old"]


def test_space_on_a_node_that_does_not_answer_is_not_waited_for(make: Make) -> None:
    pool = make(**UNDER_PRESSURE_ONLY)
    node = pool.open()
    pool.mount(node, "a", 64)
    pool.put(node, b"old")
    pool.machine.session_attached(node, pool.now)
    pool.machine.session_detached(node, pool.now)
    command = _core.Metadata.command(
        VERBS["put_start"], _core.encode_put_start(node, pool.next_sequence(), [b"new"], [64])
    )
    assert pool.machine.step(command, pool.now) == (True, [])
    assert (command.done, command.waits_for_space) == (True, False)
    assert absent(pool, node, b"old") == []


def test_lookup_makes_a_value_the_youngest_also_after_its_lease(make: Make) -> None:
    pool = make(lease_ttl_ms=100)
    session = pool.open()
    pool.mount(session, "only", 256)
    assert pool.put(session, b"a", b"b", b"c") == [OK] * 3
    pool.lookup(session, b"a")
    pool.now += 101
    pool.put_start(session, b"large", size=128)
    assert pool.exists(session, b"a", b"b", b"c") == [OK, NOT_FOUND, OK]
