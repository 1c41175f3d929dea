"""Plants the bugs of the catalogue one at a time in a copy of the tree and shows which test turns red.

`python -m mutants` with tests/ on the path (`make mutants`). First the tests must be green without a bug.
Ends with status 1 if a bug is seen by none or not all of its tests, does not apply, or does not compile.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from mutants.catalogue import MUTANTS
from mutants.planted import ROOT, SIMULATION, Mutant, Rotten, Sight
from mutants.scratch import BuildFailure, Scratch
from mutants.sight import Verdict, look, targets

SEEDS = (1, 2, 3)
LINES_SHOWN = 40


def main() -> int:
    options = _options()
    mutants = chosen(options.only, options.python)
    scratch = Scratch(options.scratch)
    scratch.prepare()
    seeds = tuple(range(options.seed, options.seed + options.seeds))
    sights = list(dict.fromkeys(sight for mutant in mutants for sight in mutant.seen_by))
    try:
        _bring_up(scratch, sights, compiles=any(mutant.is_compiled for mutant in mutants))
    except BuildFailure as failure:
        return _give_up(f"the unchanged sources do not compile:\n{failure}")
    if options.baseline:
        start = time.monotonic()
        for sight in sights:
            for seed in seeds if sight.kind in ("drawn", "simulation") else seeds[:1]:
                verdict = look(scratch, sight, seed)
                if verdict.outcome != "green":
                    return _give_up(f"without a bug, {sight} (seed {seed}) is not green:\n{verdict.output}")
        print(f"{len(sights)} tests are green without a bug ({time.monotonic() - start:.0f} s)", flush=True)
    width = max(len(mutant.name) for mutant in mutants)
    print(f"{'planted bug':{width}}  {'s':>4}  seen by")
    failed = [m.name for m in mutants if not _try(scratch, m, seeds, width, options.simulation)]
    print(f"{len(mutants) - len(failed)} of {len(mutants)} planted bugs are seen, under seeds {_list(seeds)}")
    if failed:
        print(f"not seen: {', '.join(failed)}")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", default="", help="names, or parts of names, by comma")
    parser.add_argument("--python", action="store_true", help="only the bugs that need no compiler")
    parser.add_argument("--simulation", action="store_true", help="also tell which the simulation sees")
    parser.add_argument("--seed", type=int, default=SEEDS[0], help="the first seed")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many")
    parser.add_argument(
        "--no-baseline", dest="baseline", action="store_false", help="trust that all is green"
    )
    parser.add_argument(
        "--scratch", type=Path, default=ROOT / "build" / "mutants", help="where the copy goes"
    )
    return parser.parse_args()


def chosen(only: str, python: bool) -> list[Mutant]:
    """In the order in which they are planted."""
    parts = [part.strip() for part in only.split(",") if part.strip()]
    exact = [mutant for mutant in MUTANTS if mutant.name in parts]
    found = [mutant for mutant in MUTANTS if any(part in mutant.name for part in parts)] if parts else MUTANTS
    if parts and len(exact) == len(parts):
        found = exact
    found = [mutant for mutant in found if not (python and mutant.is_compiled)]
    if not found:
        raise SystemExit(f"no planted bug has a name with {only!r}; there are:\n" + _names())
    # Those of Python first, over native code without a bug: a compiled one stays built until the next. Those
    # of one file together: it is compiled once for each, and not in between.
    return sorted(found, key=lambda mutant: (mutant.is_compiled, mutant.edits[0].file))


def _names() -> str:
    return "\n".join(f"  {mutant.name}: {mutant.story}" for mutant in MUTANTS)


def _bring_up(scratch: Scratch, sights: Sequence[Sight], *, compiles: bool) -> None:
    if compiles:
        scratch.build(targets(sights))
    else:
        scratch.use_installed_module()


def _try(scratch: Scratch, mutant: Mutant, seeds: Sequence[int], width: int, simulates: bool) -> bool:
    """Plant it and look; prints its lines of the table. True: everything that should see it does.

    simulates: the simulation's view is told beside them and decides nothing.
    """
    start = time.monotonic()
    lines: list[str] = []
    is_seen = True
    try:
        with scratch.planted(mutant):
            simulation = [SIMULATION] if simulates and mutant.is_compiled else []
            if mutant.is_compiled:
                scratch.build(targets([*mutant.seen_by, *simulation]))
            for sight in mutant.seen_by:
                line, all_red = _sighted(scratch, mutant, sight, seeds)
                lines.append(line)
                is_seen = is_seen and all_red
            lines += [_sighted(scratch, mutant, sight, seeds)[0] for sight in simulation]
    except (Rotten, BuildFailure) as error:
        is_seen = False
        what = "does not compile" if isinstance(error, BuildFailure) else "does not apply"
        lines.append(f"{what}: {_tail(str(error))}")
    seconds = f"{time.monotonic() - start:4.0f}"
    for index, line in enumerate(lines):
        name, took = (mutant.name, seconds) if index == 0 else ("", "")
        print(f"{name:{width}}  {took:>4}  {line}", flush=True)
    if not is_seen:
        print(f"{'':{width}}        SURVIVES: {mutant.story}", flush=True)
    return is_seen


def _sighted(scratch: Scratch, mutant: Mutant, sight: Sight, seeds: Sequence[int]) -> tuple[str, bool]:
    depends = sight.kind in ("drawn", "simulation")
    verdicts = {seed: look(scratch, sight, seed) for seed in (seeds if depends else seeds[:1])}
    red = [seed for seed, verdict in verdicts.items() if _is_red(mutant, verdict)]
    what = next((verdicts[seed].what for seed in red), "")
    text = f"{sight}" + (f" [seeds {_list(red)}]" if depends and red else "") + (f": {what}" if what else "")
    for seed, verdict in verdicts.items():
        if seed in red:
            continue
        text += f" [NOT RED{f' under seed {seed}' if depends else ''}: {verdict.outcome}]"
        if verdict.outcome == "undecided":
            text += f" {verdict.what}\n{_tail(verdict.output)}"
    return text, len(red) == len(verdicts)


def _is_red(mutant: Mutant, verdict: Verdict) -> bool:
    return verdict.outcome == "red" or (verdict.outcome == "hangs" and mutant.may_hang)


def _list(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, seeds))


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-LINES_SHOWN:])


def _give_up(why: str) -> int:
    print(why, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
