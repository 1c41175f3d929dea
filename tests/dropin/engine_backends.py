"""Storage backends that call `mooncake.store` as vLLM, SGLang and LMCache do, and a process that runs one.

Written from the calls that those engines make, exception handling and all; they know nothing of this project.
Run
as a program: `python engine_backends.py <engine> <master> save|load`, with the package `mooncake` on the
path.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

import numpy as np
from mooncake.store import (  # type: ignore[import-not-found, unused-ignore]
    MooncakeDistributedStore,
    ReplicateConfig,
)

SEGMENT = 64 << 20
LAYERS, BLOCKS, PIECE = 6, 8, 4096


def content(seed: int, size: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


class Vllm:
    """The in-tree connector: one range of memory for all layers, and three threads that call."""

    def __init__(self, master: str, segment: int) -> None:
        self.store = MooncakeDistributedStore()
        code = self.store.setup("127.0.0.1", "P2PHANDSHAKE", segment, 128 << 20, "tcp", "", master)
        if code != 0:
            raise RuntimeError(f"setup: {code}")
        self.cache = np.zeros(LAYERS * BLOCKS * PIECE, dtype=np.uint8)
        assert self.store.register_buffer(self.cache.ctypes.data, self.cache.nbytes) == 0
        self.keys = [f"m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@{block:064x}" for block in range(BLOCKS)]

    def layout(self, block: int) -> tuple[list[int], list[int]]:
        base = int(self.cache.ctypes.data)
        return [base + (layer * BLOCKS + block) * PIECE for layer in range(LAYERS)], [PIECE] * LAYERS

    def on_threads(self, *work: Any) -> list[Any]:
        answers: list[Any] = [None] * len(work)

        def run(index: int) -> None:
            answers[index] = work[index]()

        threads = [threading.Thread(target=run, args=(index,)) for index in range(len(work))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    def save(self) -> None:
        self.cache[:] = content(1, self.cache.nbytes)
        config = ReplicateConfig()
        config.preferred_segment = self.store.get_hostname()
        if hasattr(config, "group_ids"):
            config.group_ids = [f"vllm-mooncake-store:m@{key[-64:]}" for key in self.keys]
        addresses, sizes = zip(*map(self.layout, range(BLOCKS)), strict=True)
        assert self.store.batch_is_exist(self.keys) == [0] * BLOCKS
        codes = self.store.batch_put_from_multi_buffers(self.keys, list(addresses), list(sizes), config)
        assert codes == [0] * BLOCKS
        places = self.store.batch_get_replica_desc(self.keys)
        assert all(places[key][0].is_memory_replica() for key in self.keys)

    def load(self) -> None:
        halves = (range(0, BLOCKS, 2), range(1, BLOCKS, 2))

        def receive(blocks: range) -> list[int]:
            addresses, sizes = zip(*map(self.layout, blocks), strict=True)
            keys = [self.keys[block] for block in blocks]
            return list(self.store.batch_get_into_multi_buffers(keys, list(addresses), list(sizes)))

        exist, first, second = self.on_threads(
            lambda: self.store.batch_is_exist([*self.keys, "absent"]),
            lambda: receive(halves[0]),
            lambda: receive(halves[1]),
        )
        assert exist == [1] * BLOCKS + [0]
        assert first + second == [LAYERS * PIECE] * BLOCKS
        assert (self.cache == content(1, self.cache.nbytes)).all()
        assert self.store.remove_all(force=True) == BLOCKS


class Sglang:
    """HiCache's backend: eight settings, a warm-up, keys and values of a page as two objects."""

    def __init__(self, master: str, segment: int) -> None:
        self.store = MooncakeDistributedStore()
        settings = ("127.0.0.1", "P2PHANDSHAKE", segment, 16777216, "tcp", "", master, None)
        if self.store.setup(*settings, enable_ssd_offload=False, ssd_offload_path="", tenant_id="default"):
            raise RuntimeError("setup")
        name = f"sglang_mooncake_store_warmup_key{os.getpid()}"
        value = bytes(4096)
        assert self.store.put(name, value) == 0
        assert self.store.is_exist(name) == 1
        assert self.store.get(name) == value
        self.pool = np.zeros(2 * BLOCKS * PIECE, dtype=np.uint8)
        assert self.store.register_buffer(self.pool.ctypes.data, self.pool.nbytes) == 0
        self.keys = [f"page{page}_0_{kind}" for page in range(BLOCKS) for kind in "kv"]
        base = int(self.pool.ctypes.data)
        self.pointers = [base + index * PIECE for index in range(2 * BLOCKS)]
        self.sizes = [PIECE] * (2 * BLOCKS)

    def save(self) -> None:
        self.pool[:] = content(2, self.pool.nbytes)
        half = BLOCKS
        assert (
            self.store.batch_put_from(self.keys[:half], self.pointers[:half], self.sizes[:half]) == [0] * half
        )
        one = [[pointer] for pointer in self.pointers[half:]], [[size] for size in self.sizes[half:]]
        assert self.store.batch_put_from_multi_buffers(self.keys[half:], *one) == [0] * half
        assert self.store.batch_put_from(self.keys, self.pointers, self.sizes) == [0] * (2 * half)

    def load(self) -> None:
        assert self.store.batch_is_exist(self.keys) == [1] * len(self.keys)
        codes = self.store.batch_get_into(self.keys, self.pointers, self.sizes)
        assert all(code > 0 for code in codes)
        assert (self.pool == content(2, self.pool.nbytes)).all()
        self.pool[:] = 0
        count = len(self.keys)
        assert self.store.batch_get_session_start(self.keys) == [0] * count
        for layer in range(4):
            part = PIECE // 4
            pointers = [[pointer + layer * part] for pointer in self.pointers]
            offsets = [[layer * part]] * count
            sums = self.store.batch_get_into_multi_buffer_ranges(
                self.keys, pointers, [[part]] * count, offsets
            )
            assert sums == [part] * count
        self.store.batch_get_session_end(self.keys)
        assert (self.pool == content(2, self.pool.nbytes)).all()
        self.store.remove_all()
        assert self.store.batch_is_exist(self.keys) == [0] * count


