"""Copies and moves that a client asks for: what is refused, how they go on, and every way they end."""

from __future__ import annotations

from typing import Any

import pytest
from metadata.harness import (
    BUSY,
    INVALID_PARAMS,
    NO_SPACE,
    NOT_FOUND,
    NOT_READY,
    OK,
    STALE_REQUEST,
    UPSERT,
    Harness,
)
from metadata.test_copy import KEYS, MOVED, places, pool, story

from mooncake_store import _core

REPLICA_NOT_FOUND = -710
TASK_NOT_FOUND = -1400
TASK_LIMIT = -1401
PENDING, PROCESSING, FAILED, SUCCESS = range(4)
KEY = KEYS[0]


def ask(
    harness: Harness, client: int, targets: list[str], source: str = "", key: bytes = KEY, sequence: int = 0
) -> tuple[int, int]:
    """(status, task) of a copy or, with a source, of a move."""
    verb = "create_move_task" if source else "create_copy_task"
    number = sequence or harness.next_sequence()
    status, body = harness.ask(verb, _core.encode_create_task(client, number, key, targets, source))
    return status, _core.parse_create_task_reply(body) if status == OK else 0


def begin(harness: Harness, client: int, targets: list[str], source: str = "", key: bytes = KEY) -> int:
    status, task = ask(harness, client, targets, source, key)
    assert status == OK
    return task


def told(harness: Harness, client: int, task: int) -> Any:
    status, body = harness.ask("query_task", _core.encode_query_task(client, task))
    return _core.parse_query_task_reply(body) if status == OK else status


def state(harness: Harness, client: int, task: int) -> tuple[int, str]:
    answer = told(harness, client, task)
    return answer["status"], answer["message"]


def world(segments: int = 3, at: int = 0, **settings: Any) -> tuple[Harness, list[int], list[int], int]:
    """KEY lies on segment `at` alone: the harness, the nodes, the segments, a client."""
    harness, nodes, mounted = pool(segments, **settings)
    client = harness.open()
    assert harness.put(client, KEY, size=100, preferred=[f"s{at}"]) == [OK]
    assert list(places(harness, client, KEY).values()) == [mounted[at]]
    return harness, nodes, mounted, client


# -- what is asked


def test_what_cannot_be_is_refused_with_the_reason() -> None:
    harness, _, _, client = world()
    for targets, source, key, status in [
        (["s1"], "", b"missing", NOT_FOUND),
        (["unknown"], "", KEY, INVALID_PARAMS),
        (["s1", "unknown"], "", KEY, INVALID_PARAMS),
        ([], "", KEY, INVALID_PARAMS),
        (["s1"], "unknown", KEY, INVALID_PARAMS),
        (["unknown"], "s0", KEY, INVALID_PARAMS),
        (["s0"], "s0", KEY, INVALID_PARAMS),
        (["s1", "s2"], "s0", KEY, INVALID_PARAMS),
        (["s0"], "s1", KEY, REPLICA_NOT_FOUND),
    ]:
        assert ask(harness, client, targets, source, key) == (status, 0), (targets, source, key)
    harness.put_start(client, b"begun")
    assert ask(harness, client, ["s1"], key=b"begun")[0] == NOT_READY
    number = harness.next_sequence()
    body = _core.encode_create_task(client, number, KEY, ["s1"])
    assert harness.ask("create_move_task", body)[0] == INVALID_PARAMS
    body = _core.encode_create_task(client, 0, KEY, ["s1"])
    assert harness.ask("create_copy_task", body)[0] == INVALID_PARAMS
    assert told(harness, client, 1) == TASK_NOT_FOUND
    assert harness.stat("task_count") == 0


def test_a_repeated_request_is_one_task() -> None:
    harness, _, _, client = world()
    number = harness.next_sequence()
    first = ask(harness, client, ["s1"], sequence=number)
    assert ask(harness, client, ["s1"], sequence=number) == first
    assert harness.stat("task_count") == 1


