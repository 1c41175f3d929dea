"""Where copies of a value lie and how far a task is, in the classes that Mooncake's users read. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ReplicaStatus(IntEnum):
    UNDEFINED = 0
    INITIALIZED = 1
    PROCESSING = 2
    COMPLETE = 3
    REMOVED = 4
    FAILED = 5


class TaskType(IntEnum):
    REPLICA_COPY = 0
    REPLICA_MOVE = 1


class TaskStatus(IntEnum):
    PENDING = 0
    PROCESSING = 1
    FAILED = 2
    SUCCESS = 3


@dataclass(frozen=True)
class Descriptor:
    """buffer_address: an id of the copy; addresses do not leave a node. transport_endpoint: its segment's
    name.
    """

    size: int
    buffer_address: int
    transport_endpoint: str


@dataclass(frozen=True)
class MemoryDescriptor:
    buffer_descriptor: Descriptor


@dataclass(frozen=True)
class DiskDescriptor:
    file_path: str
    object_size: int


@dataclass(frozen=True)
class ReplicaDescriptor:
    """One copy of a value. Asking for the descriptor of another tier raises RuntimeError."""

    status: ReplicaStatus
    _memory: MemoryDescriptor | None
    _disk: DiskDescriptor | None = None

    def is_memory_replica(self) -> bool:
        return self._memory is not None

    def is_disk_replica(self) -> bool:
        """On a disk that all nodes share: there are none here."""
        return False

    def is_local_disk_replica(self) -> bool:
        return self._disk is not None

    def get_memory_descriptor(self) -> MemoryDescriptor:
        if self._memory is None:
            raise RuntimeError("Expected MemoryDescriptor")
        return self._memory

    def get_disk_descriptor(self) -> DiskDescriptor:
        if self._disk is None:
            raise RuntimeError("Expected DiskDescriptor")
        return self._disk


@dataclass(frozen=True)
class QueryTaskResponse:
    id: tuple[int, int]
    type: TaskType
    status: TaskStatus
    created_at_ms_epoch: int
    last_updated_at_ms_epoch: int
    assigned_client: tuple[int, int]
    message: str
