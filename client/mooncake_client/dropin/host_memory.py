"""Memory of the host for programs that keep it by its address alone."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading

from mooncake_client.dropin.codes import INVALID_PARAMS, OK


class MooncakeHostMemAllocator:
    """Page-aligned memory, shared with child processes; what is not freed ends with the allocator."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[int, mmap.mmap] = {}

    def alloc(self, size: int) -> int:
        """The address; 0 when there is no such memory."""
        if size <= 0:
            return 0
        try:
            block = mmap.mmap(-1, size)
        except (OSError, ValueError, OverflowError):
            return 0
        address = ctypes.addressof(ctypes.c_char.from_buffer(block))
        with self._lock:
            self._blocks[address] = block
        return address

    def free(self, ptr: int) -> int:
        """-600 for an address that alloc did not give."""
        with self._lock:
            block = self._blocks.pop(ptr, None)
        if block is None:
            return INVALID_PARAMS
        block.close()
        return OK


def bind_to_numa_node(node: int) -> None:
    """Run this thread on the processors of a NUMA node. A node that is not there changes nothing."""
    try:
        with open(f"/sys/devices/system/node/node{int(node)}/cpulist", encoding="ascii") as file:
            text = file.read().strip()
    except OSError:
        return
    processors: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        processors.update(range(int(first), int(last or first) + 1))
    allowed = processors & os.sched_getaffinity(0)
    if allowed:
        os.sched_setaffinity(0, allowed)


def get_alloc_func_addr() -> int:
    """The address of `malloc`: a pluggable allocator of device memory has no use here, but loads."""
    return ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value or 0


def get_free_func_addr() -> int:
    """The address of `free`."""
    return ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p).value or 0
