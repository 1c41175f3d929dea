"""Tensors divided and repeated along any axes, read as whole, shard, or as they lie: `_with_parallelism`.

A shard is read only when its header says that it is the one asked for. A shard that was not stored so is cut
from the whole, and the whole is put together from its shards, where a manifest tells how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mooncake_client.dropin.base import Key, Memory, items_of, key_of, keys_of, memories_of, memory_of
from mooncake_client.dropin.codes import INVALID_PARAMS
from mooncake_client.dropin.replicate_config import DEFAULT_CONFIG, ReplicateConfig
from mooncake_client.dropin.shards_put import ShardedValues, Shards, described_at, text_of, whole_shard
from mooncake_client.dropin.tensor_format import HEADER_BYTES, TP, Axis, Header, Manifest, parse_manifest
from mooncake_client.dropin.tensor_memory import (
    Described,
    concatenate,
    copy_to,
    describe,
    memory_at,
    tensor_in,
    value_of,
)
from mooncake_client.dropin.tensor_shards import (
    AS_STORED,
    FULL,
    SHARD,
    axes_of,
    cut,
    cut_all,
    manifest_key,
    shard_key,
    shard_of,
    tp_key,
    writer_axis,
    writer_key,
    writer_manifest_key,
)
from mooncake_client.dropin.tensors import shown
from mooncake_store import _core
from mooncake_store.errors import StoreError


class ParallelTensors(ShardedValues):
    # ---- put

    def put_tensor_with_parallelism(
        self,
        key: str,
        tensor: object,
        parallelism: object = None,
        config: ReplicateConfig = DEFAULT_CONFIG,
        writer_partition: object = None,
    ) -> int:
        """Put what this rank has: its shard where tensor parallelism is the only axis, else cut from the
        whole.

        writer_partition (rank, size, split_dim): instead of axes, this writer's part of a whole tensor.
        """
        return self._put_parallel(
            [key], [describe(tensor)], [parallelism], config, [writer_partition], upsert=False
        )[0]

    def batch_put_tensor_with_parallelism(
        self,
        keys: list[str],
        tensors_list: list[Any],
        parallelisms: object = None,
        config: ReplicateConfig = DEFAULT_CONFIG,
        writer_partitions: object = None,
    ) -> list[int]:
        tensors = [describe(tensor) for tensor in items_of(tensors_list, "tensors_list")]
        return self._put_parallel(keys, tensors, parallelisms, config, writer_partitions, upsert=False)

    def upsert_tensor_with_parallelism(
        self,
        key: str,
        tensor: object,
        parallelism: object = None,
        config: ReplicateConfig = DEFAULT_CONFIG,
        writer_partition: object = None,
    ) -> int:
        return self._put_parallel(
            [key], [describe(tensor)], [parallelism], config, [writer_partition], upsert=True
        )[0]

    def batch_upsert_tensor_with_parallelism(
        self,
        keys: list[str],
        tensors_list: list[Any],
        parallelisms: object = None,
        config: ReplicateConfig = DEFAULT_CONFIG,
        writer_partitions: object = None,
    ) -> list[int]:
        tensors = [describe(tensor) for tensor in items_of(tensors_list, "tensors_list")]
        return self._put_parallel(keys, tensors, parallelisms, config, writer_partitions, upsert=True)

    def put_tensor_with_parallelism_from(
        self,
        key: str,
        buffer_ptr: int,
        size: int,
        parallelism: object = None,
        config: ReplicateConfig = DEFAULT_CONFIG,
        writer_partition: object = None,
    ) -> int:
        """Of memory that holds header and items of the whole; with tensor parallelism alone all shards."""
        return self._put_parallel_from(
            [key], [buffer_ptr], [size], [parallelism], config, [writer_partition], upsert=False
        )[0]

    def batch_put_tensor_with_parallelism_from(
        self,
        keys: list[str],
        buffer_ptrs: list[int],
        sizes: list[int],
        parallelisms: object = None,
        config: ReplicateConfig = DEFAULT_CONFIG,
        writer_partitions: object = None,
    ) -> list[int]:
        return self._put_parallel_from(
            keys, buffer_ptrs, sizes, parallelisms, config, writer_partitions, upsert=False
        )

    def upsert_tensor_with_parallelism_from(
        self,
        key: str,
        buffer_ptr: int,
        size: int,
        parallelism: object = None,
        config: ReplicateConfig = DEFAULT_CONFIG,
        writer_partition: object = None,
    ) -> int:
        return self._put_parallel_from(
            [key], [buffer_ptr], [size], [parallelism], config, [writer_partition], upsert=True
        )[0]

    def batch_upsert_tensor_with_parallelism_from(
        self,
        keys: list[str],
        buffer_ptrs: list[int],
        sizes: list[int],
        parallelisms: object = None,
        config: ReplicateConfig = DEFAULT_CONFIG,
        writer_partitions: object = None,
    ) -> list[int]:
        return self._put_parallel_from(
            keys, buffer_ptrs, sizes, parallelisms, config, writer_partitions, upsert=True
        )

    def _put_parallel_from(
        self,
        keys: list[str],
        buffer_ptrs: list[int],
        sizes: list[int],
        parallelisms: Any,
        config: ReplicateConfig,
        writer_partitions: Any,
        *,
        upsert: bool,
    ) -> list[int]:
        tensors = described_at(buffer_ptrs, sizes)
        return self._put_parallel(
            keys, tensors, parallelisms, config, writer_partitions, upsert=upsert, is_whole=True
        )

    def _put_parallel(
        self,
        keys: list[str],
        tensors: Sequence[Described | None],
        parallelisms: Any,
        config: ReplicateConfig,
        writer_partitions: Any,
        *,
        upsert: bool,
        is_whole: bool = False,
    ) -> list[int]:
        names = keys_of(keys)
        axes = [None] * len(names) if parallelisms is None else items_of(parallelisms, "parallelisms")
        parts = (
            [None] * len(names)
            if writer_partitions is None
            else items_of(writer_partitions, "writer_partitions")
        )
        if not len(names) == len(tensors) == len(axes) == len(parts):
            return [INVALID_PARAMS] * len(names)
        groups = [
            None if tensor is None else _parallel_shards(text_of(name), tensor, parallelism, part, is_whole)
            for name, tensor, parallelism, part in zip(names, tensors, axes, parts, strict=True)
        ]
        return self._put_groups(groups, config, upsert=upsert)

    # ---- get

    def get_tensor_with_parallelism(self, key: str, target: object = None) -> object:
        """What the target says, by default as it is stored; None where there is no such thing."""
        return self._resolve(key_of(key), target, self._shown_whole)

    def batch_get_tensor_with_parallelism(self, keys: list[str], targets: object = None) -> list[Any]:
        names = keys_of(keys)
        wanted = [None] * len(names) if targets is None else items_of(targets, "targets")
        if len(names) != len(wanted):
            return [None] * len(names)
        return [
            self._resolve(name, target, self._shown_whole) for name, target in zip(names, wanted, strict=True)
        ]

    def get_tensor_with_parallelism_into(
        self, key: str, buffer_ptr: int, size: int, target: object = None
    ) -> object:
        """The same with its header to the caller's memory; a tensor over it."""
        return self._resolve_into(key_of(key), memory_of(buffer_ptr, size), target)

    def batch_get_tensor_with_parallelism_into(
        self, keys: list[str], buffer_ptrs: list[int], sizes: list[int], targets: object = None
    ) -> list[Any]:
        names = keys_of(keys)
        wanted = [None] * len(names) if targets is None else items_of(targets, "targets")
        if not len(names) == len(buffer_ptrs) == len(sizes) == len(wanted):
            return [None] * len(names)
        memory = memories_of(buffer_ptrs, sizes)
        return [
            self._resolve_into(name, piece, target)
            for name, piece, target in zip(names, memory, wanted, strict=True)
        ]

    def _resolve_into(self, key: Key, memory: Memory, target: Any) -> Any:
        if memory is None:
            return None
        address, size = memory

        def place(header: Header, tensor: Any) -> Any:
            if HEADER_BYTES + header.data_bytes > size:
                return None
            copy_to(address, value_of(tensor, header))
            return shown(memory_at(address, HEADER_BYTES + header.data_bytes), header)

        return self._resolve(key, target, place)

    @staticmethod
    def _shown_whole(header: Header, tensor: Any) -> Any:
        del header
        return tensor

    def _resolve(self, key: Key, target: Any, hand: Callable[[Header, Any], Any]) -> Any:
        """Find what the target says and hand it on. Raises RuntimeError for a mode that is none."""
        mode = AS_STORED if target is None else target.mode
        if mode not in (AS_STORED, SHARD, FULL):
            raise RuntimeError("Unsupported ReadTarget mode")
        name = text_of(key)
        parallelism = None if target is None else target.parallelism
        axes = None if parallelism is None else axes_of(parallelism)
        if parallelism is not None and axes is None:
            return None
        if mode == FULL:
            found = self._whole(name, axes or ())
        elif axes is None:
            found = None if mode == SHARD else self._stored(name)
        else:
            found = self._shard(name, axes) or (None if mode == AS_STORED else self._cut_shard(name, axes))
        return None if found is None else hand(*found)

    def _stored(self, name: str) -> tuple[Header, Any] | None:
        [found] = self._read_tensors([name])
        tensor = None if isinstance(found, int) else shown(found[1], found[0])
        return None if isinstance(found, int) or tensor is None else (found[0], tensor)

    def _shard(self, name: str, axes: Sequence[Axis]) -> tuple[Header, Any] | None:
        """As it was put; None also when what lies under its key was divided in another way."""
        found = self._stored(shard_key(name, axes))
        return found if found is not None and _same_axes(found[0].axes, axes) else None

    def _cut_shard(self, name: str, axes: Sequence[Axis]) -> tuple[Header, Any] | None:
        whole = self._whole(name, axes)
        tp = next((axis for axis in axes if axis.kind == TP), None)
        if whole is None or tp is None:
            return whole
        header, tensor = whole
        shard = cut(Described(tensor, header.dtype, header.shape), tp, "", axes)
        return None if shard is None else (shard.header, shard.tensor)

    def _whole(self, name: str, axes: Sequence[Axis]) -> tuple[Header, Any] | None:
        """From the shards of ranks, those of writers, or as it was put whole."""
        ranks, writers = map(_manifest, self._read_values([manifest_key(name), writer_manifest_key(name)]))
        others = [axis for axis in axes if axis.kind != TP]
        found = None
        if ranks is not None:
            found = self._joined(
                ranks,
                lambda axis: shard_key(name, [*others, axis]) if others else tp_key(name, axis.rank),
            )
        if found is None and writers is not None:
            found = self._joined(writers, lambda axis: writer_key(name, axis))
        if found is None:
            found = self._stored(name)
            found = None if found is None or found[0].axes else found
        return found

    def _joined(self, manifest: Manifest, key: Callable[[Axis], str]) -> tuple[Header, Any] | None:
        axes = [Axis(TP, rank, manifest.count, manifest.split_dim) for rank in range(manifest.count)]
        parts = []
        for axis, found in zip(axes, self._read_tensors([key(axis) for axis in axes]), strict=True):
            if isinstance(found, int) or not _is_part(found[0], axis, manifest):
                return None
            try:
                parts.append(tensor_in(found[1], found[0]))
            except StoreError:
                return None
        whole = concatenate(parts, manifest.split_dim)
        shape = tuple(whole.shape)
        return (Header(manifest.dtype, shape, shape), whole) if shape == manifest.global_shape else None


