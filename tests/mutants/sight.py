"""Runs one test in the scratch tree and says whether it turned red, and how.

Owns what counts as red: a failed test, or a test process that an assertion of ours stopped. A run that could
not decide (nothing collected, a usage error, time out) is neither red nor green.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from mutants.planted import Sight
from mutants.scratch import Scratch

LIMIT_S: Final = 240
SIMULATED_SEEDS: Final = 40
"""How many of the simulation's seeds one of ours stands for."""
# An id may hold spaces. An error at collection names the file alone.
FAILED: Final = re.compile(r"^(?:FAILED|ERROR) tests/.*?(?: - (.*))?$", re.MULTILINE)
PYTEST: Final = ("-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider", "--hypothesis-profile=mutants")


@dataclass(frozen=True)
class Verdict:
    """outcome: red is what a planted bug must get. what: the failure's line. output: all of it."""

    outcome: Literal["red", "green", "hangs", "undecided"]
    what: str = ""
    output: str = ""


def targets(sights: Sequence[Sight]) -> list[str]:
    """What the build must bring up to date for these."""
    names = {"native": "", "simulation": "simulation"}
    return sorted({names.get(sight.kind, "_core") or sight.where for sight in sights})


def look(scratch: Scratch, sight: Sight, seed: int) -> Verdict:
    """Run the test once. Only `drawn` and `simulation` listen to the seed."""
    process = subprocess.Popen(
        _command(scratch, sight, seed),
        cwd=scratch.tree,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "250"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # what it started holds the pipe, too
        output, _ = process.communicate()
        return Verdict("hangs", f"no end within {LIMIT_S} s", output)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return judge(sight, process.returncode, output)


def _command(scratch: Scratch, sight: Sight, seed: int) -> list[str]:
    if sight.kind == "native":
        return [str(scratch.build_folder / "native_tests" / sight.where), sight.name]
    if sight.kind == "simulation":
        first = (seed - 1) * SIMULATED_SEEDS + 1
        program = str(scratch.build_folder / "native_tests" / "simulation")
        return [program, "--first", str(first), "--seeds", str(SIMULATED_SEEDS)]
    return [
        str(scratch.python),
        *PYTEST,
        f"--hypothesis-seed={seed}",
        f"--timeout={LIMIT_S}",
        f"{sight.where}::{sight.name}",
    ]


def judge(sight: Sight, status: int, output: str) -> Verdict:
    if status == 0:
        return Verdict("green", "", output)
    stopped = -status if status < 0 else status - 128
    if stopped in (signal.SIGABRT, signal.SIGSEGV):
        asserted = re.search(r"Assertion `(.*)' failed", output) or re.search(r"what\(\):\s*(.*)", output)
        return Verdict("red", f"stopped: {asserted[1] if asserted else signal.Signals(stopped).name}", output)
    if status == 1 and sight.kind == "simulation":
        failed = re.search(r"^(seed \d+ failed: .*)$", output, re.MULTILINE)
        return Verdict("red", failed[1] if failed else "", output)
    if status == 1 and sight.kind == "native":
        return Verdict("red", output.strip().splitlines()[-1] if output.strip() else "", output)
    if status == 1 and (failed := re.search(FAILED, output)):
        return Verdict("red", failed[1] or "", output)
    return Verdict("undecided", f"exit status {status}", output)
