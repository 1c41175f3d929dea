"""Values in several pieces of memory, ranges of values, and sessions that move a value range by range.

Owns how pieces are joined and a value is spread over them, and the memory in which a session's value waits. A
value is always read whole, and verified, before any piece is written: a range is of one finished put. Put
sessions gather here and are put when they end.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from mooncake_client.dropin.base import REOPENS_MAX, Key, items_of, keys_of, spread_answers
from mooncake_client.dropin.buffers import Buffers
from mooncake_client.dropin.codes import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    NO_AVAILABLE_HANDLE,
    OBJECT_ALREADY_EXISTS,
    OK,
    read_code,
)
from mooncake_client.dropin.replicate_config import DEFAULT_CONFIG, ReplicateConfig, refusal
from mooncake_store import _core
from mooncake_store.status import Status

SESSION_BYTES_MAX: Final = 8 << 30
"""Memory for values of open sessions of one store; above it a session is not started, NO_AVAILABLE_HANDLE."""

Pieces: TypeAlias = "list[tuple[int, int]]"


class PutSession:
    """A value that is gathered. Bytes that nobody wrote are zero."""

    def __init__(self, size: int, config: ReplicateConfig) -> None:
        self.memory = _core.BufferHandle(size)
        ctypes.memset(self.memory.ptr(), 0, size)
        self.config = copy.copy(config)
        self.config.group_ids = None  # it named the whole batch's


class PiecesOfValues(Buffers):
    def _start_parts(self) -> None:
        super()._start_parts()
        self._forget_sessions()

    def _forget_parts(self) -> None:
        super()._forget_parts()
        self._forget_sessions()

    def _forget_sessions(self) -> None:
        self._put_sessions: dict[Key, PutSession] = {}
        self._get_sessions: dict[Key, _core.BufferHandle] = {}
        self._session_bytes = 0

    # ---- several pieces a value

    def batch_put_from_multi_buffers(
        self,
        keys: list[str],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        config: ReplicateConfig = DEFAULT_CONFIG,
    ) -> list[int]:
        """Each value is its pieces, joined; one code a key."""
        names = keys_of(keys)
        good, packed = _packed_pieces(names, all_buffer_ptrs, all_sizes)
        codes = self._put_values([names[i] for i in good], packed, config, upsert=False) if good else []
        return spread_answers(good, codes, len(names))

    def batch_get_into_multi_buffers(
        self,
        keys: list[str],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        prefer_alloc_in_same_node: bool = False,
    ) -> list[int]:
        """Spread each value over its pieces, in order; bytes read or a code a key.

        prefer_alloc_in_same_node: without meaning here. A value larger than its pieces is -600.
        """
        names = keys_of(keys)
        good, packed = _packed_pieces(names, all_buffer_ptrs, all_sizes)
        answers = self._read_into([names[i] for i in good], packed) if good else []
        return spread_answers(good, answers, len(names))

    # ---- ranges of values

    def get_into_ranges(
        self,
        buffer_ptrs: list[int],
        all_keys: list[list[str]],
        all_dst_offsets: list[list[list[int]]],
        all_src_offsets: list[list[list[int]]],
        all_sizes: list[list[list[int]]],
    ) -> list[list[list[int]]]:
        """By buffer, key and range: copy `sizes` bytes at `src_offsets` of the value to the buffer's
        `dst_offsets`.

        Answers in the same three levels: bytes, -704 for a value that is not there, -600 for a range outside
        it, or outside the buffer where that is registered, and for lists that do not fit.
        """
        pointers = [operator.index(pointer) for pointer in items_of(buffer_ptrs, "buffer_ptrs")]
        keys = [keys_of(one) for one in items_of(all_keys, "all_keys")]
        columns = (all_dst_offsets, all_src_offsets, all_sizes)
        answers = [
            [[INVALID_PARAMS] * _length(_at(all_sizes, i, j)) for j in range(len(keys[i]))]
            for i in range(len(keys))
        ]
        if not len(pointers) == len(keys) == len(all_dst_offsets) == len(all_src_offsets) == len(all_sizes):
            return answers
        wanted: dict[Key, list[tuple[int, int]]] = {}
        for i, names in enumerate(keys):
            for j, key in enumerate(names):
                lengths = {_length(_at(column, i, j)) for column in columns}
                counts = {len(column[i]) for column in columns}
                if len(lengths) == 1 and counts == {len(names)} and pointers[i] > 0:
                    wanted.setdefault(key, []).append((i, j))
        with self._lock:
            ends = [self._registered.end_of(pointer) for pointer in pointers]
        ranges = {
            key: [
                (pointers[i] + target, size, source)
                if _fits(pointers[i] + target, size, pointers[i], ends[i])
                else None
                for i, j in places
                for target, source, size in zip(*(column[i][j] for column in columns), strict=True)
            ]
            for key, places in wanted.items()
        }
        read = self._read_ranges(ranges)
        for key, codes in read.items():
            found = iter(codes)
            for i, j in wanted[key]:
                answers[i][j] = [next(found) for _ in columns[0][i][j]]
        for key, value in self._one_by_one([key for key in wanted if key not in read]):
            for i, j in wanted[key]:
                answers[i][j] = [
                    _copy_range(value, source, pointers[i] + target, size)
                    if _fits(pointers[i] + target, size, pointers[i], ends[i])
                    else INVALID_PARAMS
                    for target, source, size in zip(*(column[i][j] for column in columns), strict=True)
                ]
        return answers

    def _read_ranges(self, wanted: dict[Key, list[tuple[int, int, int] | None]]) -> dict[Key, list[int]]:
        """Only those (pointer, size, offset in the value) of each key: bytes or a code a range.

        All ranges of a key are of one value. What is left out is to be read whole: keys with a range that
        cannot be, or is empty, values that are too large for a node to check them for a part, those that are
        replaced again and again, and all where two ranges go to one place.
        """
        client = self._client()
        plain = {
            key: [one for one in ranges if one is not None and one[1] > 0 and one[2] >= 0]
            for key, ranges in wanted.items()
        }
        left = [key for key, ranges in plain.items() if ranges and len(ranges) == len(wanted[key])]
        answers: dict[Key, list[int]] = {}
        if _overlap([(one[0], one[1]) for key in left for one in plain[key]]):
            return answers  # what comes into one place at once matches no checksum
        for _ in range(REOPENS_MAX):
            if not left or client is None:
                break
            asked = [(key, one) for key in left for one in plain[key]]
            statuses, put_ids = client.get_ranges_many(
                [key for key, _ in asked],
                [offset for _, (_, _, offset) in asked],
                [(pointer, size) for _, (pointer, size, _) in asked],
            )
            told = zip(statuses, put_ids, strict=True)
            again: list[Key] = []
            for key in left:
                found = [(one, *next(told)) for one in plain[key]]
                values = {put_id for _, status, put_id in found if status in (OK, Status.INVALID_PARAMS)}
                if len(values) > 1:
                    again.append(key)
                elif all(status != Status.VALUE_TOO_LARGE for _, status, _ in found):
                    answers[key] = [
                        size if status == OK else read_code(status) for (_, size, _), status, _ in found
                    ]
            left = again
        return answers

    def _one_by_one(self, keys: list[Key]) -> Iterator[tuple[Key, _core.BufferHandle | int]]:
        """Each key with its value or code; a value's memory is free when the next one is taken."""
        for key in keys:
            yield key, self._read_values([key])[0]

    # ---- sessions that read

    def batch_get_session_start(self, keys: list[str]) -> list[int]:
        """Fetch the values, to be read range by range: 0 or a code a key."""
        names = keys_of(keys)
        if self._client() is None:
            return [INVALID_PARAMS] * len(names)
        codes: list[int] = []
        for name, value in zip(names, self._read_values(names), strict=True):
            if isinstance(value, int):
                codes.append(value)
                continue
            with self._lock:
                older = self._get_sessions.get(name)
                added = value.size() - (0 if older is None else older.size())
                fits = self._session_bytes + added <= SESSION_BYTES_MAX
                if fits:
                    self._get_sessions[name] = value
                    self._session_bytes += added
            codes.append(OK if fits else NO_AVAILABLE_HANDLE)
        return codes

    def batch_get_into_multi_buffer_ranges(
        self,
        keys: list[str],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        all_src_offsets: list[list[int]],
    ) -> list[int]:
        """Of each value in a session: its ranges into those pieces; the sum of bytes or a code a key."""
        names = keys_of(keys)
        with self._lock:
            values = [self._get_sessions.get(name) for name in names]
        return [
            INVALID_PARAMS if value is None or ranges is None else _copy_ranges(value, ranges, reads=True)
            for value, ranges in zip(
                values, _ranges_of_all(names, all_buffer_ptrs, all_sizes, all_src_offsets), strict=True
            )
        ]

    def batch_get_session_end(self, keys: list[str]) -> int:
        names = keys_of(keys)
        if self._client() is None:
            return INTERNAL_ERROR
        with self._lock:
            for name in names:
                value = self._get_sessions.pop(name, None)
                self._session_bytes -= 0 if value is None else value.size()
        return OK

    # ---- sessions that write

    def batch_put_session_start(
        self, keys: list[str], sizes: list[int], config: ReplicateConfig = DEFAULT_CONFIG
    ) -> list[int]:
        """Begin values of those sizes; nobody sees them before their session ends. 0 or a code a key."""
        names, lengths = keys_of(keys), [operator.index(size) for size in items_of(sizes, "sizes")]
        refused = refusal(config, len(names))
        if self._client() is None or len(names) != len(lengths) or refused != OK:
            return [refused or INVALID_PARAMS] * len(names)
        return [self._begin_put(name, size, config) for name, size in zip(names, lengths, strict=True)]

    def _begin_put(self, name: Key, size: int, config: ReplicateConfig) -> int:
        client = self._client()
        if client is None or not name or size <= 0:
            return INVALID_PARAMS
        if client.exists_many([name]) == [OK]:
            return OBJECT_ALREADY_EXISTS
        with self._lock:
            if name in self._put_sessions:
                return INVALID_PARAMS
            if self._session_bytes + size > SESSION_BYTES_MAX:
                return NO_AVAILABLE_HANDLE
            self._put_sessions[name] = PutSession(size, config)
            self._session_bytes += size
        return OK

    def batch_put_from_multi_buffer_ranges(
        self,
        keys: list[str],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        all_dst_offsets: list[list[int]],
    ) -> list[int]:
        """Write those pieces into each value in a session; the sum of bytes or a code a key."""
        names = keys_of(keys)
        with self._lock:
            sessions = [self._put_sessions.get(name) for name in names]
        return [
            INVALID_PARAMS
            if session is None or ranges is None
            else _copy_ranges(session.memory, ranges, reads=False)
            for session, ranges in zip(
                sessions, _ranges_of_all(names, all_buffer_ptrs, all_sizes, all_dst_offsets), strict=True
            )
        ]

    def batch_put_session_end(self, keys: list[str]) -> list[int]:
        """Put what was gathered: 0 or a code a key."""
        return [
            INVALID_PARAMS
            if session is None
            else self._put_values([name], [session.memory], session.config, upsert=False)[0]
            for name, session in self._taken_put_sessions(keys)
        ]

    def batch_put_session_revoke(self, keys: list[str]) -> list[int]:
        """Forget what was gathered: 0 a key, -600 where no session is."""
        return [INVALID_PARAMS if session is None else OK for _, session in self._taken_put_sessions(keys)]

    def _taken_put_sessions(self, keys: list[str]) -> list[tuple[Key, PutSession | None]]:
        names = keys_of(keys)
        with self._lock:
            taken = [(name, self._put_sessions.pop(name, None)) for name in names]
            self._session_bytes -= sum(session.memory.size() for _, session in taken if session is not None)
            return taken


