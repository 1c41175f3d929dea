"""The public verbs over the lane and over gRPC: one suite, for both doors have one state machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from master.doors import Door, GrpcDoor, LaneDoor
from master.running import RunningMaster

from mooncake_master.daemon import Daemon
from mooncake_store.errors import InvalidArgument, StoreError
from mooncake_store.status import Status

MIB = 1 << 20


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    # No node confirms retires here, so what waits for one must not wait long.
    with RunningMaster(
        "--remove_confirm_timeout_ms=20", "--enable_metric_reporting=false", "--dial_back=false"
    ) as daemon:
        yield daemon


@pytest.fixture(params=["lane", "grpc"])
def door(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[Door]:
    """A session in a tenant of this test's own, with one mounted segment."""
    door: Door = LaneDoor(daemon.lane_port) if request.param == "lane" else GrpcDoor(daemon.grpc_port)
    door.open_session(request.node.name)
    status, _ = door.mount(f"segment of {request.node.name}", 64 * MIB)
    assert status == Status.OK
    yield door
    door.close()


def put(door: Door, key: bytes, size: int = 100) -> int:
    [(status, put_id, places)] = door.put_start([key], [size])
    assert status == Status.OK
    assert door.put_end([(put_id, [(replica, Status.OK) for replica, _ in places])]) == [Status.OK]
    return put_id


def test_a_value_is_visible_from_put_end_on(door: Door) -> None:
    [(status, put_id, places)] = door.put_start([b"k"], [100])
    assert status == Status.OK
    assert door.exists([b"k"]) == [Status.REPLICA_IS_NOT_READY]
    assert door.put_end([(put_id, [(replica, Status.OK) for replica, _ in places])]) == [Status.OK]
    assert door.exists([b"k"]) == [Status.OK]
    assert door.lookup([b"k"]) == [(Status.OK, put_id, 100, places)]


def test_answers_are_positional_and_a_bad_key_shifts_nothing(door: Door) -> None:
    put(door, b"a")
    put(door, b"c")
    assert door.exists([b"a", b"b", b"", b"x" * 1025, b"c"]) == [
        Status.OK,
        Status.OBJECT_NOT_FOUND,
        Status.INVALID_KEY,
        Status.INVALID_KEY,
        Status.OK,
    ]


def test_put_start_answers_per_key(door: Door) -> None:
    put(door, b"old")
    grants = door.put_start([b"new", b"old", b"", b"big", b"new"], [10, 10, 10, 1 << 40, 10])
    assert [status for status, _, _ in grants] == [
        Status.OK,
        Status.OBJECT_ALREADY_EXISTS,
        Status.INVALID_KEY,
        Status.VALUE_TOO_LARGE,
        Status.REPLICA_IS_NOT_READY,
    ]


def test_the_same_sequence_has_the_effect_of_one(door: Door) -> None:
    first = door.put_start([b"k"], [100], sequence=1_000)
    assert door.put_start([b"k"], [100], sequence=1_000) == first
    assert door.put_start([b"k"], [100], sequence=1_001)[0][0] == Status.REPLICA_IS_NOT_READY


def test_a_repeated_remove_has_the_effect_of_one(door: Door) -> None:
    put(door, b"k")
    assert door.remove([b"k"], sequence=2_000) == [Status.OK]
    put(door, b"k")
    assert door.remove([b"k"], sequence=2_000) == [Status.OK]
    assert door.exists([b"k"]) == [Status.OK]


def test_a_revoked_put_leaves_the_key_free(door: Door) -> None:
    [(_, put_id, _)] = door.put_start([b"k"], [100])
    assert door.put_revoke([put_id, put_id]) == [Status.OK, Status.OK]
    assert door.exists([b"k"]) == [Status.OBJECT_NOT_FOUND]
    put(door, b"k")


def test_a_put_nobody_wrote_is_not_visible(door: Door) -> None:
    [(_, put_id, places)] = door.put_start([b"k"], [100])
    assert door.put_end([(put_id, [(replica, Status.TRANSFER_FAIL) for replica, _ in places])]) == [
        Status.WRITE_FAIL
    ]
    assert door.exists([b"k"]) == [Status.OBJECT_NOT_FOUND]


def test_match_prefix_stops_at_the_first_miss(door: Door) -> None:
    for key in (b"0", b"1", b"3"):
        put(door, key)
    assert door.match_prefix([b"0", b"1", b"2", b"3"]) == (2, Status.OBJECT_NOT_FOUND)
    assert door.match_prefix([b"0", b"1"]) == (2, Status.OK)
    assert door.match_prefix([]) == (0, Status.OK)


