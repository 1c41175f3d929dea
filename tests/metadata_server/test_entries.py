"""The table of the HTTP metadata server: ends, duplicates, bounds."""

from __future__ import annotations

import pytest

from mooncake_store.metadata_server.entries import SWEEP_INTERVAL_S, Entries, Outcome

ADDRESS = "mooncake/rpc_meta/node"


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_an_entry_ends_with_its_ttl_unless_it_is_renewed(clock: Clock) -> None:
    entries = Entries(clock_s=clock)
    assert entries.put("a", b"1", ttl_s=10) is Outcome.UPDATED
    assert entries.put("b", b"2") is Outcome.UPDATED
    clock.now_s += 9
    assert entries.put("a", b"1", ttl_s=10) is Outcome.UPDATED
    clock.now_s += 9
    assert entries.get("a") == b"1"
    clock.now_s += 1
    assert entries.get("a") is None
    assert not entries.delete("a")
    assert entries.get("b") == b"2"
    assert (entries.counts(), entries.expired_total) == ((1, 2), 1)


def test_a_process_that_was_started_again_is_no_duplicate(clock: Clock) -> None:
    entries = Entries(clock_s=clock)
    assert entries.put(ADDRESS, b"old", ttl_s=10) is Outcome.UPDATED
    assert entries.put(ADDRESS, b"new", ttl_s=10) is Outcome.UPDATED
    assert entries.get(ADDRESS) == b"new"
    # Nor is one that finds what a program left that renews nothing.
    assert entries.delete(ADDRESS)
    assert entries.put(ADDRESS, b"forgotten") is Outcome.UPDATED
    assert entries.put(ADDRESS, b"new", ttl_s=10) is Outcome.UPDATED
    clock.now_s += 10
    assert entries.get(ADDRESS) is None


def test_an_address_without_a_ttl_is_put_once(clock: Clock) -> None:
    entries = Entries(clock_s=clock)
    for key, again in ((ADDRESS, Outcome.DUPLICATE), ("mooncake/ram/node", Outcome.UPDATED)):
        assert entries.put(key, b"1") is Outcome.UPDATED
        assert entries.put(key, b"2") is again
    assert entries.get(ADDRESS) == b"1"
    assert entries.put(ADDRESS, b"1") is Outcome.UNCHANGED
    assert entries.delete(ADDRESS)
    assert entries.put(ADDRESS, b"2") is Outcome.UPDATED


def test_bounds_hold_and_what_has_expired_makes_room(clock: Clock) -> None:
    entries = Entries(entries_max=2, bytes_max=20, clock_s=clock)
    assert entries.put("a", b"1", ttl_s=10) is Outcome.UPDATED
    assert entries.put("b", b"2", ttl_s=20) is Outcome.UPDATED
    assert entries.put("c", b"3") is Outcome.FULL
    assert entries.put("b", b"x" * 17, ttl_s=20) is Outcome.UPDATED
    assert entries.put("b", b"x" * 18, ttl_s=20) is Outcome.FULL
    assert entries.get("b") == b"x" * 17, "a refused put changes nothing"
    clock.now_s += 10
    assert entries.put("c", b"3") is Outcome.UPDATED
    assert entries.counts() == (2, 20)


def test_what_nobody_asks_for_is_swept(clock: Clock) -> None:
    entries = Entries(clock_s=clock)
    for number in range(100):
        entries.put(str(number), b"v", ttl_s=5)
    clock.now_s += 5 + SWEEP_INTERVAL_S
    entries.put("last", b"v")
    assert (entries.counts(), entries.expired_total) == ((1, 5), 100)
