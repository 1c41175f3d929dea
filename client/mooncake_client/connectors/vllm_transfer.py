"""What a worker of vLLM's does: blocks between its KV tensors and the pool, on a few threads.

Knows no class of vLLM's; a KV tensor is anything with data_ptr, shape, stride, element_size and dtype. The
engine's thread only hands work over and asks what has ended; it waits for a transfer in two cases, each up to
the deadline of the transfers under way: before a preempted request's blocks are reused, and at the end.

A stored block is a header of HEADER_BYTES, the form of the tensors that it came from, and its bytes of all
tensors. A block of another form is not loaded, whatever its key says.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import numpy as np

from mooncake_client.connectors.block_pool import BlockPool
from mooncake_client.connectors.vllm_plan import Load, Plan, Save, rank_key
from mooncake_store import _core
from mooncake_store.errors import InvalidArgument

log = logging.getLogger("mooncake_store.connectors")

HEADER_BYTES: Final = 32
BATCH_BYTES_MAX: Final = 64 << 20
"""Of one call: a read of a batch needs as much memory again until it is verified."""
SAVES_WAITING_MAX: Final = 1_024
"""Saves that are under way or wait; beyond them blocks are not stored."""
LOAD_THREADS: Final = 2


class Tensors:
    """Where the blocks of all KV tensors lie. The tensors stay where they are as long as this lives."""

    def __init__(self, caches: Mapping[str, Any], block_count: int, kernels: str = "") -> None:
        """caches: by layer, each on the host, with an axis of `block_count` blocks; else InvalidArgument.

        kernels: what else decides how numbers lie in a block. Attention for AMX, say, keeps keys in another
            order than that for AVX-512, in tensors of one shape.
        """
        self._caches = dict(caches)
        self.block_count = block_count
        self._places: list[
            tuple[int, int, int]
        ] = []  # address of block 0, bytes to the next one, bytes of one
        forms = []
        for name, tensor in self._caches.items():
            device = getattr(getattr(tensor, "device", None), "type", "cpu")
            if device != "cpu":
                raise InvalidArgument(
                    f"the KV cache of {name} is on {device}; this connector reads memory of the host. "
                    "Use vLLM's own connector over mooncake-store-compat"
                )
            self._places += _places(name, tensor, block_count)
            forms.append((name, tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype)))
        if not self._places:
            raise InvalidArgument("vLLM registered no KV cache")
        self.block_bytes = HEADER_BYTES + sum(size for _, _, size in self._places)
        # Shape but for the number of blocks, which engines choose by their memory. The names of layers tell
        # apart stages of a pipeline of one size that begin with another layer.
        shapes = [
            (name, tuple(0 if n == block_count else n for n in shape), dtype)
            for name, shape, _, dtype in forms
        ]
        order = [
            tuple(int(np.argsort(stride, kind="stable")[i]) for i in range(len(stride)))
            for _, _, stride, _ in forms
        ]
        sizes = [size for _, _, size in self._places]
        self.form = blake2b(repr((shapes, order, sizes, kernels)).encode(), digest_size=HEADER_BYTES).digest()

    def memory(self, blocks: Sequence[int], headers: Any) -> _core.PackedMemory:
        """The blocks' pieces. headers: a uint8 array of (blocks, HEADER_BYTES), kept alive by the caller."""
        for block in blocks:
            if not 0 <= block < self.block_count:
                raise InvalidArgument(f"block {block} is not in 0..{self.block_count - 1}")
        base = int(headers.ctypes.data)
        sizes = [HEADER_BYTES, *(size for _, _, size in self._places)]
        return _core.PackedMemory.of_pieces(
            [
                [base + row * HEADER_BYTES, *(first + block * step for first, step, _ in self._places)]
                for row, block in enumerate(blocks)
            ],
            [sizes] * len(blocks),
        )


def _places(name: str, tensor: Any, block_count: int) -> list[tuple[int, int, int]]:
    """A tensor's blocks: one range each, or two where keys and values are the first axis."""
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    item = tensor.element_size()
    if shape[:1] == (block_count,):
        outer, axis = [0], 0
    elif len(shape) > 1 and shape[0] == 2 and shape[1] == block_count:
        outer, axis = [0, strides[0]], 1
    else:
        raise InvalidArgument(f"the KV cache of {name} has shape {shape}, no axis of {block_count} blocks")
    inner = sorted(zip(strides[axis + 1 :], shape[axis + 1 :], strict=True))
    size = 1
    for stride, length in inner:
        if length != 1 and stride != size:
            raise InvalidArgument(f"a block of {name} is not contiguous: shape {shape}, strides {strides}")
        size *= length
    return [(tensor.data_ptr() + offset * item, strides[axis] * item, size * item) for offset in outer]


@dataclass
class Ended:
    """What ended since the last look. Failed blocks belong to loads that are in `received` now."""

    sent: set[str] = field(default_factory=set)
    received: set[str] = field(default_factory=set)
    failed_blocks: set[int] = field(default_factory=set)


