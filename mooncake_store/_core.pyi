"""Native core of mooncake_store, built from native/bindings/."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar, overload

from typing_extensions import Buffer

_Answer = TypeVar("_Answer")

def version() -> str:
    """Version of the distribution this module was built from."""

# ---- wire messages: the bodies of proto/FRAMES.md, packed and unpacked by the one parser (native/wire/) ----
#
# encode_* raise ValueError for what no frame can carry (a list above its limit, a uuid of other than 16
# bytes); parse_* for bytes that do not parse. Keys are bytes; one that is too long is packed cut, just above
# the limit, and the state machine answers INVALID_KEY for it alone. Statuses are numbers
# (mooncake_store.status). Names of segments, hosts and sessions that are not UTF-8 come out with U+FFFD.

class FrameHeader(TypedDict):
    body_bytes: int
    verb: int
    flags: int
    status: int
    request_id: int
    epoch: int

class Hello(TypedDict):
    version_min: int
    version_max: int
    role: int
    auth_kind: int
    process: bytes
    auth: bytes
    software: str
    tenant: str

class Welcome(TypedDict):
    version: int
    process: bytes
    software: str

class Request(TypedDict):
    session: int
    sequence: int
    flags: int
    avoid: list[int]

class Heartbeat(Request):
    failures: list[int]

class OpenSession(TypedDict):
    process: bytes
    name: str
    host_id: str
    tenant: str

class OpenSessionReply(TypedDict):
    session: int
    epoch: int
    master: bytes
    client_ttl_ms: int
    heartbeat_interval_ms: int
    lease_ttl_ms: int
    exists_hold_ms: int

class SegmentDescription(TypedDict):
    tier: int
    capacity_bytes: int
    incarnation: bytes
    name: str
    host_id: str
    endpoints: list[str]

class SegmentInfo(SegmentDescription):
    status: int
    segment: int
    owner: int
    charged_bytes: int
    retiring_bytes: int
    replica_count: int

class Mount(Request):
    known_epoch: int
    known_master: bytes
    mount_flags: int
    segments: list[SegmentDescription]

class SegmentIds(Request):
    ids: list[int]

class KeysRequest(Request):
    keys: list[bytes]

class PutStart(Request):
    keys: list[bytes]
    sizes: list[int]
    parents: list[int]
    replica_count: int
    put_flags: int
    preferred: list[str]
    soft_pin_ms: int
    ttl_ms: int

class PutEnd(Request):
    items: list[tuple[int, list[tuple[int, int]]]]

class PutRevoke(Request):
    put_ids: list[int]

class List(Request):
    cursor: int
    limit: int
    key_prefix: bytes

class SegmentReport(TypedDict):
    segment: int
    ready_bytes: int
    receiving_bytes: int
    draining_bytes: int
    largest_free_bytes: int
    sealed_count: int
    sealed_checksum: int

class Tombstones(TypedDict):
    epoch: int
    closed_epoch: int
    expelled: list[bytes]
    floors: list[tuple[bytes, int]]
    replicas: list[int]
    keys: list[tuple[int, int]]

class Report(Request):
    last_command_id: int
    settled_id: int
    segments: list[SegmentReport]
    freed: list[int]

class ReportReply(TypedDict):
    settled_id: int
    tombstones_generation: int
    comparison: int
    compared_segment: int
    unknown_segments: list[int]

class Holdings(Request):
    comparison: int
    holdings_flags: int
    replicas: list[int]

class Inventory(Request):
    inventory_flags: int
    total_count: int
    total_checksum: int
    items: list[tuple[int, int, bytes]]

class Inspect(Request):
    subject: int
    limit: int
    name: bytes

class CreateTask(Request):
    key: bytes
    source: str
    targets: list[str]

class QueryTask(Request):
    task: int

class InspectedKey(TypedDict):
    status: int
    reason: int
    ended_ms_ago: int
    put_id: int
    size: int
    flags: int
    lease_count: int
    lease_ms: int
    hold_ms: int
    soft_pin_ms: int
    ttl_ms: int
    unfinished_put_id: int
    unfinished_size: int
    unfinished_age_ms: int
    unfinished_owner: int
    unfinished_owner_name: str

class InspectedCopy(TypedDict):
    replica: int
    segment: int
    charged_bytes: int
    status: int
    tier: int
    has_left: bool
    segment_name: str
    host_id: str

class InspectedSegment(TypedDict):
    segment: int
    owner: int
    capacity_bytes: int
    charged_bytes: int
    retiring_bytes: int
    replica_count: int
    heard_ms_ago: int
    tier: int
    flags: int
    name: str
    host_id: str
    owner_name: str
    endpoint: str

class InspectedEvent(TypedDict):
    ms_ago: int
    id: int
    segment: int
    session: int
    number: int
    kind: int
    reason: int
    name: str

class ToldTask(TypedDict):
    task: int
    type: int  # 0 a copy, 1 a move
    status: int  # 0 pending, 1 processing, 2 failed, 3 success
    created_ms_ago: int
    updated_ms_ago: int
    node: int  # the session of the last node that was told to make a copy; 0: none yet
    message: str

class InspectReply(TypedDict):
    dropped_events: int
    oldest_event_ms_ago: int
    has_older_events: bool
    key: InspectedKey | None
    copies: list[InspectedCopy]
    segments: list[InspectedSegment]
    events: list[InspectedEvent]

def verb_numbers() -> dict[str, int]:
    """Every verb's number by name: {"exists": 10, ...}."""

def encode_frame(
    verb: int, body: bytes, request_id: int = 0, flags: int = 0, status: int = 0, epoch: int = 0
) -> bytes:
    """A whole frame: 24 bytes of header, then `body`."""

def parse_frame_header(header: bytes) -> FrameHeader: ...
def encode_hello(
    role: int,
    process: bytes,
    tenant: str = "",
    software: str = "",
    auth: bytes = b"",
    auth_kind: int = 0,
    version_min: int = 1,
    version_max: int = 1,
) -> bytes: ...
def parse_hello(body: bytes) -> Hello: ...
def encode_welcome(version: int, process: bytes, software: str) -> bytes: ...
def parse_welcome(body: bytes) -> Welcome: ...
def encode_prefix(session: int, sequence: int = 0, flags: int = 0, avoid: Sequence[int] = ...) -> bytes:
    """The body of close_session and stats, and of a heartbeat that reports no peer."""

def encode_heartbeat(session: int, avoid: Sequence[int] = ..., failures: Sequence[int] = ...) -> bytes:
    """avoid: segments found unreachable. failures: none, or one each: 1 refused, 2 reset, 3 timed out."""

