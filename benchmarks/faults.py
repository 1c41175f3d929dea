"""`make bench-faults`: what it costs when processes die, stop or are starved, here and at Mooncake.

Real processes on one host. Owns the cases and their figures; a pool of either store is behind one interface
(`fault_pools.py`). Nothing here decides a test.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.environment import environment
from benchmarks.fault_pools import POOLS, Pool
from benchmarks.figures import spread
from benchmarks.rounds import VENVS

BATCH: Final = 100
VALUE_BYTES: Final = 4 << 10
WRITERS: Final = 3
HANG_S: Final = 180.0
LATER_CALLS: Final = 20

Figures = dict[str, list[float]]


def value_of(key: str, size: int) -> bytes:
    """Bytes that betray a value under another's key, shifted or torn."""
    name = key.encode() + b"/"
    return (name * (size // len(name) + 1))[:size]


class Reads:
    """Compares every value that is read. wrong: how many were another's."""

    def __init__(self, pool: Pool, size: int) -> None:
        self.wrong = 0
        self._pool = pool
        self._size = size

    def found(self, keys: Sequence[str]) -> int:
        """How many of them came back right."""
        count = 0
        for key, value in zip(keys, self._pool.get_many(keys), strict=True):
            if value is None:
                continue
            if value == value_of(key, self._size):
                count += 1
            else:
                self.wrong += 1
        return count


def lost_node(pool: Pool, figures: Figures, how: str) -> None:
    """Latency of a batch of which a node is dead or stopped, at the first call and at later ones."""
    nodes = [pool.start_node(64 << 20) for _ in range(3)]
    pool.connect()
    keys = [f"batch/{number}" for number in range(BATCH)]
    pool.put_many(keys, [value_of(key, VALUE_BYTES) for key in keys])
    reads = Reads(pool, VALUE_BYTES)
    whole = reads.found(keys)
    figures.setdefault("readable of 100 before", []).append(whole)
    pool.kill(nodes[-1]) if how == "dead" else pool.stop(nodes[-1])
    begin = time.monotonic()
    figures.setdefault("readable of 100 at first", []).append(reads.found(keys))
    first_s = time.monotonic() - begin
    figures.setdefault("first call, s", []).append(first_s)
    for _ in range(LATER_CALLS if first_s < 10 else 2):
        begin = time.monotonic()
        reads.found(keys)
        figures.setdefault("later calls, s", []).append(time.monotonic() - begin)
    figures.setdefault("wrong bytes", []).append(reads.wrong)


def restarted_master(pool: Pool, figures: Figures, count: int) -> None:
    """Seconds until all keys are readable again after kill -9 and a new start on the same address."""
    size = 1 << 10 if count > 10_000 else VALUE_BYTES
    for _ in range(2):
        pool.start_node(max(64 << 20, count * size))
    pool.connect()
    keys = [f"{number}" for number in range(count)]
    for first in range(0, count, 1_000):
        some = keys[first : first + 1_000]
        pool.put_many(some, [value_of(key, size) for key in some])
    reads = Reads(pool, size)
    figures.setdefault("readable before", []).append(reads.found(keys))
    begin = time.monotonic()
    pool.restart_master()
    listening = time.monotonic()
    figures.setdefault("killed to listening, s", []).append(listening - begin)
    found = 0
    limit_s = HANG_S if pool.rebuilds else 30.0
    while found < count and time.monotonic() < listening + limit_s:
        found = reads.found(keys)
    if found == count:
        figures.setdefault("listening to readable, s", []).append(time.monotonic() - listening)
    figures.setdefault("readable afterwards", []).append(found)
    figures.setdefault("wrong bytes", []).append(reads.wrong)


def dead_writers(pool: Pool, figures: Figures) -> None:
    """Keys that nobody else can put within two seconds after their writers were killed amid a put."""
    pool.start_node(512 << 20)
    pool.connect()
    for turn in range(10):
        names = [f"{turn}/{who}" for who in range(WRITERS)]
        writers = [pool.start_writer(name) for name in names]
        for writer in writers:
            writer.wait_for("puts")
        time.sleep(0.05 * (turn + 1))
        for writer in writers:
            pool.kill(writer)
        begin = time.monotonic()
        size = pool.writer_value_bytes
        for name in names:
            keys = [f"{name}/{number}" for number in range(pool.writer_keys)]
            left = list(keys)
            while left and time.monotonic() < begin + 2:
                left = pool.not_stored(left, [value_of(key, 100) for key in left])
            figures.setdefault("keys", []).append(len(keys))
            figures.setdefault("stuck after 2 s", []).append(len(left))
            wrong = sum(
                value not in (None, value_of(key, 100), value_of(key, size))
                for key, value in zip(keys, pool.get_many(keys), strict=True)
            )
            figures.setdefault("wrong bytes", []).append(wrong)
        figures.setdefault("until all are put, s", []).append(time.monotonic() - begin)
        pool.clear()


def starved_machine(pool: Pool, figures: Figures) -> None:
    """Live clients that are declared dead while twice as many processes compute as there are cores."""
    for _ in range(2):
        pool.start_node(160 << 20)
    pool.connect()
    with ExitStack() as stack:
        for _ in range(4):
            burner = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(burner.kill)
        keys = [f"b{number}" for number in range(16)]
        reads = Reads(pool, 4 << 20)
        begin, batches = time.monotonic(), 0
        while time.monotonic() < begin + 45:
            names = [f"{batches % 2}/{key}" for key in keys]
            pool.put_many(names, [value_of(name, 4 << 20) for name in names], replace=True)
            reads.found(names)
            batches += 1
    figures.setdefault("batches of 64 MiB", []).append(batches)
    figures.setdefault("wrong bytes", []).append(reads.wrong)
    figures.setdefault("live sessions expired", []).append(pool.expired_sessions())


CASES: Final[dict[str, Callable[[Pool, Figures], None]]] = {
    "batch of 100, one of three nodes dead": lambda pool, figures: lost_node(pool, figures, "dead"),
    "batch of 100, one of three nodes stopped": lambda pool, figures: lost_node(pool, figures, "stopped"),
    "master killed, 1,000 keys": lambda pool, figures: restarted_master(pool, figures, 1_000),
    "master killed, 100,000 keys": lambda pool, figures: restarted_master(pool, figures, 100_000),
    "writers killed amid a put": dead_writers,
    "every core taken": starved_machine,
}


def work(store: str, case: str, logs: Path) -> Figures:
    """One case with one store, in this process: it has the store's own packages."""
    figures: Figures = {}
    with POOLS[store](logs) as pool:
        CASES[case](pool, figures)
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each case, stores in turn (3)")
    parser.add_argument("--only", default="", help="cases whose names contain this; several by |")
    parser.add_argument("--stores", default="ours,mooncake", help="by comma (ours,mooncake)")
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="folder of faults.json")
    parser.add_argument("--work", nargs=2, metavar=("STORE", "CASE"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    if chosen.work:
        with tempfile.TemporaryDirectory(prefix="faults-") as logs:
            print(json.dumps(work(chosen.work[0], chosen.work[1], Path(logs))))
        return 0
    cases = [name for name in CASES if any(part in name for part in chosen.only.split("|"))]
    before = environment()
    results: dict[str, dict[str, Figures]] = {case: {} for case in cases}
    skipped: dict[str, str] = {}
    for _ in range(chosen.rounds):
        for case in cases:
            for store in chosen.stores.split(","):
                _round(store, case, results[case], skipped)
    chosen.output.mkdir(parents=True, exist_ok=True)
    path = chosen.output / "faults.json"
    told: dict[str, Any] = {
        "environment": before,
        "after": environment(),
        "skipped": skipped,
        "results": results,
    }
    path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(table(results))
    for what, why in skipped.items():
        print(f"{what}: {why}")
    print(f"load average {before['load_average']} before; written: {path}")
    return 0


def _round(store: str, case: str, results: dict[str, Figures], skipped: dict[str, str]) -> None:
    """In a process of its own, so that a store that hangs or aborts takes nothing with it."""
    python = Path(sys.executable) if store == "ours" else VENVS / store / "bin/python"
    if not python.exists():
        skipped[store] = f"not set up: benchmarks/peers/setup.sh {store}"
        return
    command = [str(python), "-m", "benchmarks.faults", "--work", store, case]
    print(f"{case}: {store}", file=sys.stderr, flush=True)
    done = subprocess.run(
        command, cwd=VENVS.parents[2], capture_output=True, text=True, timeout=10 * HANG_S, check=False
    )
    if done.returncode != 0:
        skipped[f"{store}, {case}"] = f"ended with {done.returncode}: {done.stderr.strip()[-500:]}"
        return
    figures: Figures = json.loads(done.stdout.strip().splitlines()[-1])
    mine = results.setdefault(store, {})
    for name, measured in figures.items():
        mine.setdefault(name, []).extend(measured)


def table(results: dict[str, dict[str, Figures]]) -> str:
    """Markdown: of each figure the median and the largest, or the sum of what is counted."""
    lines = ["| case | figure | ours | mooncake |", "| --- | --- | --- | --- |"]
    for case, stores in results.items():
        names = dict.fromkeys(name for figures in stores.values() for name in figures)
        for name in names:
            cells = [_cell(name, stores.get(store, {}).get(name)) for store in ("ours", "mooncake")]
            lines.append(f"| {case} | {name} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _cell(name: str, measured: Sequence[float] | None) -> str:
    if not measured:
        return ""
    if name.endswith(", s"):
        return f"{spread(measured).median:.3f}, longest {max(measured):.3f} ({len(measured)})"
    if name in ("keys", "stuck after 2 s", "wrong bytes", "live sessions expired"):
        return f"{sum(measured):.0f}"
    return f"{spread(measured).median:.0f} ({min(measured):.0f}..{max(measured):.0f})"


if __name__ == "__main__":
    sys.exit(main())
