"""The errors a caller can handle, and the one table from status to exception and to gRPC code.

Owns translation in both directions. A miss is not an error, and neither is "exists": no exception stands for
them except where the caller asked for an object by name (`stat`, `remove(missing_ok=False)`). Must not know
who answers or over which door. `grpc` is imported only by the function that returns its type.

Three groups: the caller is wrong (`InvalidArgument` and below, `ClosedError`); try again, here or elsewhere
(`NotReady`, `StaleGrant`, `NoSpace`, `Busy`, `Unavailable`); the peer is wrong (`ChecksumMismatch`,
`Refused`). A bug of ours is an assertion, not one of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from mooncake_store.status import Status, status_of

if TYPE_CHECKING:
    import grpc

STATUS_METADATA_KEY = "mooncake-status"
"""gRPC trailing metadata that carries the exact status; several statuses share one gRPC code."""


class StoreError(Exception):
    """Any failure of the store. `code` is the numeric status; the message holds the values."""

    default_code: ClassVar[Status] = Status.INTERNAL_ERROR
    code: int

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        self.code = int(self.default_code if code is None else code)


class InvalidArgument(StoreError, ValueError):
    """The call was wrong and will be wrong again: the message names the value and the setting."""

    default_code = Status.INVALID_PARAMS


class ValueTooLarge(InvalidArgument):
    """No segment of the pool could hold this value, even empty."""

    default_code = Status.VALUE_TOO_LARGE


class BufferTooSmall(InvalidArgument):
    """The caller's buffer is shorter than the value."""

    default_code = Status.BUFFER_OVERFLOW


class ClosedError(StoreError):
    """The handle was closed, or belongs to the parent of this forked process."""

    default_code = Status.CLOSED


class NotReady(StoreError):
    """Somebody else's put of the key is still under way and did not end within the deadline."""

    default_code = Status.REPLICA_IS_NOT_READY


class StaleGrant(StoreError):
    """The grant to write was given by an older master or was withdrawn: put again."""

    default_code = Status.STALE_GRANT


class NoSpace(StoreError):
    """No room, and nothing that may be evicted; later may be different."""

    default_code = Status.NO_AVAILABLE_HANDLE


class Busy(StoreError):
    """A bound was reached; try again after a pause."""

    default_code = Status.BUSY


class Unavailable(StoreError):
    """The peer is not there. A put that failed so may appear later, whole, or never."""

    default_code = Status.UNREACHABLE


class DeadlineExceeded(Unavailable, TimeoutError):
    """The peer did not answer in time. What `Unavailable` says about a put holds here too."""

    default_code = Status.DEADLINE


class ObjectNotFound(StoreError):
    """Only from calls that name one object and need it: `stat`, `remove(missing_ok=False)`."""

    default_code = Status.OBJECT_NOT_FOUND


class ChecksumMismatch(StoreError):
    """The bytes that arrived are not those that were put; the target buffer's content is undefined."""

    default_code = Status.CHECKSUM_MISMATCH


class Refused(StoreError):
    """The peer speaks another version, does not know us, or cannot do what was asked."""

    default_code = Status.VERSION_MISMATCH


class Meaning(NamedTuple):
    """What a status becomes when it has to be raised, here or on the other side of gRPC."""

    exception: type[StoreError]
    grpc_name: str


