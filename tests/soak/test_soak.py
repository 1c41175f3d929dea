"""A short soak: real processes killed and stopped, every byte read compared. `make soak` is the long one.

Real time and processes, because that is what it is about; docs/testing.md tells how to read its table.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HANG_S = 280


@pytest.mark.slow
def test_a_short_soak_finds_nothing_wrong() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "soak", "--scale=short", "--seed=3"],
        env={**os.environ, "PYTHONPATH": f"{ROOT}/tests"},
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rounds " in done.stdout
    told = dict(re.split(r"  +", line, maxsplit=1) for line in done.stdout.splitlines() if "  " in line)
    for name in ("location hits", "hits by a view, mapped", "hits by a view, copied", "views held, mapped"):
        assert int(told.get(name, 0)) > 0, f"nothing of {name!r}:\n{done.stdout}"
