"""Values in memory of the caller, named by address and size.

Owns the table of registered buffers. Over TCP registering costs and saves nothing, and memory that is not
registered is as good; the table is there so that a program that registers twice learns it here too.
"""

from __future__ import annotations

import bisect
import operator

from mooncake_client.dropin.base import StoreBase, items_of, key_of, keys_of, memory_of, packed_memories_of
from mooncake_client.dropin.codes import INVALID_PARAMS, OK
from mooncake_client.dropin.replicate_config import DEFAULT_CONFIG, ReplicateConfig


class RegisteredBuffers:
    """Ranges of memory that do not overlap. Not for several threads at once."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}

    def add(self, start: int, size: int) -> bool:
        """False: it is empty, or overlaps one that is there."""
        if start <= 0 or size <= 0:
            return False
        at = bisect.bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] < start + size:
            return False
        if at > 0 and self._starts[at - 1] + self._sizes[self._starts[at - 1]] > start:
            return False
        self._starts.insert(at, start)
        self._sizes[start] = size
        return True

    def remove(self, start: int) -> bool:
        """False: none begins there."""
        if self._sizes.pop(start, None) is None:
            return False
        self._starts.pop(bisect.bisect_left(self._starts, start))
        return True

    def end_of(self, address: int) -> int | None:
        """Where the range with this address in it ends; None: it is in none."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        end = self._starts[at] + self._sizes[self._starts[at]]
        return end if address < end else None

    def clear(self) -> None:
        self._starts.clear()
        self._sizes.clear()


class Buffers(StoreBase):
    def _start_parts(self) -> None:
        super()._start_parts()
        self._registered = RegisteredBuffers()

    def _forget_parts(self) -> None:
        super()._forget_parts()
        self._registered.clear()

    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """Announce memory that values will be read into or put from; overlapping another is -600."""
        address, length = operator.index(buffer_ptr), operator.index(size)
        if self._client() is None:
            return INVALID_PARAMS
        with self._lock:
            return OK if self._registered.add(address, length) else INVALID_PARAMS

    def unregister_buffer(self, buffer_ptr: int) -> int:
        address = operator.index(buffer_ptr)
        if self._client() is None:
            return INVALID_PARAMS
        with self._lock:
            return OK if self._registered.remove(address) else INVALID_PARAMS

    # ---- put

    def put_from(self, key: str, buffer_ptr: int, size: int, config: ReplicateConfig = DEFAULT_CONFIG) -> int:
        return self._put_values([key_of(key)], [memory_of(buffer_ptr, size)], config, upsert=False)[0]

    def batch_put_from(
        self,
        keys: list[str],
        buffer_ptrs: list[int],
        sizes: list[int],
        config: ReplicateConfig = DEFAULT_CONFIG,
    ) -> list[int]:
        """One code a key; lists of different lengths are -600 for all."""
        return self._put_from(keys, buffer_ptrs, sizes, config, upsert=False)

    def put_from_with_metadata(
        self,
        key: str,
        buffer_ptr: int,
        metadata_buffer_ptr: int,
        size: int,
        metadata_size: int,
        config: ReplicateConfig = DEFAULT_CONFIG,
    ) -> int:
        """One value: the metadata's bytes, then the data's."""
        metadata, data = memory_of(metadata_buffer_ptr, metadata_size), memory_of(buffer_ptr, size)
        pieces = None if metadata is None or data is None else [metadata, data]
        return self._put_values([key_of(key)], [pieces], config, upsert=False)[0]

    def upsert_from(
        self, key: str, buffer_ptr: int, size: int, config: ReplicateConfig = DEFAULT_CONFIG
    ) -> int:
        return self._put_values([key_of(key)], [memory_of(buffer_ptr, size)], config, upsert=True)[0]

    def batch_upsert_from(
        self,
        keys: list[str],
        buffer_ptrs: list[int],
        sizes: list[int],
        config: ReplicateConfig = DEFAULT_CONFIG,
    ) -> list[int]:
        return self._put_from(keys, buffer_ptrs, sizes, config, upsert=True)

    def _put_from(
        self,
        keys: list[str],
        buffer_ptrs: list[int],
        sizes: list[int],
        config: ReplicateConfig,
        *,
        upsert: bool,
    ) -> list[int]:
        names = keys_of(keys)
        pointers, lengths = items_of(buffer_ptrs, "buffer_ptrs"), items_of(sizes, "sizes")
        if not len(names) == len(pointers) == len(lengths):
            return [INVALID_PARAMS] * len(names)
        return self._put_values(names, packed_memories_of(pointers, lengths), config, upsert=upsert)

    # ---- get

    def get_into(self, key: str, buffer_ptr: int, size: int) -> int:
        """Bytes read; a value larger than `size` is -600. On an error the memory is undefined."""
        return self._read_into([key_of(key)], [memory_of(buffer_ptr, size)])[0]

    def batch_get_into(self, keys: list[str], buffer_ptrs: list[int], sizes: list[int]) -> list[int]:
        names = keys_of(keys)
        pointers, lengths = items_of(buffer_ptrs, "buffer_ptrs"), items_of(sizes, "sizes")
        if not len(names) == len(pointers) == len(lengths):
            return [INVALID_PARAMS] * len(names)
        return self._read_into(names, packed_memories_of(pointers, lengths))
