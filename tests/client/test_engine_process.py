"""A store inside an engine's process: forks, spawns, signals, threads, the interpreter's end.

Real processes, because they are forked, interrupted and ended.
"""

from __future__ import annotations

import copy
import gc
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from lane_peer import LanePeer
from slow_node import SlowNode

from mooncake_client import Store
from mooncake_store import _core
from mooncake_store.errors import BufferTooSmall, ClosedError, InvalidArgument

MIB = 1 << 20
HANG_S = 60
LONG_MS = 600_000  # no call of these tests may come to its deadline


@pytest.fixture(scope="module")
def shared() -> Iterator[Store]:
    with Store.embedded("128mb") as store:
        yield store


@pytest.fixture
def lane() -> Iterator[str]:
    """Of a master that has no node yet and expires nobody."""
    master = _core.Master(lane_host="127.0.0.1", client_ttl_ms=LONG_MS)
    master.start()
    yield f"127.0.0.1:{master.lane_port}"
    master.stop()


@pytest.fixture
def slow(lane: str) -> Iterator[SlowNode]:
    """The only node; it holds "k"."""
    with SlowNode(lane) as node:
        node.hold(b"k", MIB)
        yield node


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program of its own: what it prints, its errors, its status. A hang fails."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )


def in_threads(count: int, work: Callable[[int], None]) -> list[BaseException]:
    """Run work(0..count-1) at once; what they raised."""
    failures: list[BaseException] = []
    barrier = threading.Barrier(count)

    def guarded(who: int) -> None:
        try:
            barrier.wait(HANG_S)
            work(who)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(who,), daemon=True) for who in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
        assert not thread.is_alive(), "a thread hangs"
    return failures


# ---- fork

# Every public verb of both stores, and what is written on the parent's sockets meanwhile, which is nothing.
# The parent is stopped while the child tries, so that what its sockets have sent and received is the child's.
CHILD_TRIES_EVERYTHING = """
import asyncio, inspect, os, signal, socket, struct, sys
from mooncake_client import AsyncStore, ClosedError, Store

ARGUMENTS = {"key": "k", "name": "n", "keys": ["k"], "value": b"v", "values": [b"v"], "target": bytearray(8),
             "targets": [bytearray(8)], "buffer": bytearray(8), "prefix": ""}
NO_VERBS = {"close", "aclose", "embedded", "connect", "from_config", "unregister"}

def verbs(kind):
    for name, member in inspect.getmembers(kind, callable):
        if not name.startswith("_") and name not in NO_VERBS:
            needed = [p.name for p in inspect.signature(member).parameters.values()
                      if p.default is p.empty and p.name != "self"]
            yield name, [ARGUMENTS[of] for of in needed]

def drive(made):
    if inspect.iscoroutine(made):
        made.send(None)

def sockets():
    told = {}
    for name in os.listdir("/proc/self/fd"):
        try: target = os.readlink(f"/proc/self/fd/{name}")
        except OSError: continue
        if not target.startswith("socket:"): continue
        with socket.socket(fileno=os.dup(int(name))) as copy:
            if copy.family == socket.AF_INET and copy.type == socket.SOCK_STREAM:
                info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                told[name, target] = (info[0], struct.unpack_from("<QQ", info, 120), info[200:208])
    return told

def parent_is_stopped(parent):
    return all(open(f"/proc/{parent}/task/{task}/stat").read().rsplit(")", 1)[1].split()[0] == "T"
               for task in os.listdir(f"/proc/{parent}/task"))

def child(parent, stores):
    os.kill(parent, signal.SIGSTOP)
    while not parent_is_stopped(parent): pass
    before, count = sockets(), 0
    for store in stores:
        assert store.closed and "closed" in repr(store)
        for name, arguments in verbs(type(store)):
            try: drive(getattr(store, name)(*arguments))
            except ClosedError as error: assert "fork" in str(error), error
            else: raise AssertionError(name)
            count += 1
    stores[0].close()
    try: stores[1].aclose().send(None)
    except StopIteration: pass
    assert before == sockets() and len(before) >= 2, (before, sockets())
    os.kill(parent, signal.SIGCONT)
    return count

lane, how = sys.argv[1:]
loop = asyncio.new_event_loop()
store, other = Store(lane=lane), loop.run_until_complete(AsyncStore(lane=lane).connect())
assert store.put("k", b"v", replace=True) == "stored"
assert loop.run_until_complete(other.get("k")) == b"v"
parent, pid = os.getpid(), os.fork()
if pid == 0:
    status = 3
    try: status = 7 if child(parent, [store, other]) >= 34 else 4
    except BaseException as error: print(repr(error), flush=True)
    finally: os.kill(parent, signal.SIGCONT)
    if how == "_exit": os._exit(status)
    loop._closed = True   # asyncio would take the parent's loop apart: both share one epoll
    sys.exit(status)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
print(store.get("k"), loop.run_until_complete(other.get("k")))
loop.run_until_complete(other.aclose())
loop.run_until_complete(loop.shutdown_default_executor())
loop.close()
store.close()
print("over", flush=True)
"""


