"""How rounds become lines: which loop is the limit, what is compared with what, and what counts as met."""

from __future__ import annotations

from benchmarks.figures import Spread
from benchmarks.report import Line, lines_of, table
from benchmarks.rounds import Result, Round
from benchmarks.work import MIB, Row, Target, Work, works


def result(placement: str = "free", **columns: list[float]) -> Result:
    """Rounds of one work; names of raw loops are written raw_1. Values are medians in ns."""
    targets = (
        Target("raw", 1.25, ">= 80% of raw"),
        Target("mooncake", 0.4, "<= 0.4 x mooncake", "free"),
        Target("mooncake", 0.7, "<= 0.7 x mooncake", "apart"),
    )
    made = Result(Work("get 1 MiB", "get", MIB, rows=(Row(targets=targets),)), placement)
    for number in range(max(map(len, columns.values()))):
        made.rounds.append(Round(1.0))
        for name, values in columns.items():
            if number < len(values):
                made.rounds[-1].columns[name.replace("_", ", ")] = {"median_ns": values[number]}
    return made


def verdicts(line: Line) -> dict[str, bool | None]:
    return {target["text"]: target["met"] for target in line.targets}


def test_the_limit_is_the_loop_with_the_best_median() -> None:
    """Not the best of each round: that would pick the luckiest loop every time."""
    (line,) = lines_of([result(ours=[10, 10, 10], raw_1=[5, 5, 5], raw_2=[1, 9, 9])])
    assert line.limit == "raw, 1"
    assert line.ratios["raw"] == Spread(2, 2, 2)


def test_targets_are_met_by_the_median_of_paired_ratios() -> None:
    (line,) = lines_of([result(ours=[10, 20, 30], mooncake=[100, 40, 60], raw_1=[8, 16, 24])])
    assert line.ratios["mooncake"].median == 0.5
    assert verdicts(line) == {">= 80% of raw": True, "<= 0.4 x mooncake": False}


def test_a_target_holds_in_its_placement_only() -> None:
    (line,) = lines_of([result("apart", ours=[50.0], mooncake=[100.0])])
    assert verdicts(line) == {">= 80% of raw": None, "<= 0.7 x mooncake": True}


def test_rounds_that_lack_one_side_are_left_out_of_its_ratio() -> None:
    (line,) = lines_of([result(ours=[10, 10, 10], mooncake=[20, 20], raw_1=[10, 10, 10])])
    assert line.ratios["mooncake"] == Spread(0.5, 0.5, 0.5)


def test_an_absent_peer_is_an_empty_cell_and_not_measured() -> None:
    lines = lines_of([result(ours=[10.0], raw_1=[10.0])])
    text = table(lines)
    assert "<= 0.4 x mooncake: not measured" in text
    assert ">= 80% of raw: met" in text
    assert "104857.60 GB/s" in text  # 1 MiB in 10 ns


def test_a_failed_contender_is_a_remark() -> None:
    failed = result(ours=[10.0])
    failed.failures["redis"] = "it fell over"
    (line,) = lines_of([failed])
    assert line.remarks == ["redis failed: it fell over"]


def test_the_table_is_rectangular() -> None:
    texts = table(lines_of([result(ours=[10.0]), result("apart", ours=[2e6], mooncake=[3e6])])).splitlines()
    assert len({text.count("|") for text in texts}) == 1
    assert len({len(text) for text in texts}) == 1
    assert "2 ms [2..2]" in texts[-1]


def test_every_target_names_a_known_contender_and_placement() -> None:
    targets = [target for work in works(10) for row in work.rows for target in row.targets]
    assert len(targets) > 20
    assert {target.against for target in targets} == {"mooncake", "redis", "raw"}
    assert {target.placement for target in targets} == {None, "free", "apart"}
    assert all(0 < target.at_most < 2 for target in targets)


def test_a_work_cycles_over_its_working_set_but_has_at_least_one_slot() -> None:
    slots = {work.name: work.slots for work in works(10)}
    assert (slots["get 16 MiB"], slots["get 1 MiB"], slots["get 4 KiB"]) == (4, 64, 1024)
    assert slots["get 1000 x 64 KiB"] == 1
