"""`Store` as a program uses it, over an embedded cluster: answers, refusals, threads, forks, the end."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from client.pools import Pool, pool

from mooncake_client import Absence, Explanation, Store
from mooncake_client.embedded import EmbeddedCluster
from mooncake_store import _core
from mooncake_store.errors import (
    BufferTooSmall,
    ClosedError,
    InvalidArgument,
    NoSpace,
    ObjectNotFound,
    StoreError,
    Unavailable,
    ValueTooLarge,
)

MIB = 1 << 20
HANG_S = 60


@pytest.fixture(scope="module", params=["lane", "grpc"])
def shared(request: pytest.FixtureRequest) -> Iterator[Pool]:
    with pool(request.param) as shared:
        yield shared


@pytest.fixture
def store(shared: Pool, request: pytest.FixtureRequest) -> Iterator[Store]:
    """A client in a tenant of this test's own."""
    with Store(**shared.settings, tenant=request.node.name[:200]) as store:
        yield store


def test_put_get_exists_remove(store: Store) -> None:
    assert store.put("k", b"value") == "stored"
    assert store.put("k", b"other") == "exists"
    assert store.get("k") == b"value"
    assert store.exists("k")
    assert store.remove("k") is True
    assert store.get("k") is None
    assert store.remove("k") is False
    with pytest.raises(ObjectNotFound, match="'k'"):
        store.remove("k", missing_ok=False)
    with pytest.raises(ObjectNotFound, match="'k'"):
        store.stat("k")


def test_equal_bytes_are_one_key(store: Store) -> None:
    store.put(17, b"x")
    assert store.exists_many(["17", b"17", 17, "18"]) == [True, True, True, False]
    assert list(store.keys()) == [b"17"]


def test_the_longest_key_is_a_key(store: Store) -> None:
    key = "k" * 1024
    assert store.put(key, b"value") == "stored"
    assert store.get(key) == b"value"
    assert store.exists_many([key, "k" * 1023]) == [True, False]


def test_an_empty_value_is_not_a_miss(store: Store) -> None:
    assert store.put("empty", b"") == "stored"
    assert store.get("empty") == b""
    assert store.get_into("empty", bytearray(4)) == 0
    assert store.get_many(["empty", "missing"]) == [b"", None]


@pytest.mark.parametrize("size", [1, 63, 64, 65, 4095, 4096, 4097, MIB, 8 * MIB + 1])
def test_every_size_comes_back(store: Store, size: int) -> None:
    value = os.urandom(size)
    store.put("k", value)
    assert store.get("k") == value
    target = bytearray(size + 3)
    assert store.get_into("k", target) == size
    assert target == value + bytes(3)
    store.remove("k")


def test_tensors_come_back_with_dtype_and_shape(store: Store) -> None:
    array = np.arange(24, dtype=np.float16).reshape(2, 3, 4)
    store.put("contiguous", array)
    store.put("turned", array.T)
    store.put("scalar", np.float64(2.5))
    store.put("bytes", b"abc")
    back = store.get_tensor("turned")
    assert back.dtype == array.dtype
    assert np.array_equal(back, array.T)
    assert np.array_equal(store.get_tensor("contiguous"), array)
    assert store.get_tensor("scalar") == 2.5
    assert store.get_tensor("bytes").tobytes() == b"abc"
    assert store.get_tensor("missing") is None


def test_replace_puts_a_new_value(store: Store) -> None:
    store.put("k", b"old")
    first = store.stat("k").put_id
    assert store.put("k", b"newer", replace=True) == "stored"
    assert store.get("k") == b"newer"
    assert store.stat("k").put_id > first
    assert store.stat("k").size_bytes == 5


def test_batches_answer_each_key_in_order(store: Store) -> None:
    keys = [f"k{index}" for index in range(10)]
    assert store.put_many(keys, [key.encode() for key in keys]) == ["stored"] * 10
    store.remove("k4")
    assert store.get_many(keys) == [None if key == "k4" else key.encode() for key in keys]
    assert store.match_prefix(keys) == 4
    assert store.exists_many(keys) == [key != "k4" for key in keys]
    assert store.get_many(["k0", "k0", "k4"]) == [b"k0", b"k0", None]
    assert store.put_many([], []) == store.get_many([]) == store.exists_many([]) == []
    assert store.match_prefix([]) == 0
    assert store.remove_many(["k0", "k4"]) == [True, False]


def test_a_batch_larger_than_a_request_is_cut(store: Store) -> None:
    keys = list(range(20_000))
    assert set(store.put_many(keys, [b"v"] * len(keys))) == {"stored"}
    assert all(store.exists_many(keys))
    assert store.match_prefix([*keys, "missing"]) == len(keys)
    assert set(store.remove_many(keys)) == {True}