def _parallel_shards(
    name: str, tensor: Described, parallelism: Any, partition: Any, is_whole: bool
) -> Shards | None:
    """What is put for one tensor; None: its axes cannot be."""
    if partition is not None:
        axis = None if parallelism is not None else writer_axis(partition)
        shard = None if axis is None else cut(tensor, axis, writer_key(name, axis))
        return None if shard is None else Shards([shard], writer_manifest_key(name))
    if parallelism is None:
        return Shards([whole_shard(name, tensor)])
    axes = axes_of(parallelism)
    if axes is None:
        return None
    if is_whole and len(axes) == 1 and axes[0].kind == TP:
        shards = cut_all(tensor, name, axes[0].count, axes[0].split_dim)
        return Shards(shards, manifest_key(name)) if shards else None
    shard = shard_of(tensor, name, axes, is_whole=is_whole)
    return None if shard is None else Shards([shard], manifest_key(name))


def _manifest(value: _core.BufferHandle | int) -> Manifest | None:
    return None if isinstance(value, int) else parse_manifest(memoryview(value).cast("B"))


def _same_axes(stored: Sequence[Axis], wanted: Sequence[Axis]) -> bool:
    def told(axes: Sequence[Axis]) -> set[tuple[int, ...]]:
        return {(axis.kind, axis.rank, axis.count, axis.split_dim, axis.id) for axis in axes}

    return told(stored) == told(wanted)


def _is_part(header: Header, axis: Axis, manifest: Manifest) -> bool:
    stored = header.tp_axis
    return (
        stored is not None
        and (stored.rank, stored.count, stored.split_dim) == (axis.rank, axis.count, axis.split_dim)
        and header.dtype == manifest.dtype
        and len(header.shape) == len(manifest.global_shape)
    )
