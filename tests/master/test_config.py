"""The master's flags: all of Mooncake's are known, and none is silently taken for something it is not."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mooncake_store
from mooncake_master.config import MASTER_FLAGS, MasterConfig, interface_address
from mooncake_master.native import start_native
from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import InvalidArgument
from mooncake_store.flags import Kind, Standing

# Name, type and default of every flag of Mooncake's master; "-" is the empty text.
MOONCAKE_FLAGS = """
allocation_strategy string random
allow_evict_soft_pinned_objects bool true
batch_oplog_retry_timeout_sec uint32 180
client_ttl int64 10
cluster_id string mooncake_cluster
config_path string -
cxl_path string /dev/dax0.0
cxl_size uint64 8589934592
default_kv_lease_ttl string 10000
default_kv_soft_pin_ttl string 1800000
dynamic_replication_admission_qps_threshold double 0.8
dynamic_replication_heat_window_seconds uint32 10
dynamic_replication_max_memory_replicas uint64 2
dynamic_replication_mode string off
enable_cxl bool false
enable_disk_eviction bool true
enable_ha bool false
enable_http_metadata_server bool false
enable_kv_events bool false
enable_metadata_cleanup_on_timeout bool false
enable_metric_reporting bool true
enable_multi_tenants bool false
enable_offload bool false
enable_oplog bool false
enable_snapshot bool false
enable_snapshot_restore bool false
etcd_endpoints string -
eviction_high_watermark_ratio double 0.9
eviction_ratio double 0.05
global_file_segment_size int64 9223372036854775807
ha_backend_connstring string -
ha_backend_type string etcd
http_metadata_server_host string 0.0.0.0
http_metadata_server_port int32 8080
kv_events_additional_salt string -
kv_events_backend_id string -
kv_events_bind_endpoint string -
kv_events_block_size uint32 0
kv_events_dp_rank uint32 0
kv_events_emit_legacy_compat bool true
kv_events_emit_object_key bool true
kv_events_lora_name string -
kv_events_model_name string -
kv_events_queue_capacity uint32 65536
kv_events_tenant_id string default
max_kv_soft_pin_ttl string 86400000
max_retry_attempts uint32 10
max_threads int32 16
max_total_finished_tasks uint32 10000
max_total_pending_tasks uint32 10000
max_total_processing_tasks uint32 10000
memory_allocator string offset
metrics_host string 0.0.0.0
metrics_port int32 9003
nof_eviction_high_watermark_ratio double 0.9
nof_eviction_ratio double 0.05
nof_heartbeat_failures_threshold uint32 3
nof_heartbeat_interval_sec int64 10
nof_heartbeat_probe_timeout_ms uint32 1000
offload_cap_ratio double 0.5
offload_force_evict bool false
offload_on_evict bool false
offloading_queue_limit uint64 50000
oplog_batch_max_entries uint32 1024
oplog_poll_interval_ms int32 1000
pending_task_timeout_sec uint64 300
pod_name string -
pod_namespace string -
port int32 50051
processing_task_timeout_sec uint64 300
promotion_admission_threshold uint32 2
promotion_max_per_heartbeat uint32 1
promotion_on_hit bool false
promotion_queue_limit uint32 50000
put_start_discard_timeout_sec uint64 30
put_start_release_timeout_sec uint64 600
quota_bytes uint64 0
root_fs_dir string -
rpc_address string 0.0.0.0
rpc_conn_timeout_seconds int32 0
rpc_enable_tcp_no_delay bool true
rpc_interface string -
rpc_port int32 0
rpc_thread_num int32 0
snapshot_backup_dir string -
snapshot_catalog_backend_connstring string -
snapshot_catalog_backend_type string -
snapshot_catalog_store_connstring string -
snapshot_catalog_store_type string -
snapshot_child_timeout_seconds uint64 300
snapshot_interval_seconds uint64 600
snapshot_object_store_type string -
snapshot_payload_backend_type string -
snapshot_payload_store_type string -
snapshot_retention_count uint32 2
tenant_quota_connector_type string file
tenant_quota_connector_uri string -
mmap_arena_pool_size uint64 8589934592
use_mmap_arena_allocator bool false
"""
ROWS = [line.split() for line in MOONCAKE_FLAGS.strip().splitlines()]

# Defaults that differ, and why.
OTHER_DEFAULTS = {
    "port": "50001",  # the port that users name
}


@pytest.mark.parametrize(("name", "kind", "default"), ROWS, ids=[row[0] for row in ROWS])
def test_every_flag_of_mooncake_is_known_with_its_default(name: str, kind: str, default: str) -> None:
    row = next(row for row in MASTER_FLAGS.flags if row.name == name)
    text = "" if default == "-" else OTHER_DEFAULTS.get(name, default)
    parsed = row.parse(text, where=name)
    assert parsed == row.default
    assert (kind == "bool") is (row.kind is Kind.BOOL)


def test_mooncakes_defaults_written_out_start_a_master() -> None:
    argv = [
        f"--{name}={'' if default == '-' else OTHER_DEFAULTS.get(name, default)}" for name, _, default in ROWS
    ]
    loaded = MASTER_FLAGS.load(argv)
    assert loaded.config == MasterConfig()
    known_only = {row.name for row in MASTER_FLAGS.flags if row.standing is Standing.WITHOUT_MEANING}
    assert len(loaded.warnings) == len(known_only & {row[0] for row in ROWS})


def test_a_start_script_of_mooncakes_users_works() -> None:
    loaded = MASTER_FLAGS.load(
        [
            "--enable_http_metadata_server=true",
            "--http_metadata_server_port=8080",
            "--rpc_port",
            "50051",
            "-v=1",
            "--max_threads",
            "64",
            "--metrics_port=9004",
            "--eviction_high_watermark_ratio=0.95",
            "--default_kv_lease_ttl=5s",
            "--client_ttl=20",
            "--nouse_mmap_arena_allocator",
        ]
    )
    assert loaded.config == MasterConfig(
        rpc_port=50051,
        metrics_port=9004,
        eviction_high_watermark_ratio=0.95,
        default_kv_lease_ttl_ms=5_000,
        client_ttl_ms=20_000,
        enable_http_metadata_server=True,
    )
    assert len(loaded.warnings) == 3


@pytest.mark.parametrize(
    "flag",
    [
        "enable_offload",
        "enable_multi_tenants",
        "enable_snapshot",
        "enable_cxl",
        "enable_oplog",
        "enable_kv_events",
        "enable_snapshot_restore",
        "promotion_on_hit",
        "offload_on_evict",
    ],
)
def test_a_promise_that_is_not_built_refuses_to_start(flag: str) -> None:
    for form in (f"--{flag}", f"--{flag}=true"):
        with pytest.raises(InvalidArgument, match=f"--{flag}=true: not built yet"):
            MASTER_FLAGS.load([form])
    assert MASTER_FLAGS.load([f"--{flag}=false"]).config == MasterConfig()


HA = ("--enable_ha", "--etcd_endpoints=e1:2379;e2:2379", "--advertise_host=m1")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--enable_ha",), "--etcd_endpoints"),
        (("--enable_ha", "--ha_backend_type=redis"), "--ha_backend_connstring"),
        ((*HA, "--ha_backend_type=k8s"), "'k8s' is not built yet"),
        ((*HA, "--port=0"), "set --port"),
        (HA[:2], "--advertise_host"),
        ((*HA, "--cluster_id=a/b"), "cluster_id 'a/b'"),
    ],
)
def test_an_election_without_what_it_needs_is_refused(flags: tuple[str, ...], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        MASTER_FLAGS.load(flags)


def test_what_a_master_writes_into_an_election_can_be_dialled() -> None:
    assert MASTER_FLAGS.load(HA).config.ha_address() == "m1:50001"


@pytest.mark.parametrize("strategy", ["cxl", "ssd_free_ratio_first"])
def test_a_strategy_that_is_not_built_is_named(strategy: str) -> None:
    with pytest.raises(InvalidArgument, match=f"'{strategy}' is not built yet; choose one of random"):
        MASTER_FLAGS.load([f"--allocation_strategy={strategy}"])


@pytest.mark.parametrize("name", ["random", "free_ratio_first", "local_first"])
def test_the_strategies_that_exist_are_taken(name: str) -> None:
    assert MASTER_FLAGS.load(["--allocation_strategy", name]).config.allocation_strategy == name


@pytest.mark.parametrize(
    ("argv", "port", "flag"),
    [
        ([], 50001, "--port"),
        (["--port=7"], 7, "--port"),
        (["--rpc_port=8"], 8, "--rpc_port"),
        (["--port=7", "--rpc_port=8"], 8, "--rpc_port"),
        (["--port=7", "--rpc_port=0"], 7, "--port"),
        (["--port=0"], 0, "--port"),
    ],
)
def test_rpc_port_wins_over_port_and_zero_leaves_it(argv: list[str], port: int, flag: str) -> None:
    config = MASTER_FLAGS.load(argv).config
    assert (config.grpc_port, config.grpc_port_flag) == (port, flag)
    assert config.listen_endpoint() == Endpoint("0.0.0.0", port)


def test_our_own_defaults_are_those_of_the_design() -> None:
    config = MasterConfig()
    assert (config.max_keys, config.max_metadata_bytes) == (10_000_000, 4 << 30)
    assert (config.exists_hold_ms, config.alloc_wait_ms) == (2_000, 100)
    assert (config.remove_confirm_timeout_ms, config.session_grace_ms) == (1_000, 1_000)
    assert (config.clock_step_max_ms, config.lane_port, config.lane_threads) == (500, 0, 0)
    assert (config.replay_window, config.client_ttl_ms) == (1_024, 10_000)
    assert config.lane_thread_count() >= 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--eviction_high_watermark_ratio=1.1"],
            r"--eviction_high_watermark_ratio: 1\.1 is not in 0\.01\.\.1\.0",
        ),
        (["--eviction_ratio=-0.1"], r"--eviction_ratio: -0\.1 is not in"),
        (["--client_ttl=0"], r"--client_ttl: 0ms is not in 1s\.\."),
        (["--client_ttl=500ms"], r"--client_ttl: 500ms is not in 1s\.\."),
        (["--max_keys=0"], r"--max_keys: 0 is not in 1\.\."),
        (["--default_kv_lease_ttl=soon"], r"--default_kv_lease_ttl: 'soon' is not a duration"),
        (["--advertise_host=0.0.0.0"], r"advertise_host '0\.0\.0\.0' means every interface"),
        (["--advertise_host=::"], r"advertise_host '::' means every interface"),
        (["--metrics_port=50001"], r"--port and --metrics_port are both 50001"),
        (["--rpc_port=9003"], r"--rpc_port and --metrics_port are both 9003"),
        (["--lane_port=50001"], r"--port and --lane_port are both 50001"),
        (
            ["--max_kv_soft_pin_ttl=1s"],
            r"max_kv_soft_pin_ttl \(1000 ms\) is less than default_kv_soft_pin_ttl",
        ),
        (
            ["--put_start_release_timeout_sec=10"],
            r"put_start_release_timeout_sec \(10000 ms\) is less than put_start_discard_timeout_sec",
        ),
        (["--lane_threads=1000"], r"--lane_threads: 1000 is not in 0\.\.64"),
        (["--rpc_address=300.1.1.1"], r"--rpc_address: '300\.1\.1\.1' is not an address"),
        (["--evicton_ratio=1"], r"--evicton_ratio is unknown; did you mean --eviction_ratio\?"),
    ],
)
def test_a_bad_setting_is_named_with_its_value(argv: list[str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        MASTER_FLAGS.load(argv)


def test_the_native_master_hears_how_long_an_unfinished_put_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: dict[str, Any] = {}

    class Native:
        def __init__(self, **settings: Any) -> None:
            heard.update(settings)

        def restore_tombstones(self, kept: bytes) -> None: ...
        def start(self) -> None: ...

    monkeypatch.setattr("mooncake_master.native._core.Master", Native)
    flags = ["--put_start_discard_timeout_sec=7", "--put_start_release_timeout_sec=90s"]
    start_native(MASTER_FLAGS.load(flags).config, lane_host="127.0.0.1", epoch=1)
    assert (heard["put_start_discard_ms"], heard["put_start_release_ms"]) == (7_000, 90_000)


def test_several_ports_may_be_any_free_one() -> None:
    config = MASTER_FLAGS.load(["--port=0", "--lane_port=0", "--metrics_port=0"]).config
    assert (config.grpc_port, config.lane_port, config.metrics_port) == (0, 0, 0)


def test_an_interface_gives_its_address() -> None:
    if "lo" not in {name for _, name in socket.if_nameindex()}:
        pytest.skip("no loopback interface of that name")
    assert MASTER_FLAGS.load(["--rpc_interface=lo"]).config.listen_endpoint() == Endpoint("127.0.0.1", 50001)
    with pytest.raises(InvalidArgument, match=r"--rpc_interface: 'nope0' is no interface .*there are: .*lo"):
        interface_address("nope0")


def test_help_shows_the_defaults_that_are_used() -> None:
    text = MASTER_FLAGS.help_text()
    for line in MASTER_FLAGS.load([]).effective():
        name, _, default = line.removeprefix("--").rpartition("  (")[0].partition("=")
        assert f"--{name}  (" in text
        assert f"default {default or 'none'})" in text


def test_the_configuration_needs_no_heavy_import() -> None:
    """A daemon that only prints its help or refuses a flag must answer at once."""
    program = (
        "import sys, mooncake_master.config as c; c.MASTER_FLAGS.load([]); "
        "print([name for name in ('numpy', 'grpc', 'pydantic', 'yaml', 'aiohttp') if name in sys.modules])"
    )
    root = Path(mooncake_store.__file__).parents[1]
    output = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'master'}"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.strip() == "[]"
