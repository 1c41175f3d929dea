"""Reading by a mapping from a node of the same host, and whatever leads to TCP instead.

Real processes and sockets; nothing waits for a length of time, only for conditions.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import ExitStack
from pathlib import Path

import processes
import pytest

from mooncake_client import AsyncStore, ChecksumMismatch, InvalidArgument, Store
from mooncake_client.client_config import ClientConfig, client_config
from mooncake_store import _core

MIB = 1 << 20
SIZES = [0, 1, 4096, (64 << 10) - 1, 64 << 10, MIB + 1, 5 * MIB]


def values_of(sizes: list[int]) -> dict[str, bytes]:
    return {f"size-{size}": random.Random(size).randbytes(size) for size in sizes}


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.embedded("64mb") as made:
        yield made


def opened_values(node: _core.Node) -> int:
    return node.status()["stats"]["opened_values_total"]


@pytest.mark.parametrize("checksum", ["all", "disk"])
@pytest.mark.parametrize("shared_memory", ["auto", "off"])
def test_values_are_the_same_by_a_mapping_and_over_tcp(
    store: Store, shared_memory: str, checksum: str
) -> None:
    with Store(lane=store.lane, shared_memory=shared_memory, checksum=checksum) as reader:
        assert reader.put("first", b"dials the node") == "stored"
        values = values_of(SIZES)
        for key, value in values.items():
            assert reader.put(key, value) == "stored"
        assert reader.get_many(list(values)) == list(values.values())
        for key, value in values.items():
            assert reader.get(key) == value
            target = bytearray(len(value))
            assert reader.get_into(key, target) == len(value)
            assert target == value
        [node] = reader.local_nodes
        assert node.is_mapped == (shared_memory == "auto")
        assert node.mapped_bytes == (64 * MIB if node.is_mapped else 0)
        assert node.why_not == ("" if node.is_mapped else "shared_memory is off here")


def test_a_value_larger_than_views_may_cover_comes_as_bytes(store: Store) -> None:
    """An eighth of the memory is what one connection may hold references on."""
    values = values_of([9 * MIB, 10 * MIB, 100])
    store.put("first", b"dials the node")
    assert store.put_many(list(values), list(values.values())) == ["stored"] * 3
    assert store.get_many([*values, *values]) == [*values.values(), *values.values()]
    assert store.local_nodes[0].is_mapped


def test_many_values_are_read_in_groups(store: Store) -> None:
    """Together they are more than references are ever held on."""
    values = {f"k{i}": random.Random(i).randbytes(300_000 + i) for i in range(100)}
    store.put("first", b"dials the node")
    store.put_many(list(values), list(values.values()))
    assert store.get_many(list(values)) == list(values.values())


async def test_an_event_loop_reads_by_a_mapping_too(store: Store) -> None:
    values = values_of([MIB])
    async with AsyncStore(lane=store.lane) as reader:
        await reader.put("first", b"dials the node")
        for key, value in values.items():
            await reader.put(key, value)
            assert await reader.get(key) == value
        assert [node.is_mapped for node in reader.local_nodes] == [True]


class Pool:
    """A master and nodes of this process."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.master = _core.Master()
        self.master.start()
        stack.callback(self.master.stop)
        self.lane = f"127.0.0.1:{self.master.lane_port}"

    def node(self, *, shared_memory: bool = True, files: list[tuple[str, int]] | None = None) -> _core.Node:
        node = _core.Node(
            [("n", 16 * MIB)],
            lane=self.lane,
            data_host="127.0.0.1",
            shared_memory=shared_memory,
            files=files or [],
        )
        node.start()
        self._stack.callback(node.stop)
        assert node.wait_mounted(20_000)
        return node

    def store(self, **settings: str) -> Store:
        return self._stack.enter_context(Store(lane=self.lane, **settings))  # type: ignore[arg-type]


@pytest.fixture
def pool() -> Iterator[Pool]:
    with ExitStack() as stack:
        yield Pool(stack)


