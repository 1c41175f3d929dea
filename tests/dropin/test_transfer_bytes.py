"""A transfer engine and bytes that no engine of ours sends: hostile, torn, or not coming."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType

import pytest
from dropin.memory import pattern
from dropin.test_transfer_engine import registered, started
from processes import HANG_S, wait_until

from mooncake_client.dropin.transfer_engine import TransferEngine


@pytest.fixture
def engine() -> TransferEngine:
    return started()


def write_head(address: int, length: int) -> bytes:
    """Hello, and the head of a write whose bytes do not come."""
    hello = struct.pack("<IHHBB16sHHH", 0x3153434D, 1, 1, 4, 0, b"h" * 16, 0, 0, 0)
    body = struct.pack("<IIQQ", 1, 0, address, length)
    return frame(1, hello) + frame(51, body)


def frame(verb: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack("<IBBhQQ", len(body), verb, flags, 0, 1, 0) + body


def test_unregistering_ends_a_write_that_does_not_go_on(engine: TransferEngine) -> None:
    """A peer that sends half of its bytes and then nothing: when unregister returns, the memory is ours."""
    memory = registered(engine, b"\0" * 4096)
    with socket.create_connection(("127.0.0.1", engine.get_rpc_port()), HANG_S) as half:
        half.sendall(write_head(memory.ptr, 4096) + b"\x01" * 1000)
        wait_until(lambda: memory.bytes(999, 1000) == b"\x01", "the bytes arrive")
        assert engine.unregister_memory(memory.ptr) == 0
        half.settimeout(HANG_S)
        while half.recv(65_536):
            pass
    assert engine.unregister_memory(memory.ptr) == -3


HELLO = struct.pack("<IHHBB16sHHH", 0x3153434D, 1, 1, 4, 0, b"h" * 16, 0, 0, 0)
MALFORMED = {
    "no frame": b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100,
    "no hello": frame(50, b""),
    "another role": frame(1, HELLO.replace(b"\x04\0" + b"h" * 16, b"\x03\0" + b"h" * 16)),
    "no magic": frame(1, b"\0" * 38),
    "two hellos": frame(1, HELLO) * 2,
    "a store's read": frame(1, HELLO) + frame(40, struct.pack("<II", 0, 0)),
    "an answer": frame(1, HELLO) + frame(50, b"", flags=1),
    "a count without ranges": frame(1, HELLO) + frame(50, struct.pack("<II", 1 << 30, 0)),
    "an empty range": frame(1, HELLO) + frame(50, struct.pack("<IIQQ", 1, 0, 4096, 0)),
    "a range beyond the end": frame(1, HELLO) + frame(51, struct.pack("<IIQQ", 1, 0, (1 << 64) - 8, 16)),
    "a range of 2^41 bytes": frame(1, HELLO) + frame(51, struct.pack("<IIQQ", 1, 0, 4096, 1 << 41)),
    "bytes left over": frame(1, HELLO) + frame(50, struct.pack("<IIQQ", 1, 0, 4096, 8) + b"x"),
    "a long body": frame(1, HELLO) + struct.pack("<IBBhQQ", 3 << 20, 52, 0, 0, 1, 0),
    "a notice that lies": frame(1, HELLO) + frame(52, struct.pack("<II", 1 << 31, 1 << 31)),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_hostile_bytes_end_their_connection_alone(engine: TransferEngine, what: str) -> None:
    memory = registered(engine, pattern(4096))
    with socket.create_connection(("127.0.0.1", engine.get_rpc_port()), HANG_S) as hostile:
        hostile.sendall(MALFORMED[what])
        try:
            while hostile.recv(65_536):
                pass
        except ConnectionResetError:
            pass
    assert memory.bytes() == pattern(4096)
    me = f"127.0.0.1:{engine.get_rpc_port()}"
    assert engine.transfer_sync_write(me, memory.ptr, memory.ptr + 2048, 2048) == 0


class Speaking:
    """A peer that greets as an engine does, then answers one request as a test wants it to."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self.name = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.has_ended = False

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(frame(1, struct.pack("<H16sH", 1, b"w" * 16, 0), flags=1))
            connection.sendall(self._answer(connection.recv(65_536)))
            try:
                while connection.recv(65_536):
                    pass
            except ConnectionResetError:
                pass
        self.has_ended = True

    def __enter__(self) -> Speaking:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join(HANG_S)
        self._server.close()


def answer_to(request: bytes, verb: int, body: bytes) -> bytes:
    answer = bytearray(frame(verb, body, flags=1))
    answer[8:16] = request[8:16]
    return bytes(answer)


@pytest.mark.parametrize(
    "answer",
    [
        lambda request: answer_to(request, 50, struct.pack("<Q", 4096)) + b"\x99" * 4096,
        lambda request: answer_to(request, 51, b"") + b"\x99" * 4096,
        lambda request: answer_to(b"\0" * 16, 50, struct.pack("<Q", 8)) + b"\x99" * 8,
        lambda request: b"\x99" * 4096,
    ],
    ids=["more bytes than were asked for", "another verb", "another number", "no frame"],
)
def test_a_peer_that_answers_nonsense_fails_the_call(
    engine: TransferEngine, answer: Callable[[bytes], bytes]
) -> None:
    target = registered(engine, 16)
    with Speaking(answer) as peer:
        assert engine.transfer_sync_read(peer.name, target.ptr, 4096, 8) == -1
    assert target.bytes() == b"\xee" * 16


def test_ctrl_c_ends_a_transfer_that_waits(engine: TransferEngine) -> None:
    target = registered(engine, 16)

    def press(request: bytes) -> bytes:
        os.kill(os.getpid(), signal.SIGINT)  # the request is here, and is never answered
        return b""

    with Speaking(press) as peer, pytest.raises(KeyboardInterrupt):
        engine.transfer_sync_read(peer.name, target.ptr, 4096, 8)
    assert peer.has_ended  # its connection was closed: nobody writes into the memory any more
