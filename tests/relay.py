"""A port in front of a node's: passes bytes on, counts dials, and on order is slow, silent or resets.

Owns what a bad network or a dead process looks like from a client's side. Knows no frames.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from enum import Enum
from types import TracebackType

HOST = "127.0.0.2"
"""What a node behind a relay advertises; it listens itself on the same port of 127.0.0.1."""
FREE_BYTES = 1 << 20
"""What a connection still passes at full speed after it was told to be slow."""
_PIECE_BYTES = 1 << 10
_PAUSE_S = 0.02  # between two pieces: progress, so that nobody gives the peer up
_HANG_S = 60.0


class Dials(Enum):
    """What becomes of new connections. SILENT and RESET also cut those that are open."""

    PASS = "passed on"
    SILENT = "accepted and never answered"
    RESET = "reset"


class Relay:
    """Context manager. dials: connections that were asked for."""

    def __init__(self, port: int) -> None:
        self.dials = 0
        self._crawling = 0
        self._changed = threading.Condition()
        self._port = port
        self._mode = Dials.PASS
        self._full_speed = {"down": threading.Event(), "up": threading.Event()}
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._server = socket.create_server((HOST, port))
        for event in self._full_speed.values():
            event.set()
        self._start(self._accept)

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hurry()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._cut()
        for thread in self._threads:
            thread.join(_HANG_S)
        for one in self._open:
            one.close()

    def slow(self, direction: str) -> None:
        """From now on values crawl: `down` to clients, or `up` to the node."""
        self._crawling = 0
        self._full_speed[direction].clear()

    def wait_crawling(self, connections: int) -> None:
        """Until so many have passed FREE_BYTES since they were told to be slow."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._crawling >= connections, _HANG_S)

    def hurry(self) -> None:
        for event in self._full_speed.values():
            event.set()

    def answer_dials(self, mode: Dials) -> None:
        self._mode = mode
        if mode is not Dials.PASS:
            self._cut()

    def _cut(self) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _start(self, work: object, *arguments: object) -> None:
        assert callable(work)
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self.dials += 1
            if self._mode is Dials.RESET:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
                continue
            self._open.append(client)
            if self._mode is Dials.SILENT:
                continue
            try:
                node = socket.create_connection(("127.0.0.1", self._port), timeout=_HANG_S)
            except OSError:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
                continue
            self._open.append(node)
            self._start(self._pump, node, client, self._full_speed["down"])
            self._start(self._pump, client, node, self._full_speed["up"])

    def _pump(self, source: socket.socket, sink: socket.socket, full_speed: threading.Event) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            source.settimeout(None)
            while data := source.recv(1 << 16):
                passed = 0 if full_speed.is_set() else passed + len(data)
                if passed <= FREE_BYTES:
                    sink.sendall(data)
                    continue
                if passed - len(data) <= FREE_BYTES:
                    with self._changed:
                        self._crawling += 1
                        self._changed.notify_all()
                for begin in range(0, len(data), _PIECE_BYTES):
                    sink.sendall(data[begin : begin + _PIECE_BYTES])
                    full_speed.wait(_PAUSE_S)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