@pytest.mark.parametrize("shared_memory", ["auto", "off"])
def test_damaged_bytes_are_no_answer_either_way(pool: Pool, shared_memory: str) -> None:
    """The memory is one that this test can write behind the node's back."""
    fd = os.memfd_create("lent", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 16 * MIB)
    node = pool.node(files=[(f"/proc/self/fd/{fd}", 0)])
    store = pool.store(shared_memory=shared_memory)
    value = b"\x5a" * MIB
    store.put("first", b"dials the node")
    store.put("k", value)
    assert store.get("k") == value
    assert opened_values(node) == (1 if shared_memory == "auto" else 0)
    at = os.pread(fd, 16 * MIB, 0).find(value)
    os.pwrite(fd, b"!", at + MIB // 2)
    with pytest.raises(ChecksumMismatch):
        store.get("k")
    os.close(fd)


def test_memory_that_can_become_shorter_is_not_mapped(pool: Pool, tmp_path: Path) -> None:
    """Who reads beyond the new end of a file that was cut dies of it."""
    path = Path("/dev/shm") / f"mooncake-test-{os.getpid()}"
    try:
        with path.open("wb") as file:
            file.truncate(16 * MIB)
        pool.node(files=[(str(path), 0)])
        store = pool.store()
        store.put("k", b"v" * MIB)
        assert store.get("k") == b"v" * MIB
        [node] = store.local_nodes
        assert not node.is_mapped
        assert "lends no memory that can be mapped" in node.why_not
    finally:
        path.unlink()


def test_a_node_that_lends_nothing_is_read_over_tcp(pool: Pool) -> None:
    node = pool.node(shared_memory=False)
    assert node.status()["local_endpoint"] == ""
    store = pool.store()
    store.put("k", b"v" * MIB)
    assert store.get("k") == b"v" * MIB
    assert (
        store.local_nodes[0].why_not == "the node lends no memory (its shared_memory is off, or it is older)"
    )


def test_another_tenant_is_read_over_tcp_and_told_why(pool: Pool) -> None:
    pool.node()
    store = pool.store(tenant="others")
    store.put("k", b"v" * MIB)
    assert store.get("k") == b"v" * MIB
    [node] = store.local_nodes
    assert not node.is_mapped
    assert "memory is shared with tenant 'default' alone, and this is 'others'" in node.why_not


def test_a_value_removed_meanwhile_is_a_miss_and_its_range_returns(pool: Pool) -> None:
    node = pool.node()
    store = pool.store()
    store.put("first", b"dials the node")
    for turn in range(20):
        value = bytes([turn]) * MIB
        assert store.put("k", value) == "stored"
        assert store.get("k") == value
        assert store.remove("k")
        assert store.get("k") is None
    counts = node.status()["stats"]
    assert opened_values(node) == 20
    processes.wait_until(lambda: node.status()["stats"]["references_count"] == 0, "no reference is left")
    assert counts["held_references_count"] <= 1
    node.check_invariants()


def test_killed_nodes_and_their_successors_at_the_same_port() -> None:
    """The mapping of the process that died is left; the one that follows is mapped anew."""
    port = processes.free_port()
    with processes.master() as master, ExitStack() as stack:
        flags = ("--global_segment_size=32mb", f"--data_port={port}", "--host=127.0.0.1")
        first = stack.enter_context(processes.node(processes.address_of(master), *flags))
        store = stack.enter_context(Store(processes.address_of(master)))
        processes.wait_until(lambda: len(store.segments()) == 1, "the node joined")
        store.put("first", b"dials the node")
        store.put("k", b"1" * MIB)
        assert store.get("k") == b"1" * MIB
        assert store.local_nodes[0].is_mapped
        first.end(signal.SIGKILL)
        stack.enter_context(processes.node(processes.address_of(master), *flags))

        def is_put() -> bool:
            try:
                return store.put("k2", b"2" * MIB) in ("stored", "exists")
            except Exception:
                return False

        processes.wait_until(is_put, "the next life takes values")

        def is_got_by_a_mapping() -> bool:
            try:
                got = store.get("k2")
            except Exception:
                return False
            return got == b"2" * MIB and any(node.is_mapped for node in store.local_nodes)

        processes.wait_until(is_got_by_a_mapping, "and gives them by a mapping")


def test_a_killed_client_leaves_no_reference(pool: Pool) -> None:
    node = pool.node()
    store = pool.store()
    store.put("k", b"v" * MIB)
    child = subprocess.Popen(
        [sys.executable, "-c", _READS_FOR_EVER, pool.lane], stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "reads\n"
        child.kill()
    processes.wait_until(lambda: node.status()["stats"]["references_count"] == 0, "the references returned")
    node.check_invariants()


_READS_FOR_EVER = """
import sys
from mooncake_client import Store
store = Store(lane=sys.argv[1])
target = bytearray(1 << 20)
store.get_into("k", target)
assert store.get_into("k", target) and store.local_nodes[0].is_mapped
print("reads", flush=True)
while True:
    store.get_into("k", target)
"""


def test_settings_are_checked_by_name() -> None:
    assert ClientConfig().shared_memory == "auto"
    with pytest.raises(InvalidArgument, match="shared_memory"):
        ClientConfig(shared_memory="on")
    heard = {"MOONCAKE_SHARED_MEMORY": "OFF"}
    assert client_config("127.0.0.1:50001", {}, environment=heard).shared_memory == "off"
    assert (
        client_config("127.0.0.1:50001", {"shared_memory": "auto"}, environment=heard).shared_memory == "auto"
    )
    with pytest.raises(InvalidArgument, match="MOONCAKE_SHARED_MEMORY='maybe'"):
        client_config("127.0.0.1:50001", {}, environment={"MOONCAKE_SHARED_MEMORY": "maybe"})


# ---- views


@pytest.fixture
def viewed(store: Store) -> Store:
    """With `first` and `k`."""
    store.put("first", b"dials the node")
    store.put("k", random.Random(1).randbytes(MIB))
    return store


def references(store: Store) -> int:
    return store._handles.cluster._node.status()["stats"]["references_count"]  # type: ignore[union-attr]


def test_a_view_is_the_value_where_it_lies(viewed: Store) -> None:
    expected = viewed.get("k")
    with viewed.get_view("k") as view:
        assert view.is_mapped
        assert len(view) == view.nbytes == MIB
        assert memoryview(view).readonly
        assert memoryview(view) == expected
        processes.wait_until(lambda: references(viewed) == 1, "the view alone holds one")
        with pytest.raises(TypeError, match="read-only"):
            memoryview(view)[0] = 1
    assert view.is_released
    with pytest.raises(BufferError, match="released"):
        memoryview(view)
    processes.wait_until(lambda: references(viewed) == 0, "the reference returned")


def test_a_miss_is_none_and_an_empty_value_a_view(viewed: Store) -> None:
    assert viewed.get_view("nothing") is None
    viewed.put("empty", b"")
    with viewed.get_view("empty") as view:
        assert bytes(view) == b""
    first, miss, last = viewed.get_view_many(["k", "nothing", "first"])
    assert miss is None
    assert bytes(first) == viewed.get("k")
    assert bytes(last) == b"dials the node"
    assert isinstance(viewed.get_view_many([""])[0], InvalidArgument)


@pytest.mark.parametrize("shared_memory", ["auto", "off"])
@pytest.mark.parametrize("verify", [False, True])
def test_views_of_any_size_by_either_way(store: Store, shared_memory: str, verify: bool) -> None:
    values = values_of(SIZES)
    with Store(lane=store.lane, shared_memory=shared_memory) as reader:
        reader.put_many(list(values), list(values.values()))
        views = reader.get_view_many(list(values), verify=verify)
        assert [bytes(view) for view in views] == list(values.values())
        assert {view.is_mapped for view in views} == {shared_memory == "auto"}


def test_a_view_follows_a_value_that_is_replaced_by_larger_and_smaller_ones(store: Store) -> None:
    """Between the lookup and the read it was another value: once that was an error, BUFFER_OVERFLOW."""
    values = [b"s" * 4096, b"L" * MIB]
    store.put("k", values[0])
    is_over = threading.Event()

    def replace() -> None:
        with Store(lane=store.lane) as writer:
            for turn in itertools.count():
                if is_over.is_set():
                    return
                writer.put("k", values[turn % 2], replace=True)

    with futures.ThreadPoolExecutor(1) as pool:
        replacing = pool.submit(replace)
        try:
            for _ in range(1_000):
                view = store.get_view("k")
                if view is not None:  # a value may end more often than a read follows it
                    assert bytes(view) in values
                    view.release()
        finally:
            is_over.set()
        replacing.result(60)


def test_buffers_in_use_keep_a_view(viewed: Store) -> None:
    numpy = pytest.importorskip("numpy")
    view = viewed.get_view("k")
    array = numpy.frombuffer(view, numpy.uint8)
    with pytest.raises(BufferError, match="1 buffers of this view are in use"):
        view.release()
    del view
    assert array.tobytes() == viewed.get("k")
    processes.wait_until(lambda: references(viewed) == 1, "the view alone holds one")
    del array
    processes.wait_until(lambda: references(viewed) == 0, "the last reference ended the view")


def test_dlpack_takes_a_view_without_a_copy_and_keeps_it(viewed: Store) -> None:
    numpy = pytest.importorskip("numpy")
    view = viewed.get_view("k")
    assert view.__dlpack_device__() == (1, 0)
    array = numpy.from_dlpack(view)
    assert (array.dtype, array.shape, array.flags.writeable) == (numpy.uint8, (view.nbytes,), False)
    assert array.ctypes.data == numpy.frombuffer(view, numpy.uint8).ctypes.data
    with pytest.raises(BufferError, match="1 buffers of this view are in use"):
        view.release()
    del view
    assert array.tobytes() == viewed.get("k")
    processes.wait_until(lambda: references(viewed) == 1, "the array alone holds one")
    del array
    processes.wait_until(lambda: references(viewed) == 0, "the last reference ended the view")


def test_a_capsule_that_nobody_took_lets_the_view_go(viewed: Store) -> None:
    view = viewed.get_view("k")
    capsule = view.__dlpack__(max_version=(1, 2), dl_device=(1, 0), copy=False)
    assert "dltensor_versioned" in repr(capsule)
    with pytest.raises(BufferError, match="in use"):
        view.release()
    del capsule
    view.release()
    with pytest.raises(BufferError, match="the view is released"):
        view.__dlpack__(max_version=(1, 0))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({}, "read-only, which DLPack can say from version 1.0 on"),
        ({"max_version": (0, 8)}, "read-only"),
        ({"max_version": "1.0"}, "read-only"),
        ({"max_version": (1, 0), "stream": 1}, "no stream"),
        ({"max_version": (1, 0), "dl_device": (2, 0)}, "memory of the host"),
    ],
)
def test_what_dlpack_cannot_give_is_refused(viewed: Store, asked: dict[str, object], why: str) -> None:
    with viewed.get_view("k") as view, pytest.raises(BufferError, match=why):
        view.__dlpack__(**asked)


