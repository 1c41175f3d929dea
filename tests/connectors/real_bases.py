"""The connectors over the engines' own classes and factories, each in a process of its own, without a GPU.

Run by an interpreter that has them: `python real_bases.py <engine> <master>`. Nothing of theirs is changed;
of SGLang, the package's own start, which needs its kernels, is left out.
"""

# mypy: ignore-errors

from __future__ import annotations

import asyncio
import importlib.util
import os
import select
import sys
import threading
import types
from typing import Any


def settings(master: str, segment: int = 0) -> dict[str, Any]:
    return {
        "master_server_address": master,
        "local_hostname": "127.0.0.1",
        "metadata_server": "P2PHANDSHAKE",
        "global_segment_size": segment,
    }


SEGMENT = 128 << 20


def sglang(master: str) -> None:
    """Through HiCache's factory, as `--hicache-storage-backend dynamic` makes it."""
    import torch

    spec = importlib.util.find_spec("sglang")
    package = types.ModuleType("sglang")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["sglang"] = package
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, HiCacheStorageConfig
    from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

    class HostPool:
        dtype, layout, page_size = torch.bfloat16, "page_first", 4

        def __init__(self) -> None:
            self.kv_buffer = torch.zeros((2, 32, 3, 8), dtype=self.dtype)

        def get_size_per_token(self) -> int:
            return 2 * 3 * 8 * 2

        def get_page_buffer_meta(self, indices: Any) -> Any:
            starts = indices.tolist()[:: self.page_size]
            pieces = [self.kv_buffer[kind, at : at + 4] for at in starts for kind in (0, 1)]
            return [piece.data_ptr() for piece in pieces], [piece.nbytes for piece in pieces]

    def backend(segment: int) -> Any:
        config = HiCacheStorageConfig(
            tp_rank=0,
            tp_size=1,
            pp_rank=0,
            pp_size=1,
            attn_cp_rank=0,
            attn_cp_size=1,
            is_mla_model=False,
            enable_storage_metrics=False,
            is_page_first_layout=True,
            model_name="m",
            extra_config={
                "backend_name": "mooncake_store",
                "module_path": "mooncake_client.connectors.sglang",
                "class_name": "MooncakeHiCache",
                "interface_v1": 1,
                **settings(master, segment),
            },
        )
        host = HostPool()
        made = StorageBackendFactory.create_backend("dynamic", config, host)
        assert isinstance(made, HiCacheStorage)
        assert not type(made).__abstractmethods__
        made.register_mem_pool_host(host)
        made.on_host_pools_registered()
        return made, host

    one, source = backend(SEGMENT)
    two, target = backend(0)
    source.kv_buffer[:] = torch.randn(source.kv_buffer.shape)
    places = torch.arange(12)
    assert one.batch_set_v1(["a", "b", "c"], places) == [True] * 3
    assert two.batch_exists(["a", "b", "c", "d"]) == 3
    assert two.batch_get_v1(["c", "a", "d"], places) == [True, True, False]
    assert torch.equal(target.kv_buffer[:, :4], source.kv_buffer[:, 8:12])
    assert torch.equal(target.kv_buffer[:, 4:8], source.kv_buffer[:, :4])
    page = torch.randn(96).to(torch.bfloat16)
    assert one.batch_set(["flat"], [page])
    [found] = two.batch_get(["flat"], [torch.zeros(96, dtype=torch.bfloat16)])
    assert torch.equal(found, page)
    for each in (two, one):
        each.close()


