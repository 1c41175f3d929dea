"""The HTTP port of a store's process: its health, and counters of the memory it lends.

Owns the listener and its answers, from threads of its own, as long as the store has joined.
Must not know verbs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

HEALTH: Final = ("healthy", "not_initialized", "master_unreachable")
"""By the code of health_check."""
_REQUEST_S: Final = 10  # for one request to arrive; then its connection ends


class ClientHttp:
    """Listens until `end`. health: a code; counters: by name. Raises OSError where the port is taken."""

    def __init__(
        self, port: int, health: Callable[[], int], counters: Callable[[], Mapping[str, int]]
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST_S

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/health":
                    code = health()
                    body = json.dumps({"status": HEALTH[code], "code": code})
                    self._answer(
                        HTTPStatus.OK if code == 0 else HTTPStatus.SERVICE_UNAVAILABLE,
                        body,
                        "application/json",
                    )
                elif path in ("/metrics", "/metrics/summary"):
                    form = "mooncake_client_{} {}\n" if path == "/metrics" else "{}={} "
                    lines = (form.format(name, value) for name, value in sorted(counters().items()))
                    self._answer(HTTPStatus.OK, "".join(lines), "text/plain; version=0.0.4")
                else:
                    self._answer(HTTPStatus.NOT_FOUND, "not found\n", "text/plain")

            def _answer(self, status: HTTPStatus, body: str, kind: str) -> None:
                packed = body.encode("utf-8")
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(packed)))
                self.end_headers()
                self.wfile.write(packed)

            def log_message(self, format: str, *arguments: object) -> None:
                """An engine's process is not where requests are written."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="client-http", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def end(self) -> None:
        """Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
