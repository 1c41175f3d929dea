"""What a program hears when a process that lent memory is killed: hits where another copy is, else clean
misses.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from dropin.conftest import MIB
from dropin.memory import Memory, pattern
from master.running import RunningMaster
from processes import stop

from mooncake_client.dropin import MooncakeDistributedStore, ReplicateConfig

LEND = """
import sys
from mooncake_client.dropin import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "x", 64 << 20, 0, "tcp", "", sys.argv[1]) == 0
print(store.get_hostname(), flush=True)
sys.stdin.readline()
store.close()
"""
SIZE = 64 << 10
CLEAN_MISSES = {-704, -703}


def lend(master: str) -> tuple[subprocess.Popen[str], str]:
    """A process that lends 64 MiB, and the name of its segment."""
    process = subprocess.Popen(
        [sys.executable, "-c", LEND, master], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def put(store: MooncakeDistributedStore, name: str, count: int, *segments: str) -> list[str]:
    config = ReplicateConfig()
    config.replica_num = len(segments)
    config.preferred_segments = list(segments)
    keys = [f"{name}{index}" for index in range(count)]
    values = [pattern(SIZE, index) for index in range(count)]
    assert store.put_batch(keys, values, config) == 0
    return keys


def test_copies_elsewhere_are_read_and_the_rest_are_misses() -> None:
    """Real Mooncake says that all exist, and fails their reads, until client_ttl has passed."""
    with RunningMaster() as daemon:
        master = f"127.0.0.1:{daemon.grpc_port}"
        dying, dying_name = lend(master)
        staying, staying_name = lend(master)
        reader = MooncakeDistributedStore()
        assert reader.setup("127.0.0.1", "x", 0, 16 * MIB, "tcp", "", master) == 0
        both = put(reader, "both", 8, dying_name, staying_name)
        alone = put(reader, "alone", 8, dying_name)
        os.kill(dying.pid, signal.SIGKILL)
        dying.wait()

        target = Memory(16 * SIZE)
        pointers = [target.ptr + index * SIZE for index in range(16)]
        answers = reader.batch_get_into([*both, *alone], pointers, [SIZE] * 16)
        assert answers[:8] == [SIZE] * 8
        assert set(answers[8:]) <= CLEAN_MISSES
        for index in range(8):
            assert target.bytes(index * SIZE, (index + 1) * SIZE) == pattern(SIZE, index)
        assert reader.batch_is_exist(alone) == [0] * 8
        assert reader.get_batch(alone) == [b""] * 8
        assert put(reader, "after", 4, dying_name) == [f"after{index}" for index in range(4)]
        assert reader.get("after3") == pattern(SIZE, 3)

        assert reader.close() == 0
        for process in (dying, staying):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.stdout.close()
            process.wait()


def test_calls_of_other_threads_go_on_while_one_waits_for_a_stopped_owner() -> None:
    """vLLM asks what exists from one thread while others load."""
    with RunningMaster() as daemon:
        master = f"127.0.0.1:{daemon.grpc_port}"
        stopped, stopped_name = lend(master)
        running, running_name = lend(master)
        store = MooncakeDistributedStore()
        assert store.setup("127.0.0.1", "x", 0, 16 * MIB, "tcp", "", master) == 0
        slow, fast = put(store, "slow", 1, stopped_name), put(store, "fast", 1, running_name)
        stop(stopped.pid)
        try:
            waited: list[bytes] = []
            loader = threading.Thread(target=lambda: waited.append(store.get(slow[0])))
            loader.start()
            answered = 0
            while loader.is_alive() and answered < 100:
                assert store.batch_is_exist(fast) == [1]
                assert store.get(fast[0]) == pattern(SIZE, 0)
                answered += 1
            assert answered == 100, "the others were held up until the slow call was over"
        finally:
            os.kill(stopped.pid, signal.SIGCONT)
        loader.join()
        assert waited in ([pattern(SIZE, 0)], [b""])

        assert store.close() == 0
        for process in (stopped, running):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.stdout.close()
            process.wait()
