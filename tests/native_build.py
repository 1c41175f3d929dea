"""Where the C++ test executables are; they are built when first asked for. A plugin of conftest.py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever comes first may have to compile everything: more time, and not in `make quick`."""
    for item in items:
        if "native_tests" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(1800))
            item.add_marker(pytest.mark.slow)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def _build_folder() -> Path:
    """The package's own build folder when there is one, so that nothing is compiled twice."""
    if chosen := os.environ.get("MOONCAKE_NATIVE_BUILD"):
        return Path(chosen).resolve()
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for cache in ROOT.glob(f"build/{tag}-{tag}-*/CMakeCache.txt"):
        # One left by an isolated build names a make program that is gone.
        make = re.search(r"^CMAKE_MAKE_PROGRAM:\w+=(.*)$", cache.read_text(encoding="utf-8"), re.MULTILINE)
        if make is not None and Path(make[1]).exists():
            return cache.parent
    return ROOT / "build" / "native-tests"


@pytest.fixture(scope="session")
def native_tests() -> Path:
    """The folder of executables, up to date; MOONCAKE_NATIVE_BUILD chooses the build folder."""
    build = _build_folder()
    beside = shutil.which("cmake", path=str(Path(sys.executable).parent))  # this virtual environment's
    cmake = beside or shutil.which("cmake")
    if cmake is None:
        pytest.skip("cmake is not installed")
    python = f"-DPython_EXECUTABLE={sys.executable}"
    _run(cmake, "-S", str(ROOT), "-B", str(build), "-DMOONCAKE_TESTS=ON", python)
    _run(cmake, "--build", str(build), "--target", "native_tests", "--parallel", "2")
    return build / "native_tests"
