"""One version, wherever it is asked for."""

from importlib import metadata

import mooncake_store
from mooncake_store import _core


def test_package_native_module_and_distribution_have_one_version() -> None:
    assert mooncake_store.__version__ == _core.version() == metadata.version("mooncake-store")
