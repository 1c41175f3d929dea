"""Values that tell whose they are: derived from key and version at every byte.

A version is the moment its put began, CLOCK_MONOTONIC in ns with the writer's number in the lowest bits:
unique, comparable between processes of one machine, and no memory is needed to draw the next one.
"""

from __future__ import annotations

import hashlib
import struct
import time
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEADER: Final = struct.Struct("<QQQ")  # version, digest of the key, size in bytes
SIZE_MAX: Final = 4 << 20
_SLOT_BITS: Final = 4
_MASK: Final = (1 << 64) - 1
_BASE: Final = np.random.default_rng(20261202).integers(0, _MASK, SIZE_MAX // 8 + 1, dtype=np.uint64)


class WrongBytes(Exception):
    """What was read is no whole value of this key; says in what way."""


def new_version(slot: int) -> int:
    """slot: the writer's number, below 16."""
    return (time.monotonic_ns() << _SLOT_BITS) | slot


def begin_ns(version: int) -> int:
    return version >> _SLOT_BITS


def _digest(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")


def value_of(key: str, version: int, size: int) -> bytes:
    """size: bytes, from HEADER.size to SIZE_MAX. No eight bytes of two values at the same place are equal."""
    mixed = ((version * 0x9E3779B97F4A7C15) & _MASK) ^ _digest(key)
    body = _BASE[: size // 8 + 1] ^ np.uint64(mixed)
    return HEADER.pack(version, _digest(key), size) + body.tobytes()[HEADER.size : size]


def version_of(key: str, data: Buffer) -> int:
    """The version whose value this is, every byte compared; WrongBytes if it is none of this key."""
    seen = bytes(data)
    if len(seen) < HEADER.size:
        raise WrongBytes(f"{len(seen)} bytes, fewer than any value has")
    version, digest, size = HEADER.unpack_from(seen)
    if digest != _digest(key):
        raise WrongBytes("begins like another key's value, or like none")
    if size != len(seen):
        raise WrongBytes(f"{len(seen)} bytes of a value of {size}")
    expected = value_of(key, version, size)
    if seen != expected:
        differs = np.frombuffer(seen, np.uint8) != np.frombuffer(expected, np.uint8)
        raise WrongBytes(f"{int(differs.sum())} of {size} bytes differ, the first at {int(differs.argmax())}")
    return int(version)
