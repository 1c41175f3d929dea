"""A short soak: real processes killed and stopped, every byte read compared. `make soak` is the long one.

Real time and processes, because that is what it is about; docs/testing.md tells how to read its table.
"""

from __future__ import annotations

import os
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
