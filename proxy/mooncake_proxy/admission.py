"""How much the proxy takes on at a time: requests, and bytes of their bodies. Pure counting."""

from __future__ import annotations

from mooncake_proxy.config import ProxyConfig
from mooncake_proxy.refusals import Refusal


class Admission:
    """The counts, and their bounds."""

    def __init__(self, config: ProxyConfig) -> None:
        self._config = config
        self.running = 0
        self.bodies_bytes = 0
        self.is_stopping = False

    def enter(self) -> None:
        """One request more. Raises Refusal; else `leave` must follow."""
        if self.is_stopping:
            raise Refusal(503, "the proxy is stopping", reason="stopping")
        if self.running >= self._config.requests_max:
            raise Refusal(
                503, f"{self.running} requests are running (--requests_max); try again", reason="requests_max"
            )
        self.running += 1

    def leave(self) -> None:
        self.running -= 1

    def hold(self, length: int | None) -> int:
        """Room for a body of this length (None: not told, so for the largest). The bytes to `let_go`."""
        most = self._config.body_bytes_max
        if length is not None and length > most:
            raise too_large(most)
        held = most if length is None else length
        if self.bodies_bytes + held > self._config.bodies_bytes_max:
            raise Refusal(
                503,
                f"bodies of {self.bodies_bytes} bytes wait (--bodies_bytes_max); try again",
                reason="bodies_bytes_max",
            )
        self.bodies_bytes += held
        return held

    def let_go(self, held: int) -> None:
        self.bodies_bytes -= held


def too_large(most: int) -> Refusal:
    return Refusal(413, f"the body is larger than {most} bytes (--body_bytes_max)", reason="body_bytes_max")
