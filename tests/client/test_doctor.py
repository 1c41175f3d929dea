"""`mooncake doctor`: what it finds, in what words, and that nothing stops or hangs it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from mooncake_client import doctor
from mooncake_client.client_config import client_config
from mooncake_client.doctor import gpu, machine, reach, settings
from mooncake_client.doctor.checks import Check, Late, all_within, as_json, as_lines, checked, within, worst
from mooncake_client.doctor.greeting import CLIENT_ROLE, greet
from mooncake_client.records import SegmentUse
from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import Refused, Unavailable


def only(checks: Sequence[Check], name: str) -> Check:
    [found] = [check for check in checks if check.name == name]
    return found


def test_what_does_not_answer_is_late_and_holds_nobody() -> None:
    forever = threading.Event()
    with pytest.raises(Late, match=r"no answer within 0\.01 s"):
        within(0.01, forever.wait)
    assert [str(one) for one in all_within(0.01, [forever.wait, forever.wait], 1)] == [
        "no answer within 0.01 s"
    ] * 2
    forever.set()


def test_answers_come_in_order_and_what_was_raised_among_them() -> None:
    def refuse() -> int:
        raise ValueError("no")

    first, second, third = all_within(20, [lambda: 1, refuse, lambda: 3], threads_max=2)
    assert (first, str(second), third) == (1, "no", 3)
    assert all_within(20, []) == []


def test_a_check_that_breaks_is_a_finding() -> None:
    def broken() -> Sequence[Check]:
        raise KeyError("x")

    [found] = checked("machine.x", 20, broken, "do this")
    assert found == Check("machine.x", "fail", "the check itself failed: KeyError: 'x'", "do this")
    late = threading.Event()
    [found] = checked("machine.x", 0.01, lambda: [Check("", "ok", "")] * late.wait())
    assert (found.verdict, found.reason) == ("fail", "no answer within 0.01 s")
    late.set()


def test_the_worst_verdict_decides_and_text_and_json_say_the_same() -> None:
    checks = [Check("a.b", "ok", "fine"), Check("long.name", "warn", "so\x1b[2J so\n", "do it")]
    assert (worst([]), worst(checks[:1]), worst(checks)) == ("ok", "ok", "warn")
    assert worst([*checks, Check("c", "fail", "")]) == "fail"
    assert [doctor.EXIT_STATUS[verdict] for verdict in ("ok", "warn", "fail")] == [0, 1, 2]
    lines = list(as_lines(checks))
    assert lines == [
        "ok    a.b        fine",
        "warn  long.name  so [2J so ",
        "                 do: do it",
        "warn: 1 ok, 1 to look at, 0 failed",
    ]
    told = json.loads(as_json(checks))
    assert told["verdict"] == "warn"
    assert told["checks"][0] == {"name": "a.b", "verdict": "ok", "reason": "fine", "remedy": ""}


def test_this_machine_is_examined_whole() -> None:
    found = machine.machine_checks()
    assert [check.name for check in found] == list(machine.CHECKS)
    assert [check for check in found if "the check itself failed" in check.reason] == []
    assert all(check.remedy for check in found if check.verdict != "ok")
    assert only(found, "machine.memfd").verdict == "ok"
    assert only(found, "install.version").verdict == "ok"


def test_a_native_module_of_another_version_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooncake_store._core.version", lambda: "0.0.9")
    found = only(machine.machine_checks(), "install.version")
    assert (found.verdict, "its native module 0.0.9" in found.reason) == ("fail", True)


def test_checksums_by_a_table_are_told_and_wrong_ones_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooncake_store._core.crc32c_implementations", lambda: ["table"])
    assert only(machine.machine_checks(), "install.crc32c").verdict == "warn"
    monkeypatch.setattr("mooncake_store._core.crc32c_by", lambda name, data: 1)
    assert only(machine.machine_checks(), "install.crc32c").verdict == "fail"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {
                "cgroup": "0::/a/b\n",
                "a/b/memory.max": "max\n",
                "a/memory.max": "1000\n",
                "a/memory.current": "400",
            },
            (1000, 400),
        ),
        ({"cgroup": "0::/a\n", "a/memory.max": "max"}, (None, 0)),
        ({"cgroup": "4:cpu,memory:/\n", "memory/memory.limit_in_bytes": "9223372036854771712"}, (None, 0)),
        (
            {
                "cgroup": "4:cpu,memory:/\n",
                "memory/memory.limit_in_bytes": "77",
                "memory/memory.usage_in_bytes": "5",
            },
            (77, 5),
        ),
        ({"cgroup": "not a line"}, (None, 0)),
        ({}, (None, 0)),
    ],
)
def test_the_tightest_memory_limit_of_the_control_groups_counts(
    files: dict[str, str], expected: tuple[int | None, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {
        "/proc/self/cgroup" if name == "cgroup" else f"/sys/fs/cgroup/{name}": text
        for name, text in files.items()
    }
    monkeypatch.setattr(machine, "_read", lambda path, size_bytes=0: known.get(path, ""))
    assert machine._memory_limit() == expected


def test_a_cpu_limit_is_read_in_both_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"/proc/self/cgroup": "0::/a\n", "/sys/fs/cgroup/a/cpu.max": "50000 100000"}
    monkeypatch.setattr(machine, "_read", lambda path, size_bytes=0: known.get(path, ""))
    assert machine._cpu_quota() == 0.5
    assert only(machine._cores(), "machine.cores").verdict == "warn"
    known = {
        "/proc/self/cgroup": "3:cpu,cpuacct:/\n",
        "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
        "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }
    assert machine._cpu_quota() == 2.0


def test_secrets_of_the_environment_are_not_told() -> None:
    environment = {"MOONCAKE_API_KEY": "hunter2", "MC_RPC_TIMEOUT_MS": "5", "HOME": "/nowhere"}
    [found] = settings.settings_checks(None, environment)
    assert found.verdict == "ok"
    assert "hunter2" not in found.reason
    assert "MC_RPC_TIMEOUT_MS=5" in found.reason
    assert "HOME" not in found.reason


def test_a_configuration_file_is_examined(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.json"
    environment = {"MOONCAKE_CONFIG_PATH": str(path)}
    config = client_config("m:1", {}, environment={})
    assert only(settings.settings_checks(config, environment), "config.file").verdict == "fail"
    assert settings.master_of_file(environment) == ""
    path.write_text(
        '{"local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "master_server_address": "m:1"}'
    )
    assert only(settings.settings_checks(config, environment), "config.file").verdict == "ok"
    assert settings.master_of_file(environment) == "m:1"
    other = client_config("m:2", {}, environment={})
    found = only(settings.settings_checks(other, environment), "config.file")
    assert (found.verdict, found.remedy) == ("warn", "mooncake doctor --master m:1")
    path.write_text('{"password": "hunter2", ')
    found = only(settings.settings_checks(config, environment), "config.file")
    assert (found.verdict, "hunter2" in found.reason) == ("fail", False)


def test_a_wrong_setting_ends_no_examination() -> None:
    found = doctor.examine("m:1", environment={"MOONCAKE_CONTROL": "carrier"})
    assert "MOONCAKE_CONTROL='carrier'" in only(found, "config.client").reason
    assert only(found, "gpu.staging")
    assert worst(found) == "fail"


def test_segments_of_one_node_are_one_and_those_of_this_host_come_first() -> None:
    def segment(name: str, host: str, *endpoints: str) -> SegmentUse:
        return SegmentUse(name, 1, 0, 0, 0, "dram", host, endpoints)

    nodes = reach.nodes_of(
        [
            segment("a-0", "far", "tcp://a:1"),
            segment("b-0", "near", "tcp://b:1", "shm://p/0/n"),
            segment("a-1", "far", "tcp://a:1"),
        ],
        "near",
    )
    assert [(node.endpoint, node.local, node.segments, node.is_local) for node in nodes] == [
        ("b:1", "shm://p/0/n", ("b-0",), True),
        ("a:1", "", ("a-0", "a-1"), False),
    ]


@pytest.mark.parametrize(
    ("why_not", "remedy"),
    [
        ("shared_memory is off here", "MOONCAKE_SHARED_MEMORY"),
        ("the node lends no memory (its shared_memory is off, or it is older)", "--shared_memory=auto"),
        ("the node is of another user (uid 1) than this process (uid 2)", "one user"),
        ("the node is on another host or in another network namespace", "--network=host"),
        ("its Unix socket: gone", "the node's log"),
        ("something new", "the node's log"),
    ],
)
def test_every_reason_for_no_shared_memory_has_a_remedy(why_not: str, remedy: str) -> None:
    node = reach.Node("h:1", "shm://x", ("seg",), True)
    [found] = reach.way_checks([reach.Way(node, "1.0", 0.5, 0, "", why_not)])
    assert (found.verdict, why_not in found.reason, remedy in found.remedy) == ("warn", True, True)


def test_a_node_of_another_host_is_well_over_tcp_and_an_unreachable_one_is_not() -> None:
    far, near = (reach.Node("h:1", "", ("seg",), is_local) for is_local in (False, True))
    reached, lost, mapped = reach.way_checks(
        [
            reach.Way(far, "1.0", 0.5, 0, "", ""),
            reach.Way(far, "", 0.0, 0, "h:1: refused", ""),
            reach.Way(near, "", 0.0, 1 << 20, "h:1: refused", ""),
        ]
    )
    assert (reached.verdict, reached.reason) == (
        "ok",
        "h:1 (seg): TCP, it is on another host; 1.0, answers in 0.5 ms",
    )
    assert (lost.verdict, lost.reason) == ("fail", "h:1 (seg): nothing over TCP: h:1: refused")
    assert mapped.verdict == "warn"


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(24), b"\xff" * 4096])
def test_another_kind_of_server_is_told_from_nobody(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = Endpoint("127.0.0.1", listener.getsockname()[1])

        def serve() -> None:
            with listener.accept()[0] as peer:
                peer.sendall(answer)
                peer.recv(65536)

        server = threading.Thread(target=serve)
        server.start()
        with pytest.raises(Refused, match=r"127\.0\.0\.1:\d+: another kind of server listens there"):
            greet(endpoint, CLIENT_ROLE, "default", 20)
        server.join()
        with pytest.raises(Unavailable, match=r"no answer within 0\.05 s"):
            greet(endpoint, CLIENT_ROLE, "default", 0.05)
    with pytest.raises(Unavailable, match="refused"):
        greet(endpoint, CLIENT_ROLE, "default", 20)


@pytest.mark.parametrize(
    ("script", "verdict", "words"),
    [
        ("print('yes 2.0 1 x H200')", "ok", "pinned memory; torch 2.0 1 x H200"),
        ("print('no 2.0 sees no CUDA device')", "ok", "sees no CUDA device"),
        ("print('wrong 2.0')", "fail", "changed"),
        ("raise RuntimeError('no driver')", "warn", "RuntimeError: no driver"),
        ("import os; os.kill(os.getpid(), 9)", "warn", "exit status -9"),
        ("import threading; threading.Event().wait()", "warn", "did not answer within"),
    ],
)
def test_the_gpu_is_asked_in_a_process_of_its_own(
    script: str, verdict: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "_ASK", script)
    if "Event" in script:
        monkeypatch.setattr(gpu, "ANSWER_S", 0.2)
    found = gpu._asked()
    assert (found.verdict, words in found.reason) == (verdict, True), found
