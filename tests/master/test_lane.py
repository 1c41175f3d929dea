"""The master's lane over real sockets: who may say what, hostile bytes, and calls that wait for a node."""

from __future__ import annotations

import contextlib
import os
import random
import select
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from lane_peer import CLIENT, DATA, HANG_S, HEADER_BYTES, NODE, VERB, Closed, LanePeer
from processes import wait_until

from mooncake_store import _core
from mooncake_store.status import Status

MIB = 1 << 20


@pytest.fixture
def master() -> Iterator[_core.Master]:
    master = _core.Master(lane_host="127.0.0.1", lane_threads=2, seed=1, software="9.9-test")
    master.start()
    yield master
    master.check_invariants()
    master.stop()


@pytest.fixture
def client(master: _core.Master) -> Iterator[LanePeer]:
    with LanePeer(master.lane_port) as peer:
        peer.open_session()
        yield peer


@pytest.fixture
def node(master: _core.Master) -> Iterator[LanePeer]:
    with LanePeer(master.lane_port, NODE) as peer:
        peer.open_session()
        peer.mount(MIB)
        yield peer


def reconnected(master: _core.Master, peer: LanePeer, role: int) -> LanePeer:
    """Another connection of the same process, speaking for the same session."""
    again = LanePeer(master.lane_port, role, process=peer.process)
    again.session, again.sequences = peer.session, peer.sequences
    status, _ = again.ask("heartbeat", _core.encode_prefix(again.session))
    assert status == Status.OK
    return again


# ---- hello


def test_welcome_names_version_master_and_software(master: _core.Master, client: LanePeer) -> None:
    assert client.welcome == {"version": 1, "process": master.uuid, "software": "9.9-test"}


def test_every_answer_carries_the_epoch(master: _core.Master, client: LanePeer) -> None:
    client.send("ping", b"")
    header, body = client.receive()
    assert header["epoch"] == master.epoch == 1
    assert body == b""


def test_versions_that_do_not_meet_are_refused_naming_both(master: _core.Master) -> None:
    """UP 21: and counted."""
    with LanePeer(master.lane_port, hello=False) as peer:
        body = _core.encode_hello(CLIENT, bytes(16), software="7.0-peer", version_min=7, version_max=9)
        status, body = peer.ask("hello", body)
        assert status == Status.VERSION_MISMATCH
        for text in (b"7.0-peer", b"7-9", b"9.9-test", b"1-1"):
            assert text in body
        with pytest.raises(Closed):
            peer.receive()
    assert master.stats()["lane_version_refusals_total"] == 1


def test_data_role_is_refused(master: _core.Master) -> None:
    with LanePeer(master.lane_port, hello=False) as peer:
        status, body = peer.ask("hello", _core.encode_hello(DATA, bytes(16)))
        assert status == Status.ILLEGAL_CLIENT
        assert b"master" in body


def test_first_frame_other_than_hello_ends_the_connection(master: _core.Master) -> None:
    with LanePeer(master.lane_port, hello=False) as peer:
        status, _ = peer.ask("ping", b"")
        assert status == Status.MALFORMED
        with pytest.raises(Closed):
            peer.receive()


def test_hello_of_another_protocol_ends_the_connection(master: _core.Master) -> None:
    with LanePeer(master.lane_port, hello=False) as peer:
        hello = bytearray(_core.encode_hello(CLIENT, bytes(16)))
        hello[:4] = b"MCS2"
        status, _ = peer.ask("hello", bytes(hello))
        assert status == Status.MALFORMED
        with pytest.raises(Closed):
            peer.receive()


# ---- who may say what


def test_verbs_of_the_other_role_are_refused_and_the_connection_lives(
    client: LanePeer, node: LanePeer
) -> None:
    status, body = client.ask("mount", _core.encode_mount(client.session, 1, 0, bytes(16), []))
    assert status == Status.ILLEGAL_CLIENT
    assert b"mount" in body
    status, _ = node.ask("exists", _core.encode_keys_request(node.session, [b"k"]))
    assert status == Status.ILLEGAL_CLIENT
    status, _ = client.ask("read", b"")
    assert status == Status.ILLEGAL_CLIENT
    assert client.exists(b"k") == [Status.OBJECT_NOT_FOUND]


def test_unknown_session_is_told(client: LanePeer) -> None:
    status, _ = client.ask("exists", _core.encode_keys_request(client.session + 1, [b"k"]))
    assert status == Status.SESSION_UNKNOWN


