"""A node that dies or hangs costs misses of what it held, and nothing else (user problem 2).

Real processes, because they are killed and stopped.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from processes import HANG_S, stop

from mooncake_client import Store
from mooncake_store import _core

KEYS = [f"k{index}" for index in range(100)]
VALUES = [random.Random(key).randbytes(20_000) for key in KEYS]
DEADLINE_MS = 60_000  # far beyond what any of these calls may take
STOPPED_MS = 20_000  # far beyond the 1.5 s after which a silent node is given up

NODE = """
import sys
from mooncake_store._core import Node
node = Node([("", 16 << 20)], lane=sys.argv[1], data_host="127.0.0.1")
node.start()
assert node.wait_mounted(30_000)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def node_process(lane: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", NODE, lane], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def lose(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Stopped or dead when this returns: a signal that is only on its way lets a read through."""
    if number == signal.SIGSTOP:
        stop(process.pid)
    else:
        process.send_signal(number)
        process.wait(HANG_S)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_node_costs_misses_and_no_refused_put(number: signal.Signals) -> None:
    master = _core.Master(client_ttl_ms=600_000)  # the master never helps by expiring the node
    master.start()
    lane = f"127.0.0.1:{master.lane_port}"
    try:
        with (
            node_process(lane),
            node_process(lane) as lost,
            Store(lane=lane, rpc_timeout_ms=DEADLINE_MS) as store,
        ):
            assert store.put_many(KEYS, VALUES) == ["stored"] * len(KEYS)
            assert store.get_many(KEYS) == VALUES
            lose(lost, number)
            first = store.get_many(KEYS, timeout_ms=STOPPED_MS)
            assert 0 < first.count(None) < len(KEYS)
            assert all(answer in (None, value) for answer, value in zip(first, VALUES, strict=True))
            assert store.get_many(KEYS) == first
            assert store.exists_many(KEYS) == [answer is not None for answer in first]
            others = [f"new {key}" for key in KEYS]
            assert store.put_many(others, VALUES) == ["stored"] * len(KEYS)
            assert store.get_many(others) == VALUES
            lost_keys = [key for key, answer in zip(KEYS, first, strict=True) if answer is None]
            again = [value for value, answer in zip(VALUES, first, strict=True) if answer is None]
            assert store.put_many(lost_keys, again) == ["stored"] * len(again)  # not "exists", then a miss
            assert store.get_many(lost_keys) == again
            if number == signal.SIGSTOP:
                lost.send_signal(signal.SIGCONT)
                while store.get_many(KEYS) != VALUES:  # the node is found again by itself
                    assert not store.closed
    finally:
        master.stop()


@pytest.mark.slow
def test_a_put_to_a_hung_node_goes_to_another() -> None:
    master = _core.Master(client_ttl_ms=600_000)
    master.start()
    lane = f"127.0.0.1:{master.lane_port}"
    try:
        with (
            node_process(lane),
            node_process(lane) as lost,
            Store(lane=lane, rpc_timeout_ms=DEADLINE_MS) as store,
        ):
            store.put_many(KEYS, VALUES)  # so that connections to both are open
            lose(lost, signal.SIGSTOP)
            others = [f"new {key}" for key in KEYS]
            assert store.put_many(others, VALUES, timeout_ms=STOPPED_MS) == ["stored"] * len(KEYS)
            assert store.get_many(others) == VALUES
    finally:
        master.stop()