def test_a_task_of_another_tenant_is_unknown() -> None:
    harness, _, _, client = world()
    task = begin(harness, client, ["s1"])
    assert told(harness, harness.open(tenant="other"), task) == TASK_NOT_FOUND
    assert ask(harness, harness.open(tenant="other"), ["s1"])[0] == NOT_FOUND
    assert told(harness, harness.open(), task)["task"] == task


# -- how it goes on


def test_a_copy_goes_to_each_target_in_turn() -> None:
    harness, nodes, mounted, client = world()
    task = begin(harness, client, ["s1", "s2", "s0", "s1"])
    [first] = harness.ordered()
    answer = told(harness, client, task)
    assert (answer["type"], answer["status"], answer["node"]) == (0, PROCESSING, nodes[1])
    harness.now += 500
    harness.copied(first)
    [second] = harness.ordered()
    assert state(harness, client, task)[0] == PROCESSING
    harness.copied(second)
    answer = told(harness, client, task)
    assert (answer["status"], answer["created_ms_ago"], answer["updated_ms_ago"]) == (SUCCESS, 500, 0)
    assert sorted(places(harness, client, KEY).values()) == sorted(mounted)
    assert harness.stat("tasks_succeeded_total") == 1
    assert harness.stat("handed_over_keys_total") == 0


def test_what_lies_there_already_needs_no_copy() -> None:
    harness, _, mounted, client = world()
    task = begin(harness, client, ["s0"])
    assert harness.ordered() == []
    assert state(harness, client, task)[0] == SUCCESS
    assert list(places(harness, client, KEY).values()) == [mounted[0]]


def test_a_move_ends_the_source_only_once_the_target_has_it() -> None:
    harness, _, mounted, client = world()
    [source] = places(harness, client, KEY)
    task = begin(harness, client, ["s1"], "s0")
    [target] = harness.ordered()
    assert places(harness, client, KEY) == {source: mounted[0]}
    effects = harness.copied(target)
    assert ("retire", mounted[0], source) in [effect[:3] for effect in effects]
    assert places(harness, client, KEY) == {target: mounted[1]}
    assert (MOVED, source) in story(harness, client, KEY)
    answer = told(harness, client, task)
    assert (answer["type"], answer["status"]) == (1, SUCCESS)
    assert harness.stat("handed_over_keys_total") == 0


def test_a_move_to_where_a_copy_lies_ends_the_source_alone() -> None:
    harness, _, mounted, client = world()
    begin(harness, client, ["s1"])
    harness.copied(harness.ordered()[0])
    task = begin(harness, client, ["s1"], "s0")
    assert harness.ordered() == []
    assert state(harness, client, task) == (SUCCESS, "moved")
    assert list(places(harness, client, KEY).values()) == [mounted[1]]


def test_a_second_task_of_a_value_waits_for_the_first() -> None:
    harness, _, _, client = world()
    first = begin(harness, client, ["s1"])
    [target] = harness.ordered()
    second = begin(harness, client, ["s2"])
    assert harness.ordered() == []
    assert [state(harness, client, task)[0] for task in (first, second)] == [PROCESSING, PENDING]
    harness.copied(target)
    harness.copied(harness.ordered()[0])
    assert [state(harness, client, task)[0] for task in (first, second)] == [SUCCESS, SUCCESS]


def test_a_copy_that_fails_is_tried_again_and_then_the_task_fails() -> None:
    harness, _, _, client = world(task_attempts_max=2)
    task = begin(harness, client, ["s1"])
    harness.copied(harness.ordered()[0], NO_SPACE)
    assert state(harness, client, task) == (
        PROCESSING,
        "a copy to s1 failed: its node answers NO_AVAILABLE_HANDLE",
    )
    harness.advance(999)
    assert harness.ordered() == []
    harness.advance(1)
    harness.copied(harness.ordered()[0], BUSY)
    harness.tick()
    status, why = state(harness, client, task)
    assert status == FAILED
    assert "after 2 attempts" in why
    assert "BUSY" in why
    assert harness.stat("tasks_failed_total") == 1


