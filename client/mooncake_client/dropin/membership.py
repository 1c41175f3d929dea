"""One store's membership of the pool: the native client, the memory lent, and how both come and go.

Owns what `setup` starts and `close` ends, from whichever thread, finalizer or exit comes first. Must not know
verbs.
"""

from __future__ import annotations

import os
import random
import threading
import time
from typing import TYPE_CHECKING, Final, cast

from mooncake_client.client_config import client_config
from mooncake_client.client_http import ClientHttp
from mooncake_client.connection import connect
from mooncake_client.dropin.client_metrics import ClientMetrics, MeasuredClient
from mooncake_client.dropin.mooncake_config import (
    MooncakeConfig,
    client_metrics_enabled,
    client_ports,
)
from mooncake_client.node_config import NodeConfig
from mooncake_client.published import publish_nodes
from mooncake_store import _core
from mooncake_store.endpoints import Endpoint, listening_host
from mooncake_store.errors import InvalidArgument, StoreError, Unavailable
from mooncake_store.ports import cannot_listen

if TYPE_CHECKING:
    from mooncake_store.metadata_server.publisher import Publisher

CONNECT_TIMEOUT_MS: Final = 5_000
"""For finding the master at setup; Mooncake's clients find a busy one later than in one second too."""
MOUNT_TIMEOUT_MS: Final = 10_000
"""For a node's first mount; the memory need not be touched for it."""
UNREACHABLE_TIMEOUT_MS: Final = 3_000
"""The same, of a node that the master cannot dial: long enough to have been tried twice."""
_POLL_MS: Final = 50  # between looks for Ctrl-C


class PortTaken(InvalidArgument):
    """Nothing can listen at this host and port."""


