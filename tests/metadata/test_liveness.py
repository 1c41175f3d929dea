"""Who is alive: sessions that fall silent, segments that come back, and what is lost with them."""

from __future__ import annotations

import pytest
from metadata.conftest import Make
from metadata.harness import (
    ILLEGAL_CLIENT,
    NOT_FOUND,
    NOT_READY,
    OK,
    SEGMENT_ALREADY_EXISTS,
    SEGMENT_NOT_FOUND,
    SESSION_UNKNOWN,
    WRITE_FAIL,
    Harness,
    uuid,
)

from mooncake_store import _core

TTL = 1_000


def test_silent_session_expires_on_time_with_its_segments(make: Make) -> None:
    pool = make(client_ttl_ms=TTL)
    node, reader = pool.open(), pool.open()
    segment = pool.mount(node, "a", 1_024)
    pool.put(node, b"k")
    pool.advance(TTL - 1)
    pool.heartbeat(reader)
    assert pool.exists(reader, b"k") == [OK]
    assert set(pool.advance(1)) == {("expel", segment, 0, node), ("end_session", 0, 0, node)}
    assert pool.exists(reader, b"k") == [NOT_FOUND]
    assert pool.heartbeat(node) == SESSION_UNKNOWN
    assert pool.segments(reader) == []
    assert pool.stat("lost_keys_total") == 1
    assert pool.stat("expelled_segment_count") == 0


def test_heartbeat_moves_the_expiry(make: Make) -> None:
    pool = make(client_ttl_ms=TTL)
    node = pool.open()
    for _ in range(5):
        pool.advance(TTL - 1)
        assert pool.heartbeat(node) == OK
    pool.advance(TTL)
    assert pool.heartbeat(node) == SESSION_UNKNOWN


@pytest.mark.parametrize(("ttl", "interval"), [(10_000, 1_000), (4_000, 1_000), (1_000, 250), (1, 1)])
def test_heartbeats_are_asked_for_often_enough_for_the_time_to_live(
    make: Make, ttl: int, interval: int
) -> None:
    """With a client_ttl of a second and a heartbeat each second, live sessions came and went."""
    pool = make(client_ttl_ms=ttl)
    _, reply = pool.ask("open_session", _core.encode_open_session(uuid(1), "test", "host", ""))
    assert _core.parse_open_session_reply(reply)["heartbeat_interval_ms"] == interval


def test_same_process_finds_its_session_again(pool: Harness) -> None:
    first = pool.open(process=uuid(9))
    assert pool.open(process=uuid(9)) == first
    assert pool.open(process=uuid(9), tenant="other") != first
    pool.close(first)
    assert pool.open(process=uuid(9)) != first


def test_session_without_a_connection_loses_unfinished_puts_after_the_grace(make: Make) -> None:
    pool = make(session_grace_ms=150, client_ttl_ms=TTL)
    node, writer = pool.open(), pool.open()
    pool.mount(node, "a", 1_024)
    pool.machine.session_attached(writer, pool.now)
    pool.put(writer, b"done")
    [grant] = pool.put_start(writer, b"begun")
    pool.machine.session_detached(writer, pool.now)
    assert pool.advance(149) == []
    assert pool.exists(node, b"begun") == [NOT_READY]
    assert pool.advance(1) == [("retire", grant.places[0][1], grant.places[0][0], 0)]
    assert pool.exists(node, b"begun", b"done") == [NOT_FOUND, OK]
    assert pool.heartbeat(writer) == OK


def test_connection_back_within_the_grace_keeps_puts(make: Make) -> None:
    pool = make(session_grace_ms=150, client_ttl_ms=TTL)
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.machine.session_attached(node, pool.now)
    [grant] = pool.put_start(node, b"k")
    pool.machine.session_detached(node, pool.now)
    pool.advance(149)
    pool.machine.session_attached(node, pool.now)
    assert pool.advance(500) == []
    assert pool.put_end(node, grant.written) == [OK]


def test_segment_mounted_again_keeps_its_id_and_values(pool: Harness) -> None:
    node, other = pool.open(), pool.open()
    described = pool.describe("a", 1_024)
    [(_, segment)] = pool.mount_all(node, [described])
    pool.put(node, b"k")
    assert pool.mount_all(node, [described]) == [(OK, segment)]
    assert pool.effects == [("mounted", segment, 0, node)]
    assert pool.exists(node, b"k") == [OK]
    assert pool.mount_all(other, [described])[0][0] == SEGMENT_ALREADY_EXISTS
    assert pool.stat("segment_count") == 1


def test_same_name_with_another_incarnation_expels_the_old_one(pool: Harness) -> None:
    node, restarted = pool.open(), pool.open()
    old = pool.mount(node, "a", 1_024)
    pool.put(node, b"k")
    new = pool.mount(restarted, "a", 1_024, endpoints=["tcp://elsewhere:1"])
    assert new != old
    assert ("expel", old, 0, node) in pool.effects
    assert pool.exists(restarted, b"k") == [NOT_FOUND]
    assert pool.charged(restarted) == [0]