def test_a_copy_by_dlpack_is_the_callers_own(viewed: Store) -> None:
    numpy = pytest.importorskip("numpy")
    view = viewed.get_view("k")
    array = numpy.from_dlpack(view, copy=True)
    of_no_version = view.__dlpack__(copy=True)
    assert "dltensor_versioned" not in repr(of_no_version)
    view.release()
    assert array.tobytes() == viewed.get("k")
    array[0] ^= 255
    assert array.tobytes() != viewed.get("k")


def test_an_empty_value_is_taken_by_dlpack(viewed: Store) -> None:
    numpy = pytest.importorskip("numpy")
    viewed.put("empty", b"")
    assert numpy.from_dlpack(viewed.get_view("empty")).shape == (0,)


def test_what_is_viewed_outlives_its_key_and_all_that_is_put_after(viewed: Store) -> None:
    expected = viewed.get("k")
    view = viewed.get_view("k")
    assert viewed.remove("k")
    assert viewed.get("k") is None
    for turn in range(30):
        viewed.put(f"new-{turn}", bytes([turn]) * (4 * MIB))
    assert bytes(view) == expected
    view.release()
    processes.wait_until(lambda: references(viewed) == 0, "the range returned")
    viewed._handles.cluster.check_invariants()  # type: ignore[union-attr]


