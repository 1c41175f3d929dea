"""The stub engines and the load of benchmarks/xypd: what they count, and that a small run runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.xypd.__main__ import main
from benchmarks.xypd.engines import Speed, StubEngine
from benchmarks.xypd.load import Load, prompts
from mooncake_client import AsyncStore

FAST = Speed(prefill_tokens_s=1e9, decode_tokens_s=1e6, block_tokens=16, block_bytes=4_096, local_blocks=8)


def test_prompts_share_what_was_asked_for_and_are_the_same_each_time() -> None:
    load = Load(prompt_tokens=64, output_tokens=1, shared=0.5, groups=2, concurrency=1, requests=20, seed=3)
    made = prompts(load)
    assert made == prompts(load)
    assert {len(prompt) for prompt in made} == {64}
    assert len({tuple(prompt[:32]) for prompt in made}) == 2
    assert len({tuple(prompt[32:]) for prompt in made}) == 20


async def test_decode_engine_finds_what_the_prefill_engine_put() -> None:
    async with AsyncStore.embedded("16mb") as store:
        prefill, decode = (StubEngine(role, FAST, store) for role in ("prefill", "decode"))
        tokens = list(range(70))  # four blocks and a rest
        await prefill.prefill(tokens)
        await decode.prefill(tokens)
        await decode.prefill(tokens)
    assert (prefill.counts.computed_tokens, prefill.counts.store_tokens) == (70, 0)
    assert (decode.counts.store_tokens, decode.counts.local_tokens) == (64, 64)
    assert decode.counts.computed_tokens == 2 * 6


async def test_without_the_store_each_engine_computes_for_itself() -> None:
    engines = [StubEngine(role, FAST, None) for role in ("prefill", "decode")]
    for engine in engines:
        await engine.prefill(list(range(64)))
        assert engine.counts.computed_tokens == 64


@pytest.mark.slow
def test_a_small_run_writes_its_figures(tmp_path: Path) -> None:
    output = tmp_path / "xypd.json"
    main(
        [
            *("--shapes=1P1D", "--prompt-tokens=256", "--output-tokens=2", "--requests=6", "--concurrency=2"),
            *("--prefill-speed=1e6", "--decode-speed=1e4", "--store-bytes=64mb", "--block-bytes=4096"),
            f"--output={output}",
        ]
    )
    results = {result["mode"]: result for result in json.loads(output.read_text())["results"]}
    decode = {mode: result["engines"]["decode"] for mode, result in results.items()}
    assert decode["store"]["computed_tokens"] == 0
    assert decode["without"]["store_tokens"] == 0
    assert decode["without"]["computed_tokens"] > 0
    assert results["store"]["ttft_ms"]["p50"] > 0
