"""The file that remembers a master's epoch: each start takes the next one."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from master.running import FREE_PORTS, LOOPBACK, RunningMaster

from mooncake_master.config import MASTER_FLAGS, MasterConfig
from mooncake_master.reign import EPOCH_MAX, Reign
from mooncake_store import _core
from mooncake_store.errors import StoreError


def config(*flags: str) -> MasterConfig:
    loaded = MASTER_FLAGS.load([*FREE_PORTS, *LOOPBACK, *flags]).config
    assert isinstance(loaded, MasterConfig)
    return loaded


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_each_start_takes_the_next_epoch(home: Path) -> None:
    file = home / "deep" / "reign.json"
    assert [Reign(file, must_work=True).take() for _ in range(3)] == [1, 2, 3]
    assert json.loads(file.read_text()) == {"epoch": 3}
    assert [path.name for path in file.parent.iterdir()] == ["reign.json"]


def test_a_later_epoch_is_noted_and_an_earlier_one_is_not(home: Path) -> None:
    reign = Reign(home / "reign.json", must_work=True)
    reign.take()
    reign.note(7)
    reign.note(5)
    assert Reign(home / "reign.json", must_work=True).take() == 8


def test_tombstones_are_kept_for_the_next_reign(home: Path) -> None:
    tombstones = _core.encode_tombstones(replicas=[1 << 40 | 7])
    reign = Reign(home / "reign.json", must_work=True)
    reign.take()
    assert reign.note(1, tombstones)
    assert reign.note(3, tombstones)
    after = Reign(home / "reign.json", must_work=True)
    assert (after.take(), after.tombstones) == (4, tombstones)
    # What the next one has not heard of by then is not lost with it either.
    assert Reign(home / "reign.json", must_work=True).take() == 5
    assert json.loads((home / "reign.json").read_text())["tombstones"] != ""
    assert after.note(4, _core.encode_tombstones())
    last = Reign(home / "reign.json", must_work=True)
    last.take()
    assert last.tombstones == _core.encode_tombstones()


def test_the_file_is_named_by_the_port_and_lies_where_the_environment_says(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Reign.of(config("--port=1234")).path == home / "state" / "mooncake_store" / "master-1234.json"
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/mooncake:/other")
    assert Reign.of(config("--port=1234")).path == Path("/var/lib/mooncake/master-1234.json")
    assert Reign.of(config("--port=0")).path is None
    assert Reign.of(config("--port=1234", "--state_file=none")).path is None
    assert Reign.of(config(f"--state_file={home / 'mine'}")).path == home / "mine"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"epoch": "x"}',
        '{"epoch": -1}',
        "[1]",
        '{"epoch": 1, "tombstones": "?"}',
        '{"epoch": 1, "tombstones": "AAAA"}',
        '{"epoch": 1, "tombstones": 7}',
    ],
)
def test_a_damaged_file_is_an_error_where_it_was_asked_for(home: Path, text: str) -> None:
    file = home / "reign.json"
    file.write_text(text)
    with pytest.raises(StoreError, match=r"reign\.json \(flag --state_file\) cannot be read"):
        Reign(file, must_work=True).take()


def test_a_default_file_that_cannot_be_written_is_one_warning(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (home / "state").write_text("a file where a folder should be")
    assert Reign.of(config("--port=1234")).take() == 1
    [record] = caplog.records
    assert "--state_file" in record.getMessage()
    assert "client_ttl" in record.getMessage()


def test_the_last_epoch_is_not_passed(home: Path) -> None:
    file = home / "reign.json"
    file.write_text(json.dumps({"epoch": EPOCH_MAX}))
    with pytest.raises(StoreError, match="no epoch is left"):
        Reign(file, must_work=True).take()


def test_a_daemon_reigns_in_the_epoch_of_its_file(home: Path) -> None:
    file = home / "reign.json"
    for epoch in (1, 2):
        with RunningMaster(f"--state_file={file}") as daemon:
            assert daemon.http_port
        assert json.loads(file.read_text()) == {"epoch": epoch}
    assert stat.S_ISREG(file.stat().st_mode)


def test_a_user_without_a_home_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def homeless(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "expanduser", homeless)
    assert Reign.of(config("--port=1234")).take() == 1
    [record] = caplog.records
    assert "--state_file=auto" in record.getMessage()


def test_a_running_master_outlives_a_full_disk_and_notes_its_epoch_once_there_is_room(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = home / "reign.json"
    reign = Reign(file, must_work=True)
    reign.take()
    beside = home / "reign.json.new"
    beside.symlink_to("/dev/full")
    reign.note(7)
    [record] = caplog.records
    assert "--state_file" in record.getMessage()
    assert "No space left" in record.getMessage()
    assert json.loads(file.read_text()) == {"epoch": 1}
    beside.unlink()
    reign.note(7)
    assert json.loads(file.read_text()) == {"epoch": 7}


def test_a_full_disk_at_the_start_is_an_error_where_the_file_was_asked_for(home: Path) -> None:
    (home / "reign.json.new").symlink_to("/dev/full")
    with pytest.raises(StoreError, match=r"--state_file\) cannot be written: .*No space left"):
        Reign(home / "reign.json", must_work=True).take()
