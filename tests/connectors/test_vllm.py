"""The seam to vLLM: its calls, over stand-ins of its classes, as two engines make them in their steps."""

from __future__ import annotations

import json
import pickle
import sys
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from connectors.vllm_world import (
    LAYER_NAMES,
    FullAttentionSpec,
    KVConnectorRole,
    SlidingWindowSpec,
    block_of,
    cache_config,
    caches,
    request,
    vllm_config,
)

from mooncake_client import Store
from mooncake_client.connectors.block_pool import BlockPool
from mooncake_store.errors import InvalidArgument

HANG_STEPS = 60_000
TOKENS = list(range(100, 118))


class Engine:
    """A scheduler's and a worker's connector, and the steps between them."""

    def __init__(
        self,
        module: Any,
        pool: BlockPool,
        role: str,
        seed: int | None,
        layers: Sequence[str] = LAYER_NAMES,
        **config: Any,
    ) -> None:
        def connector(role_of: KVConnectorRole) -> Any:
            return module.MooncakeStoreConnector(
                vllm_config(role, **config), role_of, cache_config(layers=layers), pool=pool
            )

        self.scheduler, self.worker = connector(KVConnectorRole.SCHEDULER), connector(KVConnectorRole.WORKER)
        self.tensors = caches(seed)
        self.worker.register_kv_caches(self.tensors)

    def step(
        self, *new: Any, preempted: Any = None, finished: Any = ()
    ) -> tuple[set[str], set[str], set[int]]:
        """new: (request id, blocks, computed tokens, scheduled tokens). What the worker tells."""
        output = SimpleNamespace(
            scheduled_new_reqs=[
                SimpleNamespace(req_id=one[0], block_ids=(one[1],), num_computed_tokens=one[2]) for one in new
            ],
            scheduled_cached_reqs=SimpleNamespace(req_ids=[], resumed_req_ids=set()),
            num_scheduled_tokens={one[0]: one[3] for one in new},
            preempted_req_ids=preempted,
        )
        metadata = pickle.loads(pickle.dumps(self.scheduler.build_connector_meta(output)))
        self.worker.bind_connector_metadata(metadata)
        self.worker.handle_preemptions(metadata)
        self.worker.start_load_kv(None)
        self.worker.wait_for_layer_load("layer.0")
        self.worker.save_kv_layer("layer.0", None, None)
        self.worker.wait_for_save()
        sent, received = self.worker.get_finished(set(finished))
        failed = self.worker.get_block_ids_with_load_errors()
        assert self.worker.get_block_ids_with_load_errors() == set()
        self.scheduler.update_connector_output(
            SimpleNamespace(finished_recving=received, invalid_block_ids=failed)
        )
        return sent or set(), received or set(), failed

    def until(self, request_id: str, where: int, finished: Any = ()) -> set[int]:
        """Empty steps until the request is sent (0) or received (1); blocks that failed."""
        pause, failed = threading.Event(), set()
        for _ in range(HANG_STEPS):
            told = self.step(finished=finished)
            failed |= told[2]
            if request_id in told[where]:
                return failed
            pause.wait(0.001)
        raise AssertionError(request_id)


@pytest.fixture
def engine(connector_module: Any, pool: BlockPool) -> Iterator[Any]:
    made: list[Engine] = []
    [module] = connector_module("vllm", "vllm")

    def make(role: str = "kv_both", seed: int | None = None, **config: Any) -> Engine:
        made.append(Engine(module, pool, role, seed, **config))
        return made[-1]

    yield make
    for one in made:
        one.worker.shutdown()


def prefilled(engine: Any, blocks: list[int], **config: Any) -> Engine:
    """A prefill engine that computed the prompt into these blocks and stored them."""
    prefill: Engine = engine("kv_producer", 1, **config)
    asked = request("p", TOKENS)
    assert prefill.scheduler.get_num_new_matched_tokens(asked, 0) == (0, False)
    prefill.scheduler.update_state_after_alloc(asked, blocks_of(blocks), 0)
    prefill.step(("p", blocks, 0, len(TOKENS)))
    assert prefill.scheduler.request_finished_all_groups(asked, (blocks,)) == (True, None)
    prefill.until("p", 0, {"p"})
    return prefill


def blocks_of(blocks: list[int]) -> Any:
    return SimpleNamespace(get_block_ids=lambda: (blocks,))


