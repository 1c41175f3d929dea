"""`BufferPool`: memory that is registered once and lent out many times.

Owns sizes, waiting and the life of leases. Errors are RuntimeError with Mooncake's texts, which its users
compare. Must not know verbs besides register and unregister.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final

from mooncake_store import _core

if TYPE_CHECKING:
    from mooncake_client.dropin.store import MooncakeDistributedStore

_MIN_SIZE_CLASS: Final = 65_536
_ALIGNMENT: Final = 8 << 20


class BufferLeaseView:
    """The memory of a lease as the pool holds it; kept for its name, which programs import."""


class BufferLease:
    """Memory lent by a pool until `release`; a context manager that releases it."""

    def __init__(self, pool: BufferPool, handle: _core.BufferHandle, size: int) -> None:
        self._pool = pool
        self._handle: _core.BufferHandle | None = handle
        self._size = size
        self._view: memoryview | None = None

    def _held(self) -> _core.BufferHandle:
        if self._handle is None:
            raise RuntimeError("buffer lease is closed")
        return self._handle

    @property
    def ptr(self) -> int:
        return self._held().ptr()

    @property
    def size(self) -> int:
        self._held()
        return self._size

    @property
    def buffer(self) -> memoryview:
        """Its bytes; release fails as long as anything made of them is alive."""
        handle = self._held()
        if self._view is None:
            with memoryview(handle) as signed, signed.cast("B") as whole:
                self._view = whole[: self._size]
        return self._view

    def release(self) -> None:
        """Give it back. Raises BufferError while something still views it. Idempotent."""
        if self._handle is None:
            return
        if self._view is not None:
            self._view.release()
            self._view = None
        if self._handle.is_viewed:
            raise BufferError(f"the buffer of {self._size} bytes is still viewed")
        handle, self._handle = self._handle, None
        self._pool._take_back(handle)

    def __enter__(self) -> BufferLease:
        self._held()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __len__(self) -> int:
        return self.size


class BufferPool:
    """max_bytes: all memory of the pool; 0: the store's local_buffer_size. Sizes are rounded up to a power of
    two.

    min_size_class, max_size_class: bounds of the rounded sizes. block_on_exhaustion, default_timeout
    (seconds): what acquire does when all is lent. max_regions: pieces of memory at most. prewarm_size,
    prewarm_count: had at once.
    alignment has no meaning here: memory is aligned to a cache line.
    """

    def __init__(
        self,
        store: MooncakeDistributedStore,
        max_bytes: int = 0,
        min_size_class: int = _MIN_SIZE_CLASS,
        max_size_class: int | None = None,
        alignment: int = _ALIGNMENT,
        block_on_exhaustion: bool = True,
        default_timeout: float | None = None,
        max_regions: int | None = None,
        prewarm_size: int | None = None,
        prewarm_count: int = 0,
    ) -> None:
        membership = store._membership
        if store._client() is None or membership is None:
            raise RuntimeError("MooncakeDistributedStore is not initialized")
        del alignment
        self._store = store
        self._max_bytes = max_bytes or membership.config.local_buffer_size
        self._min_size_class = max(1, min_size_class)
        self._max_size_class = max_size_class or self._max_bytes
        self._blocks = block_on_exhaustion
        self._default_timeout = default_timeout
        self._max_regions = max_regions
        self._changed = threading.Condition()
        self._free: dict[int, list[_core.BufferHandle]] = {}
        self._bytes = 0
        self._regions = 0
        self._lent = 0
        self._closed = False
        if prewarm_size and prewarm_count:
            self.prewarm(prewarm_size, prewarm_count)

    def acquire(self, size: int, block: bool | None = None, timeout: float | None = None) -> BufferLease:
        """Memory of at least `size` bytes. block, timeout: instead of the pool's own."""
        wanted = self._class_of(size)
        waits = self._blocks if block is None else block
        seconds = self._default_timeout if timeout is None else timeout
        if seconds is not None and seconds < 0:
            raise RuntimeError("timeout must be non-negative")
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            while True:
                if self._closed:
                    raise RuntimeError("buffer pool is closed")
                handle = self._take(wanted)
                if handle is not None:
                    self._lent += 1
                    return BufferLease(self, handle, size)
                if not waits:
                    raise RuntimeError("buffer pool is exhausted")
                left = None if deadline is None else deadline - time.monotonic()
                if (left is not None and left <= 0) or not self._changed.wait(left):
                    raise RuntimeError("timed out waiting for buffer")

    buffer = acquire

    def prewarm(self, size: int, count: int) -> None:
        """Have `count` pieces of that size ready, as far as the pool's bounds allow."""
        wanted = self._class_of(size)
        with self._changed:
            if self._closed:
                raise RuntimeError("buffer pool is closed")
            for _ in range(count):
                handle = self._make(wanted)
                if handle is None:
                    raise RuntimeError("buffer pool is exhausted")
                self._free.setdefault(wanted, []).append(handle)

    def close(self) -> None:
        """Free all. Raises RuntimeError while something is lent. Idempotent."""
        with self._changed:
            if self._lent:
                raise RuntimeError("cannot close buffer pool with active leases")
            self._closed = True
            free, self._free = self._free, {}
            self._bytes = self._regions = 0
            self._changed.notify_all()
        for handles in free.values():
            for handle in handles:
                self._store.unregister_buffer(handle.ptr())

    def __enter__(self) -> BufferPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- inside, with the lock held

    def _class_of(self, size: int) -> int:
        if size <= 0:
            raise RuntimeError("requested buffer size must be positive")
        if size > self._max_bytes or size > self._max_size_class:
            raise RuntimeError("requested buffer size exceeds pool capacity")
        rounded = max(self._min_size_class, 1 << (size - 1).bit_length())
        return min(rounded, max(size, min(self._max_size_class, self._max_bytes)))

    def _take(self, wanted: int) -> _core.BufferHandle | None:
        handles = self._free.get(wanted)
        if handles:
            return handles.pop()
        handle = self._make(wanted)
        if handle is None and self._drop_free():
            handle = self._make(wanted)
        return handle

    def _make(self, wanted: int) -> _core.BufferHandle | None:
        if self._bytes + wanted > self._max_bytes:
            return None
        if self._max_regions is not None and self._regions >= self._max_regions:
            return None
        handle = _core.BufferHandle(wanted)
        self._store.register_buffer(handle.ptr(), wanted)
        self._bytes += wanted
        self._regions += 1
        return handle

    def _drop_free(self) -> bool:
        """Make room for another size. Whether anything was dropped."""
        dropped = [handle for handles in self._free.values() for handle in handles]
        self._free.clear()
        for handle in dropped:
            self._store.unregister_buffer(handle.ptr())
            self._bytes -= handle.size()
            self._regions -= 1
        return bool(dropped)

    def _take_back(self, handle: _core.BufferHandle) -> None:
        with self._changed:
            self._free.setdefault(handle.size(), []).append(handle)
            self._lent -= 1
            self._changed.notify()
