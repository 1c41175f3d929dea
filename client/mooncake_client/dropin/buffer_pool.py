"""`BufferPool`: memory that is registered once and lent out many times.

Owns sizes, waiting and the life of leases. Errors are RuntimeError with Mooncake's texts, which its users
compare. Must not know verbs besides register and unregister.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Final

from mooncake_store import _core

if TYPE_CHECKING:
    from mooncake_client.dropin.store import MooncakeDistributedStore

_MIN_SIZE_CLASS: Final = 65_536
_ALIGNMENT: Final = 8 << 20
_LEASE_BYTES_MAX: Final = 1 << 46
"""What no machine has; above it a size is a slip."""
_ADOPT_S: Final = 0.25  # between looks for forgotten leases while an acquire waits


class BufferLeaseView:
    """The memory of a lease as the pool holds it; kept for its name, which programs import."""


class BufferLease:
    """Memory lent by a pool until `release`, or until nobody knows the lease; a context manager."""

    def __init__(self, pool: BufferPool, handle: _core.BufferHandle, size: int) -> None:
        self._pool = pool
        self._handle: _core.BufferHandle | None = handle
        self._size = size

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
        """Its bytes; release fails as long as this view, or anything made of it, is alive."""
        with memoryview(self._held()) as signed, signed.cast("B") as whole:
            return whole[: self._size]

    def release(self) -> None:
        """Give it back. Raises RuntimeError while something still views it. Idempotent."""
        if self._handle is None:
            return
        if self._handle.is_viewed:
            raise RuntimeError(f"cannot release a buffer lease of {self._size} bytes with exported views")
        handle, self._handle = self._handle, None
        self._pool._take_back(handle)

    def __del__(self) -> None:
        # Called wherever memory is collected, also by a thread that holds a lock: no lock is taken here.
        handle = getattr(self, "_handle", None)
        if handle is not None:
            self._pool._orphans.append(handle)

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
    """Sizes are rounded up to a power of two within min_size_class and max_size_class; larger ones are exact.

    max_bytes: all memory of the pool; 0: as much as is lent, and the store's local_buffer_size of it is kept
    for the next leases. max_regions: pieces of memory at most. block_on_exhaustion, default_timeout
    (seconds): what acquire does when all is lent. prewarm_size, prewarm_count: had at once.
    alignment: a power of two, without further meaning: memory is aligned to a cache line.
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
        if alignment <= 0 or alignment & (alignment - 1):
            raise RuntimeError(f"alignment {alignment} is not a power of two")
        self._store = store
        self._max_bytes = max_bytes
        self._kept_bytes_max = max_bytes or membership.config.local_buffer_size
        self._min_size_class = max(1, min_size_class)
        self._max_size_class = max_size_class or max_bytes
        self._blocks = block_on_exhaustion
        self._default_timeout = default_timeout
        self._max_regions = max_regions
        self._changed = threading.Condition()
        self._orphans: deque[_core.BufferHandle] = deque()
        """Of leases that were forgotten instead of released."""
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
                self._adopt()
                handle = self._take(wanted)
                if handle is not None:
                    self._lent += 1
                    return BufferLease(self, handle, size)
                if not waits:
                    raise RuntimeError("buffer pool is exhausted")
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise RuntimeError("timed out waiting for buffer")
                self._changed.wait(_ADOPT_S if left is None else min(left, _ADOPT_S))

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
            self._adopt()
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
        """Bytes of the memory for a lease of `size`."""
        if size < 0:
            raise TypeError(f"size {size} is negative")
        if size > (self._max_bytes or _LEASE_BYTES_MAX):
            raise RuntimeError("requested buffer size exceeds pool capacity")
        rounded = max(self._min_size_class, 1 << max(0, size - 1).bit_length())
        largest = self._max_size_class or rounded
        return max(size, min(rounded, largest, self._max_bytes or rounded))

    def _adopt(self) -> None:
        """Take back what forgotten leases held; what is still viewed is its viewers' from then on."""
        while self._orphans:
            handle = self._orphans.popleft()
            if handle.is_viewed:
                self._forget(handle)
                self._lent -= 1
            else:
                self._put_back(handle)

    def _take(self, wanted: int) -> _core.BufferHandle | None:
        handles = self._free.get(wanted)
        if handles:
            return handles.pop()
        handle = self._make(wanted)
        if handle is None and self._drop_free():
            handle = self._make(wanted)
        return handle

    def _make(self, wanted: int) -> _core.BufferHandle | None:
        if self._max_bytes and self._bytes + wanted > self._max_bytes:
            return None
        if self._max_regions is not None and self._regions >= self._max_regions:
            return None
        handle = _core.BufferHandle(wanted)
        self._store.register_buffer(handle.ptr(), wanted)
        self._bytes += wanted
        self._regions += 1
        return handle

    def _forget(self, handle: _core.BufferHandle) -> None:
        self._store.unregister_buffer(handle.ptr())
        self._bytes -= handle.size()
        self._regions -= 1

    def _drop_free(self) -> bool:
        """Make room for another size. Whether anything was dropped."""
        dropped = [handle for handles in self._free.values() for handle in handles]
        self._free.clear()
        for handle in dropped:
            self._forget(handle)
        return bool(dropped)

    def _put_back(self, handle: _core.BufferHandle) -> None:
        """Keep it for the next lease, unless the pool holds more than it keeps."""
        if self._bytes > self._kept_bytes_max:
            self._forget(handle)
        else:
            self._free.setdefault(handle.size(), []).append(handle)
        self._lent -= 1
        self._changed.notify()

    def _take_back(self, handle: _core.BufferHandle) -> None:
        with self._changed:
            self._put_back(handle)