# ---- pieces


def _packed_pieces(
    keys: Sequence[Key], all_pointers: Any, all_sizes: Any
) -> tuple[Sequence[int], _core.PackedMemory]:
    """The pieces of each key that has memory, and the indices of these: none where the lists do not fit."""
    pointers, sizes = items_of(all_pointers, "all_buffer_ptrs"), items_of(all_sizes, "all_sizes")
    if not len(keys) == len(pointers) == len(sizes):
        return [], _core.PackedMemory.of_pieces([], [])
    with contextlib.suppress(TypeError, ValueError):
        return range(len(keys)), _core.PackedMemory.of_pieces(pointers, sizes)
    # One of them is no memory, or is given by numbers of numpy's, say.
    pieces = {i: of_one for i in range(len(keys)) if (of_one := _pieces_of(pointers[i], sizes[i]))}
    return list(pieces), _core.PackedMemory.of_pieces(
        [[pointer for pointer, _ in one] for one in pieces.values()],
        [[size for _, size in one] for one in pieces.values()],
    )


def _pieces_of(pointers: Sequence[int], sizes: Sequence[int]) -> Pieces | None:
    """Without empty ones. None: no memory is at one, or the lists do not fit."""
    if len(pointers) != len(sizes):
        return None
    pieces = list(zip(map(operator.index, pointers), map(operator.index, sizes), strict=True))
    if any(size < 0 or (size > 0 and pointer <= 0) for pointer, size in pieces):
        return None
    return [piece for piece in pieces if piece[1] > 0]


