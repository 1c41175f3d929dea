"""The memory of a batch, packed in one turn: the same bytes as one by one, and nothing that is no memory."""

from __future__ import annotations

import gc
import weakref
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mooncake_client import Store
from mooncake_client.dropin.base import memories_of, packed_memories_of
from mooncake_store import _core
from mooncake_store.errors import BufferTooSmall, InvalidArgument

Packed = _core.PackedMemory


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store.embedded("16mb") as made:
        yield made


def address_of(memory: Any) -> int:
    return int(np.frombuffer(memory, dtype=np.uint8).ctypes.data)


def test_values_and_targets_are_where_the_objects_have_them() -> None:
    first, second = bytearray(b"first"), bytearray(b"second one")
    packed = Packed.of_targets([first, memoryview(second)[2:6]])
    assert list(packed) == [(address_of(first), 5), (address_of(second) + 2, 4)]
    assert packed.size_bytes == 9
    assert [size for _, size in Packed.of_values([b"", b"abc", first, memoryview(second)])] == [0, 3, 5, 10]


def test_addresses_are_taken_as_they_are() -> None:
    memory = bytearray(32)
    at = address_of(memory)
    assert list(Packed.of_addresses([at, at + 8], (8, 24))) == [(at, 8), (at + 8, 24)]


@pytest.mark.parametrize(
    ("addresses", "sizes"),
    [
        ([0], [1]),
        ([1], [0]),
        ([-1], [1]),
        ([1], [-1]),
        ([1, 2], [1]),
        ([1 << 70], [1]),
        ([1.0], [1]),
        ([None], [1]),
    ],
)
def test_what_is_no_memory_is_refused(addresses: list[Any], sizes: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"addresses|sizes"):
        Packed.of_addresses(addresses, sizes)


def test_pieces_make_up_one_value_and_neighbours_are_joined() -> None:
    memory = bytearray(32)
    at = address_of(memory)
    packed = Packed.of_pieces([[at, at + 4, at + 16], [at, 0, at + 8], (at,)], [[4, 4, 8], [8, 0, 8], [1]])
    assert list(packed) == [[(at, 8), (at + 16, 8)], (at, 16), (at, 1)]
    assert [packed.size_of(index) for index in range(3)] == [16, 16, 1]
    assert packed.size_bytes == 33
    with pytest.raises(IndexError):
        packed.size_of(3)


@pytest.mark.parametrize(
    ("addresses", "sizes"),
    [([[]], [[]]), ([[1]], [[0]]), ([[0]], [[1]]), ([[1]], [[-1]]), ([[1, 2]], [[1]]), ([[1]], [[1], [2]])],
)
def test_pieces_that_are_no_memory_are_refused(addresses: list[Any], sizes: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"address|sizes"):
        Packed.of_pieces(addresses, sizes)


def test_a_value_is_spread_only_as_far_as_it_goes(store: Store) -> None:
    assert store.put_many(["s1", "s2"], [b"abcdef", b"too long for it"]) == ["stored", "stored"]
    memory = bytearray(b"." * 64)
    at = address_of(memory)
    packed = Packed.of_pieces(
        [[at, at + 8, at + 16], [at + 32, at + 40], [at + 48, at + 56]], [[4, 1, 4], [4, 4], [1, 1]]
    )
    statuses, lengths = store._client().get_into_many(["s1", "s2", "none"], packed)
    assert statuses[0] == 0
    assert lengths[:2] == [6, 15]
    assert bytes(memory) == b"abcd....e.......f" + b"." * 47


def test_a_packed_list_is_the_list_one_by_one_where_all_of_it_is_memory() -> None:
    assert list(packed_memories_of([4096, 8192], [1, 2])) == memories_of([4096, 8192], [1, 2])
    assert packed_memories_of([4096, 0], [1, 2]) == [(4096, 1), None]
    assert packed_memories_of([np.int64(4096)], [np.int64(1)]) == [(4096, 1)]


@pytest.mark.parametrize(
    "target",
    [b"read only", "text", None, (1, 2), np.zeros((4, 4))[:, 1], np.array([object()]), memoryview(b"x"), 5],
)
def test_targets_that_cannot_be_filled_are_named(target: object) -> None:
    with pytest.raises(TypeError, match=r"targets\[1\]"):
        Packed.of_targets([bytearray(1), target])


@pytest.mark.parametrize("value", ["text", None, (1, 2), [b"a"], np.zeros(4), array("i", [1]), 5], ids=repr)
def test_values_that_may_be_more_than_bytes_are_not_packed(value: object) -> None:
    with pytest.raises(TypeError, match=r"values\[1\]"):
        Packed.of_values([b"x", value])


def test_packed_values_are_no_targets() -> None:
    """Else a read would write over immutable bytes."""
    with Store.embedded("16mb") as store:
        client = store._client()
        with pytest.raises(TypeError, match="packed as values"):
            client.get_into_many(["k"], Packed.of_values([b"abc"]))


def test_buffers_are_held_as_long_as_the_packed_memory() -> None:
    memory = np.zeros(8, dtype=np.uint8)
    alive = weakref.ref(memory)
    grown = bytearray(4)
    packed = Packed.of_targets([memory, grown])
    del memory
    gc.collect()
    assert alive() is not None
    with pytest.raises(BufferError):
        grown.extend(b"more")
    del packed
    gc.collect()
    assert alive() is None
    grown.extend(b"more")


def test_a_batch_of_many_kinds_answers_as_one_by_one(store: Store) -> None:
    """One tensor, one bad value, one bad key: the batch takes the slow way, with the same answers."""
    answers = store.put_many(["m1", "m2", "m3", ""], [b"plain", np.arange(4), "text", b"x"])  # type: ignore[list-item]
    assert answers[:2] == ["stored", "stored"]
    assert all(isinstance(answer, InvalidArgument) for answer in answers[2:])
    room = [bytearray(5), np.zeros(4, dtype=np.int64), b"read only", bytearray(1)]
    found = store.get_into_many(["m1", "m2", "m1", ""], room)
    assert found[:2] == [5, 32]
    assert all(isinstance(answer, InvalidArgument) for answer in found[2:])
    assert room[0] == b"plain"
    assert np.array_equal(room[1], np.arange(4))  # type: ignore[arg-type]


def test_packed_answers_hold_the_values(store: Store) -> None:
    assert store.put_many(["p1", "p1", "p2"], [b"12345", b"other", bytearray(b"abc")]) == [
        "stored",
        "exists",
        "stored",
    ]
    [small, missing, fits] = store.get_into_many(
        ["p1", "none", "p2"], [bytearray(4), bytearray(4), bytearray(4)]
    )
    assert isinstance(small, BufferTooSmall)
    assert "5 bytes" in str(small)
    assert "has 4" in str(small)
    assert (missing, fits) == (None, 3)
