"""Members of a structured object: arrays, tensors and bytes as payloads, read whole or by rows.

Owns what a manifest says of each member, how one is put, and memory of callers as a target. A tensor's
payload is Mooncake's tensor object: a header of 304 bytes, then its items.
"""

from __future__ import annotations

import ctypes
import math
import numbers
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mooncake_client.dropin.bundles import Bytes, Entry, Payloads, Put, PutMember, bytes_in
from mooncake_client.dropin.codes import OK
from mooncake_client.dropin.tensor_format import DTYPES, HEADER_BYTES, Header, parse_header
from mooncake_client.dropin.tensor_functions import _serialize_tensor
from mooncake_client.dropin.tensor_memory import tensor_in

NDARRAY, BYTES, TENSOR, TENSOR_OBJECT = "ndarray", "bytes", "tensor", "tensor_object"


@dataclass(frozen=True)
class StructuredMemberSlice:
    """Rows of one member: start, end and step along axis 0."""

    axis: int = 0
    start: int | None = None
    end: int | None = None
    step: int | None = 1


@dataclass(frozen=True)
class TensorObjectBuffer:
    """Memory that holds a tensor's header and items. owner: what keeps it; batch_size: rows of the tensor."""

    ptr: int
    size: int
    owner: Any = None
    batch_size: int | None = None
    pre_registered: bool = False


@dataclass(frozen=True)
class RawDestination:
    """Memory to read into, at least as large as what is read. owner: what keeps it."""

    ptr: int
    size: int
    owner: Any = None
    pre_registered: bool = False


def tensor_object_buffer(
    ptr: int, size: int, owner: Any = None, *, batch_size: int | None = None, pre_registered: bool = False
) -> TensorObjectBuffer:
    return TensorObjectBuffer(ptr, size, owner, batch_size, pre_registered)


def raw_destination(ptr: int, size: int, owner: Any = None, pre_registered: bool = False) -> RawDestination:
    return RawDestination(ptr, size, owner, pre_registered)


