"""Mooncake's Python surface over this project's client, for programs written against `mooncake.store`.

Owns names, signatures and codes that such programs know; docs/dropin.md says what differs. A thin layer over
the same native client as `Store`. Must not decide anything about placement, retries or bytes on the wire, and
nothing outside this package may import it, except the `compat` distribution, and `doctor`, which tells what
such programs would hear.
"""

from __future__ import annotations

from mooncake_client.dropin.buffer_pool import BufferLease, BufferLeaseView, BufferPool
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
from mooncake_client.dropin.host_memory import (
    MooncakeHostMemAllocator,
    bind_to_numa_node,
    get_alloc_func_addr,
    get_free_func_addr,
)
from mooncake_client.dropin.replicate_config import ObjectDataType, ReplicateConfig, SoftPinAction
from mooncake_client.dropin.store import MooncakeDistributedStore
from mooncake_client.dropin.tensor_shards import ParallelAxis, ReadTarget, TensorParallelism
from mooncake_store._core import BufferHandle

__all__ = [
    "BufferHandle",
    "BufferLease",
    "BufferLeaseView",
    "BufferPool",
    "Descriptor",
    "DiskDescriptor",
    "MemoryDescriptor",
    "MooncakeDistributedStore",
    "MooncakeHostMemAllocator",
    "ObjectDataType",
    "ParallelAxis",
    "QueryTaskResponse",
    "ReadTarget",
    "ReplicaDescriptor",
    "ReplicaStatus",
    "ReplicateConfig",
    "SoftPinAction",
    "TaskStatus",
    "TaskType",
    "TensorParallelism",
    "bind_to_numa_node",
    "get_alloc_func_addr",
    "get_free_func_addr",
]
