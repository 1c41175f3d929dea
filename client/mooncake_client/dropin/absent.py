"""Names of Mooncake's that need what is not built here: they can be imported, and say so when used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mooncake_client.dropin.codes import NOT_SUPPORTED

_NOT_BUILT: Final = "is not built: see docs/dropin.md of mooncake-store"


class EngramStoreConfig:
    def __init__(self, table_vocab_sizes: Sequence[int] = (), embedding_dim: int = 0) -> None:
        self.table_vocab_sizes = list(table_vocab_sizes)
        self.embedding_dim = embedding_dim


class EngramStore:
    def __init__(self, layer_id: int, config: EngramStoreConfig, store: object = None) -> None:
        raise NotImplementedError(f"EngramStore {_NOT_BUILT}")


class MooncakeDistributedNoFRegister:
    """Registers SSDs that are reached over NVMe-oF: -1012."""

    def real_register(self, *arguments: Any) -> int:
        del arguments
        return NOT_SUPPORTED

    def real_unregister_by_endpoint(self, *arguments: Any) -> int:
        del arguments
        return NOT_SUPPORTED
