"""What users of such stores suffer from when processes die, stop or are slow, with the right value of each.

Numbered as in the list of user problems (UP). Real processes, because they are killed and stopped. What takes
time there is here a count of dials or a condition; the seconds are measured by benchmarks/faults.py.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import processes
import pytest
from processes import Process, metric, wait_until
from relay import HOST, Dials, Relay

from mooncake_client import Store
from mooncake_client.records import Absence
from mooncake_store.errors import NoSpace, StoreError

MIB = 1 << 20
STRIPES = 2  # connections over which a get of some MiB travels
CALL_MS = 60_000  # far beyond what any of these calls may take
HANG_S = processes.HANG_S

KEYS = [f"k{index}" for index in range(300)]
VALUE_OF = {key: random.Random(key).randbytes(4_000) for key in KEYS}


def turns(few: int, many: int) -> pytest.MarkDecorator:
    """How often: few times each time, as often as the list of user problems asks for every night."""
    return pytest.mark.parametrize("turns", [few, pytest.param(many, marks=pytest.mark.nightly)])


def start_node(stack: ExitStack, address: str, *flags: str) -> Process:
    node = stack.enter_context(processes.node(address, *flags))
    node.wait_for(processes.NODE_READY)
    return node


def relayed_node(stack: ExitStack, address: str, *flags: str) -> tuple[Process, Relay]:
    """A node that clients reach through a relay only, and not by its memory."""
    port = processes.free_port()
    relay = stack.enter_context(Relay(port))
    own = (f"--data_port={port}", f"--advertise_host={HOST}", "--shared_memory=off")
    return start_node(stack, address, *own, *flags), relay


def in_thread(call: Callable[[], object]) -> Callable[[], object]:
    """Begins a call at once; what is returned waits for its answer, which may be the error that it raised."""
    answers: list[object] = []

    def work() -> None:
        try:
            answers.append(call())
        except StoreError as error:
            answers.append(error)

    thread = threading.Thread(target=work)
    thread.start()

    def answer() -> object:
        thread.join(HANG_S)
        return answers[0]

    return answer


def read_one(store: Store, key: str) -> object:
    return store.get(key, timeout_ms=CALL_MS)


def read_in_batch(store: Store, key: str) -> object:
    return store.get_many([key, "none"], timeout_ms=CALL_MS)[0]


def read_into(store: Store, key: str) -> object:
    target = bytearray(16 * MIB)
    store.get_into(key, target, timeout_ms=CALL_MS)
    return bytes(target)


@pytest.mark.slow
@turns(1, 350)
@pytest.mark.parametrize("read", [read_one, read_in_batch, read_into])
def test_a_slow_read_never_sees_the_value_that_took_its_memory(
    read: Callable[[Store, str], object], turns: int
) -> None:
    """UP 1: a get crawls, its value is evicted, others want its memory: not one byte of theirs is read."""
    with processes.master(0, "--default_kv_lease_ttl=500ms") as master, ExitStack() as stack:
        address = processes.address_of(master)
        _, relay = relayed_node(stack, address, "--global_segment_size=48mb")
        writer, reader = stack.enter_context(Store(address)), stack.enter_context(Store(address))
        mine, theirs = b"\xaa" * (16 * MIB), b"\xbb" * (4 * MIB)
        held = 0
        for _ in range(turns):
            wait_until(lambda: put_or_refused(writer, "mine", mine, pinned=False) == "stored", "room for it")
            relay.slow("down")
            answer = in_thread(lambda: read(reader, "mine"))
            relay.wait_crawling(STRIPES)
            is_held = push_out(writer, theirs)
            relay.hurry()
            # A machine that stands still for long may end the read itself; that is no turn.
            assert answer() == mine or not is_held
            held += is_held
            if not is_held:
                writer.remove_many(THEIRS)  # they have all of it, and are pinned
            wait_until(lambda: put_or_refused(writer, "last", theirs) != "refused", "its memory used again")
            assert writer.get("last") == theirs
            assert writer.get("mine") is None
            assert writer.remove_many([*THEIRS, "last"]).count(True) >= (2 if is_held else 1)
        assert held >= 0.9 * turns


THEIRS = [f"theirs {number}" for number in range(12)]


def push_out(writer: Store, value: bytes) -> bool:
    """Fills a node with pinned values: "mine", which is being read, is all that can go. What it lies on
    returns after the read only: whether it is held still."""
    stored = [put_or_refused(writer, name, value) for name in THEIRS]
    assert stored.count("stored") > 0
    assert writer.why("mine").reason is Absence.EVICTED
    return "refused" in stored


READER = """
import sys
from mooncake_client import Store
with Store(sys.argv[1]) as store:
    print("ready", flush=True)
    for key in sys.stdin:
        value = store.get(key.strip(), timeout_ms=60_000)
        print("miss" if value is None else f"{len(value)} {sorted(set(value))}", flush=True)
