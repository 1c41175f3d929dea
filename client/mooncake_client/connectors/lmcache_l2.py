"""LMCache's L2 adapter, `--l2-adapter '{"type":"plugin",...}'` with this module and `MooncakeL2`.

Each task runs on one of a few threads and tells its end through an eventfd of LMCache's. An object is its
plain bytes. A looked-up object is held by the pool for a moment, and nothing is locked: a load that finds it
evicted says so.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import L2AdapterInterface
from lmcache.v1.platform import create_event_notifier

from mooncake_client.connectors.block_pool import BlockPool
from mooncake_client.connectors.identity import identity
from mooncake_client.connectors.lmcache import memory_of_chunks
from mooncake_store.errors import InvalidArgument

WORKERS: Final = 4
WORKERS_MAX: Final = 64
RESULTS_MAX: Final = 65_536
"""Ends of tasks that nobody asked for; beyond them the oldest are forgotten."""


class MooncakeL2(L2AdapterInterface):  # type: ignore[misc, unused-ignore]
    """adapter_params: the pool's settings (docs/dropin.md), and `num_workers`, threads that move objects."""

    def __init__(
        self, adapter_params: Mapping[str, Any], l1_memory_desc: Any = None, *, pool: BlockPool | None = None
    ) -> None:
        """pool: instead of what the parameters name; for tests. Raises InvalidArgument, Unavailable."""
        super().__init__()
        settings = dict(adapter_params)
        workers = settings.pop("num_workers", WORKERS)
        if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= WORKERS_MAX:
            raise InvalidArgument(f"num_workers {workers!r} is not a whole number in 1..{WORKERS_MAX}")
        self.pool = pool or BlockPool.join(settings, "adapter_params")
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="mooncake-l2")
        self._stored, self._found, self._loaded = (create_event_notifier() for _ in range(3))
        self._ids = itertools.count()
        self._lock = threading.Lock()
        self._closed = False
        self._results: dict[int, Any] = {}
        self._store_results: dict[int, Any] = {}

    def get_store_event_fd(self) -> int:
        return int(self._stored.fileno())

    def get_lookup_and_lock_event_fd(self) -> int:
        return int(self._found.fileno())

    def get_load_event_fd(self) -> int:
        return int(self._loaded.fileno())

    # ---- tasks

    def submit_store_task(self, keys: Sequence[Any], objects: Sequence[Any]) -> int:
        names, kept = object_keys(keys), list(objects)

        def store() -> Any:
            saved = self.pool.save(names, memory_of_chunks(kept))
            there = [i for i, is_there in enumerate(saved) if is_there]
            sizes = [kept[i].get_size() for i in there]
            if there:
                self._notify_keys_stored([keys[i] for i in there], sizes)
            return L2StoreResult(all(saved), sum(sizes))

        return self._submit(store, L2StoreResult(False, 0), self._store_results, self._stored)

    def pop_completed_store_tasks(self) -> dict[int, Any]:
        with self._lock:
            done = dict(self._store_results)
            self._store_results.clear()
        return done

    def submit_lookup_and_lock_task(self, keys: Sequence[Any], group_layout_descs: Any = None) -> int:
        names = object_keys(keys)
        return self._submit(
            lambda: bitmap(self.pool.present(names)), Bitmap(len(names)), self._results, self._found
        )

    def query_lookup_and_lock_result(self, task_id: int) -> Any:
        return self._take(task_id)

    def submit_unlock(self, keys: Sequence[Any]) -> None:
        """Nothing is locked; what a look-up holds ends by itself."""

    def submit_load_task(self, keys: Sequence[Any], objects: Sequence[Any]) -> int:
        names, kept = object_keys(keys), list(objects)

        def load() -> Any:
            lengths = self.pool.load(names, memory_of_chunks(kept))
            # Another length is another layout: its bytes are not this object's.
            return bitmap([length == one.get_size() for length, one in zip(lengths, kept, strict=True)])

        return self._submit(load, Bitmap(len(names)), self._results, self._loaded)

    def query_load_result(self, task_id: int) -> Any:
        return self._take(task_id)

    def delete(self, keys: Sequence[Any]) -> None:
        """Nothing: LMCache asks for it to make room, which the pool makes itself, for all its engines."""

    def report_status(self) -> dict[str, Any]:
        return {"is_healthy": not self._closed, "type": type(self).__name__, **self.pool.counts()}

    def close(self) -> None:
        """Ends when the tasks that run have; those that have not begun fail."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._workers.shutdown(wait=True, cancel_futures=True)
        self.pool.close()
        for notifier in (self._stored, self._found, self._loaded):
            notifier.close()

    # ---- inside

    def _submit(self, work: Callable[[], Any], failed: Any, results: dict[int, Any], notifier: Any) -> int:
        task_id = next(self._ids)

        def run() -> None:
            result = failed
            try:
                result = work()
            finally:  # also what nobody foresaw has an end that the controller hears of
                with self._lock:
                    results[task_id] = result
                    while len(results) > RESULTS_MAX:
                        del results[next(iter(results))]
                notifier.notify()

        self._workers.submit(run)
        return task_id

    def _take(self, task_id: int) -> Any:
        with self._lock:
            return self._results.pop(task_id, None)


def object_keys(keys: Sequence[Any]) -> list[bytes]:
    """Keys of objects: all that LMCache says that they differ by."""
    prefixes: dict[tuple[Any, ...], bytes] = {}
    names = []
    for key in keys:
        fields = (key.model_name, key.kv_rank, key.object_group_id, key.cache_salt)
        prefix = prefixes.get(fields)
        if prefix is None:
            model, rank, group, salt = fields
            prefix = prefixes[fields] = identity("lmcache-l2", model=model, rank=rank, group=group, salt=salt)
        names.append(prefix + key.chunk_hash.hex().encode())
    return names


def bitmap(found: Sequence[bool]) -> Any:
    bits = Bitmap(len(found))
    for index, is_there in enumerate(found):
        if is_there:
            bits.set(index)
    return bits
