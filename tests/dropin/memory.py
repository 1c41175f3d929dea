"""Memory named by address, as engines pass it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def pattern(size: int, seed: int = 0) -> bytes:
    """Bytes that differ by position and seed."""
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8).tobytes()


class Memory:
    """Bytes at an address that stays. Filled with 0xEE where nothing is given."""

    def __init__(self, content: bytes | int) -> None:
        size = content if isinstance(content, int) else len(content)
        self.array: npt.NDArray[np.uint8] = np.full(size, 0xEE, dtype=np.uint8)
        if isinstance(content, bytes):
            self.array[:] = np.frombuffer(content, dtype=np.uint8)
        self.ptr = int(self.array.ctypes.data)
        self.size = size

    def bytes(self, start: int = 0, end: int | None = None) -> bytes:
        return self.array[start:end].tobytes()

    def write(self, content: bytes) -> None:
        """At its start."""
        self.array[: len(content)] = np.frombuffer(content, dtype=np.uint8)
