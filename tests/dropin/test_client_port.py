"""The client's own HTTP port: health, and what it moved under Mooncake's names."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from dropin.conftest import MIB
from dropin.memory import Memory
from master.running import RunningMaster
from processes import wait_until

from mooncake_client.dropin import MooncakeDistributedStore
from mooncake_client.dropin.client_metrics import BUCKETS_US, Histogram

Dropin = MooncakeDistributedStore

NAMES = (
    "mooncake_transfer_read_bytes",
    "mooncake_transfer_write_bytes",
    "mooncake_transfer_batch_put_latency",
    "mooncake_transfer_batch_get_latency",
    "mooncake_transfer_get_latency",
    "mooncake_transfer_put_latency",
    "mooncake_client_rpc_count",
    "mooncake_client_rpc_latency",
    "mooncake_transfer_read_operation_count",
    "mooncake_transfer_read_operation_bytes",
    "mooncake_transfer_read_operation_latency",
    "mooncake_transfer_write_operation_count",
    "mooncake_transfer_write_operation_bytes",
    "mooncake_transfer_write_operation_latency",
    "mooncake_ssd_read_bytes_total",
    "mooncake_ssd_write_bytes_total",
    "mooncake_ssd_read_ops_total",
    "mooncake_ssd_write_ops_total",
    "mooncake_ssd_read_latency_us",
    "mooncake_ssd_write_latency_us",
    "mooncake_ssd_total_bytes_total",
    "mooncake_ssd_total_ops_total",
    "mooncake_ssd_total_latency_us",
    "mooncake_ssd_read_latency_summary_us",
    "mooncake_ssd_write_latency_summary_us",
    "mooncake_ssd_total_latency_summary_us",
)


def settings(master: str) -> tuple[str, str, int, int, str, str, str]:
    return ("127.0.0.1", "P2PHANDSHAKE", 16 * MIB, MIB, "tcp", "", master)


@pytest.fixture
def listening(master_address: str) -> Iterator[Dropin]:
    store = MooncakeDistributedStore()
    given = {"enable_client_http_server": True, "client_http_port": 0, "tenant_id": "listening"}
    assert store.setup(*settings(master_address), **given) == 0
    yield store
    assert store.close() == 0


def port_of(store: Dropin) -> int:
    membership = store._membership
    assert membership is not None
    assert membership.http is not None
    return membership.http.port


def ask(store: Dropin, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port_of(store)}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def numbers(store: Dropin) -> dict[str, int]:
    """Every sample of /metrics."""
    status, text = ask(store, "/metrics")
    assert status == 200
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: int(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_port_answers_as_long_as_the_store_is_open(listening: Dropin, master_address: str) -> None:
    assert ask(listening, "/health") == (200, '{"status": "healthy", "code": 0}')
    assert ask(listening, "/metrics/summary")[0] == 200
    assert ask(listening, "/nothing")[0] == 404
    port, other = port_of(listening), MooncakeDistributedStore()
    taken = {"enable_client_http_server": True, "client_http_port": port}
    assert other.setup(*settings(master_address), **taken) < 0
    assert listening.close() == 0
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_health_of_a_store_whose_master_is_gone() -> None:
    store = MooncakeDistributedStore()
    with RunningMaster() as daemon:
        given = {"enable_client_http_server": True, "client_http_port": 0}
        assert store.setup(*settings(f"127.0.0.1:{daemon.grpc_port}"), **given) == 0
    wait_until(lambda: store.health_check() == 2, "the master is missed")
    assert ask(store, "/health") == (503, '{"status": "master_unreachable", "code": 2}')
    assert store.close() == 0


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_mooncakes_is_told_with_its_type(listening: Dropin, name: str) -> None:
    _, text = ask(listening, "/metrics")
    kind = "summary" if "summary" in name else "histogram" if "latency" in name else "counter"
    assert len(re.findall(rf"^# TYPE {name} {kind}$", text, re.MULTILINE)) == 1
    assert len(re.findall(rf"^# HELP {name} \S", text, re.MULTILINE)) == 1


def test_what_is_moved_is_counted_by_kind_of_call(listening: Dropin) -> None:
    memory = Memory(b"0123456789")
    listening.put("one", b"123")
    listening.put("one", b"123")  # it has a value: nothing is written
    listening.put_batch(["a", "b"], [b"12345", b"1234567"])
    listening.put_parts("parts", b"12", b"3456")
    listening.upsert("one", b"12345678")
    listening.put_from("from", memory.ptr, 10)
    listening.get("one")
    listening.get_batch(["a", "b", "missing"])
    listening.get_into("from", memory.ptr, 10)
    listening.get_into("from", memory.ptr, 9)  # too small
    listening.get_buffer("a")
    listening.is_exist("a")
    listening.batch_is_exist(["a", "b"])
    listening.remove("a")
    found = numbers(listening)
    written, read = 3 + 12 + 6 + 8 + 10, 8 + 12 + 10 + 5
    assert found["mooncake_transfer_write_bytes"] == written
    assert found["mooncake_transfer_read_bytes"] == read
    by_kind = {
        'write_operation_count{op_name="put"}': 4,
        'write_operation_count{op_name="batch_put"}': 1,
        'write_operation_bytes{op_name="batch_put"}': 12,
        'write_operation_count{op_name="upsert"}': 1,
        'write_operation_bytes{op_name="upsert"}': 8,
        'read_operation_count{op_name="get"}': 1,
        'read_operation_bytes{op_name="batch_get"}': 12,
        'read_operation_count{op_name="get_into"}': 2,
        'read_operation_bytes{op_name="get_into"}': 10,
        'read_operation_bytes{op_name="get_buffer"}': 5,
        'read_operation_latency_count{op_name="get_into"}': 2,
        "put_latency_count": 5,
        "batch_put_latency_count": 1,
        "get_latency_count": 4,
        "batch_get_latency_count": 1,
    }
    assert {name: found[f"mooncake_transfer_{name}"] for name in by_kind} == by_kind
    rpcs = {"ExistKey": 1, "BatchExistKey": 1, "Remove": 1, "GetReplicaList": 1}
    assert {name: found[f'mooncake_client_rpc_count{{rpc_name="{name}"}}'] for name in rpcs} == rpcs
    assert found["mooncake_client_nodes"] == 1
    assert f"read_bytes={read} " in ask(listening, "/metrics/summary")[1]


def test_buckets_hold_those_below_them() -> None:
    histogram = Histogram()
    for elapsed in (1, 50, 51, BUCKETS_US[-1], BUCKETS_US[-1] + 1):
        histogram.observe(elapsed)
    lines = list(histogram.lines("n", 'k="v"'))
    assert lines[:2] == ['n_bucket{k="v",le="50"} 2', 'n_bucket{k="v",le="100"} 3']
    assert lines[-4:] == [
        f'n_bucket{{k="v",le="{BUCKETS_US[-1]}"}} 4',
        'n_bucket{k="v",le="+Inf"} 5',
        f'n_sum{{k="v"}} {1 + 50 + 51 + 2 * BUCKETS_US[-1] + 1}',
        'n_count{k="v"} 5',
    ]


def test_metrics_can_be_switched_off(master_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MC_STORE_CLIENT_METRIC", "0")
    store = MooncakeDistributedStore()
    given = {"enable_client_http_server": True, "client_http_port": 0}
    assert store.setup(*settings(master_address), **given) == 0
    assert ask(store, "/health")[0] == 200
    for path in ("/metrics", "/metrics/summary"):
        assert ask(store, path) == (503, "metrics not available\n")
    assert store.close() == 0
    monkeypatch.setenv("MC_STORE_CLIENT_METRIC", "perhaps")
    assert store.setup(*settings(master_address), **given) == -600
