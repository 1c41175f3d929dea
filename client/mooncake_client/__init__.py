"""The client library and the node daemon.

Imports nothing by itself: the node daemon lives in this package and must start without numpy or grpc. What
the package exports is loaded on first use, by the module's `__getattr__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mooncake_client.async_store import AsyncStore
    from mooncake_client.records import (
        Absence,
        Explanation,
        LocalNode,
        ObjectInfo,
        Registration,
        SegmentUse,
    )
    from mooncake_client.store import Store
    from mooncake_client.story import Story
    from mooncake_store.errors import (
        BufferTooSmall,
        Busy,
        ChecksumMismatch,
        ClosedError,
        DeadlineExceeded,
        InvalidArgument,
        NoSpace,
        NotReady,
        ObjectNotFound,
        Refused,
        StaleGrant,
        StoreError,
        Unavailable,
        ValueTooLarge,
    )

__all__ = [
    "Absence",
    "AsyncStore",
    "BufferTooSmall",
    "Busy",
    "ChecksumMismatch",
    "ClosedError",
    "DeadlineExceeded",
    "Explanation",
    "InvalidArgument",
    "LocalNode",
    "NoSpace",
    "NotReady",
    "ObjectInfo",
    "ObjectNotFound",
    "Refused",
    "Registration",
    "SegmentUse",
    "StaleGrant",
    "Store",
    "StoreError",
    "Story",
    "Unavailable",
    "ValueTooLarge",
]

_HOMES = {
    "Absence": "mooncake_client.records",
    "AsyncStore": "mooncake_client.async_store",
    "Explanation": "mooncake_client.records",
    "LocalNode": "mooncake_client.records",
    "ObjectInfo": "mooncake_client.records",
    "Registration": "mooncake_client.records",
    "SegmentUse": "mooncake_client.records",
    "Store": "mooncake_client.store",
    "Story": "mooncake_client.story",
}
"""Where a name lives; the others are errors."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "mooncake_store.errors")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
