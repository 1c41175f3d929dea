"""LMCache's remote storage plugin, `remote_storage_plugins` with this module and `MooncakeRemote`.

A chunk is one object of its plain bytes; its shape is that of LMCache's own configuration, which is part of
the key, so no header is stored. Layerwise chunks have other shapes and are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from lmcache.v1.storage_backend.connector.base_connector import RemoteConnector

from mooncake_client.connectors.block_pool import BlockPool
from mooncake_client.connectors.identity import identity
from mooncake_store import _core
from mooncake_store.errors import InvalidArgument

AnswerT = TypeVar("AnswerT")
Chunks: TypeAlias = list[Any]  # the class has a method of the name `list`
Names: TypeAlias = list[bytes]
PREFIX: Final = "mooncake_store."
"""Names in LMCache's extra_config that are the pool's begin so."""


class MooncakeRemote(RemoteConnector):  # type: ignore[misc, unused-ignore]
    """One worker's connector; its calls that wait run on threads of the event loop's own pool."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        local_cpu_backend: Any,
        config: Any = None,
        *,
        pool: BlockPool | None = None,
    ) -> None:
        """pool: instead of what the configuration names; for tests. Raises InvalidArgument, Unavailable."""
        config = config or local_cpu_backend.config
        metadata = local_cpu_backend.metadata
        super().__init__(config, metadata)
        if config.use_layerwise:
            raise InvalidArgument(
                "use_layerwise is true: chunks of single layers are not built; set it false"
            )
        self._local = local_cpu_backend
        self.pool = pool or BlockPool.join(pool_settings(config.extra_config or {}), "LMCache's extra_config")
        self._prefix = identity(
            "lmcache",
            chunk_tokens=metadata.chunk_size,
            shapes=[tuple(shape) for shape in self.meta_shapes],
            dtypes=[str(dtype) for dtype in self.meta_dtypes],
            format=str(self.meta_fmt),
        )

    # ---- what is there

    async def exists(self, key: Any) -> bool:
        return await self.batched_async_contains("", [key]) == 1

    def exists_sync(self, key: Any) -> bool:
        return self.batched_contains([key]) == 1

    def support_batched_contains(self) -> bool:
        return True

    def batched_contains(self, keys: Sequence[Any]) -> int:
        """How many chunks are there before the first that is not."""
        found = self.pool.present(self._keys(keys))
        return found.index(False) if False in found else len(found)

    async def batched_async_contains(self, lookup_id: str, keys: Sequence[Any], pin: bool = False) -> int:
        return await asyncio.to_thread(self.batched_contains, keys)

    # ---- chunks

    def support_batched_get(self) -> bool:
        return True

    async def get(self, key: Any) -> Any:
        [found] = await self.batched_get([key])
        return found

    async def batched_get(self, keys: Sequence[Any]) -> Chunks:
        """Chunks in memory of LMCache's own pool, or None where there is none or no room for one."""
        found: Chunks = [None] * len(keys)
        room = {}
        for index in range(len(keys)):
            chunk = self._local.allocate(self.meta_shapes, self.meta_dtypes, self.meta_fmt)
            if chunk is not None:
                room[index] = chunk
        if not room:
            return found
        memory = memory_of_chunks(list(room.values()))
        names = self._keys([keys[index] for index in room])
        try:
            lengths = await to_the_end(self.pool.load, names, memory)
        except asyncio.CancelledError:
            for chunk in room.values():
                chunk.ref_count_down()
            raise
        for (index, chunk), length in zip(room.items(), lengths, strict=True):
            if length > 0 and length % self.single_token_size == 0:
                found[index] = self.reshape_partial_chunk(chunk, length)
            else:
                chunk.ref_count_down()
        return found

    def support_batched_get_non_blocking(self) -> bool:
        return True

    async def batched_get_non_blocking(self, lookup_id: str, keys: Sequence[Any]) -> Chunks:
        """The chunks before the first that is missing."""
        found = await self.batched_get(keys)
        missing = found.index(None) if None in found else len(found)
        for chunk in found[missing:]:
            if chunk is not None:
                chunk.ref_count_down()
        return found[:missing]

    def support_batched_put(self) -> bool:
        return True

    async def put(self, key: Any, memory_obj: Any) -> None:
        await self.batched_put([key], [memory_obj])

    async def batched_put(self, keys: Sequence[Any], memory_objs: Sequence[Any]) -> None:
        """Store chunks, each of which follows the one before; the caller gives them back."""
        names = self._keys(keys)
        parents = [None, *names[:-1]]
        await to_the_end(self.pool.save, names, memory_of_chunks(memory_objs), parents)

    def remove_sync(self, key: Any) -> bool:
        return self.pool.remove(self._keys([key])) == [True]

    async def list(self) -> Chunks:
        """Nothing: keys are of all engines with this configuration; `mooncake keys` lists them."""
        return []

    async def close(self) -> None:
        await asyncio.to_thread(self.pool.close)

    def _keys(self, keys: Sequence[Any]) -> Names:
        return [self._prefix + key.to_string().encode() for key in keys]


async def to_the_end(call: Callable[..., AnswerT], *arguments: Any) -> AnswerT:
    """The call's answer, on a thread. A cancellation is raised when the call has ended, which has a deadline:
    until then it reads or writes chunks, which nobody may have again.
    """
    running = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        raise


def pool_settings(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The pool's settings in LMCache's extra_config, without their prefix."""
    return {name.removeprefix(PREFIX): value for name, value in extra.items() if name.startswith(PREFIX)}


def memory_of_chunks(chunks: Sequence[Any]) -> _core.PackedMemory:
    """Where chunks lie; the caller keeps them."""
    return _core.PackedMemory.of_addresses(
        [chunk.data_ptr for chunk in chunks], [chunk.get_size() for chunk in chunks]
    )
