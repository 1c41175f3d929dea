"""The master's benchmark at its smallest: every work runs, and says what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.master import Row, main


def test_a_row_is_judged_by_its_median() -> None:
    at_least = Row("speed", "keys", 5e6, False, [4e6, 6e6, 5.5e6])
    at_most = Row("memory", "bytes", 150, True, [151])
    assert at_least.is_met
    assert "5.5 M keys" in at_least.line()
    assert "| met |" in at_least.line()
    assert not at_most.is_met
    assert "<= 150" in at_most.line()
    assert Row("share", "", None, False, [0.8]).is_met is None


def test_every_work_runs(native_tests: Path, tmp_path: Path) -> None:
    load = native_tests / "lane_load"
    assert main([f"--load={load}", "--scale=smoke", "--rounds=1", f"--output={tmp_path}"]) == 0
    rows = json.loads((tmp_path / "master.json").read_text(encoding="utf-8"))["rows"]
    names = " ".join(row["name"] for row in rows)
    for work in ("first refusal", "slowest insert", "memory", "lookup, batches", "depth 4", "eviction"):
        assert work in names
    for work in ("heartbeats", "many segments", "clients connect", "rebuild"):
        assert work in names
    assert all(row["median"] > 0 for row in rows if row["unit"] != "cores")


@pytest.mark.parametrize("argument", ["--scale=huge", "--rounds=none"])
def test_what_is_no_option_is_refused(argument: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as refused:
        main([f"--load={tmp_path}", argument])
    assert refused.value.code == 2
