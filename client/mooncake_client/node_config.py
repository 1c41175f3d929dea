"""The settings of the `mooncake_client` command, a node that lends memory; each declared once.

Owns names, defaults and checks; must not start anything. Standard library only, as everything that a node
process imports. Names are those of Mooncake's standalone client where it has the setting.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from mooncake_client.published import TTL_MS
from mooncake_store.endpoints import Endpoint, is_wildcard
from mooncake_store.errors import InvalidArgument
from mooncake_store.flags import (
    GLOG_FLAGS,
    FlagTable,
    Kind,
    check_config,
    not_built,
    setting,
    unmeaning,
)
from mooncake_store.logs import FORMATS, LEVELS
from mooncake_store.metadata_server.address import KINDS, P2P_HANDSHAKE, parse_address

DEFAULT_MASTER = Endpoint("127.0.0.1", 50001)
NAME_BYTES_MAX = 255
"""Bound of segment names and host ids on the wire (`native/wire/limits.h`)."""


def this_host_id() -> str:
    """The kernel's boot id, equal in all containers of a machine; where there is none, the host's name."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return socket.gethostname()


@dataclass(frozen=True)
class NodeConfig:
    """Checked settings of one node. Times are in ms, sizes in bytes."""

    config_path: str = setting(Kind.TEXT, "", "JSON or YAML file with the same names; flags win over it.")
    log_level: str = setting(Kind.TEXT, "info", "How much is logged to stderr.", choices=LEVELS)
    log_format: str = setting(
        Kind.TEXT, "text", "How: lines for people, or one JSON object a line.", choices=FORMATS
    )

    master_server_address: tuple[Endpoint, ...] = setting(
        Kind.ENDPOINTS, (DEFAULT_MASTER,), "The master, or several of which one is running."
    )
    global_segment_size: int = setting(Kind.SIZE, 4 << 30, "Memory lent to the pool; 0 lends none.")
    segment_name: str = setting(Kind.TEXT, "", "Name of the segment; empty: the advertised host:port.")

    host: str = setting(
        Kind.HOST,
        "0.0.0.0",
        "Address on which the data port listens; advertised too unless it means all interfaces.",
    )
    data_port: int = setting(
        Kind.PORT, 0, "Port for clients' reads and writes; 0 takes any free one.", minimum=0
    )
    port: int = setting(
        Kind.PORT,
        0,
        "Port on which clients that know this node alone ask for its master; 0: none.",
        minimum=0,
    )
    enable_http_server: bool = setting(Kind.BOOL, False, "Serve /health and /metrics over HTTP.")
    http_port: int = setting(Kind.PORT, 9300, "Port for them.")
    advertise_host: str = setting(
        Kind.HOST,
        "",
        "Host that clients are told to dial; empty: --host, or the address from which the master is reached.",
    )
    protocol: str = setting(
        Kind.TEXT, "tcp", "Transport of the data.", choices=("tcp",), choices_not_built=("rdma", "shm", "cxl")
    )
    shared_memory: str = setting(
        Kind.TEXT,
        "auto",
        "Lend the memory to clients of this host, user and tenant, who read it by a mapping: auto, or off.",
        choices=("auto", "off"),
    )
    host_id: str = setting(
        Kind.TEXT,
        "",
        "Names the machine, so that copies go to different ones; empty: its boot id or host name.",
    )

    metadata_server: str = setting(
        Kind.TEXT,
        P2P_HANDSHAKE,
        "Where this node leaves its address for programs that look there; this store's find it through the "
        f"master. {KINDS}, which is nowhere.",
    )
    metadata_ttl_ms: int = setting(
        Kind.DURATION,
        TTL_MS,
        "How long it stays there when it is not renewed.",
        flag="metadata_ttl_s",
        unit="s",
        minimum=1_000,
        maximum=86_400_000,
    )

    data_threads: int = setting(
        Kind.INT,
        0,
        "Threads that serve the data port; 0 chooses by the number of cores.",
        minimum=0,
        maximum=64,
    )
    memory_fault_threads: int = setting(
        Kind.INT,
        0,
        "Threads that fault the memory in at start; 0 chooses by the number of cores.",
        minimum=0,
        maximum=64,
    )

    connect_timeout_ms: int = setting(
        Kind.DURATION, 1_000, "Deadline for one attempt to connect.", minimum=1, maximum=60_000
    )
    rpc_timeout_ms: int = setting(
        Kind.DURATION, 10_000, "Deadline for one request to the master.", minimum=1, maximum=3_600_000
    )
    send_stall_ms: int = setting(
        Kind.DURATION, 10_000, "A reader that takes no bytes for this long is disconnected.", minimum=100
    )
    stop_handover_ms: int = setting(
        Kind.DURATION,
        5_000,
        "On a stop signal other nodes may take over values for this long, the hottest first; 0: none do.",
        flag="stop_handover_s",
        unit="s",
        minimum=0,
        maximum=600_000,
    )
    peer_bytes_in_flight_max: int = setting(
        Kind.SIZE,
        256 << 20,
        "Bytes under way to or from one peer; beyond it the answer is Busy.",
        minimum=16 << 20,
    )

    def __post_init__(self) -> None:
        check_config(self)
        if self.advertise_host and is_wildcard(self.advertise_host):
            raise InvalidArgument(
                f"advertise_host {self.advertise_host!r} means every interface; name one that others can dial"
            )
        if not self.master_server_address:
            raise InvalidArgument("master_server_address is empty; name at least one host:port")
        for endpoint in self.master_server_address:
            if is_wildcard(endpoint.host):
                raise InvalidArgument(
                    f"master_server_address {endpoint} means every interface and cannot be dialled"
                )
        parse_address(self.metadata_server)
        for name in ("segment_name", "host_id"):
            value = getattr(self, name)
            if len(value.encode("utf-8", "replace")) > NAME_BYTES_MAX or not value.isprintable():
                raise InvalidArgument(
                    f"{name} {value[:64]!r} must be printable and at most {NAME_BYTES_MAX} bytes"
                )

    def advertised_host(self) -> str | None:
        """The host to tell others: as set, else a specific `host`; None: ask the connection to the master."""
        if self.advertise_host:
            return self.advertise_host
        return None if is_wildcard(self.host) else self.host

    def effective_host_id(self) -> str:
        """`host_id`, else what tells this machine from others."""
        return self.host_id or this_host_id()

    def data_thread_count(self) -> int:
        """Threads for the data port: as set, else one a core, at most 8."""
        return self.data_threads or max(1, min(8, len(os.sched_getaffinity(0))))

    def memory_fault_thread_count(self) -> int:
        """Threads that fault memory in: as set, else half the cores, at most 8."""
        return self.memory_fault_threads or max(1, min(8, len(os.sched_getaffinity(0)) // 2))


KNOWN_FLAGS = (
    *not_built(Kind.BOOL, False, "enable_offload"),
    *unmeaning(
        Kind.SIZE, 0, "local_buffer_size", note="values are received where they stay, without staging"
    ),
    *unmeaning(Kind.TEXT, "", "device_names", note="--protocol tcp uses no device"),
    *unmeaning(Kind.INT, 1, "threads", note="--data_threads sets the threads of the data port"),
    *unmeaning(Kind.TEXT, "default", "tenant_id", note="a node serves every tenant"),
    *unmeaning(
        Kind.BOOL,
        True,
        "start_offload_rpc_server",
        note="it configures --enable_offload, which is not built yet",
    ),
    *unmeaning(Kind.BOOL, False, "use_mmap_arena_allocator", note="there is one allocator"),
    *unmeaning(Kind.SIZE, 8 << 30, "mmap_arena_pool_size", note="there is one allocator"),
)
"""Flags of Mooncake's standalone client that this node knows and does not act on."""

NODE_FLAGS = FlagTable(
    "mooncake_client",
    "Runs a node: it lends memory to the pool and serves it.",
    NodeConfig,
    (*KNOWN_FLAGS, *GLOG_FLAGS),
)
