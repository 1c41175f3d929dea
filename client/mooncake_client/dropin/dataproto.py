"""Batches in stages: fields of arrays, tensors and Python values with one row each, put by one process, added
to by the next, and read by whoever has the handle, field by field and row by row.

Owns how fields lie in structured objects, one a stage. A batch is anything with `batch`, `non_tensor_batch`
and `meta_info`, or a dict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from mooncake_client.dropin.bundles import BundleTransferPolicy, Put, PutMember, RemoteBundleRef, checked_name
from mooncake_client.dropin.columns import decoded, encoded
from mooncake_client.dropin.dataproto_refs import (
    BATCH,
    META,
    NON_TENSOR,
    AnyRef,
    DataProtoField,
    FieldSchema,
    MooncakeDataProtoRef,
    import_dataproto_ref,
)
from mooncake_client.dropin.structured_members import (
    TensorObjectBuffer,
    is_tensor,
    rows_of,
)
from mooncake_client.dropin.structured_objects import FIELDS, StructuredObjects, packed_metadata

_DATAPROTO: Final = "dataproto"
_OFFSETS, _NULLS = "@offsets", "@nulls"


class _Batch(NamedTuple):
    """A batch of any form, sorted out."""

    batch: dict[str, Any]
    non_tensor: dict[str, Any]
    meta_info: dict[str, Any]
    size: int


# ---- batches


def _sorted_out(data: Any) -> _Batch:
    """Raises ValueError or TypeError, naming the field, for what cannot be one batch."""
    if isinstance(data, Mapping):
        names = (BATCH, NON_TENSOR, META)
        is_envelope = set(data) <= set(names) and all(isinstance(one, Mapping) for one in data.values())
        parts = [dict(data.get(name, {})) for name in names] if data and is_envelope else [dict(data), {}, {}]
    else:
        parts = [_items_of(getattr(data, name, None)) for name in (BATCH, NON_TENSOR, META)]
    batch, non_tensor, meta_info = parts
    overlap = sorted(set(batch) & set(non_tensor))
    if overlap:
        raise ValueError(f"fields of {BATCH} and {NON_TENSOR} overlap: {overlap}")
    batch = {name: _as_tensor(name, value) for name, value in batch.items()}
    sizes = {name: _rows_in(name, value) for name, value in {**batch, **non_tensor}.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"inconsistent batch sizes: {sizes}")
    return _Batch(batch, non_tensor, meta_info, next(iter(sizes.values()), 0))


def _items_of(fields: Any) -> dict[str, Any]:
    return {} if fields is None else dict(fields.items())


def _as_tensor(name: str, value: Any) -> Any:
    if is_tensor(value) or isinstance(value, TensorObjectBuffer):
        return value
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise TypeError(f"field {name!r} of {BATCH} holds Python values; they go to {NON_TENSOR}")
    return array


def _rows_in(name: str, value: Any) -> int:
    if isinstance(value, TensorObjectBuffer):
        if value.batch_size is None:
            raise TypeError(f"field {name!r} is a tensor-object buffer without batch_size")
        return value.batch_size
    try:
        return len(value)
    except TypeError:
        raise TypeError(f"field {name!r} has no rows") from None


def _is_plain(value: Any) -> bool:
    """A column that is an array of numbers as it stands."""
    return is_tensor(value) or (isinstance(value, np.ndarray) and value.dtype.kind in "biufc")


def _column_of(values: Sequence[Any]) -> Any:
    """An array of objects, one a row, whatever they are."""
    column = np.empty(len(values), dtype=object)
    for at, value in enumerate(values):
        column[at] = value
    return column


class DataProtos(StructuredObjects):
    # ---- put

    def put_dataproto(
        self,
        data: Any,
        *,
        namespace: str = "",
        partition: str = "default",
        stage: str = "default",
        chunk_bytes: int | None = None,
        policy: BundleTransferPolicy | None = None,
        config: Any = None,
    ) -> MooncakeDataProtoRef:
        """Put a batch as the first stage. Raises ValueError for fields of different numbers of rows."""
        put = self._put_settings(chunk_bytes, policy, config)
        found = _sorted_out(data)
        empty = MooncakeDataProtoRef({}, {}, found.size, namespace, partition)
        return self._put_stage(empty, found, checked_name("stage", stage), put)

    def append_dataproto_fields(
        self,
        ref: AnyRef,
        data: Any,
        *,
        stage: str,
        overwrite: bool = False,
        chunk_bytes: int | None = None,
        policy: BundleTransferPolicy | None = None,
        config: Any = None,
    ) -> MooncakeDataProtoRef:
        """Put more fields; the new reference has all. Fields that are there are not written again.

        overwrite: replace all fields of a stage, whose old object is removed then.
        """
        put = self._put_settings(chunk_bytes, policy, config)
        older, found = import_dataproto_ref(ref), _sorted_out(data)
        names = {*found.batch, *found.non_tensor}
        if names and found.size != older.batch_size:
            raise ValueError(f"batch size {found.size} of the fields is not {older.batch_size}")
        of_stage = {name for name, one in older.field_index.items() if one.stage == stage}
        taken = names & set(older.field_index)
        if taken - (of_stage if overwrite else set()):
            raise ValueError(f"fields already exist: {sorted(taken)}")
        if overwrite and of_stage - names:
            raise ValueError(
                f"to overwrite stage {stage!r}, data must include existing fields: {sorted(of_stage)}"
            )
        if not overwrite or stage not in older.stage_refs:
            return self._put_stage(older, found, checked_name("stage", stage), put)
        replaced = older.stage_refs[stage]
        without = replace(
            older,
            stage_refs={name: one for name, one in older.stage_refs.items() if name != stage},
            field_index={name: one for name, one in older.field_index.items() if name not in of_stage},
            encoded_non_tensor={
                name: one for name, one in older.encoded_non_tensor.items() if name not in of_stage
            },
        )
        made = self._put_stage(without, found, stage, put)
        self.remove_bundle(replaced)
        return made

    def _put_stage(
        self, older: MooncakeDataProtoRef, found: _Batch, stage: str, put: Put
    ) -> MooncakeDataProtoRef:
        """An object with these fields, and those that the stage has already; the reference with them."""
        specs, members, codecs = self._fields(found, put)
        beside: dict[str, Any] = {}
        told = dict(codecs)
        if stage in older.stage_refs:
            before = self._resolved(older.stage_refs[stage])
            metadata = self._metadata_of(before)
            specs = {**metadata[FIELDS], **specs}
            told = {**metadata[_DATAPROTO]["encoded"], **told}
            beside = _extending(before)
        about = {"stage": stage, "namespace": older.namespace, "partition": older.partition, "encoded": told}
        meta = packed_metadata({_DATAPROTO: about}, specs)
        made = self._write(meta, members, put, older.partition, older.namespace, beside)
        sections = {**dict.fromkeys(found.batch, BATCH), **dict.fromkeys(found.non_tensor, NON_TENSOR)}
        index = {
            name: DataProtoField(stage, f"{section}.{name}", section) for name, section in sections.items()
        }
        return replace(
            older,
            stage_refs={**older.stage_refs, stage: made},
            field_index={**older.field_index, **index},
            meta_info={**older.meta_info, **found.meta_info},
            encoded_non_tensor={**older.encoded_non_tensor, **codecs},
        )

    def _fields(
        self, found: _Batch, put: Put
    ) -> tuple[dict[str, Any], dict[str, PutMember], dict[str, dict[str, Any]]]:
        """What the metadata says of each member, what puts them, and the codecs of columns."""
        values: dict[str, Any] = {f"{BATCH}.{name}": value for name, value in found.batch.items()}
        codecs: dict[str, dict[str, Any]] = {}
        for name, value in found.non_tensor.items():
            member = f"{NON_TENSOR}.{name}"
            if _is_plain(value):
                values[member] = value
                continue
            column = encoded(name, list(value))
            codecs[name] = {"codec": column.codec, "is_list": isinstance(value, list)}
            values |= {
                member: column.data,
                f"{member}{_OFFSETS}": column.offsets,
                f"{member}{_NULLS}": column.nulls,
            }
        specs, members = self._prepared(values, put, {})
        return specs, members, codecs

    # ---- read

    def get_dataproto(
        self,
        ref: AnyRef,
        *,
        fields: Sequence[str] | None = None,
        batch_fields: Sequence[str] | None = None,
        non_tensor_fields: Sequence[str] | None = None,
        meta_info_keys: Sequence[str] | None = None,
        data_cls: Any = None,
        destinations: Mapping[str, Any] | None = None,
        rows: Any = None,
    ) -> Any:
        """Fields of a batch, all where none are named, as a dict or a `data_cls`.

        rows: a slice or indices, of every field. destinations: memory of the caller by field. Raises KeyError
        for a field that is not there, IndexError for a row.
        """
        found = import_dataproto_ref(ref)
        names = _chosen(found, fields, batch_fields, non_tensor_fields)
        chosen = None if rows is None else rows_of(rows, found.batch_size)
        targets = destinations or {}
        unknown = [name for name in targets if name not in names]
        if unknown:
            raise KeyError(f"destinations of fields that are not read: {unknown}")
        stages = {found.field_index[name].stage for name in names}
        opened = {stage: self._resolved(found.stage_refs[stage]) for stage in stages}
        metadata = {stage: self._metadata_of(one) for stage, one in opened.items()}
        parts: dict[str, dict[str, Any]] = {BATCH: {}, NON_TENSOR: {}}
        for name in names:
            one = found.field_index[name]
            parts[one.section][name] = self._field(
                name, one, opened[one.stage], metadata[one.stage], chosen, targets.get(name)
            )
        meta_info = _meta_info(found, meta_info_keys)
        return _shaped(data_cls, parts[BATCH], parts[NON_TENSOR], meta_info)

    def _field(
        self,
        name: str,
        place: DataProtoField,
        stage: RemoteBundleRef,
        metadata: Mapping[str, Any],
        rows: Sequence[int] | None,
        target: Any,
    ) -> Any:
        specs, buffers = metadata[FIELDS], stage.manifest["buffers"]
        if place.member not in specs or place.member not in buffers:
            raise KeyError(f"{stage.manifest_key} has no member {place.member!r}")
        codec = metadata[_DATAPROTO]["encoded"].get(name) if place.section == NON_TENSOR else None
        if codec is None:
            spec, entry = specs[place.member], buffers[place.member]
            return self._reader.read(place.member, entry, spec, rows=rows, target=target)
        if target is not None:
            raise ValueError(f"field {name!r} is Python values: it takes no destination")
        offsets = self._reader.read(
            place.member, buffers[f"{place.member}{_OFFSETS}"], specs[f"{place.member}{_OFFSETS}"]
        )
        nulls = self._reader.read(
            place.member, buffers[f"{place.member}{_NULLS}"], specs[f"{place.member}{_NULLS}"]
        )
        packed = self._packed_rows(
            buffers[place.member], offsets, range(len(nulls)) if rows is None else rows
        )
        chosen = range(len(nulls)) if rows is None else rows
        values = decoded(
            codec["codec"], [None if nulls[row] else one for row, one in zip(chosen, packed, strict=True)]
        )
        return _column_of(values)

    def _packed_rows(self, entry: dict[str, Any], offsets: Any, rows: Sequence[int]) -> list[bytes]:
        """The bytes of those rows; of neighbours one range is read."""
        total = int(offsets[-1]) if len(offsets) else 0
        if (
            len(offsets) == 0
            or total != entry["bytes"]
            or offsets[0] != 0
            or bool((np.diff(offsets) < 0).any())
        ):
            raise ValueError(f"{entry['key']}: its rows do not fill its {entry['bytes']} bytes")
        ranges: list[tuple[int, int]] = []
        for row in rows:
            start, end = int(offsets[row]), int(offsets[row + 1])
            if ranges and sum(ranges[-1]) == start:
                ranges[-1] = (ranges[-1][0], ranges[-1][1] + end - start)
            elif end > start:
                ranges.append((start, end - start))
        data = self._reader.bytes_at(entry, ranges).tobytes() if ranges else b""
        packed, at = [], 0
        for row in rows:
            size = int(offsets[row + 1] - offsets[row])
            packed.append(data[at : at + size])
            at += size
        return packed

    def dataproto_manifest_view(self, ref: AnyRef) -> dict[str, Any]:
        """What the manifests say of a batch, without reading its fields."""
        found = import_dataproto_ref(ref)
        stages = {name: self._metadata_of(self._resolved(one)) for name, one in found.stage_refs.items()}
        view: dict[str, Any] = {
            "namespace": found.namespace,
            "partition": found.partition,
            "batch_size": found.batch_size,
            "stages": stages,
            "batch_fields": {},
            "non_tensor_fields": {},
            "meta_info_keys": list(found.meta_info),
        }
        for name, one in found.field_index.items():
            section = "batch_fields" if one.section == BATCH else "non_tensor_fields"
            view[section][name] = {**one._asdict(), "spec": stages[one.stage][FIELDS][one.member]}
        return view

    def cleanup_dataproto(self, ref: AnyRef) -> None:
        """Remove every stage of a batch."""
        for one in import_dataproto_ref(ref).stage_refs.values():
            self.remove_bundle(one)

    # ---- by kind of value

    def put(
        self,
        data: Any,
        *,
        type: str = "dataproto",
        field_schemas: Mapping[str, FieldSchema] | None = None,
        **settings: Any,
    ) -> Any:
        """`dataproto`: put_dataproto; `object`: put_object; `dict`: a dict of values with one row each and of
        metadata, sorted by field_schemas.
        """
        if type == "dict":
            return self.put_dataproto(_by_section(data, field_schemas or {}), **settings)
        if type == "dataproto":
            return self.put_dataproto(data, **settings)
        if type == "object":
            return self.put_object(data, **settings)
        raise ValueError(f"type {type!r} is not one of dataproto, dict, object")

    def get(self, ref: Any, *, type: str = "dataproto", **settings: Any) -> Any:
        """What put has put, by the same type."""
        if type == "dict":
            found = import_dataproto_ref(ref)
            parts = self.get_dataproto(found, **settings)
            lists = {name for name, one in found.encoded_non_tensor.items() if one.get("is_list")}
            columns = {
                name: one.tolist() if name in lists else one for name, one in parts[NON_TENSOR].items()
            }
            return {**parts[BATCH], **columns, **parts[META]}
        if type == "dataproto":
            return self.get_dataproto(ref, **settings)
        if type == "object":
            return self.get_object(ref)
        raise ValueError(f"type {type!r} is not one of dataproto, dict, object")


def _extending(before: RemoteBundleRef) -> dict[str, Any]:
    """More of the manifest of an object that takes over the payloads of another one of its partition."""
    manifest = before.manifest
    return {
        "buffers": manifest["buffers"],
        "extends": [manifest["object_id"], *manifest.get("extends", [])],
        "cleanup_keys": [
            before.manifest_key,
            *(chunk["key"] for chunk in manifest["meta"]["chunks"]),
            *manifest.get("cleanup_keys", []),
        ],
    }


def _chosen(
    ref: MooncakeDataProtoRef,
    fields: Sequence[str] | None,
    batch_fields: Sequence[str] | None,
    non_tensor_fields: Sequence[str] | None,
) -> list[str]:
    by_section = {BATCH: batch_fields, NON_TENSOR: non_tensor_fields}
    if fields is not None:
        if any(named is not None for named in by_section.values()):
            raise ValueError("fields cannot be combined with batch_fields or non_tensor_fields")
        names = list(fields)
    elif all(named is None for named in by_section.values()):
        names = list(ref.field_index)
    else:
        names = [*(batch_fields or ()), *(non_tensor_fields or ())]
    unknown = [name for name in names if name not in ref.field_index]
    if unknown:
        raise KeyError(f"unknown DataProto fields: {unknown}")
    for section, named in by_section.items():
        wrong = [name for name in named or () if ref.field_index[name].section != section]
        if wrong:
            raise KeyError(f"unknown DataProto fields of {section}: {wrong}")
    return list(dict.fromkeys(names))


def _meta_info(ref: MooncakeDataProtoRef, keys: Sequence[str] | None) -> dict[str, Any]:
    if keys is None:
        return dict(ref.meta_info)
    missing = [key for key in keys if key not in ref.meta_info]
    if missing:
        raise KeyError(f"unknown meta_info: {missing}")
    return {key: ref.meta_info[key] for key in keys}


def _shaped(
    data_cls: Any, batch: dict[str, Any], non_tensor: dict[str, Any], meta_info: dict[str, Any]
) -> Any:
    if data_cls is None or data_cls is dict:
        return {BATCH: batch, NON_TENSOR: non_tensor, META: meta_info}
    if callable(getattr(data_cls, "from_dict", None)):
        try:
            return data_cls.from_dict(batch, non_tensor, meta_info=meta_info)
        except TypeError:
            pass
    try:
        return data_cls(batch=batch, non_tensor_batch=non_tensor, meta_info=meta_info)
    except TypeError as error:
        raise TypeError(f"{data_cls!r} cannot be constructed of a batch: {error}") from error


def _by_section(data: Mapping[str, Any], schemas: Mapping[str, FieldSchema]) -> dict[str, Any]:
    """A dict as the three parts of a batch: arrays are rows, and what no schema names otherwise metadata."""
    parts: dict[str, dict[str, Any]] = {BATCH: {}, NON_TENSOR: {}, META: {}}
    for name, value in data.items():
        schema = schemas.get(name)
        is_array = is_tensor(value) or (isinstance(value, np.ndarray) and value.ndim > 0)
        section = BATCH if is_array and _is_plain(value) else NON_TENSOR if is_array else META
        if schema is not None:
            section = schema.metadata.get("section", section)
            dtype = schema.metadata.get("dtype")
            if section not in parts:
                raise ValueError(f"field {name!r} has an unknown section {section!r}")
            if not schema.nullable and section != META and any(one is None for one in value):
                raise ValueError(f"field {name!r} has None in it, and is not nullable")
            if dtype is not None and section != META:
                value = _with_dtype(value, dtype)
        parts[section][name] = value
    return parts


def _with_dtype(value: Any, dtype: str) -> Any:
    """An array of it where all rows have one shape; else each row as one."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.astype(dtype, copy=False)
    if is_tensor(value):
        return value
    return [None if row is None else np.asarray(row, dtype=dtype) for row in value]
