"""How a tensor is divided over ranks, and under which keys its shards lie.

Owns the classes in which callers say it, the checks, the names of keys and the cutting; a shard is a header
and a view. Must not know the store.

The key of a shard is `<key>_tp_<rank>` with one axis of tensor parallelism, else the key and, in this order,
a
part for each axis: `__dp_<rank>of<size>`, `__tp_<rank>of<size>_sd<dimension>`,
`__ep_<rank>of<size>_eid<expert>`, `__pp_<rank>of<size>_sid<stage>`. Shards of several writers are
`<key>__writer_<rank>of<size>_sd<dimension>`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from mooncake_client.dropin.tensor_format import AXES_MAX, AXIS_KINDS, TP, Axis, Header, Manifest
from mooncake_client.dropin.tensor_memory import Described, narrow

AS_STORED, SHARD, FULL = "as_stored", "shard", "full"
_SHARDS_MAX: Final = 4_096
"""Of one tensor; a manifest that tells more is not followed."""


class ParallelAxis:
    """kind: tp, dp, ep or pp. split_dim: of tp. expert_id: of ep. stage_id: of pp."""

    def __init__(self) -> None:
        self.kind = ""
        self.rank = 0
        self.size = 1
        self.split_dim: int | None = None
        self.expert_id: int | None = None
        self.stage_id: int | None = None


class TensorParallelism:
    """The axes along which a tensor is divided or repeated, at most one of a kind."""

    def __init__(self) -> None:
        self.axes: list[ParallelAxis] = []


class ReadTarget:
    """What to read of a tensor: `as_stored` under its key, the `shard` of a rank, or the `full` one."""

    def __init__(self) -> None:
        self.mode = AS_STORED
        self.parallelism: TensorParallelism | None = None


class Shard(NamedTuple):
    key: str
    tensor: Any
    header: Header


def tp_key(key: str, rank: int) -> str:
    return f"{key}_tp_{rank}"


def manifest_key(key: str) -> str:
    return f"{key}__parallelism_manifest"


def writer_key(key: str, axis: Axis) -> str:
    return f"{key}__writer_{axis.rank}of{axis.count}_sd{axis.split_dim}"


def writer_manifest_key(key: str) -> str:
    return f"{key}__writer_manifest"


def shard_key(key: str, axes: Sequence[Axis]) -> str:
    if len(axes) == 1 and axes[0].kind == TP:
        return tp_key(key, axes[0].rank)
    suffixes = ("", "_sd{0.split_dim}", "_eid{0.id}", "_sid{0.id}")
    parts = (
        f"__{AXIS_KINDS[axis.kind]}_{axis.rank}of{axis.count}" + suffixes[axis.kind].format(axis)
        for axis in sorted(axes, key=lambda axis: axis.kind)
    )
    return key + "".join(parts)


def axes_of(parallelism: Any) -> list[Axis] | None:
    """None: not axes that can be."""
    axes = [_axis(axis) for axis in getattr(parallelism, "axes", ())]
    valid = [axis for axis in axes if axis is not None]
    kinds = {axis.kind for axis in valid}
    return valid if axes and len(valid) == len(axes) == len(kinds) <= AXES_MAX else None


def _axis(axis: Any) -> Axis | None:
    if axis.kind not in AXIS_KINDS:
        return None
    kind, rank, count = AXIS_KINDS.index(axis.kind), operator.index(axis.rank), operator.index(axis.size)
    # What an axis of this kind must say, and what only others may.
    wanted = (None, axis.split_dim, axis.expert_id, axis.stage_id)
    if not 0 <= rank < count <= _SHARDS_MAX or (kind != 0 and wanted[kind] is None):
        return None
    if kind == TP:
        return None if axis.split_dim < 0 else Axis(kind, rank, count, operator.index(axis.split_dim))
    if axis.split_dim is not None:
        return None
    identity = wanted[kind]
    return Axis(kind, rank, count, id=0 if identity is None else operator.index(identity))


def writer_axis(partition: Any) -> Axis | None:
    """The part of one of several writers, of anything with rank, size and split_dim; None: it cannot be."""
    rank, count = operator.index(partition.rank), operator.index(partition.size)
    split_dim = operator.index(partition.split_dim)
    fits = 0 <= rank < count <= _SHARDS_MAX and split_dim >= 0
    return Axis(TP, rank, count, split_dim) if fits else None


def divisible(shape: Sequence[int], count: int, split_dim: int) -> bool:
    return 0 <= split_dim < len(shape) and count > 0 and shape[split_dim] % count == 0


def cut(whole: Described, axis: Axis, key: str, others: Sequence[Axis] = ()) -> Shard | None:
    """The part of the whole that an axis says; None: it cannot be divided evenly.

    others: all axes of the shard, this one among them, as its header tells them.
    """
    if not divisible(whole.shape, axis.count, axis.split_dim):
        return None
    extent = whole.shape[axis.split_dim] // axis.count
    part = narrow(whole.tensor, axis.split_dim, axis.rank * extent, extent)
    shape = _with(whole.shape, axis.split_dim, extent)
    header = Header(whole.dtype, shape, whole.shape, _told(others or (axis,), extent))
    return Shard(key, part, header)


def cut_all(whole: Described, key: str, count: int, split_dim: int) -> list[Shard] | None:
    """All shards of tensor parallelism, by their keys."""
    if not divisible(whole.shape, count, split_dim) or count > _SHARDS_MAX:
        return None
    found = (cut(whole, Axis(TP, rank, count, split_dim), tp_key(key, rank)) for rank in range(count))
    return [shard for shard in found if shard is not None]


def shard_of(tensor: Described, key: str, axes: Sequence[Axis], *, is_whole: bool) -> Shard | None:
    """What one rank puts of its tensor; None: it cannot be divided so.

    With tensor parallelism alone a rank has its shard, unless `is_whole`; beside other axes it has the whole.
    Without it nothing is divided.
    """
    name = shard_key(key, axes)
    tp = next((axis for axis in axes if axis.kind == TP), None)
    if tp is None:
        return Shard(name, tensor.tensor, Header(tensor.dtype, tensor.shape, tensor.shape, tuple(axes)))
    if len(axes) > 1 or is_whole:
        return cut(tensor, tp, name, axes)
    if not 0 <= tp.split_dim < len(tensor.shape):
        return None
    extent = tensor.shape[tp.split_dim]
    whole = _with(tensor.shape, tp.split_dim, extent * tp.count)
    return Shard(name, tensor.tensor, Header(tensor.dtype, tensor.shape, whole, _told(axes, extent)))


def manifest_of(shard: Shard) -> Manifest | None:
    """What tells how to put its whole together; None: it is not divided."""
    axis = shard.header.tp_axis
    if axis is None:
        return None
    return Manifest(shard.header.dtype, axis.split_dim, axis.count, shard.header.global_shape)


def _told(axes: Sequence[Axis], extent: int) -> tuple[Axis, ...]:
    return tuple(
        Axis(axis.kind, axis.rank, axis.count, axis.split_dim, axis.id, extent if axis.kind == TP else 0)
        for axis in axes
    )


def _with(shape: tuple[int, ...], dimension: int, size: int) -> tuple[int, ...]:
    return (*shape[:dimension], size, *shape[dimension + 1 :])