def test_a_decode_engine_loads_what_a_prefill_engine_stored(engine: Any) -> None:
    prefill, decode = prefilled(engine, [5, 1, 8, 2, 3]), engine("kv_consumer")
    asked = request("d", TOKENS)
    assert decode.scheduler.get_num_new_matched_tokens(asked, 0) == (16, True)
    decode.scheduler.update_state_after_alloc(asked, blocks_of([9, 10, 11, 12]), 16)
    assert decode.until("d", 1) == set()
    for there, here in zip([5, 1, 8, 2], [9, 10, 11, 12], strict=True):
        assert block_of(prefill.tensors, there) == block_of(decode.tensors, here)
    assert decode.step(("d", [9, 10, 11, 12, 13], 16, 2))[0] == set()
    assert decode.scheduler.request_finished(asked, []) == (False, None)
    counts = decode.worker.get_kv_connector_stats()
    assert counts.data["loaded_blocks"] == 4
    assert decode.worker.get_kv_connector_stats() is None
    total = counts.aggregate(type(counts)(data={"loaded_blocks": 1}))
    assert total.reduce()["loaded_blocks"] == 5
    assert not total.is_empty()


def test_a_lost_block_is_told_and_not_promised_again(engine: Any, store: Store) -> None:
    prefilled(engine, [5, 1, 8, 2, 3])
    decode = engine("kv_consumer")
    asked = request("d", TOKENS)
    assert decode.scheduler.get_num_new_matched_tokens(asked, 0) == (16, True)
    assert store.remove_all() == 4
    decode.scheduler.update_state_after_alloc(asked, blocks_of([9, 10, 11, 12]), 16)
    assert decode.until("d", 1) == {9, 10, 11, 12}
    assert decode.scheduler.get_num_new_matched_tokens(asked, 0) == (0, False)


@pytest.mark.parametrize(
    "change",
    [
        {"model": "/models/n"},
        {"revision": "v2"},
        {"dtype": "torch.bfloat16"},
        {"cache_dtype": "fp8"},
        {"quantization": "awq"},
        {"config": '{"rope": 2}'},
        {"tp": 2},
        {"pp": 2},
        {"layers": [*LAYER_NAMES, "draft.0"]},
    ],
)
def test_only_the_same_engine_finds_a_block(engine: Any, change: dict[str, Any]) -> None:
    prefilled(engine, [5, 1, 8, 2, 3])
    assert engine(**change).scheduler.get_num_new_matched_tokens(request("d", TOKENS), 0) == (0, False)


def test_a_model_may_lie_at_other_paths_under_one_name(engine: Any) -> None:
    prefilled(engine, [5, 1, 8, 2, 3], extra={"model_name": "m"})
    other = engine(model="/elsewhere/m", extra={"model_name": "m"})
    assert other.scheduler.get_num_new_matched_tokens(request("d", TOKENS), 0) == (16, True)


@pytest.mark.parametrize(
    "change",
    [
        {"cache_salt": "s"},
        {"lora_request": SimpleNamespace(lora_name="l", lora_path="/l")},
        {"mm_features": ["picture"]},
        {"prompt_embeds": "tensor"},
        {"skip_reading_prefix_cache": True},
    ],
)
def test_only_the_same_kind_of_request_finds_a_block(engine: Any, change: dict[str, Any]) -> None:
    prefilled(engine, [5, 1, 8, 2, 3])
    asked = request("d", TOKENS, **change)
    assert engine().scheduler.get_num_new_matched_tokens(asked, 0) == (0, False)


def test_preempted_requests_are_not_told_of(engine: Any) -> None:
    one = engine(seed=3)
    asked = request("p", TOKENS)
    one.scheduler.update_state_after_alloc(asked, blocks_of([1, 2]), 0)
    one.step(("p", [1, 2], 0, 8))
    one.step(preempted={"p"})
    assert one.scheduler.request_finished(asked, []) == (False, None)
    assert one.step(finished={"p"})[0] == set()


def test_a_request_that_is_aborted_after_its_preemption_is_told_of(engine: Any) -> None:
    """vLLM preempts between two steps where the prefix cache is reset, and waits for the request that was
    aborted then: one that is never told of stays in its list, and the engine steps for ever.
    """
    one = engine(seed=3)
    asked = request("p", TOKENS)
    one.scheduler.update_state_after_alloc(asked, blocks_of([1, 2]), 0)
    one.step(("p", [1, 2], 0, 8))
    assert one.scheduler.request_finished(asked, []) == (True, None)
    assert one.step(preempted={"p"}, finished={"p"})[0] == {"p"}
    assert one.step()[0] == set()


