"""The base classes of engines, as small as the connectors need them, and memory like theirs, without torch.

Written from the calls that the engines make; `real_bases.py` runs the connectors over the real ones.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import numpy as np


class Tensor:
    """A numpy array that looks like a contiguous tensor of the host."""

    device = SimpleNamespace(type="cpu")

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape = array.shape
        self.nbytes = array.nbytes

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def is_contiguous(self) -> bool:
        return bool(self.array.flags.c_contiguous)

    def contiguous(self) -> Tensor:
        return Tensor(np.ascontiguousarray(self.array))


# ---- SGLang


class HiCacheStorage:
    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        self.mem_pool_host = mem_pool_host


class HostPool:
    """Pages of K and V, each layer by itself, as the layout layer_first has them."""

    dtype, layout, page_size, layers, token_bytes = "bfloat16", "layer_first", 4, 3, 64

    def __init__(self, pages: int) -> None:
        self.memory = np.zeros((2, self.layers, pages, self.page_size * self.token_bytes), np.uint8)

    def get_size_per_token(self) -> int:
        return 2 * self.layers * self.token_bytes

    def get_page_buffer_meta(self, indices: Any) -> tuple[list[int], list[int]]:
        pages = [int(index) // self.page_size for index in indices[:: self.page_size]]
        places = [self.memory[kind, layer, page] for page in pages for layer in range(3) for kind in (0, 1)]
        return [int(place.ctypes.data) for place in places], [place.nbytes for place in places]


def sglang_config(**changes: Any) -> Any:
    fields = {
        "tp_rank": 0,
        "tp_size": 2,
        "pp_rank": 0,
        "pp_size": 1,
        "is_mla_model": False,
        "model_name": "m",
        "extra_config": {},
    }
    return SimpleNamespace(**{**fields, **changes})


# ---- LMCache


class RemoteConnector:
    def __init__(self, config: Any, metadata: Any) -> None:
        self.meta_shapes, self.meta_dtypes, self.meta_fmt = [(2, 16)], ["bfloat16"], "KV_2LTD"
        self.full_chunk_size_bytes, self.single_token_size = 1024, 64

    def reshape_partial_chunk(self, chunk: Any, bytes_read: int) -> Any:
        assert 0 < bytes_read <= self.full_chunk_size_bytes
        chunk.array = chunk.array[:bytes_read]
        return chunk


class Chunk:
    def __init__(self, array: Any) -> None:
        self.array = array
        self.references = 1

    @property
    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def get_size(self) -> int:
        return int(self.array.nbytes)

    def ref_count_down(self) -> None:
        self.references -= 1


class LocalBackend:
    """room: chunks that can be had."""

    def __init__(self, room: int = 100, **config: Any) -> None:
        self.config = SimpleNamespace(**{"use_layerwise": False, "extra_config": {}, **config})
        self.metadata = SimpleNamespace(chunk_size=16)
        self.room = room
        self.given: list[Chunk] = []

    def allocate(self, shapes: Any, dtypes: Any, form: Any) -> Chunk | None:
        if len(self.given) == self.room:
            return None
        self.given.append(Chunk(np.zeros(1024, np.uint8)))
        return self.given[-1]


class CacheKey(str):
    def to_string(self) -> str:
        return str(self)


class ObjectKey(SimpleNamespace):
    def __init__(self, number: int, **changes: Any) -> None:
        fields = {"model_name": "m", "kv_rank": 0, "object_group_id": 0, "cache_salt": ""}
        super().__init__(chunk_hash=number.to_bytes(32, "big"), **{**fields, **changes})


class Bitmap:
    def __init__(self, size: int) -> None:
        self.bits = [False] * size

    def set(self, index: int) -> None:
        self.bits[index] = True


class L2StoreResult(int):
    def __new__(cls, success: bool, bytes_transferred: int) -> L2StoreResult:
        return super().__new__(cls, bytes_transferred if success else -1)


class L2AdapterInterface:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def _notify_keys_stored(self, keys: list[Any], sizes: list[int]) -> None:
        self.told.append((keys, sizes))


class Notifier:
    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)

    def fileno(self) -> int:
        return self.fd

    def notify(self) -> None:
        os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        os.close(self.fd)


ENGINES: dict[str, dict[str, dict[str, Any]]] = {
    "sglang": {"sglang.srt.mem_cache.hicache_storage": {"HiCacheStorage": HiCacheStorage}},
    "lmcache": {
        "lmcache.v1.storage_backend.connector.base_connector": {"RemoteConnector": RemoteConnector},
        "lmcache.lmcache_native": {"Bitmap": Bitmap},
        "lmcache.v1.distributed.internal_api": {"L2StoreResult": L2StoreResult},
        "lmcache.v1.distributed.l2_adapters.base": {"L2AdapterInterface": L2AdapterInterface},
        "lmcache.v1.platform": {"create_event_notifier": Notifier},
    },
}
"""What each engine's connectors import: modules, and the names in them."""
