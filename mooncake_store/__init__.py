"""What master, client and node share: configuration, errors, types, keys, and the native module.

Imports nothing heavy: a node daemon loads this package without numpy, pydantic or grpc.
"""

import logging

from mooncake_store._version import __version__

# Ours is one tree of loggers, and a library does not decide what is shown: only a daemon's main does.
logging.getLogger("mooncake_store").addHandler(logging.NullHandler())

try:
    import mooncake_store._core as _core
except ModuleNotFoundError as error:
    if error.name != "mooncake_store._core":
        raise
    raise ImportError(
        f"mooncake_store._core is not built beside {__file__}: "
        "run `pip install -e .` here, or start Python from another directory",
        name="mooncake_store._core",
    ) from error

__all__ = ["__version__", "_core"]
