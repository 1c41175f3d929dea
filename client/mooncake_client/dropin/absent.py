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


class SharedSegment:
    """Memory that the ranks of one host share."""

    def __init__(self) -> None:
        raise NotImplementedError(f"SharedSegment {_NOT_BUILT}")

    @staticmethod
    def supported(mmap: bool = True, host_register: bool = False) -> bool:
        del mmap, host_register
        return False

    @staticmethod
    def create(
        name: str,
        size: int,
        world_size: int,
        rank_id: int,
        owner_rank: int = 0,
        device_id: int = 0,
        mmap: bool = True,
        host_register: bool = False,
    ) -> tuple[SharedSegment, bytes]:
        raise NotImplementedError(f"SharedSegment {_NOT_BUILT}")


class RpcInterface:
    """Messages between processes, apart from transfers."""

    def __init__(self) -> None:
        raise NotImplementedError(f"RpcInterface {_NOT_BUILT}")


class ReceivedData:
    def __init__(self) -> None:
        raise NotImplementedError(f"ReceivedData {_NOT_BUILT}")


class ReceivedTensor:
    def __init__(self) -> None:
        raise NotImplementedError(f"ReceivedTensor {_NOT_BUILT}")


def create_rpc(local_rank: int = 0, world_size: int = 1) -> RpcInterface:
    del local_rank, world_size
    return RpcInterface()
