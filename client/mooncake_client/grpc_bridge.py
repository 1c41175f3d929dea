"""Carries a client's questions to the master over gRPC instead of the lane.

The native client keeps speaking the lane's frames. Each of its connections to the master is one end of a pair
of sockets inside this process; the other end comes here, with the address of the master it is to, and a
thread answers frame by frame what the matching verb of the public contract answers. So retries, deadlines and
sessions stay where they are decided: an answer that did not come ends the connection, as a broken one of the
lane.

Owns those threads, and a gRPC channel for each. Must not know stores. grpc is imported when it starts.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from mooncake_store import _core
from mooncake_store.errors import STATUS_METADATA_KEY, from_grpc
from mooncake_store.status import Status

if TYPE_CHECKING:
    import grpc

    from mooncake_client.grpc_verbs import Verb

log = logging.getLogger("mooncake_store.client")

CONNECTIONS_MAX: Final = 256
"""Beyond it one is closed at once, and its call asks again later. The native client opens 64 and one; more
are those whose caller gave up while the master was silent."""
ANSWER_S: Final = 3.0
"""The native client asks again on another connection after as long (kLaneAnswerMs)."""
LABEL_BYTES_MAX: Final = 512
_RECEIVE_BYTES: Final = 65_536
_HEADER_BYTES: Final = 24
_BODY_BYTES_MAX: Final = 16 << 20
_ANSWER_FLAG: Final = 1
_VERSION: Final = 1
_END_S: Final = 1.0
_LOST: Final = frozenset(("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"))
"""gRPC's own word that there was no answer."""


def prepare() -> None:
    """Import what the bridge needs, so that no deadline of a call pays for it."""
    import grpc  # noqa: F401

    import mooncake_client.grpc_verbs  # noqa: F401


