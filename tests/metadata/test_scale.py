"""Many keys: the tables grow, shrink and stay exact."""

from __future__ import annotations

from metadata.conftest import Make
from metadata.harness import OK

from mooncake_store import _core


def evicted(effects: list[tuple[str, int, int, int]]) -> list[int]:
    return [replica for kind, _, replica, _ in effects if kind == "retire"]


def test_hundred_thousand_keys_come_and_go_with_exact_accounts(make: Make) -> None:
    """Twenty-five times what fits: every batch pushes out the oldest, and nothing is lost on the way."""
    pool = make()
    machine = pool.machine
    session = pool.open()
    pool.mount(session, "only", 64 * 4_500)
    verbs = _core.verb_numbers()
    for first in range(0, 100_000, 500):
        keys = [b"key-%d" % number for number in range(first, first + 500)]
        start = _core.encode_put_start(session, pool.next_sequence(), keys, [64] * 500)
        _, reply, effects, _, _ = machine.execute(verbs["put_start"], start, pool.now)
        grants = _core.parse_put_start_reply(reply)
        assert [status for status, _, _ in grants] == [OK] * 500
        machine.freed(evicted(effects))
        items = [(put_id, [(replica, OK) for replica, _ in places]) for _, put_id, places in grants]
        machine.execute(
            verbs["put_end"], _core.encode_put_end(session, pool.next_sequence(), items), pool.now
        )
        idle = False
        while not idle:
            idle, effects = machine.tick(pool.now)
            machine.freed(evicted(effects))
    machine.check_invariants()
    stats = machine.stats()
    assert stats["key_count"] + stats["evicted_keys_total"] == 100_000
    assert 64 * stats["key_count"] == stats["allocated_bytes"] <= 0.9 * 64 * 4_500
    # The youngest are what is left.
    left = sorted(int(key[4:]) for key, *_ in pool.list(session))
    assert left == list(range(100_000 - stats["key_count"], 100_000))
    # Records are used again: the bound of the design, 200 bytes beyond the key, holds after 20 full turns.
    assert stats["metadata_bytes"] < 4_500 * 200 + 256 * 64 * 8
