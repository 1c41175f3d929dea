"""What users of such stores suffer from in ordinary calls, with the right value of each.

Numbered as in the list of user problems (UP). Master and nodes run in this process: nothing is killed here.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest

from mooncake_client import Store
from mooncake_client.records import Absence
from mooncake_store import _core
from mooncake_store.errors import NoSpace, StoreError, Unavailable, ValueTooLarge

KIB, MIB = 1 << 10, 1 << 20
HANG_S = 60.0


@pytest.fixture
def master() -> Iterator[_core.Master]:
    running = _core.Master()
    running.start()
    yield running
    running.check_invariants()
    running.stop()


def lane_of(master: _core.Master) -> str:
    return f"127.0.0.1:{master.lane_port}"


@pytest.fixture
def store(master: _core.Master) -> Iterator[Store]:
    with Store(lane=lane_of(master)) as client:
        yield client


class Lent:
    """A node of this process. Context manager: stopped at the end."""

    def __init__(self, master: _core.Master, size: int, name: str = "") -> None:
        self.node = _core.Node([(name, size)], lane=lane_of(master), data_host="127.0.0.1")

    def __enter__(self) -> _core.Node:
        self.node.start()
        assert self.node.wait_mounted(int(HANG_S * 1000))
        return self.node

    def __exit__(self, *_: object) -> None:
        self.node.stop()


def four_answers(store: Store, keys: list[str]) -> list[tuple[bool, bool, bool, bool]]:
    """Of each key: what exists, exists_many, get_many and the listing say."""
    listed = set(store.keys())
    answers = zip(keys, store.exists_many(keys), store.get_many(keys), strict=True)
    return [
        (store.exists(key), is_there is True, isinstance(value, bytes), key.encode() in listed)
        for key, is_there, value in answers
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("turns", "count", "size"),
    [(20, 20, 16 * KIB), pytest.param(100, 100, MIB, marks=pytest.mark.nightly)],
)
def test_all_questions_agree_whoever_won_and_whichever_node_left(
    master: _core.Master, store: Store, turns: int, count: int, size: int
) -> None:
    """UP 5: two put the same keys at once, again and again; then a node leaves. Answers agree."""
    keys = [f"k{index}" for index in range(count)]
    room = max(64 * MIB, 4 * count * size)
    with Lent(master, room), Store(lane=lane_of(master)) as other:
        with Lent(master, room):
            for turn in range(turns):
                values = {name: [name * size + bytes([turn])] * len(keys) for name in (b"a", b"b")}
                answers: dict[bytes, list[object]] = {}
                barrier = threading.Barrier(2)

                def put(name: bytes, client: Store, values: dict[bytes, list[bytes]] = values) -> None:
                    barrier.wait(HANG_S)  # noqa: B023
                    answers[name] = list(client.put_many(keys, values[name]))  # noqa: B023

                threads = [threading.Thread(target=put, args=pair) for pair in ((b"a", store), (b"b", other))]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(HANG_S)
                for index, found in enumerate(store.get_many(keys)):
                    outcomes = {name: answers[name][index] for name in (b"a", b"b")}
                    assert sorted(outcomes.values()) == ["exists", "stored"]
                    winner = b"a" if outcomes[b"a"] == "stored" else b"b"
                    assert found == values[winner][index]
                assert four_answers(other, keys) == [(True,) * 4] * len(keys)
                if turn < turns - 1:
                    store.remove_many(keys)
                    assert four_answers(other, keys) == [(False,) * 4] * len(keys)
        for answers_of_key in four_answers(store, keys):
            assert len(set(answers_of_key)) == 1
        assert store.put("empty", b"") == "stored"
        assert (store.get("empty"), store.get("missing")) == (b"", None)


def test_one_bad_key_shifts_nothing_in_a_batch(master: _core.Master, store: Store) -> None:
    """UP 6: a miss, a key given twice, an empty batch, an empty value: ten answers, each at its own place."""
    keys = [f"k{index}" for index in range(10)]
    values = [bytes([index]) * 1_000 for index in range(10)]
    with Lent(master, MIB):
        assert store.put_many(keys, values) == ["stored"] * 10
        store.remove("k4")
        assert store.get_many(keys) == [*values[:4], None, *values[5:]]
        assert store.put_many(["x", "y", "x"], [b"1", b"2", b"3"]) == ["stored", "stored", "exists"]
        assert store.get_many(["x", "y", "x"]) == [b"1", b"2", b"1"]
        assert (store.put_many([], []), store.get_many([])) == ([], [])
        assert store.put_many(["e", "f"], [b"", b"f"]) == ["stored", "stored"]
        assert store.get_many(["f", "none", "e"]) == [b"f", None, b""]


def test_a_batch_larger_than_the_store_is_refused_by_the_key(master: _core.Master, store: Store) -> None:
    """UP 6: room for six of ten that may not go: six stored, four NoSpace, and those are not listed."""
    keys = [f"k{index}" for index in range(10)]
    with Lent(master, 6 * MIB):
        answers = store.put_many(keys, [bytes([index]) * MIB for index in range(10)], hard_pin=True)
        assert answers.count("stored") == 6
        assert sum(isinstance(answer, NoSpace) for answer in answers) == 4
        stored = [key for key, answer in zip(keys, answers, strict=True) if answer == "stored"]
        assert sorted(store.keys()) == sorted(key.encode() for key in stored)
        found = store.get_many(keys)
        for index, (key, value) in enumerate(zip(keys, found, strict=True)):
            assert value == (bytes([index]) * MIB if key in stored else None)


def test_no_put_is_called_stored_that_was_not(master: _core.Master, store: Store) -> None:
    """UP 8: without a node an error; and a value that was stored is there until an eviction is counted."""
    with pytest.raises((NoSpace, Unavailable)):
        store.put("k", b"v")
    assert store.get("k") is None
    with Lent(master, 16 * MIB):
        kept: list[str] = []
        for number in range(200):
            key = f"{number}"
            assert store.put(key, bytes([number]) * (256 * KIB)) == "stored"
            if (value := store.get(key)) is None:  # what nobody reads goes first, however young
                assert store.why(key).reason is Absence.EVICTED
            else:
                assert value == bytes([number]) * (256 * KIB)
            kept.append(key)
        before = master.stats()["evicted_keys_total"]
        missing = store.get_many(kept).count(None)
        assert 0 < before <= missing <= master.stats()["evicted_keys_total"]
        assert store.why("0").reason is Absence.EVICTED


@pytest.mark.slow
def test_a_store_emptied_of_small_values_takes_large_ones(master: _core.Master, store: Store) -> None:
    """UP 18: filled with 4 KiB values, all removed: twelve of 16 MiB find room at once."""
    with Lent(master, 256 * MIB):
        small = [f"s{number}" for number in range(50_000)]
        assert store.put_many(small, [b"\xaa" * 4096] * len(small)) == ["stored"] * len(small)
        assert all(store.remove_many(small))
        for number in range(12):
            assert store.put(f"l{number}", bytes([number]) * (16 * MIB), hard_pin=True) == "stored"
        assert store.get("l0") == bytes(16 * MIB)


@pytest.mark.slow
def test_sizes_beside_every_boundary_are_stored_and_too_large_is_one_error(
    master: _core.Master, store: Store
) -> None:
    """UP 18: 0, 1, 4095, 4096, 4097 bytes and 64 MiB come back; larger than any node names the size."""
    with Lent(master, 128 * MIB):
        for size in (0, 1, 4095, 4096, 4097, 64 * MIB):
            value = random.Random(size).randbytes(size)
            assert store.put(f"{size}", value) == "stored"
            assert store.get(f"{size}") == value
        with pytest.raises(ValueTooLarge, match=f"{129 * MIB}"):
            store.put("huge", bytes(129 * MIB))


@pytest.mark.slow
def test_mixed_sizes_put_and_removed_for_long_are_never_refused(master: _core.Master, store: Store) -> None:
    """UP 18: up to 8 MiB, three nodes kept 70 % full: no put is refused."""
    chance, turns = random.Random(18), 10_000
    with Lent(master, 96 * MIB), Lent(master, 96 * MIB), Lent(master, 96 * MIB):
        sizes: dict[str, int] = {}
        for turn in range(turns):
            size = int(2 ** chance.uniform(0, 23))
            while sum(sizes.values()) + size > 0.7 * 3 * 96 * MIB:
                gone = chance.choice(sorted(sizes))
                store.remove(gone)
                del sizes[gone]
            assert store.put(f"{turn}", bytes(size)) == "stored"
            sizes[f"{turn}"] = size


@pytest.mark.slow
def test_nodes_of_different_sizes_fill_alike(master: _core.Master, store: Store) -> None:
    """UP 18: 64 and 256 MiB at half full differ by less than ten points."""
    with Lent(master, 64 * MIB, "small"), Lent(master, 256 * MIB, "large"):
        keys = [f"{number}" for number in range(2_560)]
        assert store.put_many(keys, [bytes(64 * KIB)] * len(keys)) == ["stored"] * len(keys)
        ratios = {
            segment.name: segment.charged_bytes / segment.capacity_bytes for segment in store.segments()
        }
        assert abs(ratios["small"] - ratios["large"]) < 0.10


def test_an_error_of_one_key_is_of_the_one_tree(master: _core.Master, store: Store) -> None:
    """UP 8: what a batch could not store is a StoreError at its place."""
    with Lent(master, MIB):
        answers = store.put_many(["a", "b"], [b"x", bytes(2 * MIB)])
        assert answers[0] == "stored"
        assert isinstance(answers[1], StoreError)
        assert store.get_many(["a", "b"]) == [b"x", None]
