"""The numbers with which Mooncake answers, from the native client's statuses.

Owns what a status means to a program that knows Mooncake's numbers only: one function a kind of question.
Each answers exactly `int`. Must not call anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mooncake_client.answers import MISSES
from mooncake_store.status import Status, nearest_mooncake_code, status_of

OK: Final = 0
INTERNAL_ERROR: Final = int(Status.INTERNAL_ERROR)
INVALID_PARAMS: Final = int(Status.INVALID_PARAMS)
NO_AVAILABLE_HANDLE: Final = int(Status.NO_AVAILABLE_HANDLE)
NOT_SUPPORTED: Final = int(Status.NOT_SUPPORTED)
OBJECT_ALREADY_EXISTS: Final = int(Status.OBJECT_ALREADY_EXISTS)
OBJECT_NOT_FOUND: Final = int(Status.OBJECT_NOT_FOUND)
TASK_NOT_FOUND: Final = int(Status.TASK_NOT_FOUND)
FILE_NOT_FOUND: Final = int(Status.FILE_NOT_FOUND)

_PUT: Final[Mapping[int, int]] = {
    # There is a value, visible to everybody: Mooncake calls that a success of the put.
    Status.OBJECT_ALREADY_EXISTS: OK,
    Status.SUPERSEDED: OK,
}
_READ: Final[Mapping[int, int]] = {
    **dict.fromkeys(MISSES, OBJECT_NOT_FOUND),
    Status.REPLICA_IS_NOT_READY: int(Status.REPLICA_IS_NOT_READY),
    Status.INVALID_KEY: OBJECT_NOT_FOUND,
    Status.BUFFER_OVERFLOW: INVALID_PARAMS,
    # vLLM's encoder cache stops for good at a code that it does not expect of a read; this one it tries
    # again.
    Status.BUSY: int(Status.REPLICA_IS_NOT_READY),
}
_EXISTS: Final[Mapping[int, int]] = {
    Status.OK: 1,
    Status.INVALID_KEY: 0,
    **dict.fromkeys(MISSES, 0),
}


def put_code(status: int) -> int:
    """Of put and upsert: 0 also when the key had a value already."""
    return OK if status == 0 else _PUT.get(status, nearest_mooncake_code(status))


def read_code(status: int) -> int:
    """Of a read that did not succeed: a value that cannot be had now is not found."""
    return _READ.get(status, nearest_mooncake_code(status))


def exists_code(status: int) -> int:
    """1 present, 0 not, negative when nobody answered."""
    return _EXISTS.get(status, nearest_mooncake_code(status))


def remove_code(status: int) -> int:
    return OBJECT_NOT_FOUND if status == Status.INVALID_KEY else nearest_mooncake_code(status)


def error_code(status: int) -> int:
    """Of questions about the pool."""
    return nearest_mooncake_code(status_of(status))
