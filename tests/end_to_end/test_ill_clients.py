"""A client that is ill costs itself: half frames, answers that nobody reads, a thousand silent connections.

Real sockets and a real master and node, because it is their buffers and descriptors that must not run out.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from lane_peer import CLIENT, DATA, VERB, LanePeer

from mooncake_client import Store
from mooncake_store import _core

MIB = 1 << 20
VALUE = bytes(range(256)) * 200  # small enough to be copied into the answer
SILENT = 1_000
ROUNDS_WITHOUT_PROGRESS = 50
# What the operating system takes in for a peer that does not read, at most: both directions' buffers.
SOCKET_BYTES_MAX = 24 * MIB
DATA_WAITING_MAX = 4 * MIB
LANE_WAITING_MAX = 64 * MIB


@dataclass
class Pool:
    master: _core.Master
    node: _core.Node
    store: Store

    def port(self, role: int) -> int:
        if role == CLIENT:
            return self.master.lane_port
        return int(self.node.status()["data_endpoint"].rpartition(":")[2])

    def works(self) -> None:
        assert self.store.put("other", VALUE, replace=True) == "stored"
        assert self.store.get("other") == VALUE

    def served(self, role: int) -> int:
        """Requests of the kind that the deaf client sends, taken in so far."""
        if role == CLIENT:
            return self.master.stats()["segments_requests_total"]
        return dict(self.node.status()["stats"])["read_requests_total"]


@pytest.fixture
def pool() -> Iterator[Pool]:
    master = _core.Master(lane_host="127.0.0.1")
    master.start()
    lane = f"127.0.0.1:{master.lane_port}"
    node = _core.Node([("", 64 * MIB)], lane=lane, data_host="127.0.0.1")
    node.start()
    assert node.wait_mounted(30_000)
    with Store(lane=lane) as store:
        yield Pool(master, node, store)
    node.stop()
    master.stop()


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * SILENT
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"no more than {hard} descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


ROLES = pytest.mark.parametrize("role", [CLIENT, DATA], ids=["lane", "data"])


@ROLES
def test_a_thousand_connections_that_say_nothing_leave_others_alone(
    pool: Pool, role: int, many_descriptors: None
) -> None:
    with contextlib.ExitStack() as open_ones:
        for _ in range(SILENT):
            silent = socket.create_connection(("127.0.0.1", pool.port(role)))
            open_ones.enter_context(contextlib.closing(silent))
        pool.works()


@ROLES
def test_half_a_frame_and_then_silence_leaves_others_alone(pool: Pool, role: int) -> None:
    with contextlib.ExitStack() as open_ones:
        for cut in range(1, 60):
            peer = open_ones.enter_context(LanePeer(pool.port(role), role))
            frame = _core.encode_frame(VERB["ping"], b"x" * 1_000, 7)
            peer.socket.sendall(frame[:cut])
        pool.works()
        pool.works()


@ROLES
def test_answers_that_nobody_reads_are_bounded_and_leave_others_alone(pool: Pool, role: int) -> None:
    """Found by reading: a node's copies of small values waited with no bound but the connection's 64 MiB."""
    assert pool.store.put("k", VALUE) == "stored"
    with LanePeer(pool.port(CLIENT)) as asking, LanePeer(pool.port(role), role) as deaf:
        asking.open_session("default")
        if role == DATA:
            [(status, _, size, _, [(replica, _)])] = asking.lookup(b"k")
            assert (status, size) == (0, len(VALUE))
            whole = (1 << 64) - 1
            body = struct.pack("<II4Q", 1, 0, replica, _core.key_digest("default", b"k"), 0, whole)
            request, answer_bytes = _core.encode_frame(VERB["read"], body, 7), len(VALUE)
        else:
            deaf.open_session("default")
            [(_, segment)] = asking.put(b"somewhere")[:1]
            body = _core.encode_segment_ids(deaf.session, [segment] * 200)
            _, answer = deaf.ask("segments", body)
            request, answer_bytes = _core.encode_frame(VERB["segments"], body, 7), len(answer)
            assert answer_bytes > 10_000
        before = pool.served(role)
        rounds, left = 0, b""
        deaf.socket.setblocking(False)
        while rounds < ROUNDS_WITHOUT_PROGRESS:
            left = left or request
            try:
                left = left[deaf.socket.send(left) :]
                rounds = 0
            except BlockingIOError:
                rounds += 1
                pool.works()  # on the same threads as the deaf one's requests
        waiting = (pool.served(role) - before) * answer_bytes
        assert waiting <= (DATA_WAITING_MAX if role == DATA else LANE_WAITING_MAX) + SOCKET_BYTES_MAX
        pool.works()
