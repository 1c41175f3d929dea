"""_core.Master as Python uses it: settings, submit with callbacks, execute, and its end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lane_peer import HANG_S, NODE, VERB, Closed, LanePeer

from mooncake_store import _core
from mooncake_store.status import Status

MIB = 1 << 20


@pytest.fixture
def master() -> Iterator[_core.Master]:
    master = _core.Master(lane_host="127.0.0.1", remove_confirm_timeout_ms=30_000)
    master.start()
    yield master
    master.stop()


def open_session(master: _core.Master) -> int:
    status, body = master.execute(VERB["open_session"], _core.encode_open_session(bytes(16), "t", "h", ""))
    assert status == Status.OK
    return _core.parse_open_session_reply(body)["session"]


@pytest.fixture
def parked(master: _core.Master) -> Iterator[tuple[bytes, LanePeer]]:
    """The body of a remove that will wait for a node, and that node."""
    with LanePeer(master.lane_port) as client, LanePeer(master.lane_port, NODE) as node:
        client.open_session()
        node.open_session()
        node.mount(MIB)
        client.put(b"k")
        yield client.remove_body(b"k"), node


# ---- settings


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"client_ttl": 1}, TypeError, "client_ttl"),
        ({"client_ttl_ms": 0}, ValueError, "client_ttl_ms must be an integer of 1"),
        ({"lane_port": 65_536}, ValueError, "65536"),
        ({"lane_port": "80"}, ValueError, "'80'"),
        ({"eviction_ratio": 1.5}, ValueError, "eviction_ratio"),
        ({"allocation": "best"}, ValueError, "free_ratio_first"),
        ({"uuid": b"short"}, ValueError, "16"),
        ({"epoch": 1 << 24}, ValueError, "epoch"),
        ({"lane_host": 5}, ValueError, "lane_host must be a str"),
        ({"evict_soft_pinned": 1}, ValueError, "evict_soft_pinned must be a bool"),
    ],
)
def test_bad_setting_is_refused_by_name(settings: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        _core.Master(**settings)


def test_settings_are_kept() -> None:
    master = _core.Master(uuid=bytes(range(16)), epoch=7)
    assert (master.uuid, master.epoch, master.lane_port) == (bytes(range(16)), 7, 0)


def test_two_masters_draw_different_uuids() -> None:
    assert _core.Master().uuid != _core.Master().uuid


def test_busy_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
            _core.Master(lane_host="127.0.0.1", lane_port=port).start()


# ---- submit


def test_answer_that_is_ready_comes_before_submit_returns(master: _core.Master) -> None:
    answers: list[tuple[int, bytes, int]] = []
    master.submit(
        VERB["open_session"],
        _core.encode_open_session(bytes(16), "t", "h", ""),
        lambda status, body: answers.append((status, body, threading.get_ident())),
    )
    [(status, body, thread)] = answers
    assert status == Status.OK
    assert _core.parse_open_session_reply(body)["epoch"] == 1
    assert thread == threading.get_ident()


def test_parked_answer_comes_from_another_thread(
    master: _core.Master, parked: tuple[bytes, LanePeer]
) -> None:
    body, node = parked
    came = threading.Event()
    answers: list[tuple[int, int]] = []

    def callback(status: int, _: bytes) -> None:
        answers.append((status, threading.get_ident()))
        came.set()

    master.submit(VERB["remove"], body, callback)
    assert not came.is_set()
    node.confirm(*node.receive_retire())
    assert came.wait(HANG_S)
    [(status, thread)] = answers
    assert status == Status.OK
    assert thread != threading.get_ident()


def test_callback_that_raises_is_reported_and_harms_nobody(
    master: _core.Master, parked: tuple[bytes, LanePeer], monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Any] = []
    came = threading.Event()

    def hook(report: Any) -> None:
        raised.append(report.exc_type)
        came.set()

    monkeypatch.setattr(sys, "unraisablehook", hook)

    def callback(_: int, __: bytes) -> None:
        raise KeyError("mine")

    master.submit(VERB["stats"], _core.encode_prefix(open_session(master)), callback)
    assert raised == [KeyError]
    came.clear()
    body, node = parked
    master.submit(VERB["remove"], body, callback)
    node.confirm(*node.receive_retire())
    assert came.wait(HANG_S)
    assert open_session(master)


def test_verb_that_is_no_request_to_a_master_is_refused(master: _core.Master) -> None:
    for verb in (0, 1, 9, 30, 33, 40, 42, 99, -1, 266):
        with pytest.raises(ValueError, match=f"verb {verb}"):
            master.execute(verb, b"")


def test_malformed_body_is_answered(master: _core.Master) -> None:
    status, body = master.execute(VERB["exists"], b"\x01")
    assert status == Status.MALFORMED
    assert len(body) > 2


def test_callback_may_hold_the_last_reference_to_its_master() -> None:
    master = _core.Master(lane_host="127.0.0.1", remove_confirm_timeout_ms=100)
    master.start()
    came = threading.Event()
    with LanePeer(master.lane_port) as client, LanePeer(master.lane_port, NODE) as node:
        client.open_session()
        node.open_session()
        node.mount(MIB)
        client.put(b"k")
        holder = [master]

        def callback(_: int, __: bytes, mine: list[_core.Master] = holder) -> None:
            mine.clear()
            came.set()

        master.submit(VERB["remove"], client.remove_body(b"k"), callback)
        del master
        assert came.wait(HANG_S)
        with pytest.raises(Closed):
            client.receive()


# ---- execute


def test_execute_waits_for_a_parked_answer(master: _core.Master, parked: tuple[bytes, LanePeer]) -> None:
    body, node = parked
    thread = threading.Thread(target=lambda: node.confirm(*node.receive_retire()))
    thread.start()
    status, answer = master.execute(VERB["remove"], body)
    thread.join()
    assert (status, _core.parse_statuses(answer)) == (Status.OK, [Status.OK])


def test_execute_gives_up_at_its_deadline(master: _core.Master, parked: tuple[bytes, LanePeer]) -> None:
    status, why = master.execute(VERB["remove"], parked[0], timeout_ms=20)
    assert status == Status.DEADLINE
    assert b"20 ms" in why


def test_ctrl_c_ends_a_blocked_execute(master: _core.Master, parked: tuple[bytes, LanePeer]) -> None:
    body, node = parked
    thread = threading.Thread(
        target=lambda: (
            node.receive_retire(),
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT),
        )
    )
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        master.execute(VERB["remove"], body, timeout_ms=60_000)
    thread.join()


# ---- the end


def test_stop_answers_parked_calls(master: _core.Master, parked: tuple[bytes, LanePeer]) -> None:
    answers: list[int] = []
    master.submit(VERB["remove"], parked[0], lambda status, _: answers.append(status))
    master.stop()
    assert answers == [Status.CLOSED]
    assert master.execute(VERB["remove"], parked[0])[0] == Status.CLOSED


def test_stop_before_start_and_twice() -> None:
    master = _core.Master()
    master.stop()
    master.stop()
    with pytest.raises(RuntimeError):
        master.start()


def test_interpreter_ends_with_a_master_running_and_a_call_parked() -> None:
    script = """
