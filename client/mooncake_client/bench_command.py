"""`mooncake bench` as a command: progress, table or JSON, and keys that are removed whatever happens.

Owns printing and signals; the work is `bench.py`'s. Imports rich.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from mooncake_client.bench import Bench, Figures, Plan, check_room
from mooncake_client.progress import progress_bars
from mooncake_client.store import Store
from mooncake_store.units import format_size

INTERRUPTED = 130
"""Exit status after Ctrl-C or SIGTERM, as shells have it."""

Show = Callable[[str, Sequence[str], Sequence[Sequence[object]]], None]


def run_bench(store: Callable[[], Store], show: Show, settings: Mapping[str, Any], *, as_json: bool) -> int:
    """Exit status: 0, 1 when bytes were wrong, 130 when it was interrupted; then there are no figures."""
    plan = Plan(**settings)
    with _sigterm_as_interrupt(), store() as pool:
        check_room(pool, plan)
        bench = Bench(pool, plan)
        try:
            with progress_bars() as progress:
                figures = list(bench.run(progress))
        except KeyboardInterrupt:
            print("mooncake: interrupted; its keys are being removed", file=sys.stderr)
            return INTERRUPTED
        finally:
            with _interrupts_ignored():  # bounded by the store's deadline
                bench.remove_keys()
    if as_json:
        print(
            json.dumps(
                {"size_bytes": plan.size_bytes, "batch": plan.batch, "threads": plan.threads}
                | {"works": [one.as_json() for one in figures]}
            )
        )
    else:
        _show(plan, figures, show)
    wrong = sum(one.wrong for one in figures)
    if wrong:
        print(f"mooncake: {wrong} values had other bytes than were put", file=sys.stderr)
    return 1 if wrong else 0


def _show(plan: Plan, figures: Sequence[Figures], show: Show) -> None:
    show(
        f"{plan.threads} threads, {plan.batch} x {format_size(plan.size_bytes)} a call",
        ("work", "calls", "values/s", "GB/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "misses"),
        [
            (
                one.work,
                one.calls,
                f"{one.values_a_second:,.0f}",
                f"{one.bytes_a_second / 1e9:.3f}" if one.work != "exists" else "",
                *(f"{time_ms:.3f}" for time_ms in (one.p50_ms, one.p90_ms, one.p99_ms, one.max_ms)),
                one.misses,
            )
            for one in figures
        ],
    )


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
