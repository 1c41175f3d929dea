"""A small HTTP port of a client or node: its health, counters, and which master it follows.

Owns the listener and its answers, from threads of its own until `end`. Standard library only; a node imports
it when it is asked to listen. Must not know verbs.
"""

from __future__ import annotations

import json
import socket
import threading
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import StoreError, Unavailable

HEALTH: Final = ("healthy", "not_initialized", "master_unreachable")
"""By the number that `health` gives."""
ANSWER_BYTES_MAX: Final = 65_536
_REQUEST_S: Final = 10  # for one request to arrive; then its connection ends
_ASK_S: Final = 5.0


class ClientHttp:
    """Listens on host:port (0: any). health: a number of HEALTH; counters: by name; masters: their addresses.

    exposition: what /metrics tells besides; None: there are no metrics. Raises OSError where the port is
    taken.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        health: Callable[[], int],
        counters: Callable[[], Mapping[str, int]],
        masters: Sequence[Endpoint],
        exposition: Callable[[], str] | None = str,
    ) -> None:
        addresses = [str(master) for master in masters]

        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST_S

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/health":
                    code = health()
                    status = HTTPStatus.OK if code == 0 else HTTPStatus.SERVICE_UNAVAILABLE
                    self._answer(
                        status, json.dumps({"status": HEALTH[code], "code": code}), "application/json"
                    )
                elif path in ("/metrics", "/metrics/summary"):
                    self._answer_metrics(path)
                elif path == "/master":
                    body = json.dumps({"master_server_address": addresses})
                    self._answer(HTTPStatus.OK, body, "application/json")
                else:
                    self._answer(HTTPStatus.NOT_FOUND, "not found\n", "text/plain")

            def _answer_metrics(self, path: str) -> None:
                if exposition is None:
                    self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "metrics not available\n", "text/plain")
                    return
                whole = path == "/metrics"
                form = "mooncake_client_{} {}\n" if whole else "{}={} "
                text = "".join(form.format(name, value) for name, value in sorted(counters().items()))
                self._answer(
                    HTTPStatus.OK, text + (exposition() if whole else ""), "text/plain; version=0.0.4"
                )

            def _answer(self, status: HTTPStatus, body: str, kind: str) -> None:
                packed = body.encode("utf-8")
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(packed)))
                self.end_headers()
                self.wfile.write(packed)

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing is written of requests in an engine's process."""

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
            daemon_threads = True

        self._server = Server((endpoint.host, endpoint.port), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="client-http", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def masters_known_at(endpoint: Endpoint) -> list[str]:
    """The addresses of the masters that a node at this port follows. Raises Unavailable, naming the port."""
    try:
        with urllib.request.urlopen(f"http://{endpoint}/master", timeout=_ASK_S) as answer:
            told = json.loads(answer.read(ANSWER_BYTES_MAX))
        addresses = told["master_server_address"]
        if not addresses or not all(isinstance(address, str) for address in addresses):
            raise StoreError(f"{endpoint} names no master")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unavailable(
            f"no node at {endpoint} tells its master (mooncake_client --port): {error}"
        ) from error
    return list(addresses)
