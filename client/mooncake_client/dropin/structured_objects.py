"""Structured objects: named arrays, tensors and bytes under one reference, read whole, in part, or in place.

Owns the metadata of an object and the forms of reads. Must not know batches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from mooncake_client.dropin.bundles import (
    Bundles,
    BundleTransferPolicy,
    Put,
    PutMember,
    RemoteBundleRef,
    checked_name,
)
from mooncake_client.dropin.structured_members import (
    Reader,
    StructuredMemberSlice,
    TensorObjectBuffer,
    is_tensor,
    prepared,
)

FIELDS: Final = "__mooncake_structured_fields__"
_OBJECT: Final = "object"
_WRAPPED: Final = "value"

Ref: TypeAlias = "RemoteBundleRef | Mapping[str, Any]"


@dataclass
class StructuredObjectPayload:
    """What is put. metadata: JSON; buffers: by name an array, a tensor, bytes or a tensor_object_buffer."""

    metadata: Mapping[str, Any] | None = None
    buffers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StructuredObjectReadSpec:
    """What of an object is read: every member whole, unless it is narrowed."""

    ref: RemoteBundleRef | Mapping[str, Any]
    members: tuple[str, ...] | None = None
    slices: Mapping[str, StructuredMemberSlice] = field(default_factory=dict)

    def select_members(self, members: Sequence[str]) -> StructuredObjectReadSpec:
        return replace(self, members=tuple(members))

    def slice_member(
        self, name: str, axis: int = 0, start: int | None = None, end: int | None = None, step: int | None = 1
    ) -> StructuredObjectReadSpec:
        """Only these rows of a member; axis 0 alone."""
        return replace(self, slices={**self.slices, name: StructuredMemberSlice(axis, start, end, step)})


@dataclass
class StructuredObjectResult:
    """What was read: the metadata as it was put, with what is known of each member, and members by name."""

    metadata: dict[str, Any]
    objects: dict[str, Any]


class StructuredObjects(Bundles):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reader = Reader(self._payloads)

    # ---- put

    def put_structured_object(
        self,
        payload: StructuredObjectPayload,
        *,
        partition: str = "default",
        namespace: str = "",
        chunk_bytes: int | None = None,
        max_inflight_put: int | None = None,
        policy: BundleTransferPolicy | None = None,
        config: Any = None,
        pre_registered_buffers: Mapping[str, bool] | None = None,
    ) -> RemoteBundleRef:
        """pre_registered_buffers: members whose memory the caller has registered with the store."""
        put = self._put_settings(chunk_bytes, policy, config, max_inflight_put)
        registered = pre_registered_buffers or {}
        unknown = [name for name in registered if name not in payload.buffers]
        if unknown:
            raise ValueError(f"unknown pre-registered buffers: {unknown}")
        specs, members = self._prepared(payload.buffers, put, registered)
        return self._write(packed_metadata(payload.metadata, specs), members, put, partition, namespace)

    def _prepared(
        self, buffers: Mapping[str, Any], put: Put, registered: Mapping[str, bool]
    ) -> tuple[dict[str, Any], dict[str, PutMember]]:
        specs, members = {}, {}
        for name, value in buffers.items():
            is_registered = bool(registered.get(checked_name("buffer name", name)))
            specs[name], members[name] = prepared(
                self._payloads, name, value, put, is_registered=is_registered
            )
        return specs, members

    def put_object(self, value: Any, **settings: Any) -> RemoteBundleRef:
        """A dict of arrays, tensors, bytes and JSON values, or one of these. settings: as of a structured
        object's.
        """
        is_wrapped = not isinstance(value, Mapping)
        fields = {_WRAPPED: value} if is_wrapped else dict(value)
        buffers = {name: one for name, one in fields.items() if _is_member(one)}
        values = {name: one for name, one in fields.items() if name not in buffers}
        metadata = {_OBJECT: {"is_wrapped": is_wrapped, "values": values, "order": list(fields)}}
        return self.put_structured_object(StructuredObjectPayload(metadata, buffers), **settings)

    # ---- read

    def read_spec(self, ref: Ref) -> StructuredObjectReadSpec:
        """A read of the whole object, to be narrowed; nothing is asked yet."""
        return StructuredObjectReadSpec(ref)

    def materialize(self, spec: StructuredObjectReadSpec) -> StructuredObjectResult:
        """Read into memory of its own. Raises KeyError for a member that is not there."""
        return self._materialize(spec, {})

    def materialize_into(
        self, spec: StructuredObjectReadSpec, destinations: Mapping[str, Any]
    ) -> StructuredObjectResult:
        """Read members into memory of the caller, where destinations name it."""
        return self._materialize(spec, destinations)

    def get_object(self, ref: Ref) -> Any:
        """What put_object has put."""
        result = self.materialize(self.read_spec(ref))
        told = result.metadata.get(_OBJECT)
        if not isinstance(told, dict):
            raise ValueError("it was not put by put_object")
        found = {**told["values"], **result.objects}
        return found[_WRAPPED] if told["is_wrapped"] else {name: found[name] for name in told["order"]}

    @staticmethod
    def release_result(result: Any) -> None:
        """Nothing is to be given back: what was read keeps its own memory. For callers of Mooncake's."""

    def _materialize(
        self, spec: StructuredObjectReadSpec, destinations: Mapping[str, Any]
    ) -> StructuredObjectResult:
        if spec.members is not None and not spec.members:
            raise ValueError("the read has selected no members")
        found = self._resolved(spec.ref)
        metadata = self._metadata_of(found)
        specs, buffers = metadata[FIELDS], found.manifest["buffers"]
        names = list(specs) if spec.members is None else list(spec.members)
        for name in (*names, *spec.slices, *destinations):
            if name not in specs or name not in buffers:
                raise KeyError(f"{found.manifest_key} has no member {name!r}")
        objects = {
            name: self._reader.read(
                name,
                buffers[name],
                specs[name],
                rows=spec.slices.get(name),
                target=destinations.get(name),
            )
            for name in names
        }
        return StructuredObjectResult(metadata, objects)

    def _metadata_of(self, ref: RemoteBundleRef) -> dict[str, Any]:
        data = self._payloads.read(ref.manifest["meta"]).tobytes()
        try:
            metadata = json.loads(data)
        except ValueError:
            metadata = None
        if not isinstance(metadata, dict) or not isinstance(metadata.get(FIELDS), dict):
            raise ValueError(f"{ref.manifest_key} is a bundle of bytes, not a structured object")
        return metadata


def packed_metadata(metadata: Mapping[str, Any] | None, specs: Mapping[str, Any]) -> bytes:
    """The bytes beside the members. Raises TypeError for metadata that is no JSON object."""
    given = {} if metadata is None else metadata
    if not isinstance(given, Mapping):
        raise TypeError(f"metadata is a {type(given).__name__}, not a mapping")
    if FIELDS in given:
        raise ValueError(f"metadata has the reserved name {FIELDS}")
    try:
        return json.dumps({"layout": "structured", **given, FIELDS: specs}, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise TypeError(f"metadata is not JSON-serializable: {error}") from error


def _is_member(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    return isinstance(value, (bytes, bytearray, memoryview, TensorObjectBuffer)) or is_tensor(value)
