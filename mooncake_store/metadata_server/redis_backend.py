"""Redis as a metadata server: a key with an expiry each. Needs redis-py (extra `redis`)."""

from __future__ import annotations

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import WatchError

from mooncake_store.errors import Unavailable
from mooncake_store.metadata_server.address import ServerAddress
from mooncake_store.metadata_server.entries import VALUE_BYTES_MAX
from mooncake_store.metadata_server.interface import TIMEOUT_S, MetadataServer


class RedisServer(MetadataServer):
    """One server of redis."""

    def __init__(self, address: ServerAddress, *, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__(address, timeout_s=timeout_s)
        self._redis = Redis(
            host=address.endpoints[0].host,
            port=address.endpoints[0].port,
            db=address.db,
            username=address.username or None,
            password=address.password or None,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            # Once, for a connection that the server has closed meanwhile.
            retry=Retry(NoBackoff(), 1),
            max_connections=4,
            protocol=2,
        )

    async def _put(self, key: str, value: bytes, ttl_s: int) -> None:
        await self._redis.set(_packed(key), value, ex=ttl_s)

    async def _get(self, key: str) -> bytes | None:
        # Not more than a value may be, whatever stands there; an empty one counts as none.
        found = await self._redis.getrange(_packed(key), 0, VALUE_BYTES_MAX)
        if len(found) > VALUE_BYTES_MAX:
            raise Unavailable(
                f"metadata server {self.where}: {key!r} holds more than {VALUE_BYTES_MAX} bytes"
            )
        return bytes(found) or None

    async def _delete(self, key: str, only: bytes | None) -> bool:
        if only is None:
            return bool(await self._redis.delete(_packed(key)))
        async with self._redis.pipeline(transaction=True) as pipe:
            await pipe.watch(_packed(key))
            if await pipe.get(_packed(key)) != only:
                return False
            pipe.multi()
            pipe.delete(_packed(key))
            try:
                return bool((await pipe.execute())[0])
            except WatchError:
                return False  # somebody has put there meanwhile

    async def _close(self) -> None:
        await self._redis.aclose()


def _packed(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")
