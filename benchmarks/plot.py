"""A picture of a result's JSON: ours against peers and limit, a ratio a bar. Needs matplotlib.

benchmarks/peers/venvs/plot/bin/python -m benchmarks.plot results.json picture.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "benchmarks"  # the same figures give the same file

from matplotlib import pyplot as plt  # noqa: E402

COLOURS = {"mooncake": "#c1553b", "redis": "#d9a441", "memcached": "#7d9f5f", "raw": "#4d6a8f"}


def draw(report: dict[str, Any], target: Path) -> None:
    """A panel a placement; a bar shows what share of the other's time we take, on a logarithmic axis."""
    placements = list(dict.fromkeys(line["placement"] for line in report["lines"]))
    shown = [line for line in report["lines"] if line["unit"] == "time" and line["ratios"]]
    rows = max(1, len({line["label"] for line in shown}))
    figure, panels = plt.subplots(
        1, len(placements), figsize=(7 * len(placements), 1.5 + 0.5 * rows), squeeze=False, sharey=True
    )
    for panel, placement in zip(panels[0], placements, strict=True):
        lines = [line for line in shown if line["placement"] == placement]
        _draw_panel(panel, lines)
        panel.set_title(placement)
    panels[0][0].invert_yaxis()
    environment = report["environment"]
    figure.suptitle(
        f"our time / theirs (quartiles as whiskers); {environment['cpu']}, {environment['cores']} cores, "
        f"{environment['time']}",
        fontsize=9,
    )
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})


def _draw_panel(panel: Any, lines: list[dict[str, Any]]) -> None:
    height = 0.8 / len(COLOURS)
    for index, (name, colour) in enumerate(COLOURS.items()):
        found = [(row, line["ratios"][name]) for row, line in enumerate(lines) if name in line["ratios"]]
        if not found:
            continue
        panel.barh(
            [row - 0.4 + height * (index + 0.5) for row, _ in found],
            [median for _, (_, median, _) in found],
            height=height,
            color=colour,
            label="raw limit" if name == "raw" else name,
            xerr=(
                [median - low for _, (low, median, _) in found],
                [high - median for _, (_, median, high) in found],
            ),
            error_kw={"elinewidth": 0.6},
        )
    panel.set_xscale("log")
    panel.axvline(1, color="black", linewidth=0.8)
    panel.set_yticks(range(len(lines)), [line["label"] for line in lines], fontsize=7)
    panel.legend(fontsize=7, loc="lower right")
    panel.set_xlabel("less than 1: we are faster")


def main() -> None:
    draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