class Lmcache:
    """The remote backend: a dict of strings first, then both ways to keep a chunk's metadata."""

    def __init__(self, master: str, segment: int) -> None:
        self.store = MooncakeDistributedStore()
        settings = {
            "local_hostname": "127.0.0.1",
            "metadata_server": "P2PHANDSHAKE",
            "global_segment_size": str(segment),
            "local_buffer_size": str(1 << 30),
            "protocol": "tcp",
            "device_name": "",
            "master_server_address": master,
            "transfer_timeout": "1",
            "storage_root_dir": "",
        }
        try:
            self.store.setup(settings)
        except TypeError:
            raise AssertionError("the dict form is there") from None
        self.pinned = np.zeros(4 * PIECE, dtype=np.uint8)
        self.store.register_buffer(self.pinned.ctypes.data, self.pinned.nbytes)
        self.keys = [f"model@1@0@{chunk:x}@bfloat16" for chunk in range(4)]
        self.pointers = [int(self.pinned.ctypes.data) + index * PIECE for index in range(4)]

    def save(self) -> None:
        self.pinned[:] = content(3, self.pinned.nbytes)
        config = ReplicateConfig()
        config.replica_num = 1
        config.with_soft_pin = True
        self.store.put_from(self.keys[0], self.pointers[0], PIECE, config)
        self.store.batch_put_from(self.keys[1:], self.pointers[1:], [PIECE] * 3, config)
        for index, key in enumerate(self.keys):
            chunk = memoryview(self.pinned[index * PIECE : (index + 1) * PIECE])
            self.store.put_parts(f"{key}/meta", bytes(28), chunk)

    def load(self) -> None:
        assert all(self.store.is_exist(key) for key in self.keys)
        assert not self.store.is_exist("absent")
        codes = self.store.batch_get_into([*self.keys[:3], "absent"], self.pointers, [PIECE] * 4)
        assert [code > 0 for code in codes] == [True, True, True, False]
        saved = content(3, self.pinned.nbytes)
        assert (self.pinned[: 3 * PIECE] == saved[: 3 * PIECE]).all()
        buffers = self.store.batch_get_buffer([*(f"{key}/meta" for key in self.keys), "absent"])
        assert buffers.pop() is None
        for index, buffer in enumerate(buffers):
            view = memoryview(buffer)
            assert len(view) == 28 + PIECE
            assert (np.frombuffer(view, np.uint8)[28:] == saved[index * PIECE : (index + 1) * PIECE]).all()
        self.store.unregister_buffer(self.pinned.ctypes.data)
        assert self.store.remove_all(True) == 8


class EncoderCache:
    """vLLM's: strict about types, lengths and codes, and registers around every transfer."""

    CLEAN = (-200, -600, -702, -703, -704, -705, -707, -900, -901)

    def __init__(self, master: str, segment: int) -> None:
        self.store = MooncakeDistributedStore()
        assert self.store.setup("127.0.0.1", "P2PHANDSHAKE", segment, 16 << 20, "tcp", "", master) == 0
        self.header = np.frombuffer(bytearray(range(24)), dtype=np.uint8)
        assert self.store.register_buffer(self.header.ctypes.data, 24) == 0

    def checked(self, answers: Any, count: int) -> list[int]:
        assert type(answers) is list
        assert [type(answer) for answer in answers] == [int] * count
        return list(answers)

    def save(self) -> None:
        data = content(4, 10_000)
        pointer = int(data.ctypes.data)
        assert self.store.register_buffer(pointer, data.nbytes) == 0
        pieces = [[int(self.header.ctypes.data), pointer]], [[24, data.nbytes]]
        codes = self.store.batch_put_from_multi_buffers(["encoder"], *pieces, ReplicateConfig())
        assert self.checked(codes, 1) == [0]
        assert self.store.unregister_buffer(pointer) == 0

    def load(self) -> None:
        target = np.zeros(20_000, dtype=np.uint8)
        pointer = int(target.ctypes.data)
        assert self.store.register_buffer(pointer, target.nbytes) == 0
        assert self.checked(self.store.batch_is_exist(["encoder", "absent"]), 2) == [1, 0]
        answers = self.checked(
            self.store.batch_get_into(["encoder", "absent"], [pointer] * 2, [20_000] * 2), 2
        )
        assert answers[0] == 10_024
        assert answers[1] in self.CLEAN
        [small] = self.checked(self.store.batch_get_into(["encoder"], [pointer], [100]), 1)
        assert small in self.CLEAN
        assert (target[24:10_024] == content(4, 10_000)).all()
        assert self.store.unregister_buffer(pointer) == 0
        assert self.store.remove_all(force=True) == 1


ENGINES = {"vllm": Vllm, "sglang": Sglang, "lmcache": Lmcache, "encoder_cache": EncoderCache}


def main(engine: str, master: str, act: str) -> None:
    """Saving keeps its memory lent until a line comes in; loading lends none."""
    backend = ENGINES[engine](master, SEGMENT if act == "save" else 0)
    getattr(backend, act)()
    print(json.dumps({"did": act}), flush=True)
    if act == "save":
        sys.stdin.readline()
    assert backend.store.close() == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