def test_remove_ends_a_value_unless_it_is_leased(door: Door) -> None:
    put(door, b"k")
    assert door.remove([b"k", b"none"]) == [Status.OK, Status.OBJECT_NOT_FOUND]
    assert door.remove([b"k"]) == [Status.OBJECT_NOT_FOUND]
    put(door, b"k")
    door.lookup([b"k"])
    assert door.remove([b"k"]) == [Status.OBJECT_HAS_LEASE]
    assert door.remove([b"k"], force=True) == [Status.OK]


def test_copies_on_named_segments_are_removed_alone(door: Door) -> None:
    _, elsewhere = door.mount("another segment", 64 * MIB)
    [(_, put_id, places)] = door.put_start([b"k"], [100])
    assert door.put_end([(put_id, [(replica, Status.OK) for replica, _ in places])]) == [Status.OK]
    [(_, here)] = places
    mounted = {here, elsewhere} if here != elsewhere else {here}
    others = [segment for segment in mounted if segment != here] or [1]
    assert door.remove([b"k"], only_segments=others) == [Status.REPLICA_NOT_FOUND]
    assert door.exists([b"k"]) == [Status.OK]
    assert door.remove([b"k", b"none"], only_segments=[here]) == [Status.OK, Status.OBJECT_NOT_FOUND]
    assert door.exists([b"k"]) == [Status.OBJECT_NOT_FOUND]


def test_an_upsert_replaces_the_value(door: Door) -> None:
    old = put(door, b"k", 100)
    [(status, new, places)] = door.put_start([b"k"], [200], upsert=True)
    assert status == Status.OK
    assert new > old
    assert door.lookup([b"k"])[0][:3] == (Status.OK, old, 100)
    assert door.put_end([(new, [(replica, Status.OK) for replica, _ in places])]) == [Status.OK]
    assert door.lookup([b"k"])[0][:3] == (Status.OK, new, 200)


def test_replicas_on_avoided_segments_count_as_absent(door: Door) -> None:
    put(door, b"k")
    [(_, _, _, [(_, segment)])] = door.lookup([b"k"])
    assert door.exists([b"k"], avoid=[segment]) == [Status.UNREACHABLE]


def test_list_walks_all_keys_of_the_tenant_and_no_others(door: Door) -> None:
    expected = {b"a/%d" % i for i in range(7)}
    for key in expected | {b"b"}:
        put(door, key)
    assert sorted(door.keys(b"a/")) == sorted(expected)
    assert len(door.keys()) == 8


def test_tenants_do_not_see_each_other(door: Door, daemon: Daemon) -> None:
    other: Door = type(door)(daemon.lane_port if isinstance(door, LaneDoor) else daemon.grpc_port)
    other.open_session("somebody else")
    put(door, b"k")
    assert other.exists([b"k"]) == [Status.OBJECT_NOT_FOUND]
    assert other.keys() == []
    assert other.remove([b"k"]) == [Status.OBJECT_NOT_FOUND]
    assert door.exists([b"k"]) == [Status.OK]
    other.close()


def test_an_unknown_session_is_refused_as_a_whole(door: Door) -> None:
    door.session += 999
    for ask in (lambda: door.exists([b"k"]), door.heartbeat, door.stats):
        with pytest.raises(StoreError) as refused:
            ask()
        assert refused.value.code == Status.SESSION_UNKNOWN


def test_a_mutation_without_a_sequence_is_refused(door: Door) -> None:
    with pytest.raises(InvalidArgument):
        door.put_start([b"k"], [1], sequence=0)


def test_the_doors_see_one_state(daemon: Daemon) -> None:
    lane, remote = LaneDoor(daemon.lane_port), GrpcDoor(daemon.grpc_port)
    for one in (lane, remote):
        one.open_session("shared")
    lane.mount("shared segment", MIB)
    put_id = put(lane, b"k")
    assert remote.lookup([b"k"])[0][:2] == (Status.OK, put_id)
    assert remote.remove([b"k"], force=True) == [Status.OK]
    assert lane.exists([b"k"]) == [Status.OBJECT_NOT_FOUND]
    lane.close()
    remote.close()


