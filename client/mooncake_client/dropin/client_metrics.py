"""What one store's client has moved and how long it took, under the names of Mooncake's client.

Owns counting, and the text for a scraper (Prometheus, 0.0.4). `MeasuredClient` stands between the verbs and
the native client where a store was asked to listen; else nothing is measured. Must not know verbs.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, Final

from mooncake_client.arguments import UPSERT
from mooncake_store import _core

BUCKETS_US: Final = (
    *(50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000),
    *(1_000_000, 2_000_000, 5_000_000, 10_000_000),
)

_SSD_COUNTERS: Final = (
    ("mooncake_ssd_read_bytes_total", "Bytes read from disks"),
    ("mooncake_ssd_write_bytes_total", "Bytes written to disks"),
    ("mooncake_ssd_read_ops_total", "Values read from disks"),
    ("mooncake_ssd_write_ops_total", "Values written to disks"),
    ("mooncake_ssd_total_bytes_total", "Bytes read from and written to disks"),
    ("mooncake_ssd_total_ops_total", "Values read from and written to disks"),
)
_SSD_LATENCIES: Final = ("read", "write", "total")
"""No store lends a disk: these are told, and stay 0, so that panels made for Mooncake's find them."""


class Histogram:
    """Counts by upper bound, and a sum. Not for several threads at once."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_US) + 1)
        self.sum_us = 0

    def observe(self, elapsed_us: int) -> None:
        self.counts[bisect_left(BUCKETS_US, elapsed_us)] += 1
        self.sum_us += elapsed_us

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        """As a scraper wants it: each bucket holds those below it too."""
        below = 0
        for bound, count in zip((*map(str, BUCKETS_US), "+Inf"), self.counts, strict=True):
            below += count
            yield f'{name}_bucket{{{labels and labels + ","}le="{bound}"}} {below}'
        shown = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{shown} {self.sum_us}"
        yield f"{name}_count{shown} {below}"


class Operations:
    """One direction, by kind of call."""

    def __init__(self) -> None:
        self.bytes = 0
        self.single, self.batch = Histogram(), Histogram()
        self.counts: dict[str, int] = {}
        self.bytes_by: dict[str, int] = {}
        self.latency_by: dict[str, Histogram] = {}

    def record(self, kind: str, keys: int, moved: int, elapsed_us: int) -> None:
        name = kind if keys == 1 else f"batch_{kind}"
        self.bytes += moved
        self.counts[name] = self.counts.get(name, 0) + 1
        self.bytes_by[name] = self.bytes_by.get(name, 0) + moved
        self.latency_by.setdefault(name, Histogram()).observe(elapsed_us)
        (self.single if keys == 1 else self.batch).observe(elapsed_us)


class ClientMetrics:
    """For any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads, self._writes = Operations(), Operations()
        self._rpcs: dict[str, Histogram] = {}

    def record_read(self, kind: str, keys: int, moved: int, elapsed_us: int) -> None:
        with self._lock:
            self._reads.record(kind, keys, moved, elapsed_us)

    def record_write(self, kind: str, keys: int, moved: int, elapsed_us: int) -> None:
        with self._lock:
            self._writes.record(kind, keys, moved, elapsed_us)

    def record_rpc(self, name: str, elapsed_us: int) -> None:
        with self._lock:
            self._rpcs.setdefault(name, Histogram()).observe(elapsed_us)

    def summary(self) -> dict[str, int]:
        """In a few numbers."""
        with self._lock:
            return {
                "read_bytes": self._reads.bytes,
                "write_bytes": self._writes.bytes,
                "reads": sum(self._reads.counts.values()),
                "writes": sum(self._writes.counts.values()),
            }

    def exposition(self) -> str:
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        for direction, operations in (("read", self._reads), ("write", self._writes)):
            total = f"mooncake_transfer_{direction}_bytes"
            yield from _head(total, "counter", f"Bytes {'read' if direction == 'read' else 'written'}")
            yield f"{total} {operations.bytes}"
            verb = "get" if direction == "read" else "put"
            for name, help_text, histogram in (
                (f"mooncake_transfer_{verb}_latency", f"Calls that {verb} one value", operations.single),
                (
                    f"mooncake_transfer_batch_{verb}_latency",
                    f"Calls that {verb} several values",
                    operations.batch,
                ),
            ):
                yield from _head(name, "histogram", f"{help_text} (us)")
                yield from histogram.lines(name)
            yield from _by_kind(direction, operations)
        yield from _head("mooncake_client_rpc_count", "counter", "Calls that only ask the master")
        for name, histogram in sorted(self._rpcs.items()):
            yield f'mooncake_client_rpc_count{{rpc_name="{name}"}} {sum(histogram.counts)}'
        yield from _head("mooncake_client_rpc_latency", "histogram", "Calls that only ask the master (us)")
        for name, histogram in sorted(self._rpcs.items()):
            yield from histogram.lines("mooncake_client_rpc_latency", f'rpc_name="{name}"')
        yield from _of_disks()


