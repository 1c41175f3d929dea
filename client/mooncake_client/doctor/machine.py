"""Is the installation whole, and does this machine give what the store needs?

Owns the checks that ask the kernel and the package alone. Must not touch the network.
"""

from __future__ import annotations

import importlib.metadata
import mmap
import os
import platform
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mooncake_client.doctor.checks import Check, checked
from mooncake_store import _core
from mooncake_store._version import __version__

CHECK_S: Final = 3.0
"""Of one check of this module: the kernel answers in microseconds, unless it is in trouble."""
FILES_MIN: Final = 4_096
"""Descriptors: up to 64 connections a node, for tens of nodes, beside those of the engine."""
MEMORY_FREE_MIN: Final = 1 << 30
CLOCK_READ_NS_MAX: Final = 1_000
"""A clock that is read without a system call takes 20 to 60 ns; one over a slow source, microseconds."""
CRC_CHECK: Final = 0xE3069283
"""CRC-32C of the digits 1 to 9, as RFC 3720 and the catalogues of CRCs have it."""
FEATURES: Final = ("sse4_2", "pclmulqdq", "avx2", "avx512f", "vpclmulqdq", "crc32", "pmull", "asimd", "sve")


def machine_checks() -> list[Check]:
    found: list[Check] = []
    for name, check in CHECKS.items():
        found += checked(name, CHECK_S, check)
    return found


def _version() -> Sequence[Check]:
    native = _core.version()
    where = (
        f"Python {platform.python_version()}, {platform.system()} {platform.release()} {platform.machine()}"
    )
    if native != __version__:
        return [
            Check(
                "install.version",
                "fail",
                f"the package is {__version__}, its native module {native}",
                "install it anew: pip install --force-reinstall mooncake-store",
            )
        ]
    extras = [name for name in ("grpcio", "typer", "numpy", "torch") if _is_installed(name)]
    return [
        Check("install.version", "ok", f"{__version__}, native module as well; {where}; {', '.join(extras)}")
    ]


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _crc() -> Sequence[Check]:
    kernels = _core.crc32c_implementations()
    wrong = [name for name in kernels if _core.crc32c_by(name, b"123456789") != CRC_CHECK]
    features = " ".join(_features()) or "none known"
    if wrong:
        return [
            Check(
                "install.crc32c",
                "fail",
                f"{', '.join(wrong)} computes a wrong checksum on this processor ({features})",
                "take this machine out of the pool and report it: memory or processor may be faulty",
            )
        ]
    if kernels[-1] == "table":
        return [
            Check(
                "install.crc32c",
                "warn",
                f"checksums go by a table, many times slower; processor features: {features}",
                "let the virtual machine see its host's processor features (SSE4.2 or the CRC of ARMv8)",
            )
        ]
    return [Check("install.crc32c", "ok", f"{kernels[-1]}; processor features: {features}")]


def _features() -> list[str]:
    text = _read("/proc/cpuinfo", 1 << 16)
    for line in text.splitlines():
        name, _, values = line.partition(":")
        if name.strip() in ("flags", "Features"):
            has = set(values.split())
            return [feature for feature in FEATURES if feature in has]
    return []


def _cores() -> Sequence[Check]:
    allowed = len(os.sched_getaffinity(0))
    quota = _cpu_quota()
    said = f"{allowed} of {os.cpu_count()} cores may be used"
    if quota is not None:
        said += f", the control group gives the time of {quota:g}"
    if quota is not None and quota < 1:
        return [
            Check("machine.cores", "warn", said, "raise the CPU limit of the container to a core or more")
        ]
    load = os.getloadavg()[0]
    said += f"; load {load:.1f}"
    if load > 4 * allowed:
        return [Check("machine.cores", "warn", said, "see what else runs here (top): calls wait for a core")]
    return [Check("machine.cores", "ok", said)]


def _memory() -> Sequence[Check]:
    free = _meminfo("MemAvailable")
    said = f"{_about(free)} of {_about(_meminfo('MemTotal'))} available"
    limit, used = _memory_limit()
    if limit is not None:
        said += f", the control group's limit is {_about(limit)} with {_about(used)} in use"
        free = min(free, max(0, limit - used))
    if free < MEMORY_FREE_MIN:
        return [
            Check(
                "machine.memory",
                "warn",
                said,
                "lend less (--global_segment_size) or raise the limit: what goes beyond it is killed",
            )
        ]
    return [Check("machine.memory", "ok", said)]


def _memlock() -> Sequence[Check]:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return [
        Check(
            "machine.memlock", "ok", f"RLIMIT_MEMLOCK is {_limit(soft, 'bytes')}; over TCP nothing is locked"
        )
    ]


def _files() -> Sequence[Check]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = f"RLIMIT_NOFILE is {_limit(soft)}, at most {_limit(hard)}"
    if soft != resource.RLIM_INFINITY and soft < FILES_MIN:
        return [
            Check(
                "machine.files",
                "warn",
                f"{said}: a master, a proxy or a client of many nodes needs more",
                "ulimit -n 65536, or LimitNOFILE=65536 in the service",
            )
        ]
    return [Check("machine.files", "ok", said)]


