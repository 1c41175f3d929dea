"""What is put comes back: bytes, dtype and shape, for everything that has bytes; the rest is refused."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import subprocess
import sys
from array import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mooncake_client.values import (
    METADATA_BYTES_MAX,
    Encoded,
    decode,
    encode,
    size_bytes,
    writable_memory,
)
from mooncake_store.errors import InvalidArgument, StoreError


def carried(encoded: Encoded) -> np.ndarray[Any, Any]:
    """The bytes that would arrive: what the native client reads from `encoded.buffer`."""
    if isinstance(encoded.buffer, tuple):
        address, length = encoded.buffer
        return np.frombuffer(ctypes.string_at(address, length), dtype=np.uint8).copy()
    if isinstance(encoded.buffer, np.ndarray):
        assert encoded.buffer.flags.c_contiguous
        return np.frombuffer(encoded.buffer.tobytes(), dtype=np.uint8).copy()
    return np.frombuffer(bytes(memoryview(encoded.buffer).cast("B")), dtype=np.uint8).copy()


def round_trip(value: object) -> Any:
    encoded = encode(value)
    data = carried(encoded)
    assert size_bytes(encoded) == data.size
    return decode(data, encoded.metadata)


DTYPES = [
    *("?", "i1", "u1", "<i2", ">i2", "<u4", ">i8", "<f2", "<f4", ">f8", "<c8", "<c16", "<f16"),
    *("<M8[ns]", "<m8[s]", "<U5", "S3", "V8"),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (2, 3), (0, 4), (2, 0, 3), (1, 2, 3, 4)])
def test_every_plain_dtype_and_shape_comes_back(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    value = np.frombuffer(rng.integers(0, 2, size, dtype=np.uint8).tobytes(), dtype=dtype)
    value = value.reshape(shape) if size else np.empty(shape, dtype=dtype)
    if dtype == "<U5":
        value = np.full(shape, "héllo", dtype=dtype)
    back = round_trip(value)
    assert back.dtype == value.dtype
    assert back.shape == value.shape
    assert back.tobytes() == value.tobytes()
    assert back.flags.writeable


@given(
    hnp.arrays(
        dtype=st.sampled_from([np.int8, np.float32, np.dtype(">u2")]),
        shape=hnp.array_shapes(min_dims=1, max_dims=4, max_side=5),
    ),
    st.data(),
)
def test_what_is_not_contiguous_comes_back_as_it_looked(
    value: np.ndarray[Any, Any], data: st.DataObject
) -> None:
    axes = data.draw(st.permutations(range(value.ndim)))
    step = data.draw(st.sampled_from([1, 2, -1]))
    view = value.transpose(axes)[::step]
    back = round_trip(view)
    assert back.dtype == view.dtype
    assert back.shape == view.shape
    assert np.array_equal(back, view, equal_nan=value.dtype.kind == "f")


def test_a_fortran_order_and_a_broadcast_array_come_back() -> None:
    value = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    assert np.array_equal(round_trip(value), value)
    assert np.array_equal(round_trip(np.broadcast_to(np.int16(3), (2, 5))), np.full((2, 5), 3, np.int16))


def test_a_numpy_scalar_comes_back_with_no_dimensions() -> None:
    back = round_trip(np.float32(1.5))
    assert (back.shape, back.dtype, back[()]) == ((), np.float32, 1.5)


def test_contiguous_arrays_are_not_copied() -> None:
    value = np.arange(8)
    assert np.shares_memory(encode(value).buffer, value)
    whole = bytearray(5)
    assert encode(whole).buffer is whole


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"abc",
        bytearray(b"abc"),
        memoryview(b"abcdef")[::2],
        memoryview(b"abcdefgh").cast("I"),
        array("d", [1.0, 2.0]),
        (ctypes.c_uint32 * 3)(1, 2, 3),
    ],
)
def test_buffers_come_back_as_their_bytes(value: Any) -> None:
    back = round_trip(value)
    assert encode(value).metadata == b""
    assert back.dtype == np.uint8
    assert back.tobytes() == memoryview(value).tobytes()


def test_a_mapped_file_has_bytes() -> None:
    with mmap.mmap(-1, 4096) as mapped:
        mapped[:3] = b"abc"
        assert round_trip(mapped).tobytes()[:3] == b"abc"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("text", "a value of type str has no bytes: encode the text first"),
        (7, "a value of type int has no bytes"),
        (None, "a value of type NoneType has no bytes"),
        ([b"a"], "a value of type list has no bytes"),
        (np.array([object()]), "dtype object has no plain bytes"),
        (np.zeros(2, dtype=[("a", "i4"), ("b", "f4")]), "has no plain bytes"),
        (np.ma.masked_array([1, 2], [0, 1]), "would lose its mask"),
        (np.zeros((1,) * 64), f"bytes of metadata, above {METADATA_BYTES_MAX}"),
    ],
)
def test_what_has_no_bytes_is_refused(value: object, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        encode(value)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (b"n|<f4|3", "the value has 8 bytes; dtype <f4 and shape .3,. need 12"),
        (b"n|<f4|-1", "is not that of a tensor"),
        (b"x|<f4|2", "is not that of a tensor"),
        (b"n|<f4", "is not that of a tensor"),
        (b"\xff\xfe", "is not that of a tensor"),
        (b"n|O|1", "has no plain bytes"),
        (b"n|i4,f4|1", "has no plain bytes"),
        (b"n|nonsense|2", "numpy does not know"),
        (b"n|<f4|" + b"9" * 60, "need"),
    ],
)
def test_metadata_that_does_not_fit_is_an_error_and_never_an_array(metadata: bytes, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        decode(np.zeros(8, dtype=np.uint8), metadata)


def test_extension_dtypes_come_back_by_name() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
        value = np.arange(6).reshape(2, 3).astype(dtype)
        back = round_trip(value)
        assert back.dtype == value.dtype
        assert back.tobytes() == value.tobytes()


# ---- targets


def test_a_target_is_the_callers_own_memory() -> None:
    target = np.zeros((2, 3), dtype=np.int32)
    memory = writable_memory(target)
    assert memory.size_bytes == 24
    memory.buffer.cast("B")[:4] = (7).to_bytes(4, "little")
    assert target[0, 0] == 7


def test_a_target_of_datetimes_has_bytes() -> None:
    target = np.zeros(2, dtype="M8[s]")
    memory = writable_memory(target)
    memory.buffer[:8] = (1).to_bytes(8, "little")
    assert target[0] == np.datetime64(1, "s")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (b"abc", "the target of 3 bytes is read-only"),
        (np.zeros((4, 4))[:, ::2], "is not contiguous"),
        (np.zeros(4, dtype="M8[s]")[::2], "is not contiguous"),
        ("text", "a target of type str has no writable bytes"),
        (np.array([None]), "no writable bytes"),
        (12, "a target of type int has no writable bytes"),
    ],
)
def test_a_target_that_cannot_be_written_is_refused(target: object, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        writable_memory(target)


# ---- torch

torch: Any = None
with contextlib.suppress(ImportError):
    import torch
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")


def torch_dtypes() -> list[Any]:
    names = (
        *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"),
        *("complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64"),
    )
    return [getattr(torch, name) for name in names if torch is not None and hasattr(torch, name)]


@needs_torch
@pytest.mark.parametrize("dtype", torch_dtypes(), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (2, 0)])
def test_every_torch_dtype_comes_back(dtype: Any, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    value = torch.arange(count * dtype.itemsize, dtype=torch.uint8).remainder(2).view(dtype).reshape(shape)
    back = round_trip(value)
    assert isinstance(back, torch.Tensor)
    assert (back.dtype, back.shape) == (dtype, value.shape)
    assert torch.equal(back.reshape(-1).view(torch.uint8), value.reshape(-1).view(torch.uint8))


@needs_torch
def test_torch_views_come_back_as_they_looked() -> None:
    value = torch.arange(24, dtype=torch.bfloat16).reshape(4, 6)
    for view in (value.t(), value[:, ::2], value[1], torch.ones(1).expand(3, 2), value.requires_grad_()):
        assert torch.equal(round_trip(view), view.detach())
    conjugate = torch.tensor([1 + 2j, 3 - 1j]).conj()
    assert torch.equal(round_trip(conjugate), conjugate.resolve_conj())


@needs_torch
def test_torch_tensors_without_plain_bytes_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="a tensor on meta cannot be reached"):
        encode(torch.empty(2, device="meta"))
    with pytest.raises(InvalidArgument, match="has no plain bytes"):
        encode(torch.eye(2).to_sparse())


@needs_torch
def test_a_torch_target_is_its_memory() -> None:
    target = torch.zeros(4, dtype=torch.bfloat16)
    memory = writable_memory(target)
    assert memory.buffer == (target.data_ptr(), 8)
    with pytest.raises(InvalidArgument, match="is not contiguous"):
        writable_memory(torch.zeros(4, 4).t())
    with pytest.raises(InvalidArgument, match="a tensor on meta"):
        writable_memory(torch.empty(2, device="meta"))


def test_a_torch_value_read_without_torch_is_an_array_where_numpy_knows_the_dtype(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    back = decode(np.zeros(8, dtype=np.uint8), b"t|float32|2")
    assert (back.dtype, back.shape) == (np.float32, (2,))
    with pytest.raises(StoreError, match="torch tensor of dtype bfloat16; install torch"):
        decode(np.zeros(4, dtype=np.uint8), b"t|bfloat16|2")


def test_putting_bytes_imports_neither_numpy_nor_torch() -> None:
    program = (
        "import sys; from mooncake_client.values import encode, writable_memory; encode(b'x'); "
        "writable_memory(bytearray(4)); "
        "print([name for name in ('numpy', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
