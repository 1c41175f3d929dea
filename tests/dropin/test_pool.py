"""Where copies lie, memory lent while a store runs, buffer pools, host memory, and the coroutines."""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from dropin.conftest import MIB, JoinPool
from processes import wait_until

from mooncake_client.dropin import (
    BufferPool,
    MooncakeDistributedStore,
    MooncakeHostMemAllocator,
    QueryTaskResponse,
    ReplicaStatus,
    ReplicateConfig,
    SoftPinAction,
    TaskStatus,
    TaskType,
    bind_to_numa_node,
    get_alloc_func_addr,
    get_free_func_addr,
)
from mooncake_client.dropin.async_store import MooncakeDistributedStoreAsync
from mooncake_client.story import story


@pytest.fixture(scope="module", params=["lane", "grpc"])
def control(request: pytest.FixtureRequest) -> str:
    """Every test of this module, over either door."""
    door: str = request.param
    return door


Dropin = MooncakeDistributedStore


def _preferring(name: str) -> ReplicateConfig:
    config = ReplicateConfig()
    config.preferred_segment = name
    return config


def test_descriptors_tell_where_copies_lie(store: Dropin) -> None:
    store.put("k", bytes(1000))
    found = store.batch_get_replica_desc(["k", "missing"])
    assert list(found) == ["k"]
    [copy] = found["k"]
    assert copy.status is ReplicaStatus.COMPLETE
    assert (copy.is_memory_replica(), copy.is_disk_replica(), copy.is_local_disk_replica()) == (
        True,
        False,
        False,
    )
    buffer = copy.get_memory_descriptor().buffer_descriptor
    assert (buffer.size, buffer.transport_endpoint) == (1000, store.get_hostname())
    assert buffer.buffer_address != 0
    with pytest.raises(RuntimeError, match="Expected DiskDescriptor"):
        copy.get_disk_descriptor()
    assert store.get_replica_desc("missing") == []
    assert [int(status) for status in ReplicaStatus] == list(range(6))
    assert (int(TaskType.REPLICA_MOVE), int(TaskStatus.SUCCESS)) == (1, 3)


def test_many_descriptors_are_two_questions_and_no_lease(store: Dropin) -> None:
    """It was one question a key."""
    keys = [f"key{number}" for number in range(50)]
    assert store.put_batch(keys, [b"v"] * 50) == 0
    client = store._client()
    assert client is not None

    def asked(verb: str) -> int:
        return client.stats()[1].get(f"{verb}_requests_total", 0)

    before = {verb: asked(verb) for verb in ("inspect", "lookup", "segments")}
    found = store.batch_get_replica_desc([*keys, "missing", "x" * 2_000, ""])
    assert list(found) == keys
    assert asked("inspect") == before["inspect"]
    assert asked("lookup") == before["lookup"] + 1
    assert asked("segments") <= before["segments"] + 2  # a client asks for some on its own, too
    assert store.batch_remove(keys) == [0] * 50, "nobody holds a lease"


def test_an_upsert_preserves_the_soft_pin_of_the_value_before(store: Dropin) -> None:
    def soft_pin_ms() -> int:
        client = store._client()
        assert client is not None
        told = story(client.inspect(1, b"k")[1])
        assert told.key is not None
        return told.key.soft_pin_ms or 0

    pinned, dropped = ReplicateConfig(), ReplicateConfig()
    pinned.soft_pin_action, pinned.soft_pin_ttl_ms = SoftPinAction.ENABLE, 1_000_000
    dropped.soft_pin_action = SoftPinAction.DISABLE
    assert store.put("k", b"1", pinned) == 0
    assert store.upsert("k", b"2") == 0
    assert 900_000 < soft_pin_ms() <= 1_000_000
    assert store.batch_upsert_from(["k"], [0], [0]) == [-600]
    assert store.upsert("k", b"3", dropped) == 0
    assert soft_pin_ms() == 0
    assert store.upsert("k", b"4") == 0
    assert soft_pin_ms() == 0
    assert store.get("k") == b"4"


def ended(store: Dropin, task: tuple[int, int]) -> QueryTaskResponse:
    """The task once it has ended."""
    seen: list[QueryTaskResponse] = []

    def has_ended() -> bool:
        told, code = store.query_task(task)
        assert code == 0
        assert told is not None
        seen.append(told)
        return told.status in (TaskStatus.SUCCESS, TaskStatus.FAILED)

    wait_until(has_ended, "the end of the task")
    return seen[-1]


