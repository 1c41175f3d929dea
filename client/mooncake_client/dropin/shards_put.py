"""What both families of tensors in shards are put by: all shards of all tensors in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mooncake_client.dropin.base import Key, items_of, memories_of
from mooncake_client.dropin.codes import INVALID_PARAMS, OK
from mooncake_client.dropin.replicate_config import ReplicateConfig
from mooncake_client.dropin.tensor_format import Header
from mooncake_client.dropin.tensor_memory import Described, header_at, memory_at, value_of
from mooncake_client.dropin.tensor_shards import Shard, manifest_of
from mooncake_client.dropin.tensors import TensorValues, shown


class Shards(NamedTuple):
    """What is put of one tensor. manifest_key: of what tells how it is divided; empty: nothing does."""

    shards: list[Shard]
    manifest_key: str = ""


class ShardedValues(TensorValues):
    def _put_groups(
        self,
        groups: Sequence[Shards | None],
        config: ReplicateConfig,
        *,
        upsert: bool,
    ) -> list[int]:
        """All shards of all tensors in one batch, then their manifests; one code a tensor."""
        flat = [shard for group in groups if group is not None for shard in group.shards]
        codes = iter(
            self._put_values(
                [shard.key for shard in flat],
                [value_of(shard.tensor, shard.header) for shard in flat],
                config,
                upsert=upsert,
            )
        )
        answers = []
        for group in groups:
            found = [next(codes) for _ in group.shards] if group is not None else []
            answers.append(next(filter(None, found), OK) if found else INVALID_PARAMS)
        self._put_manifests(groups, answers, config, upsert=upsert)
        return answers

    def _put_manifests(
        self,
        groups: Sequence[Shards | None],
        answers: list[int],
        config: ReplicateConfig,
        *,
        upsert: bool,
    ) -> None:
        """Of those that were put and are divided; a code of theirs replaces the answer."""
        wanted = []
        for index, group in enumerate(groups):
            if group is None or not group.manifest_key or answers[index] != OK:
                continue
            manifest = manifest_of(group.shards[0])
            if manifest is not None:
                wanted.append((index, group.manifest_key, manifest.pack()))
        codes = self._put_values(
            [key for _, key, _ in wanted], [value for _, _, value in wanted], config, upsert=upsert
        )
        for (index, _, _), code in zip(wanted, codes, strict=True):
            answers[index] = code


def whole_shard(name: str, tensor: Described) -> Shard:
    """The tensor as it is."""
    return Shard(name, tensor.tensor, Header(tensor.dtype, tensor.shape, tensor.shape))


def described_at(buffer_ptrs: Any, sizes: Any) -> list[Described | None]:
    """Tensors in memory of the caller, with their headers; none at all where the lists do not fit."""
    pointers, lengths = items_of(buffer_ptrs, "buffer_ptrs"), items_of(sizes, "sizes")
    if len(pointers) != len(lengths):
        return []
    found: list[Described | None] = []
    for piece in memories_of(pointers, lengths):
        header = None if piece is None else header_at(*piece)
        tensor = None if piece is None or header is None else shown(memory_at(*piece), header)
        known = header is not None and tensor is not None
        found.append(Described(tensor, header.dtype, header.shape) if header and known else None)
    return found


def text_of(key: Key) -> str:
    return key if isinstance(key, str) else key.decode("utf-8")