def test_pipelined_requests_are_each_answered(client: LanePeer, node: LanePeer) -> None:
    client.put(b"here")
    bodies = [_core.encode_keys_request(client.session, [key]) for key in (b"here", b"gone") * 50]
    ids = [client.send("exists", body) for body in bodies]
    answers = [_core.parse_statuses(client.answer_to(request_id)[1]) for request_id in reversed(ids)]
    assert answers == [[Status.OBJECT_NOT_FOUND], [Status.OK]] * 50


# ---- hostile bytes


def test_malformed_body_is_answered_and_ends_the_connection(master: _core.Master, client: LanePeer) -> None:
    status, _ = client.ask("exists", b"\x01\x02\x03")
    assert status == Status.MALFORMED
    with pytest.raises(Closed):
        client.receive()
    assert master.stats()["lane_malformed_total"] == 1


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\x80\x04\x95" + bytes(range(255, 100, -1)), id="longer than a header"),
        pytest.param(b"GET / HTTP/1.0\r\n\r\n", id="shorter than a header"),
        pytest.param(b"\xff" * HEADER_BYTES, id="a header of ones"),
    ],
)
def test_bytes_that_are_no_frame_are_counted_and_end_the_connection(
    master: _core.Master, sent: bytes
) -> None:
    """UP 21: though no frame ever came of them."""
    with socket.create_connection(("127.0.0.1", master.lane_port), HANG_S) as peer:
        peer.sendall(sent)
        peer.shutdown(socket.SHUT_WR)
        assert peer.recv(1) == b""
    wait_until(lambda: master.stats()["lane_malformed_total"] == 1, "counted")


def test_a_connection_without_a_word_is_no_garbage(master: _core.Master) -> None:
    """As a load balancer looks whether a port is open."""
    with socket.create_connection(("127.0.0.1", master.lane_port), HANG_S) as peer:
        peer.shutdown(socket.SHUT_WR)
        assert peer.recv(1) == b""
    wait_until(lambda: master.stats()["lane_connections_count"] == 0, "ended")
    assert master.stats()["lane_malformed_total"] == 0


def test_answer_to_no_question_ends_the_connection(client: LanePeer) -> None:
    client.send("retire", _core.encode_retire_reply(1, [1]), flags=1)
    with pytest.raises(Closed):
        client.receive()


def test_late_or_invented_confirmations_are_ignored(client: LanePeer, node: LanePeer) -> None:
    [(replica, _)] = client.put(b"k")
    node.confirm(12345, [replica])
    status, _ = node.ask("ping", b"")
    assert status == Status.OK
    assert client.exists(b"k") == [Status.OK]


def test_random_bytes_only_end_their_own_connection(master: _core.Master, client: LanePeer) -> None:
    rng = random.Random(7)
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", master.lane_port), timeout=HANG_S) as raw:
            raw.sendall(rng.randbytes(rng.randrange(1, 400)))
            raw.shutdown(socket.SHUT_WR)
            while True:
                try:
                    if not raw.recv(4096):
                        break
                except ConnectionResetError:
                    break
    assert client.exists(b"k") == [Status.OBJECT_NOT_FOUND]


def test_random_bodies_of_every_verb_never_stop_the_master(master: _core.Master, client: LanePeer) -> None:
    rng = random.Random(11)
    for verb in VERB:
        for role in (CLIENT, NODE):
            for _ in range(5):
                with LanePeer(master.lane_port, role) as peer:
                    body = client.session.to_bytes(8, "little") + rng.randbytes(rng.randrange(0, 200))
                    peer.send(verb, rng.choice([body, body[:24] + bytes(4), rng.randbytes(40)]))
                    with contextlib.suppress(Closed):
                        peer.receive()
    assert client.exists(b"k") == [Status.OBJECT_NOT_FOUND]


# ---- objects, and a node that confirms when the test says so


def test_put_lookup_exists_round_trip(client: LanePeer, node: LanePeer) -> None:
    assert client.exists(b"k") == [Status.OBJECT_NOT_FOUND]
    places = client.put(b"k", 4096)
    assert client.exists(b"k", b"other") == [Status.OK, Status.OBJECT_NOT_FOUND]
    [(status, _, size, lease_ms, found)] = client.lookup(b"k")
    assert (status, size, found) == (Status.OK, 4096, places)
    assert lease_ms > 0


