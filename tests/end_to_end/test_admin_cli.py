"""`mooncake`, the operator's command, against a real master and node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from master.running import RunningMaster

from mooncake_client.cli import main
from mooncake_store import _core

HANG_MS = 30_000


@pytest.fixture(scope="module")
def master() -> Iterator[str]:
    """The address of a master with one node."""
    with RunningMaster("--enable_metric_reporting=false") as daemon:
        address = f"127.0.0.1:{daemon.grpc_port}"
        node = _core.Node([("seg-a", 8 << 20)], masters=[address], data_host="127.0.0.1")
        node.start()
        assert node.wait_mounted(HANG_MS)
        yield address
        node.stop()


def run(master: str, *arguments: str) -> int:
    return main(["--master", master, *arguments])


def test_put_stat_get_list_and_remove(
    master: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    value = bytes(range(256)) * 3
    (tmp_path / "value").write_bytes(value)
    assert run(master, "put", "k/1", str(tmp_path / "value")) == 0
    assert run(master, "put", "k/1", str(tmp_path / "value")) == 0
    assert capfdbinary.readouterr().out == b"stored\nexists\n"
    assert run(master, "get", "k/1") == 0
    assert capfdbinary.readouterr().out == value
    assert run(master, "stat", "k/1") == 0
    assert b"768" in capfdbinary.readouterr().out
    assert run(master, "keys", "--prefix", "k/") == 0
    assert capfdbinary.readouterr().out == b"k/1\n"
    assert run(master, "remove", "k/1") == 0
    assert run(master, "get", "k/1") == 1
    assert run(master, "remove", "k/1") == 1


def test_segments_and_status_show_the_pool(master: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(master, "segments") == 0
    assert "seg-a" in capfd.readouterr().out
    assert run(master, "status") == 0
    shown = capfd.readouterr().out
    assert shown.startswith("master: serving, epoch ")
    for part in ("memory: 1 segment, 8MiB, ", "values: ", "sessions: ", "key_count"):
        assert part in shown
    assert "(seg-a): shared memory, 8MiB mapped" in shown


def test_an_error_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--master", "127.0.0.1:1", "status"]) == 1
    error = capfd.readouterr().err
    assert error.startswith("mooncake: ")
    assert "127.0.0.1:1" in error
    assert error.count("\n") == 1


def test_help_lists_the_commands(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capfd.readouterr().out
    for command in ("status", "segments", "keys", "stat", "events", "why", "get", "put", "remove", "doctor"):
        assert command in shown


def test_why_tells_what_became_of_a_key(
    master: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "value").write_bytes(b"v")
    assert run(master, "why", "asked about") == 0
    assert run(master, "put", "asked about", str(tmp_path / "value")) == 0
    assert run(master, "why", "asked about") == 0
    assert run(master, "remove", "asked about") == 0
    assert run(master, "why", "asked about") == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[:3] == ["never stored", "stored", "present"]
    assert lines[-1].startswith("removed, ")


def test_stat_tells_a_keys_state_and_story(
    master: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "value").write_bytes(b"v" * 100)
    assert run(master, "put", "told", str(tmp_path / "value")) == 0
    assert run(master, "stat", "told") == 0
    shown = capfd.readouterr().out
    for part in (
        "key told: present",
        "100 bytes",
        "copy on seg-a (dram",
        "readable",
        "written whole on seg-a",
    ):
        assert part in shown
    assert run(master, "remove", "told") == 0
    assert run(master, "stat", "told") == 1
    shown = capfd.readouterr().out
    assert "key told: removed" in shown
    assert "removed (seg-a)" in shown
    assert run(master, "stat", "told", "--json", "--limit", "2") == 1
    told = json.loads(capfd.readouterr().out)
    assert (told["now"]["is_visible"], told["now"]["reason"]) == (False, "removed")
    assert len(told["events"]) == 2
    assert (told["key"], told["tenant"]) == ("told", "default")
    assert run(master, "stat", "told", "--tenant", "somebody") == 1
    assert "never stored" in capfd.readouterr().out


def test_stat_tells_of_a_node_and_events_what_happened_lately(
    master: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(master, "stat", "--node", "seg-a") == 0
    shown = capfd.readouterr().out
    for part in ("segment seg-a: in the pool", "8MiB", ": connected, heard", "segment seg-a joined the pool"):
        assert part in shown
    assert run(master, "stat", "--node", "nobody") == 1
    assert "no segment of it is in the pool" in capfd.readouterr().out
    assert run(master, "events", "--limit", "1000") == 0
    shown = capfd.readouterr().out
    assert "segment seg-a joined the pool" in shown
    assert "the master took epoch" in shown
    assert run(master, "events", "--json") == 0
    events = json.loads(capfd.readouterr().out)["events"]
    assert events
    assert not [event for event in events if event["name"] == "mooncake-cli"]
    assert run(master, "events", "--all", "--json") == 0
    every = json.loads(capfd.readouterr().out)["events"]
    assert [event for event in every if event["name"] == "mooncake-cli"]
    assert run(master, "events", "--limit", "1") == 0
    assert "older events are left out" in capfd.readouterr().out


def examined(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit status and findings by name, the last of a name."""
    capfd.readouterr()
    status = main(list(arguments))
    return status, {check["name"]: check for check in json.loads(capfd.readouterr().out)["checks"]}


def test_doctor_finds_a_pool_well_and_tells_how_its_node_is_reached(
    master: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found = examined(capfd, "doctor", "--master", master, "--json")
    of_pool = {name: one for name, one in found.items() if name.startswith(("master.", "pool."))}
    assert {name: one["verdict"] for name, one in of_pool.items()} == {
        "master.address": "ok",
        "master.grpc": "ok",
        "master.lane": "ok",
        "master.health": "ok",
        "pool.node": "ok",
    }
    assert "(seg-a): shared memory, 8MiB mapped" in found["pool.node"]["reason"]
    monkeypatch.setenv("MOONCAKE_SHARED_MEMORY", "off")
    status, found = examined(capfd, "doctor", "--master", master, "--json")
    assert status == 1
    assert "TCP, although it is on this host: shared_memory is off here" in found["pool.node"]["reason"]
    assert "MOONCAKE_SHARED_MEMORY" in found["pool.node"]["remedy"]
    monkeypatch.delenv("MOONCAKE_SHARED_MEMORY")
    _, found = examined(capfd, "--tenant", "other", "doctor", "--master", master, "--json")
    assert "memory is shared with tenant 'default' alone, and this is 'other'" in found["pool.node"]["reason"]


def test_doctor_names_a_master_that_is_not_there(
    master: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["doctor", "--master", "127.0.0.1:1"]) == 2
    shown = capfd.readouterr().out
    assert "127.0.0.1:1 (127.0.0.1) does not take connections: Connection refused" in shown
    assert "do: see that mooncake_master runs there" in shown
    # Of several, one is to answer.
    _, found = examined(capfd, "doctor", "--master", f"127.0.0.1:1,{master}", "--json")
    assert found["master.health"]["verdict"] == "ok"
    # Without being told, the one of the file that engines are told of.
    path = tmp_path / "mooncake.json"
    settings = {"local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "master_server_address": master}
    path.write_text(json.dumps(settings))
    monkeypatch.setenv("MOONCAKE_CONFIG_PATH", str(path))
    monkeypatch.delenv("MOONCAKE_MASTER", raising=False)
    _, found = examined(capfd, "doctor", "--json")
    assert (found["config.file"]["verdict"], found["master.health"]["verdict"]) == ("ok", "ok")