def test_endpoint_of_an_earlier_incarnation_expels_it(pool: Harness) -> None:
    """UP 10: one endpoint, one segment."""
    node, restarted = pool.open(), pool.open()
    old = pool.mount(node, "a", 1_024, endpoints=["tcp://x:1"])
    new = pool.mount(restarted, "b", 1_024, endpoints=["tcp://x:1"])
    assert [info["segment"] for info in pool.segments(node)] == [new]
    assert [info["status"] for info in pool.segments(node, old)] == [SEGMENT_NOT_FOUND]


def test_later_epoch_of_a_mounting_node_is_overtaken(pool: Harness) -> None:
    node = pool.open()
    pool.mount_all(node, [pool.describe("a", 1_024)], known_epoch=5, known_master=uuid(1))
    assert pool.machine.epoch == 6
    [grant] = pool.put_start(node, b"k")
    assert grant.put_id >> 40 == 6
    pool.mount_all(node, [pool.describe("b", 1_024)], known_epoch=3, known_master=uuid(1))
    assert pool.machine.epoch == 6


def test_same_epoch_of_another_master_is_overtaken_and_of_this_one_is_not(pool: Harness) -> None:
    node = pool.open()
    described = pool.describe("a", 1_024)
    pool.mount_all(node, [described], known_epoch=1, known_master=pool.machine.master)
    assert pool.machine.epoch == 1
    pool.mount_all(node, [described], known_epoch=1, known_master=uuid(1))
    assert pool.machine.epoch == 2


def test_only_the_owner_unmounts(pool: Harness) -> None:
    node, other = pool.open(), pool.open()
    segment = pool.mount(node, "a", 1_024)
    assert pool.unmount(other, segment) == [ILLEGAL_CLIENT]
    assert pool.unmount(node, segment, segment) == [OK, SEGMENT_NOT_FOUND]


def test_the_segment_0_is_none(pool: Harness) -> None:
    """0 marks an empty slot of the tables; asked for, it must not be met."""
    node = pool.open()
    pool.mount(node, "a", 1_024)
    assert pool.unmount(node, 0) == [SEGMENT_NOT_FOUND]


def test_values_of_an_expelled_segment_vanish_at_once_and_others_stay(pool: Harness) -> None:
    node = pool.open()
    a = pool.mount(node, "a", 1_024)
    b = pool.mount(node, "b", 1_024)
    pool.put(node, b"lost", preferred=["a"])
    pool.put(node, b"kept", preferred=["b"])
    pool.put(node, b"both", replica_count=2)
    assert pool.unmount(node, a) == [OK]
    assert pool.exists(node, b"lost", b"kept", b"both") == [NOT_FOUND, OK, OK]
    assert [segment for _, segment in pool.lookup(node, b"both")[0][4]] == [b]
    pool.tick()
    assert pool.stat("key_count") == 2
    assert pool.put(node, b"lost") == [OK]


def test_tick_forgets_what_lay_on_an_expelled_segment(make: Make) -> None:
    """Nobody asks for the values; a step at a time they go, retiring ones and begun puts as well."""
    pool = make(keys_a_step_max=4)
    node = pool.open()
    a = pool.mount(node, "a", 65_536)
    pool.put(node, *[b"k%d" % index for index in range(50)])
    pool.remove(node, *[b"k%d" % index for index in range(10)])
    [grant] = pool.put_start(node, b"begun")
    pool.unmount(node, a)
    assert pool.tick() == []
    assert pool.stat("key_count") == 0
    assert pool.stat("retiring_replica_count") == 0
    assert pool.stat("expelled_segment_count") == 0
    assert pool.put_end(node, grant.written) == [WRITE_FAIL]


def test_replica_on_an_expelled_segment_does_not_count_as_written(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.mount(node, "b", 1_024)
    [grant] = pool.put_start(node, b"k", replica_count=2)
    gone, kept = grant.places
    pool.unmount(node, gone[1])
    assert pool.put_end(node, grant.written) == [OK]
    assert pool.lookup(node, b"k")[0][4] == [kept]


def test_close_takes_segments_and_puts_at_once(pool: Harness) -> None:
    node, other = pool.open(), pool.open()
    pool.mount(node, "a", 1_024)
    b = pool.mount(other, "b", 1_024)
    pool.put(other, b"on-a", preferred=["a"])
    [grant] = pool.put_start(node, b"begun", preferred=["b"])
    assert pool.close(node) == OK
    assert ("retire", b, grant.places[0][0], 0) in pool.effects
    assert pool.exists(other, b"on-a", b"begun") == [NOT_FOUND, NOT_FOUND]
    assert pool.heartbeat(node) == SESSION_UNKNOWN
    assert pool.stat("active_session_count") == 1


def test_clock_that_goes_back_expires_nothing_twice(make: Make) -> None:
    pool = make(client_ttl_ms=TTL)
    node = pool.open()
    pool.advance(500)
    pool.now -= 400
    assert pool.heartbeat(node) == OK
    pool.now += 400
    assert pool.advance(TTL - 1) == []
    assert pool.heartbeat(node) == OK