def test_why_tells_the_end_of_each_key(door: Door) -> None:
    put(door, b"there")
    put(door, b"removed")
    door.remove([b"removed"], force=True)
    assert [answer[:2] for answer in door.why([b"there", b"removed", b"never", b""])] == [
        (Status.OK, 0),
        (Status.OBJECT_NOT_FOUND, 3),
        (Status.OBJECT_NOT_FOUND, 1),
        (Status.INVALID_KEY, 1),
    ]


def test_inspect_tells_of_a_key(door: Door) -> None:
    put_id = put(door, b"k")
    door.remove([b"k"], force=True)
    door.put_start([b"k"], [7], upsert=True)
    told = door.inspect(key=b"k", events_max=3)
    assert (told["key"]["status"], told["key"]["put_id"]) == (Status.REPLICA_IS_NOT_READY, 0)
    assert told["key"]["unfinished_put_id"] > put_id
    assert told["key"]["unfinished_owner"] == door.session
    assert [event["kind"] for event in told["events"]] == [1, 7, 2]
    assert told["has_older_events"]
    assert [copy["status"] for copy in told["copies"]] == [1, 3]
    assert (
        set(told)
        == set(door.inspect())
        == {
            *("key", "copies", "segments", "events"),
            *("has_older_events", "dropped_events", "oldest_event_ms_ago"),
        }
    )


def test_inspect_tells_of_a_segment_and_of_what_happened_lately(
    door: Door, request: pytest.FixtureRequest
) -> None:
    name = f"segment of {request.node.name}"
    told = door.inspect(name=name)
    [segment] = told["segments"]
    assert (segment["name"], segment["capacity_bytes"], segment["tier"]) == (name, 64 * MIB, 1)
    assert told["key"] is None
    assert 23 in [event["kind"] for event in told["events"]]
    assert name in [event["name"] for event in door.inspect(events_max=1_024)["events"]]


def test_inspect_refuses_more_events_than_an_answer_holds(door: Door) -> None:
    with pytest.raises((InvalidArgument, ValueError)):
        door.inspect(key=b"k", events_max=1_025)
    with pytest.raises((InvalidArgument, ValueError)):
        door.inspect(name="n" * 256)


def test_a_copy_task_to_where_the_value_lies_is_done_at_once(door: Door) -> None:
    put(door, b"k")
    [copy] = door.inspect(key=b"k")["copies"]
    here = copy["segment_name"]
    task = door.create_copy_task(b"k", [here], sequence=5_000)
    assert door.create_copy_task(b"k", [here], sequence=5_000) == task
    told = door.query_task(task)
    assert (told["task"], told["type"], told["status"], told["node"], told["message"]) == (
        task,
        0,
        3,
        0,
        "copied",
    )
    assert told["created_ms_ago"] >= told["updated_ms_ago"]


def test_tasks_that_cannot_be_are_refused_as_a_whole(door: Door) -> None:
    put(door, b"k")
    for ask, status in (
        (lambda: door.create_copy_task(b"none", ["s"]), Status.OBJECT_NOT_FOUND),
        (lambda: door.create_copy_task(b"k", ["no such segment"]), Status.INVALID_PARAMS),
        (lambda: door.create_copy_task(b"k", []), Status.INVALID_PARAMS),
        (lambda: door.create_move_task(b"k", "s", "s"), Status.INVALID_PARAMS),
        (lambda: door.create_move_task(b"k", "no such segment", "s"), Status.INVALID_PARAMS),
        (lambda: door.query_task(1), Status.TASK_NOT_FOUND),
    ):
        with pytest.raises(StoreError) as refused:
            ask()
        assert refused.value.code == status
    with pytest.raises((InvalidArgument, ValueError)):
        door.create_copy_task(b"k" * 1_025, ["s"])
    with pytest.raises((InvalidArgument, ValueError)):
        door.create_copy_task(b"k", ["s"] * 9)


def test_a_move_between_segments_is_a_task(door: Door, request: pytest.FixtureRequest) -> None:
    """Segments of tests before may still be there, so a key is sought that lies on the one of this test."""
    source, target = f"segment of {request.node.name}", f"further {request.node.name}"
    for number in range(1_000):
        key = b"k%d" % number
        put(door, key)
        [copy] = door.inspect(key=key)["copies"]
        if copy["segment_name"] == source:
            break
    assert door.mount(target, 64 * MIB)[0] == Status.OK
    task = door.create_move_task(key, source, target)
    told = door.query_task(task)
    assert (told["type"], told["status"]) == (1, 1)
    assert told["node"] != 0
    assert [copy["status"] for copy in door.inspect(key=key)["copies"]] == [2, 4], "live, being copied"
