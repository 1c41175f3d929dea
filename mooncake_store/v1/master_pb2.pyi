from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OK: _ClassVar[Status]
    INTERNAL_ERROR: _ClassVar[Status]
    BUFFER_OVERFLOW: _ClassVar[Status]
    SEGMENT_NOT_FOUND: _ClassVar[Status]
    SEGMENT_ALREADY_EXISTS: _ClassVar[Status]
    CLIENT_NOT_FOUND: _ClassVar[Status]
    NO_AVAILABLE_HANDLE: _ClassVar[Status]
    INVALID_KEY: _ClassVar[Status]
    WRITE_FAIL: _ClassVar[Status]
    INVALID_PARAMS: _ClassVar[Status]
    ILLEGAL_CLIENT: _ClassVar[Status]
    REPLICA_IS_NOT_READY: _ClassVar[Status]
    OBJECT_NOT_FOUND: _ClassVar[Status]
    OBJECT_ALREADY_EXISTS: _ClassVar[Status]
    OBJECT_HAS_LEASE: _ClassVar[Status]
    REPLICA_NOT_FOUND: _ClassVar[Status]
    TRANSFER_FAIL: _ClassVar[Status]
    CHECKSUM_MISMATCH: _ClassVar[Status]
    RPC_FAIL: _ClassVar[Status]
    RPC_TIMEOUT: _ClassVar[Status]
    NOT_SUPPORTED: _ClassVar[Status]
    TASK_NOT_FOUND: _ClassVar[Status]
    TASK_PENDING_LIMIT_EXCEEDED: _ClassVar[Status]
    STALE_GRANT: _ClassVar[Status]
    BUSY: _ClassVar[Status]
    NO_RANGE: _ClassVar[Status]
    REBUILDING: _ClassVar[Status]
    GONE: _ClassVar[Status]
    SUPERSEDED: _ClassVar[Status]
    SEALED: _ClassVar[Status]
    STALE_EPOCH: _ClassVar[Status]
    STALE_REQUEST: _ClassVar[Status]
    SESSION_UNKNOWN: _ClassVar[Status]
    VERSION_MISMATCH: _ClassVar[Status]
    UNAUTHENTICATED: _ClassVar[Status]
    UNREACHABLE: _ClassVar[Status]
    CLOSED: _ClassVar[Status]
    DEADLINE: _ClassVar[Status]
    VALUE_TOO_LARGE: _ClassVar[Status]
    MALFORMED: _ClassVar[Status]

class PeerFailure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PEER_FAILURE_UNKNOWN: _ClassVar[PeerFailure]
    PEER_REFUSED: _ClassVar[PeerFailure]
    PEER_RESET: _ClassVar[PeerFailure]
    PEER_TIMED_OUT: _ClassVar[PeerFailure]

class Tier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIER_UNSPECIFIED: _ClassVar[Tier]
    TIER_DRAM: _ClassVar[Tier]
    TIER_SSD: _ClassVar[Tier]

