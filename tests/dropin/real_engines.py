"""LMCache's, SGLang's and vLLM's own classes over the package `mooncake`, each in a process of its own.

Run by an interpreter that has them: `python real_engines.py <engine> <master>`. Nothing of theirs is changed;
of SGLang, modules that need a GPU to be imported are replaced, as none of them is used here.
"""

# mypy: ignore-errors

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import runpy
import sys
import tempfile
import threading
import types
from dataclasses import dataclass, field
from typing import Any

SEGMENT = 256 << 20


def lmcache(master: str) -> None:
    """Its remote backend, with a chunk's metadata in the value and without."""
    import torch
    from lmcache.utils import CacheEngineKey
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.metadata import LMCacheMetadata
    from lmcache.v1.storage_backend.connector import CreateConnector
    from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    def wait(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)

    shape = torch.Size([2, 4, 16, 8])
    for saves_metadata in (False, True):
        config = LMCacheEngineConfig.from_defaults(
            chunk_size=16,
            local_cpu=False,
            max_local_cpu_size=0.25,
            remote_url=f"mooncakestore://{master}/",
            remote_serde="naive",
            extra_config={
                "local_hostname": "127.0.0.1",
                "metadata_server": "P2PHANDSHAKE",
                "protocol": "tcp",
                "device_name": "",
                "master_server_address": master,
                "global_segment_size": SEGMENT,
                "local_buffer_size": 64 << 20,
                "transfer_timeout": 10,
                "save_chunk_meta": saves_metadata,
            },
        )
        metadata = LMCacheMetadata(
            model_name="m",
            world_size=1,
            local_world_size=1,
            worker_id=0,
            local_worker_id=0,
            kv_dtype=torch.bfloat16,
            kv_shape=(4, 2, 16, 1, 8),
        )
        backend = LocalCPUBackend(config, metadata, dst_device="cpu")
        connector = CreateConnector(config.remote_url, loop, backend, config, metadata)
        keys = [
            CacheEngineKey("m", 1, 0, number + 100 * saves_metadata, torch.bfloat16) for number in range(5)
        ]
        chunks = []
        for number, key in enumerate(keys):
            assert not wait(connector.exists(key))
            chunk = backend.allocate(shape, torch.bfloat16)
            chunk.tensor[:] = torch.randn(shape, generator=torch.Generator().manual_seed(number))
            chunks.append(chunk.tensor.flatten().clone())  # a put gives the chunk back
            wait(connector.put(key, chunk))
        assert all(wait(connector.exists(key)) for key in keys)
        absent = CacheEngineKey("m", 1, 0, 999, torch.bfloat16)
        assert not wait(connector.exists(absent))
        found = wait(connector.batched_get([*keys, absent]))
        for chunk, one in zip(chunks, found, strict=False):
            assert one is not None
            assert torch.equal(one.tensor.flatten(), chunk)
        assert len(found) == 5 or found[5] is None
        wait(connector.close())


def sglang(master: str) -> None:
    """HiCache's backend, through SGLang's own test of it."""
    spec = importlib.util.find_spec("sglang")
    package = types.ModuleType("sglang")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["sglang"] = package

    @dataclass
    class StorageMetrics:
        prefetch_pgs: list[int] = field(default_factory=list)
        backup_pgs: list[int] = field(default_factory=list)
        prefetch_bandwidth: list[float] = field(default_factory=list)
        backup_bandwidth: list[float] = field(default_factory=list)

    def stand_in(name: str, **names: Any) -> None:
        module = types.ModuleType(name)
        module.__path__ = []
        module.__dict__.update(names)
        sys.modules[name] = module

    empty = {name: type(name, (), {}) for name in ("HostKVCache", "HostTensorAllocator")}
    stand_in("sglang.srt.mem_cache.hybrid_cache")
    stand_in("sglang.srt.mem_cache.hybrid_cache.linker_pool_assembler", DevicePoolEntry=type("E", (), {}))
    stand_in("sglang.srt.mem_cache.pool_host", **empty)
    stand_in("sglang.srt.mem_cache.pool_host.mla", MLATokenToKVPoolHost=type("P", (), {}))
    stand_in("sglang.srt.observability")
    stand_in("sglang.srt.observability.metrics_collector", StorageMetrics=StorageMetrics)
    os.environ |= {
        "MOONCAKE_MASTER": master,
        "MOONCAKE_PROTOCOL": "tcp",
        "MOONCAKE_GLOBAL_SEGMENT_SIZE": str(SEGMENT),
        "MOONCAKE_LOCAL_HOSTNAME": "127.0.0.1",
    }
    runpy.run_module("sglang.srt.mem_cache.storage.mooncake_store.test_mooncake_store", run_name="__main__")


def vllm(master: str) -> None:
    """The settings of the in-tree connector and the store that it makes of them, as its worker does."""
    import numpy as np
    from mooncake.store import MooncakeDistributedStore, ReplicateConfig
    from vllm.distributed.mooncake_store import MooncakeStoreConfig

    settings = {
        "metadata_server": "P2PHANDSHAKE",
        "master_server_address": master,
        "protocol": "tcp",
        "mode": "embedded",
        "global_segment_size": "256MB",
        "local_buffer_size": "128MB",
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(settings, file)
        file.flush()
        os.environ["MOONCAKE_CONFIG_PATH"] = file.name
        config = MooncakeStoreConfig.load_from_config()
    store = MooncakeDistributedStore()
    code = store.setup(
        "127.0.0.1",
        config.metadata_server,
        config.global_segment_size,
        config.local_buffer_size,
        config.protocol,
        config.device_name,
        config.master_server_address,
    )
    assert code == 0
    cache = np.arange(8192, dtype=np.uint8)
    assert store.register_buffer(cache.ctypes.data, cache.nbytes) == 0
    pieces = [[int(cache.ctypes.data) + 4096 * half for half in range(2)]], [[1000, 1000]]
    assert store.batch_put_from_multi_buffers(["k"], *pieces, ReplicateConfig()) == [0]
    assert store.batch_get_into_multi_buffers(["k"], *pieces) == [2000]
    assert store.remove_all(force=True) == 1
    assert store.close() == 0


if __name__ == "__main__":
    {"lmcache": lmcache, "sglang": sglang, "vllm": vllm}[sys.argv[1]](sys.argv[2])
    print("done", flush=True)
    os._exit(0)  # engines leave threads behind
