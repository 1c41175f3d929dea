"""The functions by which Mooncake's Python code packs tensors itself."""

from __future__ import annotations

from typing import Any

from mooncake_client.dropin.tensor_format import HEADER_BYTES, Header, parse_header
from mooncake_client.dropin.tensor_memory import describe, tensor_in, value_of


def _tensor_metadata_size() -> int:
    return HEADER_BYTES


def _serialize_tensor(obj: object) -> tuple[bytes, int, int, object]:
    """The header, address and bytes of the items, and what must be kept as long as they are used."""
    described = describe(obj)
    if described is None:
        raise TypeError(f"a {type(obj).__name__} cannot be stored as a tensor")
    header = Header(described.dtype, described.shape, described.shape)
    packed, *pieces = value_of(described.tensor, header)
    if not pieces:
        return packed, 0, 0, described.tensor
    [items] = pieces
    return packed, int(items.ctypes.data), int(items.nbytes), items


def _deserialize_tensor(data: bytes) -> Any:
    """The tensor of a whole value. Raises ValueError when it is none."""
    header = parse_header(memoryview(data)[:HEADER_BYTES], len(data))
    if header is None:
        raise ValueError(f"{len(data)} bytes that are not a tensor with its header")
    return tensor_in(bytearray(data), header)
