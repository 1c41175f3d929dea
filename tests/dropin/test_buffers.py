"""Values in the caller's memory: whole, in pieces, in ranges, and in sessions."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest
from dropin.conftest import MIB
from dropin.memory import Memory, pattern

from mooncake_client.dropin import MooncakeDistributedStore
from mooncake_client.dropin.buffers import RegisteredBuffers


@pytest.fixture(scope="module", params=["lane", "grpc"])
def control(request: pytest.FixtureRequest) -> str:
    """Every test of this module, over either door."""
    door: str = request.param
    return door


Dropin = MooncakeDistributedStore


def test_registered_buffers_do_not_overlap(store: Dropin) -> None:
    memory = Memory(4096)
    assert store.register_buffer(memory.ptr, 2048) == 0
    assert store.register_buffer(memory.ptr, 2048) == -600
    assert store.register_buffer(memory.ptr + 2047, 10) == -600
    assert store.register_buffer(memory.ptr + 2048, 2048) == 0
    assert store.unregister_buffer(memory.ptr + 1) == -600
    assert store.unregister_buffer(memory.ptr) == 0
    assert store.unregister_buffer(memory.ptr) == -600
    assert store.register_buffer(memory.ptr, 2049) == -600
    assert store.register_buffer(memory.ptr, 2048) == 0
    assert store.register_buffer(0, 10) == -600
    assert store.register_buffer(memory.ptr + 10_000, 0) == -600


def test_register_sees_every_way_to_overlap() -> None:
    buffers = RegisteredBuffers()
    assert buffers.add(100, 100)
    for start, size in ((100, 100), (50, 51), (199, 1), (50, 500), (120, 10)):
        assert not buffers.add(start, size), (start, size)
    assert buffers.add(50, 50)
    assert buffers.add(200, 10)


@pytest.mark.parametrize("registered", [False, True])
def test_put_from_and_get_into(store: Dropin, registered: bool) -> None:
    source, target = Memory(pattern(10_000)), Memory(12_000)
    if registered:
        assert store.register_buffer(source.ptr, source.size) == 0
        assert store.register_buffer(target.ptr, target.size) == 0
    assert store.put_from("k", source.ptr, source.size) == 0
    assert store.get_into("k", target.ptr, target.size) == 10_000
    assert target.bytes(0, 10_000) == source.bytes()
    assert target.bytes(10_000) == b"\xee" * 2_000
    assert store.get_into("k", target.ptr, 9_999) == -600
    assert store.get_into("missing", target.ptr, target.size) == -704
    assert store.get_into("", target.ptr, target.size) == -704
    assert store.upsert_from("k", source.ptr, 5) == 0
    assert store.get("k") == source.bytes(0, 5)


def test_no_memory_is_refused(store: Dropin) -> None:
    memory = Memory(8)
    store.put("k", b"v")
    assert store.put_from("l", 0, 8) == -600
    assert store.put_from("l", memory.ptr, 0) == -600
    assert store.put_from("l", memory.ptr, -1) == -600
    assert store.get_into("k", 0, 8) == -600
    assert store.get_into("k", memory.ptr, 0) == -600
    assert store.is_exist("l") == 0
    with pytest.raises(TypeError):
        store.put_from("l", None, 8)  # type: ignore[arg-type]


def test_batches_answer_each_key_at_its_index(store: Dropin) -> None:
    source, target = Memory(pattern(300)), Memory(300)
    pointers = [source.ptr, source.ptr + 100, 0]
    assert store.batch_put_from(["a", "b", "c"], pointers, [100, 200, 5]) == [0, 0, -600]
    assert store.batch_put_from(["a", "", "d"], [source.ptr] * 3, [5, 5, 5]) == [0, -600, 0]
    assert store.batch_put_from(["a", "b"], [source.ptr], [1]) == [-600, -600]
    answers = store.batch_get_into(
        ["a", "missing", "b", "d"], [target.ptr, target.ptr, target.ptr + 100, target.ptr], [100, 100, 199, 0]
    )
    assert answers == [100, -704, -600, -600]
    assert target.bytes(0, 100) == source.bytes(0, 100)
    assert store.batch_get_into(["a"], [], []) == [-600]
    assert store.batch_get_into([], [], []) == []
    assert store.batch_upsert_from(["a", "n"], [source.ptr] * 2, [1, 2]) == [0, 0]
    assert store.get_batch(["a", "n"]) == [source.bytes(0, 1), source.bytes(0, 2)]
    assert {type(answer) for answer in answers} == {int}


def test_metadata_comes_before_the_data(store: Dropin) -> None:
    data, metadata = Memory(b"data"), Memory(b"meta-")
    assert store.put_from_with_metadata("k", data.ptr, metadata.ptr, 4, 5) == 0
    assert store.get("k") == b"meta-data"
    assert store.put_from_with_metadata("l", data.ptr, 0, 4, 5) == -600


def test_pieces_are_joined_and_spread(store: Dropin) -> None:
    """vLLM's layout: one block is a piece of every layer, at arbitrary offsets of one range."""
    layers, piece, blocks = 30, 4096, 3
    cache = Memory(pattern(layers * blocks * piece))
    loaded = Memory(cache.size)

    def addresses(base: int, block: int) -> list[int]:
        return [base + (layer * blocks + block) * piece for layer in range(layers)]

    keys = [f"block{block}" for block in range(blocks)]
    sizes = [[piece] * layers] * blocks
    assert (
        store.batch_put_from_multi_buffers(keys, [addresses(cache.ptr, b) for b in range(blocks)], sizes)
        == [0] * 3
    )
    answers = store.batch_get_into_multi_buffers(
        keys, [addresses(loaded.ptr, b) for b in range(blocks)], sizes
    )
    assert answers == [layers * piece] * blocks
    assert loaded.bytes() == cache.bytes()
    assert {type(answer) for answer in answers} == {int}


