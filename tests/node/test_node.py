"""A whole node in this process: what it refuses to start with, and how it lives without a master."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator

import pytest

from mooncake_store._core import Node

MIB = 1 << 20
NOBODY = "127.0.0.1:1"


def node_of(*segments: tuple[str, int], lane: str = NOBODY, data_port: int = 0) -> Node:
    return Node(list(segments), lane=lane, data_host="127.0.0.1", data_port=data_port)


@pytest.fixture
def node() -> Iterator[Node]:
    started = node_of(("", 4 * MIB), ("second", MIB))
    started.start()
    yield started
    started.stop()


@pytest.mark.parametrize(
    ("segments", "options", "message"),
    [
        ([], {"lane": NOBODY}, "at least one segment"),
        ([("a", 0)], {"lane": NOBODY}, "segment 'a': the size must be above 0 bytes"),
        ([("a", MIB)] * 65, {"lane": NOBODY}, "65 segments are more than the 64"),
        ([("a" * 256, MIB)], {"lane": NOBODY}, "segment name of 256 bytes; at most 255"),
        ([("a", MIB)], {}, "a master's address or a lane"),
        ([("a", MIB)], {"lane": "nowhere"}, "lane 'nowhere' is not host:port"),
        ([("a", MIB)], {"masters": ["host:port"]}, "master 'host:port' is not host:port"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_by_name(
    segments: list[tuple[str, int]], options: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Node(segments, **options)  # type: ignore[arg-type]


def test_taken_data_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        node = node_of(("a", MIB), data_port=port)
        with pytest.raises(OSError, match=str(port)):
            node.start()
        assert node.data_port == 0
    node.start()
    assert node.data_port == port
    node.stop()


def test_more_memory_than_the_machine_has_is_refused_with_both_sizes() -> None:
    node = node_of(("a", 1 << 50))
    with pytest.raises(RuntimeError, match=rf"{1 << 50} bytes.*global_segment_size"):
        node.start()


def test_node_without_a_master_serves_its_port_and_keeps_looking(node: Node) -> None:
    assert not node.wait_mounted(1)
    status = node.status()
    assert not status["mounted"]
    assert status["fenced"]
    assert status["data_endpoint"] == f"127.0.0.1:{node.data_port}"
    assert status["segment_names"] == [f"127.0.0.1:{node.data_port}", "second"]
    assert status["stats"]["capacity_bytes"] == 5 * MIB
    with socket.create_connection(("127.0.0.1", node.data_port), timeout=30) as peer:
        peer.sendall(struct.pack("<IBBhQQ", 0, 42, 0, 0, 7, 0))
        assert peer.recv(24)[6:8] == struct.pack("<h", -2016), "a ping before hello is MALFORMED"
    node.check_invariants()


def test_stop_is_idempotent_and_frees_the_port(node: Node) -> None:
    port = node.data_port
    node.stop()
    node.stop()
    again = node_of(("a", MIB), data_port=port)
    again.start()
    again.stop()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_leaves_its_parents_node_alone(node: Node) -> None:
    child = os.fork()
    if child == 0:
        node.stop()
        os._exit(0 if node.data_port == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with socket.create_connection(("127.0.0.1", node.data_port), timeout=30):
        pass
    assert node.status()["stats"]["capacity_bytes"] == 5 * MIB


def test_segment_memory_is_sealed_and_cannot_be_opened_for_writing() -> None:
    node = node_of(("sealed", MIB))
    node.start()
    segments = []
    for name in os.listdir("/proc/self/fd"):  # one of them is the listing's own, closed by now
        with contextlib.suppress(FileNotFoundError):
            if "mooncake-sealed" in os.readlink(f"/proc/self/fd/{name}"):
                segments.append(name)
    assert len(segments) == 1
    info = os.fstat(int(segments[0]))
    assert info.st_mode & 0o777 == 0o400
    with pytest.raises(PermissionError):
        os.ftruncate(int(segments[0]), 0)
    node.stop()
