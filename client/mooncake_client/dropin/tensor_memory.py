"""Tensors of torch and arrays of numpy as memory with a header, and back.

Owns which of the two a caller is given: torch tensors where torch can be imported, else numpy arrays (those
of bfloat16 and float8 need ml_dtypes). Must not know the store.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from mooncake_client.dropin.tensor_format import (
    DIMENSIONS_MAX,
    DTYPE_CODES,
    DTYPES,
    HEADER_BYTES,
    Header,
    parse_header,
)
from mooncake_store.errors import StoreError

_EXTENSIONS: Final = frozenset(("bfloat16", "float8_e4m3fn", "float8_e5m2"))


class Described(NamedTuple):
    """A tensor of the caller and what a header says of it: the number of its dtype, and its shape."""

    tensor: Any
    dtype: int
    shape: tuple[int, ...]


def describe(tensor: Any) -> Described | None:
    """None: not a tensor, or one that a header cannot tell (complex, sparse, nine dimensions)."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(tensor, torch.Tensor):
        name = str(tensor.dtype).removeprefix("torch.")
        if tensor.layout != torch.strided or tensor.is_quantized:
            return None
        tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    elif numpy is not None and isinstance(tensor, numpy.ndarray):
        name = tensor.dtype.name if tensor.dtype.isnative else ""
    else:
        return None
    shape = tuple(tensor.shape)
    if name not in DTYPE_CODES or len(shape) > DIMENSIONS_MAX:
        return None
    return Described(tensor, DTYPE_CODES[name], shape)


def value_of(tensor: Any, header: Header) -> list[Any]:
    """The pieces of the value that the tensor is put as. They hold what they need of its memory."""
    if header.data_bytes == 0:
        return [header.pack()]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        contiguous = tensor.contiguous()
        # Viewed by numpy where it can be, because a pair (address, length) does not keep the memory.
        return [header.pack(), contiguous.reshape(-1).view(torch.uint8).numpy()]
    import numpy

    return [header.pack(), numpy.ascontiguousarray(tensor).reshape(-1).view(numpy.uint8)]


def tensor_in(memory: Any, header: Header) -> Any:
    """A tensor over `memory` (header and data), which it keeps. Raises StoreError when nobody knows its
    dtype.
    """
    name, _ = DTYPES[header.dtype]
    torch = _torch()
    if torch is not None:
        kind = getattr(torch, name)
        if header.data_bytes == 0:
            return torch.empty(header.shape, dtype=kind)
        data = torch.frombuffer(memory, dtype=torch.uint8, offset=HEADER_BYTES, count=header.data_bytes)
        return data.view(kind).reshape(header.shape)
    import numpy

    dtype: Any = name
    if name in _EXTENSIONS:
        try:
            import ml_dtypes  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError as error:
            raise StoreError(f"a tensor of {name} needs torch or ml_dtypes") from error
        dtype = getattr(ml_dtypes, name)
    if header.data_bytes == 0:
        return numpy.empty(header.shape, dtype=dtype)
    data = numpy.frombuffer(memory, dtype=numpy.uint8, offset=HEADER_BYTES, count=header.data_bytes)
    return data.view(dtype).reshape(header.shape)


def memory_at(address: int, size: int) -> ctypes.Array[Any]:
    """Memory of the caller as a buffer; good as long as the caller keeps it."""
    return (ctypes.c_ubyte * size).from_address(address)


def header_at(address: int, size: int) -> Header | None:
    """The header of the tensor that fills this memory exactly; None: there is none."""
    if size < HEADER_BYTES:
        return None
    return parse_header(memoryview(memory_at(address, HEADER_BYTES)).cast("B"), size)


def narrow(tensor: Any, dimension: int, start: int, length: int) -> Any:
    """A view of `length` indices of one dimension."""
    return tensor[(slice(None),) * dimension + (slice(start, start + length),)]


def concatenate(tensors: Sequence[Any], dimension: int) -> Any:
    torch = _torch()
    if torch is not None:
        return torch.cat(list(tensors), dim=dimension)
    import numpy

    return numpy.concatenate(tensors, axis=dimension)


def copy_to(address: int, pieces: Sequence[Any]) -> None:
    """The pieces of a value, one after the other, into memory of the caller."""
    for piece in pieces:
        view = memoryview(piece).cast("B")
        source = bytes(view) if view.readonly else (ctypes.c_ubyte * view.nbytes).from_buffer(view)
        ctypes.memmove(address, source, view.nbytes)
        address += view.nbytes


def _torch() -> Any:
    """torch where it can be imported, else None."""
    try:
        import torch
    except ImportError:
        return None
    return torch
