"""Files of one tensor in the safetensors format: a u64 length, JSON of so many bytes, then the tensors'
bytes.

Owns the format only; must not know the store.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

from mooncake_client.dropin.tensor_format import DTYPES, Header

_JSON_BYTES_MAX: Final = 100_000_000  # the format's own limit
_NAMES: Final = (
    ("float32", "F32"),
    ("float64", "F64"),
    ("int8", "I8"),
    ("uint8", "U8"),
    ("int16", "I16"),
    ("uint16", "U16"),
    ("int32", "I32"),
    ("uint32", "U32"),
    ("int64", "I64"),
    ("uint64", "U64"),
    ("bool", "BOOL"),
    ("float16", "F16"),
    ("bfloat16", "BF16"),
    ("float8_e4m3fn", "F8_E4M3"),
    ("float8_e5m2", "F8_E5M2"),
)
_BY_CODE: Final = tuple(dict(_NAMES)[name] for name, _ in DTYPES)


def write_tensor(file: BinaryIO, name: str, header: Header, data: Sequence[Any]) -> None:
    """data: buffers that hold the items, in order."""
    entry = {
        "dtype": _BY_CODE[header.dtype],
        "shape": list(header.shape),
        "data_offsets": [0, header.data_bytes],
    }
    text = json.dumps({name: entry}, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for piece in data:
        file.write(piece)


def read_first_tensor(file: BinaryIO) -> tuple[Header, bytes] | None:
    """The header to store the file's first tensor with, and its items. None: the file holds none."""
    prefix = file.read(8)
    if len(prefix) < 8:
        return None
    (length,) = struct.unpack("<Q", prefix)
    if not 2 <= length <= _JSON_BYTES_MAX:
        return None
    try:
        entries = json.loads(file.read(length))
        entry = next(entry for name, entry in entries.items() if name != "__metadata__")
        begin, end = (int(offset) for offset in entry["data_offsets"])
        shape = tuple(int(size) for size in entry["shape"])
        header = Header(_BY_CODE.index(entry["dtype"]), shape, shape)
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return None
    if not 0 <= begin <= end or min(shape, default=0) < 0 or header.data_bytes != end - begin:
        return None
    file.seek(8 + length + begin)
    data = file.read(end - begin)
    return (header, data) if len(data) == end - begin else None
