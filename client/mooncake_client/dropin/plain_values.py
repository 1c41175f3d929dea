"""Values as bytes: put, upsert, get, what exists, and what ends them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from mooncake_client.dropin.base import Key, Memory, StoreBase, bytes_of, items_of, key_of, keys_of
from mooncake_client.dropin.codes import (
    INVALID_PARAMS,
    OK,
    error_code,
    exists_code,
    read_code,
    remove_code,
)
from mooncake_client.dropin.replicate_config import DEFAULT_CONFIG, ReplicateConfig
from mooncake_store import _core

_LIST_PAGE: Final = 1_000


class PlainValues(StoreBase):
    # ---- put

    def put(self, key: str, value: Any, config: ReplicateConfig = DEFAULT_CONFIG) -> int:
        """0 also when the key has a value already; it stays as it is."""
        return self._put_one(key, _whole(value), config, upsert=False)

    def put_batch(self, keys: list[str], values: list[Any], config: ReplicateConfig = DEFAULT_CONFIG) -> int:
        """0, or the code of the first that failed."""
        return self._put_all(keys, values, config, upsert=False)

    def put_parts(self, key: str, *args: Any, config: ReplicateConfig = DEFAULT_CONFIG) -> int:
        """The parts joined. Raises RuntimeError for a part that is not 1-D bytes."""
        return self._put_parts(key, args, config, upsert=False)

    def upsert(self, key: str, value: Any, config: ReplicateConfig = DEFAULT_CONFIG) -> int:
        """Put a new value even when there is one; readers see the old or the new, whole."""
        return self._put_one(key, _whole(value), config, upsert=True)

    def upsert_batch(
        self, keys: list[str], values: list[Any], config: ReplicateConfig = DEFAULT_CONFIG
    ) -> int:
        return self._put_all(keys, values, config, upsert=True)

    def upsert_parts(self, key: str, *args: Any, config: ReplicateConfig = DEFAULT_CONFIG) -> int:
        return self._put_parts(key, args, config, upsert=True)

    def _put_one(self, key: Key, value: Memory, config: ReplicateConfig, *, upsert: bool) -> int:
        name = key_of(key)
        return (
            INVALID_PARAMS
            if self._serves_only()
            else self._put_values([name], [value], config, upsert=upsert)[0]
        )

    def _put_all(self, keys: list[str], values: list[Any], config: ReplicateConfig, *, upsert: bool) -> int:
        names, memory = keys_of(keys), [_whole(value) for value in items_of(values, "values")]
        if len(names) != len(memory) or any(one is None for one in memory) or self._serves_only():
            return INVALID_PARAMS
        return next(filter(None, self._put_values(names, memory, config, upsert=upsert)), OK)

    def _put_parts(self, key: Key, parts: Sequence[Any], config: ReplicateConfig, *, upsert: bool) -> int:
        views = [memoryview(part) for part in parts]
        if any(view.ndim != 1 or view.itemsize != 1 for view in views):
            raise RuntimeError("parts must be 1-D bytes-like")
        if not views:
            return OK
        pieces = [view if view.c_contiguous else view.tobytes() for view in views if view.nbytes]
        return self._put_one(key, pieces or None, config, upsert=upsert)

    def _serves_only(self) -> bool:
        """A store that was set up with local_buffer_size 0 lends memory and reads, as Mooncake's does."""
        membership = self._membership
        return membership is not None and membership.config.local_buffer_size == 0

    # ---- get

    def get(self, arg0: str, /) -> bytes:
        """The whole value; b"" where there is none."""
        return self.get_batch([arg0])[0]

    def get_batch(self, arg0: list[str], /) -> list[bytes]:
        keys, client = keys_of(arg0), self._client()
        if client is None or not keys:
            return [b""] * len(keys)
        return [answer if isinstance(answer, bytes) else b"" for answer in client.get_many(keys)]

    def get_buffer(self, arg0: str, /) -> _core.BufferHandle | None:
        """The value in memory of its own; None where there is none."""
        return self.batch_get_buffer([arg0])[0]

    def batch_get_buffer(self, arg0: list[str], /) -> list[_core.BufferHandle | None]:
        found = self._read_values(keys_of(arg0))
        return [None if isinstance(answer, int) else answer for answer in found]

    # ---- what exists

    def is_exist(self, arg0: str, /) -> int:
        """1 or 0; negative when nobody answered."""
        return self.batch_is_exist([arg0])[0]

    def batch_is_exist(self, keys: list[str]) -> list[int]:
        names, client = keys_of(keys), self._client()
        if client is None:
            return [INVALID_PARAMS] * len(names)
        return [exists_code(status) for status in client.exists_many(names)] if names else []

    def get_size(self, arg0: str, /) -> int:
        """Bytes of the value, or a code."""
        key, client = key_of(arg0), self._client()
        if client is None:
            return INVALID_PARAMS
        opened = client.open([key], to_read=False)
        [status], [size] = opened.statuses, opened.sizes
        return size if status == 0 else read_code(status)

    # ---- remove

    def remove(self, key: str, force: bool = False) -> int:
        """Nobody starts a read of it any more. force: also while a reader holds a lease, else -706."""
        return self.batch_remove([key], force)[0]

    def batch_remove(self, keys: list[str], force: bool = False) -> list[int]:
        names, client = keys_of(keys), self._client()
        if client is None:
            return [INVALID_PARAMS] * len(names)
        if not names:
            return []
        return [remove_code(status) for status in client.remove_many(names, force=bool(force))]

    def remove_all(self, force: bool = False) -> int:
        """How many values were removed: all of this tenant, without force but those that are being read."""
        return self._remove_matching(lambda _: True, force)

    def remove_by_regex(self, regex_pattern: str, force: bool = False) -> int:
        """How many values were removed whose keys the pattern (of Python's `re`) matches anywhere."""
        try:
            pattern = re.compile(regex_pattern)
        except (re.error, RecursionError, OverflowError):
            return INVALID_PARAMS
        return self._remove_matching(
            lambda key: pattern.search(key.decode("utf-8", "surrogateescape")) is not None, force
        )

    def _remove_matching(self, matches: Callable[[bytes], bool], force: bool) -> int:
        client, removed = self._client(), 0
        if client is None:
            return INVALID_PARAMS
        for page in _pages(client):
            if isinstance(page, int):
                return page
            keys = [key for key in page if matches(key)]
            if keys:
                removed += client.remove_many(keys, force=bool(force)).count(0)
        return removed


def _pages(client: _core.Client) -> Iterator[list[bytes] | int]:
    """All keys of the tenant, a page at a time; last a code if the question failed."""
    cursor = 0
    while True:
        status, cursor, found = client.list_keys(cursor, limit=_LIST_PAGE)
        if status != 0:
            yield error_code(status)
            return
        yield [entry[0] for entry in found]
        if cursor == 0:
            return


def _whole(value: Any) -> Memory:
    """The bytes of a value that is put; None for an empty one, which Mooncake refuses."""
    memory = bytes_of(value)
    return memory if len(memory) and memoryview(memory).nbytes else None