@pytest.mark.parametrize("how", ["_exit", "exit"])
def test_no_verb_of_a_forked_child_touches_the_parents_sockets(shared: Store, how: str) -> None:
    ended = run(CHILD_TRIES_EVERYTHING, shared.lane, how)
    assert ended.stdout == "7\nb'v' b'v'\nover\n", ended.stdout + ended.stderr
    assert ended.returncode == 0
    assert "Fatal" not in ended.stderr


def test_forks_amid_calls_of_many_threads_end(shared: Store) -> None:
    """The child finds every lock in whatever state the parent's threads had it."""
    ended = run(
        """
import os, sys, threading
from mooncake_client import ClosedError, Store
store = Store(lane=sys.argv[1], tenant="forks")
over = threading.Event()
wrong = []
def work(who):
    value = bytes([who]) * 70_000
    while not over.is_set():
        store.put(who, value, replace=True)
        if store.get(who) != value: wrong.append(who)
threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
for thread in threads: thread.start()
statuses = []
for turn in range(20):
    child = os.fork()
    if child == 0:
        try: store.get("k")
        except ClosedError: status = 7
        else: status = 3
        store.close()
        if turn % 2: os._exit(status)
        sys.exit(status)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
over.set()
for thread in threads: thread.join()
store.close()
print(set(statuses), wrong)
""",
        shared.lane,
    )
    assert (ended.returncode, ended.stdout) == (0, "{7} []\n"), ended.stderr


MULTIPROCESSING = """
import multiprocessing, sys
from mooncake_client import ClosedError, Store

def inherited():
    try: store.get("k")
    except ClosedError as error: sys.exit(7 if "fork" in str(error) else 3)

def own(config):
    with Store.from_config(config) as store:
        sys.exit(7 if store.get("k") == b"v" and store.put("of the child", b"c") == "stored" else 3)

if __name__ == "__main__":
    store = Store(lane=sys.argv[1], tenant=sys.argv[2])
    store.put("k", b"v")
    context = multiprocessing.get_context(sys.argv[2])
    targets = [(own, (store.config,))] + ([(inherited, ())] if sys.argv[2] == "fork" else [])
    for target, arguments in targets:
        process = context.Process(target=target, args=arguments)
        process.start()
        process.join(60)
        print(process.exitcode)
    if sys.argv[2] != "fork":
        try: context.Process(target=own, args=(store,)).start()
        except TypeError as error: print("from_config" in str(error))
    print(store.get("of the child"))
    store.close()
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_children_of_multiprocessing_make_stores_of_their_own(
    shared: Store, tmp_path: Path, method: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(MULTIPROCESSING, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, str(program), shared.lane, method],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    expected = "7\n7\nb'c'\n" if method == "fork" else "7\nTrue\nb'c'\n"
    assert (ended.returncode, ended.stdout) == (0, expected), ended.stderr


def test_a_read_given_up_ends_at_the_node_though_a_forked_child_lives(lane: str, slow: SlowNode) -> None:
    """The child holds the parent's sockets open; only shutting one down ends it for the node."""
    program = """
import os, sys, threading
from mooncake_client import ClosedError, Store
store = Store(lane=sys.argv[1], rpc_timeout_ms=600_000)
def read():
    try: store.get_into("k", bytearray(1 << 20))
    except ClosedError: print("closed", flush=True)
thread = threading.Thread(target=read)
thread.start()
sys.stdin.readline()
child = os.fork()
if child == 0:
    while os.read(0, 1): pass   # lives until the test has seen the end
    os._exit(0)
store.close()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, lane], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert slow.begun.get(timeout=HANG_S) == "read"
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "closed\n"
            assert slow.ended.get(timeout=HANG_S) == "read"
            process.stdin.close()
            assert process.stdout.readline() == "0\n"
            assert process.wait(HANG_S) == 0
        finally:
            process.kill()


# ---- pickling


def test_a_store_is_neither_pickled_nor_copied_but_its_settings_are(shared: Store) -> None:
    for use in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"Store cannot be pickled.*Store\.from_config"):
            use(shared)
    shared.put("pickled", b"v")
    with Store.from_config(pickle.loads(pickle.dumps(shared.config))) as other:
        assert other.get("pickled") == b"v"


# ---- signals

SILENT = """
import os, signal, socket, sys, threading, time
from mooncake_client import Store
server = socket.create_server(("127.0.0.1", 0))
address = f"127.0.0.1:{server.getsockname()[1]}"
def press(pressed):
    connection, _ = server.accept()   # it is connected, and will never be answered
    pressed.append((time.monotonic(), connection))
    os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize("door", ["lane", "master_server_addr"])
