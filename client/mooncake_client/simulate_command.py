"""`mooncake simulate` as a command: progress, and a table with a chart, or JSON.

Owns printing; reading is `trace.py`'s, the work `simulate.py`'s.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mooncake_client.chart import chart_lines
from mooncake_client.progress import progress_bars
from mooncake_client.simulate import Run, plan, simulate
from mooncake_client.trace import Trace, read_trace

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

Show = Callable[[str, Sequence[str], Sequence[Sequence[object]]], None]


def run_simulate(
    trace: Path, settings: Mapping[str, str], show: Show, *, time_unit: str, as_json: bool
) -> int:
    """Exit status: 0, or 130 when it was interrupted; then there are no figures."""
    wanted = plan(**settings)
    read = read_trace(trace, time_unit=time_unit)
    try:
        with progress_bars() as progress:
            runs = list(simulate(read, wanted, progress))
    except KeyboardInterrupt:
        print("mooncake: interrupted", file=sys.stderr)
        return INTERRUPTED
    if as_json:
        print(json.dumps([run.as_json() for run in runs], indent=1))
    else:
        _show(trace, read, runs, show)
    return 0


def _show(path: Path, trace: Trace, runs: Sequence[Run], show: Show) -> None:
    infinite = runs[0].infinite.whole
    print(
        f"{len(trace.lengths):,} requests for {len(trace.blocks):,} blocks, {trace.block_count:,} different; "
        f"a cache without an end hits {infinite.block_hit_rate:.4f}, {infinite.prefix_hit_rate:.4f} as prefix"
    )
    show(
        f"hit rates of {path.name}",
        ("policy", "blocks", "block hits", "prefix hits", "2nd half", "of it prefix", "Belady"),
        [
            (
                run.policy,
                f"{run.capacity_blocks:,}",
                f"{run.found.whole.block_hit_rate:.4f}",
                f"{run.found.whole.prefix_hit_rate:.4f}",
                f"{run.found.second.block_hit_rate:.4f}",
                f"{run.found.second.prefix_hit_rate:.4f}",
                f"{run.belady.whole.block_hit_rate:.4f}",
            )
            for run in runs
        ],
    )
    by_size = {run.capacity_blocks: run for run in runs}
    if len(by_size) < 2:
        return
    sizes = sorted(by_size)
    curves = {"Belady": [by_size[size].belady.whole.block_hit_rate for size in sizes]}
    for policy in dict.fromkeys(run.policy for run in runs):
        rates = {r.capacity_blocks: r.found.whole.block_hit_rate for r in runs if r.policy == policy}
        curves[policy] = [rates[size] for size in sizes]
    print("\n".join(chart_lines("block hits by blocks that fit", curves, [f"{size:,}" for size in sizes])))
