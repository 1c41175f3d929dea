"""Two masters by mistake: the older one stops serving when somebody tells it of the later one."""

from __future__ import annotations

import pytest
from metadata.harness import OK, Harness, uuid

from mooncake_store import _core

STALE_EPOCH = -2007
DEPOSED = 34
CLIENT_TTL_MS = 10_000
LOWEST, HIGHEST = bytes(16), b"\xff" * 16


def hear(pool: Harness, epoch: int, master: bytes = HIGHEST) -> int:
    return pool.machine.hear_of_reign(epoch, master, pool.now)


@pytest.fixture
def session(pool: Harness) -> int:
    session = pool.open()
    pool.mount(session, "n", 1 << 20)
    pool.put(session, b"k")
    return session


def test_an_older_master_refuses_everything_and_says_who_reigns(pool: Harness, session: int) -> None:
    assert hear(pool, 2) == 2
    assert pool.machine.epoch == 1  # it takes no higher one: the other reigns
    keys = _core.encode_keys_request(session, [b"k"])
    for verb, body in (
        ("open_session", _core.encode_open_session(uuid(3), "late", "h", "")),
        ("heartbeat", _core.encode_prefix(session)),
        ("exists", keys),
        ("lookup", keys),
        ("put_start", _core.encode_put_start(session, 90, [b"new"], [64])),
        ("remove", _core.encode_keys_request(session, [b"k"], sequence=91)),
        ("report", _core.encode_report(session, 0, [], [])),
        ("mount", _core.encode_mount(session, 92, 2, HIGHEST, [pool.describe("b", 64)], 0)),
    ):
        status, why = pool.ask(verb, body)
        assert status == STALE_EPOCH, verb
        assert b"one of epoch 2 reigns" in why
    assert pool.stat("deposed_by_epoch") == 2
    status, reply = pool.ask("inspect", _core.encode_inspect(session, 0))
    assert status == OK
    event = _core.parse_inspect_reply(reply)["events"][0]
    assert (event["kind"], event["number"]) == (DEPOSED, 2)


@pytest.mark.parametrize(("epoch", "master"), [(0, HIGHEST), (1, LOWEST), (4, HIGHEST), (5, LOWEST)])
def test_a_master_of_no_later_reign_deposes_nobody(make, epoch: int, master: bytes) -> None:  # type: ignore[no-untyped-def]
    pool = make(epoch=5)
    assert hear(pool, epoch, master) == 0
    assert pool.heartbeat(pool.open()) == OK


def test_of_two_masters_of_one_epoch_the_one_of_the_lower_uuid_steps_down(pool: Harness) -> None:
    assert hear(pool, 1, pool.machine.master) == 0
    assert hear(pool, 1, LOWEST) == 0
    assert hear(pool, 1, HIGHEST) == 1


def test_it_serves_again_when_it_was_not_told_for_client_ttl(pool: Harness, session: int) -> None:
    hear(pool, 2)
    pool.advance(CLIENT_TTL_MS - 1)
    assert hear(pool, 2) == 2  # told again
    pool.advance(CLIENT_TTL_MS - 1)
    assert pool.stat("deposed_by_epoch") == 2
    pool.advance(1)
    assert pool.stat("deposed_by_epoch") == 0
    # The nodes that followed the other one, which is gone, mount here now: this reign becomes the later one.
    session = pool.open(process=uuid(9))
    pool.mount_all(session, [pool.describe("m", 1 << 20)], known_epoch=2, known_master=HIGHEST)
    assert pool.machine.epoch == 3
    assert hear(pool, 2) == 0
    assert pool.put(session, b"new") == [OK]


def test_a_batch_of_puts_under_way_grants_nothing_more(make) -> None:  # type: ignore[no-untyped-def]
    pool = make(keys_a_step_max=1)
    session = pool.open()
    pool.mount(session, "n", 1 << 20)
    command = _core.Metadata.command(13, _core.encode_put_start(session, 7, [b"a", b"b"], [64, 64]))
    assert pool.machine.step(command, pool.now)[0] is False
    hear(pool, 2)
    while not pool.machine.step(command, pool.now)[0]:
        pass
    assert command.status == STALE_EPOCH
