"""What a caller may put, as bytes and back: buffers, numpy arrays and torch tensors, with dtype and shape.

Owns the user metadata of a value: `kind|dtype|d0,d1,...` in ASCII, at most 128 bytes, kept beside the value
on its node. Empty metadata means plain bytes. numpy and torch are used only when the caller has brought them:
nothing is imported to put bytes. Must not know how bytes travel.

Memory is handed on in one of two forms, as the native client takes it: an object with the buffer protocol,
or a pair (address, length) of a torch tensor's memory. The pair needs no numpy, knows bfloat16 and float8,
and is good only as long as its tensor lives. A tensor on a GPU is DeviceMemory, which `staging.py` brings to
the host in one of these forms.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mooncake_client.staging import DeviceMemory
from mooncake_store.errors import InvalidArgument, StoreError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

METADATA_BYTES_MAX: Final = 128  # proto/FRAMES.md: user metadata of a value
_NUMPY, _TORCH = "n", "t"
_NAMED_KINDS: Final = "biufc"
"""Kinds of dtypes that the buffer protocol can name."""
_SHAPES_MAX: Final = 1024
"""Metadata texts that are remembered; an engine's blocks have a handful of dtypes and shapes."""


class Memory(NamedTuple):
    """Contiguous bytes, as the native client takes them, or yet to be brought to the host.

    buffer: an object with the buffer protocol, (address, length), or DeviceMemory. owner: keep it until the
        call is over.
    """

    buffer: Any
    size_bytes: int
    owner: object


class Encoded(NamedTuple):
    """One value on its way to the wire: its memory (the caller's where that is contiguous) and metadata."""

    buffer: Any
    metadata: bytes
    owner: object


