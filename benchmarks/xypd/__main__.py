"""`python -m benchmarks.xypd`: shapes of prefill and decode engines, with the store and without.

The engines are stubs of a given speed, so that any machine runs every shape; proxy, master, node and clients
of the store are the real ones, and blocks really move. Without the store a decode engine computes what it has
not in its own cache, as the proxy's prefill then warms nobody but the prefill engine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import aiohttp

from benchmarks.environment import environment
from benchmarks.processes import Server
from benchmarks.xypd.engines import MODEL, Speed
from benchmarks.xypd.load import Load, run

SHAPES: Final = "1P1D,2P1D,2P2D,2P4D,4P4D"
MODES: Final = ("store", "without")
MASTER_READY: Final = r"serves gRPC on \S*?:(\d+)"
PROXY_READY: Final = r"serves \S+ on \S+:(\d+)"
LOOPBACK: Final = ("--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1")
FREE_PORTS: Final = ("--port=0", "--lane_port=0", "--metrics_port=0", "--state_file=none")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.xypd", description=__doc__)
    add = parser.add_argument
    add("--shapes", default=SHAPES, help=f"by comma ({SHAPES})")
    add("--modes", default=",".join(MODES), help="store, without, or both by comma (both)")
    add("--scheduling", default="round_robin", help="of the proxy (round_robin)")
    add("--prompt-tokens", type=int, default=2_048)
    add("--output-tokens", type=int, default=16)
    add("--shared", type=float, default=0.5, help="part of a prompt that its group shares (0.5)")
    add("--groups", type=int, default=4, help="different shared beginnings (4)")
    add("--concurrency", type=int, default=8)
    add("--requests", type=int, default=48)
    add("--prefill-speed", type=float, default=5_000, help="tokens a second of one engine (5000)")
    add("--decode-speed", type=float, default=50, help="tokens a second of one request (50)")
    add("--block-tokens", type=int, default=64)
    add("--block-bytes", type=int, default=64 << 10, help="of one block in the store (64 KiB)")
    add("--local-blocks", type=int, default=64, help="blocks in an engine's own cache (64)")
    add("--store-bytes", default="1gb", help="that the node lends (1gb)")
    add("--seed", type=int, default=1)
    add("--output", type=Path, default=Path("build/bench/xypd.json"))
    options = parser.parse_args(argv)
    options.shapes = [_shape(parser, text) for text in options.shapes.split(",")]
    options.modes = options.modes.split(",")
    if unknown := set(options.modes) - set(MODES):
        parser.error(f"--modes: {', '.join(unknown)} is none of {', '.join(MODES)}")
    return options


def _shape(parser: argparse.ArgumentParser, text: str) -> tuple[str, int, int]:
    name = text.strip().upper()
    prefill, _, rest = name.partition("P")
    if not (prefill.isdigit() and rest.endswith("D") and rest[:-1].isdigit() and int(rest[:-1])):
        parser.error(f"--shapes: {text!r} is not of the form 2P4D")
    return name, int(prefill), int(rest[:-1])


@contextmanager
def stage(
    options: argparse.Namespace, speed: Speed, prefill: int, decode: int, *, with_store: bool
) -> Iterator[tuple[str, list[int]]]:
    """The proxy's URL and the engines' ports; everything is started anew and ended."""
    binaries = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:

        def start(name: str, *words: str | Path) -> Server:
            server = Server(words, Path(folder) / name)
            stack.callback(server.stop)
            return server

        master = ""
        if with_store:
            daemon = start("master", binaries / "mooncake_master", *FREE_PORTS, *LOOPBACK)
            master = f"127.0.0.1:{daemon.wait_for(MASTER_READY)[1]}"
            node = start(
                "node",
                *(binaries / "mooncake_client", f"--master_server_address={master}", "--host=127.0.0.1"),
                f"--global_segment_size={options.store_bytes}",
            )
            node.wait_for("lending ")
        settings = {"prefill": prefill, "decode": decode, "master": master, "speed": asdict(speed)}
        engines = start("engines", sys.executable, "-m", "benchmarks.xypd.engines", json.dumps(settings))
        ports = json.loads(engines.wait_for(r"engines on (\[.*\])")[1])
        names = [f"127.0.0.1:{port}" for port in ports]
        proxy = start(
            "proxy",
            *(binaries / "mooncake_proxy", "--model", MODEL, "--host=127.0.0.1", "--port=0"),
            *(f"--scheduling={options.scheduling}", f"--prefill={','.join(names[:prefill])}"),
            f"--decode={','.join(names[prefill:])}",
        )
        url = f"http://127.0.0.1:{proxy.wait_for(PROXY_READY)[1]}"
        for name in names:
            proxy.wait_for(rf"instance {name} is well".replace(".", r"\."))
        yield url, ports


async def counts(ports: list[int]) -> dict[str, dict[str, int]]:
    """Of the engines, summed by role."""
    found: dict[str, dict[str, int]] = {}
    async with aiohttp.ClientSession() as session:
        for port in ports:
            async with session.get(f"http://127.0.0.1:{port}/stats") as answer:
                told = await answer.json()
            summed = found.setdefault(told.pop("role"), dict.fromkeys(told, 0))
            for name, number in told.items():
                summed[name] = summed.get(name, 0) + number
    return found


def measure(options: argparse.Namespace, name: str, prefill: int, decode: int, mode: str) -> dict[str, Any]:
    speed = Speed(
        options.prefill_speed,
        options.decode_speed,
        options.block_tokens,
        options.block_bytes,
        options.local_blocks,
    )
    load = Load(
        options.prompt_tokens,
        options.output_tokens,
        options.shared,
        options.groups,
        options.concurrency,
        options.requests,
        options.seed,
    )

    async def carry_out(url: str, ports: list[int]) -> dict[str, Any]:
        figures = await run(f"{url}/v1/completions", load)
        return {**figures, "engines": await counts(ports)}

    with stage(options, speed, prefill, decode, with_store=mode == "store") as (url, ports):
        figures = asyncio.run(carry_out(url, ports))
    asked = sum(told["prompt_tokens"] for told in figures["engines"].values())
    computed = sum(told["computed_tokens"] for told in figures["engines"].values())
    figures["not_recomputed_share"] = 1 - computed / asked
    return {"shape": name, "mode": mode, **figures}


def line_of(result: dict[str, Any]) -> str:
    decode = result["engines"]["decode"]
    hits = 1 - decode["computed_tokens"] / decode["prompt_tokens"]
    return (
        f"{result['shape']:6} {result['mode']:8} TTFT {result['ttft_ms']['p50']:7.1f} ms (p99 "
        f"{result['ttft_ms']['p99']:7.1f})  TPOT {result['tpot_ms']['p50']:6.2f} ms  "
        f"{result['requests_s']:6.1f} requests/s  {result['output_tokens_s']:7.0f} tokens/s  "
        f"not recomputed: {result['not_recomputed_share']:4.0%}, of decode's prompts {hits:4.0%}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    options = arguments(argv)
    results = []
    for name, prefill, decode in options.shapes:
        for mode in options.modes:
            results.append(measure(options, name, prefill, decode, mode))
            print(line_of(results[-1]), flush=True)
    report = {
        "environment": environment(),
        "settings": {key: value for key, value in vars(options).items() if key not in ("output", "shapes")},
        "results": results,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"written: {options.output}; a picture: python -m benchmarks.xypd.plot {options.output} xypd.svg")


if __name__ == "__main__":
    main()
