"""What `Store` and `AsyncStore` are alike in: settings, state, refusals, registered buffers.

Owns how a verb reaches the native client and how its failures read. Must not know verbs, nor whether the
caller waits.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from mooncake_client.answers import MISSES, Call, Key, Steps
from mooncake_client.arguments import whole
from mooncake_client.client_config import RPC_TIMEOUT_MS_MAX, ClientConfig
from mooncake_client.connection import Handles, NativeClient
from mooncake_client.records import LocalNode, Registration
from mooncake_client.values import writable_memory
from mooncake_store import _core
from mooncake_store.errors import ClosedError, InvalidArgument

MethodT = TypeVar("MethodT", bound=Callable[..., Any])


def as_method(method: MethodT, verb: Callable[..., Steps[Any]], of: str) -> MethodT:
    """Give a method the name, text and signature of its verb; the value is what the verb's steps return."""
    signature = inspect.signature(verb)
    first, *others = signature.parameters.values()
    returned = str(signature.return_annotation).removeprefix("Steps[").removesuffix("]")
    method.__name__ = verb.__name__
    method.__qualname__ = f"{of}.{verb.__name__}"
    method.__doc__ = verb.__doc__
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[first.replace(name="self", annotation=inspect.Parameter.empty), *others],
        return_annotation=returned,
    )
    return method


class StoreHandle:
    """Settings and native handles of one store. Made by its subclasses only."""

    config: ClientConfig
    _handles: Handles
    _registrations: set[Registration]

    def _hold(self, config: ClientConfig, handles: Handles) -> None:
        self.config = config
        self._handles = handles
        self._registrations = set()

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
    def door(self) -> str:
        """By which the master is asked now: `lane` or `grpc`; empty when closed."""
        client = self._handles.client
        if client is None or client.is_closed:
            return ""
        return "grpc" if client.is_over_grpc else "lane"

    @property
    def local_nodes(self) -> tuple[LocalNode, ...]:
        """The nodes that were read or written so far, and how: by a mapping, or why over TCP."""
        client = self._handles.client
        if client is None or client.is_closed:
            return ()
        return tuple(LocalNode(*fields) for fields in client.local_nodes)

    @property
    def location_counts(self) -> dict[str, int]:
        """Of values read where they were found before (`location_cache`): `hits`; `stale`, which were not
        there any more and were looked up again; `entries` now; `evicted` before their time;
        `untold_accesses`, of which the master could not be told. Empty when closed.
        """
        client = self._handles.client
        return {} if client is None or client.is_closed else client.location_counts

    @property
    def lane(self) -> str:
        """Of an embedded store: the address by which others join it, `Store(lane=...)`; else empty."""
        cluster = self._handles.cluster
        return cluster.lane if cluster is not None else ""

    def __repr__(self) -> str:
        state = "closed" if self.closed else "connected" if self.is_connected else "not connected"
        return f"<{type(self).__name__} {self.config.where()} tenant={self.config.tenant!r} {state}>"

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(
            f"a {name} cannot be pickled or copied: it holds connections of this process. Make one in each "
            f"process; its settings can be pickled: {name}.from_config(store.config)"
        )

    def __del__(self) -> None:
        # A store whose constructor raised has no handles; one that the interpreter's exit ended is closed.
        if hasattr(self, "_handles") and not self.closed:
            warnings.warn(f"{self!r} was never closed", ResourceWarning, stacklevel=2, source=self)

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

    def _client(self) -> NativeClient:
        client = self._handles.client
        if client is None:
            raise ClosedError("the store is closed")
        if client.is_closed:
            raise self._handles.why_closed()
        return client

    def _timeout(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self.config.rpc_timeout_ms
        return whole("timeout_ms", timeout_ms, 1, RPC_TIMEOUT_MS_MAX)

    def _call(self, verb: str, timeout_ms: int) -> Call:
        setting = "rpc_timeout_ms" if timeout_ms == self.config.rpc_timeout_ms else "timeout_ms"
        return Call(verb, timeout_ms, self.config.where(), _core.Client.why(), setting)

    def _is_there(self, verb: str, key: Key, status: int, timeout_ms: int) -> bool:
        """What a status says about one key; raises what is neither a hit nor a miss."""
        if status != 0 and status not in MISSES:
            raise self._call(verb, timeout_ms).error(status, key)
        return status == 0
