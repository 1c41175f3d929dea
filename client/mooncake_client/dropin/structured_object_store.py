"""`MooncakeBundleTransfer`: objects of many parts in a store of values, put and read as one."""

from __future__ import annotations

from mooncake_client.dropin.bundles import BundleTransferPolicy, RemoteBundleRef
from mooncake_client.dropin.dataproto import DataProtos
from mooncake_client.dropin.dataproto_refs import (
    DataProtoField,
    FieldSchema,
    MooncakeDataProtoRef,
    export_dataproto_ref,
    export_ref,
    import_dataproto_ref,
    import_ref,
    is_dataproto_ref_handle,
)
from mooncake_client.dropin.structured_members import (
    RawDestination,
    StructuredMemberSlice,
    TensorObjectBuffer,
    raw_destination,
    tensor_object_buffer,
)
from mooncake_client.dropin.structured_objects import (
    StructuredObjectPayload,
    StructuredObjectReadSpec,
    StructuredObjectResult,
)

__all__ = [
    "BundleTransferPolicy",
    "DataProtoField",
    "FieldSchema",
    "MooncakeBundleTransfer",
    "MooncakeDataProtoRef",
    "RawDestination",
    "RemoteBundleRef",
    "StructuredMemberSlice",
    "StructuredObjectPayload",
    "StructuredObjectReadSpec",
    "StructuredObjectResult",
    "TensorObjectBuffer",
    "export_dataproto_ref",
    "export_ref",
    "import_dataproto_ref",
    "import_ref",
    "is_dataproto_ref_handle",
    "raw_destination",
    "tensor_object_buffer",
]


class MooncakeBundleTransfer(DataProtos):
    """Bundles of bytes, structured objects, and batches in stages, over anything with a store's methods.

    store: a MooncakeDistributedStore that was set up. key_prefix: of all keys that are made; objects are
    named by their references alone. default_chunk_bytes: values are at most so large; payloads are cut.
    """
