"""The mixer of `native/wire/control.h`, independently of the native code."""

from __future__ import annotations

MASK = (1 << 64) - 1


def mix64(value: int) -> int:
    """What an id adds to the checksum of an inventory or of a report."""
    value ^= value >> 30
    value = value * 0xBF58476D1CE4E5B9 & MASK
    value ^= value >> 27
    value = value * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)
