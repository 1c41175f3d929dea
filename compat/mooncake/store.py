"""Everything that programs import from `mooncake.store`, members of the enumerations included."""

from mooncake.buffer_pool import RegisteredBufferLease, RegisteredBufferLeaseView, RegisteredBufferPool
from mooncake_client.dropin import *  # noqa: F403
from mooncake_client.dropin import (
    MooncakeDistributedStore,
    ObjectDataType,
    ReplicaStatus,
    TaskStatus,
    TaskType,
)
from mooncake_client.dropin import __all__ as _names
from mooncake_client.dropin.absent import EngramStore, EngramStoreConfig, MooncakeDistributedNoFRegister
from mooncake_client.dropin.tensor_functions import (
    _deserialize_tensor,
    _serialize_tensor,
    _tensor_metadata_size,
)

for _enumeration in (ObjectDataType, ReplicaStatus, TaskType, TaskStatus):
    globals().update(_enumeration.__members__)


def _get_pyclient_from_wrapper(wrapper: MooncakeDistributedStore) -> object:
    return wrapper._get_pyclient_capsule()


__all__ = [
    *_names,
    "EngramStore",
    "EngramStoreConfig",
    "MooncakeDistributedNoFRegister",
    "RegisteredBufferLease",
    "RegisteredBufferLeaseView",
    "RegisteredBufferPool",
    "_deserialize_tensor",
    "_get_pyclient_from_wrapper",
    "_serialize_tensor",
    "_tensor_metadata_size",
]
