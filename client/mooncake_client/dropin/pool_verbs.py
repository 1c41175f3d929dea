"""Where copies lie, tasks that copy or move them, and memory that is lent and taken back while a store runs.

Owns the names by which segments are told apart at this door: `"<session>-<segment>"`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from mooncake_client.answers import MISSES
from mooncake_client.dropin.base import Key, StoreBase, items_of, keys_of
from mooncake_client.dropin.codes import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    OBJECT_NOT_FOUND,
    OK,
    TASK_NOT_FOUND,
    error_code,
    read_code,
)
from mooncake_client.dropin.descriptors import (
    Descriptor,
    DiskDescriptor,
    MemoryDescriptor,
    QueryTaskResponse,
    ReplicaDescriptor,
    ReplicaStatus,
    TaskStatus,
    TaskType,
)
from mooncake_store.errors import StoreError
from mooncake_store.keys import KEY_BYTES_MAX

log = logging.getLogger("mooncake_store.dropin")

_SSD: Final = 2  # proto/FRAMES.md, tiers
_GRACE_S_MAX: Final = 3_600
_NO_TASK: Final = (0, 0)
_TARGETS_MAX: Final = 8
_NAME_BYTES_MAX: Final = 255


class PoolVerbs(StoreBase):
    # ---- copies

    def get_replica_desc(self, key: str) -> list[ReplicaDescriptor]:
        """The copies of the value; [] where there is none."""
        return self.batch_get_replica_desc([key]).get(key, [])

    def batch_get_replica_desc(self, keys: list[str]) -> dict[str, list[ReplicaDescriptor]]:
        """By key; keys without a value are left out. Leases nothing."""
        found: dict[Any, tuple[int, list[_Copy]]] = self._copies_of(keys_of(keys))
        return {name: [_descriptor(copy, size) for copy in copies] for name, (size, copies) in found.items()}

    def batch_replica_clear(self, keys: list[str], segment_name: str = "") -> list[str]:
        """Remove values that nobody is reading; the keys of those removed.

        segment_name: only their copies on this segment. Values with others stay, and are not copied anew
        (until a later master rebuilds: it knows how many copies their put asked for); of values without one
        there nothing is removed.
        """
        names, client = keys_of(keys), self._client()
        if client is None or not names:
            return []
        if segment_name:
            _, mounted = client.segments()
            on = [segment["segment"] for segment in mounted if segment["name"] == segment_name]
            if not on:
                return []
            statuses = client.remove_copies(names, on)
        else:
            statuses = client.remove_many(names, force=False)
        return [
            name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")
            for name, status in zip(names, statuses, strict=True)
            if status == 0
        ]

    def _copies_of(self, names: Sequence[Key]) -> dict[Key, tuple[int, list[_Copy]]]:
        """Size and copies of what has a value: one question for all keys, and one for the segments' names."""
        client = self._client()
        if client is None or not names:
            return {}
        located = client.locate_many(names)
        if not any(status == 0 for status, _, _ in located):
            return {}
        _, mounted = client.segments()
        segments = {segment["segment"]: segment for segment in mounted}
        found: dict[Key, tuple[int, list[_Copy]]] = {}
        for name, (status, size, places) in zip(names, located, strict=True):
            copies = [
                _Copy(replica, segments[segment]["name"], segments[segment]["tier"])
                for replica, segment in places
                if segment in segments
            ]
            if status == 0 and copies:
                found[name] = (size, copies)
        return found

    # ---- tasks

    def create_copy_task(self, key: str, targets: list[str]) -> tuple[tuple[int, int], int]:
        """Have the master copy the value to those segments: (task, 0), or ((0, 0), code).

        -704 without a value, -600 with a segment that nobody lends, -1401 while too many tasks are under way.
        What lies on a target already stays there and needs no copy.
        """
        return self._create_task(TaskType.REPLICA_COPY, key, items_of(targets, "targets"), "")

    def create_move_task(self, key: str, source: str, target: str) -> tuple[tuple[int, int], int]:
        """The same, and the copy on `source` goes once `target` has one; -710: there is none on `source`."""
        return self._create_task(TaskType.REPLICA_MOVE, key, [target], source)

    def _create_task(
        self, kind: TaskType, key: str, targets: list[str], source: str
    ) -> tuple[tuple[int, int], int]:
        client, packed = self._client(), _packed(key)
        names = [target.encode("utf-8") for target in (*targets, source)]
        if client is None or any(len(name) > _NAME_BYTES_MAX for name in names):
            return _NO_TASK, INVALID_PARAMS
        if not 0 < len(packed) <= KEY_BYTES_MAX:
            return _NO_TASK, OBJECT_NOT_FOUND
        if not 0 < len(targets) <= _TARGETS_MAX or (kind == TaskType.REPLICA_MOVE and not source):
            return _NO_TASK, INVALID_PARAMS
        status, task = client.create_task(int(kind), packed, targets, source=source)
        if status == 0:
            return (task, 0), OK
        log.debug("a task for %r: %s", key, client.why())
        return _NO_TASK, read_code(status) if status in MISSES else error_code(status)

    def query_task(self, task_id: tuple[int, int]) -> tuple[QueryTaskResponse | None, int]:
        """How far a task is: (answer, 0), or (None, code); -1400: unknown, or it ended too long ago."""
        first, second = task_id
        client = self._client()
        if client is None or second != 0 or not 0 < first < 1 << 64:
            return None, TASK_NOT_FOUND
        status, told = client.query_task(first)
        if told is None:
            return None, error_code(status)
        now_ms = time.time_ns() // 1_000_000
        answer = QueryTaskResponse(
            id=(told["task"], 0),
            type=TaskType(told["type"]),
            status=TaskStatus(told["status"]),
            created_at_ms_epoch=now_ms - told["created_ms_ago"],
            last_updated_at_ms_epoch=now_ms - told["updated_ms_ago"],
            assigned_client=(told["node"], 0),
            message=told["message"],
        )
        return answer, OK

    # ---- memory lent

    def allocate_and_mount_segment(
        self, size: int, protocol: str = "tcp", location: str = ""
    ) -> dict[str, Any]:
        """Lend so much more of this process's memory. protocol, location: without meaning here."""
        del protocol, location
        membership = self._membership
        if self._client() is None or membership is None or size <= 0:
            return {"ret": INVALID_PARAMS, "segment_ids": [], "allocated_size": 0}
        try:
            names = membership.lend(size)
        except (StoreError, ValueError) as error:
            log.error("allocate_and_mount_segment of %d bytes: %s", size, error)
            return {"ret": INTERNAL_ERROR, "segment_ids": [], "allocated_size": 0}
        return {"ret": OK, "segment_ids": self._ids_of(names), "allocated_size": size}

    def mount_segment(
        self, path: str, size: int, offset: int = 0, protocol: str = "tcp", location: str = ""
    ) -> dict[str, Any]:
        """Lend `size` bytes at `offset` of a file in memory, as in /dev/shm. -1: it cannot be had.

        From now on this process alone writes there; what was there is lost. protocol, location: without
        meaning here.
        """
        del protocol, location
        membership = self._membership
        if self._client() is None or membership is None or size <= 0 or offset < 0:
            return {"ret": INVALID_PARAMS, "segment_ids": []}
        try:
            names = membership.lend(size, file=(path, offset))
        except (StoreError, ValueError) as error:
            log.error("mount_segment(%r, %d, %d): %s", path, size, offset, error)
            return {"ret": INTERNAL_ERROR, "segment_ids": []}
        return {"ret": OK, "segment_ids": self._ids_of(names)}

    def unmount_segment(self, segment_ids: list[str], grace_period_seconds: int = 0) -> int:
        """Take memory back; for so long, at most, others may take over what lies there. -1: not lent here."""
        names = self._names_of(items_of(segment_ids, "segment_ids"))
        membership = self._membership
        if membership is None or self._client() is None or not 0 <= grace_period_seconds <= _GRACE_S_MAX:
            return INVALID_PARAMS
        ended = [
            name is not None and membership.take_back(name, grace_period_seconds * 1000) for name in names
        ]
        return OK if all(ended) else INTERNAL_ERROR

    def unmount_and_free_segment(self, segment_ids: list[str], grace_period_seconds: int = 0) -> int:
        """The same: memory that is not lent is freed."""
        return self.unmount_segment(segment_ids, grace_period_seconds)

    def unmount_local_disk_segment(self, grace_period_seconds: int = 0) -> int:
        """0: no disk is lent."""
        del grace_period_seconds
        return OK if self._client() is not None else INVALID_PARAMS

    def _ids_of(self, names: list[str]) -> list[str]:
        by_name = {name: identity for identity, name in self._segments().items()}
        return [by_name[name] for name in names if name in by_name]

    def _names_of(self, segment_ids: list[str]) -> list[str | None]:
        by_id = self._segments()
        return [by_id.get(identity) for identity in segment_ids]

    def _segments(self) -> dict[str, str]:
        client = self._client()
        if client is None:
            return {}
        _, found = client.segments()
        return {f"{one['owner']}-{one['segment']}": one["name"] for one in found}


def _packed(key: str | bytes) -> bytes:
    return key.encode("utf-8") if isinstance(key, str) else key


class _Copy(NamedTuple):
    replica_id: int
    segment_name: str
    tier: int


def _descriptor(copy: _Copy, size: int) -> ReplicaDescriptor:
    if copy.tier == _SSD:
        return ReplicaDescriptor(ReplicaStatus.COMPLETE, None, DiskDescriptor(copy.segment_name, size))
    buffer = Descriptor(size, copy.replica_id, copy.segment_name)
    return ReplicaDescriptor(ReplicaStatus.COMPLETE, MemoryDescriptor(buffer))
