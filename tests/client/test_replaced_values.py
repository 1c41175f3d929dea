"""A value that is replaced by a larger one between a get's look-up and its read: the get looks again.

The node is a script on a plain socket, because a real one answers before anything could be put between.
"""

from __future__ import annotations

import socket
import struct
import threading

from lane_peer import CLIENT, HEADER_BYTES, NODE, REPLY, VERB, LanePeer

from mooncake_store import _core
from mooncake_store.status import Status

HANG_S = 20
LARGE = 70_000  # more than the client reads before Python has made room


class ReplacingNode:
    """Serves one connection; amid the first read it has `key` replaced by a larger value, and calls it gone.

    Every byte of a value is the length of its key.
    """

    def __init__(self, lane_port: int, sizes: dict[bytes, int], key: bytes, larger: int) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._lender = LanePeer(lane_port, NODE)
        self._lender.open_session()
        self._lender.mount(1 << 24, endpoint=f"tcp://127.0.0.1:{self._server.getsockname()[1]}")
        self._writer = LanePeer(lane_port, CLIENT)
        self._writer.open_session("tenant")
        self._values: dict[int, tuple[bytes, int]] = {}
        for name, size in sizes.items():
            self._put(name, size)
        self._replacement = (key, larger)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __enter__(self) -> ReplacingNode:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        self._thread.join(HANG_S)
        self._writer.close()
        self._lender.close()

    def _put(self, key: bytes, size: int) -> None:
        [(replica, _)] = self._writer.put(key, size)
        self._values[replica] = (key, size)

    def _replace(self) -> None:
        key, size = self._replacement
        self._values = {replica: value for replica, value in self._values.items() if value[0] != key}
        removal = self._writer.send("remove", self._writer.remove_body(key))
        command, replicas = self._lender.receive_retire()
        self._lender.confirm(command, replicas)
        assert self._writer.answer_to(removal)[0] == Status.OK
        self._put(key, size)

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with connection:
            connection.settimeout(HANG_S)
            reads = 0
            while header := self._exactly(connection, HEADER_BYTES):
                question = _core.parse_frame_header(header)
                body = self._exactly(connection, question["body_bytes"])
                if question["verb"] == VERB["hello"]:
                    answer = _core.encode_welcome(1, bytes(16), "test")
                    self._answer(connection, question, answer)
                    continue
                assert question["verb"] == VERB["read"]
                reads += 1
                if reads == 1:
                    self._replace()
                self._read(connection, question, body)

    def _read(self, connection: socket.socket, question: _core.FrameHeader, body: bytes) -> None:
        count, _ = struct.unpack_from("<II", body)
        pieces, payload = struct.pack("<II", count, 0), b""
        for index in range(count):
            replica, _, _, _ = struct.unpack_from("<QQQQ", body, 8 + 32 * index)
            key, size = self._values.get(replica, (b"", 0))
            status = Status.OK if replica in self._values else Status.GONE
            pieces += struct.pack("<IHHQ", index, 1, 0, size)
            payload += bytes([len(key)]) * size + struct.pack("<hHI", int(status), 0, 0)
        self._answer(connection, question, pieces, payload)

    @staticmethod
    def _answer(
        connection: socket.socket, question: _core.FrameHeader, body: bytes, payload: bytes = b""
    ) -> None:
        verb, request_id = question["verb"], question["request_id"]
        connection.sendall(_core.encode_frame(verb, body, request_id, flags=REPLY, epoch=1) + payload)

    @staticmethod
    def _exactly(connection: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = connection.recv(count - len(data))
            if not piece:
                return b""
            data += piece
        return data


def test_a_value_replaced_by_a_larger_one_amid_a_get_is_read_whole() -> None:
    """The room of the first attempt was given back without the GIL: Python ended the process."""
    master = _core.Master()
    master.start()
    try:
        with ReplacingNode(master.lane_port, {b"large": LARGE, b"k": 100}, b"k", 200):
            client = _core.Client(lane=f"127.0.0.1:{master.lane_port}", tenant="tenant", checksums=False)
            assert client.get_many([b"large", b"k"]) == [b"\x05" * LARGE, b"\x01" * 200]
            client.close()
    finally:
        master.stop()
