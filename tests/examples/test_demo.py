"""The demo serves a workload through real processes, sees a wrong byte, and says so in its exit status."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

DEMO = Path(__file__).parents[2] / "examples/prefill_decode"
HANG_S = 240
BLOCK = 4096


@pytest.fixture(scope="module")
def roles() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DEMO))
        import roles  # type: ignore[import-not-found]

        yield roles


@pytest.fixture(scope="module")
def report(roles: ModuleType) -> ModuleType:
    import report  # type: ignore[import-not-found]

    return report


class BlockStore:
    """A store with the few verbs that a role uses; `bend` may change what a read delivers."""

    def __init__(self) -> None:
        self.blocks: dict[bytes, bytes] = {}
        self.bend: Any = lambda key, data: data

    def register(self, buffer: object) -> None: ...

    def exists_many(self, keys: list[bytes]) -> list[bool]:
        return [key in self.blocks for key in keys]

    def put_many(self, keys: list[bytes], values: list[Any]) -> list[str]:
        answers = ["exists" if key in self.blocks else "stored" for key in keys]
        for key, value in zip(keys, values, strict=True):
            self.blocks.setdefault(key, bytes(value))
        return answers

    def get_into_many(self, keys: list[bytes], targets: list[Any]) -> list[int | None]:
        lengths: list[int | None] = []
        for key, target in zip(keys, targets, strict=True):
            data = self.blocks.get(key)
            if data is None:
                lengths.append(None)
                continue
            target[:] = np.frombuffer(self.bend(key, data), dtype=np.uint8)
            lengths.append(len(data))
        return lengths


def flip_one_bit(key: bytes, data: bytes) -> bytes:
    bent = bytearray(data)
    bent[BLOCK // 2] ^= 1
    return bytes(bent)


def serve(roles: ModuleType, store: BlockStore) -> dict[Any, int]:
    from workload import Request  # type: ignore[import-not-found]

    counters = [0] * len(roles.Count)
    worker = roles.Worker("prefill", store, roles.RoleSettings("", BLOCK), counters)
    keys = tuple(b"block %d" % index for index in range(600))
    worker.prefill(Request(0, 0, 0, keys[:500]))
    worker.prefill(Request(0, 0, 0, keys))
    worker.decode(Request(0, 0, 0, keys, (b"answer",)))
    return dict(zip(roles.Count, counters, strict=True))


def test_roles_count_hits_prefixes_and_bytes(roles: ModuleType) -> None:
    counts = serve(roles, BlockStore())
    count = roles.Count
    assert counts[count.BLOCKS_ASKED] == 1_100
    assert counts[count.BLOCKS_PRESENT] == counts[count.PREFIX_BLOCKS] == 500
    assert counts[count.BLOCKS_PUT] == 601
    assert counts[count.BLOCKS_READ] == 1_100
    assert counts[count.BYTES_PUT] == 601 * BLOCK
    assert counts[count.WRONG_BLOCKS] == 0


@pytest.mark.parametrize("bend", [flip_one_bit, lambda key, data: data[64:] + data[:64]])
def test_a_wrong_byte_is_seen(roles: ModuleType, bend: Any) -> None:
    store = BlockStore()
    store.bend = bend
    assert serve(roles, store)[roles.Count.WRONG_BLOCKS] == 1_100


def result(roles: ModuleType, report: ModuleType, **counts: int) -> Any:
    outcomes = [roles.Outcome("prefill"), roles.Outcome("decode")]
    filled = {count: counts.get(count.name.lower(), 0) for count in roles.Count}
    return report.Result(
        requests=3,
        seconds=1.0,
        counts=filled,
        outcomes=outcomes,
        evictions=0,
        capacity_bytes=0,
        block_bytes=BLOCK,
        problems=[],
    )


def test_a_clean_run_has_no_complaint(roles: ModuleType, report: ModuleType) -> None:
    clean = result(roles, report, requests=6, blocks_put=100, blocks_refused=1)
    assert report.complaints(clean) == []
    assert report.table(clean).endswith("wrong bytes: 0")


@pytest.mark.parametrize(
    "counts",
    [
        {"requests": 6, "wrong_blocks": 1},
        {"requests": 6, "failed_calls": 1},
        {"requests": 6, "blocks_put": 10, "blocks_refused": 1},
        {"requests": 5},
    ],
)
def test_whatever_was_wrong_is_a_complaint(
    roles: ModuleType, report: ModuleType, counts: dict[str, int]
) -> None:
    assert report.complaints(result(roles, report, **counts))


@pytest.mark.slow
def test_the_demo_serves_real_text_and_evicts() -> None:
    command = [sys.executable, str(DEMO), "--limit=40", "--node-size=8mb"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    rows = dict(line.split("  ", 1) for line in finished.stdout.splitlines() if "  " in line)
    assert int(rows["evictions"]) > 0
    assert finished.stdout.endswith("wrong bytes: 0\n")


def test_a_trace_that_is_not_there_is_one_line() -> None:
    command = [sys.executable, str(DEMO), "--trace=/nonexistent.jsonl"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert finished.returncode == 1
    assert finished.stderr.count("\n") == 1
    assert "/nonexistent.jsonl" in finished.stderr
