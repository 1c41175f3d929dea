"""`MooncakeDistributedStoreAsync`: every method also as `async_<method>`, run by the default executor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from mooncake_client.dropin.store import MooncakeDistributedStore

_PREFIX = "async_"


class MooncakeDistributedStoreAsync(MooncakeDistributedStore):
    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Called for what is not there: `async_put` runs `put` without blocking the event loop."""
        if not name.startswith(_PREFIX):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        method = getattr(self, name.removeprefix(_PREFIX))

        async def call(*args: Any, **kwargs: Any) -> Any:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, partial(method, *args, **kwargs))

        call.__name__ = name
        return call
