"""`mooncake`, the operator's command, against a real master and node."""

from __future__ import annotations

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
    assert "key_count" in capfd.readouterr().out


def test_an_error_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--master", "127.0.0.1:1", "status"]) == 1
    error = capfd.readouterr().err
    assert error.startswith("mooncake: ")
    assert "127.0.0.1:1" in error
    assert error.count("\n") == 1


def test_help_lists_the_commands(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capfd.readouterr().out
    for command in ("status", "segments", "keys", "stat", "get", "put", "remove"):
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