class Membership:
    """A client with a session, and the nodes that lend this process's memory. `end` is idempotent."""

    def __init__(self, config: MooncakeConfig) -> None:
        """Raises InvalidArgument or Unavailable, naming the setting; then nothing is left behind."""
        self.config = config
        self.process = os.getpid()
        endpoint = config.local_endpoint()
        self._client_config = client_config(
            [str(master) for master in config.masters()],
            {
                "tenant": config.tenant_id,
                "name": config.local_hostname,
                "connect_timeout_ms": CONNECT_TIMEOUT_MS,
                "control": config.control or None,
                "shared_memory": config.shared_memory or None,
            },
        )
        self._handles = connect(self._client_config)
        self.client = cast(_core.Client, self._handles.client)
        self._metrics: ClientMetrics | None = None
        if config.enable_client_http_server and client_metrics_enabled():
            self._metrics = ClientMetrics()
            self.client = cast(_core.Client, MeasuredClient(self.client, self._metrics))
        self._lock = threading.Lock()
        self._nodes: dict[str, _core.Node] = {}
        self.hostname = config.local_hostname
        self.http: ClientHttp | None = None
        self._publisher: Publisher | None = None
        try:
            if config.global_segment_size:
                [self.hostname] = self._lend_first(config.global_segment_size, endpoint.port)
            if config.enable_client_http_server:
                self.http = self._listen(config.client_http_port)
        except BaseException:
            self.end()
            raise

    @property
    def is_open(self) -> bool:
        return not self.client.is_closed and os.getpid() == self.process

    def lend(
        self, size_bytes: int, *, name: str = "", port: int = 0, file: tuple[str, int] | None = None
    ) -> list[str]:
        """Lend so much more memory, mounted when this returns; the names of the segments.

        name: empty: the advertised host:port. file: the path and offset of memory that exists already.
        Raises StoreError when it cannot be had or mounted.
        """
        host = self.config.local_endpoint().host
        settings = NodeConfig()
        node = _core.Node(
            [(name, size_bytes)],
            masters=[str(master) for master in self.config.masters()],
            data_host=listening_host(host),
            data_port=port,
            advertised_host=host,
            host_id=settings.effective_host_id(),
            name=self.config.local_hostname,
            data_threads=settings.data_thread_count(),
            memory_fault_threads=settings.memory_fault_thread_count(),
            peer_bytes_max=settings.peer_bytes_in_flight_max,
            shared_memory=self._client_config.shared_memory == "auto",
            files=[] if file is None else [file],
        )
        try:
            node.start()
            self._wait_mounted(node)
        except OSError as error:
            raise PortTaken(f"local_hostname {Endpoint(host, port)}: cannot listen: {error}") from error
        except RuntimeError as error:
            setting = f"global_segment_size {size_bytes}" if file is None else "mount_segment"
            raise StoreError(f"{setting}: {error}") from error
        names: list[str] = node.status()["segment_names"]
        with self._lock:
            self._nodes.update(dict.fromkeys(names, node))
            if self._publisher is None:
                self._publisher = publish_nodes(self.config.metadata_server, self._lent)
        return names

    def _lent(self) -> set[_core.Node]:
        with self._lock:
            return set(self._nodes.values())

    def _lend_first(self, size_bytes: int, port: int) -> list[str]:
        """At the port of local_hostname or, where it has none, at one of those for clients."""
        if port:
            return self.lend(size_bytes, name=self.config.local_hostname, port=port)
        ports, tries = client_ports()
        for chosen in random.sample(ports, min(tries, len(ports))):
            try:
                return self.lend(size_bytes, port=chosen)
            except PortTaken:
                continue
        return self.lend(size_bytes)

    def _wait_mounted(self, node: _core.Node) -> None:
        begun = time.monotonic()
        try:
            while not node.wait_mounted(_POLL_MS):
                status = node.status()
                if status["unreachable"] and time.monotonic() > begun + UNREACHABLE_TIMEOUT_MS / 1000:
                    raise Unavailable(
                        f"local_hostname {self.config.local_hostname}: the memory was not mounted: "
                        f"{status['last_error']}"
                    )
                if time.monotonic() > begun + MOUNT_TIMEOUT_MS / 1000:
                    raise Unavailable(
                        f"the memory was not mounted at {self._client_config.where()} "
                        f"in {MOUNT_TIMEOUT_MS} ms: {status['last_error']}"
                    )
        except BaseException:
            node.stop()
            raise

    def take_back(self, segment: str, grace_ms: int) -> bool:
        """Stop lending a segment; what others can take over in grace_ms stays. False: it is not lent here."""
        with self._lock:
            node = self._nodes.pop(segment, None)
        if node is not None:
            node.stop(grace_ms)
        return node is not None

    def _listen(self, port: int) -> ClientHttp:
        endpoint = Endpoint("127.0.0.1", port)
        try:
            return ClientHttp(
                endpoint,
                health=self.health,
                counters=self.counters,
                masters=self.config.masters(),
                exposition=None if self._metrics is None else self._metrics.exposition,
            )
        except OSError as error:
            raise cannot_listen(endpoint, "client_http_port", error) from error

    def health(self) -> int:
        """0 healthy, 1 closed, 2 the master did not answer the last heartbeat."""
        if not self.is_open:
            return 1
        return 0 if self.client.is_connected else 2

    def counters(self) -> dict[str, int]:
        """Of the memory lent, summed over its nodes, and of what this store moved."""
        nodes = self._lent()
        total = {
            "nodes": len(nodes),
            "connected": int(self.client.is_connected),
            "control_over_grpc": int(self.client.is_over_grpc),
            "mapped_nodes": sum(is_mapped for _, is_mapped, *_ in self.client.local_nodes),
        }
        for node in nodes:
            for name, value in node.status()["stats"].items():
                total[name] = total.get(name, 0) + value
        if self._publisher is not None:
            total |= self._publisher.counters()
        return total if self._metrics is None else {**total, **self._metrics.summary()}

    def end(self) -> None:
        with self._lock:
            nodes, self._nodes = set(self._nodes.values()), {}
        if os.getpid() != self.process:
            return
        http, self.http = self.http, None
        if http is not None:
            http.end()
        if self._publisher is not None:
            self._publisher.end()
        for node in nodes:
            node.stop()
        self._handles.end()
