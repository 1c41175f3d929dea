"""`Store`: what a program that uses the pool calls, and waits.

Every call blocks at most `rpc_timeout_ms`; Ctrl-C ends it earlier. Any number of threads may call at once;
the GIL is released while a call waits or copies. After a fork the child's handle raises `ClosedError`. The
verbs are written in `verbs.py`; bytes are moved and retries decided by `native/client`.

A miss is None (or False), never an error. A batch answers one entry a key, in order: an entry that could not
be carried out is a `StoreError` *instance* at its index, and the call raises only if nobody answered at all.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from mooncake_client import verbs
from mooncake_client.answers import AnswerT, Key, Steps
from mooncake_client.client_config import ClientConfig, client_config, embedded_config
from mooncake_client.connection import connect
from mooncake_client.handle import StoreHandle, as_method
from mooncake_client.records import ObjectInfo
from mooncake_store.units import parse_size

if TYPE_CHECKING:
    from mooncake_client.embedded import EmbeddedCluster

P = ParamSpec("P")


def blocking(
    verb: Callable[Concatenate[StoreHandle, P], Steps[AnswerT]],
) -> Callable[Concatenate[StoreHandle, P], AnswerT]:
    """The verb as a method that waits for its answer."""

    def call(store: StoreHandle, /, *args: P.args, **kwargs: P.kwargs) -> AnswerT:
        return _run(verb(store, *args, **kwargs))

    return as_method(call, verb, "Store")


def _run(steps: Steps[AnswerT]) -> AnswerT:
    try:
        answer = steps.send(None)
        while True:
            answer = steps.send(answer)
    except StopIteration as end:
        value: AnswerT = end.value
        return value


class Store(StoreHandle):
    """A client of the pool; see the module's text for what holds of all calls.

    master_server_addr: `host:port` of the master, or several of which one is running.
    tenant: the namespace of all keys. name: of this client, for people.
    control: the door to the master: `lane`; `grpc`, which never dials the lane; `auto`, the lane, and gRPC
        with a warning where only the lane's port cannot be reached. None: the environment's MOONCAKE_CONTROL,
        else `auto`.
    shared_memory: `auto` reads from nodes of this host, user and tenant by a mapping of their memory, where
        they lend it (`local_nodes` tells); `off` over TCP alone. None: the environment's
        MOONCAKE_SHARED_MEMORY, else `auto`.
    checksum: `all` verifies every value read, `disk` only those that lay on a disk.
    connect_timeout_ms: for finding and reaching the master; Unavailable names the address when it passes.
    rpc_timeout_ms: deadline of a call; None: the environment's MC_RPC_TIMEOUT_MS, else 10,000.
    location_cache: `on` reads a value where it was found within the last second without asking the master
        again, `off` asks each time. None: the environment's MOONCAKE_LOCATION_CACHE, else `on`.
    location_cache_max: keys that are remembered so; None: 16,384.
    lane: instead of master_server_addr, the address of a master's lane.
    """

    def __init__(
        self,
        master_server_addr: str | Sequence[str] = "127.0.0.1:50001",
        *,
        tenant: str = "default",
        name: str = "",
        host_id: str = "",
        control: str | None = None,
        shared_memory: str | None = None,
        checksum: str = "all",
        connect_timeout_ms: int | None = None,
        rpc_timeout_ms: int | None = None,
        connections_a_peer_max: int | None = None,
        bytes_in_flight_a_peer_max: int | None = None,
        location_cache: str | None = None,
        location_cache_max: int | None = None,
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
                    "shared_memory": shared_memory,
                    "checksum": checksum,
                    "connect_timeout_ms": connect_timeout_ms,
                    "rpc_timeout_ms": rpc_timeout_ms,
                    "connections_a_peer_max": connections_a_peer_max,
                    "bytes_in_flight_a_peer_max": bytes_in_flight_a_peer_max,
                    "location_cache": location_cache,
                    "location_cache_max": location_cache_max,
                    "lane": lane,
                },
            ),
            None,
        )

    @classmethod
    def from_config(cls, config: ClientConfig) -> Store:
        """A store with the settings of another, `Store.config`, which may come from another process."""
        store = cls.__new__(cls)
        store._start(config, None)
        return store

    @classmethod
    def embedded(
        cls,
        capacity: str | int = "256mb",
        *,
        segments: int = 1,
        tenant: str = "default",
        shared_memory: str | None = None,
        checksum: str = "all",
        rpc_timeout_ms: int | None = None,
        master_settings: Mapping[str, Any] | None = None,
    ) -> Store:
        """A store with a master and a node of its own inside this process, ended by `close`.

        capacity: memory lent in all, in equal `segments`. master_settings: of `_core.Master`, such as
        `eviction_high_watermark_ratio`. Other processes on this machine can join by `store.lane`.
        """
        from mooncake_client.embedded import EmbeddedCluster

        settings = {
            "tenant": tenant,
            "shared_memory": shared_memory,
            "checksum": checksum,
            "rpc_timeout_ms": rpc_timeout_ms,
        }
        config = embedded_config(settings)  # refuse what is wrong before memory is taken
        cluster = EmbeddedCluster(parse_size(capacity, field="capacity"), segments, master_settings or {})
        store = cls.__new__(cls)
        try:
            store._start(dataclasses.replace(config, lane=cluster.lane), cluster)
        except BaseException:
            cluster.stop()
            raise
        return store

    def _start(self, config: ClientConfig, cluster: EmbeddedCluster | None) -> None:
        handles = connect(config)
        handles.cluster = cluster
        self._hold(config, handles)
        # Also at the interpreter's exit, while native threads can still end in order.
        self._finalizer = weakref.finalize(self, self._handles.end)

    # ---- lifetime

    def close(self) -> None:
        """End session and connections; blocked calls of other threads raise ClosedError. Idempotent."""
        self._finalizer()

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

    # ---- verbs

    put = blocking(verbs.put)
    put_many = blocking(verbs.put_many)
    get = blocking(verbs.get)
    get_many = blocking(verbs.get_many)
    get_view = blocking(verbs.get_view)
    get_view_many = blocking(verbs.get_view_many)
    get_tensor = blocking(verbs.get_tensor)
    get_into = blocking(verbs.get_into)
    get_into_many = blocking(verbs.get_into_many)
    exists = blocking(verbs.exists)
    exists_many = blocking(verbs.exists_many)
    match_prefix = blocking(verbs.match_prefix)
    touch = blocking(verbs.touch)
    stat = blocking(verbs.stat)
    why = blocking(verbs.why)
    inspect = blocking(verbs.inspect)
    inspect_node = blocking(verbs.inspect_node)
    events = blocking(verbs.events)
    remove = blocking(verbs.remove)
    remove_many = blocking(verbs.remove_many)
    remove_all = blocking(verbs.remove_all)
    segments = blocking(verbs.segments)
    stats = blocking(verbs.stats)

    def objects(self, prefix: Key = b"", *, timeout_ms: int | None = None) -> Iterator[ObjectInfo]:
        """All objects whose keys begin with `prefix`, in no particular order, a page at a time.

        What is put or removed meanwhile may or may not be among them; everything else is, once.
        """
        page = verbs.pages(self, prefix, timeout_ms)

        def walk() -> Iterator[ObjectInfo]:
            found, cursor = _run(page(0))
            yield from found
            while cursor != 0:
                found, cursor = _run(page(cursor))
                yield from found

        return walk()

    def keys(self, prefix: Key = b"", *, timeout_ms: int | None = None) -> Iterator[bytes]:
        """The bytes of all keys that begin with `prefix`; see `objects`."""
        return (found.key for found in self.objects(prefix, timeout_ms=timeout_ms))
