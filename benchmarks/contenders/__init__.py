"""The contenders by name. Each is imported only in its worker, whose environment has what it needs."""

from __future__ import annotations

import importlib
from typing import Final

from benchmarks.contender import Contender

CONTENDERS: Final = {
    "ours": "benchmarks.contenders.ours:Ours",
    "owner": "benchmarks.contenders.owner:Owner",
    "mooncake": "benchmarks.contenders.mooncake:Mooncake",
    "redis": "benchmarks.contenders.redis:Redis",
    "memcached": "benchmarks.contenders.memcached:Memcached",
    "raw": "benchmarks.contenders.raw:Raw",
}
PEERS: Final = ("mooncake", "redis", "memcached")
"""Those with a virtual environment of their own, of the same name; benchmarks/peers/setup.sh makes them."""


def contender_class(name: str) -> type[Contender]:
    module, _, attribute = CONTENDERS[name].partition(":")
    found: type[Contender] = getattr(importlib.import_module(module), attribute)
    return found
