"""The clients: prompts that share a beginning, so many at a time, and what each took."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from benchmarks.figures import percentile
from benchmarks.xypd.engines import MODEL

TOKEN_MAX: Final = 50_000


@dataclass(frozen=True)
class Load:
    """shared: the part of each prompt that all prompts of its group begin with."""

    prompt_tokens: int
    output_tokens: int
    shared: float
    groups: int
    concurrency: int
    requests: int
    seed: int


@dataclass
class Took:
    """Of one request, in s: first token, each further one, all."""

    ttft: float
    tpot: float
    whole: float


def prompts(load: Load) -> list[list[int]]:
    """The same for every run with this seed."""
    draw = random.Random(load.seed)

    def tokens(count: int) -> list[int]:
        return [draw.randrange(TOKEN_MAX) for _ in range(count)]

    shared = round(load.prompt_tokens * load.shared)
    beginnings = [tokens(shared) for _ in range(load.groups)]
    return [
        beginnings[draw.randrange(load.groups)] + tokens(load.prompt_tokens - shared)
        for _ in range(load.requests)
    ]


async def ask(session: aiohttp.ClientSession, url: str, prompt: list[int], output_tokens: int) -> Took:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": output_tokens, "stream": True}
    began = time.perf_counter()
    first = 0.0
    got = b""
    async with session.post(url, json=body) as answer:
        answer.raise_for_status()
        async for part in answer.content.iter_any():
            first = first or time.perf_counter()
            got += part
    ended = time.perf_counter()
    if not got.endswith(b"data: [DONE]\n\n"):
        raise RuntimeError(f"a stream ended after {len(got)} bytes without [DONE]")
    return Took(first - began, (ended - first) / max(1, output_tokens - 1), ended - began)


async def run(url: str, load: Load) -> dict[str, Any]:
    """All requests, `concurrency` at a time. The figures of the run."""
    waiting = iter(prompts(load))
    took: list[Took] = []

    async def client(session: aiohttp.ClientSession) -> None:
        for prompt in waiting:
            took.append(await ask(session, url, prompt, load.output_tokens))

    began = time.perf_counter()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session:
        await asyncio.gather(*(client(session) for _ in range(load.concurrency)))
    seconds = time.perf_counter() - began
    figures: dict[str, Any] = {
        "requests_s": len(took) / seconds,
        "output_tokens_s": len(took) * load.output_tokens / seconds,
        "seconds": seconds,
    }
    for name in ("ttft", "tpot", "whole"):
        values = sorted(getattr(one, name) for one in took)
        figures[f"{name}_ms"] = {
            "mean": 1e3 * sum(values) / len(values),
            "p50": 1e3 * percentile(values, 0.5),
            "p99": 1e3 * percentile(values, 0.99),
        }
    return figures
