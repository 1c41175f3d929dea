"""The HTTP metadata server, this store's or Mooncake's, as a backend. Standard library only: nodes import it.

A server of Mooncake's knows no TTL, and refuses a process that comes back with another address; what stands
in its way there is deleted first.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
from typing import Final
from urllib.parse import quote

from mooncake_store.errors import Unavailable
from mooncake_store.metadata_server.address import ServerAddress
from mooncake_store.metadata_server.entries import VALUE_BYTES_MAX
from mooncake_store.metadata_server.interface import TIMEOUT_S, MetadataServer

ANSWER_BYTES_MAX: Final = VALUE_BYTES_MAX + (64 << 10)


class HttpServer(MetadataServer):
    """One connection a call: calls are seconds apart."""

    def __init__(self, address: ServerAddress, *, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__(address, timeout_s=timeout_s)
        self._endpoint = address.endpoints[0]
        self._path = address.path

    async def _put(self, key: str, value: bytes, ttl_s: int) -> None:
        status, answer = await self._ask("PUT", key, value, f"&ttl_ms={ttl_s * 1000}")
        if status == 400 and b"uplicate" in answer:
            if await self._get(key) == value:
                return
            await self._ask("DELETE", key)
            status, answer = await self._ask("PUT", key, value, f"&ttl_ms={ttl_s * 1000}")
        self._expect(status, answer, 200)

    async def _get(self, key: str) -> bytes | None:
        status, answer = await self._ask("GET", key)
        self._expect(status, answer, 200, 404)
        return answer if status == 200 else None

    async def _delete(self, key: str, only: bytes | None) -> bool:
        if only is not None and await self._get(key) != only:
            return False
        status, answer = await self._ask("DELETE", key)
        self._expect(status, answer, 200, 404)
        return status == 200

    async def _close(self) -> None:
        """Nothing stays open between calls."""

    def _expect(self, status: int, answer: bytes, *expected: int) -> None:
        if status not in expected:
            text = answer[:200].decode("utf-8", "replace")
            raise Unavailable(f"metadata server {self.where} answers {status}: {text!r}")

    async def _ask(self, method: str, key: str, body: bytes = b"", more: str = "") -> tuple[int, bytes]:
        head = (
            f"{method} {self._path}?key={quote(key, safe='', errors='surrogateescape')}{more} HTTP/1.1\r\n"
            f"Host: {self._endpoint}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection(
            self._endpoint.host, self._endpoint.port, limit=ANSWER_BYTES_MAX
        )
        try:
            writer.write(head.encode("ascii") + body)
            await writer.drain()
            answer = bytearray()
            while chunk := await reader.read(64 << 10):
                answer += chunk
                if len(answer) > ANSWER_BYTES_MAX:
                    raise Unavailable(
                        f"metadata server {self.where} answers more than {ANSWER_BYTES_MAX} bytes"
                    )
        finally:
            writer.close()
            with contextlib.suppress(OSError, ConnectionError):
                await writer.wait_closed()
        return _parsed(bytes(answer))


class _Received:
    """What `http.client` reads an answer from."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._received)


def _parsed(received: bytes) -> tuple[int, bytes]:
    """Status and body. Raises http.client.HTTPException for what is no answer."""
    answer = http.client.HTTPResponse(_Received(received))  # type: ignore[arg-type]
    answer.begin()
    return answer.status, answer.read()
