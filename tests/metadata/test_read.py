"""What readers are told: leases, holds, prefixes, segments out of reach, tenants, and values that age."""

from __future__ import annotations

import pytest
from metadata.conftest import Make
from metadata.harness import (
    HAS_LEASE,
    INVALID_KEY,
    NOT_FOUND,
    NOT_READY,
    OK,
    UNREACHABLE,
    WITHOUT_HOLD,
    Harness,
)

from mooncake_store import _core


def test_lookup_answers_each_key_in_order(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.put(node, b"a", b"b", size=[1, 2])
    pool.put_start(node, b"begun")
    found = pool.lookup(node, b"b", b"none", b"a", b"", b"begun", b"b")
    assert [(status, size) for status, _, size, _, _ in found] == [
        (OK, 2),
        (NOT_FOUND, 0),
        (OK, 1),
        (INVALID_KEY, 0),
        (NOT_READY, 0),
        (OK, 2),
    ]
    assert pool.stat("lookup_hits_total") == 3
    assert pool.stat("lookup_misses_not_ready_total") == 1


def test_batch_longer_than_a_step_keeps_its_order(make: Make) -> None:
    pool = make(keys_a_step_max=3)
    node = pool.open()
    pool.mount(node, "a", 65_536)
    names = [b"k%d" % index for index in range(20)]
    assert pool.put(node, *names, size=list(range(20))) == [OK] * 20
    assert [found[2] for found in pool.lookup(node, *reversed(names))] == list(range(19, -1, -1))
    assert pool.match_prefix(node, *names, b"none", b"k0") == (20, NOT_FOUND)


def test_lease_lasts_its_time_and_is_renewed(make: Make) -> None:
    pool = make(lease_ttl_ms=100)
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.put(node, b"k")
    assert pool.lookup(node, b"k")[0][3] == 100
    pool.advance(99)
    pool.lookup(node, b"k")
    pool.advance(99)
    assert pool.remove(node, b"k") == [HAS_LEASE]
    pool.advance(1)
    assert pool.remove(node, b"k") == [OK]


def test_lease_ends_with_its_last_reader(pool: Harness) -> None:
    node, other = pool.open(), pool.open()
    pool.mount(node, "a", 1_024)
    pool.put(node, b"k")
    pool.lookup(node, b"k")
    pool.lookup(other, b"k")
    assert pool.release(node, b"k") == [OK]
    assert pool.remove(node, b"k") == [HAS_LEASE]
    assert pool.release(other, b"k") == [OK]
    assert pool.remove(node, b"k") == [OK]


def test_release_without_a_lease_is_harmless(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.put(node, b"k")
    assert pool.release(node, b"k", b"k", b"none") == [OK, OK, NOT_FOUND]
    pool.lookup(node, b"k")
    assert pool.remove(node, b"k") == [HAS_LEASE]


def test_match_prefix_stops_at_the_first_miss(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.put(node, b"1", b"2", b"4")
    pool.put_start(node, b"begun")
    assert pool.match_prefix(node, b"1", b"2", b"3", b"4") == (2, NOT_FOUND)
    assert pool.match_prefix(node, b"1", b"begun", b"2") == (1, NOT_READY)
    assert pool.match_prefix(node, b"3", b"1") == (0, NOT_FOUND)
    assert pool.match_prefix(node, b"1", b"2", b"4") == (3, OK)
    assert pool.match_prefix(node) == (0, OK)


@pytest.mark.parametrize("hold", [True, False])
def test_what_lies_behind_the_first_miss_is_not_held(pool: Harness, hold: bool) -> None:
    """Those before the miss are held and so go last; the one behind it is the victim."""
    node = pool.open()
    pool.mount(node, "a", 192)
    pool.put(node, b"1", b"2", b"behind")
    if hold:
        pool.match_prefix(node, b"1", b"2", b"miss", b"behind")
    pool.put_start(node, b"new")
    gone = [b"behind"] if hold else [b"1"]
    present = pool.exists(node, b"1", b"2", b"behind")
    assert [name for name, one in zip([b"1", b"2", b"behind"], present, strict=True) if one != OK] == gone


def test_exists_without_hold_leaves_no_trace(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 128)
    pool.put(node, b"old", b"young")
    assert pool.exists(node, b"old", flags=WITHOUT_HOLD) == [OK]
    pool.put_start(node, b"new")
    assert pool.exists(node, b"old", b"young", flags=WITHOUT_HOLD) == [NOT_FOUND, OK]


def test_exists_hold_protects_for_its_time_only(make: Make) -> None:
    pool = make(exists_hold_ms=40)
    node = pool.open()
    pool.mount(node, "a", 128)
    pool.put(node, b"held", b"other")
    pool.exists(node, b"held")
    pool.touch(node, b"other")
    pool.advance(39)
    pool.put_start(node, b"x")
    assert pool.exists(node, b"held", b"other", flags=WITHOUT_HOLD) == [OK, NOT_FOUND]
    pool = make(exists_hold_ms=40)
    node = pool.open()
    pool.mount(node, "a", 128)
    pool.put(node, b"held", b"other")
    pool.exists(node, b"held")
    pool.touch(node, b"other")
    pool.now += 40
    pool.put_start(node, b"x")
    assert pool.exists(node, b"held", b"other", flags=WITHOUT_HOLD) == [NOT_FOUND, OK]


def test_avoided_segments_count_as_absent(pool: Harness) -> None:
    node = pool.open()
    a, b = pool.mount(node, "a", 1_024), pool.mount(node, "b", 1_024)
    pool.put(node, b"both", replica_count=2)
    pool.put(node, b"one", preferred=["a"])
    assert pool.exists(node, b"both", b"one", avoid=(a,)) == [OK, UNREACHABLE]
    assert pool.exists(node, b"both", b"one", avoid=(b,)) == [OK, OK]
    both, one = pool.lookup(node, b"both", b"one", avoid=(a,))
    assert [segment for _, segment in both[4]] == [b]
    assert one == (UNREACHABLE, 0, 0, 0, [])
    assert pool.match_prefix(node, b"both", b"one", avoid=(a,)) == (1, UNREACHABLE)
    assert pool.lookup(node, b"both", avoid=(a, b))[0][0] == UNREACHABLE
    assert pool.stat("lookup_misses_unreachable_total") == 2


def test_tenants_share_segments_and_no_keys(pool: Harness) -> None:
    node, other = pool.open(tenant="one"), pool.open(tenant="two")
    pool.mount(node, "a", 1_024)
    pool.put(node, b"k", size=1)
    assert pool.exists(other, b"k") == [NOT_FOUND]
    assert pool.put(other, b"k", size=2) == [OK]
    assert pool.lookup(node, b"k")[0][2] == 1
    assert pool.lookup(other, b"k")[0][2] == 2
    assert [entry[:2] for entry in pool.list(other)] == [(b"k", 2)]


def test_value_is_gone_when_its_ttl_ends(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    [grant] = pool.put_start(node, b"k", ttl_ms=100)
    pool.advance(500)
    pool.put_end(node, grant.written)  # the time counts from here
    assert pool.advance(99) == []
    assert pool.exists(node, b"k") == [OK]
    assert pool.advance(1) == [("retire", grant.places[0][1], grant.places[0][0], 0)]
    assert pool.exists(node, b"k") == [NOT_FOUND]
    assert pool.stat("expired_keys_total") == 1


def test_value_past_its_ttl_is_not_read_before_the_tick_either(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.put(node, b"a", b"b", b"c", ttl_ms=100)
    pool.lookup(node, b"a")
    pool.now += 100
    assert pool.list(node) == []
    assert pool.lookup(node, b"a")[0][0] == NOT_FOUND
    assert pool.exists(node, b"b") == [NOT_FOUND]
    assert pool.put(node, b"c") == [OK]
    pool.advance(1_000)
    assert pool.exists(node, b"c") == [OK]


def test_list_pages_through_a_prefix(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 65_536)
    names = [b"%s/%d" % (group, index) for group in (b"x", b"y") for index in range(10)]
    pool.put(node, *names)
    pool.put_start(node, b"x/begun")
    assert sorted(entry[0] for entry in pool.list(node, limit=3, prefix=b"x/")) == sorted(names[:10])


def test_a_lookup_without_hold_leaves_no_trace() -> None:
    """Whoever only asks where a value lies neither keeps it nor counts as a reader of it."""
    pool = Harness()
    node = pool.open()
    segment = pool.mount(node, "seg", 64 * 4)
    assert pool.put(node, b"old", b"new") == [OK, OK]
    body = _core.encode_keys_request(node, [b"old", b"none"], flags=WITHOUT_HOLD)
    status, reply = pool.ask("lookup", body)
    assert status == OK
    [(found, _, size, lease_ms, places), (missing, *_)] = _core.parse_lookup_reply(reply)
    assert (found, size, lease_ms, [place[1] for place in places]) == (OK, 64, 0, [segment])
    assert missing == NOT_FOUND
    assert (pool.stat("lookup_hits_total"), pool.stat("lookup_misses_never_stored_total")) == (0, 0)
    assert pool.remove(node, b"old") == [OK], "no lease is on it"