def lmcache(master: str) -> None:
    """The remote plugin as LMCache's own launcher loads it, and its storage of chunks in its own memory."""
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

    name = "mooncake_store"
    config = LMCacheEngineConfig.from_defaults(
        chunk_size=16,
        local_cpu=False,
        max_local_cpu_size=0.25,
        remote_storage_plugins=[name],
        extra_config={
            f"remote_storage_plugin.{name}.module_path": "mooncake_client.connectors.lmcache",
            f"remote_storage_plugin.{name}.class_name": "MooncakeRemote",
            **{f"{name}.{key}": value for key, value in settings(master, SEGMENT).items()},
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
    connector = CreateConnector(f"plugin://{name}", loop, backend, config, metadata, plugin_name=name)
    assert (
        type(connector).__name__ == "InstrumentedRemoteConnector" or not type(connector).__abstractmethods__
    )
    shape = torch.Size([2, 4, 16, 8])
    keys = [CacheEngineKey("m", 1, 0, number, torch.bfloat16) for number in range(5)]
    chunks = []
    for number, key in enumerate(keys):
        assert not wait(connector.exists(key))
        chunk = backend.allocate(shape, torch.bfloat16)
        chunk.tensor[:] = torch.randn(shape, generator=torch.Generator().manual_seed(number))
        chunks.append(chunk.tensor.flatten().clone())
        wait(connector.put(key, chunk))
    absent = CacheEngineKey("m", 1, 0, 999, torch.bfloat16)
    assert all(wait(connector.exists(key)) for key in keys)
    assert connector.exists_sync(keys[0])
    found = wait(connector.batched_get([*keys, absent]))
    assert found[5] is None
    for chunk, one in zip(chunks, found, strict=False):
        assert torch.equal(one.tensor.flatten(), chunk)
    part = wait(connector.batched_get_non_blocking("id", [keys[0], absent, keys[1]]))
    assert len(part) == 1
    wait(connector.close())


def lmcache_l2(master: str) -> None:
    """The L2 adapter as LMCache's factory of plugins makes it, driven by its eventfds."""
    import torch
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.distributed.api import ObjectKey
    from lmcache.v1.distributed.l2_adapters.plugin_l2_adapter import (
        PluginL2AdapterConfig,
        _create_plugin_adapter,
    )
    from lmcache.v1.metadata import LMCacheMetadata
    from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

    adapter = _create_plugin_adapter(
        PluginL2AdapterConfig.from_dict(
            {
                "module_path": "mooncake_client.connectors.lmcache_l2",
                "class_name": "MooncakeL2",
                "adapter_params": settings(master, SEGMENT),
            }
        )
    )
    config = LMCacheEngineConfig.from_defaults(chunk_size=16, local_cpu=False, max_local_cpu_size=0.25)
    metadata = LMCacheMetadata(
        model_name="m",
        world_size=1,
        local_world_size=1,
        worker_id=0,
        local_worker_id=0,
        kv_dtype=torch.bfloat16,
        kv_shape=(4, 2, 16, 1, 8),
    )
    memory = LocalCPUBackend(config, metadata, dst_device="cpu")
    shape = torch.Size([2, 4, 16, 8])

    def objects(fill: Any) -> list[Any]:
        made = [memory.allocate(shape, torch.bfloat16) for _ in range(3)]
        for number, one in enumerate(made):
            one.tensor[:] = fill(number)
        return made

    def wait(fd: int) -> None:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(60_000)

    keys = [ObjectKey(bytes([number]) * 32, "m", 0) for number in range(4)]
    saved = objects(lambda number: torch.full(shape, float(number + 1)))
    task = adapter.submit_store_task(keys[:3], saved)
    wait(adapter.get_store_event_fd())
    assert adapter.pop_completed_store_tasks()[task].is_successful()
    task = adapter.submit_lookup_and_lock_task(keys, {})
    wait(adapter.get_lookup_and_lock_event_fd())
    bits = adapter.query_lookup_and_lock_result(task)
    assert [bits.test(i) for i in range(4)] == [True, True, True, False]
    targets = objects(lambda number: 0)
    task = adapter.submit_load_task(keys[:3], targets)
    wait(adapter.get_load_event_fd())
    bits = adapter.query_load_result(task)
    assert all(bits.test(i) for i in range(3))
    assert all(torch.equal(one.tensor, other.tensor) for one, other in zip(saved, targets, strict=True))
    assert adapter.get_usage().total_bytes_used == sum(one.get_size() for one in saved)
    adapter.close()


if __name__ == "__main__":
    {"lmcache": lmcache, "lmcache_l2": lmcache_l2, "sglang": sglang}[sys.argv[1]](sys.argv[2])
    print("done", flush=True)
    os._exit(0)  # engines leave threads behind