"""


@pytest.mark.slow
@turns(1, 100)
def test_a_reader_stopped_amid_a_read_never_sees_the_value_that_took_its_memory(turns: int) -> None:
    """UP 1: the reader's process stands still while its value goes and others want the memory."""
    with processes.master(0, "--default_kv_lease_ttl=500ms") as master, ExitStack() as stack:
        address = processes.address_of(master)
        _, relay = relayed_node(stack, address, "--global_segment_size=48mb")
        writer = stack.enter_context(Store(address))
        reader = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", READER, address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(reader.kill)
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        mine = b"\xaa" * (16 * MIB)
        for _ in range(turns):
            wait_until(lambda: put_or_refused(writer, "mine", mine, pinned=False) == "stored", "room for it")
            relay.slow("down")
            reader.stdin.write("mine\n")
            reader.stdin.flush()
            relay.wait_crawling(STRIPES)
            processes.stop(reader.pid)
            push_out(writer, b"\xbb" * (4 * MIB))
            relay.hurry()
            reader.send_signal(signal.SIGCONT)
            assert reader.stdout.readline() in (f"{16 * MIB} [{0xAA}]\n", "miss\n")
            assert writer.remove_many(THEIRS).count(True) >= 1


def put_or_refused(store: Store, key: str, value: bytes, pinned: bool = True) -> str:
    try:
        return store.put(key, value, hard_pin=pinned)
    except NoSpace:
        return "refused"


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["killed", "stopped", Dials.SILENT, Dials.RESET])
def test_one_lost_node_of_three_costs_its_keys_and_one_dial(fault: str | Dials) -> None:
    """UP 2: about 200 of 300 values, and misses for the rest; later calls do not dial the lost node
    again; puts go to the others, none fails."""
    with processes.master(0, "--client_ttl=600") as master, ExitStack() as stack:
        address = processes.address_of(master)
        for _ in range(2):
            start_node(stack, address)
        lost, relay = relayed_node(stack, address)
        store = stack.enter_context(Store(address))
        values = [VALUE_OF[key] for key in KEYS]
        assert store.put_many(KEYS, values) == ["stored"] * len(KEYS)
        assert store.get_many(KEYS) == values
        if fault == "killed":
            lost.end(signal.SIGKILL)
        elif fault == "stopped":
            lost.stop()
        else:
            assert isinstance(fault, Dials)
            relay.answer_dials(fault)
        first = store.get_many(KEYS, timeout_ms=CALL_MS)
        assert all(value in (None, VALUE_OF[key]) for key, value in zip(KEYS, first, strict=True))
        assert 50 < first.count(None) < 150
        dials, begin, calls = relay.dials, time.monotonic(), 200
        for _ in range(calls):
            found = store.get_many(KEYS)
            assert all(value in (None, VALUE_OF[key]) for key, value in zip(KEYS, found, strict=True))
            assert found.count(None) <= first.count(None)
        # Probes in the background, of the client and of the master, go with the time and not with the calls.
        probes = 2 + 2 * (time.monotonic() - begin)
        assert relay.dials - dials <= probes < calls / 2
        others = [f"new {key}" for key in KEYS]
        assert store.put_many(others, values) == ["stored"] * len(KEYS)
        assert store.get_many(others) == values
        assert not store.closed


