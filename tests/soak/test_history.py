"""The judge of a soak sees what is wrong, and calls nothing wrong that may happen."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak import ledger, values
from soak.history import History
from soak.ledger import Event, Ledger, LedgerReader
from soak.values import WrongBytes, new_version, value_of, version_of

KEY = "k"


def put(version: int, begin: int, end: int, outcome: str = "stored") -> list[Event]:
    begun = Event(ledger.PUT_BEGINS, begin, begin, version, KEY, "")
    return [begun, Event(ledger.PUT_ENDS, begin, end, version, KEY, outcome)] if end else [begun]


def remove(number: int, begin: int, end: int, outcome: str = "True") -> list[Event]:
    begun = Event(ledger.REMOVE_BEGINS, begin, begin, number, KEY, "")
    return [begun, Event(ledger.REMOVE_ENDS, begin, end, number, KEY, outcome)] if end else [begun]


def read(version: int, begin: int, end: int) -> Event:
    return Event(ledger.READ, begin, end, version, KEY, "")


def kinds(changes: list[Event], *reads: Event, died_at: int = 0) -> list[str]:
    history = History()
    history.add_changes("w", changes)
    if died_at:
        history.died("w", died_at)
    return [wrong.kind for wrong in history.check(reads)]


@pytest.mark.parametrize(
    ("changes", "reads", "expected"),
    [
        pytest.param(put(1, 10, 20), [read(1, 15, 18)], [], id="visible before its acknowledgement"),
        pytest.param(put(1, 10, 20), [read(2, 30, 31)], ["bytes"], id="never put"),
        pytest.param(put(1, 10, 20) + put(2, 30, 40), [read(1, 35, 50)], [], id="replaced meanwhile"),
        pytest.param(put(1, 10, 20) + put(2, 30, 40), [read(1, 41, 50)], ["old"], id="replaced before"),
        pytest.param(
            put(1, 10, 20) + put(2, 30, 40, "error"), [read(1, 41, 50)], [], id="perhaps replaced before"
        ),
        pytest.param(
            put(1, 10, 20) + put(2, 30, 40, "error"),
            [read(2, 41, 42), read(1, 43, 50)],
            ["old"],
            id="seen to be replaced before",
        ),
        pytest.param(
            put(1, 10, 20) + put(2, 30, 40, "error"),
            [read(2, 41, 44), read(1, 43, 50)],
            [],
            id="seen to be replaced meanwhile",
        ),
        pytest.param(put(1, 10, 20) + put(2, 15, 30), [read(1, 41, 50)], [], id="put at the same time"),
        pytest.param(put(1, 10, 20) + remove(2, 30, 40), [read(1, 35, 50)], [], id="removed meanwhile"),
        pytest.param(put(1, 10, 20) + remove(2, 30, 40), [read(1, 41, 50)], ["undone"], id="removed before"),
        pytest.param(
            put(1, 10, 20) + remove(2, 30, 40, "False"), [read(1, 41, 50)], ["undone"], id="said to be gone"
        ),
        pytest.param(
            put(1, 10, 20) + remove(2, 30, 40, "error"), [read(1, 41, 50)], [], id="perhaps removed"
        ),
        pytest.param(put(1, 10, 20, "error") + remove(2, 30, 40), [read(1, 41, 50)], [], id="appears later"),
        pytest.param(
            put(1, 10, 20, "error") + remove(2, 30, 40),
            [read(1, 21, 22), read(1, 41, 50)],
            ["undone"],
            id="removed after it was seen",
        ),
        pytest.param(
            put(1, 10, 20) + remove(2, 13, 14), [read(1, 11, 12), read(1, 41, 50)], [], id="stored again"
        ),
        pytest.param(
            put(1, 10, 20) + remove(2, 15, 30), [read(1, 41, 50)], [], id="removed while it was put"
        ),
    ],
)
def test_what_a_read_may_return(changes: list[Event], reads: list[Event], expected: list[str]) -> None:
    assert kinds(changes, *reads) == expected


def test_a_dead_writers_put_may_appear_until_another_is_stored() -> None:
    changes = put(1, 10, 0) + put(2, 30, 40)
    assert kinds(changes, read(1, 41, 42), died_at=25) == ["old"]
    assert kinds(changes, read(1, 41, 42)) == []  # it may still be at work
    assert kinds(put(1, 10, 0), read(1, 41, 42), died_at=25) == []


def test_a_key_that_is_said_to_exist_after_its_remove_is_wrong() -> None:
    is_there = Event(ledger.PRESENT, 50, 51, 1, KEY, "")
    assert kinds(put(1, 10, 20) + remove(2, 30, 40), is_there) == ["undone"]
    assert kinds(put(1, 10, 20) + remove(2, 30, 55), is_there) == []
    assert kinds(put(1, 10, 20) + remove(2, 30, 40) + put(3, 45, 60), is_there) == []
    assert kinds(put(1, 10, 20, "error") + remove(2, 30, 40), is_there) == []


@pytest.mark.parametrize("size", [values.HEADER.size, 25, 100, 4096, 1_000_003])
def test_a_value_is_known_by_its_bytes(size: int) -> None:
    version = new_version(3)
    value = value_of(KEY, version, size)
    assert len(value) == size
    assert version_of(KEY, bytearray(value)) == version
    with pytest.raises(WrongBytes, match="another key"):
        version_of("other", value)
    with pytest.raises(WrongBytes, match="of a value of"):
        version_of(KEY, value + b"x")
    if size > values.HEADER.size:
        with pytest.raises(WrongBytes, match=f"1 of {size} bytes differ, the first at {size - 1}"):
            version_of(KEY, value[:-1] + bytes([value[-1] ^ 1]))
        other = value_of(KEY, version + 1, size)
        with pytest.raises(WrongBytes, match="bytes differ"):
            version_of(KEY, value[: values.HEADER.size] + other[values.HEADER.size :])


def test_a_line_that_was_cut_by_a_kill_is_no_event(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    book = Ledger(path)
    follower = LedgerReader(path)
    book.write(put(1, 10, 20))
    assert follower.new_events() == put(1, 10, 20)
    with path.open("ab") as file:
        file.write(b"p\t1\t1")
    assert follower.new_events() == []


def test_a_view_that_was_held_is_judged_by_its_bytes_alone() -> None:
    """It began before the value ended, so it may outlive it; what a later read shows is judged as ever."""
    history = History()
    history.add_changes("w", put(1, 10, 20) + put(2, 30, 40))
    held = Event(ledger.HELD, 25, 90, 1, KEY, ledger.MAPPED)
    seen = Event(ledger.READ, 41, 42, 2, KEY, ledger.MAPPED)
    assert history.check([held, seen]) == []
    assert history.counts["views held, mapped"] == 1
    assert history.counts["hits by a view, mapped"] == 1
    assert [wrong.kind for wrong in history.check([read(1, 41, 50)])] == ["old"]
    assert history.slowest_ns[0] < 65  # holding is no call
