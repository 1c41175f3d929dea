"""What every part of the drop-in store stands on: its membership, and batches of puts and reads in codes.

Owns the state before setup and after close, the checks of keys and memory, and the translation of the native
client's answers to Mooncake's codes; the verbs are in the parts, `store.py` joins them. Any number of threads
may call at once.

Memory is handed on as the native client takes it: an object with the buffer protocol, or (address, length).
What is refused before it is sent has the code INVALID_PARAMS at its index, and the others go on.
"""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from mooncake_client.dropin.codes import INVALID_PARAMS, OK, put_code, read_code
from mooncake_client.dropin.membership import Membership
from mooncake_client.dropin.replicate_config import ReplicateConfig, put_options, refusal
from mooncake_store import _core
from mooncake_store.status import Status

log = logging.getLogger("mooncake_store.dropin")

Key: TypeAlias = "str | bytes"
Memory: TypeAlias = Any
"""A buffer, (address, length), or for puts a list of them, joined; None: there is none."""

REOPENS_MAX: Final = 4
"""How often a read makes room anew for a value that was replaced by another one meanwhile."""


class StoreBase:
    """State of one store; made by `MooncakeDistributedStore` only."""

    def __init__(self) -> None:
        self._membership: Membership | None = None
        self._lock = threading.Lock()
        self._start_parts()

    def _start_parts(self) -> None:
        """What the parts keep; each extends it."""

    def _forget_parts(self) -> None:
        """At close: what the parts keep is of the membership that ends."""

    def _client(self) -> _core.Client | None:
        """None before setup, after close, and in a fork's child."""
        membership = self._membership
        return membership.client if membership is not None and membership.is_open else None

    # ---- batches

    def _put_values(
        self,
        keys: Sequence[Key],
        values: Sequence[Memory] | _core.PackedMemory,
        config: ReplicateConfig,
        *,
        upsert: bool,
    ) -> list[int]:
        """One code a key."""
        count = len(keys)
        client = self._client()
        if client is None:
            return [INVALID_PARAMS] * count
        refused = refusal(config, count)
        if refused != OK:
            return [refused] * count
        good: Sequence[int] = range(count)
        if not isinstance(values, _core.PackedMemory) or not all(keys):
            good = [i for i in good if keys[i] and values[i] is not None]
        if not good:
            return [INVALID_PARAMS] * count
        if len(good) < count:
            keys, values = [keys[i] for i in good], [values[i] for i in good]
        statuses = client.put_many(keys, values, **put_options(config, upsert=upsert))
        codes = statuses
        if any(statuses):
            codes = [OK if status == 0 else put_code(status) for status in statuses]
            log.debug("put: %s", client.why())
        return codes if len(good) == count else spread_answers(good, codes, count)

    def _read_into(self, keys: Sequence[Key], targets: Sequence[Memory] | _core.PackedMemory) -> list[int]:
        """Bytes read, or a code, a key."""
        count = len(keys)
        client = self._client()
        if client is None:
            return [INVALID_PARAMS] * count
        good: Sequence[int] = range(count)
        if not isinstance(targets, _core.PackedMemory):
            good = [i for i in good if targets[i] is not None]
        if not good:
            return [INVALID_PARAMS] * count
        if len(good) < count:
            keys, targets = [keys[i] for i in good], [targets[i] for i in good]
        statuses, lengths = client.get_into_many(keys, targets)
        found = lengths
        if any(statuses):
            found = [
                length if status == 0 else read_code(status)
                for status, length in zip(statuses, lengths, strict=True)
            ]
        return found if len(good) == count else spread_answers(good, found, count)

    def _read_values(self, keys: Sequence[Key]) -> list[_core.BufferHandle | int]:
        """Whole values, each in memory of its own, or a code, a key."""
        answers: list[_core.BufferHandle | int] = [INVALID_PARAMS] * len(keys)
        client = self._client()
        if client is None:
            return answers
        left = list(range(len(keys)))
        for _ in range(REOPENS_MAX):
            if not left:
                return answers
            opened = client.open([keys[i] for i in left])
            handles = [
                _core.BufferHandle(size) if status == 0 else None
                for status, size in zip(opened.statuses, opened.sizes, strict=True)
            ]
            statuses, lengths = client.read_into(opened, handles)
            replaced = []
            for i, handle, status, length in zip(left, handles, statuses, lengths, strict=True):
                if handle is not None and status == 0:
                    answers[i] = handle if length == handle.size() else _cut(handle, length)
                elif handle is not None and status == Status.BUFFER_OVERFLOW:
                    replaced.append(i)
                else:
                    answers[i] = read_code(status)
            left = replaced
        for i in left:
            answers[i] = read_code(Status.BUSY)
        return answers


def spread_answers(indices: Sequence[int], answers: Sequence[int], count: int) -> list[int]:
    """Those answers at their indices; what was not asked was refused."""
    if len(answers) == count:
        return list(answers)
    spread = [INVALID_PARAMS] * count
    for index, answer in zip(indices, answers, strict=True):
        spread[index] = answer
    return spread


def _cut(handle: _core.BufferHandle, length: int) -> _core.BufferHandle:
    """A handle of the first bytes: the value was replaced by a shorter one."""
    shorter = _core.BufferHandle(length)
    memoryview(shorter)[:] = memoryview(handle)[:length]
    return shorter


# ---- arguments


def key_of(key: Any) -> Key:
    """Raises TypeError for what Mooncake's methods do not take as a key."""
    if not isinstance(key, (str, bytes)):
        raise TypeError(f"a key is str or bytes, not {type(key).__name__}: {key!r}")
    return key


def keys_of(keys: Any) -> list[Key]:
    items = items_of(keys, "keys")
    if set(map(type, items)) <= {str, bytes}:
        return items
    return [key_of(key) for key in items]


def items_of(items: Any, name: str) -> list[Any]:
    """A list of any sequence; one str or bytes would pass for several."""
    if isinstance(items, list):
        return items
    if isinstance(items, (str, bytes, bytearray, memoryview)) or not isinstance(items, Iterable):
        raise TypeError(f"{name} must be a list, not {type(items).__name__}")
    return list(items)


def memory_of(pointer: Any, size: Any) -> tuple[int, int] | None:
    """(address, length); None where there is no memory."""
    address, length = operator.index(pointer), operator.index(size)
    return (address, length) if address > 0 and length > 0 else None


def memories_of(pointers: Any, sizes: Any) -> list[tuple[int, int] | None]:
    return [memory_of(pointer, size) for pointer, size in zip(pointers, sizes, strict=True)]


def packed_memories_of(pointers: Any, sizes: Any) -> list[tuple[int, int] | None] | _core.PackedMemory:
    """The same, packed where all of them are memory."""
    try:
        return _core.PackedMemory.of_addresses(pointers, sizes)
    except (TypeError, ValueError):
        return memories_of(pointers, sizes)


def bytes_of(value: Any) -> memoryview | bytes:
    """The whole value of anything with the buffer protocol, of any shape. Raises TypeError for the rest."""
    view = memoryview(value)
    return view if view.c_contiguous else view.tobytes()
