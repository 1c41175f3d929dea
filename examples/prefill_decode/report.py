"""What the demo shows: progress while it runs, a table at its end, and whether anything was wrong."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TextIO

from roles import Count, Counters, Outcome

TTY_INTERVAL_S: Final = 0.5
LOG_INTERVAL_S: Final = 5.0
REFUSED_SHARE_MAX: Final = 0.01
"""Puts that may be refused for want of space (a node still handing memory back) before that is an error."""


@dataclass(frozen=True)
class Result:
    """All that the table is made of. evictions and capacity_bytes as the master counts them."""

    requests: int
    seconds: float
    counts: dict[Count, int]
    outcomes: Sequence[Outcome]
    evictions: int
    capacity_bytes: int
    block_bytes: int
    problems: Sequence[str]


def add_up(counters: Sequence[Counters]) -> dict[Count, int]:
    return {count: sum(int(one[count]) for one in counters) for count in Count}


class Progress:
    """One line that is rewritten on a terminal, and a line now and then in a log."""

    def __init__(self, total: int | None, out: TextIO = sys.stderr) -> None:
        self._total = total
        self._out = out
        self._is_tty = out.isatty()
        self._begun = time.monotonic()
        self._shown = self._begun

    def show(self, prefill: Counters, decode: Counters) -> None:
        now = time.monotonic()
        if now - self._shown < (TTY_INTERVAL_S if self._is_tty else LOG_INTERVAL_S):
            return
        self._shown = now
        counts = add_up([prefill, decode])
        moved = counts[Count.BYTES_READ] + counts[Count.BYTES_PUT]
        asked = max(1, counts[Count.BLOCKS_ASKED])
        total = f"/{self._total}" if self._total is not None else ""
        line = (
            f"prefill {prefill[Count.REQUESTS]}{total}  decode {decode[Count.REQUESTS]}{total}  "
            f"block hits {100 * counts[Count.BLOCKS_PRESENT] / asked:.1f} %  "
            f"{moved / 1e9:.2f} GB, {moved / 1e9 / (now - self._begun):.2f} GB/s  "
            f"wrong {counts[Count.WRONG_BLOCKS]}"
        )
        self._out.write(f"\r\x1b[K{line}" if self._is_tty else f"{line}\n")
        self._out.flush()

    def end(self) -> None:
        if self._is_tty:
            self._out.write("\r\x1b[K")
            self._out.flush()


def wrong_bytes(result: Result) -> int:
    """Bytes of blocks whose content was not what was put; a block with one wrong byte counts whole."""
    return result.counts[Count.WRONG_BLOCKS] * result.block_bytes


def complaints(result: Result) -> list[str]:
    """Everything that makes the run a failure; empty when nothing was wrong."""
    counts = result.counts
    found = list(result.problems)
    if counts[Count.WRONG_BLOCKS]:
        found.append(f"{counts[Count.WRONG_BLOCKS]} blocks had wrong bytes")
    if counts[Count.FAILED_CALLS]:
        found.append(f"{counts[Count.FAILED_CALLS]} calls failed")
    put = counts[Count.BLOCKS_PUT] + counts[Count.BLOCKS_EXISTED]
    if counts[Count.BLOCKS_REFUSED] > REFUSED_SHARE_MAX * (put + counts[Count.BLOCKS_REFUSED]):
        found.append(f"{counts[Count.BLOCKS_REFUSED]} puts were refused")
    if len(result.outcomes) < 2:
        found.append("a role ended without handing over its outcome")
    if counts[Count.REQUESTS] != 2 * result.requests:
        found.append(f"{counts[Count.REQUESTS]} of {2 * result.requests} requests were served by both roles")
    return found


def table(result: Result) -> str:
    counts = result.counts
    asked = max(1, counts[Count.BLOCKS_ASKED])
    moved = counts[Count.BYTES_READ] + counts[Count.BYTES_PUT]
    rows = [
        ("requests", f"{result.requests} in {result.seconds:.1f} s"),
        ("block hit rate", _share(counts[Count.BLOCKS_PRESENT], asked)),
        ("prefix hit rate", _share(counts[Count.PREFIX_BLOCKS], asked)),
        ("blocks read / missed", f"{counts[Count.BLOCKS_READ]} / {counts[Count.BLOCKS_MISSED]}"),
        (
            "blocks put / existed / refused",
            f"{counts[Count.BLOCKS_PUT]} / {counts[Count.BLOCKS_EXISTED]} / {counts[Count.BLOCKS_REFUSED]}",
        ),
        ("bytes read", f"{counts[Count.BYTES_READ] / 1e9:.3f} GB"),
        ("bytes put", f"{counts[Count.BYTES_PUT] / 1e9:.3f} GB"),
        ("throughput, both roles", f"{moved / 1e9 / max(result.seconds, 1e-9):.2f} GB/s"),
        ("pool", f"{result.capacity_bytes / 2**20:.0f} MiB, blocks of {result.block_bytes} bytes"),
        ("evictions", str(result.evictions)),
    ]
    for name in ("lookup", "get", "put"):
        values = sorted(value for outcome in result.outcomes for value in getattr(outcome, f"{name}_s"))
        rows.append((f"{name} p50 / p99", _quantiles(values)))
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    lines.append(f"wrong bytes: {wrong_bytes(result)}")
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} % ({part} of {whole})"


def _quantiles(values: Sequence[float]) -> str:
    if not values:
        return "no call"
    p50, p99 = (values[min(len(values) - 1, int(share * len(values)))] for share in (0.50, 0.99))
    return f"{p50 * 1e3:.2f} / {p99 * 1e3:.2f} ms over {len(values)} calls"