def _by_kind(direction: str, operations: Operations) -> Iterator[str]:
    base = f"mooncake_transfer_{direction}_operation"
    for suffix, help_text, values in (
        ("count", f"Calls that {direction}, by kind of call", operations.counts),
        ("bytes", f"Bytes of calls that {direction}, by kind of call", operations.bytes_by),
    ):
        yield from _head(f"{base}_{suffix}", "counter", help_text)
        for kind, value in sorted(values.items()):
            yield f'{base}_{suffix}{{op_name="{kind}"}} {value}'
    yield from _head(f"{base}_latency", "histogram", f"Calls that {direction}, by kind of call (us)")
    for kind, histogram in sorted(operations.latency_by.items()):
        yield from histogram.lines(f"{base}_latency", f'op_name="{kind}"')


def _of_disks() -> Iterator[str]:
    for name, help_text in _SSD_COUNTERS:
        yield from _head(name, "counter", help_text)
        yield f"{name} 0"
    for direction in _SSD_LATENCIES:
        name = f"mooncake_ssd_{direction}_latency_us"
        yield from _head(name, "histogram", "Batches of disks (us)")
        yield from Histogram().lines(name)
        name = f"mooncake_ssd_{direction}_latency_summary_us"
        yield from _head(name, "summary", "Batches of disks (us)")
        yield from (f"{name}_sum 0", f"{name}_count 0")


def _head(name: str, kind: str, help_text: str) -> tuple[str, str]:
    return f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"


class MeasuredClient:
    """A native client whose calls are counted; what is not counted is the client's own."""

    def __init__(self, client: _core.Client, metrics: ClientMetrics) -> None:
        self._client = client
        self._metrics = metrics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_many(self, keys: Sequence[Any], values: Sequence[Any], **options: Any) -> list[int]:
        began = time.perf_counter_ns()
        statuses = self._client.put_many(keys, values, **options)
        elapsed = _us_since(began)
        if isinstance(values, _core.PackedMemory) and not any(statuses):
            moved = values.size_bytes
        else:
            moved = sum(
                _size_of(value) for value, status in zip(values, statuses, strict=True) if status == 0
            )
        kind = "upsert" if options.get("flags", 0) & UPSERT else "put"
        self._metrics.record_write(kind, len(keys), moved, elapsed)
        return statuses

    def get_many(self, keys: Sequence[Any]) -> list[bytes | int]:
        began = time.perf_counter_ns()
        values = self._client.get_many(keys)
        moved = sum(len(value) for value in values if isinstance(value, bytes))
        self._metrics.record_read("get", len(keys), moved, _us_since(began))
        return values

    def get_into_many(self, keys: Sequence[Any], targets: Sequence[Any]) -> tuple[list[int], list[int]]:
        began = time.perf_counter_ns()
        answer = self._client.get_into_many(keys, targets)
        self._metrics.record_read("get_into", len(keys), _read(*answer), _us_since(began))
        return answer

    def get_ranges_many(
        self, keys: Sequence[Any], offsets: Sequence[int], targets: Sequence[Any]
    ) -> tuple[list[int], list[int]]:
        began = time.perf_counter_ns()
        answer = self._client.get_ranges_many(keys, offsets, targets)
        moved = sum(
            _size_of(target) for target, status in zip(targets, answer[0], strict=True) if status == 0
        )
        self._metrics.record_read("get_into", len(keys), moved, _us_since(began))
        return answer

    def open(self, keys: Sequence[Any], *, to_read: bool = True) -> _core.OpenValues:
        began = time.perf_counter_ns()
        opened = self._client.open(keys, to_read=to_read)
        self._metrics.record_rpc(_one_or_many("GetReplicaList", keys), _us_since(began))
        return opened

    def read_into(self, opened: _core.OpenValues, targets: Sequence[Any]) -> tuple[list[int], list[int]]:
        began = time.perf_counter_ns()
        answer = self._client.read_into(opened, targets)
        self._metrics.record_read("get_buffer", len(targets), _read(*answer), _us_since(began))
        return answer

    def exists_many(self, keys: Sequence[Any]) -> list[int]:
        began = time.perf_counter_ns()
        statuses = self._client.exists_many(keys)
        self._metrics.record_rpc(_one_or_many("ExistKey", keys), _us_since(began))
        return statuses

    def remove_many(self, keys: Sequence[Any], *, force: bool = False) -> list[int]:
        began = time.perf_counter_ns()
        statuses = self._client.remove_many(keys, force=force)
        self._metrics.record_rpc(_one_or_many("Remove", keys), _us_since(began))
        return statuses


def _us_since(began_ns: int) -> int:
    return (time.perf_counter_ns() - began_ns) // 1_000


def _one_or_many(name: str, keys: Sequence[Any]) -> str:
    return name if len(keys) == 1 else f"Batch{name}"


def _size_of(value: Any) -> int:
    """Bytes of a value as it is put: a buffer, (address, length), or a list of them."""
    if isinstance(value, list):
        return sum(map(_size_of, value))
    return int(value[1]) if isinstance(value, tuple) else memoryview(value).nbytes


def _read(statuses: Sequence[int], lengths: Sequence[int]) -> int:
    return sum(length for status, length in zip(statuses, lengths, strict=True) if status == 0)