def test_a_node_that_does_not_answer_is_waited_for_no_longer_than_a_copy_may_take() -> None:
    harness, _, _, client = world(copy_timeout_ms=5_000, task_attempts_max=1)
    task = begin(harness, client, ["s1"])
    harness.advance(4_999)
    assert state(harness, client, task)[0] == PROCESSING
    harness.advance(1)
    harness.tick()
    assert state(harness, client, task) == (
        FAILED,
        "given up after 1 attempts: a copy to s1 failed: its node did not answer in time",
    )


def test_without_room_a_task_waits_for_some() -> None:
    harness, _, mounted, client = world(2, task_attempts_max=5)
    fill = [b"fill-%d" % number for number in range(50)]
    assert harness.put(client, *fill, size=128, preferred=["s1"]) == [OK] * 50
    assert harness.segments(client, mounted[1])[0]["charged_bytes"] == 6_400
    task = begin(harness, client, ["s1"])
    assert harness.ordered() == []
    assert state(harness, client, task) == (PENDING, "no room on s1")
    harness.remove(client, *fill)
    harness.free_retired()
    harness.advance(1_000)
    harness.copied(harness.ordered()[0])
    assert state(harness, client, task)[0] == SUCCESS


# -- how it ends otherwise


def test_a_removed_value_ends_its_task() -> None:
    harness, _, _, client = world()
    begun, waits = begin(harness, client, ["s1"]), begin(harness, client, ["s2"])
    harness.remove(client, KEY)
    harness.tick()
    for task in (begun, waits):
        assert state(harness, client, task) == (FAILED, "the value was removed, evicted or lost")
    assert harness.stat("copy_count") == 0


def test_another_put_ends_the_task_of_the_value_before() -> None:
    harness, _, _, client = world()
    task = begin(harness, client, ["s1"], "s0")
    assert harness.put(client, KEY, size=100, flags=UPSERT, preferred=["s0"]) == [OK]
    harness.tick()
    assert state(harness, client, task) == (FAILED, "the value was replaced by another one")
    assert len(places(harness, client, KEY)) == 1


@pytest.mark.parametrize("begun", [True, False])
def test_a_lost_target_ends_the_task(begun: bool) -> None:
    harness, nodes, _, client = world(copies_max=1 if begun else 0)
    task = begin(harness, client, ["s1"])
    assert (state(harness, client, task)[0] == PROCESSING) is begun
    harness.close(nodes[1])
    harness.tick()
    assert state(harness, client, task) == (FAILED, "its target s1 left the pool")


def test_a_lost_source_ends_a_move() -> None:
    harness, nodes, mounted, client = world()
    begin(harness, client, ["s1"])
    harness.copied(harness.ordered()[0])
    task = begin(harness, client, ["s2"], "s0")
    assert state(harness, client, task)[0] == PROCESSING
    harness.close(nodes[0])
    harness.tick()
    assert state(harness, client, task) == (FAILED, "its source s0 left the pool")
    assert list(places(harness, client, KEY).values()) == [mounted[1]]


def test_a_copy_goes_on_from_another_copy_when_its_source_is_lost() -> None:
    harness, nodes, mounted, client = world()
    begin(harness, client, ["s1"])
    harness.copied(harness.ordered()[0])
    task = begin(harness, client, ["s2"])
    [target] = harness.ordered()
    source = harness.machine.copy_order(target)["source"]
    lost = places(harness, client, KEY)[source]
    harness.close(nodes[mounted.index(lost)])
    harness.advance(1_000)
    [again] = harness.ordered()
    harness.copied(again)
    assert state(harness, client, task)[0] == SUCCESS


def test_a_value_that_is_lost_with_its_node_ends_the_task() -> None:
    harness, nodes, _, client = world()
    task = begin(harness, client, ["s1"])
    harness.close(nodes[0])
    harness.tick()
    assert state(harness, client, task) == (FAILED, "the value was removed, evicted or lost")


