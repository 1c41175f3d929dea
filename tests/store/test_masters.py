"""Lists of masters, and elections in etcd and redis that name them; what other servers answer is refused."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import InvalidArgument, Unavailable
from mooncake_store.masters import CLUSTER_VARIABLE, parse_masters

A, B = Endpoint("10.0.0.1", 50001), Endpoint("10.0.0.2", 50001)


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that says the same to everybody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    if connection.recv(1 << 16):
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(60)


def test_a_list_is_taken_as_it_stands() -> None:
    assert parse_masters("10.0.0.1:50001,10.0.0.2", field="f", default_port=50001) == (A, B)


def test_a_redis_names_the_leader_first() -> None:
    view, members = b"10.0.0.2:50001 7", [b"10.0.0.1:50001", b"10.0.0.2:50001", b"?"]
    answer = b"$%d\r\n%s\r\n*3\r\n" % (len(view), view)
    answer += b"".join(b"$%d\r\n%s\r\n" % (len(member), member) for member in members)
    with answering(answer) as where:
        assert parse_masters(f"redis://{where}", field="f") == (B, A)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"-NOAUTH Authentication required.\r\n",
        b"$-1\r\n*0\r\n",
        b"$99999999\r\nabc",
        b"*99999\r\n",
        b"*1\r\n*1\r\n*1\r\n*1\r\n",
        b"\xff" * 4096,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n[]",
        b'HTTP/1.1 200 OK\r\n\r\n{"kvs": [{"key": "!", "value": 1}]}',
    ],
)
@pytest.mark.parametrize("kind", ["etcd", "redis"])
def test_an_answer_that_names_no_master_is_told_with_the_setting(kind: str, answer: bytes) -> None:
    with answering(answer) as where, pytest.raises(Unavailable, match=f"^addr: no master is found.*{where}"):
        parse_masters(f"{kind}://{where}", field="addr", patience_s=0)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(Unavailable) as refusal:
        parse_masters("redis://me:secret@127.0.0.1:1", field="addr", patience_s=0)
    assert "secret" not in str(refusal.value)


def test_what_cannot_be_meant_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match=r"^addr: "):
        parse_masters("etcd://", field="addr")
    with pytest.raises(InvalidArgument, match=r"^addr: .*without a user"):
        parse_masters("etcd://me:secret@127.0.0.1:1", field="addr")
    monkeypatch.setenv(CLUSTER_VARIABLE, "a/b")
    with pytest.raises(InvalidArgument, match="MC_STORE_CLUSTER_ID='a/b'"):
        parse_masters("etcd://127.0.0.1:1", field="addr")
