"""Enforces who may include and import whom; `make check` runs it.

Three rules, each a table below: what a sans-IO core may not include, which native folder may include
which, and which Python package may import which. Reads text only; knows nothing of what the code does.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Cores that decide without acting: time is an argument, ids are injected, bytes are moved by others.
PURE_FOLDERS = ("wire", "metadata", "replay", "node/core", "client/core", "transfer/core")

# Standard headers for threads, clocks, files, randomness and the system. <atomic> is allowed.
IMPURE_HEADERS = {
    "barrier",
    "chrono",
    "condition_variable",
    "csignal",
    "cstdio",
    "ctime",
    "dirent.h",
    "dlfcn.h",
    "fcntl.h",
    "filesystem",
    "fstream",
    "future",
    "iostream",
    "latch",
    "mutex",
    "netdb.h",
    "poll.h",
    "pthread.h",
    "random",
    "sched.h",
    "semaphore",
    "shared_mutex",
    "signal.h",
    "stdio.h",
    "stop_token",
    "syncstream",
    "thread",
    "time.h",
    "unistd.h",
}
IMPURE_PREFIXES = ("arpa/", "asm/", "linux/", "net/", "netinet/", "sys/", "nanobind/")
# Answers what the processor can do, which never changes while a process runs.
PURE_HEADERS = {"sys/auxv.h"}

# folder -> the other folders it may include. A folder includes itself always.
NATIVE_INCLUDES: dict[str, set[str]] = {
    "wire": set(),
    "metadata": {"wire"},
    "replay": {"wire", "metadata"},
    "node/core": {"wire"},
    "client/core": {"wire"},
    "net": {"wire"},
    "node": {"wire", "node/core", "net"},
    "client": {"wire", "client/core", "net"},
    "master": {"wire", "metadata", "net"},
    "transfer/core": {"wire"},
    "transfer": {"wire", "transfer/core", "net"},
    "bindings": {
        "wire",
        "metadata",
        "replay",
        "node/core",
        "client/core",
        "net",
        "node",
        "client",
        "master",
        "transfer",
    },
}

# package -> (its folder, the packages of ours that it must not import)
PYTHON_PACKAGES: dict[str, tuple[str, set[str]]] = {
    "mooncake_store": ("mooncake_store", {"mooncake_master", "mooncake_client", "mooncake_proxy"}),
    "mooncake_master": ("master/mooncake_master", {"mooncake_client", "mooncake_proxy"}),
    "mooncake_client": ("client/mooncake_client", {"mooncake_master", "mooncake_proxy"}),
    "mooncake_proxy": ("proxy/mooncake_proxy", {"mooncake_master"}),
}

_INCLUDE = re.compile(r'^\s*#\s*include\s*(<([^>]+)>|"([^"]+)")')


def _folder_of(path: Path) -> str:
    """The longest folder of NATIVE_INCLUDES that holds this path (relative to native/), or its first part."""
    parts = path.parts[:-1]
    for length in range(len(parts), 0, -1):
        folder = "/".join(parts[:length])
        if folder in NATIVE_INCLUDES:
            return folder
    return parts[0] if parts else ""


def native_violations(root: Path) -> Iterator[str]:
    """One line for each include in native/ that its folder must not have."""
    native = root / "native"
    for path in sorted([*native.rglob("*.h"), *native.rglob("*.cc")]):
        folder = _folder_of(path.relative_to(native))
        where = path.relative_to(root)
        if folder not in NATIVE_INCLUDES:
            yield f"{where}: native/{folder} has no line in NATIVE_INCLUDES of tools/check_purity.py"
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            match = _INCLUDE.match(line)
            if match is None:
                continue
            system, own = match.group(2), match.group(3)
            if system is not None:
                impure = system in IMPURE_HEADERS or (
                    system.startswith(IMPURE_PREFIXES) and system not in PURE_HEADERS
                )
                if impure and folder in PURE_FOLDERS:
                    yield f"{where}:{number}: <{system}> in a sans-IO core (native/{folder})"
            elif not (native / own).is_file():
                yield f'{where}:{number}: "{own}" is not a path below native/'
            else:
                target = _folder_of(Path(own))
                if target != folder and target not in NATIVE_INCLUDES[folder]:
                    yield f'{where}:{number}: native/{folder} must not include native/{target} ("{own}")'


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module


def python_violations(root: Path) -> Iterator[str]:
    """One line for each import of a package of ours by one that must not know it."""
    for package, (folder, forbidden) in PYTHON_PACKAGES.items():
        for path in sorted((root / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
            for number, module in _imports(tree):
                if module.split(".")[0] in forbidden:
                    yield f"{path.relative_to(root)}:{number}: {package} must not import {module}"


def main(arguments: list[str]) -> int:
    """Print every violation below the root given (default: this checkout); 1 if there was any."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    violations = [*native_violations(root), *python_violations(root)]
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
