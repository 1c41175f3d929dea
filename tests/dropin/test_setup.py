"""Joining the pool in every form that engines use, what is refused, and the end."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import re
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from dropin.conftest import MIB, JoinPool
from processes import NODE_READY, free_port, node

from mooncake_client.dropin import MooncakeDistributedStore
from mooncake_client.dropin.mooncake_config import MooncakeConfig

Dropin = MooncakeDistributedStore


@pytest.fixture
def fresh() -> Any:
    store = MooncakeDistributedStore()
    yield store
    store.close()


def works(store: Dropin) -> bool:
    """SGLang's warm-up."""
    value = bytes(4096)
    done = (
        store.put("warm-up", value) == 0 and store.is_exist("warm-up") == 1 and store.get("warm-up") == value
    )
    return done and store.remove("warm-up", True) == 0


def test_seven_settings_by_position(fresh: Dropin, master_address: str) -> None:
    assert fresh.setup("localhost", "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", master_address) == 0
    assert works(fresh)


def test_eight_settings_and_names_as_sglang_passes_them(fresh: Dropin, master_address: str) -> None:
    settings = ("localhost", "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", master_address, None)
    assert fresh.setup(*settings, tenant_id="of a tenant", enable_ssd_offload=False) == 0
    assert works(fresh)


def test_all_by_name(fresh: Dropin, master_address: str) -> None:
    assert (
        fresh.setup(
            local_hostname="127.0.0.1",
            metadata_server="http://127.0.0.1:8080/metadata",
            global_segment_size=16 * MIB,
            local_buffer_size=MIB,
            protocol="TCP",
            rdma_devices="",
            master_server_addr=master_address,
        )
        == 0
    )
    assert works(fresh)


@pytest.mark.parametrize("address", ["master_server_addr", "master_server_address"])
@pytest.mark.parametrize("devices", ["rdma_devices", "device_name", "device_names"])
def test_dict_of_strings_in_both_spellings(
    fresh: Dropin, master_address: str, address: str, devices: str
) -> None:
    """LMCache sends other names than Mooncake's setup knows, and Mooncake then asks the default master."""
    settings = {
        "local_hostname": "localhost",
        "metadata_server": "P2PHANDSHAKE",
        "global_segment_size": "16 MB",
        "local_buffer_size": "16777216",
        "protocol": "tcp",
        devices: "",
        address: master_address,
        "transfer_timeout": "1",
        "storage_root_dir": "",
        "save_chunk_meta": "False",
    }
    assert fresh.setup(settings) == 0
    assert works(fresh)


def test_dict_as_a_keyword(fresh: Dropin, master_address: str) -> None:
    config = {"local_hostname": "localhost", "metadata_server": "x", "master_server_addr": master_address}
    assert fresh.setup(config=config) == 0
    assert works(fresh)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"golbal_segment_size": "1"}, "golbal_segment_size.*global_segment_size"),
        ({"global_segment_size": "50%"}, "global_segment_size.*50%"),
        ({"global_segment_size": "-5"}, "global_segment_size.*-5"),
        ({"local_buffer_size": ""}, "local_buffer_size"),
        ({"local_hostname": "0.0.0.0"}, "local_hostname.*0.0.0.0"),
        ({"local_hostname": ""}, "local_hostname"),
        ({"master_server_addr": "0.0.0.0:1"}, "0.0.0.0:1"),
        ({"master_server_addr": "etcd://u:p@127.0.0.1:2379"}, "etcd is read without a user"),
        ({"master_server_address": "127.0.0.1:1"}, "master_server_address is given twice"),
        ({"protocol": ""}, "protocol"),
        ({"protocol": "tcpp"}, "protocol 'tcpp' is unknown"),
        ({"control": "carrier"}, "control: 'carrier' is unknown"),
        ({"enable_ssd_offload": "maybe"}, "enable_ssd_offload.*maybe"),
        ({"client_http_port": "70000"}, "client_http_port.*70000"),
        ({"metadata_server": None}, "metadata_server"),
    ],
)
def test_wrong_setting_is_refused_by_name(
    fresh: Dropin, master_address: str, caplog: pytest.LogCaptureFixture, change: dict[str, Any], named: str
) -> None:
    settings: dict[str, Any] = {
        "local_hostname": "localhost",
        "metadata_server": "P2PHANDSHAKE",
        "master_server_addr": master_address,
    }
    settings |= change
    settings = {name: value for name, value in settings.items() if value is not None}
    with caplog.at_level(logging.ERROR):
        assert fresh.setup(settings) == -600
    assert caplog.messages
    [message] = caplog.messages
    assert re.search(named, message), message


