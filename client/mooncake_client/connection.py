"""How a store's native client comes to be, and how everything that belongs to it ends.

Owns the order of the end, whichever of close, garbage collection or the interpreter's exit comes first. Must
not know verbs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias

from mooncake_client import grpc_bridge
from mooncake_client.client_config import ClientConfig
from mooncake_client.grpc_bridge import GrpcBridge
from mooncake_client.node_config import this_host_id
from mooncake_store import _core
from mooncake_store.errors import ClosedError, InvalidArgument, Unavailable

if TYPE_CHECKING:
    from mooncake_client.embedded import EmbeddedCluster

_OF_THE_PARENT: list[object] = []
"""In a fork's child: what it must not end, gRPC channels among it."""

NativeClient: TypeAlias = "_core.Client | _core.AsyncClient"


def native_settings(config: ClientConfig, bridge: GrpcBridge | None) -> dict[str, Any]:
    """The configuration as the native clients name it. bridge: for a client that may ask over gRPC."""
    return {
        "masters": [] if config.lane else [str(endpoint) for endpoint in config.master_server_addr],
        "lane": config.lane,
        "tenant": config.tenant,
        "name": config.name or f"python-{os.getpid()}",
        "host_id": config.host_id or this_host_id(),
        "connect_timeout_ms": config.connect_timeout_ms,
        "rpc_timeout_ms": config.rpc_timeout_ms,
        "connections_a_peer_max": config.connections_a_peer_max,
        "bytes_in_flight_a_peer_max": config.bytes_in_flight_a_peer_max,
        "checksums": config.checksum == "all",
        "location_cache_max": config.location_cache_max if config.location_cache == "on" else 0,
        "control": config.control,
        "shared_memory": config.shared_memory == "auto",
        "bridge": None if bridge is None else bridge.start,
    }


def bridge_for(config: ClientConfig) -> GrpcBridge | None:
    """What a client may need to ask over gRPC; nothing runs until it does."""
    if config.lane or config.control == "lane":
        return None
    return GrpcBridge(config.connect_timeout_ms)


def connect(config: ClientConfig) -> Handles:
    """A client with a session. Raises Unavailable, naming address and setting, in the connect deadline."""
    bridge = bridge_for(config)
    if config.control == "grpc":
        grpc_bridge.prepare()
    try:
        return Handles(_core.Client(**native_settings(config, bridge)), bridge)
    except BaseException as error:
        if bridge is not None:
            bridge.end()
        if isinstance(error, (ConnectionError, ValueError)):
            raise not_connected(config, error) from error
        raise


def not_connected(config: ClientConfig, error: Exception) -> Unavailable | InvalidArgument:
    """What the native client's refusal to connect means."""
    if isinstance(error, ConnectionError):
        return Unavailable(
            f"no master at {config.where()} within connect_timeout_ms={config.connect_timeout_ms}: {error}"
        )
    return InvalidArgument(str(error))


class Handles:
    """What must be ended with a store. Ends it once, from whichever thread, finalizer or exit comes first."""

    def __init__(
        self,
        client: NativeClient | None,
        bridge: GrpcBridge | None = None,
        cluster: EmbeddedCluster | None = None,
    ) -> None:
        self.client = client
        self.bridge = bridge
        self.cluster = cluster
        self.process = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether threads and sockets are those of this process's parent."""
        return os.getpid() != self.process

    def why_closed(self) -> ClosedError:
        """Why a client says that it is closed."""
        if self.is_forked:
            return ClosedError(
                "the store belongs to the parent of this forked process; make one in each process"
            )
        return ClosedError("the store is closed")

    def end(self) -> None:
        if self.is_forked:
            _OF_THE_PARENT.append((self.client, self.bridge))
        client, self.client = self.client, None
        bridge, self.bridge = self.bridge, None
        cluster, self.cluster = self.cluster, None
        if self.is_forked:
            return
        if client is not None:
            client.close()
        if bridge is not None:
            bridge.end()
        if cluster is not None:
            cluster.stop()
