"""`python -m benchmarks.gpu`: tensors on a GPU put and read in place, beside what limits them.

Beside each batch, in interleaved rounds: the same bytes copied between GPU and pinned memory (what the bus
can do), the same put and get of tensors of the host (what the store can do), and both one after the other
through `.cpu()` and `.copy_`, as a program would without staging. Needs torch with a CUDA device; master and
node are in this process. Every value is compared after the rounds. Nothing here decides a test.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from benchmarks.figures import ratios, spread
from mooncake_client import Store, staging

MIB: Final = 1 << 20
WORKS: Final = ((1, 16 * MIB), (32, MIB), (16, 16 * MIB), (1000, 64 << 10))
"""Values of a batch, bytes of each."""
POOL_BYTES: Final = 1 << 30


class Bench:
    """One batch: its tensors on both sides, and the contenders that move it."""

    def __init__(self, torch: Any, store: Store, count: int, size: int) -> None:
        self.torch, self.store, self.count = torch, store, count
        self.on_gpu = [torch.randint(0, 255, (size,), dtype=torch.uint8, device="cuda") for _ in range(count)]
        self.targets = [torch.empty_like(value) for value in self.on_gpu]
        self.on_host = [value.cpu() for value in self.on_gpu]
        self.host_targets = [torch.empty_like(value) for value in self.on_host]
        self.pinned = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(count)]
        self.keys = [f"{count}x{size}-{index}" for index in range(count)]

    def contenders(self) -> dict[str, Callable[[], None]]:
        return {
            "put ours": lambda: self._put(self.on_gpu),
            "put bus": lambda: self._bus(self.pinned, self.on_gpu),
            "put host": lambda: self._put(self.on_host),
            "put by .cpu()": lambda: self._put([value.cpu() for value in self.on_gpu]),
            "get ours": lambda: self._get(self.targets),
            "get bus": lambda: self._bus(self.targets, self.pinned),
            "get host": lambda: self._get(self.host_targets),
            "get by .copy_": self._get_by_copy,
        }

    def _put(self, values: Sequence[Any]) -> None:
        answers = self.store.put_many(self.keys, values, replace=True)
        assert answers == ["stored"] * self.count, answers

    def _get(self, targets: Sequence[Any]) -> None:
        lengths = self.store.get_into_many(self.keys, targets)
        assert lengths == [target.nbytes for target in targets], lengths

    def _get_by_copy(self) -> None:
        self._get(self.host_targets)
        for target, source in zip(self.targets, self.host_targets, strict=True):
            target.copy_(source)

    def _bus(self, targets: Sequence[Any], sources: Sequence[Any]) -> None:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source, non_blocking=True)

    def check(self) -> None:
        self._put(self.on_gpu)
        for target in self.targets:
            target.zero_()
        self._get(self.targets)
        pairs = zip(self.targets, self.on_gpu, strict=True)
        assert all(self.torch.equal(target, value) for target, value in pairs), "wrong bytes"


def measure(torch: Any, bench: Bench, rounds: int) -> dict[str, list[float]]:
    contenders = bench.contenders()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 2):
        for name, move in contenders.items():
            torch.cuda.synchronize()
            began_s = time.perf_counter()
            move()
            torch.cuda.synchronize()
            if number >= 2:  # what comes first allocates
                times[name].append(time.perf_counter() - began_s)
    bench.check()
    return times


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--slab_mib", default="32", help="sizes of a slab to compare, by comma")
    parser.add_argument("--output", default="", help="a file for the figures as JSON")
    options = parser.parse_args(arguments)
    try:
        import torch
    except ImportError:
        print("torch is not installed")
        return 1
    if not torch.cuda.is_available():
        print("this machine has no CUDA device")
        return 1
    found: list[dict[str, Any]] = []
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"GB/s, medians of {options.rounds} rounds")
    for slab in options.slab_mib.split(","):
        staging.STAGING_BYTES = int(slab) * MIB  # type: ignore[misc]
        for count, size in WORKS:
            with Store.embedded(POOL_BYTES) as store:
                times = measure(torch, Bench(torch, store, count, size), options.rounds)
            rates = {name: count * size / spread(values).median / 1e9 for name, values in times.items()}
            print(f"slab {slab} MiB, {count} x {size >> 10} KiB:", end=" ")
            print(", ".join(f"{name} {rate:.2f}" for name, rate in rates.items()), end="; ")
            for verb in ("put", "get"):
                against = ratios(times[f"{verb} ours"], times[f"{verb} host"])
                print(f"{verb} time ours/host {against.median:.2f}", end=" ")
            print(flush=True)
            found.append({"slab_mib": int(slab), "count": count, "size_bytes": size, "seconds": times})
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(found, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
