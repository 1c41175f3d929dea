"""An election kept in etcd: the leader's key hangs on a lease, and winning it raises the epoch in one
transaction.

Owns how members of etcd are tried in turn. Must not decide who should campaign.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import aetcd
import grpc

from mooncake_master.ha.election import (
    CALL_TIMEOUT_S,
    LEASE_S,
    MEMBER_TTL_S,
    ElectionUnavailable,
    Keys,
    Leader,
    Term,
)
from mooncake_store.endpoints import Endpoint

Answer = TypeVar("Answer")

CLOSE_TIMEOUT_S: Final = 1.0
_FAILURES: Final = (aetcd.ClientError, grpc.RpcError, asyncio.TimeoutError, OSError)


class EtcdElection:
    """Implements `Election`."""

    def __init__(self, endpoints: Sequence[Endpoint], cluster_id: str) -> None:
        """endpoints: etcd's members; one that does not answer gives way to the next."""
        self._endpoints = list(endpoints)
        self._keys = Keys.of(cluster_id)
        self._client: Any = None
        self._asking = asyncio.Lock()  # ending a client cancels whoever asks through it
        self._noted_epoch = 0
        self._member_lease: Any = None

    async def campaign(self, address: str, *, above: int) -> Term | None:
        view, epoch_key = self._keys.view.encode(), self._keys.epoch.encode()

        async def attempt(client: Any) -> Term | None:
            if await client.get(view) is not None:
                return None
            kept = await client.get(epoch_key)
            epoch = max(_number(kept), above) + 1
            lease = await client.lease(LEASE_S)
            made = client.transactions
            won, _ = await client.transaction(
                compare=[
                    made.create(view) == 0,
                    made.mod(epoch_key) == (0 if kept is None else kept.mod_revision),
                ],
                success=[
                    made.put(view, address.encode(), lease.id),
                    made.put(epoch_key, b"%d" % epoch),
                ],
                failure=[],
            )
            if not won:
                await lease.revoke()
                return None
            self._noted_epoch = epoch
            return Term(address, epoch, str(lease.id))

        return await self._ask("campaign", attempt)

    async def renew(self, term: Term, *, epoch: int) -> bool:
        view = self._keys.view.encode()

        async def attempt(client: Any) -> bool:
            reply = await client.refresh_lease(int(term.token))
            if reply is None or reply.TTL <= 0:
                return False
            held = await client.get(view)
            if held is None or held.lease != int(term.token):
                return False
            if epoch > max(self._noted_epoch, term.epoch):
                made = client.transactions
                kept, _ = await client.transaction(
                    compare=[made.create(view) == held.create_revision],
                    success=[made.put(self._keys.epoch.encode(), b"%d" % epoch)],
                    failure=[],
                )
                if not kept:
                    return False
                self._noted_epoch = epoch
            return True

        return await self._ask("renew", attempt)

    async def resign(self, term: Term) -> None:
        async def attempt(client: Any) -> None:
            reply = await client.get_lease_info(int(term.token), keys=False)
            if reply.TTL > 0:
                await client.revoke_lease(int(term.token))

        await self._ask("resign", attempt)

    async def leader(self) -> Leader | None:
        async def attempt(client: Any) -> Leader | None:
            made = client.transactions
            _, (held, kept) = await client.transaction(
                compare=[],
                success=[made.get(self._keys.view.encode()), made.get(self._keys.epoch.encode())],
                failure=[],
            )
            if not held:
                return None
            return Leader(held[0][0].decode("utf-8", "replace"), _number(kept[0][1] if kept else None))

        return await self._ask("leader", attempt)

    async def announce(self, address: str) -> None:
        async def attempt(client: Any) -> None:
            if self._member_lease is not None:
                reply = await client.refresh_lease(self._member_lease)
                if reply is not None and reply.TTL > 0:
                    return
            self._member_lease = None
            lease = await client.lease(MEMBER_TTL_S)
            await client.put((self._keys.members + address).encode(), address.encode(), lease.id)
            self._member_lease = lease.id

        await self._ask("announce", attempt)

    async def close(self) -> None:
        lease, self._member_lease = self._member_lease, None
        if lease is not None:
            with contextlib.suppress(ElectionUnavailable):
                await self._ask("leave", lambda client: client.revoke_lease(lease))
        await self._drop()

    async def _ask(self, what: str, attempt: Callable[[Any], Awaitable[Answer]]) -> Answer:
        """Ask the member that answered last, then each of the others once."""
        why: list[str] = []
        async with self._asking:
            for _ in range(len(self._endpoints)):
                member = self._endpoints[0]
                try:
                    if self._client is None:
                        self._client = aetcd.Client(
                            host=member.host, port=member.port, timeout=CALL_TIMEOUT_S
                        )
                    return await asyncio.wait_for(attempt(self._client), CALL_TIMEOUT_S)
                except _FAILURES as error:
                    why.append(f"{member}: {str(error) or type(error).__name__}")
                    await self._drop()
                    self._endpoints.append(self._endpoints.pop(0))
        raise ElectionUnavailable(f"{what}: no member of etcd answers ({'; '.join(why)})")

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(*_FAILURES):
                await asyncio.wait_for(client.close(), CLOSE_TIMEOUT_S)


def _number(kept: Any) -> int:
    """An epoch as it is kept. Anything else counts as none: what the nodes know is above it anyhow."""
    text: bytes = kept.value if kept is not None else b""
    return int(text) if text.isdigit() and len(text) < 20 else 0