def encode(value: object) -> Encoded:
    """The bytes of a value and what get_tensor needs to give it back.

    Raises InvalidArgument for what has no bytes of its own (objects, sparse tensors, `str`).
    """
    if type(value) is bytes or type(value) is bytearray:
        return Encoded(value, b"", value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _encode_torch(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return _encode_numpy(value)
    try:
        view = memoryview(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        hint = (
            "encode the text first"
            if isinstance(value, str)
            else "put a buffer, a numpy array or a torch tensor"
        )
        raise InvalidArgument(f"a value of type {type(value).__name__} has no bytes: {hint}") from error
    contiguous = view if view.c_contiguous else view.tobytes()
    return Encoded(contiguous, b"", contiguous)


def size_bytes(encoded: Encoded) -> int:
    """How many bytes the value has; for messages."""
    buffer = encoded.buffer
    if isinstance(buffer, DeviceMemory):
        return buffer.size_bytes
    return int(buffer[1]) if isinstance(buffer, tuple) else memoryview(buffer).nbytes


def writable_memory(target: object) -> Memory:
    """The memory of a get_into target. Raises InvalidArgument when bytes cannot be written there."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(target, torch.Tensor):
        _check_dense(target)
        if not target.is_contiguous():
            raise InvalidArgument(f"the target tensor of shape {tuple(target.shape)} is not contiguous")
        if target.is_conj() or target.is_neg():
            raise InvalidArgument("the target is a conjugate or negative view; its memory holds other values")
        return Memory(_torch_memory(target), target.nbytes, target)
    try:
        view = memoryview(target)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        view = _extension_bytes(target, error)
    if view.format is not None and "O" in view.format:
        raise InvalidArgument("a target of Python objects has no writable bytes")
    if view.readonly:
        raise InvalidArgument(f"the target of {view.nbytes} bytes is read-only")
    if not view.c_contiguous:
        raise InvalidArgument(f"the target of shape {view.shape} is not contiguous")
    return Memory(view, view.nbytes, target)


def _extension_bytes(target: object, error: Exception) -> memoryview:
    """Arrays of dtypes that the buffer protocol cannot name (datetime64, ml_dtypes) have bytes too."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(target, numpy.ndarray) or target.dtype.hasobject:
        raise InvalidArgument(f"a target of type {type(target).__name__} has no writable bytes") from error
    if not target.flags.c_contiguous:
        raise InvalidArgument(f"the target of shape {target.shape} is not contiguous")
    return memoryview(target.reshape(-1).view(numpy.uint8))


def _encode_numpy(value: Any) -> Encoded:
    import numpy

    if isinstance(value, numpy.ma.MaskedArray):
        raise InvalidArgument("a masked array would lose its mask: put its data, or what .filled() gives")
    array = numpy.asarray(value)
    metadata = _numpy_metadata(array.dtype, array.shape)
    # ascontiguousarray gives a 0-d array one dimension; metadata was made from the shape before.
    contiguous = array if array.flags.c_contiguous else numpy.ascontiguousarray(array)
    if contiguous.nbytes == 0:
        return Encoded(b"", metadata, contiguous)
    if contiguous.dtype.kind in _NAMED_KINDS:
        return Encoded(contiguous, metadata, contiguous)
    # As bytes, because the buffer protocol cannot name every dtype (datetime64, ml_dtypes).
    return Encoded(contiguous.reshape(-1).view(numpy.uint8), metadata, contiguous)


@lru_cache(maxsize=_SHAPES_MAX)
def _numpy_metadata(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    import numpy

    if dtype.hasobject or dtype.fields is not None:
        raise InvalidArgument(f"an array of dtype {dtype} has no plain bytes")
    # dtype.str says "<V2" for the extension types of ml_dtypes; their name says what they are.
    return _metadata(_NUMPY, dtype.str if numpy.dtype(dtype.str) == dtype else dtype.name, shape)


def _encode_torch(value: torch.Tensor) -> Encoded:
    _check_dense(value)
    tensor = value.detach().resolve_conj().resolve_neg().contiguous()
    return Encoded(_torch_memory(tensor), _torch_metadata(tensor.dtype, tuple(tensor.shape)), tensor)


def _torch_memory(tensor: torch.Tensor) -> Any:
    if tensor.device.type == "cpu" or not tensor.nbytes:
        return tensor.data_ptr(), tensor.nbytes
    from mooncake_client.cuda import memory_of

    return memory_of(tensor.detach())


@lru_cache(maxsize=_SHAPES_MAX)
def _torch_metadata(dtype: torch.dtype, shape: tuple[int, ...]) -> bytes:
    return _metadata(_TORCH, str(dtype).removeprefix("torch."), shape)


def _check_dense(tensor: torch.Tensor) -> None:
    import torch

    if tensor.device.type not in ("cpu", "cuda"):
        raise InvalidArgument(f"a tensor on {tensor.device} cannot be reached from here: move it with .cpu()")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise InvalidArgument(f"a tensor of layout {tensor.layout}, dtype {tensor.dtype} has no plain bytes")


def _metadata(kind: str, dtype: str, shape: Iterable[int]) -> bytes:
    text = f"{kind}|{dtype}|{','.join(map(str, shape))}".encode("ascii")
    if len(text) > METADATA_BYTES_MAX:
        raise InvalidArgument(
            f"dtype {dtype} and shape {shape} need {len(text)} bytes of metadata, above {METADATA_BYTES_MAX}"
        )
    return text


def decode(data: npt.NDArray[np.uint8], metadata: bytes) -> Any:
    """The array or tensor that was put, over `data` (1-D, its own memory), which it then owns.

    Plain bytes stay 1-D uint8. A torch value is a torch tensor where torch is installed, else a numpy array
    where numpy knows the dtype. Raises StoreError when dtype and size do not fit, or nobody knows the dtype.
    """
    if not metadata:
        return data
    kind, dtype, shape = _parse(metadata)
    return _numpy_array(data, dtype, shape) if kind == _NUMPY else _torch_tensor(data, dtype, shape)


def _parse(metadata: bytes) -> tuple[str, str, tuple[int, ...]]:
    try:
        # numpy's own names hold the separator: a bool is "|b1".
        kind, rest = metadata.decode("ascii").split("|", 1)
        dtype, dimensions = rest.rsplit("|", 1)
        shape = tuple(int(size) for size in dimensions.split(",")) if dimensions else ()
    except ValueError:
        kind, dtype, shape = "", "", ()
    if kind not in (_NUMPY, _TORCH) or min(shape, default=0) < 0:
        raise StoreError(f"the value's metadata {metadata!r} is not that of a tensor")
    return kind, dtype, shape


def _numpy_dtype(name: str) -> np.dtype[Any]:
    import numpy

    try:
        return numpy.dtype(name)
    except (TypeError, ValueError, SyntaxError) as error:
        try:
            import ml_dtypes  # type: ignore[import-not-found, import-untyped, unused-ignore]

            extension: np.dtype[Any] = numpy.dtype(getattr(ml_dtypes, name))
            return extension
        except (ImportError, AttributeError, TypeError):
            raise StoreError(
                f"the value was put with dtype {name}, which numpy does not know; "
                "for bfloat16, float8 and the like install ml_dtypes"
            ) from error


def _numpy_array(data: npt.NDArray[np.uint8], dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    import numpy

    kind = _numpy_dtype(dtype)
    if kind.hasobject or kind.fields is not None or kind.subdtype is not None:
        raise StoreError(f"the value's metadata names dtype {dtype}, which has no plain bytes")
    _check_size(data.size, kind.itemsize, dtype, shape)
    return data.view(kind).reshape(shape) if data.size else numpy.empty(shape, dtype=kind)


def _torch_tensor(data: npt.NDArray[np.uint8], dtype: str, shape: tuple[int, ...]) -> Any:
    try:
        import torch
    except ImportError as error:
        if dtype == "bool" or dtype.startswith(("int", "uint", "float16", "float32", "float64", "complex")):
            return _numpy_array(data, dtype, shape)
        raise StoreError(f"the value is a torch tensor of dtype {dtype}; install torch to read it") from error
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise StoreError(f"the value was put with torch dtype {dtype}, unknown to torch {torch.__version__}")
    _check_size(data.size, kind.itemsize, dtype, shape)
    if not data.size:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(data, dtype=torch.uint8).view(kind).reshape(shape)


def _check_size(size: int, item_size: int, dtype: str, shape: tuple[int, ...]) -> None:
    wanted = item_size
    for dimension in shape:
        wanted *= dimension
    if wanted != size:
        raise StoreError(f"the value has {size} bytes; dtype {dtype} and shape {shape} need {wanted}")
