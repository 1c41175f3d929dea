"""Runs ill_peers/ill_peers_test.cc: a real client beside ill nodes and masters, by the fake clock."""

from __future__ import annotations

import subprocess
from pathlib import Path


def test_ill_peers(native_tests: Path) -> None:
    run = subprocess.run(
        [native_tests / "ill_peers_test"], capture_output=True, text=True, timeout=250, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