def _memfd() -> Sequence[Check]:
    try:
        fd = os.memfd_create("mooncake-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, mmap.PAGESIZE)
            with mmap.mmap(fd, mmap.PAGESIZE) as page:
                page[:1] = b"x"
        finally:
            os.close(fd)
    except (OSError, AttributeError) as error:
        return [
            Check(
                "machine.memfd",
                "fail",
                f"memory that can be lent cannot be made: {error}",
                "allow memfd_create and mmap here (the container's seccomp profile); a node cannot start so",
            )
        ]
    said = "memory that can be lent can be made (memfd)"
    try:
        found = os.statvfs("/dev/shm")
    except OSError as error:
        return [Check("machine.memfd", "ok", f"{said}; /dev/shm, which nothing here needs: {error.strerror}")]
    free = found.f_bavail * found.f_frsize
    return [
        Check("machine.memfd", "ok", f"{said}; /dev/shm, which only engines use, has {_about(free)} free")
    ]


def _hugepages() -> Sequence[Check]:
    said = f"{_meminfo('HugePages_Total', 1)} in the kernel's pool, {_meminfo('HugePages_Free', 1)} free"
    modes = _read("/sys/kernel/mm/transparent_hugepage/enabled")
    mode = modes[modes.find("[") + 1 : modes.find("]")] if "[" in modes else "not there"
    if mode == "never":
        return [
            Check(
                "machine.hugepages",
                "warn",
                f"{said}; transparent ones are off, so the master's index misses the TLB more often",
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            )
        ]
    return [Check("machine.hugepages", "ok", f"{said}; transparent ones: {mode}")]


def _clock() -> Sequence[Check]:
    source = _read("/sys/devices/system/clocksource/clocksource0/current_clocksource").strip() or "not told"
    reads = 1_000
    best = min(_clock_round(reads) for _ in range(3)) / reads
    said = f"source {source}, {best:.0f} ns a reading"
    if best > CLOCK_READ_NS_MAX:
        remedy = "use the clock source tsc (or kvm-clock): each reading of this one is a trip to the kernel"
        return [Check("machine.clock", "warn", said, remedy)]
    return [Check("machine.clock", "ok", said)]


def _clock_round(reads: int) -> int:
    read = time.monotonic_ns
    begin = read()
    for _ in range(reads):
        read()
    return read() - begin


CHECKS: Final[dict[str, Callable[[], Sequence[Check]]]] = {
    "install.version": _version,
    "install.crc32c": _crc,
    "machine.cores": _cores,
    "machine.memory": _memory,
    "machine.memlock": _memlock,
    "machine.files": _files,
    "machine.memfd": _memfd,
    "machine.hugepages": _hugepages,
    "machine.clock": _clock,
}


# ---- what the kernel says


def _read(path: str, size_bytes: int = 4096) -> str:
    """The begin of a small file; empty where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(size_bytes)
    except OSError:
        return ""


def _meminfo(name: str, unit_bytes: int = 1024) -> int:
    for line in _read("/proc/meminfo", 1 << 14).splitlines():
        field, _, value = line.partition(":")
        if field == name:
            return int(value.split()[0]) * unit_bytes
    return 0


def _groups(controller: str) -> list[Path]:
    """Folders of this process's control groups for a controller, the innermost first; v2, then v1."""
    found: list[Path] = []
    for line in _read("/proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            root = Path("/sys/fs/cgroup")
        elif controller in controllers.split(","):
            root = Path("/sys/fs/cgroup", controller)
        else:
            continue
        group = root / path.lstrip("/")
        found += [group, *(parent for parent in group.parents if parent.is_relative_to(root))]
    return found


def _memory_limit() -> tuple[int | None, int]:
    """The tightest limit round this process and what is used of it; None: there is none."""
    tightest: int | None = None
    used = 0
    for group in _groups("memory"):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit = _read(str(group / limit_name)).strip()
            # v1 says "none" by a number near the top of the address space.
            if limit.isdigit() and int(limit) < 1 << 60 and (tightest is None or int(limit) < tightest):
                tightest = int(limit)
                now = _read(str(group / used_name)).strip()
                used = int(now) if now.isdigit() else 0
    return tightest, used


def _cpu_quota() -> float | None:
    """How many cores' time the control groups give; None: no limit."""
    quotas: list[float] = []
    for group in _groups("cpu"):
        quota, period = [*_read(str(group / "cpu.max")).split(), "", ""][:2]
        if not quota:
            quota = _read(str(group / "cpu.cfs_quota_us")).strip()
            period = _read(str(group / "cpu.cfs_period_us")).strip()
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def _about(size_bytes: int) -> str:
    return (
        f"{size_bytes / (1 << 30):.1f} GiB" if size_bytes >= 1 << 30 else f"{size_bytes / (1 << 20):.1f} MiB"
    )


def _limit(value: int, unit: str = "") -> str:
    if value == resource.RLIM_INFINITY:
        return "unlimited"
    return _about(value) if unit == "bytes" else str(value)
