"""Takes turns: every contender does every work for a moment in each round, in an order that rotates.

Owns the workers' processes and the placements. Figures are compared only within a round, because all of it
saw the same load of the machine; the load is recorded, and a disturbed round is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from benchmarks.contenders import PEERS
from benchmarks.processes import ROOT
from benchmarks.work import Work

VENVS: Final = ROOT / "benchmarks/peers/venvs"
ANSWER_TIMEOUT_S: Final = 300.0
"""Longest wait for one answer of a worker; filling a table of a million keys takes the slowest a minute."""
STOP_TIMEOUT_S: Final = 30.0
FREE, APART = "free", "apart"

Tell = Callable[[str], None]


class WorkerFailed(Exception):
    """A worker answered an error, or not at all."""


class WorkerProcess:
    """One contender in a process of its own."""

    def __init__(self, name: str, logs: Path) -> None:
        self.name = name
        python = VENVS / name / "bin/python" if name in PEERS else Path(sys.executable)
        self._log = (logs / f"{name}.log").open("wb")
        self._process = subprocess.Popen(
            [str(python), "-m", "benchmarks.worker", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
        )

    def ask(self, do: str, **fields: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
            self._process.stdin.flush()
            # One answer a request, and it is flushed whole: when there is something, there is a line.
            ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_TIMEOUT_S)
            line = self._process.stdout.readline() if ready else b""
        except BrokenPipeError:
            line = b""
        if not line:
            raise WorkerFailed(f"its process answers nothing to {do!r}; {self._log.name} may say why")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerFailed(answer["error"])
        return answer["ok"]

    def stop(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


@dataclass
class Round:
    """What one round gave, by column, and how busy the machine was in it."""

    load_average: float
    columns: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass
class Result:
    """All rounds of one work in one placement. failures: by contender, why it has none or fewer."""

    work: Work
    placement: str
    rounds: list[Round] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    def samples(self, column: str, statistic: str) -> list[float]:
        """One value a round in which the column was there."""
        return [one.columns[column][statistic] for one in self.rounds if column in one.columns]

    def pairs(self, column: str, other: str, statistic: str) -> tuple[list[float], list[float]]:
        """Values of both columns, from the rounds that have both."""
        both = [one.columns for one in self.rounds if column in one.columns and other in one.columns]
        return [one[column][statistic] for one in both], [one[other][statistic] for one in both]

    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for one in self.rounds for column in one.columns))


class Contest:
    """The contenders that could be started. Context manager: ends them."""

    def __init__(self, names: Sequence[str], logs: Path, segment_bytes: int, buffer_bytes: int) -> None:
        self.versions: dict[str, str] = {}
        self.skipped: dict[str, str] = {}
        self.facts: dict[str, dict[str, float]] = {}
        self._names = names
        self._workers: list[WorkerProcess] = []
        self._settings = {"logs": str(logs), "segment_bytes": segment_bytes, "buffer_bytes": buffer_bytes}
        self._logs = logs

    def __enter__(self) -> Contest:
        try:
            for name in self._names:
                self._start(name)
        except BaseException:
            self._stop()
            raise
        return self

    def _start(self, name: str) -> None:
        if name in PEERS and not (VENVS / name / "bin/python").exists():
            self.skipped[name] = f"not set up; get it with: benchmarks/peers/setup.sh {name}"
            return
        worker = WorkerProcess(name, self._logs)
        self._workers.append(worker)
        try:
            self.versions[name] = worker.ask("start", **self._settings)["version"]
        except WorkerFailed as error:
            self.skipped[name] = str(error)
            self._drop(worker)

    def _drop(self, worker: WorkerProcess) -> None:
        self._workers.remove(worker)
        worker.stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers = []

    def place(self, placement: str) -> None:
        client, servers = cores(placement)
        for worker in list(self._workers):
            try:
                worker.ask("pin", client=sorted(client), servers=sorted(servers))
            except WorkerFailed as error:
                self.skipped[worker.name] = f"ended early: {error}"
                self._drop(worker)

    def run(
        self, work: Work, placements: Sequence[str], round_count: int, duration_s: float, tell: Tell
    ) -> list[Result]:
        """All rounds of one work, in each placement in turn. tell: hears of progress."""
        results = [Result(work, placement) for placement in placements]
        if not results:
            return []
        failures = results[0].failures
        self.place(FREE)
        prepared = self._prepare(work, failures)
        able = list(prepared)
        for result in results:
            result.failures = failures
            self.place(result.placement)
            for number in range(round_count):
                tell(f"{work.name}, {result.placement}, round {number + 1} of {round_count}")
                result.rounds.append(Round(os.getloadavg()[0]))
                turn = number % len(able) if able else 0
                for worker in [*able[turn:], *able[:turn]]:
                    try:
                        got = worker.ask("sample", work=work.as_json(), duration_s=duration_s)
                        result.rounds[-1].columns.update(got)
                    except WorkerFailed as error:
                        failures[worker.name] = str(error)
                        able.remove(worker)
        self.place(FREE)
        for worker in prepared:
            try:
                worker.ask("finish", work=work.as_json())
            except WorkerFailed as error:
                failures[worker.name] = str(error)
        return results

    def _prepare(self, work: Work, failures: dict[str, str]) -> list[WorkerProcess]:
        able = []
        for worker in self._workers:
            try:
                if not worker.ask("can", work=work.as_json()):
                    continue
                facts = worker.ask("prepare", work=work.as_json())
                if facts:
                    self.facts.setdefault(worker.name, {}).update(facts)
                able.append(worker)
            except WorkerFailed as error:
                failures[worker.name] = str(error)
        return able


def cores(placement: str) -> tuple[set[int], set[int]]:
    """Cores of the clients and of the servers: all for both, or the last one against the others."""
    everywhere = os.sched_getaffinity(0)
    if placement == FREE:
        return everywhere, everywhere
    last = max(everywhere)
    return {last}, everywhere - {last}


def placements_here(wanted: Sequence[str]) -> tuple[list[str], str]:
    """Those of `wanted` that this machine can do, and what to say about the others."""
    if APART in wanted and len(os.sched_getaffinity(0)) < 2:
        return [one for one in wanted if one != APART], "one core only: client and servers cannot be apart"
    return list(wanted), ""
