"""The settings of `mooncake_master`, each declared once: flag, type, default, meaning.

Owns names, defaults and checks; must not start anything. Names, types and defaults are Mooncake's where it
has the setting, so that start scripts keep working; the port differs (50001, the one its users name).
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import struct
from dataclasses import dataclass

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

DEFAULT_RPC_PORT = 50001
LANE_THREADS_MAX = 64
_SIOCGIFADDR = 0x8915  # linux/sockios.h: the IPv4 address of an interface


@dataclass(frozen=True)
class MasterConfig:
    """Checked settings of one master. Times are in ms, sizes in bytes, ratios 0..1."""

    config_path: str = setting(Kind.TEXT, "", "JSON or YAML file with the same names; flags win over it.")
    log_level: str = setting(Kind.TEXT, "info", "How much is logged to stderr.", choices=LEVELS)
    log_format: str = setting(
        Kind.TEXT, "text", "How: lines for people, or one JSON object a line.", choices=FORMATS
    )

    rpc_address: str = setting(Kind.HOST, "0.0.0.0", "Address on which gRPC and the lane listen.")
    rpc_interface: str = setting(
        Kind.TEXT, "", "Network interface whose IPv4 address is used instead of --rpc_address."
    )
    rpc_port: int = setting(Kind.PORT, 0, "Port for gRPC; 0 takes --port.", minimum=0)
    port: int = setting(
        Kind.PORT,
        DEFAULT_RPC_PORT,
        "Port for gRPC when --rpc_port is not given; 0 takes any free one.",
        minimum=0,
    )
    lane_port: int = setting(
        Kind.PORT,
        0,
        "Port for the binary lane; 0 takes any free one, which clients learn over gRPC.",
        minimum=0,
    )
    lane_threads: int = setting(
        Kind.INT,
        0,
        "Threads that serve the lane; 0 chooses by the number of cores.",
        minimum=0,
        maximum=LANE_THREADS_MAX,
    )
    advertise_host: str = setting(
        Kind.HOST, "", "Host that clients and nodes are told to dial; empty: the one they dialled already."
    )
    metrics_host: str = setting(Kind.HOST, "0.0.0.0", "Address on which HTTP listens; :: is IPv6 and IPv4.")
    metrics_port: int = setting(
        Kind.PORT, 9003, "Port for HTTP (/metrics, /health, ...); 0 takes any.", minimum=0
    )
    enable_metric_reporting: bool = setting(Kind.BOOL, True, "Log a summary of the metrics every 10 seconds.")

    enable_http_metadata_server: bool = setting(
        Kind.BOOL, False, "Run the HTTP metadata server in this process too."
    )
    http_metadata_server_host: str = setting(Kind.HOST, "0.0.0.0", "Address on which it listens.")
    http_metadata_server_port: int = setting(Kind.PORT, 8080, "Port for it; 0 takes any free one.", minimum=0)

    state_file: str = setting(
        Kind.TEXT,
        "auto",
        "File that keeps the number of this master's reign, so that nodes follow it at once after a restart, "
        "and what was removed that nodes may still hold. "
        "auto: master-PORT.json in $STATE_DIRECTORY or $XDG_STATE_HOME/mooncake_store; none: keep nothing.",
    )

    enable_ha: bool = setting(
        Kind.BOOL, False, "Be one of several masters of which one is elected to serve; the others stand by."
    )
    ha_backend_type: str = setting(
        Kind.TEXT,
        "etcd",
        "Who keeps the election.",
        choices=("etcd", "redis"),
        choices_not_built=("k8s",),
    )
    etcd_endpoints: str = setting(
        Kind.TEXT, "", "Members of etcd, host:port each, separated by comma or semicolon."
    )
    ha_backend_connstring: str = setting(
        Kind.TEXT, "", "redis://[user:password@]host:port[/db], or for etcd instead of --etcd_endpoints."
    )
    cluster_id: str = setting(
        Kind.TEXT, "mooncake_cluster", "Name of the pool in etcd or redis; one election each."
    )

    client_ttl_ms: int = setting(
        Kind.DURATION,
        10_000,
        "A session or node without a heartbeat for this long is expelled; they come each second, or four "
        "times in this, whichever is more often.",
        flag="client_ttl",
        unit="s",
        minimum=1_000,
    )
    session_grace_ms: int = setting(
        Kind.DURATION,
        1_000,
        "After its connection ended, a session keeps its unfinished puts this long.",
        minimum=0,
    )
    clock_step_max_ms: int = setting(
        Kind.DURATION,
        500,
        "The clock advances at most this much per reading (each 50 ms): a stalled master expires nobody.",
        minimum=50,
    )

    default_kv_lease_ttl_ms: int = setting(
        Kind.DURATION,
        10_000,
        "A lookup asks for this long that the replica is evicted after those nobody asked for.",
        flag="default_kv_lease_ttl",
        minimum=0,
    )
    exists_hold_ms: int = setting(
        Kind.DURATION, 2_000, "An exists that hits asks for the same, this long.", minimum=0
    )
    default_kv_soft_pin_ttl_ms: int = setting(
        Kind.DURATION,
        1_800_000,
        "How long a soft pin without its own time lasts.",
        flag="default_kv_soft_pin_ttl",
        minimum=0,
    )
    max_kv_soft_pin_ttl_ms: int = setting(
        Kind.DURATION,
        86_400_000,
        "The longest soft pin that a request may ask for.",
        flag="max_kv_soft_pin_ttl",
        minimum=0,
    )
    put_start_discard_timeout_ms: int = setting(
        Kind.DURATION,
        30_000,
        "A put that was started and not ended after this long gives way to another client's.",
        flag="put_start_discard_timeout_sec",
        unit="s",
        minimum=1_000,
    )
    put_start_release_timeout_ms: int = setting(
        Kind.DURATION,
        600_000,
        "A put that was started and not ended after this long is given up, and its space returns.",
        flag="put_start_release_timeout_sec",
        unit="s",
        minimum=1_000,
    )
    alloc_wait_ms: int = setting(
        Kind.DURATION,
        100,
        "A put waits at most this long for space that is being freed already.",
        minimum=0,
        maximum=60_000,
    )
    remove_confirm_timeout_ms: int = setting(
        Kind.DURATION,
        1_000,
        "A remove, or a put over a value, waits at most this long for the nodes that held one to confirm; "
        "after it the retire stays pending.",
        minimum=0,
        maximum=600_000,
    )

    dial_back: bool = setting(
        Kind.BOOL,
        True,
        "A node joins only when this master can dial the data address that the node advertises. Off where "
        "clients reach the nodes and the master does not.",
    )
    allocation_strategy: str = setting(
        Kind.TEXT,
        "random",
        "How segments are picked for a put.",
        choices=("random", "free_ratio_first", "local_first"),
        choices_not_built=("cxl", "ssd_free_ratio_first"),
    )
    eviction_high_watermark_ratio: float = setting(
        Kind.FLOAT,
        0.90,
        "Used fraction of the memory above which eviction starts.",
        minimum=0.01,
        maximum=1.0,
    )
    eviction_ratio: float = setting(
        Kind.FLOAT, 0.05, "Fraction of the memory that one round of eviction frees.", minimum=0.0, maximum=1.0
    )
    eviction_policy: str = setting(
        Kind.TEXT,
        "adaptive",
        "Which values go first: learnt from when keys are asked for again, or the least recently used.",
        choices=("adaptive", "lru"),
    )
    allow_evict_soft_pinned_objects: bool = setting(
        Kind.BOOL, True, "Whether soft-pinned objects may be evicted when nothing else is left."
    )
    repair_low_watermark_ratio: float = setting(
        Kind.FLOAT,
        0.80,
        "Used fraction of the memory up to which lost replicas are copied anew.",
        minimum=0.0,
        maximum=1.0,
    )
    repair_bytes_per_s: int = setting(
        Kind.SIZE, 256 << 20, "Most bytes a second that such copies may take; 0: none are made.", minimum=0
    )
    copies_a_node_max: int = setting(
        Kind.INT,
        8,
        "Copies between nodes (repair, handover, tasks) that one node sends or receives at a time.",
        minimum=1,
        maximum=64,
    )
    max_total_pending_tasks: int = setting(
        Kind.INT,
        10_000,
        "Most copy and move tasks that have not ended; beyond it creating one is refused.",
        minimum=0,
        maximum=1_000_000,
    )
    max_total_finished_tasks: int = setting(
        Kind.INT,
        10_000,
        "Of so many tasks, the last that ended, is told how.",
        minimum=0,
        maximum=1_000_000,
    )
    max_retry_attempts: int = setting(
        Kind.INT,
        10,
        "Attempts of a task at one copy, a second apart, before it fails.",
        minimum=1,
        maximum=1_000,
    )
    pending_task_timeout_ms: int = setting(
        Kind.DURATION,
        300_000,
        "A task that could not begin for so long fails; 0: it waits on.",
        flag="pending_task_timeout_sec",
        unit="s",
        minimum=0,
    )
    processing_task_timeout_ms: int = setting(
        Kind.DURATION,
        300_000,
        "A task that is not done so long after it began fails; 0: it goes on.",
        flag="processing_task_timeout_sec",
        unit="s",
        minimum=0,
    )
    max_keys: int = setting(
        Kind.INT,
        10_000_000,
        "Most keys the master holds; at the limit it evicts.",
        minimum=1,
        maximum=1 << 40,
    )
    max_metadata_bytes: int = setting(
        Kind.SIZE, 4 << 30, "Most memory for metadata; at the limit the master evicts.", minimum=1 << 20
    )
    replay_window: int = setting(
        Kind.INT,
        1_024,
        "Requests a session whose repetition is recognised.",
        unit="requests",
        minimum=1,
        maximum=1 << 20,
    )

    journal_events: int = setting(
        Kind.INT,
        65_536,
        "Events of values that are kept for `mooncake stat`, 32 bytes each; of sessions and segments at most "
        "8,192 are kept beside them.",
        unit="events",
        minimum=0,
        maximum=1 << 20,
    )

    def __post_init__(self) -> None:
        check_config(self)
        if is_wildcard(self.advertise_host) and self.advertise_host:
            raise InvalidArgument(
                f"advertise_host {self.advertise_host!r} means every interface; name one that others can dial"
            )
        if self.enable_ha:
            self._check_ha()
        if self.max_kv_soft_pin_ttl_ms < self.default_kv_soft_pin_ttl_ms:
            raise InvalidArgument(
                f"max_kv_soft_pin_ttl ({self.max_kv_soft_pin_ttl_ms} ms) is less than "
                f"default_kv_soft_pin_ttl ({self.default_kv_soft_pin_ttl_ms} ms)"
            )
        if self.put_start_release_timeout_ms < self.put_start_discard_timeout_ms:
            raise InvalidArgument(
                f"put_start_release_timeout_sec ({self.put_start_release_timeout_ms} ms) is less than "
                f"put_start_discard_timeout_sec ({self.put_start_discard_timeout_ms} ms)"
            )
        fixed = {"--rpc_port" if self.rpc_port else "--port": self.grpc_port, "--lane_port": self.lane_port}
        fixed["--metrics_port"] = self.metrics_port
        by_port: dict[int, str] = {}
        for flag, port in fixed.items():
            if port and by_port.setdefault(port, flag) != flag:
                raise InvalidArgument(
                    f"{by_port[port]} and {flag} are both {port}; each needs a port of its own"
                )

    def _check_ha(self) -> None:
        if self.ha_backend_type == "etcd" and not (self.etcd_endpoints or self.ha_backend_connstring):
            raise InvalidArgument("enable_ha with etcd needs --etcd_endpoints=host:port,...")
        if self.ha_backend_type == "redis" and not self.ha_backend_connstring:
            raise InvalidArgument("enable_ha with redis needs --ha_backend_connstring=redis://host:port")
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,128}", self.cluster_id):
            raise InvalidArgument(
                f"cluster_id {self.cluster_id[:64]!r} must be 1..128 letters, digits or of ._-"
            )
        if self.grpc_port == 0:
            raise InvalidArgument(
                f"enable_ha needs a port that is known before it listens; set {self.grpc_port_flag}"
            )
        if not self.advertise_host and not self.rpc_interface and is_wildcard(self.rpc_address):
            raise InvalidArgument(
                "enable_ha needs this host's address, for clients; set --advertise_host or --rpc_address"
            )

    def ha_address(self) -> str:
        """Where clients reach this master's gRPC: what it writes into the election."""
        return str(Endpoint(self.advertise_host or self.listen_endpoint().host, self.grpc_port))

    @property
    def grpc_port(self) -> int:
        """The port for gRPC: `rpc_port` where it is given, else `port`; 0 is any free one."""
        return self.rpc_port or self.port

    @property
    def grpc_port_flag(self) -> str:
        """The flag to name in messages about that port."""
        return "--rpc_port" if self.rpc_port else "--port"

    def listen_endpoint(self) -> Endpoint:
        """Where gRPC listens. Raises InvalidArgument when `rpc_interface` names none with an IPv4 address."""
        host = interface_address(self.rpc_interface) if self.rpc_interface else self.rpc_address
        return Endpoint(host or "0.0.0.0", self.grpc_port)

    def lane_thread_count(self) -> int:
        """Threads for the lane: as set, else one a core, at most 8 (one lock, so more only wait)."""
        return self.lane_threads or max(1, min(8, len(os.sched_getaffinity(0))))


