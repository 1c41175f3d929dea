"""Blocks of KV between an engine's memory and the pool, as every engine needs it.

Owns the deadlines, what a failure means to an engine (a miss, and one line in the log every few seconds) and
the counts. A call never raises for what the pool or the network did, so that no request fails of it. Must not
know any engine, nor what is in a block.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mooncake_client.answers import MISSES
from mooncake_client.arguments import whole
from mooncake_client.client_config import RPC_TIMEOUT_MS_MAX
from mooncake_client.dropin.membership import Membership
from mooncake_client.dropin.mooncake_config import (
    ENVIRONMENT_DEFAULTS,
    environment_settings,
    file_settings,
    from_mapping,
)
from mooncake_client.store import Store
from mooncake_store import _core
from mooncake_store.errors import InvalidArgument, StoreError
from mooncake_store.status import Status

log = logging.getLogger("mooncake_store.connectors")

LOOKUP_TIMEOUT_MS: Final = 1_000
"""A request waits for it before it is scheduled; what is not answered by then is computed."""
LOOKUP_PAUSE_S: Final = 2.0
"""After a look-up that nobody answered: until then blocks count as missing, so that a master that is silent
costs a scheduler one LOOKUP_TIMEOUT_MS in this time, not one a request."""
TRANSFER_TIMEOUT_MS: Final = 10_000
WARNING_INTERVAL_S: Final = 10.0
"""At most one line of each kind in this time, whatever happens to how many blocks."""

_PAGE: Final = 1_000

TIMEOUTS: Final = ("lookup_timeout_ms", "load_timeout_ms", "save_timeout_ms")
COUNTS: Final = (
    "looked_up_blocks",
    "present_blocks",
    "loaded_blocks",
    "loaded_bytes",
    "failed_load_blocks",
    "saved_blocks",
    "saved_bytes",
    "failed_save_blocks",
)


class BlockPool:
    """A place for blocks by key. Any number of threads may call; the GIL is released while a call waits.

    Memory is a `_core.PackedMemory`: one entry a key, of one or several pieces. The caller keeps it alive and
    where it is until the call returns; then nobody reads or writes it any more.
    """

    def __init__(
        self,
        client: _core.Client,
        *,
        tenant: str = "default",
        lookup_timeout_ms: int = LOOKUP_TIMEOUT_MS,
        load_timeout_ms: int = TRANSFER_TIMEOUT_MS,
        save_timeout_ms: int = TRANSFER_TIMEOUT_MS,
        end: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._tenant = tenant
        self._lookup_ms = whole("lookup_timeout_ms", lookup_timeout_ms, 1, RPC_TIMEOUT_MS_MAX)
        self._load_ms = whole("load_timeout_ms", load_timeout_ms, 1, RPC_TIMEOUT_MS_MAX)
        self._save_ms = whole("save_timeout_ms", save_timeout_ms, 1, RPC_TIMEOUT_MS_MAX)
        self._end = end
        self._clock = clock
        self._lookups_from = clock()
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(COUNTS, 0)
        self._warned: dict[str, float] = {}

    @classmethod
    def of(cls, store: Store, **timeouts: Any) -> BlockPool:
        """Over a store that somebody else closes."""
        client = store._client()
        assert isinstance(client, _core.Client)
        return cls(client, tenant=store.config.tenant, **timeouts)

    @classmethod
    def join(cls, given: Mapping[str, Any], where: str) -> BlockPool:
        """Join the pool that the settings name; `close` leaves it.

        given: what the engine's own configuration says; wins over the file that MOONCAKE_CONFIG_PATH names,
            else over the environment (docs/dropin.md). where: that configuration's name, for errors.
        Memory is lent only where global_segment_size says so. Raises InvalidArgument or Unavailable.
        """
        timeouts: dict[str, Any] = {
            name: _milliseconds(name, given[name]) for name in TIMEOUTS if name in given
        }
        path = os.environ.get("MOONCAKE_CONFIG_PATH", "")
        settings = {
            **ENVIRONMENT_DEFAULTS,
            "global_segment_size": 0,
            **(file_settings(path) if path else environment_settings()),
            **{name: value for name, value in given.items() if name not in TIMEOUTS},
        }
        config = from_mapping(settings, {}, where=f"{where}, {path or 'the environment'}")
        membership = Membership(config)
        return cls(membership.client, tenant=config.tenant_id, end=membership.end, **timeouts)

    # ---- blocks

    def present(self, keys: Sequence[bytes]) -> list[bool]:
        """Which blocks are there; those are held for a moment. What nobody answered counts as missing."""
        if self._clock() < self._lookups_from:
            self._count(looked_up_blocks=len(keys))
            return [False] * len(keys)
        statuses = self._asked("lookup", keys, lambda: self._exists(keys))
        if statuses and not any(status == 0 or status in MISSES for status in statuses):
            self._lookups_from = self._clock() + LOOKUP_PAUSE_S
        found = [status == 0 for status in statuses]
        self._count(looked_up_blocks=len(keys), present_blocks=sum(found))
        return found

    def load(
        self, keys: Sequence[bytes], memory: _core.PackedMemory, *, within_ms: int | None = None
    ) -> list[int]:
        """Read each block into its memory: bytes read, or -1, and then that memory's content is undefined.

        within_ms: where the caller has less time than load_timeout_ms.
        """

        def read() -> list[int]:
            timeout_ms = _shorter(self._load_ms, within_ms)
            statuses, lengths = self._client.get_into_many(keys, memory, timeout_ms=timeout_ms)
            for index, status in enumerate(statuses):
                answers[index] = lengths[index] if status == 0 else -1
            return statuses

        answers = [-1] * len(keys)
        self._asked("load", keys, read)
        loaded = [length for length in answers if length >= 0]
        self._count(
            loaded_blocks=len(loaded), loaded_bytes=sum(loaded), failed_load_blocks=len(keys) - len(loaded)
        )
        return answers

    def save(
        self,
        keys: Sequence[bytes],
        memory: _core.PackedMemory,
        parents: Sequence[bytes | None] | None = None,
        *,
        within_ms: int | None = None,
    ) -> list[bool]:
        """Store each block: whether it is there now, also when it was before.

        parents: the key of the block before each, so that a prefix is evicted from its end.
        within_ms: where the caller has less time than save_timeout_ms.
        """
        digests = None
        if parents is not None:
            digests = [0 if one is None else _core.key_digest(self._tenant, one) for one in parents]

        def write() -> list[int]:
            timeout_ms = _shorter(self._save_ms, within_ms)
            return self._client.put_many(keys, memory, parents=digests, timeout_ms=timeout_ms)

        statuses = self._asked("save", keys, write, fine=(Status.OBJECT_ALREADY_EXISTS,))
        saved = [status in (0, Status.OBJECT_ALREADY_EXISTS) for status in statuses]
        self._count(
            saved_blocks=statuses.count(0),
            saved_bytes=sum(memory.size_of(i) for i, status in enumerate(statuses) if status == 0),
            failed_save_blocks=saved.count(False),
        )
        return saved

    def remove(self, keys: Sequence[bytes]) -> list[bool]:
        """End the blocks; which of them were there."""
        statuses = self._asked(
            "remove",
            keys,
            lambda: self._client.remove_many(keys, force=True, timeout_ms=self._save_ms),
        )
        return [status == 0 for status in statuses]

    def clear(self, prefix: bytes) -> int:
        """End all blocks whose keys begin so; how many there were. What is stored meanwhile may stay."""
        removed, cursor = 0, 0
        try:
            while True:
                status, cursor, found = self._client.list_keys(
                    cursor, limit=_PAGE, key_prefix=prefix, timeout_ms=self._save_ms
                )
                removed += sum(self.remove([fields[0] for fields in found]))
                if status or not cursor:
                    return removed
        except (StoreError, RuntimeError) as error:
            self._warn("clear", f"clear of {prefix!r}: {error}")
            return removed

    def counts(self) -> dict[str, int]:
        """Of all calls so far, by the names in COUNTS."""
        with self._lock:
            return dict(self._counts)

    def close(self) -> None:
        """Leave the pool, if this joined it. Calls after it find nothing and store nothing."""
        self._end()

    # ---- inside

    def _exists(self, keys: Sequence[bytes]) -> list[int]:
        return self._client.exists_many(keys, timeout_ms=self._lookup_ms)

    def _asked(
        self, verb: str, keys: Sequence[bytes], call: Callable[[], list[int]], fine: tuple[int, ...] = ()
    ) -> list[int]:
        """One status a key, whatever happens."""
        if not keys:
            return []
        try:
            statuses = call()
        except (StoreError, RuntimeError) as error:
            self._warn(verb, f"{verb} of {len(keys)} blocks: {error}")
            return [int(Status.CLOSED)] * len(keys)
        bad = [status for status in statuses if status and status not in MISSES and status not in fine]
        if bad:
            self._warn(verb, f"{verb}: {len(bad)} of {len(keys)} blocks failed: {self._client.why()}")
        return statuses

    def _warn(self, verb: str, text: str) -> None:
        now = self._clock()
        with self._lock:
            if now < self._warned.get(verb, -WARNING_INTERVAL_S) + WARNING_INTERVAL_S:
                return
            self._warned[verb] = now
        log.warning("%s", text)

    def _count(self, **more: int) -> None:
        with self._lock:
            for name, number in more.items():
                self._counts[name] += number


def memory_of(tensors: Sequence[Any]) -> _core.PackedMemory:
    """The memory of tensors of the host, each contiguous and kept alive by the caller."""
    addresses, sizes = [], []
    for tensor in tensors:
        if hasattr(tensor, "is_contiguous") and not (tensor.is_contiguous() and tensor.device.type == "cpu"):
            raise InvalidArgument(
                f"a tensor of shape {tuple(tensor.shape)} on {tensor.device} is not contiguous host memory"
            )
        addresses.append(tensor.data_ptr())
        sizes.append(tensor.nbytes)
    return _core.PackedMemory.of_addresses(addresses, sizes)


def _shorter(timeout_ms: int, within_ms: int | None) -> int:
    return timeout_ms if within_ms is None else min(timeout_ms, max(1, within_ms))


def _milliseconds(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{name} {value!r} is not a number of milliseconds") from error