@pytest.mark.slow
@pytest.mark.parametrize("same_address", [True, False])
def test_a_killed_master_is_replaced_and_no_other_process_is_touched(
    same_address: bool, tmp_path: Path
) -> None:
    """UP 3: an old and a new client read all 1,000, a new node is taken in, and 1,000 more puts work."""
    ports = [processes.free_port(), processes.free_port()]
    masters = ",".join(f"127.0.0.1:{port}" for port in ports)
    flags = [f"--state_file={tmp_path / 'reign.json'}"]
    values = {f"v{number}": random.Random(number).randbytes(3_000) for number in range(1_000)}
    with processes.master(ports[0], *flags) as first, ExitStack() as stack:
        processes.address_of(first)
        for _ in range(3):
            start_node(stack, masters)
        store = stack.enter_context(Store(masters))
        assert store.put_many(list(values), list(values.values())) == ["stored"] * len(values)
        first.end(signal.SIGKILL)
        second = stack.enter_context(processes.master(ports[0] if same_address else ports[1], *flags))
        second.wait_for(processes.MASTER_READY)
        wait_until(lambda: reads_all(store, values), "readable by the old client")
        with Store(masters) as new:
            assert reads_all(new, values)
        start_node(stack, masters, "--segment_name=joined")
        more = {f"more {key}": value for key, value in values.items()}
        assert store.put_many(list(more), list(more.values())) == ["stored"] * len(more)
        assert store.put("there", b"v", preferred_segments=["joined"]) == "stored"
        assert reads_all(store, {**values, **more})


def reads_all(store: Store, values: dict[str, bytes]) -> bool:
    """Whether all are there; other bytes than these are an error."""
    try:
        found = store.get_many(list(values))
    except StoreError:
        return False
    assert all(got in (None, value) for got, value in zip(found, values.values(), strict=True))
    return None not in found


@pytest.mark.slow
def test_a_writer_killed_amid_its_bytes_leaves_nothing_behind() -> None:
    """UP 4: nothing is visible of what it wrote, the key takes a put at once, and the space returns."""
    value, again = b"\xaa" * (8 * MIB), b"\xbb" * (8 * MIB)
    with processes.master() as master, ExitStack() as stack:
        address = processes.address_of(master)
        _, relay = relayed_node(stack, address, "--global_segment_size=64mb")
        store = stack.enter_context(Store(address))
        assert store.put("other", b"x" * MIB) == "stored"
        baseline = metric(master, "master_allocated_bytes")
        relay.slow("up")
        program = (
            "import sys; from mooncake_client import Store\n"
            f"Store(sys.argv[1]).put('k', {value[:1]!r} * {len(value)}, timeout_ms={CALL_MS})"
        )
        writer = stack.enter_context(subprocess.Popen([sys.executable, "-c", program, address]))
        stack.callback(writer.kill)
        relay.wait_crawling(1)
        assert store.exists("k") is False
        assert store.get("k") is None
        writer.kill()
        relay.hurry()
        assert store.exists("k") is False
        assert store.get("k") is None
        store.remove("k")
        assert store.put("k", again) == "stored"
        assert store.get("k") == again
        wait_until(
            lambda: metric(master, "master_allocated_bytes") == baseline + len(again), "the space back"
        )


@contextmanager
def memory_limit(limit_bytes: int) -> Iterator[Callable[[int], None]]:
    """A control group of that much memory; what is given moves a process in. Skips without the right."""
    name = f"mooncake-test-{os.getpid()}"
    for root, setting in (("memory/", "memory.limit_in_bytes"), ("", "memory.max")):
        group = Path("/sys/fs/cgroup") / root / name
        try:
            group.mkdir()
            (group / setting).write_text(str(limit_bytes))
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        break
    else:
        pytest.skip("this user may not make a control group with a memory limit")
    try:
        yield lambda pid: (group / "cgroup.procs").write_text(str(pid)) and None
    finally:
        group.rmdir()


@pytest.mark.slow
@turns(400, 20_000)
def test_a_full_node_takes_every_put_while_all_keys_are_asked_for(turns: int) -> None:
    """UP 7: the old goes although another client asks for all of it, and memory stays bounded."""
    value, count = random.Random(7).randbytes(MIB), turns
    with processes.master() as master, ExitStack() as stack:
        address = processes.address_of(master)
        node = start_node(stack, address, "--global_segment_size=64mb")
        store, other = stack.enter_context(Store(address)), stack.enter_context(Store(address))
        over = threading.Event()
        asked: list[int] = []
        outcomes: list[str] = []
        used_bytes: list[float] = []

        def ask() -> None:
            while not over.is_set():
                newest = len(outcomes)
                keys = [f"{number}" for number in range(max(0, newest - 200), newest + 100)]
                asked.append(sum(other.exists_many(keys)))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            for number in range(count):
                outcomes.append(store.put(f"{number}", value))
                if number % 8 == 0:
                    used_bytes.append(metric(master, "master_dram_used_bytes"))
        finally:
            over.set()
            asking.join(HANG_S)
        assert outcomes == ["stored"] * count
        assert len(asked) > 10
        assert store.get(f"{count - 1}") == value
        assert max(used_bytes) <= (0.9 * 64 + 1) * MIB + len(value)  # the watermark and one object
        assert metric(master, "master_evicted_key_count") >= count - 64
        assert resident_bytes(node) < (64 + 100) * MIB