def interface_address(name: str) -> str:
    """The IPv4 address of a network interface. Raises InvalidArgument naming those that exist."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            request = struct.pack("256s", os.fsencode(name)[:15])
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24])
        except OSError as error:
            known = ", ".join(interface for _, interface in socket.if_nameindex())
            raise InvalidArgument(
                f"--rpc_interface: {name!r} is no interface with an IPv4 address (there are: {known})"
            ) from error


_ONLY_WITH_OPLOG = (
    "it configures --enable_oplog, which is not built yet; nodes tell a new leader what they hold"
)
_ONLY_WITH_SNAPSHOT = "it configures --enable_snapshot, which is not built yet"
_ONLY_WITH_OFFLOAD = "it configures --enable_offload, which is not built yet"
_ONLY_WITH_EVENTS = "it configures --enable_kv_events, which is not built yet"
_NO_NOF = "there is no NVMe-oF pool here"

KNOWN_FLAGS = (
    *not_built(
        Kind.BOOL,
        False,
        *(
            "enable_cxl",
            "enable_kv_events",
            "enable_multi_tenants",
            "enable_offload",
            "enable_oplog",
        ),
        *("enable_snapshot", "enable_snapshot_restore", "offload_on_evict", "promotion_on_hit"),
    ),
    *not_built(Kind.TEXT, "off", "dynamic_replication_mode"),
    *not_built(Kind.TEXT, "", "root_fs_dir"),
    *unmeaning(Kind.INT, 16, "max_threads", note="--lane_threads sets the threads of the lane"),
    *unmeaning(Kind.INT, 0, "rpc_thread_num", note="--lane_threads sets the threads of the lane"),
    *unmeaning(Kind.INT, 0, "rpc_conn_timeout_seconds", note="idle connections are bounded by client_ttl"),
    *unmeaning(Kind.BOOL, True, "rpc_enable_tcp_no_delay", note="TCP_NODELAY is always on"),
    *unmeaning(Kind.TEXT, "offset", "memory_allocator", note="there is one allocator"),
    *unmeaning(
        Kind.BOOL,
        False,
        "enable_metadata_cleanup_on_timeout",
        note="what nodes leave at a metadata server ends by itself when they stop renewing it",
    ),
    *unmeaning(Kind.TEXT, "", "pod_name", "pod_namespace", note="elections in Kubernetes are not built yet"),
    *unmeaning(Kind.INT, 180, "batch_oplog_retry_timeout_sec", note=_ONLY_WITH_OPLOG),
    *unmeaning(Kind.INT, 1024, "oplog_batch_max_entries", note=_ONLY_WITH_OPLOG),
    *unmeaning(Kind.INT, 1000, "oplog_poll_interval_ms", note=_ONLY_WITH_OPLOG),
    *unmeaning(
        Kind.TEXT, "/dev/dax0.0", "cxl_path", note="it configures --enable_cxl, which is not built yet"
    ),
    *unmeaning(Kind.SIZE, 8 << 30, "cxl_size", note="it configures --enable_cxl, which is not built yet"),
    *unmeaning(
        Kind.FLOAT, 0.8, "dynamic_replication_admission_qps_threshold", note="there is no replication by heat"
    ),
    *unmeaning(
        Kind.INT, 10, "dynamic_replication_heat_window_seconds", note="there is no replication by heat"
    ),
    *unmeaning(
        Kind.INT, 2, "dynamic_replication_max_memory_replicas", note="there is no replication by heat"
    ),
    *unmeaning(Kind.BOOL, True, "enable_disk_eviction", note=_ONLY_WITH_OFFLOAD),
    *unmeaning(Kind.INT, 2**63 - 1, "global_file_segment_size", note=_ONLY_WITH_OFFLOAD),
    *unmeaning(Kind.SIZE, 0, "quota_bytes", note=_ONLY_WITH_OFFLOAD),
    *unmeaning(Kind.FLOAT, 0.5, "offload_cap_ratio", note=_ONLY_WITH_OFFLOAD),
    *unmeaning(Kind.BOOL, False, "offload_force_evict", note=_ONLY_WITH_OFFLOAD),
    *unmeaning(Kind.INT, 50_000, "offloading_queue_limit", "promotion_queue_limit", note=_ONLY_WITH_OFFLOAD),
    *unmeaning(Kind.INT, 2, "promotion_admission_threshold", note=_ONLY_WITH_OFFLOAD),
    *unmeaning(Kind.INT, 1, "promotion_max_per_heartbeat", note=_ONLY_WITH_OFFLOAD),
    *unmeaning(
        Kind.TEXT,
        "",
        *(
            "kv_events_additional_salt",
            "kv_events_backend_id",
            "kv_events_bind_endpoint",
            "kv_events_lora_name",
        ),
        "kv_events_model_name",
        note=_ONLY_WITH_EVENTS,
    ),
    *unmeaning(Kind.TEXT, "default", "kv_events_tenant_id", note=_ONLY_WITH_EVENTS),
    *unmeaning(Kind.INT, 0, "kv_events_block_size", "kv_events_dp_rank", note=_ONLY_WITH_EVENTS),
    *unmeaning(
        Kind.BOOL, True, "kv_events_emit_legacy_compat", "kv_events_emit_object_key", note=_ONLY_WITH_EVENTS
    ),
    *unmeaning(Kind.INT, 65_536, "kv_events_queue_capacity", note=_ONLY_WITH_EVENTS),
    *unmeaning(
        Kind.INT,
        10_000,
        "max_total_processing_tasks",
        note="copies under way at once are bounded by copies_a_node_max",
    ),
    *unmeaning(Kind.FLOAT, 0.9, "nof_eviction_high_watermark_ratio", note=_NO_NOF),
    *unmeaning(Kind.FLOAT, 0.05, "nof_eviction_ratio", note=_NO_NOF),
    *unmeaning(Kind.INT, 3, "nof_heartbeat_failures_threshold", note=_NO_NOF),
    *unmeaning(Kind.INT, 10, "nof_heartbeat_interval_sec", note=_NO_NOF),
    *unmeaning(Kind.INT, 1_000, "nof_heartbeat_probe_timeout_ms", note=_NO_NOF),
    *unmeaning(
        Kind.TEXT,
        "",
        *("snapshot_backup_dir", "snapshot_catalog_backend_connstring", "snapshot_catalog_backend_type"),
        *("snapshot_catalog_store_connstring", "snapshot_catalog_store_type", "snapshot_object_store_type"),
        *("snapshot_payload_backend_type", "snapshot_payload_store_type"),
        note=_ONLY_WITH_SNAPSHOT,
    ),
    *unmeaning(Kind.INT, 300, "snapshot_child_timeout_seconds", note=_ONLY_WITH_SNAPSHOT),
    *unmeaning(Kind.INT, 600, "snapshot_interval_seconds", note=_ONLY_WITH_SNAPSHOT),
    *unmeaning(Kind.INT, 2, "snapshot_retention_count", note=_ONLY_WITH_SNAPSHOT),
    *unmeaning(
        Kind.TEXT,
        "file",
        "tenant_quota_connector_type",
        note="it configures --enable_multi_tenants, which is not built yet",
    ),
    *unmeaning(
        Kind.TEXT,
        "",
        "tenant_quota_connector_uri",
        note="it configures --enable_multi_tenants, which is not built yet",
    ),
    *unmeaning(Kind.BOOL, False, "use_mmap_arena_allocator", note="the master maps no buffers"),
    *unmeaning(Kind.SIZE, 8 << 30, "mmap_arena_pool_size", note="the master maps no buffers"),
)
"""Mooncake's flags that this master knows and does not act on."""

MASTER_FLAGS = FlagTable(
    "mooncake_master",
    "Runs the master: it knows where every block is and never touches one.",
    MasterConfig,
    (*KNOWN_FLAGS, *GLOG_FLAGS),
)
