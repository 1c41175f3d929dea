"""Mooncake's name for the HTTP metadata server, for programs that import it."""

from __future__ import annotations

from mooncake_store.metadata_server.command import main
from mooncake_store.metadata_server.server import HttpMetadataServer

__all__ = ["KVBootstrapServer", "main"]


class KVBootstrapServer(HttpMetadataServer):
    """`HttpMetadataServer` with Mooncake's arguments; `application()` is what to serve."""

    def __init__(self, port: int = 8080, host: str = "0.0.0.0") -> None:
        super().__init__()
        self.port, self.host = port, host