def is_tensor(value: object) -> bool:
    """Whether it is torch's; torch is not imported for the question."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def memory_of_raw(destination: RawDestination | TensorObjectBuffer) -> Bytes:
    """Over memory that its owner keeps."""
    if destination.size == 0:
        return np.empty(0, dtype=np.uint8)
    return bytes_in((ctypes.c_ubyte * destination.size).from_address(destination.ptr))


# ---- rows


def rows_of(rows: Any, count: int) -> Sequence[int]:
    """Indices of rows from a slice, a StructuredMemberSlice or whole numbers, negative ones from the end."""
    if rows is None:
        return range(count)
    if isinstance(rows, StructuredMemberSlice):
        if rows.axis != 0:
            raise ValueError(f"rows are of axis=0, not {rows.axis}")
        rows = slice(rows.start, rows.end, rows.step)
    if isinstance(rows, slice):
        if rows.step is not None and rows.step <= 0:
            raise ValueError(f"step must be positive, not {rows.step}")
        return range(*rows.indices(count))
    if isinstance(rows, (str, bytes)) or not isinstance(rows, (Sequence, np.ndarray)):
        raise TypeError(f"rows are a slice or a sequence of row indices, not {type(rows).__name__}")
    found = []
    for row in rows:
        if isinstance(row, (bool, np.bool_)) or not isinstance(row, numbers.Integral):
            raise TypeError(f"row indices are whole numbers, not {row!r}")
        index = int(row)
        if not -count <= index < count:
            raise IndexError(f"row {index} is out of range: there are {count}")
        found.append(index % count)
    return found


def row_ranges(rows: Sequence[int], row_bytes: int, start: int = 0) -> list[tuple[int, int]]:
    """(offset, length) of those rows, neighbours joined; none of rows without bytes."""
    ranges: list[tuple[int, int]] = []
    if row_bytes == 0:
        return ranges
    if isinstance(rows, range) and rows.step == 1:
        return [(start + rows.start * row_bytes, len(rows) * row_bytes)] if rows else []
    for row in rows:
        offset = start + row * row_bytes
        if ranges and sum(ranges[-1]) == offset:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + row_bytes)
        else:
            ranges.append((offset, row_bytes))
    return ranges


# ---- put


def prepared(
    payloads: Payloads, name: str, value: Any, put: Put, *, is_registered: bool = False
) -> tuple[dict[str, Any], PutMember]:
    """What the metadata says of a member, and what puts it. Raises TypeError for what can be none."""
    if put.policy.copy_mode == "copy":
        is_registered = False
    spec: dict[str, Any]
    if isinstance(value, TensorObjectBuffer):
        spec = {"encoding": TENSOR_OBJECT, "batch_size": value.batch_size}
        return spec, _tensor_object_put(payloads, value, put)
    if is_tensor(value):
        return _prepared_tensor(payloads, name, value, put)
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError(f"member {name!r} is an array of objects")
        contiguous = np.ascontiguousarray(value)
        data = contiguous.reshape(-1).view(np.uint8) if value.nbytes else np.empty(0, dtype=np.uint8)
        is_own = contiguous is not value or not value.flags.writeable
        spec = {"encoding": NDARRAY, "dtype": value.dtype.str, "shape": list(value.shape)}
    else:
        try:
            view = memoryview(value)
        except TypeError:
            raise TypeError(
                f"member {name!r} is a {type(value).__name__}, neither array, tensor nor bytes"
            ) from None
        data, is_own, spec = bytes_in(view), view.readonly or not view.c_contiguous, {"encoding": BYTES}
    if is_registered and is_own and len(data):
        raise ValueError(
            f"pre-registered structured buffer {name!r} is read-only or not contiguous, so it would be copied"
        )

    def put_member(key: str, written: list[str]) -> Entry:
        return payloads.put_payload(key, data, put, written, is_registered=is_registered)

    return spec, put_member


def _prepared_tensor(
    payloads: Payloads, name: str, tensor: Any, put: Put
) -> tuple[dict[str, Any], PutMember]:
    if put.policy.copy_mode == "zero_copy":
        raise ValueError(
            f"member {name!r}: zero-copy takes a BufferPool tensor-object buffer, not a plain tensor"
        )
    tensor = tensor.detach()
    header, _, nbytes, items = _serialize_tensor(tensor)
    spec = {
        "encoding": TENSOR,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
    }
    size = len(header) + nbytes
    method = "put_tensor" if put.config is None else "pub_tensor"

    def put_member(key: str, written: list[str]) -> Entry:
        if payloads.has(method):
            written.append(key)
            code = payloads.call(method, key, tensor, config=put.config)
            if code != OK:
                raise RuntimeError(f"{method} of {key}: {code}")
            entry: Entry = {
                "key": key,
                "bytes": size,
                "chunks": [{"key": key, "bytes": size}],
                "native": True,
            }
        else:
            data = np.concatenate([bytes_in(header), bytes_in(items)]) if nbytes else bytes_in(header)
            entry = payloads.put_payload(key, data, put, written)
        return {**entry, "metadata_bytes": HEADER_BYTES}

    return spec, put_member


def _tensor_object_put(payloads: Payloads, value: TensorObjectBuffer, put: Put) -> PutMember:
    def put_member(key: str, written: list[str]) -> Entry:
        if not payloads.has("put_tensor_from") or put.policy.copy_mode == "copy" or put.config is not None:
            if put.policy.copy_mode == "zero_copy":
                raise RuntimeError(
                    f"zero-copy put requested of {key}, and the store puts no tensor from memory"
                )
            return payloads.put_payload(key, memory_of_raw(value), put, written)
        written.append(key)
        code = payloads.call("put_tensor_from", key, value.ptr, value.size)
        if code != OK:
            raise RuntimeError(f"put_tensor_from of {key}: {code}")
        return _entry_of_one(key, value.size)

    return put_member


def _entry_of_one(key: str, size: int) -> Entry:
    return {"key": key, "bytes": size, "chunks": [{"key": key, "bytes": size}]}


# ---- read


class Reader:
    """Reads members of objects whose manifests were checked."""

    def __init__(self, payloads: Payloads) -> None:
        self._payloads = payloads

    def read(
        self, name: str, entry: Entry, spec: Mapping[str, Any], *, rows: Any = None, target: Any = None
    ) -> Any:
        """A member whole or by rows (`rows_of`), into memory of its own or of the caller."""
        encoding = spec.get("encoding")
        if encoding == BYTES:
            if rows is not None or target is not None:
                raise ValueError(f"member {name!r} is bytes: it does not support slicing or a destination")
            return self._payloads.read(entry).tobytes()
        if encoding == NDARRAY:
            return self._array(name, entry, spec, rows, target)
        if encoding in (TENSOR, TENSOR_OBJECT):
            return self._tensor(name, entry, encoding, rows, target)
        raise ValueError(f"member {name!r}: unsupported structured field encoding {encoding!r}")

    def bytes_at(self, entry: Entry, ranges: Sequence[tuple[int, int]]) -> Bytes:
        """Those (offset, length) of a payload, joined."""
        data = np.empty(sum(length for _, length in ranges), dtype=np.uint8)
        self._payloads.read_ranges(entry, ranges, data)
        return data

    def _array(self, name: str, entry: Entry, spec: Mapping[str, Any], rows: Any, target: Any) -> Any:
        dtype, shape = np.dtype(spec["dtype"]), tuple(spec["shape"])
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != entry["bytes"]:
            raise ValueError(f"member {name!r}: {entry['bytes']} bytes are no array {shape} of {dtype}")
        ranges = [(0, entry["bytes"])]
        if rows is not None:
            if not shape:
                raise ValueError(f"member {name!r} has no rows: it does not support slicing")
            chosen = rows_of(rows, shape[0])
            ranges = row_ranges(chosen, math.prod(shape[1:]) * dtype.itemsize)
            shape = (len(chosen), *shape[1:])
        array, is_registered = _array_for(name, target, shape, dtype)
        if array.nbytes:
            memory = array.reshape(-1).view(np.uint8)
            self._payloads.read_ranges(entry, ranges, memory, is_registered=is_registered)
        return array

    def _tensor(self, name: str, entry: Entry, encoding: str, rows: Any, target: Any) -> Any:
        if target is not None and not isinstance(target, (TensorObjectBuffer, RawDestination)):
            raise TypeError(f"member {name!r} is a tensor: its destination is memory for header and items")
        if rows is None and target is None:
            return self._whole_tensor(name, entry)
        if rows is None:
            assert target is not None
            size = entry["bytes"]
            if target.size < size:
                raise ValueError(f"member {name!r}: its destination has {target.size} bytes of {size}")
            memory = memory_of_raw(target)[:size]
            split = min(HEADER_BYTES, size)
            ranges = [(0, split), (split, size - split)]
            self._payloads.read_ranges(entry, ranges, memory, is_registered=target.pre_registered)
        else:
            memory = self._tensor_rows(name, entry, rows, target)
        if target is None or (encoding == TENSOR and isinstance(target, TensorObjectBuffer)):
            return _tensor_over(name, memory)
        return target

    def _whole_tensor(self, name: str, entry: Entry) -> Any:
        if not entry.get("native"):
            return _tensor_over(name, self._payloads.read(entry))
        if not self._payloads.has("get_tensor"):
            raise RuntimeError(f"member {name!r} is a tensor, and the store does not support get_tensor")
        tensor = self._payloads.call("get_tensor", entry["key"])
        if tensor is None:
            raise RuntimeError(f"get_tensor of {entry['key']}: there is no tensor")
        return tensor

    def _tensor_rows(
        self, name: str, entry: Entry, rows: Any, target: RawDestination | TensorObjectBuffer | None
    ) -> Bytes:
        """Header and items of those rows, in memory of its own or of the target."""
        header = None
        if entry["bytes"] >= HEADER_BYTES:
            start = self.bytes_at(entry, [(0, HEADER_BYTES)]).tobytes()
            header = parse_header(memoryview(start), entry["bytes"])
        if header is None or not header.shape:
            raise ValueError(f"member {name!r} is a tensor without rows: it does not support slicing")
        chosen = rows_of(rows, header.shape[0])
        shape = (len(chosen), *header.shape[1:])
        row_bytes = math.prod(shape[1:]) * DTYPES[header.dtype][1]
        size = HEADER_BYTES + len(chosen) * row_bytes
        if target is not None and target.size < size:
            raise ValueError(f"member {name!r}: its destination has {target.size} bytes of {size}")
        memory = np.empty(size, dtype=np.uint8) if target is None else memory_of_raw(target)[:size]
        memory[:HEADER_BYTES] = bytes_in(Header(header.dtype, shape, shape).pack())
        ranges = row_ranges(chosen, row_bytes, HEADER_BYTES)
        if ranges:
            is_registered = target is not None and target.pre_registered
            self._payloads.read_ranges(entry, ranges, memory[HEADER_BYTES:], is_registered=is_registered)
        return memory


def _tensor_over(name: str, memory: Bytes) -> Any:
    start = memory[:HEADER_BYTES].tobytes()
    header = parse_header(memoryview(start), len(memory)) if len(start) == HEADER_BYTES else None
    if header is None:
        raise ValueError(f"member {name!r}: {len(memory)} bytes that are not a tensor with its header")
    return tensor_in(memory, header)


def _array_for(name: str, target: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Any, bool]:
    """An array to read into, and whether its memory is registered."""
    if target is None:
        return np.empty(shape, dtype=dtype), False
    if isinstance(target, (RawDestination, TensorObjectBuffer)):
        size = math.prod(shape) * dtype.itemsize
        if target.size < size:
            raise ValueError(f"member {name!r}: its destination has {target.size} bytes of {size}")
        return memory_of_raw(target)[:size].view(dtype).reshape(shape), target.pre_registered
    if not isinstance(target, np.ndarray):
        raise TypeError(f"member {name!r}: a {type(target).__name__} is no destination of an array")
    if target.shape != shape or target.dtype != dtype:
        raise ValueError(
            f"member {name!r}: destination shape mismatch: {target.shape} of {target.dtype}, "
            f"where {shape} of {dtype} is read"
        )
    if not target.flags.writeable or not target.flags.c_contiguous:
        raise ValueError(f"member {name!r}: its destination is not writeable and contiguous")
    return target, False
