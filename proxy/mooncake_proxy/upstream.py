"""The proxy's one HTTP client: a pooled session to all instances, and what its failures mean.

Owns connections and deadlines of one exchange; which instance is asked, and what follows, is decided by
`relay`.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any, Final

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from mooncake_proxy.config import ProxyConfig
from mooncake_proxy.fleet import Instance

IDLE_S: Final = 4.0
"""An unused connection is closed after this: engines (uvicorn) close theirs after 5 s, and a request that
meets such a close would fail for nothing."""
NAMES_CACHED_S: Final = 10
SMALL_ANSWER_BYTES_MAX: Final = 4 << 20
"""Of a prefill (one token) and of /v1/models; what is longer is a failure of that instance."""
OWN_HEADERS_ONLY: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")

FAILURES: Final = (aiohttp.ClientError, asyncio.TimeoutError, OSError)
"""What an exchange raises when its peer, or the way to it, failed."""


def open_session(config: ProxyConfig) -> aiohttp.ClientSession:
    """For a running loop. Keeps no cookies: they would go from one client to the next."""
    connector = aiohttp.TCPConnector(
        limit=0,  # requests are bounded where they come in
        keepalive_timeout=IDLE_S,
        ttl_dns_cache=NAMES_CACHED_S,
        happy_eyeballs_delay=0.25,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,  # what a client accepts is passed on, and so is what it gets
        trust_env=False,
        skip_auto_headers=OWN_HEADERS_ONLY,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=config.connect_timeout_ms / 1_000),
        max_line_size=16_384,
        max_field_size=65_536,
    )


def post(
    session: aiohttp.ClientSession, instance: Instance, path: str, body: bytes, headers: CIMultiDict[str]
) -> Any:
    """The exchange as an async context manager; redirects are not followed."""
    url = URL(instance.url + path, encoded=True)
    return session.post(url, data=body, headers=headers, allow_redirects=False)


async def get(
    session: aiohttp.ClientSession, instance: Instance, path: str, *, key: str
) -> tuple[int, bytes]:
    """Status and body of a small answer; the caller bounds the time. Raises one of FAILURES."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    url = URL(instance.url + path, encoded=True)
    async with session.get(url, headers=headers, allow_redirects=False) as answer:
        return answer.status, await small_body(answer)


async def small_body(answer: aiohttp.ClientResponse) -> bytes:
    """The whole body; raises ClientPayloadError where it is longer than such an answer is."""
    parts: list[bytes] = []
    size = 0
    async for part in answer.content.iter_any():
        size += len(part)
        if size > SMALL_ANSWER_BYTES_MAX:
            answer.close()
            raise aiohttp.ClientPayloadError(f"the answer is longer than {SMALL_ANSWER_BYTES_MAX} bytes")
        parts.append(part)
    return b"".join(parts)


def is_gone(error: BaseException) -> bool:
    """Nobody could be reached: no name, no route, refused, or no connection in time."""
    return isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, socket.gaierror))


def cause_of(error: BaseException) -> str:
    """In a few words, for logs and for the client."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "no connection within --connect_timeout_ms"
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name is not known"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = getattr(error.os_error, "errno", None)
        return {errno.ECONNREFUSED: "connection refused"}.get(
            number or 0, f"cannot be reached: {error.os_error}"
        )
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "broke off its answer"
    if isinstance(error, ConnectionError):
        return "connection lost"
    return f"{type(error).__name__}: {error}"[:200]
