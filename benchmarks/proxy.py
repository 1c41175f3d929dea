"""`python -m benchmarks.proxy`: requests a second through mooncake_proxy, and what it adds to each.

Everything is on loopback and pinned: the proxy alone on one core, stub engines and the clients on the others.
The engines answer at once, so that all time is the proxy's and the machine's. Beside the proxy a
bare relay of aiohttp does the same three exchanges. Each round asks the decode
engine directly and through the proxy (1 prefill, 1 decode: two exchanges for one), in turn; what is told are
medians of rounds. Bodies have 1 KiB, connections are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.environment import environment
from benchmarks.figures import percentile, spread
from benchmarks.processes import Server, cpu_ns, pin

MODEL: Final = "stub"
PATH: Final = "/v1/completions"
BODY_BYTES: Final = 1_024
ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
COMPLETION: Final = json.dumps({"id": "cmpl-1", "choices": [{"text": "x" * 900}]}).encode()
MODELS: Final = json.dumps({"object": "list", "data": [{"id": MODEL}]}).encode()
READY: Final = r"serves \S+ on \S+:(\d+)"


BARE: Final = """
import asyncio, sys
import aiohttp
from aiohttp import web

async def main(prefill, decode):
    async with aiohttp.ClientSession() as session:
        async def relay(request):
            body = await request.read()
            for engine in (prefill, decode):
                async with session.post(f"http://127.0.0.1:{engine}{request.path}", data=body) as answer:
                    got = await answer.read()
            return web.Response(body=got, content_type="application/json")
        app = web.Application()
        app.router.add_post("/v1/completions", relay)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(f"serves bare on 127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(*map(int, sys.argv[1:])))
"""
"""The floor: what aiohttp itself takes for the same three exchanges, without a look at any of them."""


class Engine(asyncio.Protocol):
    """The least that an HTTP server can be: it measures the proxy, not itself."""

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._received) < end + 4 + length:
                return
            self._received = self._received[end + 4 + length :]
            body = MODELS if head.startswith(b"get /v1/models") else COMPLETION
            self._transport.write(ANSWER % (len(body), body))


class Client(asyncio.Protocol):
    """One kept connection that asks again as soon as it is answered, and notes how long each took."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.times_ns: list[int] = []
        self._received = b""
        self.is_over = False
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._began = time.perf_counter_ns()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._received[:end].lower()
        length = int(head[head.index(b"content-length:") + 15 :].split(b"\r\n", 1)[0])
        if len(self._received) < end + 4 + length:
            return
        assert head.startswith(b"http/1.1 200"), self._received
        self._received = b""
        self.times_ns.append(time.perf_counter_ns() - self._began)
        if self.is_over:
            self._transport.close()
            self.ended.set_result(None)
        else:
            self._ask()


def request_of(port: int) -> bytes:
    fields = {"model": MODEL, "prompt": "", "max_tokens": 16, "temperature": 0.0}
    fields["prompt"] = "x" * (BODY_BYTES - len(json.dumps(fields)))
    body = json.dumps(fields).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def ask(port: int, connections: int, seconds: float) -> tuple[float, list[int]]:
    """Requests a second, and the time of each in ns, sorted."""
    loop = asyncio.get_running_loop()
    request = request_of(port)
    began = time.perf_counter()
    clients = [
        (await loop.create_connection(lambda: Client(request), "127.0.0.1", port))[1]
        for _ in range(connections)
    ]
    await asyncio.sleep(seconds)
    for client in clients:
        client.is_over = True
    await asyncio.gather(*(client.ended for client in clients))
    took = time.perf_counter() - began
    times = sorted(time_ns for client in clients for time_ns in client.times_ns)
    return len(times) / took, times


async def measure(
    options: argparse.Namespace, engine: int, relays: dict[str, tuple[Server, int]]
) -> dict[str, Any]:
    """relays: process and port of each, by name."""
    rounds: list[dict[str, float]] = []
    for number in range(options.rounds + 1):
        _, direct = await ask(engine, 1, options.seconds)
        row = {"direct p50, us": percentile(direct, 0.5) / 1e3}
        for name, (process, port) in relays.items():
            before = cpu_ns([process.pid])
            _, alone = await ask(port, 1, options.seconds)
            lone_us = (cpu_ns([process.pid]) - before) / len(alone) / 1e3
            before = cpu_ns([process.pid])
            rate, loaded = await ask(port, options.connections, options.seconds)
            cpu_us = (cpu_ns([process.pid]) - before) / len(loaded) / 1e3
            row |= {
                f"{name}: added to p50, us": (percentile(alone, 0.5) - percentile(direct, 0.5)) / 1e3,
                f"{name}: CPU of a request alone, us": lone_us,
                f"{name}: requests a second": rate,
                f"{name}: p50 at that rate, us": percentile(loaded, 0.5) / 1e3,
                f"{name}: p99 at that rate, us": percentile(loaded, 0.99) / 1e3,
                f"{name}: CPU a request, us": cpu_us,
                f"{name}: requests a second of CPU": 1e6 / cpu_us,
            }
        row["CPU, proxy / bare"] = row["proxy: CPU a request, us"] / row["bare: CPU a request, us"]
        if number:  # the first one warms
            rounds.append(row)
    return {name: list(spread([row[name] for row in rounds])) for name in rounds[0]}


def started(command: Sequence[str], log: Path) -> Server:
    return Server([sys.executable, "-c", *command], log)


async def run(options: argparse.Namespace) -> dict[str, Any]:
    cores = sorted(os.sched_getaffinity(0))
    loop = asyncio.get_running_loop()
    listening = [await loop.create_server(Engine, "127.0.0.1", 0) for _ in range(2)]
    ports = [str(engine.sockets[0].getsockname()[1]) for engine in listening]
    words = ["--model", MODEL, "--prefill", f"127.0.0.1:{ports[0]}", "--decode", f"127.0.0.1:{ports[1]}"]
    words += ["--host=127.0.0.1", "--port=0", f"--scheduling={options.scheduling}"]
    with tempfile.TemporaryDirectory() as folder:
        relays: dict[str, tuple[Server, int]] = {}
        try:
            for name, command in (
                ("proxy", ["from mooncake_proxy.cli import main; main()", *words]),
                ("bare", [BARE, *ports]),
            ):
                server = started(command, Path(folder) / name)
                relays[name] = (server, 0)
                port = int((await asyncio.to_thread(server.wait_for, READY))[1])
                relays[name] = (server, port)
            for engine in ports:
                await asyncio.to_thread(
                    relays["proxy"][0].wait_for, rf"instance 127\.0\.0\.1:{engine} is well"
                )
            if len(cores) > 1:
                pin([server.pid for server, _ in relays.values()], cores[:1])
                os.sched_setaffinity(0, cores[1:])
            figures = await measure(options, int(ports[1]), relays)
        finally:
            for server, _ in relays.values():
                await asyncio.to_thread(server.stop)
    return {"environment": environment(), "scheduling": options.scheduling, "figures": figures}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proxy", description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each part of a round (0.5)")
    parser.add_argument("--connections", type=int, default=32, help="for the rate (32)")
    parser.add_argument("--scheduling", default="round_robin")
    parser.add_argument("--output", type=Path, default=None, help="also as JSON into this file")
    options = parser.parse_args(argv)
    report = asyncio.run(run(options))
    for name, (low, median, high) in report["figures"].items():
        print(f"{name:46} {median:10.2f}  [{low:.2f}..{high:.2f}]")
    if options.output is not None:
        options.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
