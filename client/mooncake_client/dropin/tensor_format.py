"""The header that stands before a tensor's bytes, and the manifest of a tensor in shards.

Owns both layouts, which are Mooncake's, so that either store's clients read the other's tensors; a test
compares them with what Mooncake's wheel writes. Numbers are little-endian. Must not know torch, numpy or the
store.

A tensor's value is 304 bytes of header, then its items in row-major order. A shard says the shape of the
whole and its own, and along which dimension each axis of parallelism divides it.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Final

HEADER_BYTES: Final = 304
MANIFEST_BYTES: Final = 96
DIMENSIONS_MAX: Final = 8
AXES_MAX: Final = 4

_MAGIC: Final = 0x4D4F4F4E
_MANIFEST_MAGIC: Final = 0x574D414E
_VERSION: Final = 1
_FULL, _SHARD = 0, 1
_UNUSED: Final = -1  # a dimension that is not there

_HEADER: Final = struct.Struct("<IHHiiIIQQ8q8qII")
_AXIS: Final = struct.Struct("<6iq")
_MANIFEST: Final = struct.Struct("<IHHiiiiQ8q")
assert _HEADER.size + AXES_MAX * _AXIS.size == HEADER_BYTES
assert _MANIFEST.size == MANIFEST_BYTES

DTYPES: Final = (
    ("float32", 4),
    ("float64", 8),
    ("int8", 1),
    ("uint8", 1),
    ("int16", 2),
    ("uint16", 2),
    ("int32", 4),
    ("uint32", 4),
    ("int64", 8),
    ("uint64", 8),
    ("bool", 1),
    ("float16", 2),
    ("bfloat16", 2),
    ("float8_e4m3fn", 1),
    ("float8_e5m2", 1),
)
"""Name and bytes of an item by the number in a header."""
DTYPE_CODES: Final = {name: code for code, (name, _) in enumerate(DTYPES)}

AXIS_KINDS: Final = ("dp", "tp", "ep", "pp")
"""By the number in a header."""
TP: Final = AXIS_KINDS.index("tp")


@dataclass(frozen=True)
class Axis:
    """One axis of a shard. split_dim: -1 where the tensor is not divided along it. id: of expert or stage."""

    kind: int
    rank: int
    count: int
    split_dim: int = -1
    id: int = 0
    extent: int = 0
    """Of this shard along split_dim."""


@dataclass(frozen=True)
class Header:
    """dtype: a number of DTYPES. shape: of what follows; global_shape: of the whole. No axes: it is the
    whole.
    """

    dtype: int
    shape: tuple[int, ...]
    global_shape: tuple[int, ...]
    axes: tuple[Axis, ...] = ()

    @property
    def data_bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype][1]

    @property
    def tp_axis(self) -> Axis | None:
        return next((axis for axis in self.axes if axis.kind == TP), None)

    def pack(self) -> bytes:
        head = _HEADER.pack(
            _MAGIC,
            _VERSION,
            HEADER_BYTES,
            self.dtype,
            len(self.shape),
            _SHARD if self.axes else _FULL,
            0,
            HEADER_BYTES,
            self.data_bytes,
            *_filled(self.global_shape),
            *_filled(self.shape),
            len(self.axes),
            0,
        )
        axes = b"".join(
            _AXIS.pack(axis.kind, index, axis.rank, axis.count, axis.split_dim, axis.id, axis.extent)
            for index, axis in enumerate(self.axes)
        )
        return (head + axes).ljust(HEADER_BYTES, b"\0")


def parse_header(data: bytes | memoryview, value_bytes: int) -> Header | None:
    """What the first bytes of a value of so many say; None: it is not a tensor, or not of that size."""
    if len(data) < HEADER_BYTES or value_bytes < HEADER_BYTES:
        return None
    fields = _HEADER.unpack_from(data)
    magic, version, header_bytes, dtype, dimensions, _, _, offset, data_bytes = fields[:9]
    axis_count = fields[25]
    if (
        (magic, version, header_bytes, offset) != (_MAGIC, _VERSION, HEADER_BYTES, HEADER_BYTES)
        or not 0 <= dtype < len(DTYPES)
        or not 0 <= dimensions <= DIMENSIONS_MAX
        or axis_count > AXES_MAX
    ):
        return None
    axes = []
    for index in range(axis_count):
        kind, _, rank, count, split_dim, identity, extent = _AXIS.unpack_from(
            data, _HEADER.size + index * _AXIS.size
        )
        axes.append(Axis(kind, rank, count, split_dim, identity, extent))
    shape = fields[17 : 17 + dimensions]
    header = Header(dtype, shape, fields[9 : 9 + dimensions], tuple(axes))
    if (
        min(shape, default=0) < 0
        or data_bytes != value_bytes - HEADER_BYTES
        or header.data_bytes != data_bytes
    ):
        return None
    return header


@dataclass(frozen=True)
class Manifest:
    """How a tensor was divided: into so many shards along one dimension."""

    dtype: int
    split_dim: int
    count: int
    global_shape: tuple[int, ...]

    def pack(self) -> bytes:
        return _MANIFEST.pack(
            _MANIFEST_MAGIC,
            _VERSION,
            MANIFEST_BYTES,
            self.dtype,
            len(self.global_shape),
            self.split_dim,
            self.count,
            0,
            *_filled(self.global_shape),
        )


def parse_manifest(data: bytes | memoryview) -> Manifest | None:
    """None: these bytes are not a manifest."""
    if len(data) != MANIFEST_BYTES:
        return None
    magic, version, size, dtype, dimensions, split_dim, count, _, *shape = _MANIFEST.unpack(data)
    if (
        (magic, version, size) != (_MANIFEST_MAGIC, _VERSION, MANIFEST_BYTES)
        or not 0 <= dtype < len(DTYPES)
        or not 0 <= split_dim < dimensions <= DIMENSIONS_MAX
        or count < 1
    ):
        return None
    return Manifest(dtype, split_dim, count, tuple(shape[:dimensions]))


def _filled(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape + (_UNUSED,) * (DIMENSIONS_MAX - len(shape))
