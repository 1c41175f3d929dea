"""Builds and runs the C++ tests beside this file: one pytest test for each *_test.cc.

MOONCAKE_NATIVE_BUILD names a CMake build directory to use instead of build/native-tests, such as one with
sanitizers (`make sanitize`). Knows nothing of what they test; check.h is their framework.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("*_test.cc")))
def test_native(native_tests: Path, name: str) -> None:
    run = subprocess.run([native_tests / name], capture_output=True, text=True, timeout=250, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
