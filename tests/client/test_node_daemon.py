"""The `mooncake_client` process: small, clear when it cannot start, patient when there is no master."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from processes import NODE, NODE_READY, Process, address_of, free_port, master, node

from mooncake_client.node_daemon import main

RSS_KIB_MAX = 48 * 1024
"""Without the segment; DESIGN: engines' hosts run one beside every engine."""


def kib(pid: int, field: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found.group(1))


def test_a_node_without_memory_is_refused_by_its_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--global_segment_size=0"]) == 2
    message = capsys.readouterr().err
    assert "--global_segment_size=0 lends no memory" in message
    assert message.count("\n") == 1


def test_a_wrong_flag_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--golbal_segment_size=1gb"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_busy_port_is_named_with_its_flag() -> None:
    """UP 23: the port of a node."""
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with node("127.0.0.1:1", f"--data_port={port}") as process:
            assert process.wait() == 1
    last = process.log.splitlines()[-1]
    assert last.endswith(
        f"ERROR mooncake_store.node: cannot listen on 127.0.0.1:{port} (port {port}, flag --data_port): "
        "the port is in use by another process"
    )


@pytest.mark.parametrize("flags", [["--port"], ["--enable_http_server", "--http_port"]])
def test_a_busy_http_port_is_named_with_its_flag(flags: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with node("127.0.0.1:1", *flags[:-1], f"{flags[-1]}={port}") as process:
            assert process.wait() == 1
    assert f"(port {port}, flag {flags[-1]}): the port is in use" in process.log.splitlines()[-1]


def test_a_node_tells_health_counters_and_its_master_over_http() -> None:
    def ask(path: str) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    port = free_port()
    with master() as leader:
        address = address_of(leader)
        with node(address, "--enable_http_server", f"--http_port={port}") as process:
            process.wait_for(NODE_READY)
            assert ask("/health") == (200, b'{"status": "healthy", "code": 0}')
            assert ask("/master") == (200, json.dumps({"master_server_address": [address]}).encode())
            status, metrics = ask("/metrics")
            assert (status, b"mooncake_client_" in metrics) == (200, True)
            assert ask("/")[0] == 404
            assert process.end() == 0
    with node(f"127.0.0.1:{free_port()}", "--enable_http_server", f"--http_port={port}") as process:
        process.wait_for("waiting for the master")
        assert ask("/health") == (503, b'{"status": "master_unreachable", "code": 2}')
        assert process.end() == 0


def test_memory_that_the_machine_lacks_is_named_with_its_flag() -> None:
    with node("127.0.0.1:1", "--global_segment_size=900tb") as process:
        assert process.wait() == 1
    assert "global_segment_size" in process.log.splitlines()[-1]


def test_the_effective_configuration_is_printed_once() -> None:
    with node("127.0.0.1:1", "--log_level=info", "--threads=3") as process:
        process.wait_for("waiting for the master")
        assert process.end() == 0
    assert process.log.count("--global_segment_size=16MiB  (flag)") == 1
    assert process.log.count("--threads has no meaning here") == 1


def test_a_waiting_node_is_small_and_logs_its_wait_once() -> None:
    with node(f"127.0.0.1:{free_port()}") as process:
        process.wait_for("waiting for the master at .*--master_server_address")
        used = kib(process.pid, "VmRSS") - kib(process.pid, "RssShmem")
        assert process.end() == 0
    assert used <= RSS_KIB_MAX
    assert process.log.count("waiting for the master") == 1


def test_a_node_process_imports_nothing_heavy() -> None:
    program = (
        "import sys; from mooncake_client.node_config import NodeConfig; "
        "from mooncake_client.node_daemon import start_node; "
        "start_node(NodeConfig(global_segment_size=1 << 20, host='127.0.0.1')).stop(); "
        "print([n for n in ('numpy', 'pydantic', 'grpc', 'google', 'yaml', 'asyncio') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_mounted_node_cleanly(stop: signal.Signals) -> None:
    with master() as leader, node(address_of(leader)) as process:
        process.wait_for("lending 127.0.0.1:")
        assert process.end(stop) == 0
        assert f"{stop.name}: stopping" in process.log
        assert leader.end() == 0


def test_a_node_that_was_stopped_for_long_goes_on() -> None:
    """CPython's sigtimedwait, interrupted for longer than its time-out, returns a number that nothing wrote:
    each node that was stopped for more than half a second ended when it was woken, with all that it held."""
    with master() as leader, node(address_of(leader)) as process:
        process.wait_for("lending 127.0.0.1:")
        for _ in range(3):
            process.stop()
            threading.Event().wait(1.1)  # longer than it looks for signals at a time
            process.send(signal.SIGCONT)
        assert leader.end() == 0
        process.wait_for("lost the master")
        assert process.end() == 0


def test_a_node_started_before_its_master_connects_by_itself() -> None:
    """UP 23: whoever comes first. User problem 23.5: "client 20 s before master"."""
    port = free_port()
    with node(f"127.0.0.1:{port}") as process:
        process.wait_for("waiting for the master")
        with master(port) as leader:
            process.wait_for("lending 127.0.0.1:")
            assert leader.end() == 0
        process.wait_for("lost the master")
        with master(port):
            process.wait_for(r"lending 127\.0\.0\.1:(.|\n)*lending 127\.0\.0\.1:")
            assert process.end() == 0


def test_help_and_version_need_no_master() -> None:
    for flag in ("--help", "--version"):
        with Process(NODE, flag) as process:
            assert process.wait() == 0
        assert "mooncake_client" in process.log
