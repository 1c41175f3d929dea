"""The daemon as an operator meets it: ports, HTTP, metrics, signals, refusals to start."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from master.doors import LaneDoor
from master.running import RunningMaster
from master.test_both_doors import put
from processes import wait_until

from mooncake_master.daemon import Daemon
from mooncake_store._version import __version__
from mooncake_store.errors import StoreError
from mooncake_store.status import Status
from mooncake_store.v1 import master_pb2 as pb
from mooncake_store.v1 import master_pb2_grpc as pb_grpc

HANG_S = 30
MIB = 1 << 20


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with RunningMaster("--enable_metric_reporting=false", "--dial_back=false") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def stored(daemon: Daemon) -> Iterator[LaneDoor]:
    """A session of the default tenant with a segment and two keys, one of them not UTF-8."""
    door = LaneDoor(daemon.lane_port)
    door.open_session("default")
    door.mount("seg-0", 64 * MIB)
    put(door, b"key-1", 100)
    put(door, b"\xff\x00", 200)
    yield door
    door.close()


def get(daemon: Daemon, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{daemon.http_port}{path}", timeout=HANG_S) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metric(page: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
    assert found, f"{name} is not on the page"
    return float(found[1])


def test_health_says_who_answers(daemon: Daemon) -> None:
    status, body = get(daemon, "/health")
    health = json.loads(body)
    assert status == 200
    assert health["status"] == "ok"
    assert health["version"] == __version__
    assert health["lane_port"] == daemon.lane_port


def test_query_key_answers_in_mooncakes_form(daemon: Daemon, stored: LaneDoor) -> None:
    status, body = get(daemon, "/query_key?key=key-1")
    [value] = json.loads(body)["data"]
    assert status == 200
    assert value["size_"] == 100
    assert value["protocol_"] == "tcp"
    status, body = get(daemon, "/query_key?key=absent")
    assert status == 404
    assert json.loads(body) == {
        "success": False,
        "error_code": -704,
        "error_message": "OBJECT_NOT_FOUND",
    }
    assert get(daemon, "/query_key")[0] == 400


def test_batch_query_keys_answers_each(daemon: Daemon, stored: LaneDoor) -> None:
    status, body = get(daemon, "/batch_query_keys?keys=key-1,absent")
    data = json.loads(body)["data"]
    assert status == 200
    assert (data["key-1"]["ok"], data["absent"]["ok"]) == (True, False)
    assert get(daemon, "/batch_query_keys")[0] == 400


def test_all_keys_and_segments_are_listed(daemon: Daemon, stored: LaneDoor) -> None:
    assert sorted(get(daemon, "/get_all_keys")[1].splitlines()) == ["\\xff\x00", "key-1"]
    assert get(daemon, "/get_all_segments")[1] == "seg-0\n"
    [segment] = json.loads(get(daemon, "/get_segments_detail")[1])["segments"]
    assert segment["size_bytes"] == 64 * MIB
    assert segment["allocator_used_bytes"] == 128 + 256  # what 100 and 200 bytes cost at 64 a piece
    assert "Used(bytes): 384" in get(daemon, "/query_segment?segment=seg-0")[1]
    assert get(daemon, "/query_segment?segment=none")[0] == 404


def test_metrics_count_what_happened(daemon: Daemon, stored: LaneDoor) -> None:
    page = get(daemon, "/metrics")[1]
    assert metric(page, "master_key_count") == 2
    assert metric(page, "master_total_capacity_bytes") == 64 * MIB
    assert metric(page, "master_allocated_bytes") == 384
    assert 'version="' + __version__ in page
    before = metric(page, "master_exist_key_requests_total")
    stored.exists([b"key-1"])
    assert metric(get(daemon, "/metrics")[1], "master_exist_key_requests_total") == before + 1
    assert "keys 2" in get(daemon, "/metrics/summary")[1]


@pytest.mark.parametrize(
    "sent",
    [b"\x80\x04\x95pickle", b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 70_000, b"GET /" + b"a" * 70_000],
)
def test_bytes_that_are_no_request_end_the_connection_and_log_nothing(
    daemon: Daemon, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    address = ("127.0.0.1", daemon.http_port)
    with socket.create_connection(address, timeout=HANG_S) as peer, contextlib.suppress(ConnectionError):
        peer.sendall(sent + b"\r\n\r\n")
        while peer.recv(65536):
            pass
    assert caplog.records == []
    assert get(daemon, "/health")[0] == 200


def test_a_request_that_never_gets_whole_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooncake_master.daemon.HTTP_IDLE_S", 0.1)
    with RunningMaster() as daemon:
        for sent in (b"", b"GET /health HT"):
            with socket.create_connection(("127.0.0.1", daemon.http_port), timeout=HANG_S) as peer:
                peer.sendall(sent)
                assert peer.recv(1) == b""


def test_discover_names_the_lane_and_the_version(daemon: Daemon) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{daemon.grpc_port}") as channel:
        stub = pb_grpc.MasterServiceStub(channel)  # type: ignore[no-untyped-call]
        reply = stub.Discover(pb.DiscoverRequest(), timeout=HANG_S)
    assert reply.lane_endpoint == f":{daemon.lane_port}"
    assert reply.epoch == 1
    assert len(reply.master_uuid) == 16
    assert reply.software == __version__


@pytest.mark.parametrize(
    ("epoch", "master", "names"),
    [(2, b"short", "followed_master"), (2**24, bytes(16), "16777216"), (2**64 - 1, bytes(16), "")],
)
def test_no_reign_ends_for_a_later_one_that_cannot_be(
    daemon: Daemon, epoch: int, master: bytes, names: str
) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{daemon.grpc_port}") as channel:
        stub = pb_grpc.MasterServiceStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.RpcError) as refused:
            stub.Discover(pb.DiscoverRequest(followed_epoch=epoch, followed_master=master), timeout=HANG_S)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert names in refused.value.details()
        assert stub.Discover(pb.DiscoverRequest(), timeout=HANG_S).deposed_by_epoch == 0


@pytest.mark.parametrize("flag", ["--port", "--lane_port", "--metrics_port"])
def test_a_busy_port_is_one_line_that_names_port_and_flag(flag: str) -> None:
    """UP 23: every port of the master."""
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        master = RunningMaster(f"{flag}={port}")
        with pytest.raises(StoreError) as refused, master:
            pass
    assert str(refused.value) == (
        f"cannot listen on 127.0.0.1:{port} (port {port}, flag {flag}): the port is in use by another process"
    )


def test_a_port_is_free_again_after_stop() -> None:
    with RunningMaster() as first:
        port = first.grpc_port
    with RunningMaster(f"--port={port}") as second:
        assert second.grpc_port == port


def start_process(*flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "import sys; from mooncake_master.cli import main; sys.exit(main())"]
    return subprocess.Popen([*command, *flags], stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_process_cleanly(number: signal.Signals) -> None:
    flags = ["--port=0", "--metrics_port=0", "--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1"]
    with start_process(*flags) as process:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if "serves gRPC" in line:
                break
        process.send_signal(number)
        assert process.wait(HANG_S) == 0, "".join(seen) + process.stderr.read()
    assert any("--eviction_high_watermark_ratio" in line for line in seen)


def test_a_wrong_flag_is_refused_by_name() -> None:
    with start_process("--prot=1") as process:
        assert process.stderr is not None
        message = process.stderr.read()
        assert process.wait(HANG_S) == 2
    assert "--prot" in message
    assert "did you mean --port?" in message


def test_a_flag_that_promises_what_is_not_built_refuses_to_start() -> None:
    with start_process("--enable_offload=true") as process:
        assert process.stderr is not None
        message = process.stderr.read()
        assert process.wait(HANG_S) == 2
    assert "enable_offload" in message


def test_removes_do_not_wait_for_a_state_file_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of them would, for remove_confirm_timeout: an earlier master ruled, so they are to be kept."""
    monkeypatch.setattr("mooncake_master.daemon.STATE_RETRY_S", 3_600.0)
    file = tmp_path / "reign.json"
    file.write_text('{"epoch": 1}')
    with RunningMaster(f"--state_file={file}", "--remove_confirm_timeout_ms=600s") as daemon:
        (tmp_path / "reign.json.new").symlink_to("/dev/full")
        door = LaneDoor(daemon.lane_port)
        door.open_session("default")
        for key in (b"one", b"two", b"three"):
            assert door.remove([key]) == [Status.OBJECT_NOT_FOUND]
        door.close()
    warnings = [record.getMessage() for record in caplog.records if "--state_file" in record.getMessage()]
    assert len(warnings) == 1
    assert "No space left" in warnings[0]


def test_a_question_of_an_operator_is_not_told_as_a_lost_client() -> None:
    """The daemon's own session for such questions expired, and that was counted and logged as a client's."""
    with RunningMaster("--client_ttl=2", "--enable_metric_reporting=false") as daemon:
        assert get(daemon, "/get_all_keys") == (200, "")
        door = LaneDoor(daemon.lane_port)
        door.open_session("default")  # younger than the daemon's own, and silent from here on
        native = daemon._native
        assert native is not None
        wait_until(lambda: native.stats()["active_session_count"] != 2, "a session expires")
        stats = native.stats()
        door.close()
        assert (stats["active_session_count"], stats["sessions_expired_total"]) == (1, 1)
