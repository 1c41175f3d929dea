"""`mooncake_http_metadata_server`: keys and values over HTTP, where programs of Mooncake's leave their
addresses.

Nothing here asks it: clients find nodes through the master. It is for programs that are pointed at it. Needs
aiohttp. What it holds is bounded, and ends with it.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from typing import Final

from aiohttp import web

log = logging.getLogger("mooncake_store.dropin.metadata")

VALUE_BYTES_MAX: Final = 1 << 20
KEYS_MAX: Final = 65_536
"""Above it a new key is answered 507."""
_RPC_META: Final = "rpc_meta"
_JSON: Final = "application/json"


class KVBootstrapServer:
    """The values by key (`store`), and what each method answers."""

    def __init__(self, port: int = 8080, host: str = "0.0.0.0") -> None:
        self.port, self.host = port, host
        self.store: dict[str, bytes] = {}

    def application(self) -> web.Application:
        app = web.Application(client_max_size=VALUE_BYTES_MAX)
        methods = ("GET", "PUT", "DELETE")
        app.add_routes([web.route(method, "/metadata", self._handle_metadata) for method in methods])
        return app

    async def _handle_metadata(self, request: web.Request) -> web.Response:
        key = request.query.get("key", "").strip()
        if not key:
            return web.Response(status=400, text="metadata key is required")
        if request.method == "PUT":
            return self._put(key, await request.read())
        return self._delete(key) if request.method == "DELETE" else self._get(key)

    def _get(self, key: str) -> web.Response:
        value = self.store.get(key)
        if value is None:
            return _answer(404, "metadata not found")
        return web.Response(body=value, content_type=_JSON)

    def _put(self, key: str, value: bytes) -> web.Response:
        """A key with the address of a process is put once: two processes of one name would serve each
        other's.
        """
        if _RPC_META in key and key in self.store:
            return _answer(400, "Duplicate rpc_meta key not allowed")
        if key not in self.store and len(self.store) >= KEYS_MAX:
            return _answer(507, f"{KEYS_MAX} keys are held already")
        self.store[key] = value
        return _answer(200, "metadata updated")

    def _delete(self, key: str) -> web.Response:
        found = self.store.pop(key, None)
        return _answer(404, "metadata not found") if found is None else _answer(200, "metadata deleted")


def _answer(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text, content_type=_JSON)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mooncake_http_metadata_server", description="Metadata over HTTP.")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument(
        "--log-level", default="INFO", type=str.upper, choices=("DEBUG", "INFO", "WARNING", "ERROR")
    )
    flags = parser.parse_args(argv)
    logging.basicConfig(level=flags.log_level, format="%(levelname)s %(name)s: %(message)s")
    try:
        web.run_app(
            KVBootstrapServer(flags.port, flags.host).application(),
            host=flags.host,
            port=flags.port,
            print=lambda line: log.info("%s", line.splitlines()[0]),
        )
    except OSError as error:
        log.error("cannot listen on %s:%d (--host, --port): %s", flags.host, flags.port, error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
