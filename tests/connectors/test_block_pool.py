"""What every engine gets of the pool: deadlines, misses for failures, counts, and keys with an identity."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_client import Store
from mooncake_client.connectors.block_pool import (
    LOOKUP_PAUSE_S,
    WARNING_INTERVAL_S,
    BlockPool,
    memory_of,
)
from mooncake_client.connectors.identity import identity
from mooncake_store import _core
from mooncake_store.errors import InvalidArgument, Unavailable
from mooncake_store.status import Status


def packed(array: Any) -> _core.PackedMemory:
    return _core.PackedMemory.of_addresses(
        [int(row.ctypes.data) for row in array], [row.nbytes for row in array]
    )


def test_blocks_are_counted(pool: BlockPool) -> None:
    blocks = np.arange(300, dtype=np.uint8).reshape(3, 100)
    assert pool.save([b"a", b"b", b"c"], packed(blocks), [None, b"a", b"b"]) == [True] * 3
    assert pool.save([b"a"], packed(blocks[1:2])) == [True]  # it stays as it was
    target = np.zeros((4, 100), np.uint8)
    assert pool.load([b"a", b"b", b"c", b"d"], packed(target)) == [100, 100, 100, -1]
    assert (target[:3] == blocks).all()
    assert pool.present([b"a", b"d"]) == [True, False]
    assert pool.remove([b"a", b"d"]) == [True, False]
    assert pool.counts() == {
        "looked_up_blocks": 2,
        "present_blocks": 1,
        "loaded_blocks": 3,
        "loaded_bytes": 300,
        "failed_load_blocks": 1,
        "saved_blocks": 3,
        "saved_bytes": 300,
        "failed_save_blocks": 0,
    }
    assert pool.clear(b"") == 2


def test_nothing_of_nothing(pool: BlockPool) -> None:
    empty = packed(np.zeros((0, 1), np.uint8))
    assert (pool.present([]), pool.load([], empty), pool.save([], empty), pool.remove([])) == ([], [], [], [])


class SilentMaster:
    """A client that nobody answers."""

    def __init__(self) -> None:
        self.asked = 0

    def exists_many(self, keys: list[bytes], *, timeout_ms: int) -> list[int]:
        self.asked += 1
        assert timeout_ms == 7
        return [int(Status.CLOSED)] * len(keys)

    def why(self) -> str:
        return "silent"


def test_a_silent_master_is_not_asked_for_every_request(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    client: Any = SilentMaster()
    pool = BlockPool(client, lookup_timeout_ms=7, clock=lambda: now)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert pool.present([b"a", b"b"]) == [False, False]
        assert client.asked == 1
        now = LOOKUP_PAUSE_S
        pool.present([b"a"])
        assert client.asked == 2
        assert len(caplog.records) == 1
        now = WARNING_INTERVAL_S
        pool.present([b"a"])
    assert [record.getMessage() for record in caplog.records] == [
        "lookup: 2 of 2 blocks failed: silent",
        "lookup: 1 of 1 blocks failed: silent",
    ]


def test_a_block_that_has_no_room_is_told(store: Store, pool: BlockPool) -> None:
    blocks = np.zeros((1, 128 << 20), np.uint8)
    assert pool.save([b"large"], packed(blocks)) == [False]
    assert pool.counts()["failed_save_blocks"] == 1


def test_a_pool_that_cannot_be_joined_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOONCAKE_CONFIG_PATH", "MOONCAKE_MASTER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidArgument, match=r"the engine, the environment: .*master_server_address"):
        BlockPool.join({}, "the engine")
    with pytest.raises(InvalidArgument, match="load_timeout_ms 'soon'"):
        BlockPool.join({"load_timeout_ms": "soon"}, "the engine")
    with pytest.raises(InvalidArgument, match="save_timeout_ms 0"):
        BlockPool(SilentMaster(), save_timeout_ms=0)  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 "):
        BlockPool.join({"master_server_address": "127.0.0.1:1"}, "the engine")


def test_memory_that_is_not_plain_is_refused() -> None:
    class OnGpu:
        shape, device = (2,), type("device", (), {"type": "cuda"})()

        def is_contiguous(self) -> bool:
            return True

    with pytest.raises(InvalidArgument, match="not contiguous host memory"):
        memory_of([OnGpu()])


@given(
    st.dictionaries(st.text(max_size=3), st.text(max_size=3)),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3)),
)
def test_identities_are_equal_when_every_field_is(one: dict[str, str], other: dict[str, str]) -> None:
    assert (identity("e", **one) == identity("e", **other)) == (one == other)