def test_spreading_stops_where_the_value_ends(store: Dropin) -> None:
    store.put("k", b"abcdef")
    target = Memory(20)
    pieces = [[target.ptr, target.ptr + 8, target.ptr + 16]]
    assert store.batch_get_into_multi_buffers(["k"], pieces, [[4, 4, 4]]) == [6]
    assert target.bytes() == b"abcd" + b"\xee" * 4 + b"ef" + b"\xee" * 10
    assert store.batch_get_into_multi_buffers(["k"], pieces, [[2, 2, 1]]) == [-600]


def test_threads_spread_their_values_side_by_side(store: Dropin) -> None:
    """The memory between is used again by the next call, and never by two at once."""
    size, pieces = 30_000, 3
    values = {f"k{number}": bytes([number]) * size for number in range(4)}
    assert [store.put(key, value) for key, value in values.items()] == [0] * 4
    wrong: list[str] = []

    def read(key: str) -> None:
        target = Memory(size + pieces)
        piece = size // pieces
        places = [target.ptr + index * (piece + 1) for index in range(pieces)]
        for _ in range(50):
            [answer] = store.batch_get_into_multi_buffers([key], [places], [[piece] * pieces])
            read = target.bytes()
            joined = b"".join(read[index * (piece + 1) :][:piece] for index in range(pieces))
            if answer != size or joined != values[key]:
                wrong.append(key)

    threads = [threading.Thread(target=read, args=(key,)) for key in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_pieces_may_be_given_by_numbers_of_numpy(store: Dropin) -> None:
    memory = Memory(b"abcdef")
    pointers, sizes = np.array([memory.ptr, memory.ptr + 4]), np.array([2, 2])
    assert store.batch_put_from_multi_buffers(["n"], [pointers], [sizes]) == [0]
    target = Memory(6)
    pointers = np.array([target.ptr, target.ptr + 4])
    assert store.batch_get_into_multi_buffers(["n"], [pointers], [sizes]) == [4]
    assert target.bytes() == b"ab" + b"\xee" * 2 + b"ef"


def test_pieces_that_cannot_be(store: Dropin) -> None:
    memory = Memory(b"abcdef")
    p = memory.ptr
    assert store.batch_put_from_multi_buffers(["a", "b"], [[p, p + 2], []], [[2, 1], []]) == [0, -600]
    assert store.get("a") == b"abc"
    assert store.batch_put_from_multi_buffers(["c"], [[p, p]], [[1]]) == [-600]
    assert store.batch_put_from_multi_buffers(["c", "d"], [[p]], [[1]]) == [-600, -600]
    assert store.batch_put_from_multi_buffers(["c", "d"], [[0], [p]], [[1], [1]]) == [-600, 0]
    assert store.batch_get_into_multi_buffers(["a", "missing", "a"], [[p], [p], []], [[6], [6], []]) == [
        3,
        -704,
        -600,
    ]
    assert store.batch_get_into_multi_buffers(["a"], [], []) == [-600]


def test_thousands_of_pieces(store: Dropin) -> None:
    """More than the kernel takes in one call."""
    memory, target = Memory(pattern(20_000)), Memory(20_000)
    apart = [memory.ptr + 4 * index for index in range(5_000)]
    assert store.batch_put_from_multi_buffers(["k"], [apart], [[3] * 5_000]) == [0]
    there = [target.ptr + 4 * index for index in range(5_000)]
    assert store.batch_get_into_multi_buffers(["k"], [there], [[3] * 5_000]) == [15_000]
    gap = b"\xee"
    assert target.bytes() == b"".join(memory.bytes(at, at + 3) + gap for at in range(0, 20_000, 4))


def test_ranges_of_values(store: Dropin) -> None:
    value = pattern(256)
    store.put("b", value)
    target = Memory(100)
    answers = store.get_into_ranges(
        [target.ptr], [["b", "missing"]], [[[0, 10, 20], [0]]], [[[250, 5, 256], [0]]], [[[10, 10, 0], [1]]]
    )
    assert answers == [[[-600, 10, 0], [-704]]]
    assert target.bytes() == b"\xee" * 10 + value[5:15] + b"\xee" * 80
    assert store.get_into_ranges([target.ptr], [["b"]], [[[0]]], [[[0, 1]]], [[[5]]]) == [[[-600]]]
    assert store.get_into_ranges([target.ptr], [["b"]], [], [], [[[1]]]) == [[[-600]]]
    assert store.get_into_ranges([], [], [], [], []) == []


def test_put_session_is_seen_when_it_ends(store: Dropin) -> None:
    memory = Memory(b"abcdefgh")
    assert store.batch_put_session_start(["k", ""], [10, 5]) == [0, -600]
    assert store.batch_put_session_start(["k"], [10]) == [-600]
    assert store.batch_put_from_multi_buffer_ranges(
        ["k"], [[memory.ptr, memory.ptr + 4]], [[2, 3]], [[5, 0]]
    ) == [5]
    assert store.is_exist("k") == 0
    assert store.batch_put_from_multi_buffer_ranges(["k"], [[memory.ptr]], [[3]], [[8]]) == [-600]
    assert store.batch_put_from_multi_buffer_ranges(["other"], [[memory.ptr]], [[3]], [[0]]) == [-600]
    assert store.batch_put_session_end(["k", "other"]) == [0, -600]
    assert store.get("k") == b"efg\0\0ab\0\0\0"
    assert store.batch_put_session_start(["k"], [10]) == [-705]


def test_revoked_session_leaves_nothing(store: Dropin) -> None:
    assert store.batch_put_session_start(["k"], [10]) == [0]
    assert store.batch_put_session_revoke(["k", "other"]) == [0, -600]
    assert store.batch_put_session_end(["k"]) == [-600]
    assert store.is_exist("k") == 0


def test_get_session_reads_ranges_of_one_value(store: Dropin) -> None:
    store.put_batch(["a", "b"], [b"0123456789", b"abcdefghij"])
    memory = Memory(10)
    assert store.batch_get_session_start(["a", "missing", "b"]) == [0, -704, 0]
    store.upsert("a", b"another")
    reads = ([[memory.ptr, memory.ptr + 5], [memory.ptr + 8]], [[2, 2], [2]], [[0, 4], [8]])
    assert store.batch_get_into_multi_buffer_ranges(["a", "b"], *reads) == [4, 2]
    assert memory.bytes() == b"01\xee\xee\xee45\xeeij"
    assert store.batch_get_into_multi_buffer_ranges(["a"], [[memory.ptr]], [[5]], [[6]]) == [-600]
    assert store.batch_get_into_multi_buffer_ranges(["missing"], [[memory.ptr]], [[5]], [[0]]) == [-600]
    assert store.batch_get_session_end(["a", "b", "missing"]) == 0
    assert store.batch_get_into_multi_buffer_ranges(["a"], [[memory.ptr]], [[1]], [[0]]) == [-600]


def read_bytes(store: Dropin) -> int:
    """What the nodes of this store have sent so far."""
    assert store._membership is not None
    nodes = set(store._membership._nodes.values())
    return sum(node.status()["stats"]["read_bytes_total"] for node in nodes)


def test_a_range_costs_its_own_bytes_alone(store: Dropin) -> None:
    """The whole value was read for each."""
    value = os.urandom(4 * MIB)
    assert store.put("k", value) == 0
    target = Memory(bytes(1000))
    before = read_bytes(store)
    sources = [0, 12_345, len(value) - 100]
    answers = store.get_into_ranges(
        [target.ptr], [["k"]], [[[0, 100, 200]]], [[sources]], [[[100, 100, 100]]]
    )
    assert answers == [[[100, 100, 100]]]
    assert target.bytes()[:300] == b"".join(value[at : at + 100] for at in sources)
    assert target.bytes()[300:] == bytes(700)
    assert read_bytes(store) - before == 300


def test_ranges_of_many_values_and_what_cannot_be_among_them(store: Dropin) -> None:
    values = {f"k{number}": os.urandom(100_000 + number) for number in range(40)}
    assert store.put_batch(list(values), list(values.values())) == 0
    target = Memory(bytes(50 * 10))
    keys = [*values, "missing", "k0", "k1"]
    count = len(keys)
    targets = [[number * 10] for number in range(40)] + [[400], [410], [420]]
    sources = [[number * 1_000] for number in range(40)] + [[0], [99_995], [99_995]]
    sizes = [[10]] * 41 + [[6], [6]]
    answers = store.get_into_ranges([target.ptr], [keys], [targets], [sources], [sizes])
    assert answers == [[[10]] * 40 + [[-704], [-600], [6]]]
    assert len(answers[0]) == count
    for number, value in enumerate(values.values()):
        at = number * 1_000
        assert target.bytes()[number * 10 : number * 10 + 10] == value[at : at + 10]
    assert target.bytes()[420:426] == values["k1"][99_995:]


def test_of_ranges_into_one_place_the_last_stays(store: Dropin) -> None:
    """Received at once they would be written over each other, and match no checksum."""
    value = os.urandom(100_000)
    assert store.put("k", value) == 0
    target = Memory(bytes(300))
    answers = store.get_into_ranges(
        [target.ptr], [["k"]], [[[0, 100, 50]]], [[[0, 1_000, 2_000]]], [[[100, 100, 100]]]
    )
    assert answers == [[[100, 100, 100]]]
    assert target.bytes()[:200] == value[:50] + value[2_000:2_100] + value[1_050:1_100]


def test_a_value_too_large_to_be_checked_for_a_part_is_read_whole(store: Dropin) -> None:
    value = os.urandom(33 * MIB)
    assert store.put("k", value) == 0
    target = Memory(bytes(100))
    before = read_bytes(store)
    assert store.get_into_ranges([target.ptr], [["k"]], [[[0]]], [[[32 * MIB]]], [[[100]]]) == [[[100]]]
    assert target.bytes() == value[32 * MIB : 32 * MIB + 100]
    assert read_bytes(store) - before == len(value)


def test_all_ranges_of_a_key_are_of_one_value(store: Dropin) -> None:
    """An upsert between them must not give half of one value and half of another."""
    size, count = 2_000, 50
    assert store.put("k", b"0" * size) == 0
    stop = threading.Event()

    def replace() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            store.upsert("k", b"%d" % (number % 10) * size)

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        target = Memory(bytes(count * 10))
        offsets = [number * 10 for number in range(count)]
        for _ in range(200):
            [[answers]] = store.get_into_ranges(
                [target.ptr], [["k"]], [[offsets]], [[offsets]], [[[10] * count]]
            )
            assert answers == [10] * count
            assert len(set(target.bytes())) == 1
    finally:
        stop.set()
        writer.join()


def test_ranges_of_a_key_that_is_replaced_meanwhile_are_read_again(
    store: Dropin, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.put("k", b"new value") == 0
    client = store._client()
    assert client is not None
    asked: list[int] = []

    class Replacing:
        """Says of the first answer that its ranges are of two values."""

        def __getattr__(self, name: str) -> Any:
            return getattr(client, name)

        def get_ranges_many(self, keys: Any, offsets: Any, targets: Any) -> tuple[list[int], list[int]]:
            asked.append(len(keys))
            statuses, put_ids = client.get_ranges_many(keys, offsets, targets)
            return statuses, [7, 8] if len(asked) == 1 else put_ids

    replacing: Any = Replacing()
    monkeypatch.setattr(store, "_client", lambda: replacing)
    target = Memory(bytes(8))
    answers = store.get_into_ranges([target.ptr], [["k"]], [[[0, 4]]], [[[0, 4]]], [[[3, 4]]])
    assert (answers, asked) == ([[[3, 4]]], [2, 2])
    assert target.bytes() == b"new\0valu"
