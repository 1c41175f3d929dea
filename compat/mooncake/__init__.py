"""The package that programs written against Mooncake import, over mooncake-store's client.

Owns names only: what they do is in `mooncake_client.dropin`. Refuses to be imported where Mooncake's own
distribution is installed too, because nobody could say whose files are here then.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

__all__ = ["BufferPool", "RegisteredBufferPool"]

OTHERS = ("mooncake-transfer-engine", "mooncake-transfer-engine-non-cuda", "mooncake-transfer-engine-cuda13")
"""Mooncake's distributions of the same package."""


def _refuse_to_shadow() -> None:
    for name in OTHERS:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        raise ImportError(
            f"mooncake-store-compat and {name} {version} are both installed, and both have the package "
            f"`mooncake`. Uninstall one: pip uninstall {name}, or: pip uninstall mooncake-store-compat"
        )


_refuse_to_shadow()


def __getattr__(name: str) -> Any:
    """The pools, loaded on first use: who wants the configuration alone needs no native module."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mooncake import buffer_pool

    return getattr(buffer_pool, name)
