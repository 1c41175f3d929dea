"""How values end by request, and that their bytes stay charged until the node has freed them."""

from __future__ import annotations

import pytest
from metadata.conftest import Make
from metadata.harness import FORCE, HARD_PIN, HAS_LEASE, INVALID_KEY, NOT_FOUND, NOT_READY, OK, Harness

from mooncake_store import _core
from mooncake_store.status import Status
from mooncake_store.wire_flags import REQUEST_COPIES as COPIES

NO_REPLICA = int(Status.REPLICA_NOT_FOUND)


def test_leased_value_is_removed_only_by_force(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.put(node, b"k")
    pool.lookup(node, b"k")
    assert pool.remove(node, b"k") == [HAS_LEASE]
    assert (pool.effects, pool.retired) == ([], [])
    assert pool.exists(node, b"k") == [OK]
    assert pool.remove(node, b"k", flags=FORCE) == [OK]
    assert pool.exists(node, b"k") == [NOT_FOUND]


def test_released_and_expired_leases_let_a_value_go(make: Make) -> None:
    pool = make(lease_ttl_ms=100)
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.put(node, b"a", b"b")
    pool.lookup(node, b"a", b"b")
    pool.release(node, b"a")
    assert pool.remove(node, b"a", b"b") == [OK, HAS_LEASE]
    pool.advance(99)
    assert pool.remove(node, b"b") == [HAS_LEASE]
    pool.advance(1)
    assert pool.remove(node, b"b") == [OK]


def test_exists_hold_and_hard_pin_do_not_refuse_a_remove(pool: Harness) -> None:
    """UP 20: a look-up alone does not block a remove."""
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.put(node, b"k", flags=HARD_PIN)
    assert pool.exists(node, b"k") == [OK]
    assert pool.remove(node, b"k") == [OK]
    assert pool.stat("hard_pin_key_count") == 0


def test_remove_names_what_retires_and_charges_until_freed(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.mount(node, "b", 1_024)
    [grant] = pool.put_start(node, b"k", size=65, replica_count=2)
    pool.put_end(node, grant.written)
    replicas = [replica for replica, _ in grant.places]
    assert pool.remove(node, b"k") == [OK]
    assert pool.retired == replicas
    assert pool.effects == [("retire", segment, replica, 0) for replica, segment in grant.places]
    assert pool.charged(node) == [128, 128]
    assert [info["retiring_bytes"] for info in pool.segments(node)] == [128, 128]
    first = grant.places[0]
    assert pool.free([first[0]]) == [("space_returned", first[1], 0, 0)]
    assert sorted(pool.charged(node)) == [0, 128]
    pool.free([grant.places[1][0]])
    assert pool.charged(node) == [0, 0]
    assert pool.stat("freed_replicas_total") == 2


def test_one_copy_is_removed_and_stays_so(pool: Harness) -> None:
    """The value is readable from the other one, and no repair brings the first back."""
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.mount(node, "b", 1_024)
    pool.mount(node, "c", 1_024)
    [grant] = pool.put_start(node, b"k", size=65, replica_count=2)
    pool.put_end(node, grant.written)
    (goes, there), (stays, here) = grant.places
    elsewhere = next(info["segment"] for info in pool.segments(node) if info["segment"] not in (there, here))
    assert pool.remove(node, b"k", b"none", flags=COPIES, avoid=(elsewhere,)) == [NO_REPLICA, NOT_FOUND]
    assert pool.remove(node, b"k", flags=COPIES) == [NO_REPLICA]
    assert pool.retired == []
    assert pool.remove(node, b"k", b"", flags=COPIES, avoid=(there, elsewhere)) == [OK, INVALID_KEY]
    assert pool.retired == [goes]
    assert pool.effects == [("retire", there, goes, 0)]
    [(status, _, _, _, places)] = pool.lookup(node, b"k")
    assert (status, places) == (OK, [(stays, here)])
    pool.tick()
    assert pool.stat("repair_queue_count") == 0
    assert pool.remove(node, b"k", flags=COPIES, avoid=(here,)) == [HAS_LEASE]
    pool.release(node, b"k")
    assert pool.remove(node, b"k", flags=COPIES, avoid=(here,)) == [OK]
    assert pool.exists(node, b"k") == [NOT_FOUND]
    pool.free([goes, stays])
    assert sum(pool.charged(node)) == 0


@pytest.mark.parametrize("flag", [COPIES, COPIES | FORCE])
def test_copies_of_an_unfinished_put_are_not_removed(pool: Harness, flag: int) -> None:
    node = pool.open()
    segment = pool.mount(node, "a", 1_024)
    [grant] = pool.put_start(node, b"k")
    assert pool.remove(node, b"k", flags=flag, avoid=(segment,)) == [NOT_READY]
    assert pool.put_end(node, grant.written) == [OK]


def test_node_reports_freed_only_what_lies_on_its_own_segments(pool: Harness) -> None:
    """Else one node with a wrong list ends charges of another, whose ranges are still being read."""
    node, other = pool.open(), pool.open()
    segment = pool.mount(node, "a", 1_024)
    pool.mount(other, "b", 1_024)
    [grant] = pool.put_start(node, b"k", preferred=["a"])
    pool.put_end(node, grant.written)
    pool.remove(node, b"k")
    [replica] = pool.retired
    assert pool.ask("report", _core.encode_report(other, 0, [], [replica]))[0] == OK
    assert pool.effects == []
    assert sum(pool.charged(node)) == 64
    assert pool.ask("report", _core.encode_report(node, 0, [], [replica, 7]))[0] == OK
    assert pool.effects == [("space_returned", segment, 0, 0)]
    assert sum(pool.charged(node)) == 0


def test_freed_is_idempotent_and_ignores_what_does_not_retire(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    gone, kept = pool.put_start(node, b"gone", b"kept")
    pool.put_end(node, gone.written, kept.written)
    pool.remove(node, b"gone")
    replica = gone.places[0][0]
    assert len(pool.free([replica, replica])) == 1
    assert pool.free([replica]) == []
    assert pool.free([kept.places[0][0], 7, 0]) == []
    assert pool.charged(node) == [64]
    assert pool.exists(node, b"kept") == [OK]


def test_repeated_remove_names_only_what_still_retires(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.put(node, b"k")
    pool.remove(node, b"k", sequence=90)
    replicas = pool.retired
    assert len(replicas) == 1
    assert pool.remove(node, b"k", sequence=90) == [OK]
    assert (pool.retired, pool.effects) == (replicas, [])
    pool.free(replicas)
    assert pool.remove(node, b"k", sequence=90) == [OK]
    assert pool.retired == []


def test_batch_answers_in_the_order_of_its_keys(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.put(node, b"a", b"leased")
    pool.lookup(node, b"leased")
    pool.put_start(node, b"begun")
    answers = pool.remove(node, b"none", b"a", b"", b"leased", b"begun", b"a")
    assert answers == [NOT_FOUND, OK, INVALID_KEY, HAS_LEASE, NOT_READY, NOT_FOUND]


def test_force_revokes_an_unfinished_put(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    [grant] = pool.put_start(node, b"k")
    assert pool.remove(node, b"k") == [NOT_READY]
    assert pool.remove(node, b"k", flags=FORCE) == [OK]
    assert pool.retired == [grant.places[0][0]]
    assert pool.exists(node, b"k") == [NOT_FOUND]


def test_remove_of_the_old_value_leaves_an_upsert_under_way(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1_024)
    pool.put(node, b"k")
    [new] = pool.put_start(node, b"k", flags=4)
    assert pool.remove(node, b"k") == [OK]
    assert pool.exists(node, b"k") == [NOT_READY]
    assert pool.put_end(node, new.written) == [OK]
    assert pool.exists(node, b"k") == [OK]


def test_same_key_of_another_tenant_stays(pool: Harness) -> None:
    node, other = pool.open(), pool.open(tenant="other")
    pool.mount(node, "a", 1_024)
    pool.put(node, b"k")
    pool.put(other, b"k")
    assert pool.remove(node, b"k") == [OK]
    assert pool.exists(other, b"k") == [OK]
    pool.put(node, b"k")
    assert pool.remove(other, b"k") == [OK]
    assert pool.exists(node, b"k") == [OK]
