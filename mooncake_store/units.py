"""Sizes and durations as people write them in flags, files and calls.

Owns their grammar, one for every door. Suffixes of sizes are binary multiples (1 kb = 1024 bytes), because
that is what users of these stores mean by "4 GB" of memory; a bare number is bytes. Standard library only.
"""

from __future__ import annotations

import re
from fractions import Fraction

from mooncake_store.errors import InvalidArgument

BYTES_MAX = 2**63 - 1
DURATION_MS_MAX = 2**53
"""About 285,000 years: larger values are slips, and a float still counts milliseconds exactly below it."""

_SIZE = re.compile(
    r"(\d{1,20}(?:\.\d{1,20})?)(?:[eE]\+?(\d{1,2}))?\s*(?:([kmgt])i?b?|b)?", re.IGNORECASE | re.ASCII
)
_SIZE_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_DURATION = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*(ms|s|m|h)?", re.IGNORECASE | re.ASCII)
_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


def parse_size(value: str | int, *, field: str) -> int:
    """Bytes from `4 GB`, `512mb`, `1.5GiB`, `1e9`, `4096` or an int; what a fraction leaves over is cut off.

    field: named by the InvalidArgument that anything else raises (negative, `50%`, empty, over 2^63-1).
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InvalidArgument(
            f"{field}: {value!r} is not a size; write for example 4GB, 512MB or a number of bytes"
        )
    text = str(value).strip() if isinstance(value, str) or value.bit_length() <= 64 else "more than 2^64"
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidArgument(
            f"{field}: {text!r} is not a size; write for example 4GB, 512MB or a number of bytes (>= 0)"
        )
    number, exponent, prefix = match.groups()
    size = Fraction(number) * 10 ** int(exponent or 0) * (1 << _SIZE_SHIFTS[(prefix or "").lower()])
    if prefix is None and size.denominator != 1:
        raise InvalidArgument(f"{field}: {text!r} is not a whole number of bytes")
    if size > BYTES_MAX:
        raise InvalidArgument(f"{field}: {text!r} is more than {BYTES_MAX} bytes")
    return int(size)


def format_size(size: int) -> str:
    """The shortest exact form, which `parse_size` reads back: 536870912 is `512MiB`, 1000 is `1000`."""
    for prefix, shift in (("T", 40), ("G", 30), ("M", 20), ("K", 10)):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{prefix}iB"
    return str(size)


def parse_duration_ms(value: str | int, *, field: str, bare_unit: str = "ms") -> int:
    """Milliseconds from `500ms`, `10s`, `1.5s`, `5m`, `1h`; a bare number is in `bare_unit` (ms, s, m, h)."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise InvalidArgument(f"{field}: {value!r} is not a duration; write for example 500ms, 10s, 5m or 1h")
    text = str(value).strip() if isinstance(value, str) or value.bit_length() <= 64 else "more than 2^64"
    match = _DURATION.fullmatch(text)
    if match is None:
        raise InvalidArgument(
            f"{field}: {text!r} is not a duration; write for example 500ms, 10s, 5m or 1h (bare: {bare_unit})"
        )
    number, unit = match.groups()
    duration = Fraction(number) * _DURATION_MS[(unit or bare_unit).lower()]
    if duration.denominator != 1:
        raise InvalidArgument(f"{field}: {text!r} is not a whole number of milliseconds")
    if duration > DURATION_MS_MAX:
        raise InvalidArgument(f"{field}: {text!r} is more than {DURATION_MS_MAX} ms")
    return int(duration)


def format_duration(duration_ms: int) -> str:
    """The shortest exact form, which `parse_duration_ms` reads back: 10000 is `10s`, 1500 is `1500ms`."""
    for unit in ("h", "m", "s"):
        if duration_ms and duration_ms % _DURATION_MS[unit] == 0:
            return f"{duration_ms // _DURATION_MS[unit]}{unit}"
    return f"{duration_ms}ms"
