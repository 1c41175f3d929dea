"""How a metadata server of any kind is asked: put with a TTL, renew, get, delete, each with a deadline.

Owns deadlines, bounds and the translation of a library's errors. A backend must not retry beyond its
deadline.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Final, TypeVar

from mooncake_store.errors import DeadlineExceeded, InvalidArgument, StoreError, Unavailable
from mooncake_store.masking import mask_secrets
from mooncake_store.metadata_server.address import ServerAddress
from mooncake_store.metadata_server.entries import KEY_BYTES_MAX, VALUE_BYTES_MAX

TIMEOUT_S: Final = 3.0
"""For one call, connecting included."""

T = TypeVar("T")


class MetadataServer(ABC):
    """One server, asked from one event loop.

    Every call ends within `timeout_s`, and raises DeadlineExceeded, Unavailable, or InvalidArgument for a key
    or value that is too long. TTLs are whole seconds: etcd and redis know no others.
    """

    def __init__(self, address: ServerAddress, *, timeout_s: float = TIMEOUT_S) -> None:
        self.where = str(address)
        self.timeout_s = timeout_s

    async def put(self, key: str, value: bytes, *, ttl_s: int) -> None:
        """Set a value, for ttl_s unless it is renewed; what stands there, of whomever, is replaced."""
        _check(key, value)
        await self._within(self._put(key, value, ttl_s))

    async def renew(self, key: str, value: bytes, *, ttl_s: int) -> None:
        """Give a value that was put here another ttl_s, and put it anew where the server has lost it."""
        _check(key, value)
        await self._within(self._renew(key, value, ttl_s))

    async def get(self, key: str) -> bytes | None:
        """The value, None where there is none."""
        _check(key, b"")
        return await self._within(self._get(key))

    async def delete(self, key: str, *, only: bytes | None = None) -> bool:
        """Whether there was one. only: leave any other value, which somebody else has put, where it is."""
        _check(key, b"")
        return await self._within(self._delete(key, only))

    async def close(self) -> None:
        """End connections; never raises."""
        try:
            await self._within(self._close())
        except StoreError:
            return

    @abstractmethod
    async def _put(self, key: str, value: bytes, ttl_s: int) -> None: ...

    async def _renew(self, key: str, value: bytes, ttl_s: int) -> None:
        await self._put(key, value, ttl_s)

    @abstractmethod
    async def _get(self, key: str) -> bytes | None: ...

    @abstractmethod
    async def _delete(self, key: str, only: bytes | None) -> bool: ...

    @abstractmethod
    async def _close(self) -> None: ...

    async def _within(self, call: Awaitable[T]) -> T:
        try:
            return await asyncio.wait_for(call, self.timeout_s)
        except StoreError:
            raise
        except (TimeoutError, asyncio.TimeoutError) as error:
            raise DeadlineExceeded(
                f"metadata server {self.where} did not answer within {self.timeout_s:g} s"
            ) from error
        except Exception as error:
            # Of a library: each has a tree of its own, and none of them may end who publishes.
            text = mask_secrets(str(error)).splitlines()[:1] or [""]
            raise Unavailable(
                f"metadata server {self.where}: {type(error).__name__}: {text[0][:300]}"
            ) from error


def _check(key: str, value: bytes) -> None:
    if not key or len(key.encode("utf-8", "surrogateescape")) > KEY_BYTES_MAX:
        raise InvalidArgument(f"metadata key {key[:64]!r} is not of 1..{KEY_BYTES_MAX} bytes")
    if len(value) > VALUE_BYTES_MAX:
        raise InvalidArgument(f"metadata value of {len(value)} bytes; at most {VALUE_BYTES_MAX}")
