"""The node's flags: Mooncake's are known, and an address that nobody can dial is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mooncake_store
from mooncake_client.node_config import NODE_FLAGS, NodeConfig
from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import InvalidArgument

# Flags of Mooncake's standalone client with their defaults, where ours are the same.
MOONCAKE_DEFAULTS = {
    "host": "0.0.0.0",
    "global_segment_size": "4 GB",
    "local_buffer_size": "0",
    "protocol": "tcp",
    "device_names": "",
    "threads": "1",
    "tenant_id": "default",
    "enable_offload": "false",
    "start_offload_rpc_server": "true",
    "enable_http_server": "false",
    "http_port": "9300",
    "use_mmap_arena_allocator": "false",
    "mmap_arena_pool_size": "8589934592",
}


@pytest.mark.parametrize(("name", "default"), MOONCAKE_DEFAULTS.items())
def test_every_flag_of_mooncake_is_known_with_its_default(name: str, default: str) -> None:
    row = next(row for row in NODE_FLAGS.flags if row.name == name)
    assert row.parse(default, where=name) == row.default


def test_mooncakes_defaults_written_out_start_a_node() -> None:
    argv = [f"--{name}={default}" for name, default in MOONCAKE_DEFAULTS.items()]
    assert NODE_FLAGS.load(argv).config == NodeConfig()


def test_a_start_script_of_mooncakes_users_works() -> None:
    loaded = NODE_FLAGS.load(
        [
            "--global_segment_size=64 GB",
            "--master_server_address=10.0.0.1:50051",
            "--port=50052",
            "--metadata_server=P2PHANDSHAKE",
            "--protocol=TCP",
            "--host=10.0.0.2",
            "--threads=8",
        ]
    )
    assert loaded.config == NodeConfig(
        global_segment_size=64 << 30,
        master_server_address=(Endpoint("10.0.0.1", 50051),),
        host="10.0.0.2",
        port=50052,
    )
    assert len(loaded.warnings) == 1
    assert "--data_threads sets the threads" in "".join(loaded.warnings)


def test_several_masters_and_ipv6_are_understood() -> None:
    config = NODE_FLAGS.load(["--master_server_address", "m1:50001,[::1]:50002"]).config
    assert config.master_server_address == (Endpoint("m1", 50001), Endpoint("::1", 50002))


@pytest.mark.parametrize(
    ("argv", "advertised"),
    [
        ([], None),
        (["--host=::"], None),
        (["--host=10.1.2.3"], "10.1.2.3"),
        (["--advertise_host=outside.example"], "outside.example"),
        (["--host=10.1.2.3", "--advertise_host=192.0.2.1"], "192.0.2.1"),
    ],
)
def test_what_is_advertised_is_never_a_wildcard(argv: list[str], advertised: str | None) -> None:
    assert NODE_FLAGS.load(argv).config.advertised_host() == advertised


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--golbal_segment_size=1GB"], r"did you mean --global_segment_size\?"),
        (["--global_segment_size=50%"], r"--global_segment_size: '50%' is not a size"),
        (["--global_segment_size=-5"], r"--global_segment_size: '-5' is not a size"),
        (["--global_segment_size="], r"--global_segment_size: '' is not a size"),
        (["--advertise_host=0.0.0.0"], r"advertise_host '0\.0\.0\.0' means every interface"),
        (["--master_server_address=0.0.0.0:1"], r"master_server_address 0\.0\.0\.0:1 means every interface"),
        (["--master_server_address=etcd://u:p@h:1"], "an election in etcd is read without a user"),
        (["--master_server_address=127.0.0.1"], r"'127\.0\.0\.1' has no port"),
        (["--protocol=rdma"], r"--protocol: 'rdma' is not built yet; choose one of tcp"),
        (["--protocol=carrier"], r"--protocol: 'carrier' is unknown"),
        (["--enable_offload"], r"--enable_offload=true: not built yet"),
        (["--segment_name=" + "x" * 256], r"segment_name .* at most 255 bytes"),
        (["--metadata_server=ftp://h:1"], r"metadata_server 'ftp://h:1' must be etcd://"),
        (["--metadata_ttl_s=0"], r"--metadata_ttl_s: 0ms is not in 1s\.\."),
        (["--host_id=a\nb"], r"host_id 'a\\nb' must be printable"),
        (["--data_port=99999"], r"--data_port: port '99999' is not in 0\.\.65535"),
    ],
)
def test_a_bad_setting_is_named_with_its_value(argv: list[str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        NODE_FLAGS.load(argv)


def test_a_password_is_never_printed() -> None:
    loaded = NODE_FLAGS.load(["--metadata_server=redis://u:s3cret@h:1/3"])
    assert loaded.config.metadata_server == "redis://u:s3cret@h:1/3"
    assert "s3cret" not in "".join(loaded.effective())
    with pytest.raises(InvalidArgument) as refused:
        NODE_FLAGS.load(["--metadata_server=u:s3cret@h:1"])
    assert "s3cret" not in str(refused.value)


def test_no_masters_at_all_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="master_server_address is empty"):
        NodeConfig(master_server_address=())


def test_what_is_left_to_choose_has_a_value() -> None:
    config = NodeConfig()
    assert config.data_thread_count() >= 1
    assert config.memory_fault_thread_count() >= 1
    assert config.effective_host_id()
    assert NodeConfig(host_id="rack-7").effective_host_id() == "rack-7"


def test_a_node_process_imports_neither_numpy_nor_pydantic_nor_grpc() -> None:
    program = (
        "import sys, mooncake_client.node_config as c; c.NODE_FLAGS.load(['--threads=2']); "
        "print([name for name in ('numpy', 'grpc', 'pydantic', 'yaml', 'aiohttp') if name in sys.modules])"
    )
    root = Path(mooncake_store.__file__).parents[1]
    output = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'client'}"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.strip() == "[]"
