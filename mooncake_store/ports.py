"""The one message about a port on which a daemon cannot listen, whichever of its doors it is.

Standard library only: the node imports it too.
"""

from __future__ import annotations

import errno
import os

from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import StoreError
from mooncake_store.status import Status


def cannot_listen(endpoint: Endpoint, flag: str, why: OSError | str) -> StoreError:
    """The error that names address, port and the flag (with its dashes) that sets it."""
    if isinstance(why, OSError):
        in_use = why.errno == errno.EADDRINUSE
        why = "the port is in use by another process" if in_use else os.strerror(why.errno or 0)
    return StoreError(
        f"cannot listen on {endpoint} (port {endpoint.port}, flag {flag}): {why}",
        code=Status.INTERNAL_ERROR,
    )
