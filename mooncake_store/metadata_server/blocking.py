"""A question to a metadata server from code that waits for the answer, inside an event loop or not."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

from mooncake_store.errors import InvalidArgument
from mooncake_store.metadata_server.interface import MetadataServer
from mooncake_store.metadata_server.opening import open_metadata_server

T = TypeVar("T")


def ask(url: str, call: Callable[[MetadataServer], Awaitable[T]]) -> T:
    """What `call` answers. Raises what it raises, and InvalidArgument for a URL that names no server."""
    server = open_metadata_server(url)
    if server is None:
        raise InvalidArgument(f"metadata_server {url!r} is none that can be asked")
    outcome: Future[T] = Future()
    # A thread and a loop for each: questions are rare, and whoever asks may be inside a loop.
    threading.Thread(target=_run, args=(server, call, outcome), name="metadata-question", daemon=True).start()
    return outcome.result()


def _run(server: MetadataServer, call: Callable[[MetadataServer], Awaitable[T]], outcome: Future[T]) -> None:
    async def answer() -> T:
        try:
            return await call(server)
        finally:
            await server.close()

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        try:
            outcome.set_result(loop.run_until_complete(answer()))
        except BaseException as error:
            outcome.set_exception(error)
