"""`AsyncStore`: the verbs of `Store` for asyncio.

The answers, the errors and the promises are those of `store.py`. No call blocks the event loop: the native
client carries it out on a thread of its own, which never takes the GIL, and tells its end through a file
descriptor that the loop watches. At most `calls_at_once_max` run, `calls_waiting_max` wait, in order.

Cancelling a task (asyncio.timeout does it too) interrupts its native call, and the await ends only when that
call has returned: then nobody writes into the target of a get any more, nor reads the value of a put. That
takes some 50 ms where a peer is silent, and no time for a call that has not begun. A put that was cancelled
may appear later, whole, or never.
"""

from __future__ import annotations

import asyncio
import dataclasses
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec

from mooncake_client import grpc_bridge, verbs
from mooncake_client.answers import AnswerT, Key, Steps
from mooncake_client.arguments import whole
from mooncake_client.client_config import ClientConfig, client_config, embedded_config
from mooncake_client.connection import Handles, NativeClient, bridge_for, native_settings, not_connected
from mooncake_client.handle import StoreHandle, as_method
from mooncake_client.records import ObjectInfo
from mooncake_client.store import Store
from mooncake_store import _core
from mooncake_store.errors import Busy, ClosedError, DeadlineExceeded, InvalidArgument
from mooncake_store.units import parse_size

if TYPE_CHECKING:
    from mooncake_client.embedded import EmbeddedCluster

P = ParamSpec("P")

CALLS_AT_ONCE: Final = 16
"""Native threads of one store. A call needs one while it runs, so this many calls to silent peers hold up the
others; a node that moves no bytes is given up after 1.5 s."""
CALLS_AT_ONCE_MAX: Final = 256
CALLS_WAITING: Final = 16_384
CALLS_WAITING_MAX: Final = 2**20
_EXPIRY_S: Final = 0.1
"""How often calls that wait for a thread are compared with their deadlines, while there are calls."""


def awaited(
    verb: Callable[Concatenate[StoreHandle, P], Steps[AnswerT]],
) -> Callable[Concatenate[AsyncStore, P], Coroutine[Any, Any, AnswerT]]:
    """The verb as a method to be awaited."""

    async def call(store: AsyncStore, /, *args: P.args, **kwargs: P.kwargs) -> AnswerT:
        calls = store._running_calls()
        return await calls.run(verb(store, *args, **kwargs))

    return as_method(call, verb, "AsyncStore")