def parse_heartbeat(body: bytes) -> Heartbeat: ...
def parse_prefix(body: bytes) -> Request: ...
def encode_open_session(process: bytes, name: str, host_id: str, tenant: str) -> bytes: ...
def parse_open_session(body: bytes) -> OpenSession: ...
def encode_open_session_reply(
    session: int,
    epoch: int,
    master: bytes,
    client_ttl_ms: int,
    heartbeat_interval_ms: int,
    lease_ttl_ms: int,
    exists_hold_ms: int,
) -> bytes: ...
def parse_open_session_reply(body: bytes) -> OpenSessionReply: ...
def encode_mount(
    session: int,
    sequence: int,
    known_epoch: int,
    known_master: bytes,
    segments: Sequence[SegmentDescription],
    flags: int = 0,
) -> bytes:
    """flags: 1 = the node holds values of an earlier reign; an inventory follows."""

def parse_mount(body: bytes) -> Mount: ...
def encode_mount_reply(answers: Sequence[tuple[int, int]]) -> bytes:
    """answers: (status, segment id)."""

def parse_mount_reply(body: bytes) -> list[tuple[int, int]]: ...
def encode_segment_ids(session: int, segments: Sequence[int], sequence: int = 0) -> bytes:
    """The body of unmount and of segments (none = all)."""

def parse_segment_ids(body: bytes) -> SegmentIds: ...
def encode_segments_reply(segments: Sequence[SegmentInfo]) -> bytes: ...
def parse_segments_reply(body: bytes) -> list[SegmentInfo]: ...
def encode_keys_request(
    session: int, keys: Sequence[bytes], sequence: int = 0, flags: int = 0, avoid: Sequence[int] = ...
) -> bytes:
    """The body of exists, match_prefix, lookup, remove, touch and release."""

def parse_keys_request(body: bytes) -> KeysRequest: ...
def encode_statuses(statuses: Sequence[int]) -> bytes: ...
def parse_statuses(body: bytes) -> list[int]:
    """The answer of exists, remove, touch, release, put_end, put_revoke and unmount."""

def encode_why_reply(items: Sequence[tuple[int, int, int]]) -> bytes: ...
def parse_why_reply(body: bytes) -> list[tuple[int, int, int]]:
    """(status as exists answers it, reason of proto/FRAMES.md, ms since it ended) a key."""

def encode_match_prefix_reply(length: int, miss: int) -> bytes: ...
def parse_match_prefix_reply(body: bytes) -> tuple[int, int]:
    """(keys present before the first miss, why the next one is missing)."""

def encode_lookup_reply(items: Sequence[tuple[int, int, int, int, Sequence[tuple[int, int]]]]) -> bytes: ...
def parse_lookup_reply(body: bytes) -> list[tuple[int, int, int, int, list[tuple[int, int]]]]:
    """(status, put_id, size, lease_ms, [(replica, segment)]) a key."""

def encode_put_start(
    session: int,
    sequence: int,
    keys: Sequence[bytes],
    sizes: Sequence[int],
    parents: Sequence[int] = ...,
    replica_count: int = 1,
    flags: int = 0,
    preferred: Sequence[str] = ...,
    soft_pin_ms: int = 0,
    ttl_ms: int = 0,
    avoid: Sequence[int] = ...,
    request_flags: int = 0,
) -> bytes:
    """flags: 1 hard pin, 2 soft pin, 4 upsert, 8 prefer segments on the session's host.

    request_flags: 4 = `avoid` steers placement only.
    """

def parse_put_start(body: bytes) -> PutStart: ...
def encode_put_start_reply(items: Sequence[tuple[int, int, Sequence[tuple[int, int]]]]) -> bytes: ...
def parse_put_start_reply(body: bytes) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """(status, put_id, [(replica, segment)]) a key."""

def encode_put_end(
    session: int, sequence: int, items: Sequence[tuple[int, Sequence[tuple[int, int]]]]
) -> bytes:
    """items: (put_id, [(replica, status)])."""

def parse_put_end(body: bytes) -> PutEnd: ...
def encode_put_revoke(session: int, sequence: int, put_ids: Sequence[int]) -> bytes: ...
def parse_put_revoke(body: bytes) -> PutRevoke: ...
def encode_list(session: int, cursor: int = 0, limit: int = 0, key_prefix: bytes = b"") -> bytes: ...
def parse_list(body: bytes) -> List: ...
def encode_list_reply(cursor: int, objects: list[tuple[bytes, int, int, int, int]]) -> bytes: ...
def parse_list_reply(body: bytes) -> tuple[int, list[tuple[bytes, int, int, int, int]]]:
    """(next cursor, [(key, size, put_id, replica count, put flags)])."""

def encode_inspect(
    session: int, subject: int, name: bytes = b"", limit: int = 0, avoid: Sequence[int] = ...
) -> bytes:
    """subject: 0 the pool, 1 a key, 2 the name of a segment, node or host."""

def parse_inspect(body: bytes) -> Inspect: ...
def encode_inspect_reply(reply: InspectReply) -> bytes: ...
def parse_inspect_reply(body: bytes) -> InspectReply:
    """events: newest first."""

def encode_create_task(
    session: int, sequence: int, key: bytes, targets: Sequence[str], source: str = ""
) -> bytes:
    """Of create_copy_task, without a source, and of create_move_task."""

def parse_create_task(body: bytes) -> CreateTask: ...
def encode_create_task_reply(task: int) -> bytes: ...
def parse_create_task_reply(body: bytes) -> int: ...
def parse_query_task(body: bytes) -> QueryTask: ...
def encode_query_task_reply(
    task: int,
    *,
    type: int,
    status: int,
    created_ms_ago: int,
    updated_ms_ago: int,
    node: int,
    message: str,
) -> bytes: ...
def encode_query_task(session: int, task: int) -> bytes: ...
def parse_query_task_reply(body: bytes) -> ToldTask: ...
def encode_stats_reply(stats: dict[str, int]) -> bytes: ...
def parse_stats_reply(body: bytes) -> dict[str, int]: ...
def encode_retire(command_id: int, replicas: Sequence[int]) -> bytes: ...
def parse_retire(body: bytes) -> tuple[int, list[int]]: ...
def encode_retire_reply(command_id: int, freed: Sequence[int]) -> bytes: ...
def parse_retire_reply(body: bytes) -> tuple[int, list[int]]: ...
def encode_report(
    session: int,
    last_command_id: int,
    segments: Sequence[SegmentReport],
    freed: Sequence[int],
    settled_id: int = 0,
) -> bytes: ...
def parse_report(body: bytes) -> Report: ...
def encode_report_reply(
    settled_id: int,
    unknown_segments: Sequence[int],
    tombstones_generation: int = 0,
    comparison: int = 0,
    compared_segment: int = 0,
) -> bytes: ...
def parse_report_reply(body: bytes) -> ReportReply: ...
def encode_holdings(session: int, comparison: int, replicas: Sequence[int], flags: int = 1) -> bytes:
    """flags: 1 the list's last chunk."""

