"""KV tensors of numpy that look like vLLM's, and the base classes of its connectors, for tests without it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from connectors.stand_ins import ENGINES

LAYERS, BLOCKS, BLOCK_TOKENS = 3, 16, 4
LAYER_NAMES = tuple(f"layer.{number}" for number in range(LAYERS))


class KvTensor:
    """Of layout (blocks, heads, tokens, dims); with `split`, (2, blocks, ...) as keys and values apart."""

    device = SimpleNamespace(type="cpu")

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, "torch.float16"

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def element_size(self) -> int:
        return int(self.array.itemsize)


def caches(seed: int | None = None, *, split: bool = False, dims: int = 8) -> dict[str, KvTensor]:
    """All layers in one memory; seed None: zeros."""
    shape = (LAYERS, 2, BLOCKS, BLOCK_TOKENS, dims) if split else (LAYERS, BLOCKS, 2, BLOCK_TOKENS, dims)
    memory = np.zeros(shape, np.uint16)
    if seed is not None:
        memory[:] = np.random.default_rng(seed).integers(1, 2**16, shape, np.uint16)
    return {name: KvTensor(layer) for name, layer in zip(LAYER_NAMES, memory, strict=True)}


def block_of(tensors: dict[str, KvTensor], block: int, *, split: bool = False) -> bytes:
    return b"".join(
        one.array[:, block].tobytes() if split else one.array[block].tobytes() for one in tensors.values()
    )


# ---- vLLM


class KVConnectorRole(enum.Enum):
    SCHEDULER = 0
    WORKER = 1


class KVConnectorBase_V1:
    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        self._vllm_config, self._kv_cache_config = vllm_config, kv_cache_config
        self._metadata: Any = None

    def bind_connector_metadata(self, metadata: Any) -> None:
        self._metadata = metadata

    def _get_connector_metadata(self) -> Any:
        return self._metadata


class FullAttentionSpec(SimpleNamespace):
    page_size_bytes = 128


class SlidingWindowSpec(FullAttentionSpec):
    pass


def vllm_config(role: str = "kv_both", **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "model": "/models/m",
        "revision": None,
        "dtype": "torch.float16",
        "quantization": None,
        "cache_dtype": "auto",
        "block_size": BLOCK_TOKENS,
        "config": "{}",
        "tp": 1,
        "pp": 1,
        "rank": 0,
        "extra": {},
        "attention": {},
        **changes,
    }
    of = SimpleNamespace
    return of(
        model_config=of(
            model=fields["model"],
            revision=fields["revision"],
            dtype=fields["dtype"],
            quantization=fields["quantization"],
            hf_config=of(to_json_string=lambda: fields["config"]),
        ),
        cache_config=of(cache_dtype=fields["cache_dtype"], block_size=fields["block_size"]),
        parallel_config=of(
            tensor_parallel_size=fields["tp"], pipeline_parallel_size=fields["pp"], rank=fields["rank"]
        ),
        kv_transfer_config=of(
            kv_load_failure_policy="fail",
            kv_connector_extra_config=fields["extra"],
            is_kv_producer=role != "kv_consumer",
            is_kv_consumer=role != "kv_producer",
        ),
        compilation_config=of(static_forward_context=fields["attention"]),
    )


def cache_config(*kinds: Any, layers: Sequence[str] = LAYER_NAMES) -> Any:
    groups = [
        SimpleNamespace(kv_cache_spec=kind(), layer_names=list(layers))
        for kind in kinds or (FullAttentionSpec,)
    ]
    return SimpleNamespace(kv_cache_groups=groups, num_blocks=BLOCKS)


def request(request_id: str, tokens: list[int], **changes: Any) -> Any:
    fields = {"cache_salt": None, "lora_request": None, "mm_features": [], "prompt_embeds": None}
    return SimpleNamespace(request_id=request_id, prompt_token_ids=tokens, **{**fields, **changes})


class Stats:
    pass


class PromMetrics:
    pass


BASE = "vllm.distributed.kv_transfer.kv_connector.v1"
ENGINES["vllm"] = {
    f"{BASE}.base": {
        "KVConnectorBase_V1": KVConnectorBase_V1,
        "KVConnectorMetadata": type("KVConnectorMetadata", (), {}),
        "KVConnectorRole": KVConnectorRole,
        "SupportsHMA": type("SupportsHMA", (), {}),
    },
    f"{BASE}.metrics": {"KVConnectorStats": Stats, "KVConnectorPromMetrics": PromMetrics},
}