def test_a_hostname_that_the_master_cannot_dial_is_refused_by_that_name(
    fresh: Dropin, master_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ("no-such-host.invalid", "P2PHANDSHAKE", 16 * MIB, 16 * MIB, "tcp", "", master_address)
    with caplog.at_level(logging.ERROR):
        assert fresh.setup(*settings) < 0
    assert re.search(r"local_hostname no-such-host\.invalid.*UNREACHABLE", caplog.text)


def test_missing_settings_among_several_raise(fresh: Dropin) -> None:
    with pytest.raises(TypeError, match="master_server_addr"):
        fresh.setup("localhost", "P2PHANDSHAKE", 0, 0, "tcp", "")
    with pytest.raises(TypeError, match="no_such"):
        fresh.setup("localhost", "P2PHANDSHAKE", 0, 0, "tcp", "", "127.0.0.1:1", no_such=1)
    with pytest.raises(TypeError):
        fresh.setup()


def test_what_is_not_built_is_refused(fresh: Dropin, master_address: str) -> None:
    settings = ("localhost", "P2PHANDSHAKE", 0, 0, "tcp", "", master_address)
    assert fresh.setup(*settings, enable_ssd_offload=True) == -1012
    assert fresh.init_all("tcp", "", 1) == -600


def test_dummy_client_asks_a_node_for_its_master(
    fresh: Dropin, master_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    with node(master_address, f"--port={port}") as process:
        process.wait_for(NODE_READY)
        assert fresh.setup_dummy(10_000, 16 * MIB, f"127.0.0.1:{port}") == 0
        assert works(fresh)
        address = fresh.alloc_from_mem_pool(8_000)
        ctypes.memset(address, 7, 8_000)
        assert fresh.put_from("k", address, 8_000) == 0
        assert fresh.alloc_from_mem_pool(8_000) == 0
        assert fresh.alloc_from_mem_pool(2_000) != 0
        assert fresh.close() == 0
        assert fresh.alloc_from_mem_pool(1) == 0
        assert process.end() == 0
    assert fresh.setup_dummy(1, 1, f"127.0.0.1:{port}") == -900
    assert f"127.0.0.1:{port}" in caplog.text
    assert fresh.setup_dummy(1, 1, "no port:x") == -600


def test_other_transports_are_carried_by_tcp_with_a_warning(
    fresh: Dropin, master_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert fresh.setup("localhost", "P2PHANDSHAKE", 16 * MIB, MIB, "rdma", "mlx5_0", master_address) == 0
    assert "rdma" in "".join(caplog.messages)
    assert works(fresh)


def test_master_that_is_not_there(fresh: Dropin, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert fresh.setup("localhost", "P2PHANDSHAKE", 0, 0, "tcp", "", f"127.0.0.1:{port}") == -900
    assert f"127.0.0.1:{port}" in caplog.text
    assert fresh.health_check() == 1


def test_port_in_the_name_is_the_data_port(join: JoinPool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    store = join(16 * MIB, f"127.0.0.1:{port}")
    assert store.get_hostname() == f"127.0.0.1:{port}"
    with socket.create_connection(("127.0.0.1", port)):
        pass
    assert works(store)
    other = join(16 * MIB)
    host, _, other_port = other.get_hostname().rpartition(":")
    assert host == "127.0.0.1"
    assert int(other_port) > 0


def test_port_that_is_taken_is_named(
    fresh: Dropin, master_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert fresh.setup(f"127.0.0.1:{port}", "x", MIB, 0, "tcp", "", master_address) == -600
    assert str(port) in caplog.text


def test_before_setup_and_after_close(master_address: str) -> None:
    store = MooncakeDistributedStore()
    for _ in range(2):
        assert store.get("k") == b""
        assert store.get_batch(["a", "b"]) == [b"", b""]
        assert store.put("k", b"v") == -600
        assert store.put_from("k", 1, 1) == -600
        assert store.upsert("k", b"v") == -600
        assert store.put_tensor("k", object()) == -600
        assert store.get_tensor("k") is None
        assert store.get_buffer("k") is None
        assert store.batch_is_exist(["a", "b"]) == [-600, -600]
        assert store.get_size("k") == -600
        assert store.remove("k") == -600
        assert store.remove_all() == -600
        assert store.register_buffer(1, 1) == -600
        assert store.get_replica_desc("k") == []
        assert store.batch_put_from_multi_buffers(["a"], [[1]], [[1]]) == [-600]
        assert store.batch_get_session_start(["a"]) == [-600]
        assert store.batch_put_session_start(["a"], [1]) == [-600]
        assert store.batch_put_session_end(["a"]) == [-600]
        assert store.batch_get_session_end(["a"]) == -1
        assert store.unmount_segment(["1-1"]) == -600
        assert store.health_check() == 1
        assert store.get_hostname() == ""
        if store._membership is None:
            assert store.setup("localhost", "x", MIB, 0, "tcp", "", master_address) == 0
            assert store.health_check() == 0
        assert store.close() == 0
        assert store.close() == 0


def test_second_setup_replaces_the_first(fresh: Dropin, master_address: str) -> None:
    settings = ("localhost", "P2PHANDSHAKE", 16 * MIB, MIB, "tcp", "", master_address)
    assert fresh.setup(*settings, tenant_id="first") == 0
    first = fresh.get_hostname()
    assert fresh.setup(*settings, tenant_id="second") == 0
    assert fresh.get_hostname() != first
    assert works(fresh)


def test_memory_goes_with_its_store(join: JoinPool) -> None:
    reader, lender = join(), join(16 * MIB)
    assert lender.put("k", b"v") == 0
    assert reader.get("k") == b"v"
    assert lender.close() == 0
    assert reader.get("k") == b""
    assert reader.put("k", b"v") == -200


def test_store_that_is_dropped_leaves_the_pool(join: JoinPool, master_address: str) -> None:
    reader = join()
    lender = MooncakeDistributedStore()
    assert lender.setup("127.0.0.1", "x", 16 * MIB, 0, "tcp", "", master_address) == 0
    name = lender.get_hostname()
    client = reader._client()
    assert client is not None
    assert name in {segment["name"] for segment in client.segments()[1]}
    del lender
    gc.collect()
    assert name not in {segment["name"] for segment in client.segments()[1]}


def test_child_of_a_fork_has_no_store(store: Dropin) -> None:
    pid = os.fork()
    if pid == 0:
        silent = store.get("k") == b"" and store.put("k", b"v") == -600 and store.close() == 0
        os._exit(0 if silent else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert works(store)


def test_three_threads_share_a_store(store: Dropin) -> None:
    """As vLLM's lookup, sender and receiver do."""
    failures: list[object] = []

    def run(number: int) -> None:
        keys = [f"{number}-{index}" for index in range(20)]
        for _ in range(10):
            values = [f"{key} of its own".encode() for key in keys]
            if store.put_batch(keys, values) != 0 or store.get_batch(keys) != values:
                failures.append(number)
            if store.batch_is_exist(keys) != [1] * 20 or store.batch_remove(keys, True) != [0] * 20:
                failures.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# ---- the configuration of files and the environment


V0 = """{
  "local_hostname": "127.0.0.1",
  "metadata_server": "etcd://127.0.0.1:2379",
  "protocol": "rdma",
  "device_name": "erdma_0",
  "master_server_address": "127.0.0.1:50001"
}"""


def test_vllm_v0_file(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.json"
    path.write_text(V0)
    config = MooncakeConfig.from_file(str(path))
    assert (config.global_segment_size, config.local_buffer_size) == (3355443200, 1073741824)
    assert (config.protocol, config.device_name, config.tenant_id) == ("rdma", "erdma_0", "default")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512mb", 512 << 20),
        ("1.5GB", 3 << 29),
        ("1e9", 10**9),
        ("16 MB", 16 << 20),
        ("1tb", 1 << 40),
        ("0", 0),
        (7, 7),
    ],
)
def test_sizes_are_the_same_through_every_door(
    text: str | int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mooncake.json"
    shown = f'"{text}"' if isinstance(text, str) else str(text)
    path.write_text(
        '{"local_hostname": "h", "metadata_server": "m", "master_server_address": "a:1",'
        f' "global_segment_size": {shown}}}'
    )
    monkeypatch.delenv("MOONCAKE_CONFIG_PATH", raising=False)
    monkeypatch.setenv("MOONCAKE_MASTER", "a:1")
    monkeypatch.setenv("MOONCAKE_GLOBAL_SEGMENT_SIZE", str(text))
    direct = MooncakeConfig("h", "m", text, 0, "tcp", "", "a:1")  # type: ignore[arg-type]
    for config in (MooncakeConfig.from_file(str(path)), MooncakeConfig.load_from_env(), direct):
        assert config.global_segment_size == size


@pytest.mark.parametrize("size", ["-5", "50%", "abc", ""])
def test_wrong_sizes_name_the_field(size: str) -> None:
    with pytest.raises(ValueError, match="global_segment_size"):
        MooncakeConfig("h", "m", size, 0, "tcp", "", "a:1")  # type: ignore[arg-type]


def test_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MOONCAKE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(ValueError, match="MOONCAKE_MASTER"):
        MooncakeConfig.load_from_env()
    monkeypatch.setenv("MOONCAKE_MASTER", "a:1")
    config = MooncakeConfig.load_from_env()
    assert (config.local_hostname, config.metadata_server, config.protocol) == (
        "localhost",
        "P2PHANDSHAKE",
        "tcp",
    )
    monkeypatch.setenv("MOONCAKE_ENABLE_CLIENT_HTTP_SERVER", "Enable")
    monkeypatch.setenv("MOONCAKE_TENANT_ID", "t")
    config = MooncakeConfig.load_from_env()
    assert (config.enable_client_http_server, config.tenant_id) == (True, "t")
    path = tmp_path / "mooncake.json"
    path.write_text(V0)
    monkeypatch.setenv("MOONCAKE_CONFIG_PATH", str(path))
    assert MooncakeConfig.load_from_env().master_server_address == "127.0.0.1:50001"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[]", "list"),
        ("{", "JSON"),
        ('{"metadata_server": "m", "master_server_address": "a:1"}', "local_hostname"),
        (V0.replace("protocol", "protocl"), "protocl.*protocol"),
    ],
)
def test_wrong_files(text: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "mooncake.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=named):
        MooncakeConfig.from_file(str(path))