def parse_holdings(body: bytes) -> Holdings: ...
def encode_tombstones(
    closed_epoch: int = 0,
    expelled: Sequence[bytes] = [],
    floors: Sequence[tuple[bytes, int]] = [],
    replicas: Sequence[int] = [],
    keys: Sequence[tuple[int, int]] = [],
    epoch: int = 0,
) -> bytes: ...
def parse_tombstones(body: bytes) -> Tombstones: ...
def encode_tombstones_request(session: int, kept: bytes) -> bytes: ...
def parse_tombstones_reply(body: bytes) -> tuple[int, bytes]: ...
def encode_inventory(
    session: int,
    flags: int,
    items: Sequence[tuple[int, int, bytes]],
    total_count: int,
    total_checksum: int,
) -> bytes:
    """items: (replica, segment, encoded value header). flags: 1 first chunk, 2 last chunk."""

def parse_inventory(body: bytes) -> Inventory: ...

# wire_functions.cc: any C-contiguous buffer will do where bytes are taken; crc is the checksum so far.

def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Continue a CRC-32C over data: crc32c(b, crc32c(a)) == crc32c(a + b)."""

def crc32c_combine(crc_a: int, crc_b: int, length_b: int) -> int:
    """The CRC-32C of a + b from those of a and b and b's length, without the data."""

def crc32c_copy(
    destination: bytearray | memoryview, source: bytes | bytearray | memoryview, crc: int = 0
) -> int:
    """Copy source into destination, of the same size and not overlapping, and continue a CRC-32C over it."""

def crc32c_implementations() -> list[str]:
    """What this processor can run, slowest first; crc32c() uses the last one."""

