"""`Store`: what a program that uses the pool calls, over the native client.

Owns the forms of arguments and answers: keys, values with dtype and shape, misses, errors that hold the
values. Bytes are moved and retries decided by `native/client`; what a caller may put is in `values.py`.

Every call blocks at most `rpc_timeout_ms`; Ctrl-C ends it earlier. Any number of threads may call at once;
the GIL is released while a call waits or copies. After a fork the child's handle raises `ClosedError`.

A miss is None (or False), never an error. A batch answers one entry a key, in order: an entry that could not
be carried out is a `StoreError` *instance* at its index, and the call raises only if nobody answered at all.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from mooncake_client.answers import MISSES, Call, Key, positional, shown
from mooncake_client.arguments import (
    check_count,
    encode_all,
    first_refused,
    prefix_bytes,
    put_options,
    sequence,
    whole,
)
from mooncake_client.client_config import RPC_TIMEOUT_MS_MAX, ClientConfig, client_config
from mooncake_client.connection import Handles, connect
from mooncake_client.records import ObjectInfo, Registration, SegmentUse, object_info, segment_use
from mooncake_client.values import Encoded, decode, size_bytes, writable_memory
from mooncake_store import _core
from mooncake_store.errors import (
    BufferTooSmall,
    ClosedError,
    InvalidArgument,
    ObjectNotFound,
    StoreError,
)
from mooncake_store.keys import key_bytes
from mooncake_store.status import Status
from mooncake_store.units import parse_size

if TYPE_CHECKING:
    from mooncake_client.embedded import EmbeddedCluster

PutAnswer = Literal["stored", "exists"]

_LIST_PAGE: Final = 1_000
_REOPENS_MAX: Final = 4
"""How often a read makes room anew for a value that was replaced by a larger one meanwhile."""


class Store:
    """A client of the pool; see the module's text for what holds of all calls.

    master_server_addr: `host:port` of the master, or several of which one is running.
    tenant: the namespace of all keys. name: of this client, for people.
    control: the door to the master; `auto` finds its lane. checksum: `all` verifies every value read,
        `disk` only those that lay on a disk.
    connect_timeout_ms: for finding and reaching the master; Unavailable names the address when it passes.
    rpc_timeout_ms: deadline of a call; None: the environment's MC_RPC_TIMEOUT_MS, else 10,000.
    lane: instead of master_server_addr, the address of a master's lane.
    """

    def __init__(
        self,
        master_server_addr: str | Sequence[str] = "127.0.0.1:50001",
        *,
        tenant: str = "default",
        name: str = "",
        host_id: str = "",
        control: str = "auto",
        checksum: str = "all",
        connect_timeout_ms: int | None = None,
        rpc_timeout_ms: int | None = None,
        connections_a_peer_max: int | None = None,
        bytes_in_flight_a_peer_max: int | None = None,
        lane: str = "",
    ) -> None:
        self._start(
            client_config(
                master_server_addr,
                {
                    "tenant": tenant,
                    "name": name,
                    "host_id": host_id,
                    "control": control,
                    "checksum": checksum,
                    "connect_timeout_ms": connect_timeout_ms,
                    "rpc_timeout_ms": rpc_timeout_ms,
                    "connections_a_peer_max": connections_a_peer_max,
                    "bytes_in_flight_a_peer_max": bytes_in_flight_a_peer_max,
                    "lane": lane,
                },
            ),
            None,
        )

    @classmethod
    def embedded(
        cls,
        capacity: str | int = "256mb",
        *,
        segments: int = 1,
        tenant: str = "default",
        checksum: str = "all",
        rpc_timeout_ms: int | None = None,
        master_settings: Mapping[str, Any] | None = None,
    ) -> Store:
        """A store with a master and a node of its own inside this process, ended by `close`.

        capacity: memory lent in all, in equal `segments`. master_settings: of `_core.Master`, such as
        `eviction_high_watermark_ratio`. Other processes on this machine can join by `store.lane`.
        """
        from mooncake_client.embedded import EmbeddedCluster

        settings = {"tenant": tenant, "checksum": checksum, "rpc_timeout_ms": rpc_timeout_ms}
        client_config((), {**settings, "lane": "127.0.0.1:1"})  # refuse what is wrong before memory is taken
        cluster = EmbeddedCluster(parse_size(capacity, field="capacity"), segments, master_settings or {})
        store = cls.__new__(cls)
        try:
            store._start(client_config((), {**settings, "lane": cluster.lane}), cluster)
        except BaseException:
            cluster.stop()
            raise
        return store

    def _start(self, config: ClientConfig, cluster: EmbeddedCluster | None) -> None:
        client = connect(config)
        self.config = config
        self._registrations: set[Registration] = set()
        self._handles = Handles(client, cluster)
        # Also at the interpreter's exit, while native threads can still end in order.
        self._finalizer = weakref.finalize(self, self._handles.end)

    # ---- lifetime

    def close(self) -> None:
        """End session and connections; blocked calls of other threads raise ClosedError. Idempotent."""
        self._finalizer()

    @property
    def closed(self) -> bool:
        """Whether calls raise ClosedError: closed, or this process is a fork's child."""
        client = self._handles.client
        return client is None or client.is_closed

    @property
    def is_connected(self) -> bool:
        """Whether the master answered the last heartbeat."""
        client = self._handles.client
        return client is not None and client.is_connected

    @property
    def lane(self) -> str:
        """Of an embedded store: the address by which others join it, `Store(lane=...)`; else empty."""
        cluster = self._handles.cluster
        return cluster.lane if cluster is not None else ""

    def __enter__(self) -> Store:
        self._client()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "connected" if self.is_connected else "not connected"
        return f"<Store {self.config.where()} tenant={self.config.tenant!r} {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Store cannot be pickled or copied: it holds connections of this process; "
            "make one in each process, from the same master_server_addr"
        )

    # ---- put

    def put(
        self,
        key: Key,
        value: object,
        *,
        replicas: int = 1,
        ttl_ms: int | None = None,
        soft_pin: bool | int = False,
        hard_pin: bool = False,
        replace: bool = False,
        parent: Key | None = None,
        prefer_local: bool = False,
        preferred_segments: Sequence[str] = (),
        timeout_ms: int | None = None,
    ) -> PutAnswer:
        """Store a value: "stored", or "exists" when the key has one already (it stays as it is).

        value: anything with the buffer protocol, a numpy array or a torch CPU tensor of any shape, contiguous
            or not; read until this returns.
        replicas: copies wanted, 1-8; fewer are made when fewer fit. ttl_ms: the value ends by itself.
        soft_pin: evicted last, for so many ms (True: the master's default). hard_pin: never evicted.
        replace: put a new value even when there is one; readers see the old or the new, whole.
        parent: key of the block before this one. prefer_local, preferred_segments: where to put it if there
            is room.
        Raises NoSpace, ValueTooLarge, Unavailable (the value may appear later, whole, or never), ...
        """
        parents = None if parent is None else [parent]
        answer = self.put_many(
            [key],
            [value],
            replicas=replicas,
            ttl_ms=ttl_ms,
            soft_pin=soft_pin,
            hard_pin=hard_pin,
            replace=replace,
            parents=parents,
            prefer_local=prefer_local,
            preferred_segments=preferred_segments,
            timeout_ms=timeout_ms,
        )[0]
        if isinstance(answer, StoreError):
            raise answer
        return answer

    def put_many(
        self,
        keys: Sequence[Key],
        values: Sequence[object],
        *,
        replicas: int = 1,
        ttl_ms: int | None = None,
        soft_pin: bool | int = False,
        hard_pin: bool = False,
        replace: bool = False,
        parents: Sequence[Key | None] | None = None,
        prefer_local: bool = False,
        preferred_segments: Sequence[str] = (),
        timeout_ms: int | None = None,
    ) -> list[PutAnswer | StoreError]:
        """Store many values, as `put` does: "stored", "exists" or a StoreError instance a key, in order."""
        keys, values = sequence(keys, "keys"), sequence(values, "values")
        check_count(keys, values, "values")
        client, timeout = self._client(), self._timeout(timeout_ms)
        options = put_options(replicas, ttl_ms, soft_pin, hard_pin, replace, prefer_local, preferred_segments)
        digests = self._parent_digests(keys, parents)
        if not keys:
            return []
        encoded, refused = encode_all(values)
        column = encoded if digests is None else list(zip(encoded, digests, strict=True))

        def ask(keys: Sequence[Key], column: Sequence[Any]) -> list[PutAnswer | StoreError]:
            values: Sequence[Encoded] = column if digests is None else [value for value, _ in column]
            statuses = client.put_many(
                keys,
                [value.buffer for value in values],
                user_metadata=[value.metadata for value in values]
                if any(v.metadata for v in values)
                else None,
                parents=None if digests is None else [digest for _, digest in column],
                timeout_ms=timeout,
                **options,
            )
            call: Call | None = None
            answers: list[PutAnswer | StoreError] = []
            for index, status in enumerate(statuses):
                if status == 0:
                    answers.append("stored")
                elif status == Status.OBJECT_ALREADY_EXISTS:
                    answers.append("exists")
                else:
                    call = call or self._call("put", timeout)
                    answers.append(call.error(status, keys[index], size_bytes(values[index])))
            return answers

        return positional(keys, column, refused, ask)

    def _parent_digests(self, keys: Sequence[Key], parents: Sequence[Key | None] | None) -> list[int] | None:
        if parents is None:
            return None
        parents = sequence(parents, "parents")
        check_count(keys, parents, "parents")
        return [
            0 if parent is None else _core.key_digest(self.config.tenant, key_bytes(parent))
            for parent in parents
        ]

    # ---- get

    def get(self, key: Key, *, timeout_ms: int | None = None) -> bytes | None:
        """The whole value as bytes; None is a miss, b"" an empty value."""
        timeout = self._timeout(timeout_ms)
        answer = self._client().get_many([key_bytes(key)], timeout_ms=timeout)[0]
        if isinstance(answer, bytes):
            return answer
        self._is_there("get", key, answer, timeout)
        return None

    def get_many(
        self, keys: Sequence[Key], *, timeout_ms: int | None = None
    ) -> list[bytes | StoreError | None]:
        """Many values, one request a node: bytes, None (a miss) or a StoreError instance a key, in order."""
        keys = sequence(keys, "keys")
        client, timeout = self._client(), self._timeout(timeout_ms)
        if not keys:
            return []

        def ask(keys: Sequence[Key], _: Sequence[Any]) -> list[bytes | StoreError | None]:
            call: Call | None = None
            answers: list[bytes | StoreError | None] = []
            for index, answer in enumerate(client.get_many(keys, timeout_ms=timeout)):
                if isinstance(answer, bytes):
                    answers.append(answer)
                elif answer in MISSES:
                    answers.append(None)
                else:
                    call = call or self._call("get", timeout)
                    answers.append(call.error(answer, keys[index]))
            return answers

        return positional(keys, (), {}, ask)

    def get_tensor(self, key: Key, *, timeout_ms: int | None = None) -> Any:
        """What was put, with its dtype and shape: a numpy array or a torch tensor of its own; None is a miss.

        Plain bytes come as a 1-D uint8 array. A torch tensor comes as a numpy array where torch is missing
        and numpy knows the dtype.
        """
        import numpy

        client, timeout = self._client(), self._timeout(timeout_ms)
        packed = [key_bytes(key)]
        for _ in range(_REOPENS_MAX):
            opened = client.open(packed, user_metadata=True, timeout_ms=timeout)
            status = opened.statuses[0]
            if not self._is_there("get_tensor", key, status, timeout):
                return None
            data = numpy.empty(opened.sizes[0], dtype=numpy.uint8)
            (status,), (length,) = opened.read_into([data.data], timeout_ms=timeout)
            if status == 0:
                return decode(data if length == data.size else data[:length], opened.user_metadata[0])
            if status != Status.BUFFER_OVERFLOW and not self._is_there("get_tensor", key, status, timeout):
                return None
        raise self._call("get_tensor", timeout).error(Status.BUSY, key)

    def get_into(self, key: Key, target: object, *, timeout_ms: int | None = None) -> int | None:
        """Read the value straight into `target`; its size in bytes, or None for a miss.

        target: writable contiguous memory, at least as large as the value; bytes beyond it are not touched.
            On any error its content is undefined.
        Raises BufferTooSmall, InvalidArgument (not writable, not contiguous), ...
        """
        answer = self.get_into_many([key], [target], timeout_ms=timeout_ms)[0]
        if isinstance(answer, StoreError):
            raise answer
        return answer

    def get_into_many(
        self, keys: Sequence[Key], targets: Sequence[object], *, timeout_ms: int | None = None
    ) -> list[int | StoreError | None]:
        """Many values into memory of the caller: a size, None or a StoreError instance a key, in order."""
        keys, targets = sequence(keys, "keys"), sequence(targets, "targets")
        check_count(keys, targets, "targets")
        client, timeout = self._client(), self._timeout(timeout_ms)
        if not keys:
            return []
        memory: list[Any] = []
        refused: dict[int, StoreError] = {}
        for index, target in enumerate(targets):
            try:
                memory.append(writable_memory(target))
            except InvalidArgument as error:
                memory.append(None)
                refused[index] = error

        def ask(keys: Sequence[Key], memory: Sequence[Any]) -> list[int | StoreError | None]:
            statuses, lengths = client.get_into_many(
                keys, [piece.buffer for piece in memory], timeout_ms=timeout
            )
            if not any(statuses):
                return list(lengths)
            call = self._call("get", timeout)
            answers: list[int | StoreError | None] = []
            for index, status in enumerate(statuses):
                if status == 0:
                    answers.append(lengths[index])
                elif status in MISSES:
                    answers.append(None)
                elif status == Status.BUFFER_OVERFLOW:
                    answers.append(
                        BufferTooSmall(
                            f"the value of key {shown(keys[index])} has {lengths[index]} bytes; "
                            f"the buffer has {memory[index].size_bytes}"
                        )
                    )
                else:
                    answers.append(call.error(status, keys[index]))
            return answers

        return positional(keys, memory, refused, ask)

    # ---- what exists

    def exists(self, key: Key, *, timeout_ms: int | None = None) -> bool:
        """Whether the key has a readable value; it is then held for a moment."""
        timeout = self._timeout(timeout_ms)
        status = self._client().exists_many([key_bytes(key)], timeout_ms=timeout)[0]
        return self._is_there("exists", key, status, timeout)

    def exists_many(self, keys: Sequence[Key], *, timeout_ms: int | None = None) -> list[bool]:
        """Which keys have a readable value, in order. A key about which nobody answered counts as missing.

        Raises InvalidArgument for a key that cannot be one, and when nobody answered about any of them.
        """
        keys = sequence(keys, "keys")
        client, timeout = self._client(), self._timeout(timeout_ms)
        if not keys:
            return []
        try:
            statuses = client.exists_many(keys, timeout_ms=timeout)
        except (TypeError, ValueError) as error:
            raise first_refused(keys, error) from error
        if Status.INVALID_KEY in statuses:
            raise first_refused(keys, None)
        if not any(status == 0 or status in MISSES for status in statuses):
            raise self._call(f"exists of {len(keys)} keys", timeout).error(statuses[0])
        return [status == 0 for status in statuses]

    def match_prefix(self, keys: Sequence[Key], *, timeout_ms: int | None = None) -> int:
        """How many of the keys are there before the first that is not."""
        keys = sequence(keys, "keys")
        client, timeout = self._client(), self._timeout(timeout_ms)
        if not keys:
            return 0
        try:
            status, length, miss = client.match_prefix(keys, timeout_ms=timeout)
        except (TypeError, ValueError) as error:
            raise first_refused(keys, error) from error
        if Status.INVALID_KEY in (status, miss):
            raise first_refused(keys, None)
        # A long list is asked in parts: what was found before the master went away is true all the same.
        if status != 0 and length == 0:
            raise self._call(f"match_prefix of {len(keys)} keys", timeout).error(status)
        return length

    def touch(self, key: Key, *, timeout_ms: int | None = None) -> bool:
        """Make the value the most recently used; whether there is one."""
        timeout = self._timeout(timeout_ms)
        status = self._client().touch_many([key_bytes(key)], timeout_ms=timeout)[0]
        return self._is_there("touch", key, status, timeout)

    def stat(self, key: Key, *, timeout_ms: int | None = None) -> ObjectInfo:
        """Size and put_id of the value. Raises ObjectNotFound."""
        timeout = self._timeout(timeout_ms)
        packed = key_bytes(key)
        opened = self._client().open([packed], timeout_ms=timeout)
        status = opened.statuses[0]
        if not self._is_there("stat", key, status, timeout):
            raise ObjectNotFound(f"stat of key {shown(key)}: there is no such object", code=status)
        return ObjectInfo(packed, opened.sizes[0], opened.put_ids[0])

    # ---- remove

    def remove(
        self, key: Key, *, missing_ok: bool = True, force: bool = True, timeout_ms: int | None = None
    ) -> bool:
        """End the value: nobody starts a read of it any more. Whether there was one.

        force: also while a reader holds a lease (what is being read ends whole); else Busy is raised.
        Raises ObjectNotFound when it was not there and missing_ok is false.
        """
        timeout = self._timeout(timeout_ms)
        status = self._client().remove_many([key_bytes(key)], force=bool(force), timeout_ms=timeout)[0]
        was_there = self._is_there("remove", key, status, timeout)
        if not was_there and not missing_ok:
            raise ObjectNotFound(f"remove of key {shown(key)}: there is no such object", code=status)
        return was_there

    def remove_many(
        self, keys: Sequence[Key], *, force: bool = True, timeout_ms: int | None = None
    ) -> list[bool | StoreError]:
        """End many values: whether there was one, or a StoreError instance, a key, in order."""
        keys = sequence(keys, "keys")
        client, timeout = self._client(), self._timeout(timeout_ms)
        if not keys:
            return []

        def ask(keys: Sequence[Key], _: Sequence[Any]) -> list[bool | StoreError]:
            statuses = client.remove_many(keys, force=bool(force), timeout_ms=timeout)
            call = self._call("remove", timeout)
            return [
                status == 0 if status == 0 or status in MISSES else call.error(status, keys[index])
                for index, status in enumerate(statuses)
            ]

        return positional(keys, (), {}, ask)

    # ---- looking at the pool

    def objects(self, prefix: Key = b"", *, timeout_ms: int | None = None) -> Iterator[ObjectInfo]:
        """All objects whose keys begin with `prefix`, in no particular order, a page at a time.

        What is put or removed meanwhile may or may not be among them; everything else is, once.
        """
        packed = prefix_bytes(prefix)
        client, timeout = self._client(), self._timeout(timeout_ms)
        return self._pages(client, packed, timeout)

    def _pages(self, client: _core.Client, prefix: bytes, timeout: int) -> Iterator[ObjectInfo]:
        cursor = 0
        while True:
            status, cursor, found = client.list_keys(
                cursor, limit=_LIST_PAGE, key_prefix=prefix, timeout_ms=timeout
            )
            if status != 0:
                raise self._call("listing", timeout).error(status)
            for key, size, put_id, replica_count, flags in found:
                yield object_info(key, size, put_id, replica_count, flags)
            if cursor == 0:
                return

    def keys(self, prefix: Key = b"", *, timeout_ms: int | None = None) -> Iterator[bytes]:
        """The bytes of all keys that begin with `prefix`; see `objects`."""
        return (found.key for found in self.objects(prefix, timeout_ms=timeout_ms))

    def segments(self, *, timeout_ms: int | None = None) -> list[SegmentUse]:
        """The memory of the pool, and how full it is."""
        timeout = self._timeout(timeout_ms)
        status, found = self._client().segments(timeout_ms=timeout)
        if status != 0:
            raise self._call("segments", timeout).error(status)
        return [segment_use(segment) for segment in found]

    def stats(self, *, timeout_ms: int | None = None) -> dict[str, int]:
        """The master's counters (`..._total`) and gauges by name; units are in the names."""
        timeout = self._timeout(timeout_ms)
        status, values = self._client().stats(timeout_ms=timeout)
        if status != 0:
            raise self._call("stats", timeout).error(status)
        return values

    # ---- buffers

    def register(self, buffer: object) -> Registration:
        """Announce memory that will often be read from or into; `unregister` or a context's end undoes it.

        Over TCP it costs and saves nothing; transports that must pin memory do it here. The memory must stay
        where it is while registered. Raises InvalidArgument for what get_into would refuse, or is empty.
        """
        self._client()
        memory = writable_memory(buffer)
        if memory.size_bytes == 0:
            raise InvalidArgument("the buffer to register is empty")
        registration = Registration(buffer, memory.size_bytes, memory, self._registrations.discard)
        self._registrations.add(registration)
        return registration

    def unregister(self, registration: Registration) -> None:
        """Withdraw what `register` announced. Raises InvalidArgument when it is not registered here."""
        if registration not in self._registrations:
            raise InvalidArgument(f"{registration!r} is not registered with this store")
        self._registrations.remove(registration)

    # ---- inside

    def _client(self) -> _core.Client:
        client = self._handles.client
        if client is None:
            raise ClosedError("the store is closed")
        return client

    def _timeout(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self.config.rpc_timeout_ms
        return whole("timeout_ms", timeout_ms, 1, RPC_TIMEOUT_MS_MAX)

    def _call(self, verb: str, timeout_ms: int) -> Call:
        return Call(verb, timeout_ms, self.config.where(), _core.Client.why())

    def _is_there(self, verb: str, key: Key, status: int, timeout_ms: int) -> bool:
        """What a status says about one key; raises what is neither a hit nor a miss."""
        if status != 0 and status not in MISSES:
            raise self._call(verb, timeout_ms).error(status, key)
        return status == 0
