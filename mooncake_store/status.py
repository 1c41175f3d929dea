"""The status codes that every part answers with, as numbers.

Owns the vocabulary only: which exception or gRPC code a status becomes is in `errors.py`. Must not import
anything of the project. Numbers down to -1999 are Mooncake's, so that its users see the codes they know;
ours start at -2000. `native/wire/status.h` holds those of them that travel in frames; a test compares.
"""

from __future__ import annotations

from enum import IntEnum, unique

OURS_MAX = -2000
"""Statuses at or below this number are ours and unknown to a program written for Mooncake."""


@unique
class Status(IntEnum):
    """One answer for one key or one request: zero is success, everything else is negative."""

    OK = 0
    INTERNAL_ERROR = -1
    BUFFER_OVERFLOW = -10
    SHARD_INDEX_OUT_OF_RANGE = -100
    SEGMENT_NOT_FOUND = -101
    SEGMENT_ALREADY_EXISTS = -102
    CLIENT_NOT_FOUND = -103
    NO_AVAILABLE_HANDLE = -200
    INVALID_VERSION = -300
    INVALID_KEY = -400
    WRITE_FAIL = -500
    INVALID_PARAMS = -600
    ILLEGAL_CLIENT = -601
    INVALID_WRITE = -700
    INVALID_READ = -701
    INVALID_REPLICA = -702
    REPLICA_IS_NOT_READY = -703
    OBJECT_NOT_FOUND = -704
    OBJECT_ALREADY_EXISTS = -705
    OBJECT_HAS_LEASE = -706
    LEASE_EXPIRED = -707
    OBJECT_HAS_REPLICATION_TASK = -708
    OBJECT_NO_REPLICATION_TASK = -709
    REPLICA_NOT_FOUND = -710
    REPLICA_ALREADY_EXISTS = -711
    REPLICA_IS_GONE = -712
    REPLICA_NOT_IN_LOCAL_MEMORY = -713
    OBJECT_REPLICA_BUSY = -714
    TRANSFER_FAIL = -800
    CHECKSUM_MISMATCH = -801
    RPC_FAIL = -900
    RPC_TIMEOUT = -901
    ETCD_OPERATION_ERROR = -1000
    ETCD_KEY_NOT_EXIST = -1001
    ETCD_TRANSACTION_FAIL = -1002
    ETCD_CTX_CANCELLED = -1003
    OPLOG_ENTRY_NOT_FOUND = -1004
    K8S_LEASE_OPERATION_ERROR = -1005
    K8S_LEASE_NOT_FOUND = -1006
    INCOMPLETE_OPLOG_CATCH_UP = -1007
    UNAVAILABLE_IN_CURRENT_STATUS = -1010
    UNAVAILABLE_IN_CURRENT_MODE = -1011
    NOT_SUPPORTED = -1012
    FILE_NOT_FOUND = -1100
    FILE_OPEN_FAIL = -1101
    FILE_READ_FAIL = -1102
    FILE_WRITE_FAIL = -1103
    FILE_INVALID_BUFFER = -1104
    FILE_LOCK_FAIL = -1105
    FILE_INVALID_HANDLE = -1106
    BUCKET_NOT_FOUND = -1200
    BUCKET_ALREADY_EXISTS = -1201
    KEYS_EXCEED_BUCKET_LIMIT = -1202
    KEYS_ULTRA_LIMIT = -1203
    UNABLE_OFFLOAD = -1300
    UNABLE_OFFLOADING = -1301
    TASK_NOT_FOUND = -1400
    TASK_PENDING_LIMIT_EXCEEDED = -1401
    JOB_NOT_FOUND = -1402
    SERIALIZE_UNSUPPORTED = -1500
    SERIALIZE_FAIL = -1501
    DESERIALIZE_FAIL = -1502
    PERSISTENT_FAIL = -1503
    DFS_NETWORK_TIMEOUT = -1600
    DFS_SERVICE_UNAVAILABLE = -1601
    DFS_QUOTA_EXCEEDED = -1602
    DFS_PERMISSION_DENIED = -1603
    DFS_STALE_HANDLE = -1604
    DFS_PARTIAL_WRITE = -1605
    TENANT_QUOTA_EXCEEDED = -1700
    TENANT_NOT_REGISTERED = -1701
    TENANT_NOT_EMPTY = -1702

    # Ours: cases that Mooncake does not tell apart.
    STALE_GRANT = -2000
    """The replica id was granted by an older epoch, or is retired: put again."""
    BUSY = -2001
    """A bound was reached (bytes in flight, parked calls): try again after a pause."""
    NO_RANGE = -2002
    """The node has no range of that size although the master counted enough bytes."""
    REBUILDING = -2003
    """A miss that may be a hit once every node has reported its inventory."""
    GONE = -2004
    """The node does not hold this replica any more, or the digest did not match."""
    SUPERSEDED = -2005
    """A newer value of the key was committed first."""
    SEALED = -2006
    """The replica is already complete; the bytes sent were discarded."""
    STALE_EPOCH = -2007
    """The command comes from a master that has been succeeded."""
    STALE_REQUEST = -2008
    """The sequence lies before the replay window."""
    SESSION_UNKNOWN = -2009
    """The session has expired or belongs to another master: open a new one."""
    VERSION_MISMATCH = -2010
    UNAUTHENTICATED = -2011
    UNREACHABLE = -2012
    """Nobody answers at that address."""
    CLOSED = -2013
    """The handle was closed by its owner."""
    DEADLINE = -2014
    """The deadline passed; whether the request had an effect is unknown."""
    VALUE_TOO_LARGE = -2015
    """No segment could hold the value even if it were empty."""
    MALFORMED = -2016
    """Bytes that do not parse; the connection ends after this answer."""

    @property
    def is_ours(self) -> bool:
        """Whether a program written for Mooncake does not know this number."""
        return self.value <= OURS_MAX


