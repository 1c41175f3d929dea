"""A master and a node inside this process, for `Store.embedded()`: trying it out, and users' tests.

Owns their lifetimes. Native throughout: no gRPC, no HTTP, nothing of `mooncake_master`. They listen on the
loopback interface only.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from mooncake_store import _core
from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import InvalidArgument, StoreError, Unavailable

LOOPBACK: Final = "127.0.0.1"
START_TIMEOUT_MS: Final = 10_000
"""Longest wait for the node to join its master in the same process; a hang limit."""
SEGMENTS_MAX: Final = 64
_POLL_MS: Final = 50  # between looks for Ctrl-C


class EmbeddedCluster:
    """A running master and node. `stop` is idempotent."""

    def __init__(self, capacity_bytes: int, segment_count: int, master_settings: Mapping[str, Any]) -> None:
        """capacity_bytes: lent in all, in equal segments."""
        if not 1 <= segment_count <= SEGMENTS_MAX:
            raise InvalidArgument(f"segments: {segment_count} is not in 1..{SEGMENTS_MAX}")
        segment_bytes = capacity_bytes // segment_count
        if segment_bytes < 4096:
            raise InvalidArgument(
                f"capacity: {capacity_bytes} bytes in {segment_count} segments is less than 4096 bytes each"
            )
        try:
            settings = {"dial_back": True, **master_settings}
            self._master = _core.Master(lane_host=LOOPBACK, **settings)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"master_settings: {error}") from error
        self._node: _core.Node | None = None
        try:
            self._master.start()
            self.lane = str(Endpoint(LOOPBACK, self._master.lane_port))
            self._node = _core.Node(
                [(f"embedded-{index}", segment_bytes) for index in range(segment_count)],
                lane=self.lane,
                data_host=LOOPBACK,
                name="embedded",
            )
            self._node.start()
            self._wait_mounted(self._node)
        except (OSError, RuntimeError) as error:
            self.stop()
            raise StoreError(f"the embedded store cannot start: {error}") from error
        except BaseException:
            self.stop()
            raise

    def _wait_mounted(self, node: _core.Node) -> None:
        deadline = time.monotonic() + START_TIMEOUT_MS / 1000
        while not node.wait_mounted(_POLL_MS):
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"the embedded node did not join its master within {START_TIMEOUT_MS} ms: "
                    f"{node.status()['last_error']}"
                )

    def check_invariants(self) -> None:
        """Ends the process, saying why, if state machine or node are inconsistent. For tests."""
        self._master.check_invariants()
        if self._node is not None:
            self._node.check_invariants()

    def stop(self) -> None:
        """Ends node and master."""
        if self._node is not None:
            self._node.stop()
        self._master.stop()
