"""The other end of a lane connection, on a plain socket: says what a test tells it to, byte for byte.

Packs and unpacks with the one parser (_core); knows nothing of what a right answer would be.
"""

from __future__ import annotations

import itertools
import os
import socket
from typing import Any

from mooncake_store import _core
from mooncake_store.status import Status

VERB = _core.verb_numbers()
CLIENT, NODE, DATA = 1, 2, 3
REPLY = 1
HEADER_BYTES = 24
HANG_S = 20  # not a measure of speed: it only turns a hang into a failure


class Closed(Exception):
    """The peer closed the connection."""


class LanePeer:
    """One connection. Frames that come while another is waited for are kept."""

    def __init__(
        self, port: int, role: int = CLIENT, hello: bool = True, process: bytes | None = None
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=HANG_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.process = process or os.urandom(16)
        self.request_ids = itertools.count(1)
        self.sequences = itertools.count(1)
        self.kept: list[tuple[_core.FrameHeader, bytes]] = []
        self.session = 0
        if hello:
            status, body = self.ask("hello", _core.encode_hello(role, self.process, software="test"))
            assert status == Status.OK, body
            self.welcome = _core.parse_welcome(body)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> LanePeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- frames

    def send(self, verb: str, body: bytes, **header: int) -> int:
        """Sends a question and gives its request_id."""
        request_id = next(self.request_ids)
        self.socket.sendall(_core.encode_frame(VERB[verb], body, request_id, **header))
        return request_id

    def receive(self) -> tuple[_core.FrameHeader, bytes]:
        """The next frame, whatever it is; Closed when the connection ended instead."""
        header = _core.parse_frame_header(self._exactly(HEADER_BYTES))
        return header, self._exactly(header["body_bytes"])

    def answer_to(self, request_id: int) -> tuple[int, bytes]:
        """The status and body of the answer to this request; other frames are kept for later."""
        for index, (header, body) in enumerate(self.kept):
            if header["flags"] & REPLY and header["request_id"] == request_id:
                del self.kept[index]
                return header["status"], body
        while True:
            header, body = self.receive()
            if header["flags"] & REPLY and header["request_id"] == request_id:
                return header["status"], body
            self.kept.append((header, body))

    def ask(self, verb: str, body: bytes) -> tuple[int, bytes]:
        return self.answer_to(self.send(verb, body))

    def _exactly(self, count: int) -> bytes:
        pieces = bytearray()
        while len(pieces) < count:
            try:
                piece = self.socket.recv(count - len(pieces))
            except ConnectionResetError as error:
                raise Closed from error
            if not piece:
                raise Closed
            pieces += piece
        return bytes(pieces)

    # ---- what clients say

    def open_session(self, tenant: str = "") -> int:
        status, body = self.ask(
            "open_session", _core.encode_open_session(self.process, "test", "host-a", tenant)
        )
        assert status == Status.OK, body
        self.session = _core.parse_open_session_reply(body)["session"]
        return self.session

    def exists(self, *keys: bytes, **options: Any) -> list[int]:
        status, body = self.ask("exists", _core.encode_keys_request(self.session, keys, **options))
        assert status == Status.OK, body
        return _core.parse_statuses(body)

    def lookup(self, *keys: bytes) -> list[tuple[int, int, int, int, list[tuple[int, int]]]]:
        status, body = self.ask("lookup", _core.encode_keys_request(self.session, keys))
        assert status == Status.OK, body
        return _core.parse_lookup_reply(body)

    def put_start_body(self, key: bytes, size: int) -> bytes:
        return _core.encode_put_start(self.session, next(self.sequences), [key], [size])

    def put_start(self, key: bytes, size: int) -> tuple[int, int, list[tuple[int, int]]]:
        status, body = self.ask("put_start", self.put_start_body(key, size))
        assert status == Status.OK, body
        return _core.parse_put_start_reply(body)[0]

    def put(self, key: bytes, size: int = 4096) -> list[tuple[int, int]]:
        """Stores a value as far as the master knows, and says where: (replica, segment)."""
        status, put_id, places = self.put_start(key, size)
        assert status == Status.OK
        results = [(replica, int(Status.OK)) for replica, _ in places]
        body = _core.encode_put_end(self.session, next(self.sequences), [(put_id, results)])
        status, body = self.ask("put_end", body)
        assert status == Status.OK, body
        assert _core.parse_statuses(body) == [Status.OK]
        return places

    def remove_body(self, key: bytes) -> bytes:
        force = 1
        return _core.encode_keys_request(self.session, [key], next(self.sequences), force)

    # ---- what nodes say

    def mount(self, capacity: int, name: str = "segment-a", endpoint: str = "tcp://127.0.0.1:1") -> int:
        segment: _core.SegmentDescription = {
            "tier": 1,
            "capacity_bytes": capacity,
            "incarnation": os.urandom(16),
            "name": name,
            "host_id": "host-a",
            "endpoints": [endpoint],
        }
        body = _core.encode_mount(self.session, next(self.sequences), 0, bytes(16), [segment])
        status, body = self.ask("mount", body)
        assert status == Status.OK, body
        [(status, segment_id)] = _core.parse_mount_reply(body)
        assert status == Status.OK
        return segment_id

    def receive_retire(self) -> tuple[int, list[int]]:
        """The next retire command: (command_id, replicas)."""
        for index, (header, body) in enumerate(self.kept):
            if header["verb"] == VERB["retire"]:
                del self.kept[index]
                return _core.parse_retire(body)
        while True:
            header, body = self.receive()
            if header["verb"] == VERB["retire"]:
                return _core.parse_retire(body)
            self.kept.append((header, body))

    def confirm(self, command_id: int, freed: list[int]) -> None:
        body = _core.encode_retire_reply(command_id, freed)
        self.socket.sendall(_core.encode_frame(VERB["retire"], body, command_id, flags=REPLY))