def test_views_beyond_an_eighth_of_the_memory_are_copies(store: Store) -> None:
    values = {f"k{i}": random.Random(i).randbytes(MIB) for i in range(12)}
    store.put_many(list(values), list(values.values()))
    views = store.get_view_many(list(values))
    assert [bytes(view) for view in views] == list(values.values())
    assert [view.is_mapped for view in views].count(True) == 8
    for view in views:
        view.release()
    [view] = store.get_view_many(["k11"])
    assert view.is_mapped


def test_a_view_outlives_its_store_and_its_pool() -> None:
    value = random.Random(7).randbytes(MIB)
    store = Store.embedded("32mb")
    store.put("k", value)
    view = store.get_view("k")
    store.close()
    assert view.is_mapped
    assert bytes(view) == value
    view.release()


def test_a_view_outlives_a_killed_node() -> None:
    with (
        processes.master() as master,
        processes.node(processes.address_of(master)) as node,
        Store(processes.address_of(master)) as store,
    ):
        processes.wait_until(lambda: len(store.segments()) == 1, "the node joined")
        store.put("k", b"v" * MIB)
        view = store.get_view("k")
        assert view.is_mapped
        node.end(signal.SIGKILL)
        assert bytes(view) == b"v" * MIB
        view.release()


def test_a_killed_viewer_leaves_no_reference(pool: Pool) -> None:
    node = pool.node()
    pool.store().put("k", b"v" * MIB)
    child = subprocess.Popen([sys.executable, "-c", _VIEWS, pool.lane], stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "views\n"
        assert node.status()["stats"]["held_references_count"] == 1
        child.kill()
    processes.wait_until(lambda: node.status()["stats"]["references_count"] == 0, "the reference returned")
    node.check_invariants()


_VIEWS = """
import sys
from mooncake_client import Store
store = Store(lane=sys.argv[1])
view = store.get_view("k")
assert view.is_mapped
print("views", flush=True)
sys.stdin.read() or __import__("signal").pause()
"""


def test_a_forked_child_is_refused_and_ends_nothing_of_its_parents(viewed: Store) -> None:
    expected = viewed.get("k")
    view = viewed.get_view("k")
    child = os.fork()
    if child == 0:
        try:
            memoryview(view)
            os._exit(1)
        except BufferError:
            view.release()
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    processes.wait_until(lambda: references(viewed) == 1, "the view alone holds one")
    assert bytes(view) == expected


async def test_views_on_an_event_loop(store: Store) -> None:
    async with AsyncStore(lane=store.lane) as reader:
        await reader.put("k", b"v" * MIB)
        with await reader.get_view("k") as view:
            assert view.is_mapped
            assert bytes(view) == b"v" * MIB
