"""A master that is killed and started again finds every value where it was: the nodes tell it.

Real processes, because they are killed.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import processes
import pytest

from mooncake_client import Store
from mooncake_store.errors import StoreError

KEYS = [f"k{index}" for index in range(300)]
VALUES = [random.Random(key).randbytes(3_000) for key in KEYS]


def wait_until_readable(store: Store, keys: list[str]) -> list[bytes | None]:
    """Misses are allowed while the nodes come back, wrong bytes never."""
    deadline = time.monotonic() + processes.HANG_S
    while time.monotonic() < deadline:
        try:
            found = store.get_many(keys)
        except StoreError:
            continue  # the master is not there yet
        for key, value in zip(keys, found, strict=True):
            assert value is None or value == VALUES[KEYS.index(key)]
        if all(value is not None for value in found):
            return found
    raise AssertionError("the values did not come back")


@pytest.mark.slow
@pytest.mark.parametrize("state_file", [True, False])
def test_every_value_is_readable_after_a_master_was_killed(state_file: bool, tmp_path: Path) -> None:
    port = processes.free_port()
    flags = [f"--state_file={tmp_path / 'reign.json' if state_file else 'none'}", "--client_ttl=2"]
    with processes.master(port, *flags) as first:
        address = processes.address_of(first)
        with processes.node(address) as one, processes.node(address) as other, Store(address) as store:
            for node in (one, other):
                node.wait_for(processes.NODE_READY)
            assert store.put_many(KEYS, VALUES) == ["stored"] * len(KEYS)
            assert store.put(KEYS[0], VALUES[0], replace=True) == "stored"
            store.remove(KEYS[1])
            first.end(signal.SIGKILL)
            with processes.master(port, *flags) as second:
                second.wait_for(processes.MASTER_READY)
                kept = [KEYS[0], *KEYS[2:]]
                wait_until_readable(store, kept)
                assert store.get(KEYS[1]) is None
                store.remove(KEYS[2])
                assert store.put(KEYS[1], VALUES[1]) == "stored"
                second.end(signal.SIGKILL)
                with processes.master(port, *flags) as third:
                    third.wait_for(processes.MASTER_READY)
                    wait_until_readable(store, [*KEYS[:2], *KEYS[3:]])
                    assert store.get(KEYS[2]) is None