def crc32c_by(implementation: str, data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """crc32c() by a named implementation."""

def crc32c_copy_by(
    implementation: str, source: bytes | bytearray | memoryview, crc: int = 0
) -> tuple[int, bytes]:
    """crc32c_copy() by a named implementation: the checksum and the copy."""

def xxh64(data: bytes | bytearray | memoryview, seed: int = 0) -> int:
    """xxHash64 of data."""

def key_digest(tenant: str, key: bytes) -> int:
    """The 64 bits that name (tenant, key) on the wire: xxh64(key, seed=xxh64(tenant)). Never 'equal keys'."""

# range_allocator.cc

class Range:
    """A range in use: where it starts, and its record in the allocator that made it."""

    def __init__(self, offset: int, record: int) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def record(self) -> int: ...

class RangeAllocator:
    """Which bytes of one segment are in use; refuses a request only if no single free range can hold it.

    Sizes and offsets are multiples of alignment, a power of two. Only the first ready_bytes are handed out;
    None means all. Not synchronised.
    """

    def __init__(self, capacity: int, alignment: int = 64, *, ready_bytes: int | None = None) -> None: ...
    def allocate(self, size: int) -> Range | None:
        """A range of size bytes, rounded up to the alignment; 0 costs one unit."""

    def free(self, range: Range) -> None:
        """Return a range. Raises ValueError if it is not in use (native callers are stopped by an assert)."""

    def set_ready(self, ready_bytes: int) -> None:
        """Raise the mark below which ranges are handed out; it never falls."""

    def charged_bytes(self, size: int) -> int:
        """What allocate(size) charges."""

    def holds(self, range: Range) -> bool:
        """Whether this range is in use."""

    def size_of(self, range: Range) -> int:
        """The charged size of a range in use."""

    def check_invariants(self) -> None:
        """Walk everything; raises RuntimeError naming the rule that is broken."""

    @property
    def alignment(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def ready_bytes(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def free_bytes(self) -> int:
        """Free bytes below the ready mark."""

    @property
    def largest_free(self) -> int:
        """The largest request that would succeed now, exactly."""

    @property
    def range_count(self) -> int: ...
    @property
    def record_bytes(self) -> int:
        """Memory spent on bookkeeping."""

# directory.cc

class DirectoryReference:
    """One reader's hold on a range; give it back with Directory.close."""

    @property
    def segment(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def checksum(self) -> int: ...
    @property
    def header(self) -> bytes:
        """The encoded value header. Raises ValueError after close."""

class Directory:
    """Which replica lies in which range, who reads it, what is free: a node's decisions without its memory.

    For tests and simulations. Statuses are the numbers of mooncake_store.status. Calls that would stop a
    native caller raise ValueError.
    """

    def __init__(self, retired_ids_max: int = 65536) -> None: ...
    def add_segment(self, capacity_bytes: int) -> int:
        """The new segment's index; nothing is granted on it before attach."""

    def set_ready(self, segment: int, ready_bytes: int) -> None:
        """Say how much is faulted in: that part is granted first."""

    def attach(self, segment: int, segment_id: int) -> None:
        """Name the segment as the master does."""

    def expel(self, segment: int) -> None:
        """Serve nothing of this incarnation any more; sweep gives its ranges back."""

    def sweep(self) -> bool:
        """Do a bounded step of what expel left; True when nothing is left."""

    def adopt(self, epoch: int) -> None:
        """Refuse writes of older epochs from now on."""

    def set_now(self, now_ms: int) -> None:
        """The clock by which values age, in ms."""

    def inventory(self) -> list[tuple[int, int, bytes]]:
        """Cancel what is being received and list what is sealed: (replica, segment id, encoded header)."""

    def set_fenced(self, fenced: bool) -> None:
        """Refuse every read and write, or serve again."""

    def begin_write(
        self, replica: int, segment_id: int, length: int, header: bytes, epoch: int
    ) -> tuple[int, int]:
        """(status, offset); when OK, seal or cancel must follow."""

    def seal(self, replica: int) -> int:
        """The last byte is there. OK, or STALE_GRANT when a retire overtook it."""

    def cancel(self, replica: int) -> None:
        """The receive has ended without success."""

    def open(self, replica: int, digest: int) -> DirectoryReference | None:
        """A reference, or None when the replica is gone or is another value's."""

    def close(self, reference: DirectoryReference) -> None:
        """Give a reference back."""

    def retire(self, replicas: list[int]) -> list[int]:
        """End replicas; those whose range is free by now, ids never held included."""

    def pending_freed(self, max: int = 65536) -> list[int]:
        """Ids whose range became free later, oldest first; the same until acknowledged."""

    def acknowledge_freed(self, count: int) -> None:
        """Forget the oldest of them."""

    def report(self, segment: int, settled_id: int) -> dict[str, int]:
        """The SegmentReport that goes to the master."""

    def counts(self) -> dict[str, int]:
        """Gauges and counters by name."""

    def check_invariants(self) -> None:
        """Walk everything; raises RuntimeError naming the rule that is broken."""

    @property
    def epoch(self) -> int: ...
    @property
    def retired_count(self) -> int:
        """Ended ids remembered one by one."""

# ---- the metadata state machine, for tests (native/metadata/) ----

class MetadataCommand:
    """One packed request on its way through the state machine."""

    @property
    def done(self) -> bool: ...
    @property
    def status(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def waits_for_space(self) -> bool: ...
    @property
    def retired(self) -> list[int]: ...
    @property
    def session(self) -> int: ...
    @property
    def sequence(self) -> int: ...

class Metadata:
    """The state machine without a driver. Effects are tuples (kind, segment, replica, session), kind one of
    retire, expel, unheard, lost_copy, end_session, mounted, copy, probe, space_returned.
    """

    def __init__(self, epoch: int = 1, master: bytes = ..., seed: int = 0, **settings: float | str) -> None:
        """settings: the fields of native/metadata/options.h by name; allocation and eviction_policy as their
        flags spell them.
        """

    @staticmethod
    def command(verb: int, body: bytes) -> MetadataCommand: ...
    def step(self, command: MetadataCommand, now_ms: int) -> tuple[bool, list[tuple[str, int, int, int]]]:
        """One bounded step. True: done, or it waits for space."""

    def run(self, command: MetadataCommand, now_ms: int) -> list[tuple[str, int, int, int]]:
        """Steps until it is done or waits for space."""

    def execute(
        self, verb: int, body: bytes, now_ms: int
    ) -> tuple[int, bytes, list[tuple[str, int, int, int]], list[int], bool]:
        """(status, body, effects, retired, waited); keys that had to wait for space are refused at once."""

    def refuse_waiting(self, command: MetadataCommand, now_ms: int) -> None: ...
    def session_attached(self, session: int, now_ms: int) -> None: ...
    def session_detached(self, session: int, now_ms: int) -> None: ...
    def retire_confirmed(
        self, node: int, command_id: int, replicas: Sequence[int], is_last: bool = True
    ) -> None: ...
    def freed(self, replicas: Sequence[int]) -> list[tuple[str, int, int, int]]: ...
    def copy_order(self, target: int) -> dict[str, Any] | None:
        """What its node is told: target, segment, source, digest, put_id, size, timeout_ms, endpoints."""

    def copies_to(self, node: int) -> list[int]: ...
    def copy_answered(
        self, node: int, target: int, status: int, now_ms: int
    ) -> list[tuple[str, int, int, int]]: ...
    def probed(self, node: int, result: str, now_ms: int) -> list[tuple[str, int, int, int]]: ...
    def endpoint(self, segment: int) -> str: ...
    def tick(self, now_ms: int) -> tuple[bool, list[tuple[str, int, int, int]]]:
        """(nothing is left to do now, effects)."""

    def hear_of_reign(self, epoch: int, master: bytes, now_ms: int) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def master(self) -> bytes: ...
    @property
    def settled_id(self) -> int: ...
    @property
    def tombstones_generation(self) -> int: ...
    @property
    def tombstones(self) -> bytes: ...
    def restore_tombstones(self, kept: bytes) -> bool: ...
    def stats(self) -> dict[str, int]: ...
    def check_invariants(self) -> None:
        """Raises RuntimeError with what is broken."""

# ---- traces (native/replay/) ------------------------------------------------------------------------------
#
# A trace is flat: the blocks of all requests as uint32, one after the other; how many each request has, as
# uint32; when it came, as uint64 milliseconds. run answers (requests, accesses, hits, prefix hits) so far.

def eviction_policies() -> list[str]:
    """Names; the first is the default."""

def range_bytes(size: int) -> int:
    """What a value of so many bytes takes of a pool's memory."""

class TraceReplay:
    """A pool of exactly `capacity_blocks` values: the state machine with one client, one node, and a clock of
    its own.
    """

    def __init__(self, capacity_blocks: int, block_bytes: int, policy: str) -> None: ...
    def run(self, blocks: Buffer, lengths: Buffer, times_ms: Buffer) -> tuple[int, int, int, int]:
        """Goes on with these requests; no request has a block twice."""

    def stats(self) -> dict[str, int]: ...
    def check_invariants(self) -> None: ...

class TraceBound:
    """The most block hits that any policy can have in `capacity_blocks` (0: in a cache without an end)."""

    def __init__(self, blocks: Buffer, capacity_blocks: int) -> None:
        """blocks: of the whole trace, numbered from 0 without gaps."""

    def run(self, blocks: Buffer, lengths: Buffer) -> tuple[int, int, int, int]:
        """Goes on with the next requests of that trace."""

# ---- the client (native/client/) -------------------------------------------------------------------------
#
# Keys are lists of str (its UTF-8), bytes, or int >= 0 (decimal); another type raises TypeError, a negative
# int or a lone surrogate ValueError, each naming the index. A key of a length that no key has is answered
# INVALID_KEY alone. Buffers are contiguous objects with the buffer protocol or pairs (address, length) that
# the caller keeps alive; they are held for the length of the call and never touched afterwards.
#
# Answers are positional, one a key; statuses are numbers (mooncake_store.status). The GIL is released round
# every call; a signal handled on the main thread ends a blocked call. timeout_ms 0 = rpc_timeout_ms.

_Key: TypeAlias = str | bytes | int
_Memory: TypeAlias = Buffer | tuple[int, int]

class BufferHandle(Buffer):
    """Memory of its own, not zeroed; a writable 1-D buffer of signed bytes. Freed with its last reference."""

    def __init__(self, size: int) -> None: ...
    def ptr(self) -> int: ...
    def size(self) -> int: ...
    @property
    def is_viewed(self) -> bool:
        """Whether something holds it by the buffer protocol."""
    def __len__(self) -> int: ...

class PackedMemory:
    """The memory of a batch, packed: what calls take instead of a list of memory or of lists of it.

    Holds the objects' buffers, but nothing that an address stands for. May serve several calls.
    """

    @staticmethod
    def of_values(values: Sequence[object]) -> PackedMemory:
        """Plain bytes to be put: bytes, bytearray, memoryview. TypeError names the first that is none."""
    @staticmethod
    def of_targets(targets: Sequence[object]) -> PackedMemory:
        """Memory to be filled. TypeError names the first that has no contiguous writable bytes."""
    @staticmethod
    def of_addresses(addresses: Sequence[int], sizes: Sequence[int]) -> PackedMemory:
        """ValueError names the first whose address or size is no int above 0."""
    @staticmethod
    def of_pieces(all_addresses: Sequence[Sequence[int]], all_sizes: Sequence[Sequence[int]]) -> PackedMemory:
        """Several each, which make up one value; neighbours are joined. ValueError names one without memory.

        get_into_many reads such a value into memory of its own first, and spreads it when it is verified.
        """
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...
    def size_of(self, index: int) -> int: ...
    @property
    def size_bytes(self) -> int: ...

class OpenValues:
    """Values that were found, not yet read. One thread at a time."""

    @property
    def statuses(self) -> list[int]: ...
    @property
    def sizes(self) -> list[int]:
        """Bytes of each value found; of the others 0."""
    @property
    def put_ids(self) -> list[int]: ...
    @property
    def user_metadata(self) -> list[bytes]:
        """One a key once they were read, if open() asked for it; else empty."""

class View:
    """A value where it lies, read-only, by the buffer protocol; memoryview(view), numpy.frombuffer(view).

    Mapped: memory of a node on this host, which keeps it as it is until the view is released; else a copy.
    """

    def release(self) -> None:
        """Give the memory back; idempotent. Raises BufferError while buffers of it are in use."""
    @property
    def nbytes(self) -> int: ...
    @property
    def is_mapped(self) -> bool: ...
    @property
    def is_released(self) -> bool: ...
    def __dlpack__(
        self,
        *,
        stream: object | None = None,
        max_version: object | None = None,
        dl_device: object | None = None,
        copy: object | None = None,
    ) -> object:
        """A capsule of nbytes uint8, read-only; as a buffer in use until the consumer has freed it.

        Raises BufferError: released, a forked child, a device or stream, or a max_version before (1, 0),
        which cannot say that memory is read-only. copy True: bytes of its own, writable, of any version.
        """
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> View: ...
    def __exit__(self, *error: object) -> None: ...

def why_not_mapped(
    address: str, local: str, tenant: str, shared_memory: bool, timeout_ms: int
) -> tuple[int, str]:
    """Bytes of a node's memory that this process can map, and why not where that is 0.

    Dials as a client does. address: of the node's data port; local: as it advertises it (shm://...).
    shared_memory: as of a client, False: off.
    """

class Client:
    def __init__(
        self,
        masters: Sequence[str] = ...,
        *,
        lane: str = "",
        tenant: str = "default",
        name: str = "",
        host_id: str = "",
        connect_timeout_ms: int = 1000,
        rpc_timeout_ms: int = 10000,
        connections_a_peer_max: int = 8,
        bytes_in_flight_a_peer_max: int = ...,
        checksums: bool = True,
        location_cache_max: int = 16384,
        control: str = "auto",
        bridge: Callable[[str, str, str], int] | None = None,
        shared_memory: bool = True,
    ) -> None:
        """Connect to the first master that answers, or to a lane's own address.

        bridge: (lane, master, why the lane is not used) -> fd; starts what carries frames over gRPC, once,
            on any thread. The fd is a SOCK_SEQPACKET socket's, owned by the client from then on; each message
            on it carries a connection and, as text, the address of the master that it is to.
        Raises ConnectionError naming address and setting; ValueError for a setting that cannot be.
        """
    def put_many(
        self,
        keys: Sequence[_Key],
        values: Sequence[_Memory | list[_Memory]] | PackedMemory,
        *,
        replica_count: int = 1,
        flags: int = 0,
        soft_pin_ms: int = 0,
        ttl_ms: int = 0,
        preferred: Sequence[str] = ...,
        user_metadata: Sequence[bytes] | None = None,
        parents: Sequence[int] | None = None,
        timeout_ms: int = 0,
    ) -> list[int]:
        """Statuses: OK = stored, OBJECT_ALREADY_EXISTS. A list as value is its pieces, joined.

        flags: 1 hard pin, 2 soft pin, 4 upsert, 8 prefer this host. parents: key_digest of the block before.
        """
    @overload
    def get_many(
        self, keys: Sequence[_Key], *, with_user_metadata: Literal[False] = False, timeout_ms: int = 0
    ) -> list[bytes | int]: ...
    @overload
    def get_many(
        self, keys: Sequence[_Key], *, with_user_metadata: Literal[True], timeout_ms: int = 0
    ) -> tuple[list[bytes | int], list[bytes]]:
        """Each value as bytes, or its status."""
    def get_into_many(
        self, keys: Sequence[_Key], targets: Sequence[_Memory | None] | PackedMemory, *, timeout_ms: int = 0
    ) -> tuple[list[int], list[int]]:
        """Statuses and lengths; with BUFFER_OVERFLOW the length is the value's size."""
    def view_many(
        self, keys: Sequence[_Key], *, verify: bool = False, timeout_ms: int = 0
    ) -> list[View | int]:
        """A view of each value, or its status. verify: mapped values are compared with checksums, too."""
    def get_ranges_many(
        self,
        keys: Sequence[_Key],
        offsets: Sequence[int],
        targets: Sequence[_Memory] | PackedMemory,
        *,
        timeout_ms: int = 0,
    ) -> tuple[list[int], list[int]]:
        """Fill each target from that offset of its key's value: statuses, and put_ids of what was read.

        A key may be named several times. INVALID_PARAMS: not inside the value. VALUE_TOO_LARGE: value and
        target are more than 32 MiB together, which no node checks for a part: read it whole.
        """
    def open(
        self, keys: Sequence[_Key], *, user_metadata: bool = False, to_read: bool = True, timeout_ms: int = 0
    ) -> OpenValues:
        """Sizes first, so that the caller can make room.

        to_read: what is told may be what was found before, as read_into() finds out; else it is what the
        master says now.
        """

    def read_into(
        self, opened: OpenValues, targets: Sequence[_Memory | None] | PackedMemory, *, timeout_ms: int = 0
    ) -> tuple[list[int], list[int]]:
        """Statuses and lengths, as get_into_many; None leaves a key out (its status stays). Once only.

        A value that is gone meanwhile is looked for again, so a length may differ from `sizes`.
        """
    def exists_many(self, keys: Sequence[_Key], *, hold: bool = True, timeout_ms: int = 0) -> list[int]: ...
    def locate_many(
        self, keys: Sequence[_Key], *, timeout_ms: int = 0
    ) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """Status, size and (replica_id, segment) of each copy, a key; nothing is leased or touched."""
    def match_prefix(
        self, keys: Sequence[_Key], *, hold: bool = True, timeout_ms: int = 0
    ) -> tuple[int, int, int]:
        """Status of the question, keys present before the first miss, and why the next one is missing."""
    def remove_many(self, keys: Sequence[_Key], *, force: bool = False, timeout_ms: int = 0) -> list[int]: ...
    def remove_copies(
        self, keys: Sequence[_Key], segments: Sequence[int], *, timeout_ms: int = 0
    ) -> list[int]:
        """Of each value the copies on these segments, or all of it where it lies there alone."""
    def touch_many(self, keys: Sequence[_Key], *, timeout_ms: int = 0) -> list[int]: ...
    def list_keys(
        self, cursor: int = 0, *, limit: int = 1000, key_prefix: bytes = b"", timeout_ms: int = 0
    ) -> tuple[int, int, list[tuple[bytes, int, int, int, int]]]:
        """Status, next cursor (0: that was all), and (key, size, put_id, replica_count, flags) each."""
    def explain(self, key: bytes, *, timeout_ms: int = 0) -> tuple[int, int, int, int]:
        """Status of the question; of the key status, reason (proto/FRAMES.md) and ms since it ended."""
    def inspect(
        self, subject: int, name: bytes = b"", *, limit: int = 0, timeout_ms: int = 0
    ) -> tuple[int, bytes]:
        """Status of the question, and the packed answer (parse_inspect_reply)."""
    def create_task(
        self, type: int, key: bytes, targets: Sequence[str], *, source: str = "", timeout_ms: int = 0
    ) -> tuple[int, int]:
        """Status of the question, and the task. type: 0 a copy to the targets, 1 a move from `source`."""
    def query_task(self, task: int, *, timeout_ms: int = 0) -> tuple[int, ToldTask | None]: ...
    def segments(self, *, timeout_ms: int = 0) -> tuple[int, list[ClientSegment]]: ...
    def stats(self, *, timeout_ms: int = 0) -> tuple[int, dict[str, int]]: ...
    def close(self) -> None:
        """Idempotent, from any thread; blocked calls return CLOSED within about 50 ms."""
    @property
    def is_closed(self) -> bool: ...
    @property
    def is_over_grpc(self) -> bool: ...
    @property
    def local_nodes(self) -> list[tuple[str, bool, int, str]]:
        """Of each node that was dialled: its data endpoint, whether its memory is mapped, bytes, why not."""
    @property
    def location_counts(self) -> dict[str, int]: ...
    @property
    def is_connected(self) -> bool:
        """To the master, as the last heartbeat found."""
    @staticmethod
    def why() -> str:
        """What went wrong last in this thread's latest call, for the text of an error; "" if nothing did."""

class PendingCall(Generic[_Answer]):
    """A call of an AsyncClient. `answer` is its value once it is over, or raises what it threw."""

    @property
    def id(self) -> int: ...
    @property
    def is_done(self) -> bool:
        """take_done() named it, or it was over before it could wait."""
    @property
    def is_expired(self) -> bool:
        """It waited for a thread until its deadline and never ran."""
    def answer(self) -> _Answer: ...

class AsyncClient:
    """The methods of Client for a caller that does not wait, each giving a PendingCall of its value.

    Of one event loop's thread; only close() may be called from others. A call holds its buffers until it was
    taken by take_done() or cancelled.
    """

    def __init__(
        self,
        masters: Sequence[str] = ...,
        *,
        lane: str = "",
        tenant: str = "default",
        name: str = "",
        host_id: str = "",
        connect_timeout_ms: int = 1000,
        rpc_timeout_ms: int = 10000,
        connections_a_peer_max: int = 8,
        bytes_in_flight_a_peer_max: int = ...,
        checksums: bool = True,
        location_cache_max: int = 16384,
        control: str = "auto",
        bridge: Callable[[str, str, str], int] | None = None,
        shared_memory: bool = True,
        threads_max: int,
        waiting_max: int,
    ) -> None: ...
    def connect(self) -> PendingCall[None]:
        """Must be over before any other call is made; its answer raises as Client() does."""
    def put_many(
        self,
        keys: Sequence[_Key],
        values: Sequence[_Memory | list[_Memory]] | PackedMemory,
        *,
        replica_count: int = 1,
        flags: int = 0,
        soft_pin_ms: int = 0,
        ttl_ms: int = 0,
        preferred: Sequence[str] = ...,
        user_metadata: Sequence[bytes] | None = None,
        parents: Sequence[int] | None = None,
        timeout_ms: int = 0,
    ) -> PendingCall[list[int]]:
        """Like every method below it raises BlockingIOError when waiting_max calls wait already."""
    def get_many(
        self, keys: Sequence[_Key], *, with_user_metadata: bool = False, timeout_ms: int = 0
    ) -> PendingCall[Any]: ...
    def view_many(
        self, keys: Sequence[_Key], *, verify: bool = False, timeout_ms: int = 0
    ) -> PendingCall[list[View | int]]: ...
    def get_into_many(
        self, keys: Sequence[_Key], targets: Sequence[_Memory | None] | PackedMemory, *, timeout_ms: int = 0
    ) -> PendingCall[tuple[list[int], list[int]]]: ...
    def get_ranges_many(
        self,
        keys: Sequence[_Key],
        offsets: Sequence[int],
        targets: Sequence[_Memory] | PackedMemory,
        *,
        timeout_ms: int = 0,
    ) -> PendingCall[tuple[list[int], list[int]]]: ...
    def open(
        self, keys: Sequence[_Key], *, user_metadata: bool = False, to_read: bool = True, timeout_ms: int = 0
    ) -> PendingCall[OpenValues]: ...
    def read_into(
        self, opened: OpenValues, targets: Sequence[_Memory | None] | PackedMemory, *, timeout_ms: int = 0
    ) -> PendingCall[tuple[list[int], list[int]]]: ...
    def exists_many(
        self, keys: Sequence[_Key], *, hold: bool = True, timeout_ms: int = 0
    ) -> PendingCall[list[int]]: ...
    def locate_many(
        self, keys: Sequence[_Key], *, timeout_ms: int = 0
    ) -> PendingCall[list[tuple[int, int, list[tuple[int, int]]]]]: ...
    def match_prefix(
        self, keys: Sequence[_Key], *, hold: bool = True, timeout_ms: int = 0
    ) -> PendingCall[tuple[int, int, int]]: ...
    def remove_many(
        self, keys: Sequence[_Key], *, force: bool = False, timeout_ms: int = 0
    ) -> PendingCall[list[int]]: ...
    def remove_copies(
        self, keys: Sequence[_Key], segments: Sequence[int], *, timeout_ms: int = 0
    ) -> PendingCall[list[int]]: ...
    def touch_many(self, keys: Sequence[_Key], *, timeout_ms: int = 0) -> PendingCall[list[int]]: ...
    def list_keys(
        self, cursor: int = 0, *, limit: int = 1000, key_prefix: bytes = b"", timeout_ms: int = 0
    ) -> PendingCall[tuple[int, int, list[tuple[bytes, int, int, int, int]]]]: ...
    def explain(self, key: bytes, *, timeout_ms: int = 0) -> PendingCall[tuple[int, int, int, int]]: ...
    def inspect(
        self, subject: int, name: bytes = b"", *, limit: int = 0, timeout_ms: int = 0
    ) -> PendingCall[tuple[int, bytes]]: ...
    def create_task(
        self, type: int, key: bytes, targets: Sequence[str], *, source: str = "", timeout_ms: int = 0
    ) -> PendingCall[tuple[int, int]]: ...
    def query_task(self, task: int, *, timeout_ms: int = 0) -> PendingCall[tuple[int, ToldTask | None]]: ...
    def segments(self, *, timeout_ms: int = 0) -> PendingCall[tuple[int, list[ClientSegment]]]: ...
    def stats(self, *, timeout_ms: int = 0) -> PendingCall[tuple[int, dict[str, int]]]: ...
    def fileno(self) -> int:
        """Readable while calls are over that nobody took."""
    def take_done(self) -> list[int]:
        """The ids of the calls that are over, each once."""
    def cancel(self, call_id: int) -> bool:
        """True: it does not run and never will. False: interrupted; take_done() names it when it returned."""
    def wait(self, call_id: int) -> None:
        """Block until it does not run."""
    def expire(self) -> None:
        """End those that still wait for a thread at their deadline."""
    def close(self) -> None:
        """Idempotent, from any thread; ends all calls, and returns when they have."""
    @property
    def is_closed(self) -> bool: ...
    @property
    def is_connected(self) -> bool: ...
    @property
    def is_over_grpc(self) -> bool: ...
    @property
    def local_nodes(self) -> list[tuple[str, bool, int, str]]:
        """Of each node that was dialled: its data endpoint, whether its memory is mapped, bytes, why not."""
    @property
    def location_counts(self) -> dict[str, int]: ...

class ClientSegment(TypedDict):
    segment: int
    owner: int
    tier: int
    capacity_bytes: int
    charged_bytes: int
    retiring_bytes: int
    replica_count: int
    name: str
    host_id: str
    endpoints: list[str]

# ---- the native master ----

class Master:
    """A whole master without Python: state machine, lane, clock. start() it, stop() it once.

    Every setting is an integer unless it says otherwise; one that is unknown raises TypeError, a bad value
    ValueError naming both. `uuid` and `seed` are drawn at random when they are left out. Whoever drops the
    last reference stops it; the interpreter's end stops all.
    """

    LATENCY_EDGES_US: tuple[int, ...]
    """Upper edges of the buckets in request_histograms(); one more bucket holds what took longer."""

    def __init__(
        self,
        *,
        client_ttl_ms: int = 10_000,
        session_grace_ms: int = 1_000,
        heartbeat_interval_ms: int = 1_000,
        lease_ttl_ms: int = 10_000,
        exists_hold_ms: int = 2_000,
        put_start_discard_ms: int = 30_000,
        put_start_release_ms: int = 600_000,
        soft_pin_ms: int = 1_800_000,
        soft_pin_max_ms: int = 86_400_000,
        evict_soft_pinned: bool = True,
        eviction_high_watermark_ratio: float = 0.90,
        eviction_ratio: float = 0.05,
        allocation: str = "random",
        eviction_policy: str = "adaptive",
        repair_low_watermark_ratio: float = 0.80,
        repair_bytes_per_s: int = 256 << 20,
        copies_a_node_max: int = 8,
        copy_timeout_ms: int = 10_000,
        tasks_pending_max: int = 10_000,
        tasks_finished_max: int = 10_000,
        task_pending_timeout_ms: int = 300_000,
        task_processing_timeout_ms: int = 300_000,
        task_attempts_max: int = 10,
        max_keys: int = 10_000_000,
        max_metadata_bytes: int = 4 << 30,
        journal_events: int = 65_536,
        replay_window: int = 1_024,
        alloc_wait_ms: int = 100,
        remove_confirm_timeout_ms: int = 1_000,
        keeps_tombstones: bool = False,
        dial_back: bool = False,
        parked_calls_max: int = 4_096,
        lane_host: str = "0.0.0.0",
        lane_port: int = 0,
        lane_threads: int = 0,
        epoch: int = 1,
        uuid: bytes = ...,
        seed: int = ...,
        clock_step_max_ms: int = 500,
        software: str = ...,
    ) -> None: ...
    def start(self) -> None:
        """Listens on lane_host:lane_port (0: any free port). OSError names both when it cannot."""

    def stop(self) -> None:
        """Ends the lane, answers parked calls CLOSED and joins all threads; later requests get CLOSED."""

    def submit(self, verb: int, body: bytes, callback: Callable[[int, bytes], object]) -> None:
        """Hand in a packed request (proto/FRAMES.md); `callback(status, body)` is called exactly once.

        Most requests are answered at once: the callback then runs in this thread before submit returns. One
        that is parked is answered later, from a native thread: hand the answer on (call_soon_threadsafe),
        do not work there. What the callback raises goes to sys.unraisablehook.
        """

    def execute(self, verb: int, body: bytes, timeout_ms: int = 10_000) -> tuple[int, bytes]:
        """The same, waiting without the GIL. DEADLINE when it took longer; Ctrl-C ends the wait."""

    def stats(self) -> dict[str, int]:
        """Counters (`..._total`) and gauges of state machine, driver and lane, units in the names."""

    def request_histograms(self) -> dict[str, tuple[int, int, int, tuple[int, ...]]]:
        """By verb: requests answered, those refused whole, sum of µs, requests a bucket (not cumulative)."""

    def hear_of_reign(self, epoch: int, master: bytes) -> int:
        """Somebody follows this master, of 16 bytes, now. Steps down for client_ttl if its reign is later.

        Returns the epoch of the master that reigns instead of this one, or 0. ValueError: no epoch, no uuid.
        """

    def serve_until(self, boottime_ms: int) -> None:
        """From this moment of CLOCK_BOOTTIME on requests are refused with STALE_EPOCH; 0: at once.

        Also Discover's answer then names a later reign. Said again it moves; never said it never comes.
        """

    def restore_tombstones(self, kept: bytes) -> None:
        """What the last master here left, before start(). Raises ValueError when it does not parse."""

    def tombstones_kept(self, generation: int) -> None:
        """With keeps_tombstones: those of this generation are on disk; removes that waited are answered."""

    @property
    def tombstones_generation(self) -> int:
        """Rises when `tombstones` changes; read it before them."""

    @property
    def tombstones(self) -> bytes:
        """Packed (parse_tombstones): what a master after this one must not take in."""

    def check_invariants(self) -> None:
        """Abort the process with what is wrong, if anything is. For tests."""

    @property
    def lane_port(self) -> int:
        """0 before start()."""
    @property
    def epoch(self) -> int: ...
    @property
    def uuid(self) -> bytes: ...

# node.cc

class Node:
    """Memory lent to the pool, served on a data port, mounted at a master for as long as there is one.

    segments: (name, bytes) each; an empty name becomes the advertised "host:port", with "#2" … later on.
    masters: gRPC addresses "host:port", asked in turn; or lane: the "host:port" of a lane known already.
    data_port: 0 = any. advertised_host: empty = data_host, or the address that faces the master.
    host_id: where the process runs; empty = this boot of this machine.
    peer_bytes_max: bytes in flight to and from one client process; beyond it requests are answered BUSY.
    stall_timeout_ms: a transfer without progress for so long ends its connection.
    shared_memory: clients of this host, user and tenant may map it.
    files: (path, offset) of the first segments' memory, in tmpfs or hugetlbfs; the others have their own.
    Raises ValueError for options that cannot be meant.
    """

    def __init__(
        self,
        segments: list[tuple[str, int]],
        *,
        masters: list[str] = ...,
        lane: str = "",
        data_host: str = "0.0.0.0",
        data_port: int = 0,
        advertised_host: str = "",
        host_id: str = "",
        name: str = "",
        data_threads: int = 2,
        memory_fault_threads: int = 4,
        hugepages: bool = False,
        connections_max: int = 16384,
        peer_bytes_max: int = 268435456,
        connect_timeout_ms: int = 1000,
        request_timeout_ms: int = 3000,
        stall_timeout_ms: int = 10000,
        shared_memory: bool = True,
        files: list[tuple[str, int]] = ...,
    ) -> None: ...
    def start(self) -> None:
        """Reserve the memory, listen, and begin to look for the master without waiting for it.

        Raises RuntimeError naming sizes (memory), OSError naming host and port (a port that is taken).
        """

    def stop(self, handover_ms: int = 0) -> None:
        """Have the master move what it can elsewhere for at most handover_ms, unmount, end all connections.

        The master is waited for at most a second, reads under way at most two. Idempotent.
        """

    def wait_mounted(self, timeout_ms: int) -> bool:
        """Whether the segments are mounted, at the latest after timeout_ms."""

    def status(self) -> dict[str, Any]:
        """connected, mounted, unreachable (why the master last refused a mount), fenced, epoch, master,
        session, incarnation, segments, segment_names, data_endpoint, last_error, memory_error,
        last_command_id, and stats: counters and gauges by name."""

    def check_invariants(self) -> None:
        """Walk the directory; raises RuntimeError naming the rule that is broken."""

    @property
    def data_port(self) -> int:
        """0 before start."""

# transfer_engine.cc

class TransferEngine:
    """Registered memory that other engines read and write, and reads and writes of theirs.

    Listens from the start on host:port (0 = any). A peer is (host, port). Methods that answer a status answer
    one of mooncake_store.status, 0 for success; `why` tells the reason of this thread's last one. Addresses
    and lengths are whole numbers below 2^64; whatever has `__index__` counts as one.
    transfer_timeout_ms: of a transfer, and a second more for each 64 MiB of it. stall_timeout_ms: one of
    which nothing moved for so long ends. Raises OSError naming host and port.
    """

    def __init__(
        self,
        host: str,
        port: int = 0,
        *,
        threads: int = 2,
        batch_threads: int = 4,
        connect_timeout_ms: int = 1000,
        transfer_timeout_ms: int = 30000,
        stall_timeout_ms: int = 10000,
    ) -> None: ...
    @property
    def port(self) -> int: ...
    @property
    def is_stopped(self) -> bool:
        """Also in a child of the process that made it."""

    def stop(self) -> None:
        """Serve nobody any more, end what runs. Idempotent."""

    def register(self, address: int, length: int) -> int:
        """Status: INVALID_PARAMS: not memory of this process; SEGMENT_ALREADY_EXISTS: an overlap; BUSY."""

    def unregister(self, address: int) -> int:
        """Status, when nobody touches it any more; transfers that go on after a second are cut off.

        SEGMENT_NOT_FOUND: no range begins there. BUSY: one did not end; the memory must stay.
        """

    def lend(self, length: int) -> int:
        """The address of zeroed, registered memory, or 0."""

    def give_back(self, address: int) -> int:
        """Status, as unregister."""

    def transfer(
        self,
        peer: tuple[str, int],
        write: bool,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        notice: tuple[str, str] | None = None,
    ) -> int:
        """Status, when no byte of it moves any more. GONE: another process than before is at that port.

        Raises ValueError for lists of different lengths, and what a signal's handler raises.
        """

    def submit(
        self,
        peer: tuple[str, int],
        write: bool,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
    ) -> int:
        """The number of a batch that the engine's threads carry out, or 0. Its memory must stay till then."""

    def outcome(self, batch: int) -> int:
        """1 done, 0 pending, -1 failed or not known (any more), -2 not within its time."""

    def wait(self, batches: list[int]) -> None:
        """Until none of them is pending."""

    def first_buffer(self, peer: tuple[str, int]) -> tuple[int, int]:
        """Status and the address of what the peer registered first, 0 where there is nothing."""

    def ping(self, peer: tuple[str, int]) -> int: ...
    def take_notices(self) -> list[tuple[bytes, bytes]]:
        """Names and messages that peers sent, in order of arrival."""

    def stats(self) -> dict[str, int]: ...
    @staticmethod
    def why() -> str: ...

def copy_to_address(address: int, data: bytes | bytearray, length: int) -> None:
    """Raises ValueError where length is more than data has or the target is not memory of this process."""

def copy_from_address(address: int, length: int) -> bytes:
    """Raises ValueError where that is not memory of this process."""
