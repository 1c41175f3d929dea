"""Serves a prompt workload through a whole store: a master, nodes, a prefill and a decode process.

    python examples/prefill_decode                         real text, built in
    python examples/prefill_decode --trace FILE.jsonl      a trace in Mooncake's format

Ends with a table and `wrong bytes: 0`; the exit status is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import sys
import time
from collections.abc import Iterable
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, Final

from cluster import Cluster, ClusterError
from report import Progress, Result, add_up, complaints, table
from roles import QUEUE_REQUESTS_MAX, WAIT_S, Counters, Outcome, RoleSettings, new_counters, run_role
from workload import Request, built_in, trace

from mooncake_client import Store
from mooncake_store.errors import StoreError
from mooncake_store.units import parse_size

POLL_S: Final = 0.1
EVICTIONS: Final = "evicted_keys_total"
CAPACITY: Final = "total_capacity_bytes"


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        block_bytes = parse_size(arguments.block_size, field="--block-size")
        node_bytes = parse_size(
            arguments.node_size or ("512mb" if arguments.trace else "48mb"), field="--node-size"
        )
        requests = (
            list(trace(arguments.trace, limit=arguments.limit))
            if arguments.trace
            else list(built_in(seed=arguments.seed))[: arguments.limit]
        )
        with Cluster(nodes=arguments.nodes, node_bytes=node_bytes) as cluster:
            result = run(cluster, requests, block_bytes, arguments.speed)
    except (ClusterError, StoreError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    print(table(result))
    for outcome in result.outcomes:
        for failure in outcome.failures:
            print(f"{outcome.role}: {failure}", file=sys.stderr)
    found = complaints(result)
    for complaint in found:
        print(f"demo: {complaint}", file=sys.stderr)
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="prefill_decode", description=__doc__.splitlines()[0])
    parser.add_argument("--trace", help="replay this JSONL trace instead of the built-in text")
    parser.add_argument("--limit", type=int, help="only the first so many requests")
    parser.add_argument("--nodes", type=int, default=2, help="nodes that lend memory (default 2)")
    parser.add_argument(
        "--node-size",
        help="memory of each node (default 48mb, with a trace 512mb: less than is put, so it evicts)",
    )
    parser.add_argument("--block-size", default="64kb", help="bytes of a block (default 64kb)")
    parser.add_argument(
        "--speed",
        type=float,
        help="pace by the timestamps, this many times faster; default: as fast as it goes",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the built-in conversations (default 1)")
    return parser


def run(cluster: Cluster, requests: list[Request], block_bytes: int, speed: float | None) -> Result:
    """Feeds the requests through both roles and gathers what they counted."""
    context = multiprocessing.get_context("spawn")
    settings = RoleSettings(cluster.master_address, block_bytes)
    prefill, decode = new_counters(context), new_counters(context)
    to_prefill: Any = context.Queue(QUEUE_REQUESTS_MAX)
    to_decode: Any = context.Queue(QUEUE_REQUESTS_MAX)
    outcomes: Any = context.Queue()
    workers = [
        _start(context, "prefill", settings, prefill, to_prefill, to_decode, outcomes),
        _start(context, "decode", settings, decode, to_decode, None, outcomes),
    ]
    progress = Progress(len(requests))
    begun = time.monotonic()
    problems: list[str] = []
    done: list[Outcome] = []
    try:
        _feed(cluster, workers, requests, to_prefill, speed, lambda: progress.show(prefill, decode))
        while len(done) < len(workers):
            try:
                done.append(outcomes.get(timeout=POLL_S))
            except queue.Empty:
                progress.show(prefill, decode)
                _check(cluster, workers)
        seconds = time.monotonic() - begun
        for worker in workers:
            worker.join(WAIT_S)
    except ClusterError as error:
        problems.append(str(error))
        seconds = time.monotonic() - begun
    finally:
        progress.end()
        for worker in workers:
            if worker.is_alive():
                worker.terminate()
                worker.join(WAIT_S)
        for one in (to_prefill, to_decode, outcomes):
            one.cancel_join_thread()
            one.close()
    stats = _master_stats(cluster) if not problems else {}
    return Result(
        requests=len(requests),
        seconds=seconds,
        counts=add_up([prefill, decode]),
        outcomes=done,
        evictions=stats.get(EVICTIONS, 0),
        capacity_bytes=stats.get(CAPACITY, 0),
        block_bytes=block_bytes,
        problems=problems,
    )


def _start(
    context: SpawnContext,
    role: str,
    settings: RoleSettings,
    counters: Counters,
    inbox: Any,
    onward: Any,
    outcomes: Any,
) -> SpawnProcess:
    process = context.Process(
        target=run_role, args=(role, settings, counters, inbox, onward, outcomes), name=role
    )
    process.start()
    return process


def _feed(
    cluster: Cluster,
    workers: list[SpawnProcess],
    requests: Iterable[Request],
    inbox: Any,
    speed: float | None,
    show: Any,
) -> None:
    begun = time.monotonic()
    for request in [*requests, None]:
        if speed and request is not None:
            due = begun + request.timestamp_ms / 1000 / speed
            while (left := due - time.monotonic()) > 0:
                time.sleep(min(left, POLL_S))
                show()
        while True:
            try:
                inbox.put(request, timeout=POLL_S)
                break
            except queue.Full:
                show()
                _check(cluster, workers)
        show()


def _check(cluster: Cluster, workers: list[SpawnProcess]) -> None:
    cluster.check_running()
    for worker in workers:
        if worker.exitcode:
            raise ClusterError(f"the {worker.name} process ended with status {worker.exitcode}")


def _master_stats(cluster: Cluster) -> dict[str, int]:
    with Store(cluster.master_address, name="demo") as store:
        return store.stats()


if __name__ == "__main__":
    sys.exit(main())
