"""Columns of Python values, a row each, as bytes: strings, bytes, tensors of different shapes, and trees of
these with numbers, lists and dicts.

Owns the codecs. Nothing of what is stored is ever executed: what none of them knows is refused when it is
put. A column is the rows' bytes joined, where each begins, and which are None.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mooncake_client.dropin.bundles import Bytes, bytes_in
from mooncake_client.dropin.structured_members import is_tensor
from mooncake_client.dropin.tensor_format import DTYPE_CODES
from mooncake_client.dropin.tensor_functions import _deserialize_tensor, _serialize_tensor

TEXT, BLOB, RAGGED, TREE = "utf8_ragged", "bytes_ragged", "ragged_tensor", "tree_ragged"
DEPTH_MAX: Final = 64
_COUNTS: Final = struct.Struct("<II")


@dataclass(frozen=True)
class Column:
    """codec: which made it. data: rows joined; offsets: where each begins, and the end; nulls: 1 for None."""

    codec: str
    data: Bytes
    offsets: np.ndarray[Any, np.dtype[np.int64]]
    nulls: Bytes


def encoded(name: str, rows: Sequence[Any]) -> Column:
    """Raises ValueError, naming the field, for a value that no codec knows."""
    codec = _codec_of([row for row in rows if row is not None])
    try:
        packed = [b"" if row is None else _ENCODE[codec](row) for row in rows]
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"unsupported structured non-tensor field {name!r}: {error}") from error
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(one) for one in packed], out=offsets[1:])
    nulls = np.fromiter((row is None for row in rows), dtype=np.uint8, count=len(rows))
    return Column(codec, bytes_in(b"".join(packed)), offsets, nulls)


def decoded(codec: str, packed: Sequence[bytes | None]) -> list[Any]:
    """The values of rows; None stays None."""
    if codec not in _DECODE:
        raise ValueError(f"codec {codec!r} of a column is not known")
    return [None if one is None else _DECODE[codec](one) for one in packed]


def _codec_of(values: Sequence[Any]) -> str:
    if values and all(isinstance(value, str) for value in values):
        return TEXT
    if values and all(isinstance(value, (bytes, bytearray, memoryview)) for value in values):
        return BLOB
    if values and all(is_tensor(value) or _is_array(value) for value in values):
        return RAGGED
    return TREE


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.name in DTYPE_CODES


# ---- tensors: a letter that says whose they were, then header and items


def _pack_tensor(value: Any) -> bytes:
    array = value if is_tensor(value) else np.ascontiguousarray(value)
    header, _, nbytes, items = _serialize_tensor(array)
    return (b"t" if is_tensor(value) else b"n") + header + (bytes(memoryview(items)) if nbytes else b"")  # type: ignore[arg-type]


def _unpack_tensor(packed: bytes) -> Any:
    tensor = _deserialize_tensor(packed[1:])
    return tensor.numpy() if packed[:1] == b"n" and is_tensor(tensor) else tensor


# ---- trees: JSON in which lists begin with a letter, then what JSON cannot hold


def _pack_tree(value: Any) -> bytes:
    leaves: list[bytes] = []
    text = json.dumps(_told(value, leaves, 0), separators=(",", ":")).encode()
    sizes = struct.pack(f"<{len(leaves)}Q", *map(len, leaves))
    return b"".join([_COUNTS.pack(len(text), len(leaves)), sizes, text, *leaves])


def _told(value: Any, leaves: list[bytes], depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise ValueError(f"it is nested deeper than {DEPTH_MAX}")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if isinstance(value, (list, tuple)):
        return ["l", *(_told(one, leaves, depth + 1) for one in value)]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a dict has keys that are not str")
        return ["d", *([key, _told(one, leaves, depth + 1)] for key, one in value.items())]
    if isinstance(value, (bytes, bytearray, memoryview)):
        leaves.append(bytes(value))
        return ["b", len(leaves) - 1]
    if is_tensor(value) or _is_array(value):
        leaves.append(_pack_tensor(value))
        return ["t", len(leaves) - 1]
    raise TypeError(f"a {type(value).__name__} is in it")


def _unpack_tree(packed: bytes) -> Any:
    text_bytes, count = _COUNTS.unpack_from(packed)
    sizes = struct.unpack_from(f"<{count}Q", packed, _COUNTS.size)
    start = _COUNTS.size + 8 * count
    at, leaves = start + text_bytes, []
    for size in sizes:
        leaves.append(packed[at : at + size])
        at += size
    return _meant(json.loads(packed[start : start + text_bytes]), leaves)


def _meant(told: Any, leaves: Sequence[bytes]) -> Any:
    if not isinstance(told, list):
        return told
    kind, *rest = told
    if kind == "l":
        return [_meant(one, leaves) for one in rest]
    if kind == "d":
        return {key: _meant(one, leaves) for key, one in rest}
    return leaves[rest[0]] if kind == "b" else _unpack_tensor(leaves[rest[0]])


_ENCODE: Final[Mapping[str, Callable[[Any], bytes]]] = {
    TEXT: lambda row: row.encode("utf-8"),
    BLOB: bytes,
    RAGGED: _pack_tensor,
    TREE: _pack_tree,
}
_DECODE: Final[Mapping[str, Callable[[bytes], Any]]] = {
    TEXT: lambda packed: packed.decode("utf-8"),
    BLOB: bytes,
    RAGGED: _unpack_tensor,
    TREE: _unpack_tree,
}
