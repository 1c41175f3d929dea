"""How Python asks the native state machine: one packed request, one answer, no thread that waits.

Owns the asyncio side of `_core.Master.submit` and the sessions that the daemon opens for itself (operators'
questions come without one). Must not know gRPC or HTTP: both doors stand on this.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Protocol

from mooncake_store import _core
from mooncake_store.errors import StoreError, error_for
from mooncake_store.status import Status

VERBS: dict[str, int] = _core.verb_numbers()
ANSWER_TIMEOUT_S = 10.0
"""Longest wait for the state machine; parked calls end sooner, so this only ends a hang."""


class NativeMaster(Protocol):
    """The part of `_core.Master` that the doors use."""

    def submit(self, verb: int, body: bytes, callback: Callable[[int, bytes], object]) -> None: ...


class Door:
    """Asks one native master from one event loop."""

    def __init__(self, master: NativeMaster) -> None:
        self._master = master

    async def ask(self, verb: str, body: bytes) -> bytes:
        """The answer's packed body. Raises the StoreError of a refusal; per-key outcomes are in the body."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[int, bytes]] = loop.create_future()

        def settle(status: int, packed: bytes) -> None:
            if not answer.done():
                answer.set_result((status, packed))

        def answered(status: int, packed: bytes) -> None:
            # Called on a native thread, or inside submit; the loop may have been closed meanwhile.
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, status, packed)

        self._master.submit(VERBS[verb], body, answered)
        try:
            status, packed = await asyncio.wait_for(answer, ANSWER_TIMEOUT_S)
        except TimeoutError as error:
            raise error_for(
                Status.DEADLINE, f"{verb}: no answer from the state machine in {ANSWER_TIMEOUT_S:.0f} s"
            ) from error
        if status != Status.OK:
            raise error_for(status, _reason(packed) or f"{verb} was refused with status {status}")
        return packed


class HouseSession:
    """A session of the daemon's own in one tenant, for HTTP's questions; opened when first needed.

    Opened again by itself when the state machine no longer knows it. `keep` is to be called as
    often as clients heartbeat: a session that expires is told to the operator as a client that was lost.
    """

    def __init__(self, door: Door, tenant: str) -> None:
        self._door = door
        self._tenant = tenant
        self._uuid = os.urandom(16)
        self._session = 0
        self._opening = asyncio.Lock()

    async def id(self) -> int:
        """The session's id, valid when returned."""
        async with self._opening:
            if self._session and await self._is_alive():
                return self._session
            body = _core.encode_open_session(self._uuid, "mooncake_master", "", self._tenant)
            reply = _core.parse_open_session_reply(await self._door.ask("open_session", body))
            self._session = reply["session"]
            return self._session

    async def keep(self) -> None:
        """Heartbeat, if it was ever opened."""
        async with self._opening:
            if self._session and not await self._is_alive():
                self._session = 0

    async def _is_alive(self) -> bool:
        try:
            await self._door.ask("heartbeat", _core.encode_prefix(self._session))
        except StoreError as error:
            if error.code != Status.SESSION_UNKNOWN:
                raise
            return False
        return True


def _reason(packed: bytes) -> str:
    """The text of a refusal: a u16 length and UTF-8 (proto/FRAMES.md)."""
    length = int.from_bytes(packed[:2], "little")
    return packed[2 : 2 + length].decode("utf-8", "replace")
