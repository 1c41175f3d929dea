"""Tensors divided over the ranks of tensor parallelism alone: the `_with_tp` family.

A rank's shard is read only when its header says that it is of this rank and of as many ranks.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from mooncake_client.dropin.base import Key, Memory, items_of, keys_of, memories_of, memory_of
from mooncake_client.dropin.codes import INVALID_PARAMS
from mooncake_client.dropin.replicate_config import DEFAULT_CONFIG, ReplicateConfig
from mooncake_client.dropin.shards_put import ShardedValues, Shards, described_at, text_of, whole_shard
from mooncake_client.dropin.tensor_format import Header
from mooncake_client.dropin.tensor_memory import Described, describe, header_at, memory_at
from mooncake_client.dropin.tensor_shards import cut_all, tp_key
from mooncake_client.dropin.tensors import shown


class TpTensors(ShardedValues):
    # ---- put

    def put_tensor_with_tp(
        self, key: str, tensor: object, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0
    ) -> int:
        """Put all `tp_size` shards of a whole tensor, whichever the rank; -600 if it cannot be divided
        evenly.
        """
        return self._put_tp([key], [tensor], DEFAULT_CONFIG, tp_size, split_dim)[0]

    def batch_put_tensor_with_tp(
        self,
        base_keys: list[str],
        tensors_list: list[Any],
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> list[int]:
        """One code a key: 0, or that of its first shard that failed."""
        return self._put_tp(base_keys, tensors_list, DEFAULT_CONFIG, tp_size, split_dim)

    def pub_tensor_with_tp(
        self,
        key: str,
        tensor: object,
        config: ReplicateConfig = DEFAULT_CONFIG,
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> int:
        return self._put_tp([key], [tensor], config, tp_size, split_dim)[0]

    def batch_pub_tensor_with_tp(
        self,
        base_keys: list[str],
        tensors_list: list[Any],
        config: ReplicateConfig = DEFAULT_CONFIG,
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> list[int]:
        return self._put_tp(base_keys, tensors_list, config, tp_size, split_dim)

    def put_tensor_with_tp_from(
        self, key: str, buffer_ptr: int, size: int, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0
    ) -> int:
        """The same of memory that holds header and items of the whole."""
        return self.batch_put_tensor_with_tp_from([key], [buffer_ptr], [size], tp_rank, tp_size, split_dim)[0]

    def batch_put_tensor_with_tp_from(
        self,
        base_keys: list[str],
        buffer_ptrs: list[int],
        sizes: list[int],
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> list[int]:
        names, whole = keys_of(base_keys), described_at(buffer_ptrs, sizes)
        return self._put_tp_shards(names, whole, DEFAULT_CONFIG, tp_size, split_dim)

    def _put_tp(
        self, keys: list[str], tensors: list[Any], config: ReplicateConfig, tp_size: int, split_dim: int
    ) -> list[int]:
        whole = [describe(tensor) for tensor in items_of(tensors, "tensors_list")]
        return self._put_tp_shards(keys_of(keys), whole, config, tp_size, split_dim)

    def _put_tp_shards(
        self,
        keys: Sequence[Key],
        whole: Sequence[Described | None],
        config: ReplicateConfig,
        tp_size: int,
        split_dim: int,
    ) -> list[int]:
        if len(keys) != len(whole):
            return [INVALID_PARAMS] * len(keys)
        groups: list[Shards | None] = []
        for key, tensor in zip(keys, whole, strict=True):
            if tensor is None:
                groups.append(None)
            elif tp_size <= 1:
                groups.append(Shards([whole_shard(text_of(key), tensor)]))
            else:
                shards = cut_all(tensor, text_of(key), tp_size, split_dim)
                groups.append(Shards(shards) if shards else None)
        return self._put_groups(groups, config, upsert=False)

    # ---- get

    def get_tensor_with_tp(self, key: str, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> object:
        """The shard of a rank; None where it is not there, or was divided over another number of ranks."""
        return self.batch_get_tensor_with_tp([key], tp_rank, tp_size)[0]

    def batch_get_tensor_with_tp(self, base_keys: list[str], tp_rank: int = 0, tp_size: int = 1) -> list[Any]:
        names = _tp_keys(base_keys, tp_rank, tp_size)
        return [
            None
            if isinstance(found, int) or not _is_rank(found[0], tp_rank, tp_size)
            else shown(found[1], found[0])
            for found in self._read_tensors(names)
        ]

    def get_tensor_with_tp_into(
        self,
        key: str,
        buffer_ptr: int,
        size: int,
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> object:
        return self._tp_into([key], [memory_of(buffer_ptr, size)], tp_rank, tp_size)[0]

    def batch_get_tensor_with_tp_into(
        self,
        base_keys: list[str],
        buffer_ptrs: list[int],
        sizes: list[int],
        tp_rank: int = 0,
        tp_size: int = 1,
    ) -> list[Any]:
        """A tensor over the caller's memory, or None, a key; -600 for all where the lists do not fit."""
        if not len(base_keys) == len(buffer_ptrs) == len(sizes):
            return [INVALID_PARAMS] * len(base_keys)
        return self._tp_into(base_keys, memories_of(buffer_ptrs, sizes), tp_rank, tp_size)

    def _tp_into(self, keys: list[str], memory: Sequence[Memory], tp_rank: int, tp_size: int) -> list[Any]:
        names = _tp_keys(keys, tp_rank, tp_size)
        answers: list[Any] = []
        for piece, length in zip(memory, self._read_into(names, memory), strict=True):
            header = None if piece is None else header_at(piece[0], max(length, 0))
            if piece is None or header is None or not _is_rank(header, tp_rank, tp_size):
                answers.append(None)
            else:
                answers.append(shown(memory_at(piece[0], length), header))
        return answers


def _tp_keys(keys: Any, tp_rank: int, tp_size: int) -> list[Key]:
    names = keys_of(keys)
    if operator.index(tp_size) <= 1:
        return names
    return [tp_key(text_of(name), operator.index(tp_rank)) for name in names]


def _is_rank(header: Header, tp_rank: int, tp_size: int) -> bool:
    axis = header.tp_axis
    return tp_size <= 1 or (axis is not None and (axis.rank, axis.count) == (tp_rank, tp_size))
