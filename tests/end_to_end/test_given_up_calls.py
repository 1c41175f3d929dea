"""What a call leaves behind that gives up amid a node's reply: nothing that could write into its buffer.

Real time is needed, because the deadline of a native client is its own; the node is a script on a plain
socket, so that it can stop where a real one never would.
"""

from __future__ import annotations

import socket
import struct
import threading

from lane_peer import CLIENT, NODE, REPLY, VERB, LanePeer

from mooncake_store import _core
from mooncake_store.status import Status

HANG_S = 20
SIZE = 64 * 1024
HALF = SIZE // 2


class HalfwayNode:
    """A data port whose answers to reads stop amid the value; the rest is sent when the test says so."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self.is_halfway = threading.Event()
        self.go_on = threading.Event()
        self.is_closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> HalfwayNode:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        self.go_on.set()
        self._thread.join(HANG_S)

    def _serve(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(HANG_S)
            try:
                self._talk(connection)
            except ConnectionError:
                self.is_closed.set()
            except TimeoutError:
                pass  # nobody closed it

    def _talk(self, connection: socket.socket) -> None:
        self._answer(connection, self._ask(connection), _core.encode_welcome(1, bytes(16), "test"))
        request = self._ask(connection)
        assert request["verb"] == VERB["read"]
        last_piece = struct.pack("<IHHQ", 0, 1, 0, SIZE)
        self._answer(connection, request, struct.pack("<II", 1, 0) + last_piece)
        connection.sendall(b"\xaa" * HALF)
        self.is_halfway.set()
        if not connection.recv(1):
            self.is_closed.set()
        self.go_on.wait(HANG_S)
        connection.sendall(b"\xbb" * HALF + struct.pack("<hHI", 0, 0, 0))

    def _ask(self, connection: socket.socket) -> _core.FrameHeader:
        header = _core.parse_frame_header(self._exactly(connection, 24))
        self._exactly(connection, header["body_bytes"])
        return header

    def _answer(self, connection: socket.socket, request: _core.FrameHeader, body: bytes) -> None:
        verb, request_id = request["verb"], request["request_id"]
        connection.sendall(_core.encode_frame(verb, body, request_id, flags=REPLY, epoch=1))

    @staticmethod
    def _exactly(connection: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = connection.recv(count - len(data))
            if not piece:
                raise ConnectionError("closed")
            data += piece
        return data


def test_a_call_that_gave_up_has_closed_its_connection() -> None:
    """Put back for others, it would bring the next call the rest of this one's value."""
    master = _core.Master()
    master.start()
    try:
        with (
            HalfwayNode() as node,
            LanePeer(master.lane_port, NODE) as lender,
            LanePeer(master.lane_port, CLIENT) as writer,
        ):
            lender.open_session()
            lender.mount(4 * SIZE, endpoint=node.endpoint)
            writer.open_session("tenant")
            writer.put(b"k", SIZE)
            client = _core.Client(lane=f"127.0.0.1:{master.lane_port}", tenant="tenant")
            target = bytearray(SIZE)
            [status], _ = client.get_into_many([b"k"], [target], timeout_ms=400)
            assert status == Status.DEADLINE
            assert node.is_halfway.is_set()
            left = bytes(target)
            assert node.is_closed.wait(HANG_S)
            node.go_on.set()
            assert bytes(target) == left
            client.close()
    finally:
        master.stop()