def test_remove_is_answered_when_the_node_confirms(
    master: _core.Master, client: LanePeer, node: LanePeer
) -> None:
    [(replica, _)] = client.put(b"k")
    request = client.send("remove", client.remove_body(b"k"))
    command_id, replicas = node.receive_retire()
    assert replicas == [replica]
    assert client.exists(b"k") == [Status.OBJECT_NOT_FOUND]  # gone at once, though the remove is unanswered
    assert master.stats()["parked_calls_count"] == 1
    node.confirm(command_id, [replica])
    status, body = client.answer_to(request)
    assert (status, _core.parse_statuses(body)) == (Status.OK, [Status.OK])
    assert master.stats()["retire_queue_count"] == 0


def test_remove_is_answered_when_the_node_stays_silent() -> None:
    master = _core.Master(lane_host="127.0.0.1", remove_confirm_timeout_ms=150)
    master.start()
    with LanePeer(master.lane_port) as client, LanePeer(master.lane_port, NODE) as node:
        client.open_session()
        node.open_session()
        node.mount(MIB)
        client.put(b"k")
        status, body = client.ask("remove", client.remove_body(b"k"))
        assert (status, _core.parse_statuses(body)) == (Status.OK, [Status.OK])
        assert master.stats()["confirm_wait_timeouts_total"] == 1
        assert master.stats()["retire_queue_count"] == 1
    master.stop()


@pytest.mark.parametrize("verb", ["remove", "put_end"])
def test_what_a_later_master_must_know_is_answered_once_it_is_kept(verb: str) -> None:
    """An earlier master ruled, so some node may still come with a value of this key."""
    master = _core.Master(
        lane_host="127.0.0.1", epoch=2, keeps_tombstones=True, remove_confirm_timeout_ms=HANG_S * 1_000
    )
    master.start()
    with LanePeer(master.lane_port) as client, LanePeer(master.lane_port, NODE) as node:
        client.open_session()
        node.open_session()
        node.mount(MIB)
        if verb == "remove":
            body = client.remove_body(b"k")
        else:
            _, put_id, [(replica, _)] = client.put_start(b"k", 100)
            written = [(put_id, [(replica, int(Status.OK))])]
            body = _core.encode_put_end(client.session, next(client.sequences), written)
        request = client.send(verb, body)
        client.exists(b"k")  # what was asked before it has been looked at
        assert master.stats()["parked_calls_count"] == 1
        deadline = time.monotonic() + HANG_S
        while not _core.parse_tombstones(master.tombstones)["keys"]:
            assert time.monotonic() < deadline
        assert master.stats()["parked_calls_count"] == 1
        master.tombstones_kept(master.tombstones_generation)
        status, _ = client.answer_to(request)
        assert status == Status.OK
    master.stop()


def test_what_nobody_keeps_is_answered_after_the_timeout() -> None:
    master = _core.Master(
        lane_host="127.0.0.1", epoch=2, keeps_tombstones=True, remove_confirm_timeout_ms=150
    )
    master.start()
    with LanePeer(master.lane_port) as client:
        client.open_session()
        status, body = client.ask("remove", client.remove_body(b"k"))
        assert (status, _core.parse_statuses(body)) == (Status.OK, [Status.OBJECT_NOT_FOUND])
        assert master.stats()["confirm_wait_timeouts_total"] == 1
    master.stop()