def test_remove_all_by_prefix_and_pattern(store: Store, shared: Pool) -> None:
    """Over several pages, and never another tenant's."""
    shared.store.put("a1", b"of another tenant")
    keys = [f"{letter}{index}" for letter in "ab" for index in range(1_200)]
    store.put_many(keys, [b"v"] * len(keys))
    assert store.remove_all("a", pattern=r"^a\d$") == 10
    assert store.remove_all(pattern=b"[ab]0$") == 1
    assert store.remove_all("b") == 1_199
    assert store.remove_all("c") == 0
    assert len(list(store.keys())) == 1_190
    assert store.remove_all() == 1_190
    assert shared.store.remove("a1")
    with pytest.raises(InvalidArgument, match=r"\["):
        store.remove_all(pattern="[")


def test_remove_all_without_force_leaves_what_is_being_read(store: Store) -> None:
    store.put_many(["k", "l"], [b"v", b"w"])
    opened = store._client().open(["k"])
    assert store.remove_all(force=False) == 1
    assert store.exists_many(["k", "l"]) == [True, False]
    assert store.remove_all() == 1
    del opened


def test_a_store_that_closes_leaves_no_lease_behind(shared: Pool, store: Store) -> None:
    """Its reads are over; what they asked to keep is told at the latest now."""
    store.put("k", b"v")
    with Store(**shared.settings, tenant=store.config.tenant) as reader:
        assert reader.get("k") == b"v"
    assert store.remove("k", force=False)


def test_one_bad_entry_shifts_nothing(store: Store) -> None:
    keys: list[Any] = ["a", "", "b", "x" * 1025, -1, "c", "d"]
    values: list[Any] = [b"a", b"", b"b", b"", b"", object(), b"d"]
    answers = store.put_many(keys, values)
    assert [answer if isinstance(answer, str) else type(answer) for answer in answers] == [
        "stored",
        InvalidArgument,
        "stored",
        InvalidArgument,
        InvalidArgument,
        InvalidArgument,
        "stored",
    ]
    assert "1025" in str(answers[3])
    assert sorted(store.keys()) == [b"a", b"b", b"d"]
    got = store.get_many(["a", "", "b"])
    assert (got[0], got[2]) == (b"a", b"b")
    assert isinstance(got[1], InvalidArgument)


@pytest.mark.parametrize("key", ["", b"", "x" * 1025, -1, True, 1.5, None])
def test_a_key_that_cannot_be_one_is_named(store: Store, key: Any) -> None:
    for call in (store.get, store.exists, store.remove, store.stat, store.touch, store.get_tensor):
        with pytest.raises((InvalidArgument, TypeError)):
            call(key)
    with pytest.raises((InvalidArgument, TypeError)):
        store.put(key, b"x")
    assert list(store.keys()) == []


def test_wrong_lengths_and_forms_are_refused_and_store_nothing(store: Store) -> None:
    with pytest.raises(InvalidArgument, match="2 keys but 1 values"):
        store.put_many(["a", "b"], [b"x"])
    with pytest.raises(InvalidArgument, match="1 keys but 2 targets"):
        store.get_into_many(["a"], [bytearray(1), bytearray(1)])
    with pytest.raises(InvalidArgument, match="keys must be a list"):
        store.get_many("abc")
    for settings in ({"replicas": 0}, {"replicas": 9}, {"ttl_ms": -1}, {"soft_pin": -5}, {"timeout_ms": 0}):
        with pytest.raises(InvalidArgument, match=str(next(iter(settings)))):
            store.put("a", b"x", **settings)
    assert list(store.keys()) == []


def test_a_buffer_too_small_is_named_with_both_sizes(store: Store) -> None:
    store.put("k", bytes(100))
    with pytest.raises(BufferTooSmall, match=r"'k' has 100 bytes.*99"):
        store.get_into("k", bytearray(99))
    with pytest.raises(InvalidArgument, match="read-only"):
        store.get_into("k", bytes(100))


def test_a_value_larger_than_any_segment_is_refused_at_once(store: Store) -> None:
    with pytest.raises(ValueTooLarge, match="'k'"):
        store.put("k", np.zeros(80 * MIB, dtype=np.uint8))
    assert not store.exists("k")