class WorkerCore:
    """One rank. All methods are for the engine's thread."""

    def __init__(
        self,
        pool: BlockPool,
        *,
        tp_rank: int = 0,
        pp_rank: int = 0,
        load_timeout_ms: int = 10_000,
        save_timeout_ms: int = 10_000,
        load_threads: int = LOAD_THREADS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool = pool
        self._rank = (tp_rank, pp_rank)
        self._load_s, self._save_s = load_timeout_ms / 1000, save_timeout_ms / 1000
        self._clock = clock
        self._tensors: Tensors | None = None
        self._loaders = ThreadPoolExecutor(load_threads, thread_name_prefix="mooncake-load")
        self._savers = ThreadPoolExecutor(1, thread_name_prefix="mooncake-save")
        self._lock = threading.Lock()
        self._ended = Ended()
        self._saves: dict[str, set[Future[None]]] = {}
        self._over: set[str] = set()
        self._dropped = 0

    def register(self, caches: Mapping[str, Any], block_count: int, kernels: str = "") -> None:
        """The KV tensors, once, before any work. kernels: see `Tensors`."""
        self._tensors = Tensors(caches, block_count, kernels)

    # ---- work

    def load(self, plan: Plan) -> None:
        """Begin the plan's loads; each request is `received` later, whatever becomes of them."""
        for load in plan.loads:
            self._loaders.submit(self._load, load, self._clock() + self._load_s)

    def save(self, plan: Plan) -> None:
        """Begin the plan's saves. Their blocks must stay as they are until the request is `sent`."""
        for save in plan.saves:
            if sum(map(len, self._saves.values())) >= SAVES_WAITING_MAX:
                self._drop(len(save.keys))
                continue
            waiting = self._saves.setdefault(save.request_id, set())
            waiting.add(self._savers.submit(self._save, save, self._clock() + self._save_s))

    def preempted(self, request_ids: Iterable[str]) -> None:
        """Return when nobody reads these requests' blocks any more; their saves need not be told of."""
        futures = {future for one in request_ids for future in self._saves.pop(one, ())}
        for future in futures:
            future.cancel()
        wait(futures)

    def poll(self, over: Iterable[str]) -> Ended:
        """What ended. over: those of the step's plan; each is `sent` once, when its saves have ended."""
        self._over.update(over)
        with self._lock:
            ended, self._ended = self._ended, Ended()
        for request_id in list(self._saves):
            left = {one for one in self._saves[request_id] if not one.done()}
            if left:
                self._saves[request_id] = left
            else:
                del self._saves[request_id]
        ended.sent = self._over - self._saves.keys()
        self._over -= ended.sent
        return ended

    def counts(self) -> dict[str, int]:
        return {**self._pool.counts(), "dropped_save_blocks": self._dropped}

    def close(self) -> None:
        """What waits is given up; what runs ends, at the latest at its deadline."""
        for executor in (self._savers, self._loaders):
            executor.shutdown(wait=True, cancel_futures=True)

    # ---- on the threads

    def _load(self, load: Load, deadline: float) -> None:
        failed = set(load.blocks)
        try:
            self._load_blocks(load, deadline, failed)
        except Exception as error:  # the request must be told of, whatever happened
            log.error("load of %d blocks: %r", len(load.keys), error)
        finally:
            with self._lock:
                self._ended.received.add(load.request_id)
                self._ended.failed_blocks.update(failed)

    def _load_blocks(self, load: Load, deadline: float, failed: set[int]) -> None:
        """Takes out of `failed` what was loaded; after a part with a failure no other one is of use."""
        tensors = self._registered()
        for part in self._parts(len(load.keys)):
            left_s = deadline - self._clock()
            if left_s <= 0:
                log.warning("load: %d of %d blocks were late", len(failed), len(load.keys))
                return
            headers = np.zeros((part.stop - part.start, HEADER_BYTES), np.uint8)
            lengths = self._pool.load(
                [rank_key(key, *self._rank) for key in load.keys[part]],
                tensors.memory(load.blocks[part], headers),
                within_ms=int(left_s * 1000),
            )
            for block, length, header in zip(load.blocks[part], lengths, headers, strict=True):
                if length == tensors.block_bytes and header.tobytes() == tensors.form:
                    failed.discard(block)
            if not failed.isdisjoint(load.blocks[part]):
                return

    def _save(self, save: Save, deadline: float) -> None:
        try:
            self._save_blocks(save, deadline)
        except Exception as error:  # a block that is not stored is computed again
            log.error("save of %d blocks: %r", len(save.keys), error)

    def _save_blocks(self, save: Save, deadline: float) -> None:
        tensors = self._registered()
        keys = [rank_key(key, *self._rank) for key in save.keys]
        before = None if save.before is None else rank_key(save.before, *self._rank)
        parents = [before, *keys[:-1]]
        for part in self._parts(len(keys)):
            left_s = deadline - self._clock()
            if left_s <= 0:
                self._drop(len(keys) - part.start)
                return
            count = part.stop - part.start
            headers = np.frombuffer(bytearray(tensors.form * count), np.uint8).reshape(count, HEADER_BYTES)
            saved = self._pool.save(
                keys[part],
                tensors.memory(save.blocks[part], headers),
                parents[part],
                within_ms=int(left_s * 1000),
            )
            if not all(saved):  # those after it would not be found
                return

    def _drop(self, count: int) -> None:
        with self._lock:
            self._dropped += count

    def _registered(self) -> Tensors:
        if self._tensors is None:
            raise InvalidArgument("no KV cache is registered")
        return self._tensors

    def _parts(self, count: int) -> list[slice]:
        step = max(1, BATCH_BYTES_MAX // self._registered().block_bytes)
        return [slice(start, min(start + step, count)) for start in range(0, count, step)]
