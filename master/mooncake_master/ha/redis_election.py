"""An election kept in redis: the leader's key expires, and scripts compare, set and raise the epoch at once.

Must not decide who should campaign. One redis server, or what a proxy makes look like one; a redis that loses
its last writes in a failover of its own may lose an election's, and then nodes refuse the lower epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from redis import asyncio as redis
from redis.exceptions import RedisError

from mooncake_master.ha.election import (
    CALL_TIMEOUT_S,
    LEASE_S,
    MEMBER_TTL_S,
    ElectionUnavailable,
    Keys,
    Leader,
    Term,
)

_FAILURES: Final = (RedisError, asyncio.TimeoutError, OSError)

# Of all scripts but _ANNOUNCE: KEYS are the view and the epoch.
_CAMPAIGN: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local kept = tonumber(redis.call('GET', KEYS[2]) or '0') or 0
local epoch = string.format('%d', math.max(kept, tonumber(ARGV[2])) + 1)
redis.call('SET', KEYS[2], epoch)
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. epoch, 'PX', ARGV[3])
return tonumber(epoch)
"""
# A redis that came back empty gets the term again: had anybody led since, its epoch would be higher.
_RENEW: Final = """
local held = redis.call('GET', KEYS[1])
local kept = tonumber(redis.call('GET', KEYS[2]) or '0') or 0
local epoch = tonumber(ARGV[2])
if held ~= ARGV[1] and (held or kept > epoch) then return 0 end
if epoch > kept then redis.call('SET', KEYS[2], ARGV[2]) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return 1
"""
# A set by the second at which each master's entry ends.
_ANNOUNCE: Final = """
local now = tonumber(redis.call('TIME')[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
return redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
"""
_RESIGN: Final = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
)


class RedisElection:
    """Implements `Election`."""

    def __init__(self, url: str, cluster_id: str) -> None:
        """url: redis://[user:password@]host:port[/db]."""
        self._keys = Keys.of(cluster_id)
        self._announced = ""
        self._client: Any = redis.from_url(
            url, socket_timeout=CALL_TIMEOUT_S, socket_connect_timeout=CALL_TIMEOUT_S
        )

    async def campaign(self, address: str, *, above: int) -> Term | None:
        epoch = int(await self._run("campaign", _CAMPAIGN, address, above, LEASE_S * 1_000))
        return Term(address, epoch, f"{address} {epoch}") if epoch else None

    async def renew(self, term: Term, *, epoch: int) -> bool:
        return bool(await self._run("renew", _RENEW, term.token, epoch, LEASE_S * 1_000))

    async def resign(self, term: Term) -> None:
        await self._run("resign", _RESIGN, term.token)

    async def leader(self) -> Leader | None:
        held, kept = await self._call("leader", "MGET", self._keys.view, self._keys.epoch)
        if not held:
            return None
        address = held.decode("utf-8", "replace").split(" ")[0]
        return Leader(address, int(kept) if kept and kept.isdigit() and len(kept) < 20 else 0)

    async def announce(self, address: str) -> None:
        self._announced = address
        await self._call("announce", "EVAL", _ANNOUNCE, 1, self._keys.members, address, MEMBER_TTL_S)

    async def close(self) -> None:
        if self._announced:
            with contextlib.suppress(ElectionUnavailable):
                await self._call("leave", "ZREM", self._keys.members, self._announced)
        with contextlib.suppress(*_FAILURES):
            await self._client.aclose()

    async def _run(self, what: str, script: str, *arguments: str | int) -> Any:
        return await self._call(what, "EVAL", script, 2, self._keys.view, self._keys.epoch, *arguments)

    async def _call(self, what: str, *command: str | int) -> Any:
        try:
            return await asyncio.wait_for(self._client.execute_command(*command), CALL_TIMEOUT_S)
        except _FAILURES as error:
            raise ElectionUnavailable(
                f"{what}: redis does not answer ({str(error) or type(error).__name__})"
            ) from error
