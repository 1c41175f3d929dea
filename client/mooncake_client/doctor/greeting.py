"""Who answers at a port of the pool: hello and welcome over a plain socket, and nothing after them.

Owns its own connection alone, so that what it tells is the network's and the peer's doing.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from typing import Final

from mooncake_store import _core
from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import Refused, Unavailable

CLIENT_ROLE: Final = 1
DATA_ROLE: Final = 3
_HEADER_BYTES: Final = 24
_WELCOME_BYTES_MAX: Final = 4_096
"""A welcome is below 400 bytes; a refusal's text below 1,100."""
_REPLY_FLAG: Final = 1


@dataclass(frozen=True)
class Greeting:
    """software: the peer's version. took_ms: from the first packet to its welcome."""

    software: str
    took_ms: float


def greet(endpoint: Endpoint, role: int, tenant: str, timeout_s: float) -> Greeting:
    """Raises Unavailable (nobody answers there, in time) or Refused (somebody else does), saying which."""
    begin = time.monotonic()
    deadline = begin + timeout_s
    hello = _core.encode_hello(role, os.urandom(16), software="mooncake-doctor", tenant=tenant)
    try:
        with socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s) as peer:
            peer.sendall(_core.encode_frame(_core.verb_numbers()["hello"], hello, 1))
            header = _core.parse_frame_header(_exactly(peer, _HEADER_BYTES, deadline))
            if not header["flags"] & _REPLY_FLAG or header["body_bytes"] > _WELCOME_BYTES_MAX:
                raise ValueError("the answer is no welcome")
            body = _exactly(peer, header["body_bytes"], deadline)
    except ValueError as error:
        raise Refused(f"{endpoint}: another kind of server listens there ({error})") from error
    except TimeoutError as error:
        raise Unavailable(f"{endpoint}: no answer within {timeout_s:g} s") from error
    except OSError as error:
        raise Unavailable(f"{endpoint}: {error.strerror or error}") from error
    if header["status"] != 0:
        raise Refused(f"{endpoint}: {body[2:].decode('utf-8', 'replace') or header['status']}")
    try:
        software = _core.parse_welcome(body)["software"]
    except ValueError as error:
        raise Refused(f"{endpoint}: its welcome cannot be read ({error})") from error
    return Greeting(software, (time.monotonic() - begin) * 1000)


def _exactly(peer: socket.socket, size_bytes: int, deadline: float) -> bytes:
    received = b""
    while len(received) < size_bytes:
        peer.settimeout(max(0.001, deadline - time.monotonic()))
        piece = peer.recv(size_bytes - len(received))
        if not piece:
            raise ConnectionError("it closed the connection")
        received += piece
    return received
