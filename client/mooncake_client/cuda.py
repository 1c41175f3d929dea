"""The way to memory of CUDA devices, over torch: pinned memory of the host, copies on streams of their own.

Owns streams and events. torch is the caller's: without it there is no tensor on a GPU, so nothing is imported
otherwise, and nothing here needs CUDA's own headers. Must not know what is copied, nor in what order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mooncake_client.staging import DeviceMemory

if TYPE_CHECKING:
    import torch


class PinnedSlab:
    """From torch's cache of pinned memory, and back to it with the last reference."""

    def __init__(self, size_bytes: int) -> None:
        import torch

        self.memory = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)

    def piece(self, offset: int, size_bytes: int) -> Any:
        return self.memory.data_ptr() + offset, size_bytes


class CudaLink:
    """Of one call. Copies run beside what the caller's streams do, after what they have been given so far."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def slab(self, size_bytes: int) -> PinnedSlab:
        return PinnedSlab(size_bytes)

    def to_host(self, memories: Sequence[DeviceMemory], slab: Any) -> None:
        sizes = [memory.size_bytes for memory in memories]
        pieces = slab.memory[: sum(sizes)].split(sizes)
        self._copy([(piece, one.memory) for piece, one in zip(pieces, memories, strict=True)])

    def to_device(self, slab: Any, copies: Sequence[tuple[int, DeviceMemory, int]]) -> None:
        self._copy(
            [
                (memory.memory.narrow(0, 0, size), slab.memory.narrow(0, offset, size))
                for offset, memory, size in copies
            ]
        )

    def _copy(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        import torch

        for device in {side.device for pair in pairs for side in pair if side.is_cuda}:
            with torch.cuda.stream(self._stream(device)):
                for target, source in pairs:
                    if device in (target.device, source.device):
                        target.copy_(source, non_blocking=True)

    def _stream(self, device: torch.device) -> torch.cuda.Stream:
        import torch

        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = torch.cuda.Stream(device)
            # Kernels that make the value, or still use the target, may be queued there.
            stream.wait_stream(torch.cuda.current_stream(device))
        return stream

    def mark(self) -> Callable[[], None]:
        events = [stream.record_event() for stream in self._streams.values()]

        def wait() -> None:
            for event in events:
                event.synchronize()

        return wait

    def drain(self) -> None:
        for stream in self._streams.values():
            stream.synchronize()


def memory_of(tensor: torch.Tensor) -> DeviceMemory:
    """The bytes of a contiguous tensor on a GPU."""
    import torch

    return DeviceMemory(tensor.reshape(-1).view(torch.uint8), tensor.nbytes, CudaLink)
