"""What is measured: the works, the rows that each gives, and the targets of the design.

Data only. Must not know contenders beyond their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20

WORKING_SET_BYTES: Final = 64 * MIB
"""What a work cycles over at least: more than the caches hold, so that values come from memory."""
SLOTS_MAX: Final = 1024
KEY_BYTES: Final = 115

STEP_ASKED: Final = 2
"""An engine's step asks for so many times the keys that are there, the first of which are."""
STEP_BUFFERS: Final = 30
"""Layers of the engine: pieces of memory that a value is spread over."""

OURS: Final = "ours"
RAW: Final = "raw"
"""Columns that begin so are raw loops; the best of them, by its median, is the limit."""


@dataclass(frozen=True)
class Target:
    """Ours is to take at most `at_most` times what `against` takes, in `placement` (None: in both)."""

    against: str
    at_most: float
    text: str
    placement: str | None = None


@dataclass(frozen=True)
class Row:
    """One line of the table: a statistic of a work's samples."""

    statistic: str = "median_ns"
    label: str = ""
    unit: str = "time"
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True)
class Work:
    """One thing to do again and again.

    verb: what a contender is asked; see `contender.py`. count: keys a call. floor_trips: round trips of 64
    bytes that the raw limit stands for, where it is not a transfer. table_keys: keys that are there beside.
    """

    name: str
    verb: str
    value_bytes: int = 0
    count: int = 1
    rows: tuple[Row, ...] = (Row(),)
    floor_trips: int = 0
    table_keys: int = 0
    connections: int = 0
    depth: int = 0
    owner_is_busy: bool = False
    working_set_bytes: int = WORKING_SET_BYTES

    @property
    def call_bytes(self) -> int:
        return self.value_bytes * self.count

    @property
    def slots(self) -> int:
        """Calls' worth of values that are cycled over."""
        if self.call_bytes == 0:
            return 1
        return max(1, min(SLOTS_MAX, self.working_set_bytes // self.call_bytes))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> Work:
        """The work without its rows: workers have no use for them."""
        return Work(**{name: value for name, value in fields.items() if name != "rows"})


def _of_raw(share: float) -> Target:
    return Target(RAW, 1 / share, f">= {share:.0%} of raw")


def _times(peer: str, factor: float) -> Target:
    return Target(peer, 1 / factor, f">= {factor:g} x {peer}")


def _at_most(peer: str, ratio: float, placement: str | None = None) -> Target:
    return Target(peer, ratio, f"<= {ratio:g} x {peer}", placement)


def _transfers() -> tuple[Work, ...]:
    works = []
    for size, name, times_mooncake in ((MIB, "1 MiB", 2.5), (16 * MIB, "16 MiB", 0.0)):
        beside = (_times("mooncake", times_mooncake),) if times_mooncake else ()
        works.append(Work(f"get {name}", "get", size, rows=(Row(targets=(_of_raw(0.8), *beside)),)))
        works.append(Work(f"put {name}", "put", size, rows=(Row(targets=(_of_raw(0.75), *beside)),)))
    small = (_times("mooncake", 20), _times("redis", 2))
    for count, size, name in ((1000, 4 * KIB, "4 KiB"), (1000, 64 * KIB, "64 KiB"), (32, MIB, "1 MiB")):
        get, put = ((small, small)) if size == 4 * KIB else ((_of_raw(0.8),), (_of_raw(0.75),))
        works.append(Work(f"get {count} x {name}", "get_many", size, count, (Row(targets=get),)))
        works.append(Work(f"put {count} x {name}", "put_many", size, count, (Row(targets=put),)))
    return tuple(works)


def _owner(is_busy: bool) -> Work:
    target = Target(RAW, 1.5, "<= 1.5 x raw", "free")
    return Work(
        f"read 4 KiB, owner's GIL {'busy' if is_busy else 'idle'}",
        "owner",
        4 * KIB,
        rows=tuple(
            Row(f"{name}_ns", name, targets=(target,) if is_busy else ()) for name in ("median", "p99")
        ),
        owner_is_busy=is_busy,
    )


def _metadata(table_keys: int) -> tuple[Work, ...]:
    cpu = Row("server_cpu_ns_a_key", "CPU s / M keys", unit="cpu")
    return (
        Work(
            "exists, 1000 keys of a full table",
            "exists_many",
            count=1000,
            table_keys=table_keys,
            rows=(
                Row(targets=(_at_most("mooncake", 0.2, "free"), _at_most("mooncake", 0.3, "apart"))),
                cpu,
            ),
        ),
        Work(
            "lookup, 1000 keys of a full table",
            "lookup_many",
            count=1000,
            table_keys=table_keys,
            rows=(Row(), cpu),
        ),
        *(
            Work(
                f"exists, 32 connections, depth {depth}",
                "pump",
                connections=32,
                depth=depth,
                rows=(
                    Row(label="a request"),
                    Row("server_cpu_ns", "CPU s / M requests", unit="cpu"),
                ),
            )
            for depth in (1, 4)
        ),
    )


def works(table_keys: int) -> tuple[Work, ...]:
    """Every row of the design's table, and what belongs beside it."""
    four_kib = 4 * KIB
    return (
        Work(
            "exists, one key",
            "exists",
            floor_trips=1,
            rows=(
                Row(targets=(Target(RAW, 1.3, "<= 1.3 x raw"), _at_most("mooncake", 0.8))),
                Row("p99_ns", "p99"),
            ),
        ),
        Work(
            "get 4 KiB",
            "get",
            four_kib,
            floor_trips=2,
            rows=(
                Row(targets=(_at_most("mooncake", 0.4, "free"), _at_most("mooncake", 0.6, "apart"))),
                Row("p99_ns", "p99"),
            ),
        ),
        Work(
            "get 4 KiB, location known",
            "read",
            four_kib,
            floor_trips=1,
            rows=(Row(targets=(Target(RAW, 1.4, "<= 1.4 x raw"),)),),
        ),
        Work(
            "put 4 KiB",
            "put",
            four_kib,
            floor_trips=3,
            rows=(
                Row(targets=(_at_most("mooncake", 0.4, "free"), _at_most("mooncake", 0.7, "apart"))),
                Row("p99_ns", "p99"),
            ),
        ),
        *_transfers(),
        Work(
            "engine step: 2048 asked, 1024 x 64 KiB read into 30 buffers each",
            "step",
            64 * KIB,
            1024,
            rows=(Row(targets=(_times("mooncake", 5),)),),
        ),
        Work("pack 1000 addresses and sizes", "pack", 4 * KIB, 1000, rows=(Row(),)),
        Work(
            "same-host get 16 MiB",
            "get_same_host",
            16 * MIB,
            rows=(Row(targets=(_of_raw(0.8), _times("mooncake", 4))),),
        ),
        Work(
            "same-host put 16 MiB",
            "put_same_host",
            16 * MIB,
            rows=(Row(targets=(_of_raw(0.75),)),),
        ),
        Work(
            "same-host view 16 MiB",
            "view_same_host",
            16 * MIB,
            floor_trips=1,
            rows=(Row(targets=(Target(RAW, 1.5, "<= 1.5 x raw"),)),),
        ),
        _owner(is_busy=False),
        _owner(is_busy=True),
        *_metadata(table_keys),
    )


def shrunk(all_works: Sequence[Work]) -> tuple[Work, ...]:
    """The same works with values of at most 64 KiB and batches of at most 16, to see that they
    run; no targets."""
    return tuple(
        replace(
            work,
            value_bytes=min(work.value_bytes, 64 * KIB),
            count=min(work.count, 16),
            working_set_bytes=4 * MIB,
            rows=tuple(replace(row, targets=()) for row in work.rows),
        )
        for work in all_works
    )
