"""What users of such stores suffer from when processes are to find and understand each other (UP 21, UP 23).

Real processes, as operators start them. Ports and names of the other cases: tests/master/test_daemon.py and
tests/client/test_node_daemon.py.
"""

from __future__ import annotations

import random
import re
import socket
import struct
import threading
import time
from contextlib import ExitStack

import processes
import pytest
from lane_peer import HEADER_BYTES, REPLY, VERB
from processes import metric, wait_until

from mooncake_client import Store
from mooncake_store import _core
from mooncake_store.errors import StoreError
from mooncake_store.status import Status

REFUSED_WITHIN_S = 5
GARBAGE = 20  # connections a port


def test_a_client_that_a_newer_master_refuses_names_both_versions() -> None:
    """UP 21: never "connected" with every call failing: the set-up fails, with the master's words."""
    words = b"software 9.0-master speaks versions 7-9, yours 1-1"
    text = struct.pack("<H", len(words)) + words
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                header = _core.parse_frame_header(connection.recv(HEADER_BYTES, socket.MSG_WAITALL))
                connection.recv(header["body_bytes"], socket.MSG_WAITALL)
                answer = {"flags": REPLY, "status": int(Status.VERSION_MISMATCH)}
                connection.sendall(_core.encode_frame(VERB["hello"], text, header["request_id"], **answer))
                connection.recv(1)

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(StoreError, match="versions 7-9, yours 1-1"):
            Store(lane=f"127.0.0.1:{server.getsockname()[1]}")
        thread.join(processes.HANG_S)


@pytest.mark.slow
def test_a_newer_client_is_counted_and_bytes_of_no_protocol_only_end_their_connection() -> None:
    """UP 21: the master counts who speaks another version; garbage at every port harms nobody else."""
    chance = random.Random(21)
    with processes.master() as master, ExitStack() as stack:
        address = processes.address_of(master)
        node = stack.enter_context(processes.node(address))
        data_port = int(node.wait_for(processes.NODE_READY).group(2).rpartition(":")[2])
        store = stack.enter_context(Store(address))
        assert store.put("k", b"v") == "stored"
        ports = [int(port) for port in master.wait_for(processes.MASTER_READY).groups()]
        newer = _core.encode_hello(1, bytes(16), software="7.0-client", version_min=7, version_max=9)
        with socket.create_connection(("127.0.0.1", ports[1]), processes.HANG_S) as peer:
            peer.sendall(_core.encode_frame(VERB["hello"], newer, 1))
            header = _core.parse_frame_header(peer.recv(HEADER_BYTES, socket.MSG_WAITALL))
            body = peer.recv(header["body_bytes"], socket.MSG_WAITALL)
        assert header["status"] == Status.VERSION_MISMATCH
        assert b"7-9" in body
        assert b"1-1" in body
        assert metric(master, "master_lane_version_refusals_total") == 1
        for port in [*ports, data_port]:
            for _ in range(GARBAGE):
                with socket.create_connection(("127.0.0.1", port), processes.HANG_S) as peer:
                    peer.sendall(chance.randbytes(chance.randrange(1, 2_000)))
        with socket.create_connection(("127.0.0.1", ports[1]), processes.HANG_S) as peer:
            peer.sendall(_core.encode_frame(VERB["ping"], b"", 1))  # a frame, but no hello
            assert peer.recv(HEADER_BYTES, socket.MSG_WAITALL)
        wait_until(lambda: metric(master, "master_lane_malformed_total") == GARBAGE + 1, "counted")
        assert (master.poll(), node.poll()) == (None, None)
        assert store.get("k") == b"v"


@pytest.mark.slow
def test_everything_works_over_ipv6() -> None:
    """UP 23: master, node and client at [::1]."""
    with processes.master(0, "--rpc_address=::1", "--metrics_host=::1") as master, ExitStack() as stack:
        address = f"[::1]:{master.wait_for(processes.MASTER_READY).group(1)}"
        node = stack.enter_context(processes.node(address, "--host=::1"))
        assert node.wait_for(processes.NODE_READY).group(2).startswith("[::1]:")
        with Store(address) as store:
            assert store.put("k", b"v") == "stored"
            assert store.get("k") == b"v"


@pytest.mark.slow
def test_a_node_whose_name_means_nothing_is_refused_by_that_name() -> None:
    """UP 23: it does not start on an address that nobody can resolve."""
    with processes.master() as master:
        with processes.node(processes.address_of(master), "--host=no-such-host.invalid") as node:
            assert node.wait() != 0
        assert "no-such-host.invalid" in node.log


@pytest.mark.slow
@pytest.mark.parametrize("host", ["10.255.255.1", "no-such-host.invalid"])
def test_a_node_whose_address_cannot_be_dialled_back_does_not_join(host: str) -> None:
    """UP 23: within 5 s its log names the address and the flag, once; the others take the values."""
    with processes.master() as master, ExitStack() as stack:
        address = processes.address_of(master)
        stack.enter_context(processes.node(address)).wait_for(processes.NODE_READY)
        begun = time.monotonic()
        lost = stack.enter_context(processes.node(address, f"--advertise_host={host}"))
        lost.wait_for(rf"not in the pool of .*UNREACHABLE.* tcp://{re.escape(host)}:\d+ .*--advertise_host")
        assert time.monotonic() - begun < REFUSED_WITHIN_S
        keys = [f"k{number}" for number in range(50)]
        with Store(address) as store:
            assert store.put_many(keys, [b"v"] * 50, timeout_ms=30_000) == ["stored"] * 50
            assert store.get_many(keys) == [b"v"] * 50
        wait_until(lambda: metric(master, "master_unreachable_mounts_total") >= 3, "it tries again")
        assert lost.log.count("not in the pool") == 1
        assert metric(master, "master_segments_mounted_total") == 1


@pytest.mark.slow
def test_a_node_whose_address_leads_to_another_does_not_join() -> None:
    """UP 23: as a name does that means the loopback interface on every host."""
    with processes.master() as master, ExitStack() as stack:
        address = processes.address_of(master)
        there = stack.enter_context(processes.node(address)).wait_for(processes.NODE_READY)
        port = there.group(2).rpartition(":")[2]
        flags = ("--host=127.0.0.2", f"--data_port={port}", "--advertise_host=127.0.0.1")
        lost = stack.enter_context(processes.node(address, *flags, "--segment_name=lost"))
        lost.wait_for(rf"UNREACHABLE.* tcp://127.0.0.1:{port} \(another process answers there\)")
        assert metric(master, "master_segments_expelled_total") == 0  # the one that was there stays
        with Store(address) as store:
            store.put("k", b"v")
            assert store.get("k") == b"v"


@pytest.mark.slow
def test_dialling_back_can_be_left_off() -> None:
    """UP 23: for a master that does not reach what its clients reach; a put goes round such a node."""
    with processes.master(0, "--dial_back=false") as master, ExitStack() as stack:
        address = processes.address_of(master)
        stack.enter_context(processes.node(address)).wait_for(processes.NODE_READY)
        lost = stack.enter_context(processes.node(address, "--advertise_host=10.255.255.1"))
        lost.wait_for(processes.NODE_READY)
        keys = [f"k{number}" for number in range(50)]
        with Store(address) as store:
            assert store.put_many(keys, [b"v"] * 50, timeout_ms=30_000) == ["stored"] * 50
            assert store.get_many(keys) == [b"v"] * 50