import threading
from lane_peer import LanePeer, NODE, VERB
from mooncake_store import _core
master = _core.Master(lane_host="127.0.0.1", remove_confirm_timeout_ms=60_000)
master.start()
client, node = LanePeer(master.lane_port), LanePeer(master.lane_port, NODE)
client.open_session()
node.open_session()
node.mount(1 << 20)
client.put(b"k")
master.submit(VERB["remove"], client.remove_body(b"k"), lambda status, body: print("answered", status))
blocked = (VERB["remove"], client.remove_body(b"k"))
threading.Thread(target=master.execute, args=blocked, daemon=True).start()
"""
    tests = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {tests!r})\n{script}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"answered {int(Status.CLOSED)}" in done.stdout


# ---- figures


def test_requests_are_counted_by_verb(master: _core.Master) -> None:
    session = open_session(master)
    for _ in range(3):
        master.execute(VERB["exists"], _core.encode_keys_request(session, [b"k"]))
    master.execute(VERB["exists"], _core.encode_keys_request(session + 1, [b"k"]))
    count, refused, _, buckets = master.request_histograms()["exists"]
    assert (count, refused, sum(buckets)) == (4, 1, 4)
    assert len(buckets) == len(_core.Master.LATENCY_EDGES_US) + 1
    assert master.stats()["lane_connections_count"] == 0