class Absence(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PRESENT: _ClassVar[Absence]
    NEVER_STORED: _ClassVar[Absence]
    EVICTED: _ClassVar[Absence]
    REMOVED: _ClassVar[Absence]
    EXPIRED: _ClassVar[Absence]
    LOST: _ClassVar[Absence]
    ABANDONED: _ClassVar[Absence]
    PUT_UNDER_WAY: _ClassVar[Absence]
    STILL_REBUILDING: _ClassVar[Absence]
    OUT_OF_REACH: _ClassVar[Absence]
    OTHER_TENANT: _ClassVar[Absence]
OK: Status
INTERNAL_ERROR: Status
BUFFER_OVERFLOW: Status
SEGMENT_NOT_FOUND: Status
SEGMENT_ALREADY_EXISTS: Status
CLIENT_NOT_FOUND: Status
NO_AVAILABLE_HANDLE: Status
INVALID_KEY: Status
WRITE_FAIL: Status
INVALID_PARAMS: Status
ILLEGAL_CLIENT: Status
REPLICA_IS_NOT_READY: Status
OBJECT_NOT_FOUND: Status
OBJECT_ALREADY_EXISTS: Status
OBJECT_HAS_LEASE: Status
REPLICA_NOT_FOUND: Status
TRANSFER_FAIL: Status
CHECKSUM_MISMATCH: Status
RPC_FAIL: Status
RPC_TIMEOUT: Status
NOT_SUPPORTED: Status
TASK_NOT_FOUND: Status
TASK_PENDING_LIMIT_EXCEEDED: Status
STALE_GRANT: Status
BUSY: Status
NO_RANGE: Status
REBUILDING: Status
GONE: Status
SUPERSEDED: Status
SEALED: Status
STALE_EPOCH: Status
STALE_REQUEST: Status
SESSION_UNKNOWN: Status
VERSION_MISMATCH: Status
UNAUTHENTICATED: Status
UNREACHABLE: Status
CLOSED: Status
DEADLINE: Status
VALUE_TOO_LARGE: Status
MALFORMED: Status
PEER_FAILURE_UNKNOWN: PeerFailure
PEER_REFUSED: PeerFailure
PEER_RESET: PeerFailure
PEER_TIMED_OUT: PeerFailure
TIER_UNSPECIFIED: Tier
TIER_DRAM: Tier
TIER_SSD: Tier
PRESENT: Absence
NEVER_STORED: Absence
EVICTED: Absence
REMOVED: Absence
EXPIRED: Absence
LOST: Absence
ABANDONED: Absence
PUT_UNDER_WAY: Absence
STILL_REBUILDING: Absence
OUT_OF_REACH: Absence
OTHER_TENANT: Absence

class DiscoverRequest(_message.Message):
    __slots__ = ("followed_epoch", "followed_master")
    FOLLOWED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FOLLOWED_MASTER_FIELD_NUMBER: _ClassVar[int]
    followed_epoch: int
    followed_master: bytes
    def __init__(self, followed_epoch: _Optional[int] = ..., followed_master: _Optional[bytes] = ...) -> None: ...

class DiscoverReply(_message.Message):
    __slots__ = ("lane_endpoint", "epoch", "master_uuid", "software", "deposed_by_epoch")
    LANE_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MASTER_UUID_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    DEPOSED_BY_EPOCH_FIELD_NUMBER: _ClassVar[int]
    lane_endpoint: str
    epoch: int
    master_uuid: bytes
    software: str
    deposed_by_epoch: int
    def __init__(self, lane_endpoint: _Optional[str] = ..., epoch: _Optional[int] = ..., master_uuid: _Optional[bytes] = ..., software: _Optional[str] = ..., deposed_by_epoch: _Optional[int] = ...) -> None: ...

class OpenSessionRequest(_message.Message):
    __slots__ = ("process_uuid", "name", "host_id", "tenant")
    PROCESS_UUID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    process_uuid: bytes
    name: str
    host_id: str
    tenant: str
    def __init__(self, process_uuid: _Optional[bytes] = ..., name: _Optional[str] = ..., host_id: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class OpenSessionReply(_message.Message):
    __slots__ = ("session", "epoch", "master_uuid", "client_ttl_ms", "heartbeat_interval_ms", "lease_ttl_ms", "exists_hold_ms", "lane_endpoint")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MASTER_UUID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    EXISTS_HOLD_MS_FIELD_NUMBER: _ClassVar[int]
    LANE_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    session: int
    epoch: int
    master_uuid: bytes
    client_ttl_ms: int
    heartbeat_interval_ms: int
    lease_ttl_ms: int
    exists_hold_ms: int
    lane_endpoint: str
    def __init__(self, session: _Optional[int] = ..., epoch: _Optional[int] = ..., master_uuid: _Optional[bytes] = ..., client_ttl_ms: _Optional[int] = ..., heartbeat_interval_ms: _Optional[int] = ..., lease_ttl_ms: _Optional[int] = ..., exists_hold_ms: _Optional[int] = ..., lane_endpoint: _Optional[str] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("session", "unreachable_segments", "failures")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    session: int
    unreachable_segments: _containers.RepeatedScalarFieldContainer[int]
    failures: _containers.RepeatedScalarFieldContainer[PeerFailure]
    def __init__(self, session: _Optional[int] = ..., unreachable_segments: _Optional[_Iterable[int]] = ..., failures: _Optional[_Iterable[_Union[PeerFailure, str]]] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class CloseSessionRequest(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: int
    def __init__(self, session: _Optional[int] = ...) -> None: ...

class CloseSessionReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SegmentDescription(_message.Message):
    __slots__ = ("tier", "capacity_bytes", "incarnation", "name", "host_id", "endpoints")
    TIER_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    tier: Tier
    capacity_bytes: int
    incarnation: bytes
    name: str
    host_id: str
    endpoints: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tier: _Optional[_Union[Tier, str]] = ..., capacity_bytes: _Optional[int] = ..., incarnation: _Optional[bytes] = ..., name: _Optional[str] = ..., host_id: _Optional[str] = ..., endpoints: _Optional[_Iterable[str]] = ...) -> None: ...

class MountSegmentsRequest(_message.Message):
    __slots__ = ("session", "sequence", "known_epoch", "known_master", "segments")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    KNOWN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    KNOWN_MASTER_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    session: int
    sequence: int
    known_epoch: int
    known_master: bytes
    segments: _containers.RepeatedCompositeFieldContainer[SegmentDescription]
    def __init__(self, session: _Optional[int] = ..., sequence: _Optional[int] = ..., known_epoch: _Optional[int] = ..., known_master: _Optional[bytes] = ..., segments: _Optional[_Iterable[_Union[SegmentDescription, _Mapping]]] = ...) -> None: ...

class MountSegmentsReply(_message.Message):
    __slots__ = ("answers",)
    class Answer(_message.Message):
        __slots__ = ("status", "segment")
        STATUS_FIELD_NUMBER: _ClassVar[int]
        SEGMENT_FIELD_NUMBER: _ClassVar[int]
        status: Status
        segment: int
        def __init__(self, status: _Optional[_Union[Status, str]] = ..., segment: _Optional[int] = ...) -> None: ...
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[MountSegmentsReply.Answer]
    def __init__(self, answers: _Optional[_Iterable[_Union[MountSegmentsReply.Answer, _Mapping]]] = ...) -> None: ...

class UnmountSegmentsRequest(_message.Message):
    __slots__ = ("session", "sequence", "segments")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    session: int
    sequence: int
    segments: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, session: _Optional[int] = ..., sequence: _Optional[int] = ..., segments: _Optional[_Iterable[int]] = ...) -> None: ...

class GetSegmentsRequest(_message.Message):
    __slots__ = ("session", "segments")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    session: int
    segments: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, session: _Optional[int] = ..., segments: _Optional[_Iterable[int]] = ...) -> None: ...

class SegmentInfo(_message.Message):
    __slots__ = ("status", "segment", "owner_session", "charged_bytes", "retiring_bytes", "replica_count", "description")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    OWNER_SESSION_FIELD_NUMBER: _ClassVar[int]
    CHARGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETIRING_BYTES_FIELD_NUMBER: _ClassVar[int]
    REPLICA_COUNT_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    status: Status
    segment: int
    owner_session: int
    charged_bytes: int
    retiring_bytes: int
    replica_count: int
    description: SegmentDescription
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., segment: _Optional[int] = ..., owner_session: _Optional[int] = ..., charged_bytes: _Optional[int] = ..., retiring_bytes: _Optional[int] = ..., replica_count: _Optional[int] = ..., description: _Optional[_Union[SegmentDescription, _Mapping]] = ...) -> None: ...

class GetSegmentsReply(_message.Message):
    __slots__ = ("segments",)
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[SegmentInfo]
    def __init__(self, segments: _Optional[_Iterable[_Union[SegmentInfo, _Mapping]]] = ...) -> None: ...

class KeysRequest(_message.Message):
    __slots__ = ("session", "keys", "avoid_segments", "sequence", "without_hold")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    AVOID_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_HOLD_FIELD_NUMBER: _ClassVar[int]
    session: int
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    avoid_segments: _containers.RepeatedScalarFieldContainer[int]
    sequence: int
    without_hold: bool
    def __init__(self, session: _Optional[int] = ..., keys: _Optional[_Iterable[bytes]] = ..., avoid_segments: _Optional[_Iterable[int]] = ..., sequence: _Optional[int] = ..., without_hold: bool = ...) -> None: ...

class StatusesReply(_message.Message):
    __slots__ = ("statuses",)
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    statuses: _containers.RepeatedScalarFieldContainer[Status]
    def __init__(self, statuses: _Optional[_Iterable[_Union[Status, str]]] = ...) -> None: ...

class ReleaseReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WhyReply(_message.Message):
    __slots__ = ("answers",)
    class Answer(_message.Message):
        __slots__ = ("status", "reason", "ended_ms_ago")
        STATUS_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        ENDED_MS_AGO_FIELD_NUMBER: _ClassVar[int]
        status: Status
        reason: Absence
        ended_ms_ago: int
        def __init__(self, status: _Optional[_Union[Status, str]] = ..., reason: _Optional[_Union[Absence, str]] = ..., ended_ms_ago: _Optional[int] = ...) -> None: ...
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[WhyReply.Answer]
    def __init__(self, answers: _Optional[_Iterable[_Union[WhyReply.Answer, _Mapping]]] = ...) -> None: ...

class CreateCopyTaskRequest(_message.Message):
    __slots__ = ("session", "sequence", "key", "targets")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    session: int
    sequence: int
    key: bytes
    targets: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session: _Optional[int] = ..., sequence: _Optional[int] = ..., key: _Optional[bytes] = ..., targets: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateMoveTaskRequest(_message.Message):
    __slots__ = ("session", "sequence", "key", "source", "target")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    session: int
    sequence: int
    key: bytes
    source: str
    target: str
    def __init__(self, session: _Optional[int] = ..., sequence: _Optional[int] = ..., key: _Optional[bytes] = ..., source: _Optional[str] = ..., target: _Optional[str] = ...) -> None: ...

class CreateTaskReply(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: int
    def __init__(self, task: _Optional[int] = ...) -> None: ...

class QueryTaskRequest(_message.Message):
    __slots__ = ("session", "task")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    session: int
    task: int
    def __init__(self, session: _Optional[int] = ..., task: _Optional[int] = ...) -> None: ...

class QueryTaskReply(_message.Message):
    __slots__ = ("task", "type", "status", "created_ms_ago", "updated_ms_ago", "node", "message")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        COPY: _ClassVar[QueryTaskReply.Type]
        MOVE: _ClassVar[QueryTaskReply.Type]
    COPY: QueryTaskReply.Type
    MOVE: QueryTaskReply.Type
    class TaskStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PENDING: _ClassVar[QueryTaskReply.TaskStatus]
        PROCESSING: _ClassVar[QueryTaskReply.TaskStatus]
        FAILED: _ClassVar[QueryTaskReply.TaskStatus]
        SUCCESS: _ClassVar[QueryTaskReply.TaskStatus]
    PENDING: QueryTaskReply.TaskStatus
    PROCESSING: QueryTaskReply.TaskStatus
    FAILED: QueryTaskReply.TaskStatus
    SUCCESS: QueryTaskReply.TaskStatus
    TASK_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    UPDATED_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    task: int
    type: QueryTaskReply.Type
    status: QueryTaskReply.TaskStatus
    created_ms_ago: int
    updated_ms_ago: int
    node: int
    message: str
    def __init__(self, task: _Optional[int] = ..., type: _Optional[_Union[QueryTaskReply.Type, str]] = ..., status: _Optional[_Union[QueryTaskReply.TaskStatus, str]] = ..., created_ms_ago: _Optional[int] = ..., updated_ms_ago: _Optional[int] = ..., node: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class InspectRequest(_message.Message):
    __slots__ = ("session", "key", "name", "events_max", "avoid_segments")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EVENTS_MAX_FIELD_NUMBER: _ClassVar[int]
    AVOID_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    session: int
    key: bytes
    name: str
    events_max: int
    avoid_segments: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, session: _Optional[int] = ..., key: _Optional[bytes] = ..., name: _Optional[str] = ..., events_max: _Optional[int] = ..., avoid_segments: _Optional[_Iterable[int]] = ...) -> None: ...

class InspectReply(_message.Message):
    __slots__ = ("key", "copies", "segments", "events", "has_older_events", "dropped_events", "oldest_event_ms_ago")
    class CopyStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        COPY_STATUS_UNSPECIFIED: _ClassVar[InspectReply.CopyStatus]
        UNFINISHED: _ClassVar[InspectReply.CopyStatus]
        LIVE: _ClassVar[InspectReply.CopyStatus]
        RETIRING: _ClassVar[InspectReply.CopyStatus]
        COPYING: _ClassVar[InspectReply.CopyStatus]
    COPY_STATUS_UNSPECIFIED: InspectReply.CopyStatus
    UNFINISHED: InspectReply.CopyStatus
    LIVE: InspectReply.CopyStatus
    RETIRING: InspectReply.CopyStatus
    COPYING: InspectReply.CopyStatus
    class Key(_message.Message):
        __slots__ = ("status", "reason", "ended_ms_ago", "put_id", "size", "hard_pinned", "soft_pinned", "soft_pin_ms", "ttl_ms", "lease_count", "lease_ms", "hold_ms", "unfinished_put_id", "unfinished_size", "unfinished_age_ms", "unfinished_owner", "unfinished_owner_name")
        STATUS_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        ENDED_MS_AGO_FIELD_NUMBER: _ClassVar[int]
        PUT_ID_FIELD_NUMBER: _ClassVar[int]
        SIZE_FIELD_NUMBER: _ClassVar[int]
        HARD_PINNED_FIELD_NUMBER: _ClassVar[int]
        SOFT_PINNED_FIELD_NUMBER: _ClassVar[int]
        SOFT_PIN_MS_FIELD_NUMBER: _ClassVar[int]
        TTL_MS_FIELD_NUMBER: _ClassVar[int]
        LEASE_COUNT_FIELD_NUMBER: _ClassVar[int]
        LEASE_MS_FIELD_NUMBER: _ClassVar[int]
        HOLD_MS_FIELD_NUMBER: _ClassVar[int]
        UNFINISHED_PUT_ID_FIELD_NUMBER: _ClassVar[int]
        UNFINISHED_SIZE_FIELD_NUMBER: _ClassVar[int]
        UNFINISHED_AGE_MS_FIELD_NUMBER: _ClassVar[int]
        UNFINISHED_OWNER_FIELD_NUMBER: _ClassVar[int]
        UNFINISHED_OWNER_NAME_FIELD_NUMBER: _ClassVar[int]
        status: Status
        reason: Absence
        ended_ms_ago: int
        put_id: int
        size: int
        hard_pinned: bool
        soft_pinned: bool
        soft_pin_ms: int
        ttl_ms: int
        lease_count: int
        lease_ms: int
        hold_ms: int
        unfinished_put_id: int
        unfinished_size: int
        unfinished_age_ms: int
        unfinished_owner: int
        unfinished_owner_name: str
        def __init__(self, status: _Optional[_Union[Status, str]] = ..., reason: _Optional[_Union[Absence, str]] = ..., ended_ms_ago: _Optional[int] = ..., put_id: _Optional[int] = ..., size: _Optional[int] = ..., hard_pinned: bool = ..., soft_pinned: bool = ..., soft_pin_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., lease_count: _Optional[int] = ..., lease_ms: _Optional[int] = ..., hold_ms: _Optional[int] = ..., unfinished_put_id: _Optional[int] = ..., unfinished_size: _Optional[int] = ..., unfinished_age_ms: _Optional[int] = ..., unfinished_owner: _Optional[int] = ..., unfinished_owner_name: _Optional[str] = ...) -> None: ...
    class Copy(_message.Message):
        __slots__ = ("replica", "segment", "charged_bytes", "status", "tier", "segment_left", "segment_name", "host_id")
        REPLICA_FIELD_NUMBER: _ClassVar[int]
        SEGMENT_FIELD_NUMBER: _ClassVar[int]
        CHARGED_BYTES_FIELD_NUMBER: _ClassVar[int]
        STATUS_FIELD_NUMBER: _ClassVar[int]
        TIER_FIELD_NUMBER: _ClassVar[int]
        SEGMENT_LEFT_FIELD_NUMBER: _ClassVar[int]
        SEGMENT_NAME_FIELD_NUMBER: _ClassVar[int]
        HOST_ID_FIELD_NUMBER: _ClassVar[int]
        replica: int
        segment: int
        charged_bytes: int
        status: InspectReply.CopyStatus
        tier: Tier
        segment_left: bool
        segment_name: str
        host_id: str
        def __init__(self, replica: _Optional[int] = ..., segment: _Optional[int] = ..., charged_bytes: _Optional[int] = ..., status: _Optional[_Union[InspectReply.CopyStatus, str]] = ..., tier: _Optional[_Union[Tier, str]] = ..., segment_left: bool = ..., segment_name: _Optional[str] = ..., host_id: _Optional[str] = ...) -> None: ...
    class Segment(_message.Message):
        __slots__ = ("segment", "owner_session", "capacity_bytes", "charged_bytes", "retiring_bytes", "replica_count", "heard_ms_ago", "tier", "connected", "told", "suspected", "name", "host_id", "owner_name", "endpoint")
        SEGMENT_FIELD_NUMBER: _ClassVar[int]
        OWNER_SESSION_FIELD_NUMBER: _ClassVar[int]
        CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
        CHARGED_BYTES_FIELD_NUMBER: _ClassVar[int]
        RETIRING_BYTES_FIELD_NUMBER: _ClassVar[int]
        REPLICA_COUNT_FIELD_NUMBER: _ClassVar[int]
        HEARD_MS_AGO_FIELD_NUMBER: _ClassVar[int]
        TIER_FIELD_NUMBER: _ClassVar[int]
        CONNECTED_FIELD_NUMBER: _ClassVar[int]
        TOLD_FIELD_NUMBER: _ClassVar[int]
        SUSPECTED_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        HOST_ID_FIELD_NUMBER: _ClassVar[int]
        OWNER_NAME_FIELD_NUMBER: _ClassVar[int]
        ENDPOINT_FIELD_NUMBER: _ClassVar[int]
        segment: int
        owner_session: int
        capacity_bytes: int
        charged_bytes: int
        retiring_bytes: int
        replica_count: int
        heard_ms_ago: int
        tier: Tier
        connected: bool
        told: bool
        suspected: bool
        name: str
        host_id: str
        owner_name: str
        endpoint: str
        def __init__(self, segment: _Optional[int] = ..., owner_session: _Optional[int] = ..., capacity_bytes: _Optional[int] = ..., charged_bytes: _Optional[int] = ..., retiring_bytes: _Optional[int] = ..., replica_count: _Optional[int] = ..., heard_ms_ago: _Optional[int] = ..., tier: _Optional[_Union[Tier, str]] = ..., connected: bool = ..., told: bool = ..., suspected: bool = ..., name: _Optional[str] = ..., host_id: _Optional[str] = ..., owner_name: _Optional[str] = ..., endpoint: _Optional[str] = ...) -> None: ...
    class Event(_message.Message):
        __slots__ = ("ms_ago", "kind", "reason", "replica", "segment", "session", "number", "name")
        MS_AGO_FIELD_NUMBER: _ClassVar[int]
        KIND_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        REPLICA_FIELD_NUMBER: _ClassVar[int]
        SEGMENT_FIELD_NUMBER: _ClassVar[int]
        SESSION_FIELD_NUMBER: _ClassVar[int]
        NUMBER_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        ms_ago: int
        kind: int
        reason: int
        replica: int
        segment: int
        session: int
        number: int
        name: str
        def __init__(self, ms_ago: _Optional[int] = ..., kind: _Optional[int] = ..., reason: _Optional[int] = ..., replica: _Optional[int] = ..., segment: _Optional[int] = ..., session: _Optional[int] = ..., number: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...
    KEY_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    HAS_OLDER_EVENTS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_EVENTS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_EVENT_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    key: InspectReply.Key
    copies: _containers.RepeatedCompositeFieldContainer[InspectReply.Copy]
    segments: _containers.RepeatedCompositeFieldContainer[InspectReply.Segment]
    events: _containers.RepeatedCompositeFieldContainer[InspectReply.Event]
    has_older_events: bool
    dropped_events: int
    oldest_event_ms_ago: int
    def __init__(self, key: _Optional[_Union[InspectReply.Key, _Mapping]] = ..., copies: _Optional[_Iterable[_Union[InspectReply.Copy, _Mapping]]] = ..., segments: _Optional[_Iterable[_Union[InspectReply.Segment, _Mapping]]] = ..., events: _Optional[_Iterable[_Union[InspectReply.Event, _Mapping]]] = ..., has_older_events: bool = ..., dropped_events: _Optional[int] = ..., oldest_event_ms_ago: _Optional[int] = ...) -> None: ...

class MatchPrefixReply(_message.Message):
    __slots__ = ("length", "miss")
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    MISS_FIELD_NUMBER: _ClassVar[int]
    length: int
    miss: Status
    def __init__(self, length: _Optional[int] = ..., miss: _Optional[_Union[Status, str]] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("replica", "segment")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    replica: int
    segment: int
    def __init__(self, replica: _Optional[int] = ..., segment: _Optional[int] = ...) -> None: ...

class LookupReply(_message.Message):
    __slots__ = ("found",)
    class Found(_message.Message):
        __slots__ = ("status", "put_id", "size", "lease_ms", "places")
        STATUS_FIELD_NUMBER: _ClassVar[int]
        PUT_ID_FIELD_NUMBER: _ClassVar[int]
        SIZE_FIELD_NUMBER: _ClassVar[int]
        LEASE_MS_FIELD_NUMBER: _ClassVar[int]
        PLACES_FIELD_NUMBER: _ClassVar[int]
        status: Status
        put_id: int
        size: int
        lease_ms: int
        places: _containers.RepeatedCompositeFieldContainer[Place]
        def __init__(self, status: _Optional[_Union[Status, str]] = ..., put_id: _Optional[int] = ..., size: _Optional[int] = ..., lease_ms: _Optional[int] = ..., places: _Optional[_Iterable[_Union[Place, _Mapping]]] = ...) -> None: ...
    FOUND_FIELD_NUMBER: _ClassVar[int]
    found: _containers.RepeatedCompositeFieldContainer[LookupReply.Found]
    def __init__(self, found: _Optional[_Iterable[_Union[LookupReply.Found, _Mapping]]] = ...) -> None: ...

class PutStartRequest(_message.Message):
    __slots__ = ("session", "sequence", "keys", "sizes", "parent_digests", "avoid_segments", "replica_count", "hard_pin", "soft_pin", "soft_pin_ms", "ttl_ms", "upsert", "prefer_local", "preferred_segments", "keep_soft_pin")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    PARENT_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    AVOID_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    REPLICA_COUNT_FIELD_NUMBER: _ClassVar[int]
    HARD_PIN_FIELD_NUMBER: _ClassVar[int]
    SOFT_PIN_FIELD_NUMBER: _ClassVar[int]
    SOFT_PIN_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    UPSERT_FIELD_NUMBER: _ClassVar[int]
    PREFER_LOCAL_FIELD_NUMBER: _ClassVar[int]
    PREFERRED_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    KEEP_SOFT_PIN_FIELD_NUMBER: _ClassVar[int]
    session: int
    sequence: int
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    parent_digests: _containers.RepeatedScalarFieldContainer[int]
    avoid_segments: _containers.RepeatedScalarFieldContainer[int]
    replica_count: int
    hard_pin: bool
    soft_pin: bool
    soft_pin_ms: int
    ttl_ms: int
    upsert: bool
    prefer_local: bool
    preferred_segments: _containers.RepeatedScalarFieldContainer[str]
    keep_soft_pin: bool
    def __init__(self, session: _Optional[int] = ..., sequence: _Optional[int] = ..., keys: _Optional[_Iterable[bytes]] = ..., sizes: _Optional[_Iterable[int]] = ..., parent_digests: _Optional[_Iterable[int]] = ..., avoid_segments: _Optional[_Iterable[int]] = ..., replica_count: _Optional[int] = ..., hard_pin: bool = ..., soft_pin: bool = ..., soft_pin_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., upsert: bool = ..., prefer_local: bool = ..., preferred_segments: _Optional[_Iterable[str]] = ..., keep_soft_pin: bool = ...) -> None: ...

class PutStartReply(_message.Message):
    __slots__ = ("grants",)
    class Grant(_message.Message):
        __slots__ = ("status", "put_id", "places")
        STATUS_FIELD_NUMBER: _ClassVar[int]
        PUT_ID_FIELD_NUMBER: _ClassVar[int]
        PLACES_FIELD_NUMBER: _ClassVar[int]
        status: Status
        put_id: int
        places: _containers.RepeatedCompositeFieldContainer[Place]
        def __init__(self, status: _Optional[_Union[Status, str]] = ..., put_id: _Optional[int] = ..., places: _Optional[_Iterable[_Union[Place, _Mapping]]] = ...) -> None: ...
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    grants: _containers.RepeatedCompositeFieldContainer[PutStartReply.Grant]
    def __init__(self, grants: _Optional[_Iterable[_Union[PutStartReply.Grant, _Mapping]]] = ...) -> None: ...

class PutEndRequest(_message.Message):
    __slots__ = ("session", "sequence", "items")
    class Result(_message.Message):
        __slots__ = ("replica", "status")
        REPLICA_FIELD_NUMBER: _ClassVar[int]
        STATUS_FIELD_NUMBER: _ClassVar[int]
        replica: int
        status: Status
        def __init__(self, replica: _Optional[int] = ..., status: _Optional[_Union[Status, str]] = ...) -> None: ...
    class Item(_message.Message):
        __slots__ = ("put_id", "results")
        PUT_ID_FIELD_NUMBER: _ClassVar[int]
        RESULTS_FIELD_NUMBER: _ClassVar[int]
        put_id: int
        results: _containers.RepeatedCompositeFieldContainer[PutEndRequest.Result]
        def __init__(self, put_id: _Optional[int] = ..., results: _Optional[_Iterable[_Union[PutEndRequest.Result, _Mapping]]] = ...) -> None: ...
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    session: int
    sequence: int
    items: _containers.RepeatedCompositeFieldContainer[PutEndRequest.Item]
    def __init__(self, session: _Optional[int] = ..., sequence: _Optional[int] = ..., items: _Optional[_Iterable[_Union[PutEndRequest.Item, _Mapping]]] = ...) -> None: ...

class PutRevokeRequest(_message.Message):
    __slots__ = ("session", "sequence", "put_ids")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PUT_IDS_FIELD_NUMBER: _ClassVar[int]
    session: int
    sequence: int
    put_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, session: _Optional[int] = ..., sequence: _Optional[int] = ..., put_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class RemoveRequest(_message.Message):
    __slots__ = ("session", "sequence", "keys", "force", "only_segments")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    ONLY_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    session: int
    sequence: int
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    force: bool
    only_segments: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, session: _Optional[int] = ..., sequence: _Optional[int] = ..., keys: _Optional[_Iterable[bytes]] = ..., force: bool = ..., only_segments: _Optional[_Iterable[int]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("session", "cursor", "limit", "key_prefix")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    session: int
    cursor: int
    limit: int
    key_prefix: bytes
    def __init__(self, session: _Optional[int] = ..., cursor: _Optional[int] = ..., limit: _Optional[int] = ..., key_prefix: _Optional[bytes] = ...) -> None: ...

class ListReply(_message.Message):
    __slots__ = ("cursor", "objects")
    class Object(_message.Message):
        __slots__ = ("key", "size", "put_id", "replica_count", "hard_pinned", "soft_pinned")
        KEY_FIELD_NUMBER: _ClassVar[int]
        SIZE_FIELD_NUMBER: _ClassVar[int]
        PUT_ID_FIELD_NUMBER: _ClassVar[int]
        REPLICA_COUNT_FIELD_NUMBER: _ClassVar[int]
        HARD_PINNED_FIELD_NUMBER: _ClassVar[int]
        SOFT_PINNED_FIELD_NUMBER: _ClassVar[int]
        key: bytes
        size: int
        put_id: int
        replica_count: int
        hard_pinned: bool
        soft_pinned: bool
        def __init__(self, key: _Optional[bytes] = ..., size: _Optional[int] = ..., put_id: _Optional[int] = ..., replica_count: _Optional[int] = ..., hard_pinned: bool = ..., soft_pinned: bool = ...) -> None: ...
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    cursor: int
    objects: _containers.RepeatedCompositeFieldContainer[ListReply.Object]
    def __init__(self, cursor: _Optional[int] = ..., objects: _Optional[_Iterable[_Union[ListReply.Object, _Mapping]]] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: int
    def __init__(self, session: _Optional[int] = ...) -> None: ...

class StatsReply(_message.Message):
    __slots__ = ("stats",)
    class StatsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    STATS_FIELD_NUMBER: _ClassVar[int]
    stats: _containers.ScalarMap[str, int]
    def __init__(self, stats: _Optional[_Mapping[str, int]] = ...) -> None: ...
