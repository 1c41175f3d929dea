"""Composes value headers as proto/FRAMES.md lays them out, independently of the native code."""

from __future__ import annotations

import struct

HARD_PIN, SOFT_PIN, HAS_CHECKSUM = 1, 2, 4


def text16(text: bytes) -> bytes:
    """A u16 length and the bytes."""
    return struct.pack("<H", len(text)) + text


def value_header(
    key: bytes,
    size: int,
    *,
    put_id: int = 1,
    tenant: bytes = b"",
    checksum: int | None = None,
    user_metadata: bytes = b"",
    ttl_ms: int = 0,
    soft_pin_ms: int = 0,
    pins: int = 0,
) -> bytes:
    """An encoded ValueHeader. pins: HARD_PIN, SOFT_PIN."""
    flags = pins | (0 if checksum is None else HAS_CHECKSUM)
    fixed = struct.pack("<QQQQIIBB", put_id, size, ttl_ms, 0, soft_pin_ms, checksum or 0, flags, 1)
    return fixed + text16(tenant) + text16(key) + text16(user_metadata)
