"""Tensors whole, in files and in shards: their bytes, what reads them back, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dropin.memory import Memory

from mooncake_client.dropin import (
    MooncakeDistributedStore,
    ParallelAxis,
    ReadTarget,
    ReplicateConfig,
    TensorParallelism,
)
from mooncake_client.dropin.tensor_format import (
    HEADER_BYTES,
    Axis,
    Header,
    Manifest,
    parse_header,
    parse_manifest,
)

Dropin = MooncakeDistributedStore
HAS_TORCH = importlib.util.find_spec("torch") is not None
T = np.arange(24, dtype=np.float32).reshape(4, 6)


def numpy_of(tensor: Any) -> Any:
    """What was read, whichever library it came as."""
    assert tensor is not None
    return tensor.numpy() if HAS_TORCH else tensor


def is_same(tensor: Any, array: Any) -> bool:
    got = numpy_of(tensor)
    return got.dtype == array.dtype and got.shape == array.shape and bool((got == array).all())


def fields(value: bytes) -> tuple[Any, ...]:
    return struct.unpack("<IHHiiIIQQ8q8qII", value[:176])


def axis_fields(value: bytes, index: int = 0) -> tuple[Any, ...]:
    return struct.unpack_from("<6iq", value, 176 + 32 * index)


# ---- the bytes, as Mooncake's wheel writes them


def test_header_of_a_whole_tensor(store: Dropin) -> None:
    assert store.put_tensor("k", T) == 0
    value = store.get("k")
    unused = (-1,) * 6
    assert fields(value) == (
        *(0x4D4F4F4E, 1, 304, 0, 2, 0, 0, 304, 96),
        *(4, 6, *unused),
        *(4, 6, *unused),
        *(0, 0),
    )
    assert value[176:304] == bytes(128)
    assert value[304:] == T.tobytes()


def test_header_of_a_shard(store: Dropin) -> None:
    assert store.put_tensor_with_tp("k", T, 0, 2, 1) == 0
    assert store.is_exist("k") == 0
    for rank in range(2):
        value = store.get(f"k_tp_{rank}")
        assert fields(value)[5] == 1
        assert fields(value)[9:11] == (4, 6)
        assert fields(value)[17:19] == (4, 3)
        assert fields(value)[25] == 1
        assert axis_fields(value) == (1, 0, rank, 2, 1, 0, 3)
        assert value[304:] == T[:, rank * 3 : rank * 3 + 3].tobytes()


def test_manifest_of_shards(store: Dropin) -> None:
    assert store.put_tensor_with_parallelism("k", T, tp(0, 2, 1)) == 0
    assert store.get("k__parallelism_manifest") == bytes.fromhex(
        "4e414d570100600000000000020000000100000002000000000000000000000004000000000000000c00000000000000"
        + "ff" * 48
    )


@pytest.mark.parametrize(
    "header",
    [
        Header(3, (), ()),
        Header(12, (2, 0, 5), (2, 0, 5)),
        Header(14, (1,) * 8, (1,) * 8),
        Header(
            0,
            (2, 3),
            (4, 3),
            (Axis(1, 1, 2, 0, 0, 2), Axis(0, 3, 4), Axis(2, 0, 2, -1, 7), Axis(3, 1, 2, -1, 1)),
        ),
    ],
)
def test_header_is_read_as_it_was_written(header: Header) -> None:
    packed = header.pack()
    assert len(packed) == HEADER_BYTES
    assert parse_header(packed, HEADER_BYTES + header.data_bytes) == header


def test_headers_that_lie_are_refused() -> None:
    good = Header(0, (2, 3), (2, 3)).pack()
    assert parse_header(good, HEADER_BYTES + 24) is not None
    assert parse_header(good, HEADER_BYTES + 23) is None
    assert parse_header(good, HEADER_BYTES + 25) is None
    assert parse_header(good[:-1], HEADER_BYTES + 24) is None
    for offset, value in (
        (0, 1),
        (4, 9),
        (6, 1),
        (8, 15),
        (8, -1),
        (12, 9),
        (12, -1),
        (24, 0),
        (168, 5),
        (104, -3),
    ):
        bad = bytearray(good)
        struct.pack_into("<h" if offset in (4, 6) else "<i", bad, offset, value)
        assert parse_header(bytes(bad), HEADER_BYTES + 24) is None, offset


def test_manifests_that_lie_are_refused() -> None:
    manifest = Manifest(2, 1, 4, (3, 8))
    packed = manifest.pack()
    assert parse_manifest(packed) == manifest
    assert parse_manifest(packed[:-1]) is None
    for offset, value in ((0, 1), (8, 99), (12, 1), (16, 2), (20, 0)):
        bad = bytearray(packed)
        struct.pack_into("<i", bad, offset, value)
        assert parse_manifest(bytes(bad)) is None, offset


# ---- whole tensors


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "float64",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "bool",
        "float16",
    ],
)
def test_tensor_of_each_dtype_comes_back(store: Dropin, dtype: str) -> None:
    array = (np.arange(30) % 2).astype(dtype).reshape(5, 6)
    assert store.put_tensor("k", array.T) == 0
    assert is_same(store.get_tensor("k"), array.T)


@pytest.mark.parametrize("shape", [(), (0, 3), (1,) * 8])
def test_tensor_of_each_shape_comes_back(store: Dropin, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype=np.int64)
    assert store.put_tensor("k", array) == 0
    assert is_same(store.get_tensor("k"), array)


def test_what_is_not_a_tensor_is_refused_at_its_index(store: Dropin) -> None:
    for value in (b"bytes", 3, None, np.zeros(2, dtype=np.complex64), np.zeros((1,) * 9), T.astype(">f4")):
        assert store.put_tensor("k", value) == -600
    assert store.batch_put_tensor(["a", "b"], [T, 3]) == [0, -600]
    assert store.batch_put_tensor(["c", "d"], [T]) == [-600, -600]
    assert store.batch_is_exist(["a", "b", "c"]) == [1, 0, 0]


def test_what_is_not_stored_as_a_tensor_is_none(store: Dropin) -> None:
    store.put_batch(["plain", "long"], [b"x" * 10, b"x" * 400])
    assert store.batch_get_tensor(["plain", "long", "missing"]) == [None, None, None]
    assert store.get_tensor("plain") is None


def test_put_keeps_and_upsert_replaces(store: Dropin) -> None:
    assert store.put_tensor("k", T) == 0
    assert store.pub_tensor("k", T + 1, ReplicateConfig()) == 0
    assert is_same(store.get_tensor("k"), T)
    assert store.upsert_tensor("k", T + 2) == 0
    assert is_same(store.get_tensor("k"), T + 2)
    assert store.upsert_pub_tensor("k", T + 3) == 0
    assert store.batch_upsert_tensor(["k"], [T + 4]) == [0]
    assert store.batch_upsert_pub_tensor(["k", "l"], [T + 5, T]) == [0, 0]
    assert store.batch_pub_tensor(["k", "m"], [T, T]) == [0, 0]
    [k, m] = store.batch_get_tensor(["k", "m"])
    assert is_same(k, T + 5)
    assert is_same(m, T)


def test_tensor_into_and_from_memory(store: Dropin) -> None:
    store.put_tensor("k", T)
    memory = Memory(1000)
    tensor = store.get_tensor_into("k", memory.ptr, memory.size)
    assert is_same(tensor, T)
    assert memory.bytes(0, 400) == store.get("k")
    numpy_of(tensor)[0, 0] = 7
    assert memory.bytes(304, 308) == struct.pack("<f", 7), "it is the caller's memory"
    assert store.get_tensor_into("k", memory.ptr, 399) is None
    assert store.get_tensor_into("missing", memory.ptr, 1000) is None
    assert store.get_tensor_into("k", 0, 1000) is None
    found = store.batch_get_tensor_into(["k", "missing"], [memory.ptr, memory.ptr + 500], [500, 500])
    assert [one is None for one in found] == [False, True]
    assert store.batch_get_tensor_into(["k", "l"], [memory.ptr], [1]) == [-600, -600]
    assert store.put_tensor_from("from", memory.ptr, 400) == 0
    assert is_same(store.get_tensor("from"), T)
    for size in (399, 401, 303):
        assert store.put_tensor_from("bad", memory.ptr, size) == -600
    assert store.batch_put_tensor_from(["a", "b"], [memory.ptr, memory.ptr + 8], [400, 400]) == [0, -600]
    assert store.batch_put_tensor_from(["a"], [], []) == [-600]
    assert store.upsert_tensor_from("from", memory.ptr, 400) == 0
    assert store.batch_upsert_tensor_from(["from"], [memory.ptr], [400]) == [0]


def test_tensors_to_device_memory_are_not_supported(store: Dropin) -> None:
    assert store.get_tensor_into_cuda("k", T) == -1012
    assert store.batch_get_tensor_into_cuda(["k", "l"], [T, T]) == [-1012, -1012]


def test_safetensors_files(store: Dropin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put_tensor("k", T)
    path = tmp_path / "a.safetensors"
    assert store.save_tensor_to_safetensor("k", str(path)) == 0
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0
    assert json.loads(content[8 : 8 + length]) == {
        "k": {"dtype": "F32", "shape": [4, 6], "data_offsets": [0, 96]}
    }
    assert content[8 + length :] == T.tobytes()
    assert store.save_tensor_to_safetensor("missing", str(path)) == -1100
    assert store.save_tensor_to_safetensor("k", str(tmp_path / "no" / "such")) == -600
    assert is_same(store.load_tensor_from_safetensor("copy", str(path)), T)
    assert is_same(store.get_tensor("copy"), T)
    monkeypatch.chdir(tmp_path)
    assert store.save_tensor_to_safetensor("k") == 0
    assert is_same(store.load_tensor_from_safetensor(file_name="k"), T)
    assert store.load_tensor_from_safetensor(file_name="none") is None
    for bad in (b"", b"\xff" * 20, content[:-1], struct.pack("<Q", 2) + b"{}"):
        path.write_bytes(bad)
        assert store.load_tensor_from_safetensor("bad", str(path)) is None
    assert store.is_exist("bad") == 0
    with pytest.raises(TypeError):
        store.load_tensor_from_safetensor("k")


# ---- shards


def parallelism(*axes: dict[str, Any]) -> TensorParallelism:
    made = TensorParallelism()
    for settings in axes:
        axis = ParallelAxis()
        for name, value in settings.items():
            setattr(axis, name, value)
        made.axes.append(axis)
    return made


def tp(rank: int, size: int, split_dim: int) -> TensorParallelism:
    return parallelism({"kind": "tp", "rank": rank, "size": size, "split_dim": split_dim})


def target(mode: str, of: TensorParallelism | None = None) -> ReadTarget:
    made = ReadTarget()
    made.mode, made.parallelism = mode, of
    return made


class Writer:
    def __init__(self, rank: int, size: int, split_dim: int) -> None:
        self.rank, self.size, self.split_dim = rank, size, split_dim


def test_shards_of_tensor_parallelism(store: Dropin) -> None:
    assert store.put_tensor_with_tp("k", T, 1, 2, 1) == 0
    for rank in range(2):
        assert is_same(store.get_tensor_with_tp("k", rank, 2, 1), T[:, rank * 3 : rank * 3 + 3])
    assert store.get_tensor_with_tp("k", 2, 2) is None
    assert store.get_tensor_with_tp("k") is None
    assert store.get_tensor_with_tp("k", 0, 4) is None, "a shard of another division is none of this one"
    [k, missing] = store.batch_get_tensor_with_tp(["k", "missing"], 1, 2)
    assert is_same(k, T[:, 3:])
    assert missing is None
    assert store.put_tensor_with_tp("whole", T) == 0
    assert is_same(store.get_tensor("whole"), T)
    assert store.put_tensor_with_tp("k", T, 0, 4, 1) == -600
    assert store.put_tensor_with_tp("k", T, 0, 2, 5) == -600
    assert store.batch_put_tensor_with_tp(["a", "b"], [T], 0, 2) == [-600, -600]
    assert store.batch_put_tensor_with_tp(["a", "b"], [T, b""], 0, 2) == [0, -600]
    assert store.pub_tensor_with_tp("p", T, ReplicateConfig(), 0, 2, 0) == 0
    assert store.batch_pub_tensor_with_tp(["p"], [T], tp_size=2) == [0]
    assert is_same(store.get_tensor_with_tp("p", 1, 2), T[2:])


def test_shards_to_and_from_memory(store: Dropin) -> None:
    store.put_tensor("k", T)
    memory = Memory(1200)
    store.get_tensor_into("k", memory.ptr, 400)
    assert store.put_tensor_with_tp_from("s", memory.ptr, 400, 1, 2, 0) == 0
    assert store.batch_put_tensor_with_tp_from(["a", "b"], [memory.ptr, 0], [400, 400], 0, 2, 0) == [0, -600]
    assert store.batch_put_tensor_with_tp_from(["a", "b"], [memory.ptr], [400]) == [-600, -600]
    assert is_same(store.get_tensor_with_tp_into("s", memory.ptr + 400, 400, 1, 2, 0), T[2:])
    assert store.get_tensor_with_tp_into("s", memory.ptr + 400, 320, 1, 2, 0) is None
    found = store.batch_get_tensor_with_tp_into(
        ["a", "zz"], [memory.ptr + 400, memory.ptr + 800], [400, 400], 0, 2
    )
    assert is_same(found[0], T[:2])
    assert found[1] is None
    assert store.batch_get_tensor_with_tp_into(["a"], [1, 2], [3], 0, 2) == [-600]


def test_ranks_put_their_shards_and_anyone_reads_any_division(store: Dropin) -> None:
    left, right = T, T + 100
    whole = np.concatenate([left, right], axis=1)
    assert store.put_tensor_with_parallelism("k", left, tp(0, 2, 1)) == 0
    assert store.get_tensor_with_parallelism("k", target("full", tp(0, 2, 1))) is None, "a shard is missing"
    assert store.put_tensor_with_parallelism("k", right, tp(1, 2, 1)) == 0
    for mode, of, wanted in (
        ("shard", tp(0, 2, 1), left),
        ("shard", tp(1, 2, 1), right),
        ("full", tp(0, 2, 1), whole),
        ("full", None, whole),
        ("shard", tp(3, 4, 1), whole[:, 9:]),
        ("shard", tp(1, 2, 0), whole[2:]),
        ("shard", tp(0, 1, 0), whole),
    ):
        assert is_same(store.get_tensor_with_parallelism("k", target(mode, of)), wanted), mode
    assert store.get_tensor_with_parallelism("k") is None
    assert store.get_tensor_with_parallelism("k", target("shard", tp(0, 5, 1))) is None
    with pytest.raises(RuntimeError, match="Unsupported ReadTarget mode"):
        store.get_tensor_with_parallelism("k", target("bogus"))
    memory = Memory(1000)
    into = store.get_tensor_with_parallelism_into("k", memory.ptr, 1000, target("full"))
    assert is_same(into, whole)
    header = parse_header(memory.bytes(0, 304), 304 + whole.nbytes)
    assert header == Header(0, (4, 12), (4, 12))
    assert (
        store.get_tensor_with_parallelism_into("k", memory.ptr, 304 + whole.nbytes - 1, target("full"))
        is None
    )


def test_upsert_of_a_shard(store: Dropin) -> None:
    assert store.put_tensor_with_parallelism("k", T, tp(0, 2, 0)) == 0
    assert store.upsert_tensor_with_parallelism("k", T + 1, tp(0, 2, 0)) == 0
    assert is_same(store.get_tensor_with_parallelism("k", target("shard", tp(0, 2, 0))), T + 1)
    assert store.batch_upsert_tensor_with_parallelism(["k"], [T + 2], [tp(0, 2, 0)]) == [0]
    assert store.batch_put_tensor_with_parallelism(["a", "b"], [T, T], [tp(0, 2, 0)]) == [-600, -600]
    assert store.batch_put_tensor_with_parallelism(["a", "b"], [T, T]) == [0, 0]
    [a, missing] = store.batch_get_tensor_with_parallelism(["a", "zz"])
    assert is_same(a, T)
    assert missing is None
    assert store.batch_get_tensor_with_parallelism(["a", "b"], [target("full")]) == [None, None]


@pytest.mark.parametrize(
    ("axes", "key", "shape", "stored"),
    [
        ([{"kind": "dp", "rank": 1, "size": 2}], "k__dp_1of2", (4, 6), [(0, 0, 1, 2, -1, 0, 0)]),
        (
            [{"kind": "ep", "rank": 1, "size": 2, "expert_id": 3}],
            "k__ep_1of2_eid3",
            (4, 6),
            [(2, 0, 1, 2, -1, 3, 0)],
        ),
        (
            [{"kind": "pp", "rank": 1, "size": 2, "stage_id": 1}],
            "k__pp_1of2_sid1",
            (4, 6),
            [(3, 0, 1, 2, -1, 1, 0)],
        ),
        (
            [{"kind": "tp", "rank": 1, "size": 2, "split_dim": 0}, {"kind": "dp", "rank": 0, "size": 2}],
            "k__dp_0of2__tp_1of2_sd0",
            (2, 6),
            [(1, 0, 1, 2, 0, 0, 2), (0, 1, 0, 2, -1, 0, 0)],
        ),
        (
            [
                {"kind": "pp", "rank": 0, "size": 2, "stage_id": 1},
                {"kind": "ep", "rank": 0, "size": 4, "expert_id": 2},
                {"kind": "dp", "rank": 1, "size": 2},
                {"kind": "tp", "rank": 1, "size": 2, "split_dim": 1},
            ],
            "k__dp_1of2__tp_1of2_sd1__ep_0of4_eid2__pp_0of2_sid1",
            (4, 3),
            [(3, 0, 0, 2, -1, 1, 0), (2, 1, 0, 4, -1, 2, 0), (0, 2, 1, 2, -1, 0, 0), (1, 3, 1, 2, 1, 0, 3)],
        ),
    ],
)
def test_shard_along_several_axes(
    store: Dropin, axes: list[dict[str, Any]], key: str, shape: tuple[int, ...], stored: list[tuple[int, ...]]
) -> None:
    of = parallelism(*axes)
    assert store.put_tensor_with_parallelism("k", T, of) == 0
    value = store.get(key)
    assert fields(value)[9:11] == (4, 6)
    assert fields(value)[17:19] == shape
    assert [axis_fields(value, index) for index in range(fields(value)[25])] == stored
    assert numpy_of(store.get_tensor_with_parallelism("k", target("shard", of))).shape == shape


@pytest.mark.parametrize(
    "axes",
    [
        [],
        [{"kind": "tp", "rank": 0, "size": 2}],
        [{"kind": "tp", "rank": 2, "size": 2, "split_dim": 0}],
        [{"kind": "tp", "rank": 0, "size": 2, "split_dim": -1}],
        [{"kind": "tp", "rank": 0, "size": 2, "split_dim": 2}],
        [{"kind": "zz", "rank": 0, "size": 2}],
        [{"kind": "ep", "rank": 0, "size": 2}],
        [{"kind": "ep", "rank": 0, "size": 2, "expert_id": 1, "split_dim": 0}],
        [{"kind": "pp", "rank": 1, "size": 2}],
        [{"kind": "tp", "rank": 0, "size": 2, "split_dim": 0}] * 2,
    ],
)
def test_axes_that_cannot_be(store: Dropin, axes: list[dict[str, Any]]) -> None:
    assert store.put_tensor_with_parallelism("k", T, parallelism(*axes)) == -600
    assert store.get_tensor_with_parallelism("k", target("shard", parallelism(*axes))) is None


def test_writers_put_their_parts_of_a_whole(store: Dropin) -> None:
    for rank in range(2):
        assert store.put_tensor_with_parallelism("k", T, None, ReplicateConfig(), Writer(rank, 2, 0)) == 0
    assert store.get_size("k__writer_0of2_sd0") == 304 + 48
    assert parse_manifest(store.get("k__writer_manifest")) == Manifest(0, 0, 2, (4, 6))
    assert is_same(store.get_tensor_with_parallelism("k", target("full")), T)
    assert is_same(store.get_tensor_with_parallelism("k", target("shard", tp(1, 3, 1))), T[:, 2:4])
    assert store.put_tensor_with_parallelism("k", T, tp(0, 2, 0), ReplicateConfig(), Writer(0, 2, 0)) == -600
    assert store.put_tensor_with_parallelism("k", T, None, ReplicateConfig(), Writer(0, 3, 0)) == -600


def test_parallel_shards_from_memory(store: Dropin) -> None:
    store.put_tensor("k", T)
    memory = Memory(400)
    store.get_tensor_into("k", memory.ptr, 400)
    assert store.put_tensor_with_parallelism_from("a", memory.ptr, 400, tp(0, 2, 1)) == 0
    assert [store.get_size(f"a_tp_{rank}") for rank in range(2)] == [352, 352]
    assert is_same(store.get_tensor_with_parallelism("a", target("full")), T)
    assert (
        store.put_tensor_with_parallelism_from("b", memory.ptr, 400, None, ReplicateConfig(), Writer(1, 2, 0))
        == 0
    )
    assert store.get_size("b__writer_1of2_sd0") == 352
    assert store.batch_put_tensor_with_parallelism_from(["c", "d"], [memory.ptr, memory.ptr], [400, 399]) == [
        0,
        -600,
    ]
    assert store.upsert_tensor_with_parallelism_from("c", memory.ptr, 400) == 0
    assert store.batch_upsert_tensor_with_parallelism_from(["c"], [memory.ptr], [400]) == [0]
    found = store.batch_get_tensor_with_parallelism_into(["c"], [memory.ptr], [400])
    assert is_same(found[0], T)
    assert store.batch_get_tensor_with_parallelism_into(["c", "d"], [memory.ptr], [400]) == [None, None]


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_torch_tensors(store: Dropin) -> None:
    import torch

    for kind in (torch.bfloat16, torch.float8_e4m3fn, torch.float32, torch.bool):
        tensor = torch.arange(12).reshape(3, 4).to(kind)
        assert store.upsert_tensor("k", tensor.t()) == 0
        found: Any = store.get_tensor("k")
        assert found.dtype == kind
        assert torch.equal(found.float(), tensor.t().float())
    assert store.put_tensor("c", torch.zeros(2, dtype=torch.complex64)) == -600
