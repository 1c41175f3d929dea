"""What came out, as lines: ours, the peers, the limit, ratios with quartiles, and whether a target was met.

Owns how results become a table (Markdown, which a terminal shows as well) and JSON. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.contenders import PEERS
from benchmarks.figures import Spread, ratios, spread
from benchmarks.rounds import Contest, Result
from benchmarks.work import KIB, OURS, RAW, Row, Target

FORMAT: Final = 1
"""Of the JSON; raised when a reader of an older one would misread it."""
THROUGHPUT_FROM_BYTES: Final = 64 * KIB


@dataclass
class Line:
    """One line of the table. columns: by name, peers and raw loops; limit: the best raw loop."""

    label: str
    placement: str
    unit: str
    call_bytes: int
    columns: dict[str, Spread] = field(default_factory=dict)
    limit: str = ""
    ratios: dict[str, Spread] = field(default_factory=dict)
    """Ours by each peer and by the limit, from paired rounds."""
    targets: list[dict[str, Any]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "placement": self.placement,
            "unit": self.unit,
            "call_bytes": self.call_bytes,
            "columns": {name: _rounded(value) for name, value in self.columns.items()},
            "limit": self.limit,
            "ratios": {name: _rounded(value) for name, value in self.ratios.items()},
            "targets": self.targets,
            "remarks": self.remarks,
        }


def lines_of(results: Sequence[Result]) -> list[Line]:
    return [_line(result, row) for result in results for row in result.work.rows]


def _line(result: Result, row: Row) -> Line:
    work = result.work
    label = f"{work.name}, {row.label}" if row.label else work.name
    call_bytes = work.call_bytes if row.unit == "time" else 0
    line = Line(label, result.placement, row.unit, call_bytes)
    for column in result.columns():
        line.columns[column] = spread(result.samples(column, row.statistic))
    loops = [column for column in line.columns if column.startswith(RAW)]
    if loops:
        line.limit = min(loops, key=lambda column: line.columns[column].median)
    for name, column in [(peer, peer) for peer in PEERS] + [(RAW, line.limit)]:
        mine, theirs = result.pairs(OURS, column, row.statistic)
        if mine and all(theirs):
            line.ratios[name] = ratios(mine, theirs)
    line.targets = [
        _judged(target, line.ratios.get(target.against))
        for target in row.targets
        if target.placement in (None, result.placement)
    ]
    line.remarks = [f"{name} failed: {why}" for name, why in result.failures.items()]
    return line


def _judged(target: Target, ratio: Spread | None) -> dict[str, Any]:
    """met: whether the median ratio is within the target; None where there is nothing to compare."""
    return {
        "text": target.text,
        "against": target.against,
        "at_most": target.at_most,
        "met": None if ratio is None else ratio.median <= target.at_most,
    }


def report(
    contest: Contest,
    results: Sequence[Result],
    environment: Mapping[str, Any],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything, for JSON."""
    return {
        "format": FORMAT,
        "environment": environment,
        "options": options,
        "versions": contest.versions,
        "skipped": contest.skipped,
        "facts": contest.facts,
        "lines": [line.as_json() for line in lines_of(results)],
        "results": [
            {
                "work": result.work.name,
                "placement": result.placement,
                "failures": result.failures,
                "rounds": [
                    {
                        "load_average": one.load_average,
                        "columns": {
                            column: {name: round(value, 1) for name, value in sample.items()}
                            for column, sample in one.columns.items()
                        },
                    }
                    for one in result.rounds
                ],
            }
            for result in results
        ],
    }


# ---- the table

HEAD: Final = ("work", "", "ours", *PEERS, "limit", "/ mooncake", "/ redis", "/ limit", "targets")


def table(lines: Sequence[Line]) -> str:
    """Markdown. Medians, quartiles in brackets; a ratio is our time by theirs, so below 1 we are faster."""
    rows = [HEAD, *(_cells(line) for line in lines)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(HEAD))]
    rows.insert(1, tuple("-" * max(3, width) for width in widths))
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in padded)


def _cells(line: Line) -> tuple[str, ...]:
    ours, limit = line.columns.get(OURS), line.columns.get(line.limit)
    peers = [line.columns.get(peer) for peer in PEERS]
    return (
        line.label,
        line.placement,
        _in_full(ours, line) if ours else next((text for text in line.remarks if "not built" in text), ""),
        *(_amount(peer.median, line.unit) if peer else "" for peer in peers),
        f"{_in_full(limit, line)} {line.limit.removeprefix(f'{RAW}, ')}" if limit else "",
        *(_ratio(line.ratios.get(name)) for name in ("mooncake", "redis", RAW)),
        "; ".join(f"{target['text']}: {_verdict(target['met'])}" for target in line.targets),
    )


def _verdict(met: bool | None) -> str:
    return "not measured" if met is None else "met" if met else "missed"


def _in_full(value: Spread, line: Line) -> str:
    unit, factor = _unit(value.median, line.unit)
    low, median, high = (_short(part / factor) for part in value)
    text = f"{median} {unit} [{low}..{high}]"
    if line.call_bytes >= THROUGHPUT_FROM_BYTES:
        text += f" {line.call_bytes / value.median:.2f} GB/s"
    return text


def _amount(value: float, unit: str) -> str:
    name, factor = _unit(value, unit)
    return f"{_short(value / factor)} {name}"


def _unit(value: float, unit: str) -> tuple[str, float]:
    """Its name, and how many of what is measured it is; ns a key are ms a million keys."""
    if unit == "cpu":
        return "s", 1e3
    return ("ms", 1e6) if value >= 1e6 else ("µs", 1e3)


def _short(number: float) -> str:
    return f"{number:.3g}" if number < 100 else f"{number:.0f}"


def _ratio(value: Spread | None) -> str:
    return "" if value is None else f"{value.median:.2f} [{value.low:.2f}..{value.high:.2f}]"


def _rounded(value: Spread) -> list[float]:
    return [round(number, 4) for number in value]


def remarks(contest: Contest, results: Sequence[Result], lines: Sequence[Line]) -> list[str]:
    """What a reader of the table must know beside it."""
    texts = [f"{name} {version}" for name, version in contest.versions.items()]
    texts += [f"{name} skipped: {why}" for name, why in contest.skipped.items()]
    loads = [one.load_average for result in results for one in result.rounds]
    if loads:
        low, median, high = spread(loads)
        texts.append(
            f"load average in the rounds: median {median:.1f}, quartiles {low:.1f}..{high:.1f}, "
            f"highest {max(loads):.1f}"
        )
    for name, facts in contest.facts.items():
        texts.append(f"{name}: " + ", ".join(f"{fact} {value:,.1f}" for fact, value in facts.items()))
    judged = [target["met"] for line in lines for target in line.targets if target["met"] is not None]
    texts.append(f"targets: {sum(judged)} met, {len(judged) - sum(judged)} missed")
    texts += list(dict.fromkeys(f"{line.label}: {remark}" for line in lines for remark in line.remarks))
    return texts