def lying_on(store: Dropin, key: str) -> set[str]:
    copies = store.get_replica_desc(key)
    return {copy.get_memory_descriptor().buffer_descriptor.transport_endpoint for copy in copies}


def test_a_copy_task_makes_a_further_copy(store: Dropin, join: JoinPool) -> None:
    other = join(16 * MIB)
    here, there = store.get_hostname(), other.get_hostname()
    assert store.put("k", b"v" * 100_000, _preferring(here)) == 0
    before_ms = time.time() * 1000
    task, code = store.create_copy_task("k", [there])
    assert code == 0
    told = ended(other, task)
    assert (told.id, told.type, told.status, told.message) == (
        task,
        TaskType.REPLICA_COPY,
        TaskStatus.SUCCESS,
        "copied",
    )
    assert told.assigned_client != (0, 0)
    assert before_ms - 1000 <= told.created_at_ms_epoch <= told.last_updated_at_ms_epoch + 1
    assert told.last_updated_at_ms_epoch <= time.time() * 1000 + 1000
    assert lying_on(store, "k") == {here, there}
    assert store.get("k") == b"v" * 100_000


def test_a_move_task_leaves_one_copy_and_no_read_fails(store: Dropin, join: JoinPool) -> None:
    other = join(16 * MIB)
    value = bytes(range(256)) * 400
    names = [store.get_hostname(), other.get_hostname()]
    assert store.put("k", value, _preferring(names[0])) == 0
    stop, misses = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            if store.get("k") != value:
                misses.append(store.get("k"))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(20):
            source, target = names[number % 2], names[1 - number % 2]
            task, code = store.create_move_task("k", source, target)
            assert code == 0
            told = ended(store, task)
            assert (told.status, told.type) == (TaskStatus.SUCCESS, TaskType.REPLICA_MOVE), told
            assert lying_on(store, "k") == {target}
    finally:
        stop.set()
        reader.join()
    assert misses == []


def test_tasks_that_cannot_be(store: Dropin) -> None:
    store.put("k", b"v")
    here = store.get_hostname()
    assert store.create_copy_task("k", ["unknown"]) == ((0, 0), -600)
    assert store.create_copy_task("missing", [here]) == ((0, 0), -704)
    assert store.create_copy_task("k", []) == ((0, 0), -600)
    assert store.create_copy_task("", [here]) == ((0, 0), -704)
    assert store.create_copy_task("k", [here, "n" * 256]) == ((0, 0), -600)
    assert store.create_move_task("k", here, "unknown") == ((0, 0), -600)
    assert store.create_move_task("k", here, here) == ((0, 0), -600)
    assert store.create_move_task("k", "", here) == ((0, 0), -600)
    assert store.query_task((1, 2)) == (None, -1400)
    assert store.query_task((1, 0)) == (None, -1400)
    assert store.query_task((1 << 70, 0)) == (None, -1400)
    left_out = MooncakeDistributedStore()
    assert left_out.create_copy_task("k", [here]) == ((0, 0), -600)
    assert left_out.query_task((1, 0)) == (None, -1400)


def test_replica_clear(store: Dropin, join: JoinPool) -> None:
    store.put_batch(["a", "b"], [b"1", b"2"])
    assert store.batch_replica_clear(["a", "missing"], "another") == []
    assert store.batch_replica_clear(["a", "missing"], store.get_hostname()) == ["a"]
    assert store.batch_replica_clear(["a", "b"]) == ["b"]
    assert store.batch_is_exist(["a", "b"]) == [0, 0]


def test_one_copy_of_two_is_cleared(store: Dropin, join: JoinPool) -> None:
    other = join(16 * MIB)
    config = ReplicateConfig()
    config.replica_num = 2
    assert store.put("k", b"v", config) == 0
    on = {
        copy.get_memory_descriptor().buffer_descriptor.transport_endpoint
        for copy in store.get_replica_desc("k")
    }
    assert on == {store.get_hostname(), other.get_hostname()}
    assert store.batch_replica_clear(["k", "missing"], store.get_hostname()) == ["k"]
    [left] = store.get_replica_desc("k")
    assert left.get_memory_descriptor().buffer_descriptor.transport_endpoint == other.get_hostname()
    assert store.batch_replica_clear(["k"], store.get_hostname()) == []
    assert store.get("k") == b"v"
    assert store.batch_replica_clear(["k"], other.get_hostname()) == ["k"]
    assert store.is_exist("k") == 0


