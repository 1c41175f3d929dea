"""SGLang's HiCache storage: `--hicache-storage-backend dynamic` with this module and `MooncakeHiCache`.

A page is one object under the identity of its cache and SGLang's own hash of it, straight from and into the
host pool when `interface_v1` is set. Models with more pools than one (Mamba, SWA, draft) are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

from mooncake_client.connectors.block_pool import BlockPool, memory_of
from mooncake_client.connectors.identity import identity
from mooncake_store import _core
from mooncake_store.errors import InvalidArgument

OF_SGLANG: Final = frozenset(
    ("backend_name", "module_path", "class_name", "interface_v1", "tp_lcm_size", "extra_backend_tag")
)
"""Names in the extra config that are SGLang's; so are those that begin with SGLANG_PREFIXES."""
SGLANG_PREFIXES: Final = ("prefetch_", "hicache_", "enable_storage_")


class MooncakeHiCache(HiCacheStorage):  # type: ignore[misc, unused-ignore]
    """One rank's backend. Calls come from SGLang's prefetch and backup threads."""

    def __init__(self, storage_config: Any, options: Any = None, *, pool: BlockPool | None = None) -> None:
        """options: SGLang's, not used. pool: instead of what the extra config names; for tests."""
        self._config = storage_config
        self._extra: Mapping[str, Any] = storage_config.extra_config or {}
        given = {
            name: value
            for name, value in self._extra.items()
            if name not in OF_SGLANG and not name.startswith(SGLANG_PREFIXES)
        }
        self.pool = pool or BlockPool.join(given, "hicache-storage-backend-extra-config")
        self._prefix = b""
        self._page_bytes = 0

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """The pool of pages; with it the identity of this cache is known."""
        super().register_mem_pool_host(mem_pool_host)
        config = self._config
        if getattr(config, "should_split_heads", False):
            raise InvalidArgument("tp_lcm_size: pages that are shared over different tp sizes are not built")
        shared = config.is_mla_model  # every rank of MLA has the same bytes
        self._prefix = identity(
            "sglang",
            model=config.model_name,
            tag=self._extra.get("extra_backend_tag", ""),
            dtype=str(mem_pool_host.dtype),
            layout=mem_pool_host.layout,
            page_size=mem_pool_host.page_size,
            page_bytes=mem_pool_host.get_size_per_token() * mem_pool_host.page_size,
            mla=shared,
            tp=None if shared else (config.tp_rank, config.tp_size),
            pp=(config.pp_rank, config.pp_size),
            cp=(getattr(config, "attn_cp_rank", 0), getattr(config, "attn_cp_size", 1)),
            dcp=(getattr(config, "dcp_rank", 0), getattr(config, "dcp_size", 1)),
        )

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        raise InvalidArgument(
            f"pool {host_pool_name}: this backend keeps models with one pool of KV pages; hybrid models need "
            "SGLang's own backend 'mooncake', which runs over this store too (docs/dropin.md)"
        )

    # ---- pages of the host pool

    def batch_get_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        """Read pages into the host pool; which of them were. host_indices: one a token, pages in order."""
        memory = self._pages(keys, host_indices)
        lengths = self.pool.load(self._keys(keys), memory)
        return [length == memory.size_of(i) for i, length in enumerate(lengths)]

    def batch_set_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        """Store pages of the host pool; which of them are there now."""
        return self.pool.save(
            self._keys(keys), self._pages(keys, host_indices), self._parents(keys, extra_info)
        )

    def _pages(self, keys: Sequence[str], host_indices: Any) -> _core.PackedMemory:
        pointers, sizes = self.mem_pool_host.get_page_buffer_meta(host_indices)
        pieces, rest = divmod(len(pointers), len(keys)) if keys else (0, 0)
        if rest:
            raise InvalidArgument(f"{len(keys)} pages have {len(pointers)} pieces of memory")
        cut = range(0, len(pointers), pieces or 1)
        return _core.PackedMemory.of_pieces(
            [pointers[start : start + pieces] for start in cut],
            [sizes[start : start + pieces] for start in cut],
        )

    # ---- tensors of the caller

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        """The target, filled, or None."""
        [found] = self.batch_get([key], [target_location], target_sizes)
        return found

    def batch_get(self, keys: list[str], target_locations: Any = None, target_sizes: Any = None) -> list[Any]:
        """Each target (a contiguous host tensor of a page), filled, or None."""
        targets = list(target_locations or ())
        if len(targets) != len(keys) or any(target is None for target in targets):
            raise InvalidArgument(f"{len(keys)} keys but {len(targets)} tensors to fill")
        lengths = self.pool.load(self._keys(keys), memory_of(targets))
        return [
            target if length == target.nbytes else None
            for target, length in zip(targets, lengths, strict=True)
        ]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        return self.batch_set([key], [value])

    def batch_set(
        self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        """Store tensors of pages; whether all are there now."""
        kept = [value if value.is_contiguous() else value.contiguous() for value in values]
        return all(self.pool.save(self._keys(keys), memory_of(kept), self._parents(keys, None)))

    # ---- what is there

    def exists(self, key: str) -> bool:
        return self.pool.present(self._keys([key])) == [True]

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        """How many pages are there before the first that is not."""
        found = self.pool.present(self._keys(keys))
        return found.index(False) if False in found else len(found)

    def clear(self) -> None:
        """End the pages of this rank's identity, which are also those of other engines with it."""
        if self._prefix:
            self.pool.clear(self._prefix)

    def close(self) -> None:
        self.pool.close()

    def _keys(self, keys: Sequence[str]) -> list[bytes]:
        if not self._prefix:
            raise InvalidArgument("no pool of pages is registered: register_mem_pool_host comes first")
        return [self._prefix + key.encode() for key in keys]

    def _parents(self, keys: Sequence[str], extra_info: Any) -> list[bytes | None]:
        """The page before each: what SGLang names, and the keys of one call follow each other."""
        before = getattr(extra_info, "prefix_keys", None)
        names = self._keys(keys)
        first = self._keys(before[-1:])[0] if before else None
        return [first, *names[:-1]] if names else []
