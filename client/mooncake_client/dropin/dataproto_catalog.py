"""`DataProtoCatalog`: which batch holds which fields of which sample, by partition and key.

Owns that table in one process; whoever shares it serves it. It holds handles and never touches what they
name.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mooncake_client.dropin.dataproto_refs import export_dataproto_ref, import_dataproto_ref

Location: TypeAlias = "tuple[str, int]"
"""The key of a manifest, and a row."""


@dataclass
class _Sample:
    tags: dict[str, Any] = field(default_factory=dict)
    locations: dict[str, Location] = field(default_factory=dict)


class DataProtoCatalog:
    """For any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partitions: dict[str, dict[str, _Sample]] = {}
        self._handles: dict[str, dict[str, Any]] = {}

    def update(
        self,
        partition: str,
        keys: Sequence[str],
        *,
        tags: Sequence[Mapping[str, Any]] | None = None,
        handle: Any = None,
    ) -> dict[str, Any]:
        """Add samples, or to them: tags are merged, rows of `handle` are the keys', fields replace others.

        The partition's keys and fields after it. Raises ValueError for what does not fit; nothing is changed.
        """
        names = _names(keys, "keys")
        if tags is not None and len(tags) != len(names):
            raise ValueError(f"keys and tags must have the same length: {len(names)} and {len(tags)}")
        placed: dict[str, Any] | None = None
        manifest, fields = "", []
        if handle is not None:
            ref = import_dataproto_ref(handle)
            if len(ref.stage_refs) != 1:
                raise ValueError(f"a handle of exactly one stage is wanted, not of {len(ref.stage_refs)}")
            if ref.batch_size != len(names):
                raise ValueError(
                    f"keys and rows must have the same length: {len(names)} and {ref.batch_size}"
                )
            placed, fields = export_dataproto_ref(ref), list(ref.field_index)
            [one] = ref.stage_refs.values()
            manifest = one.manifest_key
        with self._lock:
            samples = self._partitions.setdefault(partition, {})
            for row, name in enumerate(names):
                sample = samples.setdefault(name, _Sample())
                sample.tags.update({} if tags is None else tags[row])
                for one_field in fields:
                    sample.locations[one_field] = (manifest, row)
            if placed is not None:
                self._handles[manifest] = placed
            self._forget_unused()
            return {"partition": partition, "keys": list(samples), "fields": _fields_of(samples.values())}

    def resolve(
        self, partition: str, keys: Sequence[str], fields: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Where the fields of samples are: groups of fields whose samples lie at the same locations, in the
        order of the keys, and the handles of those. fields: all that the samples have where none are named.
        """
        names = _names(keys, "keys")
        wanted = None if fields is None else _names(fields, "fields")
        with self._lock:
            samples = self._partitions.get(partition, {})
            missing = [name for name in names if name not in samples]
            if missing:
                raise ValueError(f"keys were not found in partition {partition!r}: {missing}")
            found = [samples[name] for name in names]
            if wanted is None:
                wanted = _fields_of(found)
                if not wanted:
                    raise ValueError(f"the samples do not contain any fields: {names}")
            groups: dict[tuple[Location, ...], list[str]] = {}
            for one in wanted:
                waiting = [
                    name for name, sample in zip(names, found, strict=True) if one not in sample.locations
                ]
                if waiting:
                    raise ValueError(f"field {one!r} is not ready for {waiting}")
                groups.setdefault(tuple(sample.locations[one] for sample in found), []).append(one)
            manifests = {manifest for locations in groups for manifest, _ in locations}
            return {
                "partition": partition,
                "keys": names,
                "fields": wanted,
                "field_groups": [
                    {"fields": group, "locations": list(locations)} for locations, group in groups.items()
                ],
                "handles": {manifest: self._handles[manifest] for manifest in sorted(manifests)},
            }

    def list(self, partition: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        """Tags by partition and key."""
        with self._lock:
            chosen = (
                self._partitions if partition is None else {partition: self._partitions.get(partition, {})}
            )
            return {
                name: {key: dict(sample.tags) for key, sample in samples.items()}
                for name, samples in chosen.items()
                if samples or partition is not None
            }

    def remove(self, partition: str, keys: Sequence[str] | None = None) -> dict[str, Any]:
        """Forget samples, all of the partition where none are named. What is in the store stays there:
        `released_handles` are those that no sample lies in any more.
        """
        names = None if keys is None else _names(keys, "keys")
        with self._lock:
            samples = self._partitions.get(partition, {})
            gone = [name for name in (list(samples) if names is None else names) if samples.pop(name, None)]
            if not samples:
                self._partitions.pop(partition, None)
            return {"partition": partition, "keys": gone, "released_handles": self._forget_unused()}

    def _forget_unused(self) -> list[dict[str, Any]]:  # type: ignore[valid-type]
        used = {
            manifest
            for samples in self._partitions.values()
            for sample in samples.values()
            for manifest, _ in sample.locations.values()
        }
        return [self._handles.pop(manifest) for manifest in [*self._handles] if manifest not in used]


def _names(names: Any, what: str) -> Any:
    if isinstance(names, (str, bytes)) or not isinstance(names, Sequence):
        raise ValueError(f"{what} are a sequence of str, not {names!r}")
    return [*names]


def _fields_of(samples: Any) -> Any:
    return [*dict.fromkeys(name for sample in samples for name in sample.locations)]
