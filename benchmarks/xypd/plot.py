"""A picture of a run's JSON: TTFT, throughput and tokens not recomputed by shape, with the store and without.

Needs matplotlib: benchmarks/peers/venvs/plot/bin/python -m benchmarks.xypd.plot xypd.json xypd.svg
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "benchmarks"  # the same figures give the same file

from matplotlib import pyplot as plt  # noqa: E402

COLOURS: Final = {"store": "#4d6a8f", "without": "#c1553b"}
PANELS: Final[dict[str, Callable[[dict[str, Any]], float]]] = {
    "TTFT, median, ms": lambda result: float(result["ttft_ms"]["p50"]),
    "requests a second": lambda result: float(result["requests_s"]),
    "prompt tokens not recomputed": lambda result: float(result["not_recomputed_share"]),
}


def draw(report: dict[str, Any], target: Path) -> None:
    shapes = list(dict.fromkeys(result["shape"] for result in report["results"]))
    figure, panels = plt.subplots(1, len(PANELS), figsize=(4 * len(PANELS), 3.5))
    for panel, (title, value) in zip(panels, PANELS.items(), strict=True):
        for index, (mode, colour) in enumerate(COLOURS.items()):
            found = {r["shape"]: value(r) for r in report["results"] if r["mode"] == mode}
            places = [place + 0.4 * (index - 0.5) for place, name in enumerate(shapes) if name in found]
            panel.bar(places, list(found.values()), width=0.4, color=colour, label=mode)
        panel.set_xticks(range(len(shapes)), shapes)
        panel.set_title(title, fontsize=9)
        panel.legend(fontsize=7)
    settings = report["settings"]
    figure.suptitle(
        f"stub engines, {settings['prompt_tokens']} tokens in, {settings['output_tokens']} out, "
        f"{settings['shared']:.0%} shared, {settings['concurrency']} at a time, {settings['scheduling']}",
        fontsize=9,
    )
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2]))
