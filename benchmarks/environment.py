"""What a reader must know of the machine to judge the figures."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.processes import ROOT


def environment() -> dict[str, Any]:
    return {
        "time": now_text(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": list(os.getloadavg()),
        "revision": _revision(),
    }


def now_text() -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())


def _cpu() -> str:
    match = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return match.group(1) if match else platform.machine()


def _revision() -> str:
    """The commit that is measured, with "+" where files differ from it; empty outside a repository."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