def test_ctrl_c_ends_connecting(door: str) -> None:
    ended = run(
        SILENT
        + f"""
pressed = []
thread = threading.Thread(target=press, args=(pressed,))
thread.start()
try: Store(**{{"{door}": address}}, connect_timeout_ms=60_000)
except KeyboardInterrupt: print(time.monotonic() - pressed[0][0] < 10)
thread.join()
"""
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\n", "")


def interrupt_when(told: Callable[[], object]) -> tuple[threading.Thread, list[float]]:
    """Ctrl-C for this process, once something came."""
    pressed: list[float] = []

    def press() -> None:
        told()
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    return thread, pressed


@pytest.mark.parametrize("verb", ["get", "get_into", "put"])
def test_ctrl_c_ends_a_call_amid_its_value(lane: str, slow: SlowNode, verb: str) -> None:
    target = bytearray(MIB)
    with Store(lane=lane, rpc_timeout_ms=LONG_MS) as store:
        calls: dict[str, Callable[[], object]] = {
            "get": lambda: store.get("k"),
            "get_into": lambda: store.get_into("k", target),
            "put": lambda: store.put("new", bytes(64 * MIB)),
        }
        thread, pressed = interrupt_when(lambda: slow.begun.get(timeout=HANG_S))
        with pytest.raises(KeyboardInterrupt):
            calls[verb]()
        took = time.monotonic() - pressed[0]
        thread.join(HANG_S)
        assert took < 10  # 0.05 s on a machine that has time; this only tells it from the deadline
        seen = bytes(target)
        slow.ended.get(timeout=HANG_S)
        assert target == seen
        assert store.exists("k")


def test_ctrl_c_ends_a_call_that_dials_a_node_that_never_answers(lane: str) -> None:
    """A listener whose queue is full swallows the dial; another may be connected but not welcomed."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        LanePeer(int(lane.rpartition(":")[2]), 2) as node,
        LanePeer(int(lane.rpartition(":")[2])) as client,
        Store(lane=lane, rpc_timeout_ms=LONG_MS, connect_timeout_ms=60_000) as store,
    ):
        node.open_session()
        node.mount(MIB, "silent", f"tcp://127.0.0.1:{server.getsockname()[1]}")
        client.open_session("default")
        client.put(b"k", 4096)
        connections: list[socket.socket] = []
        thread, pressed = interrupt_when(lambda: connections.append(server.accept()[0]))
        with pytest.raises(KeyboardInterrupt):
            store.get("k")
        assert time.monotonic() - pressed[0] < 10
        thread.join(HANG_S)
        for connection in connections:
            connection.close()
        assert store.exists("k")


def test_a_handler_that_returns_lets_the_call_go_on(lane: str, slow: SlowNode) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    try:
        with Store(lane=lane, rpc_timeout_ms=LONG_MS) as store:

            def tell() -> None:
                slow.begun.get(timeout=HANG_S)
                for turn in range(5):
                    os.kill(os.getpid(), signal.SIGUSR1)
                    while len(seen) <= turn:
                        threading.Event().wait(0.001)
                store.close()

            thread = threading.Thread(target=tell)
            thread.start()
            with pytest.raises(ClosedError):
                store.get("k")
            thread.join(HANG_S)
            assert seen == [signal.SIGUSR1] * 5
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_ctrl_c_is_for_the_main_thread_alone(lane: str, slow: SlowNode) -> None:
    """A call of another thread goes on; the main thread is woken from whatever it waits in."""
    ends: list[BaseException] = []
    with Store(lane=lane, rpc_timeout_ms=LONG_MS) as store:

        def read() -> None:
            try:
                store.get("k")
            except BaseException as error:
                ends.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            interrupt_when(lambda: slow.begun.get(timeout=HANG_S))
            threading.Event().wait(HANG_S)
        assert reader.is_alive()
        assert store.exists("k")
    reader.join(HANG_S)
    assert [type(end) for end in ends] == [ClosedError]


# ---- threads


def test_a_blocked_call_does_not_hold_up_python(lane: str, slow: SlowNode) -> None:
    with Store(lane=lane, rpc_timeout_ms=LONG_MS) as store:
        ends: list[object] = []

        def read() -> None:
            try:
                ends.append(store.get_into("k", bytearray(MIB)))
            except ClosedError as error:
                ends.append(error)

        readers = [threading.Thread(target=read) for _ in range(4)]
        for reader in readers:
            reader.start()
        for _ in readers:
            slow.begun.get(timeout=HANG_S)
        # All four wait natively. Were one to hold the GIL, none of this would run.
        assert sum(range(100_000)) == 4_999_950_000
        assert in_threads(4, lambda who: assert_true(store.exists("k"))) == []
        assert ends == []
    for reader in readers:
        reader.join(HANG_S)
    assert [type(end) for end in ends] == [ClosedError] * 4


def assert_true(value: object) -> None:
    assert value is True


@pytest.mark.parametrize("turn", range(5))
def test_three_threads_close_a_store_amid_calls(shared: Store, turn: int) -> None:
    store = Store(lane=shared.lane, tenant=f"close {turn}")
    begun = threading.Event()
    value = random.Random(turn).randbytes(200_000)

    def work(who: int) -> None:
        if who < 3:
            assert begun.wait(HANG_S)
            store.close()
            assert store.closed
            return
        try:
            while True:
                target = bytearray(len(value))
                assert store.put(who, value, replace=True) == "stored"
                assert store.get_into(who, target) == len(target)
                assert target == value
                [found] = store.get_many([who])
                assert found == value
                begun.set()
        except ClosedError:
            return

    assert in_threads(11, work) == []
    store.close()


def test_a_store_that_nobody_closed_warns_and_ends(shared: Store) -> None:
    def sessions() -> int:
        return shared.stats()["active_session_count"]

    before = sessions()
    store = Store(lane=shared.lane)
    assert not store.exists("missing")
    assert sessions() == before + 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del store
        gc.collect()
    assert [warning.category for warning in caught] == [ResourceWarning]
    assert "never closed" in str(caught[0].message)
    caught.clear()  # the warning names its source and so holds it
    assert sessions() == before


def test_threads_storm_one_store_with_every_verb(shared: Store) -> None:
    """Right and wrong calls in every order; each byte is compared, and each wrong call raises its error."""
    with Store(lane=shared.lane, tenant="storm") as store:

        def work(who: int) -> None:
            chance = random.Random(who)
            kept: dict[str, bytes] = {}
            for turn in range(60):
                key = f"{who}/{chance.randrange(20)}"
                size = chance.choice([0, 1, 63, 4096, 65_536, 65_537, 400_000])
                value = chance.randbytes(size)
                match chance.randrange(12):
                    case 0 | 1:
                        assert store.put(key, value, replace=True) == "stored"
                        kept[key] = value
                    case 2:
                        answers = store.put_many([key, "", f"{who}/b"], [value, b"", value], replace=True)
                        assert answers[0::2] == ["stored", "stored"]
                        assert isinstance(answers[1], InvalidArgument)
                        kept[key] = kept[f"{who}/b"] = value
                    case 3:
                        strided = np.arange(2 * (size or 2), dtype=np.uint8)[::2]
                        assert store.put(key, strided, replace=True) == "stored"
                        kept[key] = strided.tobytes()
                    case 4:
                        assert store.get(key) == kept.get(key)
                    case 5:
                        keys = [*kept, f"{who}/missing"]
                        assert store.get_many(keys) == [*kept.values(), None]
                    case 6:
                        target = bytearray(len(kept.get(key, b"")) + turn)
                        length = store.get_into(key, target)
                        assert length == (len(kept[key]) if key in kept else None)
                        assert target[: length or 0] == kept.get(key, b"")
                        assert not any(target[length or 0 :])
                    case 7:
                        if kept.get(key):
                            with pytest.raises(BufferTooSmall):
                                store.get_into(key, bytearray(len(kept[key]) - 1))
                    case 8:
                        for wrong in (bytes(9), memoryview(bytearray(18))[::2], object()):
                            with pytest.raises(InvalidArgument):
                                store.get_into(key, wrong)
                    case 9:
                        assert store.exists_many([*kept, "missing"]) == [True] * len(kept) + [False]
                        assert store.match_prefix([*kept, "missing", *kept]) == len(kept)
                    case 10:
                        assert store.remove(key) is (kept.pop(key, None) is not None)
                    case 11:
                        if key in kept:
                            assert store.stat(key).size_bytes == len(kept[key])
                            assert store.touch(key)
                            assert store.get_tensor(key).tobytes() == kept[key]

        assert in_threads(16, work) == []


# ---- the interpreter's end

BUSY = """
import atexit, sys, threading
from mooncake_client import ClosedError, Store, StoreError
store = Store(lane=sys.argv[1], tenant="ends", rpc_timeout_ms=600_000)
value = bytes(1 << 20)
begun = threading.Semaphore(0)
def work(who, turns=10**9):
    try:
        for _ in range(turns):
            store.put(who, value, replace=True)
            assert store.get(who) == value
            begun.release()
    except ClosedError: pass
"""


@pytest.mark.parametrize("end", ["", "sys.exit(5)", "raise SystemExit(5)", "import os; os._exit(5)", "1 / 0"])
def test_the_interpreter_ends_amid_calls_of_daemon_threads(shared: Store, end: str) -> None:
    ended = run(
        BUSY
        + f"""
for who in range(4): threading.Thread(target=work, args=(who,), daemon=True).start()
for _ in range(8): begun.acquire()
{end}
""",
        shared.lane,
    )
    assert ended.returncode == (1 if "/" in end else 5 if end else 0), ended.stderr
    assert ("ZeroDivisionError" in ended.stderr) if "/" in end else ended.stderr == ""
    assert "Fatal" not in ended.stderr


def test_the_interpreter_waits_for_threads_of_its_own_and_the_store_serves_them(shared: Store) -> None:
    ended = run(
        BUSY
        + """
threads = [threading.Thread(target=work, args=(who, 20)) for who in range(4)]
for thread in threads: thread.start()
print("the main thread ends", flush=True)
""",
        shared.lane,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the main thread ends\n", "")


def test_the_store_serves_what_the_program_does_at_exit_or_says_that_it_is_closed(shared: Store) -> None:
    ended = run(
        """
import atexit
def last(when):
    try: print(when, store.get("k"))
    except ClosedError: print(when, "closed")
atexit.register(last, "registered before the store")
"""
        + BUSY
        + """
store.put("k", b"v", replace=True)
atexit.register(last, "registered after the store")
""",
        shared.lane,
    )
    # Last registered, first called.
    assert ended.stdout == "registered after the store b'v'\nregistered before the store closed\n"
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_interpreter_ends_with_a_thread_in_a_read_that_never_would(lane: str, slow: SlowNode) -> None:
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            BUSY + "threading.Thread(target=lambda: store.get('k'), daemon=True).start()\n"
            "sys.stdin.readline()\n",
            lane,
        ],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            # The value lies under another tenant than BUSY's, so this one is held for it.
            slow.hold(b"k", MIB, tenant="ends")
            assert slow.begun.get(timeout=HANG_S) == "read"
            _, errors = process.communicate("\n", timeout=HANG_S)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "Fatal" not in errors


def test_it_does_not_matter_which_thread_imports_first() -> None:
    ended = run(
        """
import _thread, sys
done = _thread.allocate_lock(); done.acquire()
def first():
    global Store
    from mooncake_client import Store
    done.release()
_thread.start_new_thread(first, ())
done.acquire()
with Store.embedded("1mb") as store:
    store.put("k", b"v")
    print(store.get("k"))
"""
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "b'v'\n", "")