def test_a_request_that_is_aborted_while_it_loads_is_received_and_not_sent(engine: Any) -> None:
    prefilled(engine, [5, 1, 8, 2, 3])
    decode = engine()
    asked = request("d", TOKENS)
    assert decode.scheduler.get_num_new_matched_tokens(asked, 0) == (16, True)
    decode.scheduler.update_state_after_alloc(asked, blocks_of([9, 10, 11, 12]), 16)
    assert decode.scheduler.request_finished(asked, []) == (False, None)
    assert decode.until("d", 1, {"d"}) == set()
    assert decode.step()[0] == set()


def test_engines_of_which_attention_lays_blocks_out_otherwise_share_none(
    engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's attention for CPUs orders keys by the machine's instructions, in tensors of one shape."""
    module = sys.modules["mooncake_client.connectors.vllm"]
    attention = {"layer.0": SimpleNamespace(attn_backend=SimpleNamespace(get_name=lambda: "CPU_ATTN"))}
    monkeypatch.setattr(module, "cpu_instructions", lambda: ("x86_64", True))
    prefilled(engine, [5, 1, 8, 2, 3], attention=attention)
    for instructions, failed in ((True, set()), (False, {9, 10, 11, 12})):
        monkeypatch.setattr(module, "cpu_instructions", lambda has=instructions: ("x86_64", has))
        decode = engine("kv_consumer", attention=attention)
        asked = request("d", TOKENS)
        assert decode.scheduler.get_num_new_matched_tokens(asked, 0) == (16, True)
        decode.scheduler.update_state_after_alloc(asked, blocks_of([9, 10, 11, 12]), 16)
        assert decode.until("d", 1) == failed


def test_reset_ends_this_engines_blocks(engine: Any, store: Store) -> None:
    one = prefilled(engine, [5, 1, 8, 2, 3])
    store.put("other", b"x")
    assert one.scheduler.reset_cache() is True
    assert list(store.keys()) == [b"other"]


def test_a_lost_block_fails_no_request(connector_module: Any, pool: BlockPool) -> None:
    """vLLM's default answers HTTP 500; it reads the policy after it has made its connector."""
    [module] = connector_module("vllm", "vllm")
    config = vllm_config()
    one = module.MooncakeStoreConnector(config, KVConnectorRole.SCHEDULER, cache_config(), pool=pool)
    assert config.kv_transfer_config.kv_load_failure_policy == "recompute"
    assert one.requires_kv_delivery is False


def test_caches_that_are_not_whole_are_refused(connector_module: Any, pool: BlockPool) -> None:
    [module] = connector_module("vllm", "vllm")
    config = vllm_config()
    for kinds in ((SlidingWindowSpec,), (FullAttentionSpec, SlidingWindowSpec)):
        with pytest.raises(InvalidArgument, match="hybrid"):
            module.MooncakeStoreConnector(config, KVConnectorRole.WORKER, cache_config(*kinds), pool=pool)
    config.parallel_config.decode_context_parallel_size = 2
    with pytest.raises(InvalidArgument, match="decode_context_parallel_size is 2"):
        module.MooncakeStoreConnector(config, KVConnectorRole.WORKER, cache_config(), pool=pool)


def test_settings_come_from_the_file_and_what_is_unknown_is_refused(
    connector_module: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    [module] = connector_module("vllm", "vllm")
    path = tmp_path / "mooncake.json"
    path.write_text(json.dumps({"master_server_address": "0.0.0.0:1", "metadata_server": "P2PHANDSHAKE"}))
    monkeypatch.setenv("MOONCAKE_CONFIG_PATH", str(path))
    with pytest.raises(InvalidArgument, match=r"0\.0\.0\.0:1 means every interface"):
        module.MooncakeStoreConnector(vllm_config(), KVConnectorRole.SCHEDULER, cache_config())
    config = vllm_config(extra={"lookup_rpc_port": "1"})
    with pytest.raises(InvalidArgument, match="unknown setting 'lookup_rpc_port'"):
        module.MooncakeStoreConnector(config, KVConnectorRole.SCHEDULER, cache_config())
