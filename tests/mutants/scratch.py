"""A copy of the tree to plant bugs in, with a build directory and a virtual environment of its own.

Owns build/mutants/. Nothing outside of it is written: a run that is killed leaves the working tree as it was,
and the next one brings the copy up to date. The environment sees the copy's packages and, behind them, what
is installed beside the running Python; child processes that tests start see the same.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from mutants.planted import ROOT, Edit, Mutant

COPIED = (
    "native",
    "tests",
    "mooncake_store",
    "master",
    "client",
    "proxy",
    "examples",
    "proto",
    "tools",
    "CMakeLists.txt",
    "pyproject.toml",
    "README.md",
)
LEFT_OUT = ("__pycache__", ".hypothesis")
# No warnings: a planted bug may leave a parameter unused.
BUILD_OPTIONS = ("-DMOONCAKE_TESTS=ON", "-DCMAKE_CXX_FLAGS=-w")
BUILD_LIMIT_S = 1_800


class BuildFailure(Exception):
    """The compiler's or CMake's words."""


class Scratch:
    """The copy, locked against a second run."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.tree = folder / "tree"
        self.build_folder = folder / "build"
        self.python = folder / "python" / "bin" / "python"
        self._lock: IO[str] = (folder / "lock").open("w", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SystemExit(f"{folder} is in use by another run") from error

    def prepare(self) -> None:
        """Bring the copy up to date; files that are equal keep their times, so that little is compiled."""
        wanted = {path.relative_to(ROOT) for path in _files()}
        for path in wanted:
            _update(self.tree / path, (ROOT / path).read_bytes())
        for path in list(self.tree.rglob("*")):
            is_ours = path.is_symlink() or any(part in LEFT_OUT for part in path.parts)
            if path.is_file() and not is_ours and path.relative_to(self.tree) not in wanted:
                path.unlink()
        if not self.python.exists():
            venv.create(self.python.parents[1], with_pip=False, symlinks=True)
        [packages] = self.python.parents[1].glob("lib/python*/site-packages")
        # Folders that a .pth file names are searched, but their own .pth files are not read: so the editable
        # installation of the working tree beside this Python stays out.
        paths = [
            self.tree,
            self.tree / "master",
            self.tree / "client",
            self.tree / "proxy",
            *_site_packages(),
        ]
        _update(packages / "mutants.pth", "".join(f"{path}\n" for path in paths).encode())

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """The tree with this bug in it."""
        changed: dict[Path, bytes] = {}
        try:
            for edit in mutant.edits:
                path = self.tree / edit.file
                changed.setdefault(path, path.read_bytes())
                path.write_text(edit.applied(path.read_text(encoding="utf-8")), encoding="utf-8")
            yield
        finally:
            for path, content in changed.items():
                path.write_bytes(content)

    def use_installed_module(self) -> None:
        """For bugs in Python alone: the native module that is built already."""
        from mooncake_store import _core

        self._link_module(Path(_core.__file__))

    def build(self, targets: Iterable[str]) -> None:
        """Compile what these targets lack. Raises BuildFailure."""
        cmake = _beside_python("cmake")
        if not (self.build_folder / "CMakeCache.txt").exists():
            _run(
                [
                    cmake,
                    *("-S", str(self.tree), "-B", str(self.build_folder), "-G", "Ninja"),
                    f"-DCMAKE_MAKE_PROGRAM={_beside_python('ninja')}",
                    f"-DPython_EXECUTABLE={sys.executable}",
                    *BUILD_OPTIONS,
                ]
            )
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count() or 1)
        _run(
            [cmake, "--build", str(self.build_folder), "--parallel", jobs, "--target", *sorted(set(targets))]
        )
        for module in self.build_folder.glob("_core.*.so"):
            self._link_module(module)

    def _link_module(self, module: Path) -> None:
        link = self.tree / "mooncake_store" / module.name
        if not link.is_symlink() or link.readlink() != module:
            link.unlink(missing_ok=True)
            link.symlink_to(module)


def apply_all(edits: Iterable[Edit], read: dict[str, str]) -> None:
    """Apply each to the text read so far; raises Rotten for one that does not fit."""
    for edit in edits:
        if edit.file not in read:
            read[edit.file] = (ROOT / edit.file).read_text(encoding="utf-8")
        read[edit.file] = edit.applied(read[edit.file])


def _files() -> Iterator[Path]:
    for name in COPIED:
        path = ROOT / name
        if path.is_file():
            yield path
        for file in path.rglob("*"):
            if file.is_file() and file.suffix != ".so" and not any(p in LEFT_OUT for p in file.parts):
                yield file


def _update(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _site_packages() -> list[str]:
    return [path for path in sys.path if path.endswith("-packages")]


def _beside_python(program: str) -> str:
    folder = str(Path(sys.executable).parent)
    found = shutil.which(program, path=folder) or shutil.which(program)
    if found is None:
        raise SystemExit(f"{program} is not installed: run `make build` first")
    return found


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise BuildFailure(f"{' '.join(command)}\n{done.stdout}")
