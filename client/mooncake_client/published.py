"""What the nodes of this process leave at a metadata server: their segments, and where they are reached.

Standard library only, and asyncio only where there is a server: a node imports this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mooncake_store import _core
from mooncake_store.endpoints import parse_endpoint
from mooncake_store.metadata_server.address import parse_address

if TYPE_CHECKING:
    from mooncake_store.metadata_server.publisher import Publisher

TTL_MS = 30_000


def publish_nodes(
    metadata_server: str, nodes: Callable[[], Iterable[_core.Node]], *, ttl_ms: int = TTL_MS
) -> Publisher | None:
    """Tell of these nodes, as they are at each moment, until the publisher ends; None for P2PHANDSHAKE.

    Raises InvalidArgument for what is no metadata server, or one whose library is missing.
    """
    if parse_address(metadata_server) is None:
        return None
    from mooncake_store.metadata_server.descriptor import segment_entries
    from mooncake_store.metadata_server.publisher import publish

    begun = time.strftime("%Y-%m-%d %H:%M:%S")

    def told() -> dict[str, bytes]:
        entries: dict[str, bytes] = {}
        for node in nodes():
            status = node.status()
            if status["data_endpoint"]:
                endpoint = parse_endpoint(status["data_endpoint"], field="data_endpoint")
                capacity = status["stats"]["capacity_bytes"]
                entries |= segment_entries(dict.fromkeys(status["segment_names"], capacity), endpoint, begun)
        return entries

    return publish(metadata_server, told, ttl_s=max(1, ttl_ms // 1000))
