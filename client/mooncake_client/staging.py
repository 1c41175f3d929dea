"""Values in the memory of a device, by way of the host's: in parts, so that bus and wire work at once.

Owns the order of things: while one part is on the wire, the next one (of a put) or the last one (of a get)
crosses the bus. No part is sent before its copy has arrived, no slab is filled again before its copy has
left, and nothing is under way any more when a call ends, however it ends: a late copy could meet memory that
its owner has given to something else. Must not know whose device it is (`cuda.py`) nor how bytes travel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from mooncake_client.answers import Steps

STAGING_BYTES: Final = 32 << 20
"""Of each of a call's two slabs, if its largest value needs no more. The bus is ten times as fast as the
wire: larger parts lose little by beginning later, smaller ones cost more requests (docs/benchmarks.md)."""


@dataclass(frozen=True)
class DeviceMemory:
    """Contiguous bytes on a device: a value to be put, or the target of a get."""

    memory: Any
    size_bytes: int
    open_link: Callable[[], Link]


class Slab(Protocol):
    """Memory of the host that the device can reach; kept by who holds it."""

    def piece(self, offset: int, size_bytes: int) -> Any:
        """A part of it, in a form that the native client takes."""


class Link(Protocol):
    """The way between host and one or more devices. Copies are under way until they were waited for."""

    def slab(self, size_bytes: int) -> Slab: ...

    def to_host(self, memories: Sequence[DeviceMemory], slab: Slab) -> None:
        """Begins to copy them, one behind the other, to the begin of the slab."""

    def to_device(self, slab: Slab, copies: Sequence[tuple[int, DeviceMemory, int]]) -> None:
        """Begins copies out of the slab: from an offset, to the begin of a memory, so many bytes."""

    def mark(self) -> Callable[[], None]:
        """What waits until all copies that were begun so far are done."""

    def drain(self) -> None:
        """Waits until no copy is under way."""


Ask = Callable[[slice, list[Any], int], Any]
"""Part of a call: which entries, their memory on the host, the ms left. Gives what is to be yielded."""


def link_for(buffers: Sequence[Any]) -> Link | None:
    """The call's way to those of them that are on a device; None: all are on the host."""
    for buffer in buffers:
        if type(buffer) is DeviceMemory:
            return buffer.open_link()
    return None


def put_in_parts(link: Link, buffers: Sequence[Any], timeout_ms: int, ask: Ask) -> Steps[list[int]]:
    """The statuses of a put of all `buffers`, of which some are on a device."""
    deadline = time.monotonic() + timeout_ms / 1000
    statuses: list[int] = []
    parts = list(_parts(buffers))
    slabs = _slabs(link, buffers, len(parts))
    try:
        staged = _stage(link, buffers, parts[0], slabs[0])
        for index, part in enumerate(parts):
            pieces, arrived = staged
            if index + 1 < len(parts):
                # Into the slab of the part before this one, which has been sent.
                staged = _stage(link, buffers, parts[index + 1], slabs[(index + 1) % 2])
            arrived()
            statuses += yield ask(part, pieces, _left_ms(deadline))
    finally:
        link.drain()
    return statuses


def get_in_parts(
    link: Link, buffers: Sequence[Any], timeout_ms: int, ask: Ask
) -> Steps[tuple[list[int], list[int]]]:
    """Statuses and lengths of a get into all `buffers`, of which some are on a device."""
    deadline = time.monotonic() + timeout_ms / 1000
    statuses: list[int] = []
    lengths: list[int] = []
    parts = list(_parts(buffers))
    slabs = _slabs(link, buffers, len(parts))
    left: list[Callable[[], None]] = [_nothing, _nothing]
    try:
        for index, part in enumerate(parts):
            slab = slabs[index % 2]
            left[index % 2]()
            pieces = [
                memory if offset is None else slab.piece(offset, memory.size_bytes)
                for memory, offset in _placed(buffers[part])
            ]
            found, sizes = yield ask(part, pieces, _left_ms(deadline))
            came = zip(_placed(buffers[part]), found, sizes, strict=True)
            link.to_device(
                slab,
                [
                    (offset, memory, size_bytes)
                    for (memory, offset), status, size_bytes in came
                    if offset is not None and status == 0
                ],
            )
            left[index % 2] = link.mark()
            statuses += found
            lengths += sizes
    finally:
        link.drain()
    return statuses, lengths


def _parts(buffers: Sequence[Any]) -> Iterator[slice]:
    """Neighbours that one slab holds; what is on the host already takes none of it."""
    begin = used = 0
    for index, buffer in enumerate(buffers):
        need = buffer.size_bytes if type(buffer) is DeviceMemory else 0
        if used and used + need > STAGING_BYTES:
            yield slice(begin, index)
            begin, used = index, 0
        used += need
    yield slice(begin, len(buffers))


def _slabs(link: Link, buffers: Sequence[Any], part_count: int) -> list[Slab]:
    sizes = [buffer.size_bytes for buffer in buffers if type(buffer) is DeviceMemory]
    need = min(max(STAGING_BYTES, *sizes), sum(sizes)) if len(sizes) > 1 else sum(sizes)
    return [link.slab(need) for _ in range(min(part_count, 2))]


def _placed(buffers: Sequence[Any]) -> Iterator[tuple[Any, int | None]]:
    """Each with its offset in the slab; None: it is on the host."""
    offset = 0
    for buffer in buffers:
        if type(buffer) is DeviceMemory:
            yield buffer, offset
            offset += buffer.size_bytes
        else:
            yield buffer, None


def _stage(
    link: Link, buffers: Sequence[Any], part: slice, slab: Slab
) -> tuple[list[Any], Callable[[], None]]:
    link.to_host([memory for memory, offset in _placed(buffers[part]) if offset is not None], slab)
    pieces = [
        memory if offset is None else slab.piece(offset, memory.size_bytes)
        for memory, offset in _placed(buffers[part])
    ]
    return pieces, link.mark()


def _left_ms(deadline: float) -> int:
    return max(1, round((deadline - time.monotonic()) * 1000))


def _nothing() -> None:
    pass