def test_a_put_is_answered_when_the_node_has_heard_that_the_old_value_was_evicted(
    master: _core.Master, client: LanePeer, node: LanePeer
) -> None:
    [(old, _)] = client.put(b"k", MIB // 2 + 1)
    waits = client.send("put_start", client.put_start_body(b"m", MIB // 2 + 1))
    command_id, replicas = node.receive_retire()
    assert replicas == [old]
    with LanePeer(master.lane_port, NODE) as other:
        other.open_session()
        other.mount(4 * MIB, "segment-b", "tcp://127.0.0.1:2")
        assert client.answer_to(waits)[0] == Status.OK
        _, put_id, [(replica, _)] = client.put_start(b"k", 100)
        written = [(put_id, [(replica, int(Status.OK))])]
        request = client.send(
            "put_end", _core.encode_put_end(client.session, next(client.sequences), written)
        )
        assert client.exists(b"k") == [Status.OK]
        assert master.stats()["parked_calls_count"] == 1
        node.confirm(command_id, [old])
        assert client.answer_to(request)[0] == Status.OK


def test_retire_is_repeated_on_the_nodes_next_connection(
    master: _core.Master, client: LanePeer, node: LanePeer
) -> None:
    [(replica, _)] = client.put(b"k")
    request = client.send("remove", client.remove_body(b"k"))
    first, _ = node.receive_retire()
    node.close()
    with reconnected(master, node, NODE) as again:
        command_id, replicas = again.receive_retire()
        assert replicas == [replica]
        assert command_id > first
        again.confirm(command_id, replicas)
        status, _ = client.answer_to(request)
        assert status == Status.OK


def test_parked_put_is_granted_when_the_node_frees_space(client: LanePeer, node: LanePeer) -> None:
    [(replica, _)] = client.put(b"old", MIB // 2 + 1)
    request = client.send("put_start", client.put_start_body(b"new", MIB // 2 + 1))
    command_id, replicas = node.receive_retire()
    assert replicas == [replica]
    node.confirm(command_id, replicas)
    status, body = client.answer_to(request)
    assert status == Status.OK
    assert _core.parse_put_start_reply(body)[0][0] == Status.OK


def test_repeat_over_another_connection_gets_the_same_grant(
    master: _core.Master, client: LanePeer, node: LanePeer
) -> None:
    body = client.put_start_body(b"k", 4096)
    first = client.ask("put_start", body)
    with reconnected(master, client, CLIENT) as other:
        assert other.ask("put_start", body) == first
    assert master.execute(VERB["put_start"], body) == first


def test_requests_parked_on_a_connection_that_ends_are_dropped(
    master: _core.Master, client: LanePeer, node: LanePeer
) -> None:
    [(replica, _)] = client.put(b"k")
    with reconnected(master, client, CLIENT) as doomed:
        doomed.send("remove", client.remove_body(b"k"))
        command_id, _ = node.receive_retire()
    node.confirm(command_id, [replica])
    assert node.ask("ping", b"")[0] == Status.OK
    assert client.exists(b"k") == [Status.OBJECT_NOT_FOUND]


def test_stop_ends_connections_with_calls_parked(
    client: LanePeer, node: LanePeer, master: _core.Master
) -> None:
    client.put(b"k")
    client.send("remove", client.remove_body(b"k"))
    node.receive_retire()
    master.stop()
    with pytest.raises(Closed):
        client.receive()


# ---- many at once


def test_many_clients_put_and_remove_while_space_runs_out(master: _core.Master) -> None:
    """Eight clients on two lane threads with a node of room for a part of their values: evictions, parked
    puts and removes cross each other, and a node's connection is lost now and then."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def run_node(name: str) -> None:
        process = os.urandom(16)
        with LanePeer(master.lane_port, NODE, process=process) as node:
            node.open_session()
            node.mount(MIB, name)
            ready.release()
            connection, confirmed = node, 0
            while not stop.is_set():
                if not connection.kept and not select.select([connection.socket], [], [], 0.05)[0]:
                    continue
                command_id, replicas = connection.receive_retire()
                confirmed += 1
                if confirmed % 40 == 0:
                    connection.close()
                    connection = reconnected(master, node, NODE)
                else:
                    connection.confirm(command_id, replicas)
            connection.close()

    def run_client(number: int) -> None:
        rng = random.Random(number)
        with LanePeer(master.lane_port) as client:
            client.open_session()
            for _ in range(60):
                key = b"key-%d" % rng.randrange(12)
                if rng.random() < 0.3:
                    status, _ = client.ask("remove", client.remove_body(key))
                    assert status == Status.OK
                    continue
                status, put_id, places = client.put_start(key, rng.choice([4096, 200_000, 400_000]))
                if status == Status.OK:
                    results = [(replica, int(Status.OK)) for replica, _ in places]
                    body = _core.encode_put_end(client.session, next(client.sequences), [(put_id, results)])
                    assert client.ask("put_end", body)[0] == Status.OK
                else:
                    assert status in (
                        Status.OBJECT_ALREADY_EXISTS,
                        Status.REPLICA_IS_NOT_READY,
                        Status.NO_AVAILABLE_HANDLE,
                    )

    def guarded(work: object, *arguments: object) -> None:
        try:
            work(*arguments)  # type: ignore[operator]
        except BaseException as error:
            failures.append(error)
            ready.release()

    ready = threading.Semaphore(0)
    nodes = [threading.Thread(target=guarded, args=(run_node, name)) for name in ("a", "b")]
    for thread in nodes:
        thread.start()
        assert ready.acquire(timeout=HANG_S)
    clients = [threading.Thread(target=guarded, args=(run_client, number)) for number in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join(HANG_S * 3)
    stop.set()
    for thread in nodes:
        thread.join(HANG_S)
    assert not failures
    master.check_invariants()
    assert master.stats()["parked_calls_count"] == 0
