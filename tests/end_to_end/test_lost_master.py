"""A master that is gone for good costs the engine one deadline, not one a call.

Real processes, because they are killed and stopped.
"""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack

import processes
import pytest

from mooncake_client import Store
from mooncake_store.errors import StoreError, Unavailable

# Of a call that would wait for it: far more than all need together.
LONG_MS = 20_000


def is_back(store: Store) -> bool:
    try:
        return store.exists("k") is False
    except Unavailable:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_calls_stop_waiting_for_a_master_that_all_have_waited_for(how: signal.Signals) -> None:
    port = processes.free_port()
    with processes.master(port) as first, Store(processes.address_of(first), rpc_timeout_ms=500) as store:
        assert store.exists("k") is False
        if how is signal.SIGSTOP:
            first.stop()
        else:
            first.end(how)
        for call in (store.exists, store.get, store.remove):
            with pytest.raises(Unavailable, match=r"no master was reached for \d+ s: ") as told:
                call("k", timeout_ms=LONG_MS)
            assert str(port) in str(told.value)
        with pytest.raises(StoreError, match="no master was reached"):
            store.put_many(["k", "l"], [b"", b""], timeout_ms=LONG_MS)
        if how is signal.SIGSTOP:
            first.send(signal.SIGCONT)
            processes.wait_until(lambda: is_back(store), "the master is reached again")
            return
        with processes.master(port) as second:
            second.wait_for(processes.MASTER_READY)
            # It is dialled by the call itself: nobody waits for the background to find it.
            assert store.exists("k", timeout_ms=LONG_MS) is False


@pytest.mark.slow
def test_a_call_that_meets_a_restart_waits_for_it() -> None:
    port = processes.free_port()
    answers: list[bool] = []
    with ExitStack() as stack:
        first = stack.enter_context(processes.master(port))
        patient = int(processes.HANG_S) * 1000
        store = stack.enter_context(Store(processes.address_of(first), rpc_timeout_ms=patient))
        assert store.exists("k") is False
        first.end(signal.SIGKILL)
        caller = threading.Thread(target=lambda: answers.append(store.exists("k")))
        caller.start()
        with processes.master(port) as second:
            second.wait_for(processes.MASTER_READY)
            caller.join()
    assert answers == [False]