NEAREST_MOONCAKE: dict[Status, Status] = {
    Status.STALE_GRANT: Status.INVALID_WRITE,
    Status.BUSY: Status.OBJECT_REPLICA_BUSY,
    Status.NO_RANGE: Status.NO_AVAILABLE_HANDLE,
    Status.REBUILDING: Status.OBJECT_NOT_FOUND,
    Status.GONE: Status.OBJECT_NOT_FOUND,
    Status.SUPERSEDED: Status.OBJECT_ALREADY_EXISTS,
    Status.SEALED: Status.OBJECT_ALREADY_EXISTS,
    Status.STALE_EPOCH: Status.UNAVAILABLE_IN_CURRENT_STATUS,
    Status.STALE_REQUEST: Status.INVALID_PARAMS,
    Status.SESSION_UNKNOWN: Status.CLIENT_NOT_FOUND,
    Status.VERSION_MISMATCH: Status.INVALID_VERSION,
    Status.UNAUTHENTICATED: Status.ILLEGAL_CLIENT,
    Status.UNREACHABLE: Status.RPC_FAIL,
    Status.CLOSED: Status.INVALID_PARAMS,
    Status.DEADLINE: Status.RPC_TIMEOUT,
    # Mooncake answers -600 to a put that no segment could hold.
    Status.VALUE_TOO_LARGE: Status.INVALID_PARAMS,
    Status.MALFORMED: Status.INVALID_PARAMS,
}


def status_of(code: int) -> Status:
    """The status with this number; a number that nobody defined (a newer peer's) is INTERNAL_ERROR."""
    try:
        return Status(code)
    except ValueError:
        return Status.INTERNAL_ERROR


def nearest_mooncake_code(status: int) -> int:
    """The number to answer at the drop-in door: Mooncake's own stay, ours become the nearest of them."""
    known = status_of(status)
    return int(NEAREST_MOONCAKE.get(known, known))
