"""The whole harness at its smallest: it starts, takes turns, reports and leaves nothing running."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.contender import Memory, WrongAnswer
from benchmarks.contenders.store import key_of
from benchmarks.rounds import Contest, cores, placements_here
from benchmarks.work import KEY_BYTES

ROOT = Path(__file__).parents[2]
HANG_S = 240


def bench(output: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--scale=smoke", f"--output={output}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    path = output / "results.json"
    return done, json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


@pytest.mark.slow
def test_every_work_runs_without_peers(tmp_path: Path) -> None:
    done, report = bench(tmp_path, "--rounds=2", "--contenders=ours,owner,raw")
    assert done.returncode == 0, done.stderr
    assert report["skipped"] == {}
    assert [one["failures"] for one in report["results"] if one["failures"]] == []
    placements = report["options"]["placements"]
    for one in report["results"]:
        assert len(one["rounds"]) == 2
        for turn in one["rounds"]:
            assert turn["load_average"] >= 0
            for sample in turn["columns"].values():
                assert 0 < sample["median_ns"] <= sample["p99_ns"]
                assert sample["calls"] > 0
    measured = {line["label"]: line for line in report["lines"] if line["placement"] == placements[0]}
    for label, line in measured.items():
        if line["remarks"] == ["not built yet: shared memory"]:
            assert "ours" not in line["columns"], label
        else:
            assert line["columns"]["ours"][0] > 0, label
    assert measured["get 1 MiB"]["limit"].startswith("raw, ")
    assert measured["get 1 MiB"]["ratios"]["raw"][1] > 0
    assert report["facts"]["ours"]["table keys"] == 2000
    assert {"cpu", "kernel", "load_average", "revision"} <= set(report["environment"])
    assert "| exists, one key " in done.stdout


@pytest.mark.slow
def test_an_absent_peer_is_named_with_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.rounds.VENVS", tmp_path)
    with Contest(["redis"], tmp_path, 1 << 20, 1 << 20) as contest:
        assert contest.versions == {}
    assert contest.skipped == {"redis": "not set up; get it with: benchmarks/peers/setup.sh redis"}


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ("--contenders=ours,nobody", "nobody"),
        ("--placement=apart,near", "near"),
        ("--only=nothing of this name", "nothing of this name"),
        ("--rounds=0", "--rounds"),
    ],
)
def test_a_wrong_argument_is_named(argument: str, named: str, tmp_path: Path) -> None:
    done, report = bench(tmp_path, argument)
    assert done.returncode == 2
    assert named in done.stderr
    assert report is None


def test_wrong_bytes_are_seen() -> None:
    memory = Memory(3 << 20)
    memory.target[:] = memory.source[:]
    memory.check(0, memory.size_bytes)
    with pytest.raises(WrongAnswer, match="not those"):
        memory.check(0, 10)  # what was checked is emptied, so that it must be read again
    memory.target[1 << 20 : 2 << 20] = memory.source[: 1 << 20]
    with pytest.raises(WrongAnswer, match="not those"):
        memory.check(1 << 20, 2 << 20)


def test_keys_are_distinct_and_of_one_size() -> None:
    keys = [key_of("table", number) for number in range(1000)]
    assert {len(key) for key in keys} == {KEY_BYTES}
    assert len(set(keys)) == 1000


def test_apart_shares_no_core_and_is_left_out_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    assert cores("apart") == ({2}, {0, 1})
    assert cores("free") == ({0, 1, 2}, {0, 1, 2})
    assert placements_here(["free", "apart"]) == (["free", "apart"], "")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    kept, note = placements_here(["free", "apart"])
    assert kept == ["free"]
    assert "one core only" in note
