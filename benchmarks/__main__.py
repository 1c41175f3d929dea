"""`make bench`, or `python -m benchmarks`: runs the works and writes the table, JSON and a picture."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.contenders import CONTENDERS
from benchmarks.environment import environment
from benchmarks.report import lines_of, remarks, report, table
from benchmarks.rounds import APART, FREE, VENVS, Contest, Result, placements_here
from benchmarks.work import MIB, WORKING_SET_BYTES, Work, shrunk, works


@dataclass(frozen=True)
class Scale:
    """How much is done. duration_s: of one contender's part of a round."""

    table_keys: int
    duration_s: float
    segment_bytes: int
    is_shrunk: bool = False


SCALES: Final = {
    "full": Scale(1_000_000, 0.1, 512 * MIB),
    "quick": Scale(100_000, 0.03, 512 * MIB),
    "smoke": Scale(2_000, 0.005, 64 * MIB, is_shrunk=True),
}


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=_positive, default=11, help="of each work and placement (11)")
    parser.add_argument("--only", default="", help="works whose names contain this; several by comma")
    parser.add_argument("--placement", default=f"{FREE},{APART}", help="free, apart or both by comma (both)")
    parser.add_argument("--scale", choices=SCALES, default="full", help="smoke only shows that it runs")
    parser.add_argument(
        "--contenders", default=",".join(CONTENDERS), help=f"by comma; there are {', '.join(CONTENDERS)}"
    )
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="folder of JSON and picture")
    parser.add_argument(
        "--logs", type=Path, default=None, help="keep the logs of all processes in this folder"
    )
    chosen = parser.parse_args(argv)
    chosen.contenders = chosen.contenders.split(",")
    chosen.placement = chosen.placement.split(",")
    for name in set(chosen.contenders) - set(CONTENDERS):
        parser.error(f"--contenders: {name!r} is none of {', '.join(CONTENDERS)}")
    for name in set(chosen.placement) - {FREE, APART}:
        parser.error(f"--placement: {name!r} is neither free nor apart")
    chosen.works = _chosen_works(SCALES[chosen.scale], chosen.only)
    if not chosen.works:
        parser.error(f"--only: no work's name contains any of {chosen.only!r}")
    return chosen


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _chosen_works(scale: Scale, only: str) -> list[Work]:
    everything = works(scale.table_keys)
    if scale.is_shrunk:
        everything = shrunk(everything)
    wanted = [part.strip() for part in only.split(",") if part.strip()]
    return [work for work in everything if not wanted or any(part in work.name for part in wanted)]


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 also where targets are missed or peers absent; 1 when nothing of ours was measured."""
    chosen = arguments(argv)
    signal.signal(signal.SIGTERM, _interrupt)  # as Ctrl-C: end the servers, report what there is
    placements, note = placements_here(chosen.placement)
    scale: Scale = SCALES[chosen.scale]
    started_in = environment()
    results: list[Result] = []
    chosen.output.mkdir(parents=True, exist_ok=True)
    keep = nullcontext(str(chosen.logs)) if chosen.logs else tempfile.TemporaryDirectory(prefix="bench-")
    with keep as logs:
        Path(logs).mkdir(parents=True, exist_ok=True)
        with Contest(
            chosen.contenders, Path(logs).resolve(), scale.segment_bytes, WORKING_SET_BYTES
        ) as contest:
            for name, why in contest.skipped.items():
                print(f"{name} skipped: {why}", file=sys.stderr)
            try:
                for work in chosen.works:
                    results += contest.run(work, placements, chosen.rounds, scale.duration_s, _tell)
            except KeyboardInterrupt:
                print("\ninterrupted: the report has what was measured so far", file=sys.stderr)
            _tell("")
    options = {"rounds": chosen.rounds, "scale": chosen.scale, "placements": placements, "note": note}
    lines = lines_of(results)
    print(table(lines))
    print()
    print("\n".join([*([note] if note else []), *remarks(contest, results, lines)]))
    path = chosen.output / "results.json"
    path.write_text(json.dumps(report(contest, results, started_in, options)) + "\n", encoding="utf-8")
    print(f"written: {path}{_picture(path)}")
    return 0 if any(line.columns.get("ours") for line in lines) else 1


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _picture(path: Path) -> str:
    """Draws it where matplotlib is set up; what to say about it."""
    python, target = VENVS / "plot/bin/python", path.with_suffix(".svg")
    if not python.exists():
        return "; no picture without matplotlib: benchmarks/peers/setup.sh plot"
    done = subprocess.run(
        [str(python), "-m", "benchmarks.plot", str(path.resolve()), str(target.resolve())],
        cwd=VENVS.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    return f", {target}" if done.returncode == 0 else f"; the picture failed: {done.stderr.strip()[-300:]}"


def _tell(text: str) -> None:
    """Progress on stderr: a line that the next one replaces, or into a log one a work."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif "round 1 of" in text:
        print(text.rsplit(",", 1)[0], file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
