"""discover(), the native caller of MasterService.Discover, against a real gRPC server and against bad ones.

The message is written by hand here, not by the generated stubs: these bytes are the contract.
"""

from __future__ import annotations

import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest

UUID = bytes(range(16))


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3]) + varint(value)
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 128:
        encoded.append(value % 128 + 128)
        value //= 128
    return bytes([*encoded, value])


def reply(lane: str, epoch: int = 7, uuid: bytes = UUID, software: str = "mooncake-store 1") -> bytes:
    known = field(1, lane.encode()) + field(2, epoch) + field(3, uuid) + field(4, software.encode())
    return known + field(9, b"from a later version") + field(10, 5)


class Discover(grpc.GenericRpcHandler):
    def __init__(self, answer: Callable[[bytes, grpc.ServicerContext], bytes]) -> None:
        self.answer = answer

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        if details.method != "/mooncake_store.v1.MasterService/Discover":
            return None
        return grpc.unary_unary_rpc_method_handler(self.answer)


@contextmanager
def grpc_server(*handlers: grpc.GenericRpcHandler) -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(2), handlers=list(handlers))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


@contextmanager
def raw_server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serves each connection by a function of its socket, until the with block ends."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(20)
                with suppress(OSError):
                    serve(connection)

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.fixture
def discover(native_tests: Path) -> Callable[..., dict[str, str]]:
    def ask(port: int, host: str = "127.0.0.1", timeout_ms: int = 10_000) -> dict[str, str]:
        command = [str(native_tests / "discover_probe"), host, str(port), str(timeout_ms)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
        return dict(line.partition(" ")[::2] for line in run.stdout.splitlines())

    return ask


@pytest.mark.parametrize(
    ("lane", "expected"),
    [
        ("tcp://10.1.2.3:4567", "10.1.2.3:4567"),
        ("10.1.2.3:4567", "10.1.2.3:4567"),
        ("[fd00::1]:4567", "[fd00::1]:4567"),
        ("tcp://0.0.0.0:4567", "127.0.0.1:4567"),
        ("tcp://[::]:4567", "127.0.0.1:4567"),
        (":4567", "127.0.0.1:4567"),
    ],
)
def test_a_master_is_found(discover: Callable[..., dict[str, str]], lane: str, expected: str) -> None:
    requests: list[bytes] = []

    def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
        requests.append(request)
        return reply(lane, epoch=2**40)

    with grpc_server(Discover(answer)) as port:
        found = discover(port)
    assert found["found"] == "1", found
    assert (found["lane"], found["epoch"]) == (expected, str(2**40))
    assert (found["master"], found["software"]) == (UUID.hex(), "mooncake-store 1")
    assert requests == [b""]


def test_a_name_is_resolved(discover: Callable[..., dict[str, str]]) -> None:
    with grpc_server(Discover(lambda request, context: reply("0.0.0.0:5"))) as port:
        found = discover(port, host="localhost")
    assert found["lane"] == "localhost:5", found


def test_nobody_listening_says_cannot_connect(discover: Callable[..., dict[str, str]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    found = discover(port)
    assert found["found"] == "0"
    assert "cannot connect" in found["why"]
    assert f"127.0.0.1:{port}" in found["why"]
    assert "refused" in found["why"]


def test_a_grpc_server_without_the_method_refuses(discover: Callable[..., dict[str, str]]) -> None:
    with grpc_server() as port:
        found = discover(port)
    assert "refused MasterService.Discover" in found["why"]
    assert f"127.0.0.1:{port}" in found["why"]


def test_an_error_of_the_method_refuses(discover: Callable[..., dict[str, str]]) -> None:
    def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(grpc.StatusCode.UNAVAILABLE, "not the leader")

    with grpc_server(Discover(answer)) as port:
        assert "refused MasterService.Discover" in discover(port)["why"]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"\xff\xff\xff", "not a master's answer"),
        (reply("10.1.2.3:4567", uuid=b"short"), "not a master's answer"),
        (reply("10.1.2.3:4567", software="x" * 300), "not a master's answer"),
        (reply("nowhere\n"), "'nowhere?'"),
        (reply(""), "''"),
        (reply("10.1.2.3:0"), "'10.1.2.3:0'"),
        (b"x" * 100_000, "broke off"),
    ],
)
def test_a_wrong_answer_is_named(
    discover: Callable[..., dict[str, str]], answer: bytes, complaint: str
) -> None:
    with grpc_server(Discover(lambda request, context: answer)) as port:
        found = discover(port)
    assert found["found"] == "0"
    assert complaint in found["why"]
    assert f"127.0.0.1:{port}" in found["why"]


def test_an_http_1_server_is_not_a_grpc_server(discover: Callable[..., dict[str, str]]) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        connection.recv(65536)

    with raw_server(serve) as port:
        assert "is not a gRPC server" in discover(port)["why"]


def test_a_server_that_closes_at_once_is_not_a_grpc_server(discover: Callable[..., dict[str, str]]) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(65536)

    with raw_server(serve) as port:
        assert "it is not a gRPC server" in discover(port)["why"]


def test_silence_ends_at_the_deadline(discover: Callable[..., dict[str, str]]) -> None:
    def serve(connection: socket.socket) -> None:
        while connection.recv(65536):
            pass

    with raw_server(serve) as port:
        start = time.monotonic()
        found = discover(port, timeout_ms=200)
        assert "no answer within the deadline" in found["why"]
        assert time.monotonic() - start >= 0.2


def test_hostile_replies_are_bounded(discover: Callable[..., dict[str, str]]) -> None:
    """Endless pings, oversized frames, random frames: an answer comes, and it is no."""
    settings = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    rng = random.Random(4)
    streams = [settings + bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + b"12345678" * 20_000]
    streams.append(settings + bytes([255, 255, 255, 0, 0, 0, 0, 0, 1]) + bytes(100))
    streams.append(settings + bytes([0, 0, 1, 0, 8, 0, 0, 0, 1, 200]))
    streams.extend(
        settings
        + b"".join(
            bytes([0, 0, size, rng.randrange(10), rng.randrange(256), 0, 0, 0, rng.randrange(2)])
            + rng.randbytes(size)
            for size in [rng.randrange(40) for _ in range(rng.randrange(12))]
        )
        for _ in range(40)
    )
    for stream in streams:

        def serve(connection: socket.socket, stream: bytes = stream) -> None:
            connection.recv(1)
            connection.sendall(stream)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass

        with raw_server(serve) as port:
            found = discover(port)
            assert found["found"] == "0"
            assert f"127.0.0.1:{port}" in found["why"]
