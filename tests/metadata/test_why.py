"""Why a key is not there: the reason of each end, counted for lookups and told for every key asked about."""

from __future__ import annotations

import pytest
from metadata.conftest import Make
from metadata.harness import (
    FORCE,
    INVALID_KEY,
    NOT_FOUND,
    NOT_READY,
    OK,
    UNREACHABLE,
    UPSERT,
    WRITE_FAIL,
    Harness,
)

from mooncake_store import _core

PRESENT, NEVER_STORED, EVICTED, REMOVED, EXPIRED, LOST, ABANDONED = range(7)
NOT_READY_YET, REBUILDING, OUT_OF_REACH, OTHER_TENANT = range(7, 11)


def why(pool: Harness, session: int, *keys: bytes, avoid: tuple[int, ...] = ()) -> list[tuple[int, int, int]]:
    status, body = pool.ask("why", _core.encode_keys_request(session, list(keys), avoid=avoid))
    assert status == OK
    return _core.parse_why_reply(body)


def test_each_end_has_its_reason_and_its_age(pool: Harness) -> None:
    node = pool.open()
    segment = pool.mount(node, "a", 1 << 20)
    assert pool.put(node, b"there", b"removed") == [OK] * 2
    assert pool.put(node, b"expired", ttl_ms=1_000) == [OK]
    [failed, revoked, open_] = pool.put_start(node, b"failed", b"revoked", b"open")
    assert pool.put_end(node, (failed.put_id, [(failed.places[0][0], -800)])) == [WRITE_FAIL]
    assert pool.put_revoke(node, revoked.put_id) == [OK]
    assert pool.remove(node, b"removed", flags=FORCE) == [OK]
    pool.advance(3_000)
    keys = (b"there", b"removed", b"expired", b"failed", b"revoked", b"open", b"never", b"")
    answers = why(pool, node, *keys)
    assert [answer[:2] for answer in answers] == [
        (OK, PRESENT),
        (NOT_FOUND, REMOVED),
        (NOT_FOUND, EXPIRED),
        (NOT_FOUND, ABANDONED),
        (NOT_FOUND, ABANDONED),
        (NOT_READY, NOT_READY_YET),
        (NOT_FOUND, NEVER_STORED),
        (INVALID_KEY, NEVER_STORED),
    ]
    assert [answer[2] for answer in answers] == [0, 3_000, 0, 3_000, 3_000, 0, 0, 0]
    assert why(pool, node, b"there", avoid=(segment,)) == [(UNREACHABLE, OUT_OF_REACH, 0)]
    assert open_.status == OK
    pool.lookup(node, *keys)
    counted = {name: pool.stat(f"lookup_misses_{name}_total") for name in ("removed", "expired", "abandoned")}
    assert counted == {"removed": 1, "expired": 1, "abandoned": 2}
    assert pool.stat("lookup_misses_never_stored_total") == 1


def test_eviction_and_loss_are_told_apart(pool: Harness) -> None:
    node, other = pool.open(), pool.open()
    pool.mount(node, "a", 128)
    assert pool.put(node, b"k") == [OK]
    pool.ask("put_start", _core.encode_put_start(node, pool.next_sequence(), [b"fills"], [128]))
    assert why(pool, node, b"k")[0][1] == EVICTED
    second = pool.open()
    pool.mount(second, "b", 1 << 20)
    assert pool.put(other, b"l", preferred=["b"]) == [OK]
    pool.close(second)
    pool.tick()
    assert why(pool, other, b"l")[0][1] == LOST


def test_a_key_that_was_put_again_is_present_and_its_next_end_counts(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1 << 20)
    assert pool.put(node, b"k") == [OK]
    assert pool.remove(node, b"k") == [OK]
    assert pool.put(node, b"k", ttl_ms=10) == [OK]
    assert why(pool, node, b"k")[0][1] == PRESENT
    assert pool.put(node, b"k", flags=UPSERT, ttl_ms=10) == [OK]
    assert why(pool, node, b"k")[0][1] == PRESENT
    pool.advance(10)
    assert why(pool, node, b"k")[0][1] == EXPIRED


def test_another_tenants_key_is_named_as_such_and_never_counted_as_present(pool: Harness) -> None:
    node = pool.open()
    pool.mount(node, "a", 1 << 20)
    theirs = pool.open(tenant="theirs")
    assert pool.put(theirs, b"k") == [OK]
    assert why(pool, node, b"k") == [(NOT_FOUND, OTHER_TENANT, 0)]
    assert why(pool, node, *[b"k"] * 17)[0] == (NOT_FOUND, NEVER_STORED, 0)  # too many to ask every tenant


def test_asking_why_keeps_nothing(make: Make) -> None:
    pool = make(eviction_high_watermark_ratio=1.0)
    node = pool.open()
    pool.mount(node, "a", 128)
    assert pool.put(node, b"old") == [OK]
    assert pool.put(node, b"new") == [OK]
    assert why(pool, node, b"old")[0][1] == PRESENT
    pool.ask("put_start", _core.encode_put_start(node, pool.next_sequence(), [b"next"], [64]))
    assert why(pool, node, b"old", b"new") == [(NOT_FOUND, EVICTED, 0), (OK, PRESENT, 0)]


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_first_reign_does_not_rebuild(make: Make, epoch: int) -> None:
    pool = make(epoch=epoch)
    session = pool.open()
    assert why(pool, session, b"k")[0][1] == (NEVER_STORED if epoch == 1 else REBUILDING)


def test_a_tenant_never_inherits_what_became_of_anothers_keys(pool: Harness) -> None:
    """Numbers of tenants that nobody used any more were given to others, and with them their keys' ends."""
    node = pool.open(tenant="nodes")
    pool.mount(node, "seg", 1 << 20)
    first = pool.open(tenant="a")
    assert pool.put(first, b"k") == [OK]
    assert pool.remove(first, b"k", flags=FORCE) == [OK]
    pool.close(first)
    other = pool.open(tenant="b")
    assert why(pool, other, b"k") == [(NOT_FOUND, NEVER_STORED, 0)]
    status, body = pool.ask("inspect", _core.encode_inspect(other, 1, b"k"))
    assert (status, _core.parse_inspect_reply(body)["events"]) == (OK, [])
    again = pool.open(tenant="a")
    assert why(pool, again, b"k") == [(NOT_FOUND, REMOVED, 0)]
