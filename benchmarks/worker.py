"""The process in which one contender runs, in the interpreter of its own environment; driven line by line.

    python -m benchmarks.worker NAME        a request a line on stdin, an answer a line on stdout, both JSON

    {"do": "start", "logs": ..., ...}       {"ok": {"version": ..., "server_pids": [...]}}
    {"do": "can" | "prepare" | "finish", "work": ...}, {"do": "sample", "work": ..., "duration_s": ...}
    {"do": "pin", "client": [cores], "servers": [cores]}
                                            {"error": text} where it did not go well

The end of stdin ends it and its servers. Whatever libraries print goes to stderr, which is a log file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

from benchmarks.contender import Contender, Settings
from benchmarks.contenders import contender_class
from benchmarks.processes import pin
from benchmarks.work import Work


class Worker:
    """Answers requests for one contender."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._contender: Contender | None = None

    def answer(self, request: dict[str, Any]) -> Any:
        if request["do"] == "start":
            return self._start(request)
        assert self._contender is not None, "start comes first"
        contender = self._contender
        if request["do"] == "pin":
            pin([os.getpid()], request["client"])
            pin(contender.server_pids(), request["servers"])
            return None
        work = Work.from_json(request["work"])
        if request["do"] == "can":
            return contender.can(work)
        if request["do"] == "prepare":
            return contender.prepare(work)
        if request["do"] == "finish":
            return contender.finish(work)
        assert request["do"] == "sample", request
        samples = contender.sample(work, request["duration_s"])
        return {column: sample.as_json() for column, sample in samples.items()}

    def _start(self, request: dict[str, Any]) -> dict[str, Any]:
        settings = Settings(Path(request["logs"]), request["segment_bytes"], request["buffer_bytes"])
        self._contender = contender_class(self._name)(settings)
        version = self._contender.start()
        return {"version": version, "server_pids": self._contender.server_pids()}

    def stop(self) -> None:
        if self._contender is not None:
            self._contender.stop()


def serve(name: str, requests: TextIO, answers: TextIO) -> None:
    worker = Worker(name)
    try:
        for line in requests:
            try:
                answer = {"ok": worker.answer(json.loads(line))}
            except Exception as error:
                traceback.print_exc()
                answer = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    finally:
        worker.stop()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; it then closes our stdin
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.argv[1], sys.stdin, answers)


if __name__ == "__main__":
    main()