class GrpcBridge:
    """One client's; `end` is idempotent and leaves no thread behind that still asks."""

    def __init__(self, connect_timeout_ms: int) -> None:
        self._connect_s = connect_timeout_ms / 1000
        self._lock = threading.Lock()
        self._is_ended = False
        self._taker: socket.socket | None = None
        self._connections: dict[_Connection, threading.Thread] = {}
        self._instead_of = ("", "")

    def start(self, lane: str, master: str, lane_why: str) -> int:
        """The socket by which connections are handed over; the caller owns it. Called by the native client.

        lane_why: why the lane is not used; empty when it may not be.
        """
        prepare()
        if lane_why:
            self._instead_of = (lane, lane_why)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with self._lock:
            if self._is_ended:
                ours.close()
                theirs.close()
                raise RuntimeError("the client is closed")
            self._taker = ours
        threading.Thread(target=self._take, args=(ours,), name="grpc-bridge", daemon=True).start()
        return theirs.detach()

    def end(self) -> None:
        with self._lock:
            self._is_ended = True
            taker, self._taker = self._taker, None
            connections = dict(self._connections)
        if taker is not None:
            _shut_down(taker)
        for connection in connections:
            connection.end()
        for thread in connections.values():
            if thread is not threading.current_thread():
                thread.join(_END_S)

    def _take(self, taker: socket.socket) -> None:
        _name_thread()
        with taker:
            while True:
                try:
                    label, fds, _, _ = socket.recv_fds(taker, LABEL_BYTES_MAX, 1)
                except OSError:
                    return
                if not label or not fds:
                    return
                self._serve(socket.socket(fileno=fds[0]), label.decode("utf-8", "replace"))

    def _serve(self, end: socket.socket, master: str) -> None:
        end.setblocking(True)
        with self._lock:
            if self._is_ended or len(self._connections) >= CONNECTIONS_MAX:
                _shut_down(end)
                end.close()
                return
            connection = _Connection(end, master, self._connect_s, self._reached)
            thread = threading.Thread(
                target=self._run, args=(connection,), name="grpc-bridge-connection", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # no thread can be had now; the call asks again
                log.debug("a connection to %s: %s", master, error)
                connection.end()
                end.close()
                return
            self._connections[connection] = thread

    def _run(self, connection: _Connection) -> None:
        _name_thread()
        try:
            connection.run()
        finally:
            connection.end()
            with self._lock:
                self._connections.pop(connection, None)

    def _reached(self, master: str) -> None:
        """The first answer: only now it is known that gRPC can stand in for the lane."""
        with self._lock:
            (lane, why), self._instead_of = self._instead_of, ("", "")
        if lane:
            log.warning(
                "the master's lane at %s cannot be reached, its gRPC at %s can: the slower gRPC is used. "
                "Open the lane's port (mooncake_master --lane_port), or say control=grpc. %s",
                lane,
                master,
                why,
            )


class _Connection:
    """One of the native client's connections, and the channel that serves it. Its thread alone runs it."""

    def __init__(self, end: socket.socket, master: str, connect_s: float, reached: Any) -> None:
        import grpc

        from mooncake_client.grpc_verbs import VERBS
        from mooncake_store.v1.master_pb2_grpc import MasterServiceStub

        self._end = end
        self._master = master
        self._connect_s = connect_s
        self._reached = reached
        numbers = _core.verb_numbers()
        self._hello = numbers["hello"]
        self._verbs = {numbers[name]: verb for name, verb in VERBS.items()}
        self._channel: grpc.Channel = grpc.insecure_channel(
            master,
            options=[
                # A connection of its own, which ends with this one: the next is dialled at once, without the
                # backoff of channels that failed before it.
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.enable_retries", 0),
                ("grpc.enable_http_proxy", 0),
                # A request of 16,384 long keys; what comes back is bounded by what was asked.
                ("grpc.max_send_message_length", 2 * _BODY_BYTES_MAX),
                ("grpc.max_receive_message_length", 4 * _BODY_BYTES_MAX),
            ],
        )
        self._stub = MasterServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """From any thread: what is under way ends."""
        _shut_down(self._end)
        self._channel.close()

    def run(self) -> None:
        # What the socket raises, the other end has done; what the channel raises, `end` has.
        with self._end, contextlib.suppress(OSError, ValueError):
            for header, body in self._frames():
                answer = self._answer(header, body)
                if answer is None:
                    return
                self._end.sendall(answer)

    def _frames(self) -> Iterator[tuple[_core.FrameHeader, bytes]]:
        unread = bytearray()
        while True:
            wanted = _HEADER_BYTES
            if len(unread) >= wanted:
                header = _core.parse_frame_header(bytes(unread[:_HEADER_BYTES]))
                wanted += header["body_bytes"]
                if len(unread) >= wanted:
                    body = bytes(unread[_HEADER_BYTES:wanted])
                    del unread[:wanted]
                    yield header, body
                    continue
            received = self._end.recv(max(_RECEIVE_BYTES, wanted - len(unread)))
            if not received:
                return
            unread += received

    def _answer(self, header: _core.FrameHeader, body: bytes) -> bytes | None:
        """A whole frame; None: there was no answer, which ends the connection."""
        import grpc

        verb = self._verbs.get(header["verb"])
        try:
            if header["verb"] == self._hello:
                return self._frame(header, self._welcome())
            if verb is None:
                return self._refusal(header, Status.NOT_SUPPORTED, f"no verb {header['verb']} over gRPC")
            return self._frame(header, self._ask(verb, body))
        except grpc.RpcError as error:
            return self._failed(header, error)
        except (ValueError, TypeError, OverflowError) as error:
            # The message parsed, and what it holds cannot be: nothing of it is believed.
            text = f"{self._master}: the answer over gRPC cannot be one: {error}"
            log.debug("%s", text)
            return self._refusal(header, Status.MALFORMED, text)

    def _ask(self, verb: Verb, body: bytes) -> bytes:
        return verb.answer(getattr(self._stub, verb.method)(verb.request(body), timeout=ANSWER_S))

    def _welcome(self) -> bytes:
        """As the lane's listener: who answers. So a master that is gone is found out when it is dialled."""
        from mooncake_store.v1.master_pb2 import DiscoverRequest

        found = self._stub.Discover(DiscoverRequest(), timeout=self._connect_s)
        packed = _core.encode_welcome(_VERSION, found.master_uuid, found.software)
        self._reached(self._master)
        return packed

    def _failed(self, header: _core.FrameHeader, error: Any) -> bytes | None:
        name = error.code().name
        details = error.details() or name
        metadata = error.trailing_metadata() or ()
        is_told = any(key == STATUS_METADATA_KEY for key, _ in metadata)
        if name in _LOST and not is_told:
            log.debug("%s: %s: %s", self._master, name, details)
            return None
        why = details if is_told else f"{self._master} over gRPC: {name}: {details}"
        return self._refusal(header, from_grpc(name, details, metadata).code, why)

    def _refusal(self, header: _core.FrameHeader, status: int, why: str) -> bytes:
        text = why.encode("utf-8", "replace")[: LABEL_BYTES_MAX * 2]
        return self._frame(header, len(text).to_bytes(2, "little") + text, status)

    def _frame(self, header: _core.FrameHeader, body: bytes, status: int = 0) -> bytes:
        return _core.encode_frame(header["verb"], body, header["request_id"], _ANSWER_FLAG, status)


def _name_thread() -> None:
    """For `top` and debuggers; else it has the name of the native thread on which the bridge was started."""
    with contextlib.suppress(OSError), open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write("mc-grpc")


def _shut_down(end: socket.socket) -> None:
    """Wakes whoever waits on it, here and at the other end, also where a forked child holds it open too."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
