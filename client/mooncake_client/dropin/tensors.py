"""Tensors whole: a header of 304 bytes, then the items; under one key each.

Answers are codes for what is put and tensors, or None, for what is read: torch tensors where torch can be
imported, else numpy arrays; both may be put. `_into` and `_from` read and put memory of the caller that holds
header and items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mooncake_client.dropin.base import (
    Key,
    Memory,
    StoreBase,
    items_of,
    key_of,
    keys_of,
    log,
    memories_of,
    memory_of,
)
from mooncake_client.dropin.codes import FILE_NOT_FOUND, INVALID_PARAMS, NOT_SUPPORTED, OBJECT_NOT_FOUND, OK
from mooncake_client.dropin.replicate_config import DEFAULT_CONFIG, ReplicateConfig
from mooncake_client.dropin.safetensors import read_first_tensor, write_tensor
from mooncake_client.dropin.tensor_format import HEADER_BYTES, Header, parse_header
from mooncake_client.dropin.tensor_memory import describe, header_at, memory_at, tensor_in, value_of
from mooncake_store import _core
from mooncake_store.errors import StoreError


class TensorValues(StoreBase):
    """What all families of tensors are put and read by."""

    def _read_tensors(self, keys: Sequence[Key]) -> list[tuple[Header, _core.BufferHandle] | int]:
        """Header and memory, or a code, a key; what is not a tensor is INVALID_PARAMS."""
        found: list[tuple[Header, _core.BufferHandle] | int] = []
        for value in self._read_values(keys):
            header = None if isinstance(value, int) else _header_in(value)
            if isinstance(value, int):
                found.append(value)
            else:
                found.append(INVALID_PARAMS if header is None else (header, value))
        return found

    def _tensors(self, keys: Sequence[Key]) -> list[Any]:
        """A tensor or None a key."""
        return [
            None if isinstance(found, int) else shown(found[1], found[0])
            for found in self._read_tensors(keys)
        ]

    def _tensors_into(self, keys: Sequence[Key], memory: Sequence[Memory]) -> list[Any]:
        """Read each value, header included, to memory of the caller; a tensor over it or None a key."""
        answers: list[Any] = []
        for piece, length in zip(memory, self._read_into(keys, memory), strict=True):
            placed = None
            if piece is not None and length >= HEADER_BYTES:
                header = header_at(piece[0], length)
                placed = None if header is None else shown(memory_at(piece[0], length), header)
            answers.append(placed)
        return answers


class Tensors(TensorValues):
    # ---- put

    def put_tensor(self, key: str, tensor: object) -> int:
        return self._put_tensors([key], [tensor], DEFAULT_CONFIG, upsert=False)[0]

    def batch_put_tensor(self, keys: list[str], tensors_list: list[Any]) -> list[int]:
        """One code a key; lists of different lengths are -600 for all."""
        return self._put_tensors(keys, tensors_list, DEFAULT_CONFIG, upsert=False)

    def pub_tensor(self, key: str, tensor: object, config: ReplicateConfig = DEFAULT_CONFIG) -> int:
        return self._put_tensors([key], [tensor], config, upsert=False)[0]

    def batch_pub_tensor(
        self, keys: list[str], tensors_list: list[Any], config: ReplicateConfig = DEFAULT_CONFIG
    ) -> list[int]:
        return self._put_tensors(keys, tensors_list, config, upsert=False)

    def upsert_tensor(self, key: str, tensor: object) -> int:
        return self._put_tensors([key], [tensor], DEFAULT_CONFIG, upsert=True)[0]

    def batch_upsert_tensor(self, keys: list[str], tensors_list: list[Any]) -> list[int]:
        return self._put_tensors(keys, tensors_list, DEFAULT_CONFIG, upsert=True)

    def upsert_pub_tensor(self, key: str, tensor: object, config: ReplicateConfig = DEFAULT_CONFIG) -> int:
        return self._put_tensors([key], [tensor], config, upsert=True)[0]

    def batch_upsert_pub_tensor(
        self, keys: list[str], tensors_list: list[Any], config: ReplicateConfig = DEFAULT_CONFIG
    ) -> list[int]:
        return self._put_tensors(keys, tensors_list, config, upsert=True)

    def _put_tensors(
        self, keys: list[str], tensors_list: list[Any], config: ReplicateConfig, *, upsert: bool
    ) -> list[int]:
        names, tensors = keys_of(keys), items_of(tensors_list, "tensors_list")
        if len(names) != len(tensors):
            return [INVALID_PARAMS] * len(names)
        return self._put_values(names, [_value(tensor) for tensor in tensors], config, upsert=upsert)

    # ---- put from memory that holds header and items

    def put_tensor_from(self, key: str, buffer_ptr: int, size: int) -> int:
        """-600 unless a header and the items it tells fill the memory exactly."""
        return self._put_tensors_from([key], [buffer_ptr], [size], upsert=False)[0]

    def batch_put_tensor_from(self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]) -> list[int]:
        return self._put_tensors_from(keys, buffer_ptrs, sizes, upsert=False)

    def upsert_tensor_from(self, key: str, buffer_ptr: int, size: int) -> int:
        return self._put_tensors_from([key], [buffer_ptr], [size], upsert=True)[0]

    def batch_upsert_tensor_from(
        self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]
    ) -> list[int]:
        return self._put_tensors_from(keys, buffer_ptrs, sizes, upsert=True)

    def _put_tensors_from(
        self, keys: list[str], buffer_ptrs: list[int], sizes: list[int], *, upsert: bool
    ) -> list[int]:
        names = keys_of(keys)
        pointers, lengths = items_of(buffer_ptrs, "buffer_ptrs"), items_of(sizes, "sizes")
        if not len(names) == len(pointers) == len(lengths):
            return [INVALID_PARAMS] * len(names)
        memory = [
            None if piece is None or header_at(*piece) is None else piece
            for piece in memories_of(pointers, lengths)
        ]
        return self._put_values(names, memory, DEFAULT_CONFIG, upsert=upsert)

    # ---- get

    def get_tensor(self, key: str) -> object:
        """A tensor of its own; None where there is none."""
        return self._tensors([key_of(key)])[0]

    def batch_get_tensor(self, keys: list[str]) -> list[Any]:
        return self._tensors(keys_of(keys))

    def get_tensor_into(self, key: str, buffer_ptr: int, size: int) -> object:
        """A tensor over the caller's memory, 304 bytes after its begin; None where that cannot be."""
        return self._tensors_into([key_of(key)], [memory_of(buffer_ptr, size)])[0]

    def batch_get_tensor_into(self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]) -> list[Any]:
        """A tensor or None a key; -600 for all where the lists do not fit."""
        names = keys_of(keys)
        pointers, lengths = items_of(buffer_ptrs, "buffer_ptrs"), items_of(sizes, "sizes")
        if not len(names) == len(pointers) == len(lengths):
            return [INVALID_PARAMS] * len(names)
        return self._tensors_into(names, memories_of(pointers, lengths))

    def get_tensor_into_cuda(self, key: str, tensor: object) -> int:
        """-1012: values are read to memory of the host."""
        return self.batch_get_tensor_into_cuda([key], [tensor])[0]

    def batch_get_tensor_into_cuda(self, keys: list[str], tensors_list: list[Any]) -> list[int]:
        del tensors_list
        return [NOT_SUPPORTED] * len(keys_of(keys))

    # ---- files

    def save_tensor_to_safetensor(self, key: str, file_name: object = None) -> int:
        """Write the tensor to a file, by default of the key's name: 0, -1100 without the key, else -600."""
        [found] = self._read_tensors([key_of(key)])
        if isinstance(found, int):
            return FILE_NOT_FOUND if found == OBJECT_NOT_FOUND else INVALID_PARAMS
        header, value = found
        try:
            with open(key if file_name is None else str(file_name), "wb") as file:
                write_tensor(file, key, header, [memoryview(value)[HEADER_BYTES:]])
        except OSError as error:
            log.error("save_tensor_to_safetensor of %r: %s", key, error)
            return INVALID_PARAMS
        return OK

    def load_tensor_from_safetensor(self, key: object = None, file_name: object = None) -> object:
        """Put the file's first tensor under the key, by default the file's name; the tensor, else None."""
        if not isinstance(file_name, str):
            raise TypeError(f"file_name {file_name!r} is not a str")
        name = file_name if key is None else key_of(key)
        try:
            with open(file_name, "rb") as file:
                loaded = read_first_tensor(file)
        except OSError as error:
            log.error("load_tensor_from_safetensor: %s", error)
            return None
        if loaded is None:
            log.error("load_tensor_from_safetensor: %s holds no tensor of a known dtype", file_name)
            return None
        header, data = loaded
        if self._put_values([name], [[header.pack(), data]], DEFAULT_CONFIG, upsert=False)[0] != OK:
            return None
        return shown(bytearray(header.pack() + data), header)


def shown(memory: Any, header: Header) -> Any:
    """The tensor in this memory; None when nobody here knows its dtype."""
    try:
        return tensor_in(memory, header)
    except StoreError as error:
        log.error("%s", error)
        return None


def _header_in(value: _core.BufferHandle) -> Header | None:
    return parse_header(memoryview(value).cast("B")[:HEADER_BYTES], value.size())


def _value(tensor: Any) -> Memory:
    described = describe(tensor)
    if described is None:
        return None
    return value_of(described.tensor, Header(described.dtype, described.shape, described.shape))
