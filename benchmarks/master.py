"""`make bench-master`: the speed and memory of a master, and a node's range allocator, beside their targets.

A real `mooncake_master` is driven over its lane by `benchmarks/lane` (C++), which stands for clients and for
nodes without memory. What a key or a request costs is the CPU time of the master's lane threads, system time
included: it says the same on a machine that others use too. Nothing here decides a test.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from benchmarks.contenders.ours import MASTER, MASTER_READY
from benchmarks.processes import ROOT, Server

KIB: Final = 1 << 10
RANGE_BYTES: Final = 64 * KIB
"""What one value of the works charges; `lane/works.cc` puts them."""

FILL: Final = 0.89
"""Of the memory the table takes: a little more crosses the high watermark."""

CLIENTS: Final = 500
NODES: Final = 1_000

Figures = dict[str, float]


@dataclass(frozen=True)
class Scale:
    keys: int
    many_keys: int
    batches: int
    singles_ms: int
    others_ms: int
    nodes: int = NODES
    clients: int = CLIENTS


SCALES: Final = {
    "full": Scale(1_000_000, 10_000_000, 200, 500, 2_000),
    "quick": Scale(100_000, 1_000_000, 100, 200, 1_000),
    "smoke": Scale(10_000, 20_000, 3, 20, 50, nodes=10, clients=5),
}


class Load:
    """The driver of one master, or of none; `ask` gives the figures of one work."""

    def __init__(self, program: Path, master: Master | None = None) -> None:
        address = [] if master is None else ["127.0.0.1", str(master.lane_port), str(master.pid)]
        self._process = subprocess.Popen(
            [str(program), *address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *words: object) -> Figures:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"lane_load ended with {self._process.wait()} at {words}")
        figures: Figures = json.loads(line)
        return figures

    def __enter__(self) -> Load:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # its input ends, and so does it


class Master:
    """A `mooncake_master` process, as operators start it."""

    def __init__(self, folder: Path) -> None:
        options = (
            "--port=0 --lane_port=0 --metrics_port=0 --rpc_address=127.0.0.1 --metrics_host=127.0.0.1"
            " --enable_metric_reporting=false --state_file=none --nodial_back"
            " --eviction_ratio=0.09 --max_keys=100000000 --max_metadata_bytes=64GiB"
        )
        self._server = Server((sys.executable, "-c", MASTER, *options.split()), folder / "master.log")
        grpc_port, lane_port = self._server.wait_for(MASTER_READY).groups()
        self.address, self.lane_port, self.pid = f"127.0.0.1:{grpc_port}", int(lane_port), self._server.pid

    def stop(self) -> None:
        self._server.stop()


@dataclass
class Row:
    """One line of the table. is_most: the target is an upper bound. None: the design sets none."""

    name: str
    unit: str
    target: float | None
    is_most: bool
    values: list[float]
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def is_met(self) -> bool | None:
        if self.target is None:
            return None
        return self.median <= self.target if self.is_most else self.median >= self.target

    def line(self) -> str:
        bound = "" if self.target is None else f"{'<=' if self.is_most else '>='} {_short(self.target)}"
        spread = f"{_short(min(self.values))}..{_short(max(self.values))}"
        verdict = {True: "met", False: "missed", None: ""}[self.is_met]
        return (
            f"| {self.name} | {_short(self.median)} {self.unit} | {spread} | "
            f"{bound} | {verdict} | {self.note} |"
        )


def _short(value: float) -> str:
    for factor, letter in ((1e6, " M"), (1e3, " k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


class Bench:
    """All works at one scale; what `only` does not name is left out."""

    def __init__(self, program: Path, scale: Scale, rounds: int, only: str, folder: Path) -> None:
        self._program, self._scale, self._rounds, self._folder = program, scale, rounds, folder
        self._only = [word.strip() for word in only.split(",") if word.strip()]
        self.rows: list[Row] = []

    def wants(self, group: str) -> bool:
        return not self._only or any(word in group for word in self._only)

    def run(self) -> None:
        works: dict[str, Callable[[], None]] = {
            "inside": self.inside,
            "table": self.table,
            "large": self.large_table,
            "nodes": self.nodes,
            "clients": self.clients,
            "rebuild": self.rebuild,
        }
        for group, work in works.items():
            if self.wants(group):
                work()

    def _row(
        self,
        name: str,
        unit: str,
        target: float | None,
        values: Sequence[float],
        *,
        most: bool,
        note: str = "",
    ) -> None:
        self.rows.append(Row(name, unit, target, most, list(values), note))
        print(self.rows[-1].line(), flush=True)

    @contextmanager
    def _table(self, keys: int) -> Iterator[tuple[Load, Figures]]:
        """A master with so many keys, its driver, and what the fill showed."""
        master = Master(self._folder)
        try:
            with Load(self._program, master) as load:
                load.ask("nodes", 1, int(keys * RANGE_BYTES / FILL))
                yield load, load.ask("fill", 0, keys)
        finally:
            master.stop()

    def _batches(self, load: Load, keys: int, exists: float, lookup: float) -> None:
        speeds: dict[str, list[float]] = {"exists": [], "lookup": []}
        for _ in range(self._rounds):
            for verb, values in speeds.items():
                values.append(
                    load.ask("batches", verb, keys, self._scale.batches)["keys_a_cpu_s"],
                )
        for verb, target in (("exists", exists), ("lookup", lookup)):
            name = f"{verb}, batches of 1,000, {_short(keys)} keys"
            self._row(name, "keys/CPU s", target, speeds[verb], most=False)

    def _filled(self, keys: int, filled: Figures) -> None:
        self._row(
            f"memory beside the key, {_short(keys)} keys",
            "bytes",
            150,
            [filled["bytes_a_key_beyond_it"]],
            most=True,
            note=f"put at {_short(filled['puts_a_cpu_s'])} keys/CPU s",
        )

    def table(self) -> None:
        scale = self._scale
        with self._table(scale.keys) as (load, filled):
            self._filled(scale.keys, filled)
            self._batches(load, scale.keys, 5e6, 4e6)
            for depth, target in ((1, 130e3), (4, 300e3)):
                values = [
                    load.ask("singles", 32, depth, scale.keys, scale.singles_ms)["requests_a_cpu_s"]
                    for _ in range(self._rounds)
                ]
                name = f"exists, one key, 32 connections, depth {depth}"
                self._row(name, "requests/CPU s", target, values, most=False)
            self._others(load)

    def _others(self, load: Load) -> None:
        """Round by round, each beside what the same question takes with nobody else."""
        crowds = {"batches": "lookups of 10,000 keys", "scan": "a scan of all keys"}
        latency: dict[str, list[float]] = {crowd: [] for crowd in ("nobody", *crowds)}
        for _ in range(self._rounds):
            for crowd, values in latency.items():
                answer = load.ask("others", crowd, self._scale.keys, self._scale.others_ms)
                values.append(answer["p99_us"] / 1e3)
        alone = f"with nobody else {_short(statistics.median(latency['nobody']))} ms"
        for crowd, what in crowds.items():
            self._row(f"p99 of others beside {what}", "ms", 5, latency[crowd], most=True, note=alone)
        answer = load.ask("others", "eviction", self._scale.keys, self._scale.others_ms)
        note = (
            f"{alone}; {_short(answer['evicted_keys'])} keys evicted, longest {answer['max_us'] / 1e3:.1f} ms"
        )
        self._row("p99 of others beside an eviction", "ms", 5, [answer["p99_us"] / 1e3], most=True, note=note)

    def large_table(self) -> None:
        keys = self._scale.many_keys
        with self._table(keys) as (load, filled):
            self._filled(keys, filled)
            self._batches(load, keys, 2e6, 2e6)

    def inside(self) -> None:
        with Load(self._program) as load:
            for least, most, target, what in (
                (65_792, 65_792, 0.89, "equal blocks of 64 KiB and a header"),
                (65_536, 65_792, 0.89, "64 KiB and headers of up to 256 bytes"),
                (16 * KIB, 16 * KIB * KIB, None, "16 KiB to 16 MiB"),
            ):
                used = load.ask("replacement", least, most, 4 << 30)["utilisation"]
                self._row(f"segment in use at the first refusal, {what}", "", target, [used], most=False)
            slowest = load.ask("inserts", self._scale.many_keys)
            self._row(
                f"slowest insert, growing to {_short(self._scale.many_keys)} keys",
                "ms of CPU",
                2,
                [slowest["slowest_us"] / 1e3],
                most=True,
                note=f"tenth slowest {slowest['tenth_slowest_us'] / 1e3:.2f} ms",
            )

    def nodes(self) -> None:
        master = Master(self._folder)
        try:
            with Load(self._program, master) as load:
                before = load.ask("idle", 2_000)["cores"]
                begun = time.monotonic()
                load.ask("nodes", self._scale.nodes, 1 << 30)
                joined = time.monotonic() - begun
                values = [load.ask("idle", 1_000)["cores"] for _ in range(self._rounds)]
                note = f"without them {before:.3f}; mounted one after the other in {joined:.1f} s"
                self._row(
                    f"{self._scale.nodes} nodes' heartbeats", "cores", 0.1, values, most=True, note=note
                )
                puts = load.ask("fill", 0, self._scale.keys // 10)["puts_a_cpu_s"]
                self._row("put into that many segments", "keys/CPU s", 300e3, [puts], most=False)
        finally:
            master.stop()

    def clients(self) -> None:
        """Each finds the lane over gRPC, opens a session and asks once, as `Store` does."""
        from mooncake_client import Store

        values = []
        master = Master(self._folder)
        try:
            for _ in range(self._rounds):
                stores: list[Store] = []
                begun = time.monotonic()

                def connect(number: int, stores: list[Store] = stores) -> None:
                    store = Store(master.address, name=f"client-{number}")
                    stores.append(store)
                    store.exists("nothing")

                with ThreadPoolExecutor(64) as pool:
                    list(pool.map(connect, range(self._scale.clients)))
                values.append(time.monotonic() - begun)
                for store in stores:
                    store.close()
        finally:
            master.stop()
        note = "from one Python process, which shares the cores"
        self._row(f"{self._scale.clients} clients connect and ask", "s", 5, values, most=True, note=note)

    def rebuild(self) -> None:
        times, latency = [], []
        for _ in range(self._rounds):
            master = Master(self._folder)
            try:
                with Load(self._program, master) as load:
                    answer = load.ask("others", "inventory", self._scale.keys, 0)
                    times.append(answer["crowd_s"])
                    latency.append(answer["p99_us"] / 1e3)
            finally:
                master.stop()
        self._row(f"rebuild of {_short(self._scale.keys)} keys", "s", 5, times, most=True)
        self._row("p99 of others meanwhile", "ms", 5, latency, most=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.master", description=__doc__)
    parser.add_argument("--load", type=Path, required=True, help="lane_load, as make bench-master builds it")
    parser.add_argument("--rounds", type=int, default=5, help="of each work (5)")
    parser.add_argument(
        "--only", default="", help="of inside,table,large,nodes,clients,rebuild, by comma (all)"
    )
    parser.add_argument("--scale", choices=SCALES, default="full", help="smoke only shows that it runs")
    parser.add_argument("--output", type=Path, default=ROOT / "build/bench", help="folder of the JSON")
    chosen = parser.parse_args(argv)
    from benchmarks.environment import environment

    print(
        "| work | median | lowest..highest | target | | |\n| --- | --- | --- | --- | --- | --- |", flush=True
    )
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(chosen.load, SCALES[chosen.scale], chosen.rounds, chosen.only, Path(folder))
        bench.run()
    chosen.output.mkdir(parents=True, exist_ok=True)
    path = chosen.output / "master.json"
    rows = [{**row.__dict__, "median": row.median, "is_met": row.is_met} for row in bench.rows]
    path.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