class AsyncStore(StoreHandle):
    """A client of the pool for one event loop; see the module's text.

    `async with AsyncStore(...) as store`, or `store = await AsyncStore(...).connect()` and `aclose`. The
    arguments are those of `Store`, and:

    calls_at_once_max: native calls that run at the same time, each on a thread; more wait their turn.
    calls_waiting_max: calls that may wait; the next one raises Busy.
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
        calls_at_once_max: int = CALLS_AT_ONCE,
        calls_waiting_max: int = CALLS_WAITING,
    ) -> None:
        self._prepare(
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
            calls_at_once_max,
            calls_waiting_max,
            None,
        )

    @classmethod
    def from_config(cls, config: ClientConfig) -> AsyncStore:
        """A store with the settings of another, `AsyncStore.config`, which may come from another process."""
        store = cls.__new__(cls)
        store._prepare(config, CALLS_AT_ONCE, CALLS_WAITING, None)
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
        calls_at_once_max: int = CALLS_AT_ONCE,
        calls_waiting_max: int = CALLS_WAITING,
    ) -> AsyncStore:
        """A store with a master and a node of its own inside this process; see `Store.embedded`.

        They start with `connect` (or `async with`) and end with `aclose`.
        """
        config = embedded_config(
            {
                "tenant": tenant,
                "shared_memory": shared_memory,
                "checksum": checksum,
                "rpc_timeout_ms": rpc_timeout_ms,
            }
        )
        capacity_bytes = parse_size(capacity, field="capacity")

        def start() -> EmbeddedCluster:
            from mooncake_client.embedded import EmbeddedCluster

            return EmbeddedCluster(capacity_bytes, segments, master_settings or {})

        store = cls.__new__(cls)
        store._prepare(config, calls_at_once_max, calls_waiting_max, start)
        return store

    def _prepare(
        self,
        config: ClientConfig,
        calls_at_once_max: int,
        calls_waiting_max: int,
        start_cluster: Callable[[], EmbeddedCluster] | None,
    ) -> None:
        self._calls_at_once_max = whole("calls_at_once_max", calls_at_once_max, 1, CALLS_AT_ONCE_MAX)
        self._calls_waiting_max = whole("calls_waiting_max", calls_waiting_max, 1, CALLS_WAITING_MAX)
        self._start_cluster = start_cluster
        self._connecting = False
        self._calls: _Calls | None = None
        self._finalizer: weakref.finalize[Any, AsyncStore] | None = None
        self._closing: asyncio.Future[Any] | None = None
        self._hold(config, Handles(None))

    # ---- lifetime

    async def connect(self) -> AsyncStore:
        """Open a session, on the event loop that runs now; the store itself, for `store = await ...`.

        Raises Unavailable, naming address and setting, in `connect_timeout_ms`, and ClosedError when it was
        connected before.
        """
        if self._connecting:
            raise ClosedError("the store was connected before; make another one")
        self._connecting = True
        cluster = await self._started_cluster()
        config = self.config
        if cluster is not None:
            self.config = config = dataclasses.replace(config, lane=cluster.lane)
        try:
            bridge = bridge_for(config)
            if config.control == "grpc":
                await asyncio.to_thread(grpc_bridge.prepare)
            native = _core.AsyncClient(
                **native_settings(config, bridge),
                threads_max=self._calls_at_once_max,
                waiting_max=self._calls_waiting_max,
            )
        except BaseException:
            if cluster is not None:
                cluster.stop()
            raise
        calls = _Calls(native, asyncio.get_running_loop())
        handles = Handles(native, bridge, cluster)
        try:
            await calls.run(_connection(native))
        except BaseException as error:
            await asyncio.shield(asyncio.to_thread(handles.end))
            calls.end()
            if isinstance(error, (ConnectionError, ValueError)):
                raise not_connected(config, error) from error
            raise
        self._calls = calls
        self._hold(config, handles)
        # Also at the interpreter's exit, while native threads can still end in order.
        self._finalizer = weakref.finalize(self, _end, handles, calls)
        return self

    async def _started_cluster(self) -> EmbeddedCluster | None:
        if self._start_cluster is None:
            return None
        starting = asyncio.ensure_future(asyncio.to_thread(self._start_cluster))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            cluster = await starting  # at most its own deadline; it must not be left running
            await asyncio.to_thread(cluster.stop)
            raise

    async def aclose(self) -> None:
        """End session and connections; calls under way raise ClosedError. Idempotent.

        Cancelled meanwhile, it goes on in the background. When the store's event loop is closed, any other
        may run this.
        """
        self._connecting = True  # never again
        calls, finalizer = self._calls, self._finalizer
        if calls is None or finalizer is None or self._handles.is_forked:
            return
        if calls.is_orphaned():
            await asyncio.to_thread(finalizer)
            return
        calls.check_loop()
        if self._closing is None:
            self._closing = asyncio.ensure_future(asyncio.to_thread(finalizer))
        await asyncio.shield(self._closing)
        calls.end()

    async def __aenter__(self) -> AsyncStore:
        return await self.connect()

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    # ---- verbs

    put = awaited(verbs.put)
    put_many = awaited(verbs.put_many)
    get = awaited(verbs.get)
    get_many = awaited(verbs.get_many)
    get_view = awaited(verbs.get_view)
    get_view_many = awaited(verbs.get_view_many)
    get_tensor = awaited(verbs.get_tensor)
    get_into = awaited(verbs.get_into)
    get_into_many = awaited(verbs.get_into_many)
    exists = awaited(verbs.exists)
    exists_many = awaited(verbs.exists_many)
    match_prefix = awaited(verbs.match_prefix)
    touch = awaited(verbs.touch)
    stat = awaited(verbs.stat)
    why = awaited(verbs.why)
    inspect = awaited(verbs.inspect)
    inspect_node = awaited(verbs.inspect_node)
    events = awaited(verbs.events)
    remove = awaited(verbs.remove)
    remove_many = awaited(verbs.remove_many)
    remove_all = awaited(verbs.remove_all)
    segments = awaited(verbs.segments)
    stats = awaited(verbs.stats)

    def objects(self, prefix: Key = b"", *, timeout_ms: int | None = None) -> AsyncIterator[ObjectInfo]:
        calls = self._running_calls()
        page = verbs.pages(self, prefix, timeout_ms)

        async def walk() -> AsyncIterator[ObjectInfo]:
            cursor, is_first = 0, True
            while is_first or cursor != 0:
                found, cursor = await calls.run(page(cursor))
                is_first = False
                for info in found:
                    yield info

        return walk()

    def keys(self, prefix: Key = b"", *, timeout_ms: int | None = None) -> AsyncIterator[bytes]:
        found = self.objects(prefix, timeout_ms=timeout_ms)

        async def walk() -> AsyncIterator[bytes]:
            async for info in found:
                yield info.key

        return walk()

    objects.__doc__ = Store.objects.__doc__
    keys.__doc__ = Store.keys.__doc__

    # ---- inside

    def _running_calls(self) -> _Calls:
        """Refuses what cannot be: not connected, closed, another process, another loop."""
        self._client()
        calls = self._calls
        assert calls is not None
        calls.check_loop()
        return calls

    def _client(self) -> NativeClient:
        if self._calls is None:
            raise ClosedError(
                "the store is closed"
                if self._connecting
                else "the store is not connected: use `async with` or await its connect()"
            )
        return super()._client()


def _connection(native: _core.AsyncClient) -> Steps[None]:
    yield native.connect()


def _end(handles: Handles, calls: _Calls) -> None:
    handles.end()
    if not handles.is_forked:
        calls.end_from_anywhere()


class _Calls:
    """The calls of one store that are under way, on one event loop.

    Knows no store, so that one that nobody holds any more can be collected and ended.
    """

    def __init__(self, native: _core.AsyncClient, loop: asyncio.AbstractEventLoop) -> None:
        self._native = native
        self._loop = loop
        # The steps hold the caller's buffers: whoever else drops them, they live until the call has returned.
        self._under_way: dict[int, tuple[asyncio.Future[None], Steps[Any]]] = {}
        self._expiring = False
        self._ended = False
        loop.add_reader(native.fileno(), self._on_done)

    def is_orphaned(self) -> bool:
        """Whether the loop is closed: no callback and no task of it will run again."""
        return self._loop.is_closed()

    def check_loop(self) -> None:
        """Raises unless this is the loop that the store was connected on."""
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidArgument(
                "the store belongs to another event loop, the one it was connected on; "
                "make one AsyncStore for each loop, or use Store from threads"
            )

    async def run(self, steps: Steps[AnswerT]) -> AnswerT:
        """Drive a verb to its end. When this raises CancelledError no native call of it runs any more."""
        pending: _core.PendingCall[Any] | None = None
        try:
            pending = steps.send(None)
            while True:
                assert pending is not None
                if not pending.is_done:
                    await self._end_of(pending.id, steps)
                if pending.is_expired:
                    raise DeadlineExceeded(
                        "the deadline passed before one of the store's threads was free for the call; "
                        "raise its timeout_ms, or calls_at_once_max"
                    )
                pending = steps.send(pending.answer())
        except StopIteration as end:
            value: AnswerT = end.value
            return value
        except BlockingIOError as error:
            raise Busy(f"{error} (calls_waiting_max)") from None
        finally:
            # Both hold the caller's buffers, and an exception's traceback would hold both.
            pending = None
            steps.close()

    async def _end_of(self, call: int, steps: Steps[Any]) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._under_way[call] = (future, steps)
        if not self._expiring:
            self._expiring = True
            self._loop.call_later(_EXPIRY_S, self._expire)
        try:
            await future
        except asyncio.CancelledError:
            if not self._native.cancel(call):
                await self._returned(call, steps)
            self._under_way.pop(call, None)
            raise
        except GeneratorExit:
            self._end_now(call)
            raise

    async def _returned(self, call: int, steps: Steps[Any]) -> None:
        """Wait for a call that is interrupted. Further cancellations change nothing about that."""
        while True:
            future: asyncio.Future[None] = self._loop.create_future()
            self._under_way[call] = (future, steps)
            try:
                await future
            except asyncio.CancelledError:
                continue
            except GeneratorExit:
                self._end_now(call)
                raise
            return

    def _end_now(self, call: int) -> None:
        """The coroutine is being closed, its loop perhaps gone: nothing can be awaited, so this blocks.

        At most the 50 ms or so in which an interrupted call returns; the buffers may be freed next.
        """
        if not self._native.cancel(call):
            self._native.wait(call)
        self._under_way.pop(call, None)

    def _on_done(self) -> None:
        for call in self._native.take_done():
            future, _ = self._under_way.pop(call, (None, None))
            if future is not None and not future.done():
                future.set_result(None)

    def _expire(self) -> None:
        self._expiring = bool(self._under_way)
        if self._expiring:
            self._native.expire()
            self._loop.call_later(_EXPIRY_S, self._expire)

    def end(self) -> None:
        """On the loop's thread, once the native client is closed: tell who still waits. Idempotent."""
        if self._ended:
            return
        self._ended = True
        self._on_done()
        self._loop.remove_reader(self._native.fileno())

    def end_from_anywhere(self) -> None:
        """The same from whichever thread collects or ends the store."""
        if self._ended:
            return
        if asyncio._get_running_loop() is self._loop:
            self.end()
            return
        try:
            self._loop.call_soon_threadsafe(self.end)
        except RuntimeError:  # the loop is closed: its tasks can be told of nothing, only let go
            self._ended = True
            self._native.take_done()
            self._under_way.clear()