TABLE: dict[Status, Meaning] = {
    Status.INTERNAL_ERROR: Meaning(StoreError, "INTERNAL"),
    Status.BUFFER_OVERFLOW: Meaning(BufferTooSmall, "OUT_OF_RANGE"),
    Status.SHARD_INDEX_OUT_OF_RANGE: Meaning(InvalidArgument, "OUT_OF_RANGE"),
    Status.SEGMENT_NOT_FOUND: Meaning(NoSpace, "NOT_FOUND"),
    Status.SEGMENT_ALREADY_EXISTS: Meaning(InvalidArgument, "ALREADY_EXISTS"),
    Status.CLIENT_NOT_FOUND: Meaning(Unavailable, "UNAVAILABLE"),
    Status.NO_AVAILABLE_HANDLE: Meaning(NoSpace, "RESOURCE_EXHAUSTED"),
    Status.INVALID_VERSION: Meaning(Refused, "FAILED_PRECONDITION"),
    Status.INVALID_KEY: Meaning(InvalidArgument, "INVALID_ARGUMENT"),
    Status.WRITE_FAIL: Meaning(Unavailable, "UNAVAILABLE"),
    Status.INVALID_PARAMS: Meaning(InvalidArgument, "INVALID_ARGUMENT"),
    Status.ILLEGAL_CLIENT: Meaning(Refused, "PERMISSION_DENIED"),
    Status.INVALID_WRITE: Meaning(InvalidArgument, "FAILED_PRECONDITION"),
    Status.INVALID_READ: Meaning(InvalidArgument, "FAILED_PRECONDITION"),
    Status.INVALID_REPLICA: Meaning(InvalidArgument, "FAILED_PRECONDITION"),
    Status.REPLICA_IS_NOT_READY: Meaning(NotReady, "ABORTED"),
    Status.OBJECT_NOT_FOUND: Meaning(ObjectNotFound, "NOT_FOUND"),
    Status.OBJECT_ALREADY_EXISTS: Meaning(StoreError, "ALREADY_EXISTS"),
    Status.OBJECT_HAS_LEASE: Meaning(Busy, "FAILED_PRECONDITION"),
    Status.LEASE_EXPIRED: Meaning(StaleGrant, "ABORTED"),
    Status.OBJECT_HAS_REPLICATION_TASK: Meaning(Busy, "FAILED_PRECONDITION"),
    Status.OBJECT_NO_REPLICATION_TASK: Meaning(InvalidArgument, "FAILED_PRECONDITION"),
    Status.REPLICA_NOT_FOUND: Meaning(ObjectNotFound, "NOT_FOUND"),
    Status.REPLICA_ALREADY_EXISTS: Meaning(StoreError, "ALREADY_EXISTS"),
    Status.REPLICA_IS_GONE: Meaning(ObjectNotFound, "NOT_FOUND"),
    Status.REPLICA_NOT_IN_LOCAL_MEMORY: Meaning(InvalidArgument, "FAILED_PRECONDITION"),
    Status.OBJECT_REPLICA_BUSY: Meaning(Busy, "ABORTED"),
    Status.TRANSFER_FAIL: Meaning(Unavailable, "UNAVAILABLE"),
    Status.CHECKSUM_MISMATCH: Meaning(ChecksumMismatch, "DATA_LOSS"),
    Status.RPC_FAIL: Meaning(Unavailable, "UNAVAILABLE"),
    Status.RPC_TIMEOUT: Meaning(DeadlineExceeded, "DEADLINE_EXCEEDED"),
    Status.ETCD_OPERATION_ERROR: Meaning(Unavailable, "UNAVAILABLE"),
    Status.ETCD_KEY_NOT_EXIST: Meaning(Unavailable, "UNAVAILABLE"),
    Status.ETCD_TRANSACTION_FAIL: Meaning(Unavailable, "ABORTED"),
    Status.ETCD_CTX_CANCELLED: Meaning(Unavailable, "CANCELLED"),
    Status.OPLOG_ENTRY_NOT_FOUND: Meaning(StoreError, "INTERNAL"),
    Status.K8S_LEASE_OPERATION_ERROR: Meaning(Unavailable, "UNAVAILABLE"),
    Status.K8S_LEASE_NOT_FOUND: Meaning(Unavailable, "UNAVAILABLE"),
    Status.INCOMPLETE_OPLOG_CATCH_UP: Meaning(Unavailable, "UNAVAILABLE"),
    Status.UNAVAILABLE_IN_CURRENT_STATUS: Meaning(Unavailable, "UNAVAILABLE"),
    Status.UNAVAILABLE_IN_CURRENT_MODE: Meaning(Unavailable, "UNAVAILABLE"),
    Status.NOT_SUPPORTED: Meaning(Refused, "UNIMPLEMENTED"),
    Status.FILE_NOT_FOUND: Meaning(StoreError, "INTERNAL"),
    Status.FILE_OPEN_FAIL: Meaning(StoreError, "INTERNAL"),
    Status.FILE_READ_FAIL: Meaning(StoreError, "INTERNAL"),
    Status.FILE_WRITE_FAIL: Meaning(StoreError, "INTERNAL"),
    Status.FILE_INVALID_BUFFER: Meaning(StoreError, "INTERNAL"),
    Status.FILE_LOCK_FAIL: Meaning(StoreError, "INTERNAL"),
    Status.FILE_INVALID_HANDLE: Meaning(StoreError, "INTERNAL"),
    Status.BUCKET_NOT_FOUND: Meaning(StoreError, "INTERNAL"),
    Status.BUCKET_ALREADY_EXISTS: Meaning(StoreError, "INTERNAL"),
    Status.KEYS_EXCEED_BUCKET_LIMIT: Meaning(NoSpace, "RESOURCE_EXHAUSTED"),
    Status.KEYS_ULTRA_LIMIT: Meaning(NoSpace, "RESOURCE_EXHAUSTED"),
    Status.UNABLE_OFFLOAD: Meaning(NoSpace, "RESOURCE_EXHAUSTED"),
    Status.UNABLE_OFFLOADING: Meaning(Busy, "RESOURCE_EXHAUSTED"),
    Status.TASK_NOT_FOUND: Meaning(InvalidArgument, "NOT_FOUND"),
    Status.TASK_PENDING_LIMIT_EXCEEDED: Meaning(Busy, "RESOURCE_EXHAUSTED"),
    Status.JOB_NOT_FOUND: Meaning(InvalidArgument, "NOT_FOUND"),
    Status.SERIALIZE_UNSUPPORTED: Meaning(InvalidArgument, "INVALID_ARGUMENT"),
    Status.SERIALIZE_FAIL: Meaning(StoreError, "INTERNAL"),
    Status.DESERIALIZE_FAIL: Meaning(StoreError, "DATA_LOSS"),
    Status.PERSISTENT_FAIL: Meaning(StoreError, "INTERNAL"),
    Status.DFS_NETWORK_TIMEOUT: Meaning(Unavailable, "UNAVAILABLE"),
    Status.DFS_SERVICE_UNAVAILABLE: Meaning(Unavailable, "UNAVAILABLE"),
    Status.DFS_QUOTA_EXCEEDED: Meaning(NoSpace, "RESOURCE_EXHAUSTED"),
    Status.DFS_PERMISSION_DENIED: Meaning(Refused, "PERMISSION_DENIED"),
    Status.DFS_STALE_HANDLE: Meaning(Unavailable, "UNAVAILABLE"),
    Status.DFS_PARTIAL_WRITE: Meaning(Unavailable, "UNAVAILABLE"),
    Status.TENANT_QUOTA_EXCEEDED: Meaning(NoSpace, "RESOURCE_EXHAUSTED"),
    Status.TENANT_NOT_REGISTERED: Meaning(Refused, "PERMISSION_DENIED"),
    Status.TENANT_NOT_EMPTY: Meaning(InvalidArgument, "FAILED_PRECONDITION"),
    Status.STALE_GRANT: Meaning(StaleGrant, "ABORTED"),
    Status.BUSY: Meaning(Busy, "RESOURCE_EXHAUSTED"),
    Status.NO_RANGE: Meaning(NoSpace, "RESOURCE_EXHAUSTED"),
    Status.REBUILDING: Meaning(Unavailable, "UNAVAILABLE"),
    Status.GONE: Meaning(ObjectNotFound, "NOT_FOUND"),
    Status.SUPERSEDED: Meaning(StaleGrant, "ABORTED"),
    Status.SEALED: Meaning(StoreError, "ALREADY_EXISTS"),
    Status.STALE_EPOCH: Meaning(StaleGrant, "ABORTED"),
    Status.STALE_REQUEST: Meaning(InvalidArgument, "FAILED_PRECONDITION"),
    Status.SESSION_UNKNOWN: Meaning(Unavailable, "NOT_FOUND"),
    Status.VERSION_MISMATCH: Meaning(Refused, "FAILED_PRECONDITION"),
    Status.UNAUTHENTICATED: Meaning(Refused, "UNAUTHENTICATED"),
    Status.UNREACHABLE: Meaning(Unavailable, "UNAVAILABLE"),
    Status.CLOSED: Meaning(ClosedError, "CANCELLED"),
    Status.DEADLINE: Meaning(DeadlineExceeded, "DEADLINE_EXCEEDED"),
    Status.VALUE_TOO_LARGE: Meaning(ValueTooLarge, "OUT_OF_RANGE"),
    Status.MALFORMED: Meaning(Refused, "INVALID_ARGUMENT"),
}
"""Every status except OK. A test walks the enum and the exception classes and fails if one is missing."""

