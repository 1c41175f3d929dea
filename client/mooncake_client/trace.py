"""Traces of requests by the hashes of their blocks, as JSONL: reading them into flat numbers.

Owns the format and its bounds; knows nothing of pools and policies. A line is a request: an object with the
list under one of BLOCK_FIELDS, in the order of the prompt (Mooncake's traces, and others of that shape), and
optionally a `timestamp`; or the bare list. A hash is an integer or a string and means nothing but itself.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from mooncake_store.errors import InvalidArgument

BLOCK_FIELDS: Final = ("hash_ids", "block_hashes")
TIME_UNITS_MS: Final = {"ms": 1, "s": 1000}
LINE_BYTES_MAX: Final = 16 << 20
"""A longer line is refused: it is no request, and would be held whole."""
ACCESSES_MAX: Final = 1 << 27
"""Blocks asked for in all; a longer trace is refused, because all of it is held: 4 bytes an access, and about
100 a block."""
TIMESTAMP_MS_MAX: Final = 1 << 53


@dataclass
class Trace:
    """Blocks are numbered from 0 in the order of their first appearance. Flat, for `_core.TraceReplay`."""

    blocks: array[int] = field(default_factory=lambda: array("I"))
    lengths: array[int] = field(default_factory=lambda: array("I"))
    times_ms: array[int] = field(default_factory=lambda: array("Q"))
    block_count: int = 0

    def parts(self, requests_max: int, cut: int) -> Iterator[Part]:
        """All requests in order, at most so many at once, and a new part from request `cut` on."""
        blocks, lengths = memoryview(self.blocks), memoryview(self.lengths)
        times_ms = memoryview(self.times_ms)
        first = first_block = 0
        while first < len(lengths):
            last = min(first + requests_max, len(lengths))
            if first < cut < last:
                last = cut
            last_block = first_block + sum(lengths[first:last])
            yield Part(blocks[first_block:last_block], lengths[first:last], times_ms[first:last])
            first, first_block = last, last_block


@dataclass(frozen=True)
class Part:
    """Requests of a trace that follow each other; views of it."""

    blocks: memoryview
    lengths: memoryview
    times_ms: memoryview


def read_trace(path: Path, *, time_unit: str = "ms") -> Trace:
    """Raises InvalidArgument naming the line for what is no request; OSError when it cannot be read."""
    if time_unit not in TIME_UNITS_MS:
        raise InvalidArgument(f"--time_unit: {time_unit!r} is none of {', '.join(TIME_UNITS_MS)}")
    numbers: dict[int | str, int] = {}
    trace = Trace()
    with path.open("rb") as file:
        for place, line in _lines(file, path):
            blocks, time_ms = _request(line, place, TIME_UNITS_MS[time_unit])
            trace.blocks.extend(numbers.setdefault(block, len(numbers)) for block in blocks)
            trace.lengths.append(len(blocks))
            last_ms = trace.times_ms[-1] if trace.times_ms else 0
            trace.times_ms.append(last_ms if time_ms is None else time_ms)
            if len(trace.blocks) > ACCESSES_MAX:
                raise InvalidArgument(f"{place}: the trace asks for more than {ACCESSES_MAX} blocks")
    if not trace.blocks:
        raise InvalidArgument(f"--trace: {path} asks for no block")
    trace.block_count = len(numbers)
    return trace


def _lines(file: BinaryIO, path: Path) -> Iterator[tuple[str, bytes]]:
    number = 0
    while line := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        place = f"--trace: {path}, line {number}"
        if len(line) > LINE_BYTES_MAX:
            raise InvalidArgument(f"{place} is longer than {LINE_BYTES_MAX} bytes")
        if line.strip():
            yield place, line


def _request(line: bytes, place: str, unit_ms: int) -> tuple[list[int | str], int | None]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{place} is no JSON: {error}") from error
    found: Any = request
    stamp: Any = None
    if isinstance(request, dict):
        found = next((request[name] for name in BLOCK_FIELDS if name in request), None)
        stamp = request.get("timestamp")
    if not isinstance(found, list):
        raise InvalidArgument(f"{place} has no list of block hashes under {' or '.join(BLOCK_FIELDS)}")
    for block in found:
        if isinstance(block, bool) or not isinstance(block, (int, str)):
            raise InvalidArgument(f"{place}: {block!r:.40} is no block hash; it is an integer or a string")
    # A block that is named twice is asked for once.
    return list(dict.fromkeys(found)), None if stamp is None else _time_ms(stamp, place, unit_ms)


def _time_ms(stamp: Any, place: str, unit_ms: int) -> int:
    is_number = isinstance(stamp, (int, float)) and not isinstance(stamp, bool)
    if not is_number or (isinstance(stamp, float) and not math.isfinite(stamp)):
        raise InvalidArgument(f"{place}: timestamp {stamp!r:.40} is no number")
    if not 0 <= stamp <= TIMESTAMP_MS_MAX // unit_ms:
        raise InvalidArgument(f"{place}: timestamp {stamp!r:.40} is not in 0 ... 2^53 ms")
    return int(stamp * unit_ms)