def test_a_full_store_of_pinned_values_has_no_space() -> None:
    with Store.embedded("4mb") as store:
        answers = store.put_many([f"k{i}" for i in range(8)], [bytes(MIB)] * 8, hard_pin=True)
        stored = [answer for answer in answers if answer == "stored"]
        refused = [answer for answer in answers if isinstance(answer, NoSpace)]
        assert len(stored) in (3, 4)
        assert len(stored) + len(refused) == 8
        assert len(list(store.keys())) == len(stored)
        assert [value is not None for value in store.get_many([f"k{i}" for i in range(8)])] == [
            answer == "stored" for answer in answers
        ]


def test_a_store_that_is_full_evicts_the_oldest() -> None:
    with Store.embedded("8mb") as store:
        for index in range(40):
            assert store.put(index, bytes([index]) * 256 * 1024) == "stored"
        present = store.exists_many(list(range(40)))
        assert present[-1]
        assert not present[0]
        assert present == sorted(present)
        assert store.stats()["evicted_keys_total"] == present.count(False)


def test_concurrent_puts_of_one_key_have_one_winner(store: Store) -> None:
    for turn in range(20):
        values = [bytes([turn, which]) * 50_000 for which in range(4)]
        answers: list[str] = []
        barrier = threading.Barrier(4)

        def put(value: bytes, turn: int = turn) -> None:
            barrier.wait(HANG_S)  # noqa: B023
            answers.append(store.put(f"k{turn}", value))  # noqa: B023

        threads = [threading.Thread(target=put, args=(value,)) for value in values]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
        assert sorted(answers) == ["exists"] * 3 + ["stored"]
        assert store.get(f"k{turn}") in values


def test_threads_share_one_store(store: Store) -> None:
    failures: list[BaseException] = []

    def work(who: int) -> None:
        try:
            for index in range(50):
                key, value = f"{who}/{index}", os.urandom(1 + 997 * index)
                assert store.put(key, value) == "stored"
                assert store.get(key) == value
                assert store.remove(key)
                assert store.get(key) is None
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert failures == []


def test_the_embedded_node_is_dialled_back_as_any_other() -> None:
    cluster = EmbeddedCluster(1 << 20, 1, {})
    try:
        assert cluster._node is not None
        assert cluster._node.status()["stats"]["data_connections_total"] == 1
    finally:
        cluster.stop()


def test_a_closed_store_says_so() -> None:
    store = Store.embedded("1mb")
    store.close()
    store.close()
    assert store.closed
    for call in (lambda: store.put("k", b"x"), lambda: store.get("k"), lambda: store.exists_many(["k"])):
        with pytest.raises(ClosedError):
            call()


def test_a_master_that_is_not_there_is_named_with_its_setting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
    with pytest.raises(Unavailable) as refused:
        Store(address, connect_timeout_ms=200)
    assert address in str(refused.value)
    assert "master_server_addr" in str(refused.value)


def test_a_call_raises_unavailable_when_the_master_is_gone() -> None:
    master = _core.Master()
    master.start()
    with Store(lane=f"127.0.0.1:{master.lane_port}", rpc_timeout_ms=300) as store:
        master.stop()
        for call in (lambda: store.get("k"), lambda: store.put("k", b"v"), lambda: store.exists("k")):
            with pytest.raises(Unavailable, match="rpc_timeout_ms"):
                call()


def test_settings_are_checked_by_name() -> None:
    for settings in ({"control": "x"}, {"checksum": "x"}, {"tenant": ""}):
        with pytest.raises(InvalidArgument, match=str(next(iter(settings)))):
            Store("127.0.0.1:1", **settings)  # type: ignore[arg-type]
    for capacity in ("-5", "50%", "abc", "", "1"):
        with pytest.raises(InvalidArgument, match="capacity"):
            Store.embedded(capacity)
    with pytest.raises(InvalidArgument, match="no setting 'colour'"):
        Store.embedded("1mb", master_settings={"colour": 1})


def test_tenants_do_not_see_each_other(shared: Pool, store: Store) -> None:
    with Store(**shared.settings, tenant="another") as other:
        store.put("k", b"mine")
        other.put("k", b"theirs")
        assert (store.get("k"), other.get("k")) == (b"mine", b"theirs")
        assert other.remove("k")
        assert store.get("k") == b"mine"


def test_a_store_is_not_pickled(store: Store) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(store)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_childs_handle_raises_and_leaves_the_parents_alone(store: Store) -> None:
    store.put("k", b"v")
    child = os.fork()
    if child == 0:
        try:
            store.get("k")
        except ClosedError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.get("k") == b"v"


@pytest.mark.parametrize("closes", [True, False])
def test_a_forked_child_of_an_embedded_store_ends(closes: bool) -> None:
    """Neither close nor the interpreter's exit may wait for threads that only the parent has."""
    ended = run(
        "import os, sys; from mooncake_client import Store\n"
        "store = Store.embedded('1mb'); store.put('k', b'v')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        f"    if {closes}: store.close()\n"
        "    sys.exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), store.get('k'))"
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "7 b'v'\n", "")