# ---- ranges


def _ranges_of_all(
    keys: Sequence[Key], all_pointers: Any, all_sizes: Any, all_offsets: Any
) -> list[list[tuple[int, int, int]] | None]:
    """(pointer, size, offset in the value) of each key's ranges; None where the lists do not fit."""
    columns = (
        items_of(all_pointers, "all_buffer_ptrs"),
        items_of(all_sizes, "all_sizes"),
        items_of(all_offsets, "all_offsets"),
    )
    if any(len(column) != len(keys) for column in columns):
        return [None] * len(keys)
    ranges: list[list[tuple[int, int, int]] | None] = []
    for row in zip(*columns, strict=True):
        fits = len({len(part) for part in row}) == 1
        ranges.append([_numbers(*one) for one in zip(*row, strict=True)] if fits else None)
    return ranges


def _numbers(pointer: Any, size: Any, offset: Any) -> tuple[int, int, int]:
    return operator.index(pointer), operator.index(size), operator.index(offset)


def _copy_ranges(value: _core.BufferHandle, ranges: list[tuple[int, int, int]], *, reads: bool) -> int:
    """All ranges or, when one lies outside, none; the sum of their bytes or a code."""
    if any(
        pointer <= 0 or size < 0 or offset < 0 or offset + size > value.size()
        for pointer, size, offset in ranges
    ):
        return INVALID_PARAMS
    for pointer, size, offset in ranges:
        inside = value.ptr() + offset
        ctypes.memmove(*((pointer, inside) if reads else (inside, pointer)), size)
    return sum(size for _, size, _ in ranges)


def _copy_range(value: _core.BufferHandle | int, source: int, target: int, size: int) -> int:
    return value if isinstance(value, int) else _copy_ranges(value, [(target, size, source)], reads=True)


def _fits(target: int, size: int, start: int, end: int | None) -> bool:
    return target >= start and (end is None or target + size <= end)


def _overlap(places: list[tuple[int, int]]) -> bool:
    """Whether any two of (pointer, size) share a byte."""
    places.sort()
    return any(one + size > other for (one, size), (other, _) in itertools.pairwise(places))


def _at(column: Any, i: int, j: int) -> Any:
    return column[i][j] if i < len(column) and j < len(column[i]) else ()


def _length(part: Any) -> int:
    return len(part)