@pytest.mark.slow
def test_a_node_under_a_memory_limit_is_not_killed_for_what_it_lends() -> None:
    """UP 7: 256 MiB lent in a control group of 384 MiB, filled several times over."""
    value = random.Random(8).randbytes(MIB)
    with memory_limit(384 * MIB) as confine, processes.master() as master, ExitStack() as stack:
        address = processes.address_of(master)
        node = stack.enter_context(processes.node(address, "--global_segment_size=256mb"))
        confine(node.pid)
        node.wait_for(processes.NODE_READY)
        store = stack.enter_context(Store(address))
        assert {store.put(f"{number}", value) for number in range(1_000)} == {"stored"}
        assert store.get("999") == value
        assert node.poll() is None


def resident_bytes(process: Process) -> int:
    with open(f"/proc/{process.pid}/status", encoding="ascii") as lines:
        [kilobytes] = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(kilobytes) << 10


@pytest.mark.slow
def test_a_master_stopped_for_longer_than_the_ttl_expires_nobody() -> None:
    """UP 9: it slept itself; when it goes on, every session lives and every value is there."""
    with processes.master(0, "--client_ttl=2") as master, ExitStack() as stack:
        address = processes.address_of(master)
        for _ in range(2):
            start_node(stack, address)
        store = stack.enter_context(Store(address))
        values = [VALUE_OF[key] for key in KEYS]
        assert store.put_many(KEYS, values) == ["stored"] * len(KEYS)
        master.stop()
        with pytest.raises(StoreError):
            store.exists("k0", timeout_ms=4_000)  # as long as that it stands still
        master.send(signal.SIGCONT)
        wait_until(lambda: reads_all(store, VALUE_OF), "readable again")
        assert metric(master, "master_sessions_expired_total") == 0
        assert metric(master, "master_segments_expelled_total") == 0


@pytest.mark.slow
def test_a_node_stopped_within_the_ttl_keeps_its_values_and_beyond_it_comes_back_empty() -> None:
    """UP 9: back within its time it has all its values; later nothing that it held is listed still."""
    with processes.master(0, "--client_ttl=12") as master, ExitStack() as stack:
        address = processes.address_of(master)
        node = start_node(stack, address)
        store = stack.enter_context(Store(address))
        values = [VALUE_OF[key] for key in KEYS]
        assert store.put_many(KEYS, values) == ["stored"] * len(KEYS)
        node.stop()
        stopped = time.monotonic()
        while time.monotonic() < stopped + 7:  # clients ask all that time, and tell the master
            with contextlib.suppress(StoreError):
                store.get_many(KEYS[:2], timeout_ms=3_000)
        node.send(signal.SIGCONT)
        wait_until(lambda: reads_all(store, VALUE_OF), "readable again")
        assert metric(master, "master_unreachable_reports_total") > 0
        assert metric(master, "master_probe_failures_total") > 0
        assert metric(master, "master_segments_expelled_total") == 0
        node.stop()
        wait_until(lambda: metric(master, "master_segments_expelled_total") == 1, "expelled")
        node.send(signal.SIGCONT)
        wait_until(lambda: len(store.segments()) == 1, "lent again")
        assert store.get_many(KEYS) == [None] * len(KEYS)
        wait_until(lambda: store.put_many(KEYS, values) == ["stored"] * len(KEYS), "room again")
        assert store.get_many(KEYS) == values
        assert store.segments()[0].replica_count == len(KEYS)


@pytest.mark.slow
def test_no_session_expires_while_every_core_is_taken() -> None:
    """UP 9: more busy processes than cores and large batches under way: heartbeats come in time."""
    with processes.master(0, "--client_ttl=3") as master, ExitStack() as stack:
        address = processes.address_of(master)
        for _ in range(2):
            start_node(stack, address, "--global_segment_size=96mb")
        store = stack.enter_context(Store(address))
        for _ in range(4):
            burner = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(burner.kill)
        keys, values = [f"b{number}" for number in range(16)], [bytes([n]) * 4 * MIB for n in range(16)]
        begin = time.monotonic()
        while time.monotonic() < begin + 6:  # twice client_ttl
            assert store.put_many(keys, values, replace=True) == ["stored"] * 16
            assert store.get_many(keys) == values
        assert metric(master, "master_sessions_expired_total") == 0
        assert metric(master, "master_segments_expelled_total") == 0


