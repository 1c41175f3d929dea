"""A node that never ends: of a value it sends some bytes and then one at a time, of a put it takes few.

For tests of calls that are given up amid a value. Mounts a segment of a real master; knows no values.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import struct
import threading
from types import TracebackType

from lane_peer import DATA, HANG_S, HEADER_BYTES, NODE, REPLY, VERB, LanePeer

from mooncake_store import _core

_PAUSE_S = 0.02  # between two bytes: progress, so that the client does not give the node up by itself
_TAKEN_AT_ONCE = 16 << 10


class SlowNode:
    """Context manager. begun: an item for each read or write that is amid its value; ended: when its
    connection was closed by the client."""

    def __init__(self, lane: str, name: str = "slow") -> None:
        self.name = name
        self.begun: queue.Queue[str] = queue.Queue()
        self.ended: queue.Queue[str] = queue.Queue()
        self._over = threading.Event()
        self._lane = LanePeer(int(lane.rpartition(":")[2]), NODE)
        self._lane.open_session()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        port = self._server.getsockname()[1]
        self._lane.mount(1 << 30, name, f"tcp://127.0.0.1:{port}")

    def __enter__(self) -> SlowNode:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._lane.close()
        for thread in self._threads:
            thread.join(HANG_S)

    def hold(self, key: bytes, size: int, tenant: str = "default") -> None:
        """Let the master believe that this node holds a value. Nothing else may be mounted meanwhile."""
        with LanePeer(self._lane.socket.getpeername()[1]) as client:
            client.open_session(tenant)
            client.put(key, size)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            connection.settimeout(HANG_S)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while True:
                header = _core.parse_frame_header(_exactly(connection, HEADER_BYTES))
                body = _exactly(connection, header["body_bytes"])
                if header["verb"] == VERB["hello"]:
                    assert _core.parse_hello(body)["role"] == DATA
                    self._answer(connection, header, _core.encode_welcome(1, os.urandom(16), "test"))
                elif header["verb"] == VERB["read"]:
                    # One piece that never comes to its end.
                    self._answer(connection, header, struct.pack("<IIIHHQ", 1, 0, 0, 1, 0, 1 << 20))
                    connection.sendall(b"\xaa" * 4096)
                    self._go_on("read", lambda: connection.sendall(b"\xee"))
                    return
                else:
                    self._go_on("write", lambda: _some(connection))
                    return

    def _answer(self, connection: socket.socket, header: _core.FrameHeader, body: bytes) -> None:
        connection.sendall(_core.encode_frame(header["verb"], body, header["request_id"], flags=REPLY))

    def _go_on(self, what: str, step: object) -> None:
        assert callable(step)
        self.begun.put(what)
        try:
            while not self._over.wait(_PAUSE_S):
                step()
        except OSError:
            self.ended.put(what)


def _some(connection: socket.socket) -> None:
    if not connection.recv(_TAKEN_AT_ONCE):
        raise ConnectionError


def _exactly(connection: socket.socket, count: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < count:
        piece = connection.recv(count - len(pieces))
        if not piece:
            raise ConnectionError
        pieces += piece
    return bytes(pieces)
