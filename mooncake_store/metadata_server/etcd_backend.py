"""etcd as a metadata server: one lease for all that a process has put. Needs aetcd (extra `etcd`).

Several members are asked in turn, the one that answered last first; each gets its share of the deadline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import aetcd

from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import Unavailable
from mooncake_store.metadata_server.address import ServerAddress
from mooncake_store.metadata_server.interface import TIMEOUT_S, MetadataServer

T = TypeVar("T")

OPTIONS: Final = {
    # A member that is back must be found at the next try, not when gRPC looks again.
    "grpc.use_local_subchannel_pool": 1,
    "grpc.enable_http_proxy": 0,
}


class EtcdServer(MetadataServer):
    """A cluster of etcd."""

    def __init__(self, address: ServerAddress, *, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__(address, timeout_s=timeout_s)
        self._address = address
        self._endpoints = list(address.endpoints)
        self._client: aetcd.Client | None = None
        self._lease = 0

    async def _put(self, key: str, value: bytes, ttl_s: int) -> None:
        async def put(client: aetcd.Client) -> None:
            if not await self._keep_lease(client):
                self._lease = (await client.lease(ttl_s)).id
            await client.put(_packed(key), value, lease=self._lease)

        await self._with_a_member(put)

    async def _renew(self, key: str, value: bytes, ttl_s: int) -> None:
        async def is_there(client: aetcd.Client) -> bool:
            if not await self._keep_lease(client):
                return False
            found = await client.get(_packed(key))
            return found is not None and (found.value, found.lease) == (value, self._lease)

        # Nothing is written as long as all is well: every write of etcd's goes to all of its disks.
        if not await self._with_a_member(is_there):
            await self._put(key, value, ttl_s)

    async def _get(self, key: str) -> bytes | None:
        found = await self._with_a_member(lambda client: client.get(_packed(key)))
        return None if found is None else bytes(found.value)

    async def _delete(self, key: str, only: bytes | None) -> bool:
        async def delete(client: aetcd.Client) -> bool:
            if only is None:
                return bool(await client.delete(_packed(key)))
            has_it = client.transactions.value(_packed(key)) == only
            done, _ = await client.transaction(
                compare=[has_it], success=[client.transactions.delete(_packed(key))], failure=[]
            )
            return bool(done)

        return await self._with_a_member(delete)

    async def _close(self) -> None:
        # The lease stays: what was put is there for its TTL, whoever goes on renewing it.
        self._lease = 0
        await self._leave_member()

    async def _keep_lease(self, client: aetcd.Client) -> bool:
        """Whether there is one, begun anew. A lease that has ended is answered with no time left."""
        if not self._lease:
            return False
        answer: Any = await client.refresh_lease(self._lease)
        if answer is None or answer.TTL <= 0:
            self._lease = 0
        return self._lease != 0

    async def _with_a_member(self, call: Callable[[aetcd.Client], Awaitable[T]]) -> T:
        told = ""
        for _ in range(len(self._endpoints)):
            if self._client is None:
                self._client = self._member(self._endpoints[0])
            try:
                return await call(self._client)
            except aetcd.ClientError as error:
                told = f"{self._endpoints[0]}: {type(error).__name__}: {error}"
                await self._leave_member()
                self._endpoints.append(self._endpoints.pop(0))
            except BaseException:
                # Given up in the middle, by the deadline: the next call asks another member.
                self._client = None
                self._endpoints.append(self._endpoints.pop(0))
                raise
        raise Unavailable(f"metadata server {self.where}: {told[:300]}")

    def _member(self, endpoint: Endpoint) -> aetcd.Client:
        host, _, port = str(endpoint).rpartition(":")
        return aetcd.Client(
            host=host,
            port=int(port),
            username=self._address.username or None,
            password=self._address.password or None,
            timeout=self.timeout_s / len(self._endpoints),
            options=OPTIONS,
        )

    async def _leave_member(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _packed(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")
