"""`make soak`: a pool of real processes, of which some are killed or stopped at random while others read."""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from soak.history import History
from soak.stage import Findings, Scale, Stage

SCALES = {
    "full": Scale(rounds=200, client_ttl_s=10, stop_max_s=12.0, static_keys=2_000),
    "short": Scale(rounds=8, client_ttl_s=3, stop_max_s=3.5, static_keys=200, writers=2, readers=2),
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--rounds", type=int, help="of one or two faults each (of the scale: 200, short 8)")
    parser.add_argument("--seed", default=str(time.time_ns() % 1_000_000), help="of what is drawn")
    parser.add_argument("--scale", choices=SCALES, default="full")
    chosen = parser.parse_args(argv)
    scale = SCALES[chosen.scale]
    rounds = chosen.rounds or scale.rounds
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    print(f"soak of {rounds} rounds, seed {chosen.seed}, ledgers and logs in {folder}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end what was started, and leave the logs
    stage = Stage(scale, chosen.seed, folder, lambda story: print(story, flush=True))
    begin = time.monotonic()
    with stage.running():
        for number in range(1, rounds + 1):
            stage.round(number)
            if number % 10 == 0:
                print(f"{number} rounds in {time.monotonic() - begin:.0f} s", flush=True)
        stage.finish()
    is_right = print_summary(stage.findings, stage.history, time.monotonic() - begin)
    if is_right:
        shutil.rmtree(folder)
    else:
        print(f"not right: seed {chosen.seed}; ledgers and logs are left in {folder}")
    return 0 if is_right else 1


def print_summary(findings: Findings, history: History, seconds: float) -> bool:
    """True if nothing was wrong."""
    counts = history.counts
    rows = [
        ("rounds", f"{findings.rounds} in {seconds:.0f} s"),
        *sorted(findings.faults.items()),
        *sorted(findings.amid_calls.items()),
        *sorted(counts.items()),
        *((f"failed: {what}", count) for what, count in sorted(history.failures.items())),
        ("slowest call", f"{history.slowest_ns[0] / 1e9:.1f} s ({history.slowest_ns[1]})"),
        ("listening master to readable", _seconds(findings.readable_after_listening_s)),
        ("master killed to readable", _seconds(findings.readable_after_kill_s)),
        ("writer killed to its keys put by another", _seconds(findings.put_after_dead_writer_s)),
        ("sessions expired", findings.sessions_expired),
        ("of them alive", findings.live_sessions_expired),
        ("wrong", len(findings.wrong)),
        ("stuck", len(findings.stuck)),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")
    for what in (*findings.wrong, *findings.stuck):
        print(what)
    return not (findings.wrong or findings.stuck or findings.live_sessions_expired)


def _seconds(measured: Sequence[float]) -> str:
    if not measured:
        return "not measured"
    return f"median {statistics.median(measured):.2f} s, longest {max(measured):.2f} s, of {len(measured)}"


if __name__ == "__main__":
    sys.exit(main())