GRPC_DEFAULTS: dict[str, Status] = {
    "CANCELLED": Status.CLOSED,
    "UNKNOWN": Status.INTERNAL_ERROR,
    "INVALID_ARGUMENT": Status.INVALID_PARAMS,
    "DEADLINE_EXCEEDED": Status.DEADLINE,
    "NOT_FOUND": Status.OBJECT_NOT_FOUND,
    "ALREADY_EXISTS": Status.OBJECT_ALREADY_EXISTS,
    "PERMISSION_DENIED": Status.ILLEGAL_CLIENT,
    "RESOURCE_EXHAUSTED": Status.BUSY,
    "FAILED_PRECONDITION": Status.INVALID_PARAMS,
    "ABORTED": Status.STALE_GRANT,
    "OUT_OF_RANGE": Status.INVALID_PARAMS,
    "UNIMPLEMENTED": Status.NOT_SUPPORTED,
    "INTERNAL": Status.INTERNAL_ERROR,
    "UNAVAILABLE": Status.UNREACHABLE,
    "DATA_LOSS": Status.CHECKSUM_MISMATCH,
    "UNAUTHENTICATED": Status.UNAUTHENTICATED,
}
"""What a gRPC code means when it comes without our metadata: from the library itself or from a proxy."""


def error_for(status: int, message: str) -> StoreError:
    """The exception for a status that is not OK. A number nobody defined keeps its number, as StoreError."""
    known = status_of(status)
    assert known is not Status.OK, f"OK is not an error: {message}"
    return TABLE[known].exception(message, code=status)


def grpc_name(status: int) -> str:
    """Name of the gRPC code for a status, such as `RESOURCE_EXHAUSTED`."""
    known = status_of(status)
    return "OK" if known is Status.OK else TABLE[known].grpc_name


def grpc_code(status: int) -> grpc.StatusCode:
    """The gRPC code itself; imports grpc."""
    import grpc

    code: grpc.StatusCode = getattr(grpc.StatusCode, grpc_name(status))
    return code


def to_grpc(error: StoreError) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """(name of the gRPC code, details, trailing metadata) for a servicer's abort."""
    return grpc_name(error.code), str(error), ((STATUS_METADATA_KEY, str(error.code)),)


def from_grpc(
    name: str, details: str, trailing_metadata: Iterable[tuple[str, str | bytes]] = ()
) -> StoreError:
    """The inverse of `to_grpc`; without our metadata the gRPC code alone decides."""
    for key, value in trailing_metadata:
        if key == STATUS_METADATA_KEY:
            text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
            try:
                code = int(text)
            except ValueError:
                break
            if code < 0:
                return error_for(code, details)
    return error_for(GRPC_DEFAULTS.get(name, Status.INTERNAL_ERROR), details)
