"""Values on a device cross the host in parts: what is sent is what was there, whenever copies run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_client import staging
from mooncake_client.staging import DeviceMemory, get_in_parts, link_for, put_in_parts

SLAB_BYTES = 64


class HostSlab:
    def __init__(self, size_bytes: int) -> None:
        self.memory = bytearray(size_bytes)

    def piece(self, offset: int, size_bytes: int) -> memoryview:
        return memoryview(self.memory)[offset : offset + size_bytes]


class SlowLink:
    """A device whose copies happen at the last moment, when somebody waits for them."""

    def __init__(self) -> None:
        self.under_way: list[Callable[[], None]] = []
        self.slabs = 0

    def slab(self, size_bytes: int) -> HostSlab:
        self.slabs += 1
        return HostSlab(size_bytes)

    def begin(self, copy: Callable[[], None]) -> None:
        self.under_way.append(copy)

    def to_host(self, memories: Sequence[DeviceMemory], slab: HostSlab) -> None:
        def copy() -> None:
            offset = 0
            for one in memories:
                slab.memory[offset : offset + one.size_bytes] = one.memory
                offset += one.size_bytes

        self.begin(copy)

    def to_device(self, slab: HostSlab, copies: Sequence[tuple[int, DeviceMemory, int]]) -> None:
        def copy() -> None:
            for offset, one, size_bytes in copies:
                one.memory[:size_bytes] = slab.memory[offset : offset + size_bytes]

        self.begin(copy)

    def mark(self) -> Callable[[], None]:
        due = list(self.under_way)

        def wait() -> None:
            for copy in due:
                if copy in self.under_way:
                    self.under_way.remove(copy)
                    copy()

        return wait

    def drain(self) -> None:
        self.mark()()


class HastyLink(SlowLink):
    """One whose copies are done before the call that begins them returns."""

    def begin(self, copy: Callable[[], None]) -> None:
        copy()


@pytest.fixture(autouse=True)
def _small_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "STAGING_BYTES", SLAB_BYTES)


def carried_out(steps: Any) -> Any:
    """What is yielded is the answer itself, as with the client that waits."""
    answer = None
    try:
        while True:
            answer = steps.send(answer)
    except StopIteration as end:
        return end.value


values = st.lists(st.tuples(st.integers(0, 90), st.booleans()), min_size=1, max_size=12)
links = st.sampled_from([SlowLink, HastyLink])


def buffers_of(link: SlowLink, sizes: list[tuple[int, bool]], fill: Callable[[int], int]) -> list[Any]:
    whole = [bytearray([fill(index)] * size) for index, (size, _) in enumerate(sizes)]
    return [
        DeviceMemory(memory, len(memory), lambda: link) if on_device else memory
        for memory, (_, on_device) in zip(whole, sizes, strict=True)
    ]


@given(sizes=values, kind=links)
def test_what_is_sent_is_what_lay_on_the_device(sizes: list[tuple[int, bool]], kind: type[SlowLink]) -> None:
    link = kind()
    sent: list[bytes] = []

    def ask(part: slice, memory: list[Any], timeout_ms: int) -> list[int]:
        assert 1 <= timeout_ms <= 1_000
        on_device = sum(size for size, there in sizes[part] if there)
        assert on_device <= SLAB_BYTES or sum(there and size > 0 for size, there in sizes[part]) == 1
        sent.extend(bytes(piece) for piece in memory)
        return [len(piece) for piece in memory]

    statuses = carried_out(put_in_parts(link, buffers_of(link, sizes, lambda i: i + 1), 1_000, ask))
    assert sent == [bytes([index + 1] * size) for index, (size, _) in enumerate(sizes)]
    assert statuses == [size for size, _ in sizes]
    assert not link.under_way
    assert link.slabs <= 2


@given(sizes=values, kind=links, missing=st.integers(0, 11), short=st.integers(0, 11))
def test_what_came_lies_on_the_device(
    sizes: list[tuple[int, bool]], kind: type[SlowLink], missing: int, short: int
) -> None:
    link = kind()
    targets = buffers_of(link, sizes, lambda _: 255)
    came = [max(0, size - 1) if index == short else size for index, (size, _) in enumerate(sizes)]

    def ask(part: slice, memory: list[Any], timeout_ms: int) -> tuple[list[int], list[int]]:
        statuses = []
        for index, piece in zip(range(len(sizes))[part], memory, strict=True):
            statuses.append(-704 if index == missing else 0)
            piece[: came[index]] = bytes([index + 1] * came[index])  # also of a failed read: undefined
        return statuses, came[part]

    statuses, lengths = carried_out(get_in_parts(link, targets, 1_000, ask))
    assert statuses == [-704 if index == missing else 0 for index in range(len(sizes))]
    assert lengths == came
    assert not link.under_way
    for index, (target, (size, on_device)) in enumerate(zip(targets, sizes, strict=True)):
        memory = target.memory if on_device else target
        if index != missing:
            assert memory[: came[index]] == bytes([index + 1] * came[index])
            assert memory[came[index] :] == bytes([255] * (size - came[index]))
        elif on_device:
            assert memory == bytes([255] * size)


@pytest.mark.parametrize("verb", [put_in_parts, get_in_parts])
def test_no_copy_is_under_way_after_a_call_that_failed(verb: Any) -> None:
    link = SlowLink()
    parts = 0

    def ask(part: slice, memory: list[Any], timeout_ms: int) -> Any:
        nonlocal parts
        parts += 1
        if parts == 2:
            raise KeyboardInterrupt
        return [0] if verb is put_in_parts else ([0], [SLAB_BYTES])

    buffers = buffers_of(link, [(SLAB_BYTES, True)] * 3, lambda i: i)
    with pytest.raises(KeyboardInterrupt):
        carried_out(verb(link, buffers, 1_000, ask))
    assert not link.under_way


def test_values_of_the_host_need_no_link() -> None:
    assert link_for([b"", bytearray(3), (1, 2)]) is None
    link = SlowLink()
    assert link_for([b"", DeviceMemory(bytearray(1), 1, lambda: link)]) is link
