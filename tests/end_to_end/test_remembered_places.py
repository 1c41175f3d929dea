"""A value is read where it was found within the last second, and never after its end was acknowledged."""

from __future__ import annotations

import signal

import processes
import pytest

from mooncake_client import Store
from mooncake_store.errors import ObjectNotFound


def test_a_second_get_finds_the_value_where_the_first_one_did() -> None:
    with Store.embedded("16mb") as writer, Store(lane=writer.lane, location_cache="on") as reader:
        writer.put("key", b"value")
        hits = 0
        while hits == 0:  # a machine that stops for a second between two gets has forgotten
            assert reader.get("key") == b"value"
            hits = reader.location_counts["hits"]
        assert reader.location_counts["stale"] == 0
        writer.put("key", b"another", replace=True)
        assert reader.get("key") == b"another"
        writer.remove("key")
        assert reader.get("key") is None
        with pytest.raises(ObjectNotFound):
            reader.stat("key")


def test_off_asks_each_time() -> None:
    with Store.embedded("16mb") as writer, Store(lane=writer.lane, location_cache="off") as reader:
        writer.put("key", b"value")
        for _ in range(3):
            assert reader.get("key") == b"value"
        counts = reader.location_counts
        assert (counts["hits"], counts["entries"]) == (0, 0)


def test_remembered_reads_are_hits_of_the_master() -> None:
    with Store.embedded("16mb") as writer, Store(lane=writer.lane, location_cache="on") as reader:
        writer.put("key", b"value")
        gets = 0
        while reader.location_counts["hits"] < 5:
            assert reader.get("key") == b"value"
            gets += 1
        hits = 0
        while hits < gets:  # told in the background
            hits = dict(writer.stats())["lookup_hits_total"]
        assert hits == gets


@pytest.mark.slow
def test_a_node_that_could_not_be_told_serves_nobody_after_the_remove() -> None:
    """The reader remembers the place; the node sleeps through the remove and wakes with the value."""
    hang_ms = int(processes.HANG_S * 1_000)
    with processes.master(processes.free_port(), "--client_ttl=600") as master:
        address = processes.address_of(master)
        with (
            processes.node(address) as node,
            Store(address, rpc_timeout_ms=hang_ms) as writer,
            Store(address, rpc_timeout_ms=hang_ms, location_cache="on") as reader,
        ):
            node.wait_for(processes.NODE_READY)
            for round_ in range(3):
                key = f"key-{round_}"
                writer.put(key, b"value")
                assert reader.get(key) == b"value"
                node.stop()
                writer.remove(key)
                node.send(signal.SIGCONT)
                assert reader.get(key) is None