@pytest.mark.slow
@turns(5, 50)
def test_nodes_that_come_back_at_the_same_address_bring_no_old_metadata(turns: int) -> None:
    """UP 10: killed and started again on its port at once, over and over: old keys are misses, puts
    work, and at the end there are as many segments as nodes."""
    with processes.master() as master, ExitStack() as stack:
        address = processes.address_of(master)
        start_node(stack, address)
        flags = (f"--data_port={processes.free_port()}", "--segment_name=twice")
        store = stack.enter_context(Store(address))
        node = start_node(stack, address, *flags)
        for turn in range(turns):
            value = bytes([turn]) * 4_000
            old = [f"{turn} {key}" for key in KEYS[:50]]
            assert store.put_many(old, [value] * 50, preferred_segments=["twice"]) == ["stored"] * 50
            node.end(signal.SIGKILL)
            node = start_node(stack, address, *flags)
            wait_until(lambda: sorted(s.name for s in store.segments()).count("twice") == 1, "lent again")
            new = [f"new {key}" for key in old]
            assert (
                store.put_many(new, [b"\xbb" * 4_000] * 50, preferred_segments=["twice"]) == ["stored"] * 50
            )
            assert set(store.get_many(old)) <= {
                None,
                value,
            }  # its own neighbour may have some: never other bytes
            assert store.get_many(new) == [b"\xbb" * 4_000] * 50
        assert len(store.segments()) == 2


@pytest.mark.slow
def test_many_nodes_started_at_once_lend_different_segments() -> None:
    """UP 10: sixteen on one host, no port given: sixteen names and sixteen endpoints."""
    with processes.master() as master, ExitStack() as stack:
        address = processes.address_of(master)
        nodes = [stack.enter_context(processes.node(address, "--global_segment_size=1mb")) for _ in range(16)]
        for node in nodes:
            node.wait_for(processes.NODE_READY)
        with Store(address) as store:
            segments = store.segments()
        assert len({segment.name for segment in segments}) == 16
        assert len({segment.endpoints for segment in segments}) == 16


@pytest.mark.slow
def test_a_remove_works_at_once_whoever_has_read_or_reads() -> None:
    """UP 20: after a get, amid a slow one, twice, after exists; the slow reader gets its bytes."""
    value = b"\xaa" * (16 * MIB)
    with processes.master() as master, ExitStack() as stack:
        address = processes.address_of(master)
        _, relay = relayed_node(stack, address, "--global_segment_size=64mb")
        store, other = stack.enter_context(Store(address)), stack.enter_context(Store(address))
        assert store.put("k", value) == "stored"
        assert store.get("k") == value
        assert store.remove("k") is True
        wait_until(lambda: metric(master, "master_allocated_bytes") == 0, "the space back")
        assert store.remove("k") is False  # harmless

        assert store.put("k", value) == "stored"
        relay.slow("down")
        answer = in_thread(lambda: read_one(other, "k"))
        relay.wait_crawling(STRIPES)
        assert store.remove("k") is True
        assert store.get("k") is None
        relay.hurry()
        assert answer() == value
        wait_until(lambda: metric(master, "master_allocated_bytes") == 0, "the space back")

        assert store.put("k", value) == "stored"
        assert store.exists("k")
        assert store.remove("k") is True


@pytest.mark.slow
def test_what_is_pinned_or_touched_outlives_a_full_store() -> None:
    """UP 20: a pin holds until its end, and a touch makes a value the youngest."""
    value = random.Random(20).randbytes(MIB)
    with processes.master() as master, ExitStack() as stack:
        address = processes.address_of(master)
        start_node(stack, address, "--global_segment_size=32mb")
        store = stack.enter_context(Store(address))
        assert store.put("hard", value, hard_pin=True) == "stored"
        assert store.put("soft", value, soft_pin=True) == "stored"
        assert store.put("touched", value) == "stored"
        assert store.put("plain", value) == "stored"
        for number in range(100):
            assert store.put(f"{number}", value) == "stored"
            store.touch("touched")
        assert store.get_many(["hard", "soft", "touched", "plain"]) == [value, value, value, None]
        assert store.remove("hard") is True
        assert store.get("hard") is None
