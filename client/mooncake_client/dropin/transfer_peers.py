"""Where the engine behind a segment's name listens: in the name itself, or with a metadata server.

Owns the names and what stands under them at the server. Must not move bytes of transfers.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final, Protocol

from mooncake_store.endpoints import Endpoint, parse_endpoint, parse_port
from mooncake_store.errors import InvalidArgument, Unavailable
from mooncake_store.metadata_server.address import parse_address
from mooncake_store.metadata_server.blocking import ask
from mooncake_store.metadata_server.descriptor import (
    address_value,
    find_endpoint,
    key_of,
    parse_address_value,
)
from mooncake_store.metadata_server.publisher import TTL_S, Publisher, publish

LOOK_S: Final = 1.0
"""For a connection to who has the name already."""
NAMES_MAX: Final = 4_096
"""Addresses remembered; beyond it they are asked for anew."""


class Peers(Protocol):
    """How engines find each other."""

    def announce(self, port: int) -> None:
        """Say where this engine listens. Raises InvalidArgument or Unavailable."""

    def find(self, name: str) -> Endpoint:
        """Raises InvalidArgument for what is no name, Unavailable when nobody says where it is."""

    def forget(self, name: str) -> None:
        """It was not there: ask again the next time."""

    def withdraw(self) -> None:
        """Undo `announce`; never raises."""


class NamedPeers:
    """Without a server: a name is `host:port`, with the port that its engine's get_rpc_port says."""

    def announce(self, port: int) -> None:
        """Others learn it from the program that uses the engine."""

    def find(self, name: str) -> Endpoint:
        host, _, port = name.rpartition(":")
        if host.count(":") > 0 and not host.startswith("["):
            # f"{host}:{port}" of an IPv6 host, as engines write it.
            return Endpoint(host, parse_port(port, field="target_hostname"))
        return parse_endpoint(name, field="target_hostname")

    def forget(self, name: str) -> None:
        """Nothing is remembered."""

    def withdraw(self) -> None:
        """Nothing was announced."""


class ServedPeers:
    """With a metadata server: a name is what its engine was initialised with."""

    def __init__(self, url: str, name: str, host: str) -> None:
        """url: of any server. host: what others dial."""
        self._url = url
        self._where = str(parse_address(url))
        self._name = name
        self._host = host
        self._lock = threading.Lock()
        self._known: dict[str, Endpoint] = {}
        self._publisher: Publisher | None = None

    def announce(self, port: int) -> None:
        """Renewed until `withdraw`. A name is given once, but one that nobody listens behind is free."""
        key, value = key_of("rpc_meta", self._name), address_value(Endpoint(self._host, port))
        standing = ask(self._url, lambda server: server.get(key))
        if standing not in (None, value) and _is_listening(standing, self._name):
            raise InvalidArgument(
                f"metadata server {self._where}: the name {self._name!r} (local_hostname) is another engine's"
            )
        ask(self._url, lambda server: server.put(key, value, ttl_s=TTL_S))
        self._publisher = publish(self._url, lambda: {key: value})

    def find(self, name: str) -> Endpoint:
        with self._lock:
            known = self._known.get(name)
        if known is not None:
            return known
        found = ask(self._url, lambda server: find_endpoint(server, name))
        if found is None:
            raise Unavailable(f"metadata server {self._where} knows no engine {name!r}")
        with self._lock:
            if len(self._known) >= NAMES_MAX:
                self._known.clear()
            self._known[name] = found
        return found

    def forget(self, name: str) -> None:
        with self._lock:
            self._known.pop(name, None)

    def withdraw(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.end()


def _is_listening(value: bytes | None, name: str) -> bool:
    with contextlib.suppress(Unavailable, OSError):
        endpoint = parse_address_value(value or b"", name=name)
        socket.create_connection((endpoint.host, endpoint.port), LOOK_S).close()
        return True
    return False


def peers_of(metadata_server: str, name: str, host: str) -> Peers:
    """Raises InvalidArgument for what is no metadata server."""
    if parse_address(metadata_server) is None:
        return NamedPeers()
    return ServedPeers(metadata_server, name, host)
