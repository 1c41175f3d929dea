"""References to batches in stages, and the handles that stand for them between processes.

Owns both forms. Handles are JSON and name manifests; what they point at is checked when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from mooncake_client.dropin.bundles import RemoteBundleRef

HANDLE_TYPE: Final = "mooncake_dataproto_ref"
HANDLE_VERSION: Final = 1
_KIND: Final = "bundle_stages"
BATCH, NON_TENSOR, META = "batch", "non_tensor_batch", "meta_info"
_SECTIONS: Final = (BATCH, NON_TENSOR)


class DataProtoField(NamedTuple):
    """Where a field lies: its stage, its member of the stage's object, and `batch` or `non_tensor_batch`."""

    stage: str
    member: str
    section: str


@dataclass
class MooncakeDataProtoRef:
    """Names a batch. encoded_non_tensor: of fields of Python values, their codec."""

    stage_refs: dict[str, RemoteBundleRef]
    field_index: dict[str, DataProtoField]
    batch_size: int
    namespace: str = ""
    partition: str = "default"
    meta_info: dict[str, Any] = field(default_factory=dict)
    global_indexes: list[int] | None = None
    encoded_non_tensor: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class FieldSchema:
    """How `put` treats one entry of a dict. metadata: `section`: where it goes; `dtype`: of its array."""

    codec: str = "auto"
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)


AnyRef: TypeAlias = "MooncakeDataProtoRef | Mapping[str, Any]"


# ---- handles


def is_dataproto_ref_handle(handle: object) -> bool:
    return isinstance(handle, Mapping) and handle.get("type") == HANDLE_TYPE


def export_dataproto_ref(ref: AnyRef) -> dict[str, Any]:
    """The reference as JSON, without manifests. Raises TypeError for meta_info that JSON cannot hold."""
    found = import_dataproto_ref(ref)
    return {
        "type": HANDLE_TYPE,
        "version": HANDLE_VERSION,
        "kind": _KIND,
        "namespace": found.namespace,
        "partition": found.partition,
        "batch_size": found.batch_size,
        "stage_refs": {name: {"manifest_key": one.manifest_key} for name, one in found.stage_refs.items()},
        "field_index": {name: one._asdict() for name, one in found.field_index.items()},
        "meta_info": _json_safe(found.meta_info),
        "global_indexes": None if found.global_indexes is None else list(found.global_indexes),
        "encoded_non_tensor": _json_safe(found.encoded_non_tensor),
    }


def import_dataproto_ref(handle: AnyRef) -> MooncakeDataProtoRef:
    """The reference that a handle stands for. Raises ValueError for what is no handle."""
    if isinstance(handle, MooncakeDataProtoRef):
        return handle
    if not is_dataproto_ref_handle(handle):
        raise ValueError(f"a {type(handle).__name__} is no handle of type {HANDLE_TYPE!r}")
    if handle.get("version") != HANDLE_VERSION or handle.get("kind") != _KIND:
        told = handle.get("version"), handle.get("kind")
        raise ValueError(f"a handle of unsupported version or kind: {told}")
    try:
        stages = {
            name: RemoteBundleRef(str(one["manifest_key"])) for name, one in handle["stage_refs"].items()
        }
        fields = {
            name: DataProtoField(one["stage"], one["member"], one["section"])
            for name, one in handle["field_index"].items()
        }
        size = handle["batch_size"]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"a handle without its parts: {error!r}") from error
    for name, one in fields.items():
        if one.stage not in stages:
            raise ValueError(f"field {name!r} is of an unknown stage {one.stage!r}")
        if one.section not in _SECTIONS:
            raise ValueError(f"field {name!r} is of an unknown section {one.section!r}")
    indexes = handle.get("global_indexes")
    if indexes is not None and not (
        isinstance(indexes, list) and all(isinstance(one, int) and one >= 0 for one in indexes)
    ):
        raise ValueError(f"global_indexes {indexes!r} is not a list of numbers")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ValueError(f"batch_size {size!r} is not a number")
    return MooncakeDataProtoRef(
        stages,
        fields,
        size,
        str(handle.get("namespace") or ""),
        str(handle.get("partition") or "default"),
        dict(handle.get("meta_info") or {}),
        indexes,
        dict(handle.get("encoded_non_tensor") or {}),
    )


export_ref = export_dataproto_ref
import_ref = import_dataproto_ref


def _json_safe(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return _json_safe(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): _json_safe(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_safe(one) for one in value]
    raise TypeError(f"a handle holds JSON, and a {type(value).__name__} is none")