def test_memory_is_lent_and_taken_back(join: JoinPool) -> None:
    store = join()
    assert store.put("k", b"v") == -200
    mounted = store.allocate_and_mount_segment(16 * MIB)
    assert (mounted["ret"], mounted["allocated_size"]) == (0, 16 * MIB)
    [identity] = mounted["segment_ids"]
    assert [part.isdigit() for part in identity.split("-")] == [True, True]
    assert store.put("k", b"v") == 0
    assert store.unmount_and_free_segment([identity]) == 0
    assert store.unmount_and_free_segment([identity]) == -1
    assert store.get("k") == b""
    assert store.put("k", b"v") == -200
    assert store.allocate_and_mount_segment(0)["ret"] != 0


def test_grace_period_moves_what_others_have_room_for(store: Dropin, join: JoinPool) -> None:
    other = join()
    mounted = other.allocate_and_mount_segment(16 * MIB)
    assert other._membership is not None
    [copy_name] = other._membership._nodes
    config = ReplicateConfig()
    config.preferred_segment = copy_name
    assert store.put("k", b"v", config) == 0
    assert other.unmount_segment(mounted["segment_ids"], 30) == 0
    assert store.get("k") == b"v"


@pytest.fixture
def shared() -> Iterator[Path]:
    """A file of 48 MiB in shared memory, full of 0xAA."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        os.posix_fallocate(file.fileno(), 0, 48 * MIB)
        file.write(b"\xaa" * 48 * MIB)
        file.flush()
        yield Path(file.name)


def test_a_part_of_shared_memory_is_lent(join: JoinPool, shared: Path) -> None:
    """16 MiB from its second third on: values lie there, and the other parts stay as they are."""
    store = join()
    mounted = store.mount_segment(str(shared), 16 * MIB, 16 * MIB)
    assert mounted["ret"] == 0
    [identity] = mounted["segment_ids"]
    value = os.urandom(3 * MIB)
    assert store.put("k", value) == 0
    assert store.get("k") == value
    lying = shared.read_bytes()
    assert value in lying[16 * MIB : 32 * MIB]
    for part in (lying[: 16 * MIB], lying[32 * MIB :]):
        assert part == b"\xaa" * 16 * MIB
    assert store.put("too large", bytes(17 * MIB)) != 0
    assert store.unmount_segment([identity]) == 0
    assert store.unmount_segment([identity]) == -1
    assert store.get("k") == b""


def test_no_two_lend_the_same_shared_memory(join: JoinPool, shared: Path) -> None:
    store, other = join(), join()
    mounted = store.mount_segment(str(shared), 16 * MIB, 8 * MIB)
    assert mounted["ret"] == 0
    for offset in (0, 8, 16):
        assert other.mount_segment(str(shared), 16 * MIB, offset * MIB) == {"ret": -1, "segment_ids": []}
    assert other.mount_segment(str(shared), 8 * MIB, 0)["ret"] == 0
    assert other.mount_segment(str(shared), 8 * MIB, 24 * MIB)["ret"] == 0
    assert store.unmount_segment(mounted["segment_ids"]) == 0
    assert other.mount_segment(str(shared), 16 * MIB, 8 * MIB)["ret"] == 0, "it was given back"


def test_damaged_shared_memory_is_a_miss(join: JoinPool, shared: Path) -> None:
    """Somebody else writes there: no reader gets what he wrote."""
    store = join()
    assert store.mount_segment(str(shared), 16 * MIB)["ret"] == 0
    assert store.put("k", b"v" * 100_000) == 0
    with shared.open("r+b") as file:
        at = shared.read_bytes().index(b"v" * 100_000)
        file.seek(at + 5_000)
        file.write(b"x")
    assert store.get("k") == b""


def test_what_is_no_shared_memory_is_not_lent(
    store: Dropin, shared: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for path, size, offset, why in [
        ("/dev/shm/there is none", MIB, 0, "No such file"),
        ("/dev/shm", MIB, 0, "Is a directory"),
        ("/proc/self/environ", MIB, 0, "Permission denied|no file in memory"),
        ("/dev/null", MIB, 0, "no file in memory"),
        (__file__, 100, 0, "no file in memory|Permission denied"),
        (str(shared), 49 * MIB, 0, "only 50331648 bytes"),
        (str(shared), MIB, 48 * MIB, "only 50331648 bytes"),
        (str(shared), MIB, 1 << 62, "only 50331648 bytes"),
        (str(shared), (1 << 64) - 1, 4096, "only 50331648 bytes"),
        (str(shared), MIB, 100, "no multiple of 4096"),
    ]:
        caplog.clear()
        assert store.mount_segment(path, size, offset) == {"ret": -1, "segment_ids": []}
        assert re.search(why, caplog.text), (path, caplog.text)
    for size, offset in [(0, 0), (-1, 0), (MIB, -4096)]:
        assert store.mount_segment(str(shared), size, offset) == {"ret": -600, "segment_ids": []}
    assert MooncakeDistributedStore().mount_segment(str(shared), MIB)["ret"] == -600
    assert store.unmount_local_disk_segment() == 0
    assert store.alloc_from_mem_pool(10) == 0
    assert store.get_offload_rpc_read_count() == 0


def test_a_memfd_that_is_lent_cannot_be_shortened(store: Dropin) -> None:
    """Who shortens a file under a mapping kills the process; a memfd can be kept from it."""
    fd = os.memfd_create("lent", os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, 4 * MIB)
        assert store.mount_segment(f"/proc/self/fd/{fd}", 4 * MIB)["ret"] == 0
        with pytest.raises(PermissionError):
            os.ftruncate(fd, MIB)
    finally:
        os.close(fd)


# ---- buffer pools


def test_pool_lends_and_takes_back(store: Dropin) -> None:
    pool = BufferPool(store, max_bytes=1 << 20)
    with pool.acquire(1000) as lease:
        assert (lease.size, len(lease.buffer), lease.buffer.readonly) == (1000, 1000, False)
        lease.buffer[:4] = b"abcd"
        assert ctypes.string_at(lease.ptr, 4) == b"abcd"
        assert store.register_buffer(lease.ptr, 10) == -600, "it is registered"
        assert store.put_from("k", lease.ptr, 4) == 0
        first = lease.ptr
        with pytest.raises(RuntimeError, match="cannot close buffer pool with active leases"):
            pool.close()
    with pytest.raises(RuntimeError, match="buffer lease is closed"):
        _ = lease.ptr
    with pool.buffer(900) as again:
        assert again.ptr == first
    pool.close()
    pool.close()
    with pytest.raises(RuntimeError, match="buffer pool is closed"):
        pool.acquire(1)
    assert store.register_buffer(first, 10) == 0


def test_pool_that_is_exhausted(store: Dropin) -> None:
    pool = BufferPool(store, max_bytes=128 << 10)
    leases = [pool.acquire(60_000) for _ in range(2)]
    with pytest.raises(RuntimeError, match="buffer pool is exhausted"):
        pool.acquire(1, block=False)
    with pytest.raises(RuntimeError, match="timed out waiting for buffer"):
        pool.acquire(1, timeout=0.01)
    with pytest.raises(RuntimeError, match="timeout must be non-negative"):
        pool.acquire(1, timeout=-1)
    with pytest.raises(RuntimeError, match="requested buffer size exceeds pool capacity"):
        pool.acquire(1 << 20)
    waited: list[int] = []
    thread = threading.Thread(target=lambda: waited.append(pool.acquire(1).size))
    thread.start()
    leases[0].release()
    thread.join()
    assert waited == [1]


def test_pool_makes_room_for_other_sizes(store: Dropin) -> None:
    pool = BufferPool(store, max_bytes=256 << 10)
    for _ in range(2):
        small = [pool.acquire(64 << 10) for _ in range(4)]
        for lease in small:
            lease.release()
        pool.acquire(200 << 10).release()
    pool.close()


def test_lease_that_is_viewed_is_not_given_back(store: Dropin) -> None:
    pool = BufferPool(store, max_bytes=1 << 20)
    lease = pool.acquire(100)
    view = lease.buffer
    array = np.frombuffer(view, dtype=np.uint8)
    for seen in (view, array):
        with pytest.raises(RuntimeError, match="exported views"):
            lease.release()
        assert len(seen) == lease.size == 100
    del view, array, seen
    lease.release()
    pool.close()


def test_pool_without_a_bound_lends_beyond_the_local_buffer_and_keeps_that_much(store: Dropin) -> None:
    """A store's local_buffer_size is 16 MiB here; Mooncake's pools overflow to memory of their own."""
    pool = BufferPool(store)
    leases = [pool.acquire(16 * MIB, block=False), pool.acquire(1000, block=False)]
    assert [lease.size for lease in leases] == [16 * MIB, 1000]
    for lease in leases:
        lease.release()
    assert pool._bytes <= 16 * MIB
    pool.close()


@pytest.mark.parametrize("size", [0, 1, 4097, (128 << 10) + 1])
def test_lease_of_any_size(store: Dropin, size: int) -> None:
    pool = BufferPool(store, 1 << 20, max_size_class=128 << 10, alignment=4096)
    with pool.acquire(size) as lease:
        assert (lease.size, len(lease.buffer)) == (size, size)
    pool.close()


def test_sizes_and_alignments_that_cannot_be(store: Dropin) -> None:
    for alignment in (0, -8, 12_345):
        with pytest.raises(RuntimeError, match="alignment"):
            BufferPool(store, alignment=alignment)
    for pool in (BufferPool(store), BufferPool(store, 1 << 20)):
        with pytest.raises(RuntimeError, match="capacity"):
            pool.acquire((1 << 64) - 1)
        with pytest.raises(TypeError):
            pool.acquire(-1)


def test_forgotten_lease_is_taken_back(store: Dropin) -> None:
    pool = BufferPool(store, 4096, min_size_class=4096)
    address = pool.acquire(1).ptr
    again = pool.acquire(1, timeout=30)
    assert again.ptr == address
    again.release()
    pool.acquire(1)
    pool.close()


def test_forgotten_lease_that_is_viewed_is_not_lent_again(store: Dropin) -> None:
    pool = BufferPool(store, max_bytes=64 << 10)
    view = pool.acquire(10).buffer
    view[:] = b"mine, mine"
    with pool.acquire(10) as lease:
        lease.buffer[:] = b"another's!"
    assert bytes(view) == b"mine, mine"
    pool.close()


def test_waiting_for_a_lease_ends_with_a_forgotten_one(store: Dropin) -> None:
    pool = BufferPool(store, 4096, min_size_class=4096)
    held = [pool.acquire(1)]
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.append(pool.acquire(1).size))
    thread.start()
    held.clear()
    thread.join()
    assert got == [1]


def test_pool_needs_a_store_that_has_joined() -> None:
    with pytest.raises(RuntimeError, match="MooncakeDistributedStore is not initialized"):
        BufferPool(MooncakeDistributedStore())


# ---- host memory, coroutines


def test_host_memory() -> None:
    allocator = MooncakeHostMemAllocator()
    address = allocator.alloc(10_000)
    assert address % 4096 == 0
    ctypes.memset(address, 7, 10_000)
    assert ctypes.string_at(address, 3) == b"\7\7\7"
    assert allocator.free(address) == 0
    assert allocator.free(address) == -600
    assert allocator.alloc(0) == 0
    assert get_alloc_func_addr() != 0
    assert get_free_func_addr() != 0


def test_binding_to_a_numa_node_that_is_not_there_changes_nothing() -> None:
    before = os.sched_getaffinity(0)
    bind_to_numa_node(9_999)
    assert os.sched_getaffinity(0) == before


async def test_every_method_is_a_coroutine_too(master_address: str) -> None:
    store = MooncakeDistributedStoreAsync()
    assert await store.async_setup("localhost", "x", 16 * MIB, MIB, "tcp", "", master_address) == 0
    assert await store.async_put("k", b"v") == 0
    assert await store.async_get("k") == b"v"
    assert store.get("k") == b"v"
    assert await store.async_remove_all(force=True) == 1
    assert await store.async_close() == 0
    with pytest.raises(AttributeError):
        store.async_no_such_method  # noqa: B018
    with pytest.raises(AttributeError):
        store.no_such_method  # noqa: B018