def test_exists_get_and_list_agree_while_two_put_the_same_keys(shared: Pool, store: Store) -> None:
    """User problem 5: one writer's value a key, the loser hears "exists", and all answers agree."""
    keys = [f"k{index}" for index in range(50)]
    with Store(**shared.settings, tenant=store.config.tenant) as other:
        answers: dict[str, list[Any]] = {}
        barrier = threading.Barrier(2)

        def put(name: str, client: Store) -> None:
            barrier.wait(HANG_S)
            answers[name] = client.put_many(keys, [name.encode() * 10_000] * len(keys))

        threads = [threading.Thread(target=put, args=pair) for pair in (("a", store), ("b", other))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
        for key, of_a, of_b, value in zip(
            keys, answers["a"], answers["b"], store.get_many(keys), strict=True
        ):
            assert sorted((of_a, of_b)) == ["exists", "stored"]
            assert value == (b"a" if of_a == "stored" else b"b") * 10_000, key
        assert all(other.exists_many(keys))
        assert sorted(other.keys()) == sorted(key.encode() for key in keys)


def test_torch_tensors_come_back_as_torch_tensors(store: Store) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    value = torch.arange(12).to(torch.bfloat16).reshape(3, 4)
    store.put_many(["whole", "turned"], [value, value.t()])
    assert torch.equal(store.get_tensor("whole"), value)
    assert torch.equal(store.get_tensor("turned"), value.t())
    target = torch.zeros(3, 4, dtype=torch.bfloat16)
    assert store.get_into("whole", target) == 24
    assert torch.equal(target, value)


def run(program: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        **options,
    )


def test_an_embedded_store_imports_neither_grpc_nor_numpy() -> None:
    ended = run(
        "import sys; from mooncake_client import Store\n"
        "with Store.embedded('1mb') as store: store.put('k', b'v'); assert store.get('k') == b'v'\n"
        "print([name for name in ('grpc', 'numpy', 'aiohttp', 'mooncake_master') if name in sys.modules])"
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[]\n", "")


def test_the_interpreter_ends_with_operations_under_way() -> None:
    ended = run(
        "import threading; from mooncake_client import Store; from mooncake_store.errors import ClosedError\n"
        "store = Store.embedded('64mb'); value = bytes(4 << 20)\n"
        "def work():\n"
        "    try:\n"
        "        for index in range(10**6): store.put(index, value); store.get(index)\n"
        "    except ClosedError: pass\n"
        "for _ in range(4): threading.Thread(target=work, daemon=True).start()\n"
        "while not store.exists(3): pass\n"
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_ctrl_c_wakes_a_blocked_call() -> None:
    program = (
        "from mooncake_client import Store\n"
        "store = Store.embedded('8mb')\n"
        "store.put('k', bytes(1 << 20))\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    while True: store.get('k')\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
        "store.close()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=HANG_S)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "interrupted\n", "")


def test_register_announces_and_withdraws_memory(store: Store) -> None:
    memory = bytearray(4096)
    with store.register(memory) as registration:
        store.put("k", bytes(range(256)) * 16)
        assert store.get_into("k", memory) == 4096
    with pytest.raises(InvalidArgument):
        store.unregister(registration)
    with pytest.raises(InvalidArgument, match="read-only"):
        store.register(b"abc")


def test_a_value_ends_by_its_ttl() -> None:
    with Store.embedded("1mb") as store:
        assert store.put("brief", b"x", ttl_ms=1) == "stored"
        hang = time.monotonic() + 20
        while store.get("brief") is not None:
            assert time.monotonic() < hang


def test_errors_are_of_one_tree() -> None:
    for kind in (BufferTooSmall, ClosedError, InvalidArgument, NoSpace, Unavailable, ValueTooLarge):
        assert issubclass(kind, StoreError)


def test_why_tells_one_keys_end() -> None:
    with Store.embedded("1mb") as store:
        assert store.why("k") == Explanation(Absence.NEVER_STORED)
        store.put("k", b"v")
        assert store.why("k") == Explanation(Absence.PRESENT)
        store.remove("k")
        told = store.why("k")
        assert told.reason is Absence.REMOVED
        assert told.ended_ms_ago is not None
        assert str(told).startswith("removed, ")
        for number in range(4):
            store.put(number, bytes(400 << 10))
        assert store.why(0).reason is Absence.EVICTED
        with pytest.raises(InvalidArgument):
            store.why("")