def test_a_node_that_is_about_to_leave_is_no_target() -> None:
    harness, nodes, mounted, client = world()
    harness.drain(nodes[1], mounted[1])
    task = begin(harness, client, ["s1"])
    assert state(harness, client, task) == (FAILED, "its target s1 is about to leave the pool")


# -- bounds


def test_only_so_many_may_be_under_way() -> None:
    harness, _, _, client = world(tasks_pending_max=2)
    first = begin(harness, client, ["s1"])
    begin(harness, client, ["s2"])
    assert ask(harness, client, ["s1"]) == (TASK_LIMIT, 0)
    harness.remove(client, KEY)
    harness.tick()
    assert state(harness, client, first)[0] == FAILED
    harness.put(client, KEY, preferred=["s0"])
    assert ask(harness, client, ["s1"])[0] == OK


def test_only_the_last_that_ended_are_remembered() -> None:
    harness, _, _, client = world(tasks_finished_max=2)
    tasks = [begin(harness, client, ["s0"]) for _ in range(4)]
    assert [told(harness, client, task) == TASK_NOT_FOUND for task in tasks] == [True, True, False, False]


def test_a_task_that_cannot_begin_fails_at_its_time() -> None:
    harness, _, _, client = world(copies_max=0, task_pending_timeout_ms=60_000, client_ttl_ms=3_600_000)
    task = begin(harness, client, ["s1"])
    harness.advance(59_999)
    assert state(harness, client, task)[0] == PENDING
    harness.advance(1)
    assert state(harness, client, task) == (FAILED, "could not begin within 60 s")


def test_a_task_that_is_not_done_fails_at_its_time() -> None:
    harness, _, _, client = world(
        task_processing_timeout_ms=3_000, task_attempts_max=100, client_ttl_ms=3_600_000
    )
    task = begin(harness, client, ["s1"])
    for _ in range(3):
        harness.copied(harness.ordered()[0], BUSY)
        harness.advance(1_000)
    status, why = state(harness, client, task)
    assert (status, why) == (
        FAILED,
        "not done within 3 s: a copy to s1 failed: its node answers BUSY",
    )


def test_no_timeout_means_that_it_waits_on() -> None:
    harness, _, _, client = world(copies_max=0, task_pending_timeout_ms=0, client_ttl_ms=1 << 40)
    task = begin(harness, client, ["s1"])
    harness.advance(10**9)
    assert state(harness, client, task)[0] == PENDING


def test_many_tasks_that_wait_do_not_starve_the_one_that_can_go() -> None:
    """One step looks at 64 of them; the next goes on with the others."""
    harness, _, _, client = world(4, copies_a_node_max=1, capacity=64 * 1_000)
    others = [b"other-%d" % number for number in range(100)]
    assert harness.put(client, *others, size=1, preferred=["s0"]) == [OK] * 100
    for key in others:
        begin(harness, client, ["s1"], key=key)
    harness.put(client, b"last", size=1, preferred=["s2"])
    late = begin(harness, client, ["s3"], key=b"last")
    assert state(harness, client, late)[0] == PENDING
    for _ in range(3):
        harness.tick()
    assert state(harness, client, late)[0] == PROCESSING


def test_a_sequence_that_left_the_window_makes_no_task() -> None:
    harness, _, _, client = world(replay_window=1)
    old = harness.next_sequence()
    harness.remove(client, b"x")
    harness.remove(client, b"x")
    assert ask(harness, client, ["s1"], sequence=old)[0] == STALE_REQUEST


def test_a_move_takes_the_copy_that_was_named() -> None:
    """Of several copies the one on the source is read, and goes."""
    harness, _, mounted, client = world(4)
    begin(harness, client, ["s1", "s2"])
    for _ in range(2):
        harness.copied(harness.ordered()[0])
    before = places(harness, client, KEY)
    task = begin(harness, client, ["s3"], "s1")
    [target] = harness.ordered()
    assert before[harness.machine.copy_order(target)["source"]] == mounted[1]
    harness.copied(target)
    assert sorted(places(harness, client, KEY).values()) == [mounted[0], mounted[2], mounted[3]]
    assert state(harness, client, task)[0] == SUCCESS
