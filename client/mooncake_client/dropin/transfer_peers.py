"""Where the engine behind a segment's name listens: in the name itself, or with an HTTP metadata server.

Owns the names and what stands under them at the server. Must not move bytes of transfers.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import Final, Protocol
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from mooncake_store.endpoints import Endpoint, parse_endpoint, parse_port
from mooncake_store.errors import InvalidArgument, Unavailable

log = logging.getLogger("mooncake_store.dropin")

P2P_HANDSHAKE: Final = "P2PHANDSHAKE"
TIMEOUT_S: Final = 5.0
"""For one answer of a metadata server."""
ANSWER_BYTES_MAX: Final = 64 << 10
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
    """With `mooncake_http_metadata_server`: a name is what its engine was initialised with."""

    def __init__(self, url: str, name: str, host: str) -> None:
        """url: `http://host:port/metadata`. host: what others dial."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.netloc:
            raise InvalidArgument(f"metadata_server {url!r} is not http://host:port/metadata")
        self._url = url if parts.path not in ("", "/") else f"http://{parts.netloc}/metadata"
        self._name = name
        self._host = host
        self._lock = threading.Lock()
        self._known: dict[str, Endpoint] = {}
        self._is_announced = False

    def announce(self, port: int) -> None:
        text = json.dumps({"ip_or_host_name": self._host, "rpc_port": port})
        status, answer = self._ask("PUT", self._name, text.encode())
        if status != 200:
            raise InvalidArgument(
                f"metadata server {self._url} refuses the name {self._name!r} (local_hostname): {answer}"
            )
        self._is_announced = True

    def find(self, name: str) -> Endpoint:
        with self._lock:
            known = self._known.get(name)
        if known is not None:
            return known
        status, answer = self._ask("GET", name)
        if status == 404:
            raise Unavailable(f"metadata server {self._url} knows no engine {name!r}")
        try:
            values = json.loads(answer) if status == 200 else None
            found = Endpoint(str(values["ip_or_host_name"]), int(values["rpc_port"]))  # type: ignore[index]
        except (ValueError, TypeError, KeyError) as error:
            raise Unavailable(
                f"metadata server {self._url} answers of {name!r} ({status}): {answer[:200]}"
            ) from error
        with self._lock:
            if len(self._known) >= NAMES_MAX:
                self._known.clear()
            self._known[name] = found
        return found

    def forget(self, name: str) -> None:
        with self._lock:
            self._known.pop(name, None)

    def withdraw(self) -> None:
        if not self._is_announced:
            return
        self._is_announced = False
        try:
            self._ask("DELETE", self._name)
        except Unavailable as error:
            log.warning("%s; it keeps the address of %s, which has ended", error, self._name)

    def _ask(self, method: str, name: str, body: bytes | None = None) -> tuple[int, str]:
        """Status and text. No proxy of the environment: the server is one of this cluster's."""
        key = quote(f"mooncake/rpc_meta/{name}", safe="")
        request = Request(f"{self._url}?key={key}", data=body, method=method)
        try:
            with build_opener(ProxyHandler({})).open(request, timeout=TIMEOUT_S) as answer:
                return int(answer.status), answer.read(ANSWER_BYTES_MAX).decode(errors="replace")
        except HTTPError as error:
            with error:
                return error.code, error.read(ANSWER_BYTES_MAX).decode(errors="replace")
        except (OSError, ValueError) as error:
            raise Unavailable(f"metadata server {self._url} does not answer: {error}") from error


def peers_of(metadata_server: str, name: str, host: str) -> Peers:
    """Raises InvalidArgument for a metadata server of a kind that is not built."""
    server = metadata_server.strip()
    if server == P2P_HANDSHAKE:
        return NamedPeers()
    if server.startswith("http://"):
        return ServedPeers(server, name, host)
    raise InvalidArgument(
        f"metadata_server {metadata_server!r} must be {P2P_HANDSHAKE} or http://host:port/metadata"
    )
