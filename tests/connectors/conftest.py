"""A store with its own master and node, and engines' base classes where the engines are not installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from connectors.stand_ins import ENGINES

from mooncake_client import Store
from mooncake_client.connectors.block_pool import BlockPool

OURS = "mooncake_client.connectors"


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.embedded("64mb") as store:
        yield store


@pytest.fixture
def pool(store: Store) -> BlockPool:
    return BlockPool.of(store)


@pytest.fixture
def connector_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a connector's file over stand-ins of its engine's classes; both are forgotten afterwards."""

    def load(engine: str, *names: str) -> list[ModuleType]:
        for path, members in ENGINES[engine].items():
            parts = path.split(".")
            for depth in range(1, len(parts) + 1):
                name = ".".join(parts[:depth])
                if name not in sys.modules or depth == len(parts):
                    module = ModuleType(name)
                    module.__path__ = []
                    monkeypatch.setitem(sys.modules, name, module)
            sys.modules[path].__dict__.update(members)
        for name in names:
            monkeypatch.delitem(sys.modules, f"{OURS}.{name}", raising=False)
        loaded = [importlib.import_module(f"{OURS}.{name}") for name in names]
        for name in names:  # so that the next test imports them over its own stand-ins
            monkeypatch.setitem(sys.modules, f"{OURS}.{name}", sys.modules[f"{OURS}.{name}"])
        return loaded

    return load
