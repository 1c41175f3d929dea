"""Checks of what callers pass to a Store; every refusal is an InvalidArgument that names the value.

Owns forms and ranges only. Must not call the client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mooncake_client.answers import Key, refused_keys
from mooncake_client.values import encode
from mooncake_store.errors import InvalidArgument, StoreError
from mooncake_store.keys import KEY_BYTES_MAX, key_bytes

REPLICAS_MAX: Final = 8  # native/wire/limits.h, kReplicasMax
PREFERRED_MAX: Final = 16  # the same, kPreferredMax
TTL_MS_MAX: Final = 2**53
SOFT_PIN_MS_MAX: Final = 2**32 - 1

# proto/FRAMES.md, put_start.
HARD_PIN, SOFT_PIN, UPSERT, LOCAL, KEEP_SOFT_PIN = 1, 2, 4, 8, 16


def encode_all(values: Sequence[object]) -> tuple[list[Any], dict[int, StoreError]]:
    encoded: list[Any] = []
    refused: dict[int, StoreError] = {}
    for index, value in enumerate(values):
        try:
            encoded.append(encode(value))
        except InvalidArgument as error:
            encoded.append(None)
            refused[index] = error
    return encoded, refused


def sequence(items: Any, name: str) -> Any:
    """A list or tuple of the caller's items; one str, bytes or mapping would pass for several."""
    if isinstance(items, (list, tuple)):
        return items
    if isinstance(items, (str, bytes, bytearray, memoryview, Mapping)) or not hasattr(items, "__iter__"):
        raise InvalidArgument(f"{name} must be a list, not {type(items).__name__}")
    return list(items)


def check_count(keys: Sequence[Any], items: Sequence[Any], name: str) -> None:
    if len(keys) != len(items):
        raise InvalidArgument(f"{len(keys)} keys but {len(items)} {name}")


def whole(name: str, value: int, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidArgument(f"{name} {value!r} is not a whole number in {low}..{high}")
    return value


def segment_names(names: Sequence[str]) -> list[str]:
    names = sequence(names, "preferred_segments")
    if len(names) > PREFERRED_MAX or not all(isinstance(name, str) and name for name in names):
        raise InvalidArgument(
            f"preferred_segments {names!r} is not a list of at most {PREFERRED_MAX} segment names"
        )
    return list(names)


def prefix_bytes(prefix: Key) -> bytes:
    packed = prefix if isinstance(prefix, bytes) else b"" if prefix == "" else key_bytes(prefix)
    if len(packed) > KEY_BYTES_MAX:
        raise InvalidArgument(f"prefix has {len(packed)} bytes; a key has at most {KEY_BYTES_MAX}")
    return packed


def first_refused(keys: Sequence[Key], cause: Exception | None) -> StoreError:
    """The error for the first key that cannot be one, naming its index."""
    for index, error in refused_keys(keys).items():
        return InvalidArgument(f"keys[{index}]: {error}", code=error.code)
    return InvalidArgument(str(cause) if cause else "a key was refused by the master")


def put_options(
    replicas: int,
    ttl_ms: int | None,
    soft_pin: bool | int,
    hard_pin: bool,
    replace: bool,
    prefer_local: bool,
    preferred_segments: Sequence[str],
) -> dict[str, Any]:
    """The options of a put as the native client names them; `Store.put` says what they mean."""
    return {
        "replica_count": whole("replicas", replicas, 1, REPLICAS_MAX),
        "flags": (
            (HARD_PIN if hard_pin else 0)
            | (SOFT_PIN if soft_pin else 0)
            | (UPSERT if replace else 0)
            | (LOCAL if prefer_local else 0)
        ),
        "soft_pin_ms": 0 if isinstance(soft_pin, bool) else whole("soft_pin", soft_pin, 0, SOFT_PIN_MS_MAX),
        "ttl_ms": 0 if ttl_ms is None else whole("ttl_ms", ttl_ms, 1, TTL_MS_MAX),
        "preferred": segment_names(preferred_segments),
    }
