"""Transfers between the registered memory of two processes: whole, refused where they must be, and over when
somebody goes.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from dropin.memory import Memory, pattern
from dropin.transfer_peer import TransferPeer
from processes import HANG_S, wait_until

from mooncake_client.dropin.transfer_engine import TransferEngine, TransferNotify, TransferOpcode

KIB, MIB = 1 << 10, 1 << 20
PEER_BYTES = 72 * MIB
SIZES = (1, 63, 64, 4096, 65_537, MIB - 1, MIB, MIB + 1, 16 * MIB, 64 * MIB)
NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def peer() -> Iterator[TransferPeer]:
    with TransferPeer(PEER_BYTES) as running:
        yield running


def started(hostname: str = "127.0.0.1", server: str = "P2PHANDSHAKE") -> TransferEngine:
    engine = TransferEngine()
    assert engine.initialize(hostname, server, "tcp", "") == 0
    return engine


@pytest.fixture
def engine() -> TransferEngine:
    return started()


@pytest.fixture(autouse=True)
def failures_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mooncake_store.dropin")


def registered(engine: TransferEngine, content: bytes | int) -> Memory:
    memory = Memory(content)
    assert engine.register_memory(memory.ptr, memory.size) == 0
    return memory


# ---- bytes


@pytest.mark.parametrize("size", SIZES)
def test_written_bytes_are_the_peers_and_read_back_the_same(
    engine: TransferEngine, peer: TransferPeer, size: int
) -> None:
    peer.ask("fill", size)
    before = pattern(PEER_BYTES, size)
    source = registered(engine, pattern(size, 7))
    at = 12_345
    assert engine.transfer_sync_write(peer.name, source.ptr, peer.address + at, size) == 0
    assert peer.holds(at, source.bytes())
    assert peer.holds(0, before[:at])
    assert peer.holds(at + size, before[at + size : at + size + MIB])

    target = registered(engine, size + 2)
    assert engine.transfer_sync_read(peer.name, target.ptr + 1, peer.address + at, size) == 0
    assert target.bytes(1, 1 + size) == source.bytes()
    assert (target.bytes(0, 1), target.bytes(1 + size)) == (b"\xee", b"\xee")


def test_batches_scatter_and_gather(engine: TransferEngine, peer: TransferPeer) -> None:
    """2,000 pieces of uneven sizes, neighbours and strays, in no order."""
    peer.ask("fill", 1)
    expected = bytearray(pattern(PEER_BYTES, 1))
    source = registered(engine, pattern(8 * MIB, 2))
    pieces = []
    for i in range(2_000):
        length = 1 + (i * 7919) % 6_000
        pieces.append(((i * 4099) % (8 * MIB - length), ((i * 1237) % 2_000) * 8_192 + i % 100, length))
    for local, remote, length in pieces:
        expected[remote : remote + length] = source.bytes(local, local + length)
    locals_, remotes, lengths = map(list, zip(*pieces, strict=True))
    code = engine.batch_transfer_sync_write(
        peer.name, [source.ptr + at for at in locals_], [peer.address + at for at in remotes], lengths
    )
    assert code == 0
    assert peer.holds(0, bytes(expected))

    target = registered(engine, 8 * MIB)
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    code = engine.batch_transfer_sync_read(
        peer.name, [target.ptr + at for at in starts], [peer.address + at for at in remotes], lengths
    )
    assert code == 0
    for start, remote, length in zip(starts, remotes, lengths, strict=True):
        assert target.bytes(start, start + length) == bytes(expected[remote : remote + length])


def test_more_pieces_than_one_request_carries(engine: TransferEngine, peer: TransferPeer) -> None:
    count = 40_000
    peer.ask("fill", 3)
    source = registered(engine, pattern(count * 16, 4))
    code = engine.batch_transfer_sync_write(
        peer.name,
        [source.ptr + i * 16 for i in range(count)],
        [peer.address + i * 32 for i in range(count)],
        [16] * count,
    )
    assert code == 0
    expected = bytearray(pattern(PEER_BYTES, 3)[: count * 32])
    for i in range(count):
        expected[i * 32 : i * 32 + 16] = source.bytes(i * 16, i * 16 + 16)
    assert peer.holds(0, bytes(expected))


def test_opcodes_do_what_they_say(engine: TransferEngine, peer: TransferPeer) -> None:
    memory = registered(engine, b"abcd")
    write, read = TransferOpcode.Write, TransferOpcode.Read
    assert engine.transfer_sync(peer.name, memory.ptr, peer.address, 4, write) == 0
    assert peer.bytes(0, 4) == b"abcd"
    assert engine.transfer_sync(peer.name, memory.ptr, peer.address + 2, 2, read) == 0
    assert memory.bytes() == b"cdcd"
    assert engine.batch_transfer_sync(peer.name, [memory.ptr], [peer.address], [4], write) == 0
    assert peer.bytes(0, 4) == b"cdcd"


def test_an_engine_is_a_peer_of_its_own(engine: TransferEngine) -> None:
    memory = registered(engine, pattern(3 * MIB, 5))
    me = f"127.0.0.1:{engine.get_rpc_port()}"
    assert engine.transfer_sync_write(me, memory.ptr, memory.ptr + 2 * MIB, MIB) == 0
    assert memory.bytes(2 * MIB) == memory.bytes(0, MIB)


def test_a_write_across_neighbouring_registrations_is_one(engine: TransferEngine) -> None:
    memory = Memory(8 * KIB)
    for start in (0, 4 * KIB):
        assert engine.register_memory(memory.ptr + start, 4 * KIB) == 0
    me = f"127.0.0.1:{engine.get_rpc_port()}"
    source = Memory(pattern(4 * KIB))
    assert engine.transfer_sync_write(me, source.ptr, memory.ptr + 2 * KIB, 4 * KIB) == 0
    assert memory.bytes(2 * KIB, 6 * KIB) == source.bytes()


def test_threads_share_one_engine(engine: TransferEngine, peer: TransferPeer) -> None:
    """Each writes and reads a range of its own, with more threads than there are connections."""
    peer.ask("fill", 6)

    def work(number: int) -> bool:
        at = peer.address + number * MIB
        memory = registered(engine, pattern(MIB, 100 + number))
        back = registered(engine, MIB)
        for round_ in range(5):
            length = MIB - round_ * 1_000
            assert engine.transfer_sync_write(peer.name, memory.ptr, at, length) == 0
            assert engine.transfer_sync_read(peer.name, back.ptr, at, length) == 0
            assert back.bytes(0, length) == memory.bytes(0, length)
        return engine.unregister_memory(memory.ptr) == engine.unregister_memory(back.ptr) == 0

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))


# ---- batches that nobody waits for


def test_asynchronous_batches(engine: TransferEngine, peer: TransferPeer) -> None:
    source = registered(engine, pattern(4 * MIB, 8))
    back = registered(engine, 4 * MIB)
    offsets = [i * MIB for i in range(4)]
    batches = [
        engine.batch_transfer_async_write(peer.name, [source.ptr + at], [peer.address + at], [MIB])
        for at in offsets
    ]
    assert all(batches)
    assert len(set(batches)) == 4
    assert engine.get_batch_transfer_status(batches) == 0
    assert peer.holds(0, source.bytes())
    read = engine.batch_transfer_async_read(peer.name, [back.ptr], [peer.address], [4 * MIB])
    assert engine.get_batch_transfer_status([read]) == 0
    assert back.bytes() == source.bytes()
    both = engine.batch_transfer_async(
        peer.name, [source.ptr, source.ptr], [peer.address, peer.address + 7], [3, 3], TransferOpcode.Write
    )
    assert engine.get_batch_transfer_status([both, read]) == 0
    assert peer.bytes(7, 10) == source.bytes(0, 3)


def test_status_of_a_submitted_write(engine: TransferEngine, peer: TransferPeer) -> None:
    source = registered(engine, b"submitted")
    batch = engine.transfer_submit_write(peer.name, source.ptr, peer.address, 9)
    wait_until(lambda: engine.transfer_check_status(batch) != 0, "the write ends")
    assert engine.transfer_check_status(batch) == 1
    assert peer.bytes(0, 9) == b"submitted"
    outside = engine.transfer_submit_write(peer.name, source.ptr, peer.address + PEER_BYTES, 9)
    wait_until(lambda: engine.transfer_check_status(outside) != 0, "the write ends")
    assert engine.transfer_check_status(outside) == -1
    assert engine.get_batch_transfer_status([batch, outside]) == -1


def test_a_batch_is_pending_while_its_peer_stands_still(engine: TransferEngine) -> None:
    source = registered(engine, pattern(32 * MIB))
    with TransferPeer(32 * MIB) as other:
        assert engine.send_probe(other.name) == 0
        other.stop()
        batch = engine.transfer_submit_write(other.name, source.ptr, other.address, 32 * MIB)
        assert engine.transfer_check_status(batch) == 0
        other.go_on()
        assert engine.get_batch_transfer_status([batch]) == 0
        assert other.holds(0, source.bytes())


# ---- notices and questions


def test_notices_come_after_their_bytes(engine: TransferEngine, peer: TransferPeer) -> None:
    assert peer.ask("notifies") == []
    source = registered(engine, b"x")
    notice = TransferNotify("größe", "m" * 100_000)
    write = TransferOpcode.Write
    assert engine.transfer_sync(peer.name, source.ptr, peer.address, 1, write, notice) == 0
    assert peer.ask("notifies") == [["größe", "m" * 100_000]]
    for i in range(3):
        second = TransferNotify(name=f"n{i}", msg="")
        code = engine.batch_transfer_sync(
            peer.name, [source.ptr], [peer.address], [1], TransferOpcode.Read, notify=second
        )
        assert code == 0
    assert peer.ask("notifies") == [["n0", ""], ["n1", ""], ["n2", ""]]
    assert peer.ask("notifies") == []
    # A transfer that failed tells nothing.
    assert engine.transfer_sync(peer.name, source.ptr, 8, 1, write, notice) == -1
    assert peer.ask("notifies") == []
    assert engine.transfer_sync(peer.name, source.ptr, peer.address, 0, write, second) == 0
    assert peer.ask("notifies") == [["n2", ""]]


def test_too_long_a_notice_is_refused_before_a_byte_moves(engine: TransferEngine, peer: TransferPeer) -> None:
    peer.ask("fill", 9)
    source = registered(engine, b"y")
    notice = TransferNotify("n", "m" * MIB)
    code = engine.transfer_sync(peer.name, source.ptr, peer.address, 1, TransferOpcode.Write, notice)
    assert code == -1
    assert peer.bytes(0, 1) == pattern(1, 9)


def test_notices_that_nobody_takes_are_bounded(engine: TransferEngine, peer: TransferPeer) -> None:
    notice = TransferNotify("n", "m" * (MIB - 1))
    codes = [engine.transfer_sync(peer.name, 0, 0, 0, TransferOpcode.Write, notice) for _ in range(70)]
    assert codes == [0] * 64 + [-1] * 6
    assert len(peer.ask("notifies")) == 64
    assert engine.transfer_sync(peer.name, 0, 0, 0, TransferOpcode.Write, notice) == 0
    assert len(peer.ask("notifies")) == 1


def test_first_buffer_is_what_was_registered_first(engine: TransferEngine, peer: TransferPeer) -> None:
    assert engine.get_first_buffer_address(peer.name) == peer.address
    me = f"127.0.0.1:{engine.get_rpc_port()}"
    assert engine.get_first_buffer_address(me) == 0
    later, first = sorted((Memory(64), Memory(64)), key=lambda memory: memory.ptr)
    assert engine.batch_register_memory([first.ptr, later.ptr], [64, 64]) == 0
    assert engine.get_first_buffer_address(me) == first.ptr
    assert engine.unregister_memory(first.ptr) == 0
    assert engine.get_first_buffer_address(me) == later.ptr
    assert engine.get_first_buffer_address(NOBODY) == 0


def test_probe(engine: TransferEngine, peer: TransferPeer) -> None:
    assert engine.send_probe(peer.name) == 0
    assert engine.send_probe(NOBODY) == -102
    assert engine.send_probe("junk") == -101


# ---- what is refused


def test_memory_that_is_not_registered_is_out_of_reach(engine: TransferEngine, peer: TransferPeer) -> None:
    """Nothing of a batch is written when one piece of it must not be."""
    peer.ask("fill", 10)
    whole = pattern(PEER_BYTES, 10)
    source = registered(engine, b"\0" * 64)
    end = peer.address + PEER_BYTES
    for at in (8, peer.address - 1, end - 63, end, (1 << 64) - 64, (1 << 64) - 1):
        assert engine.transfer_sync_write(peer.name, source.ptr, at, 64) == -1
        assert engine.transfer_sync_read(peer.name, source.ptr, at, 64) == -1
        pieces = ([source.ptr] * 2, [peer.address, at], [64, 64])
        assert engine.batch_transfer_sync_write(peer.name, *pieces) == -1
    assert peer.holds(0, whole)
    assert engine.transfer_sync_write(peer.name, source.ptr, end - 64, 64) == 0


def test_one_bad_large_write_leaves_the_connection_usable(engine: TransferEngine, peer: TransferPeer) -> None:
    source = registered(engine, pattern(48 * MIB))
    for _ in range(3):
        bad = peer.address + PEER_BYTES - 24 * MIB
        assert engine.transfer_sync_write(peer.name, source.ptr, bad, 48 * MIB) == -1
        assert engine.transfer_sync_write(peer.name, source.ptr, peer.address, 100) == 0


def test_what_is_not_memory_here_is_refused(engine: TransferEngine, peer: TransferPeer) -> None:
    unmapped = mmap.mmap(-1, 8192)
    hole = _address_of(unmapped)
    unmapped.close()
    for address in (0, 8, hole, (1 << 64) - 8):
        assert engine.transfer_sync_write(peer.name, address, peer.address, 8) == -1
        assert engine.transfer_sync_read(peer.name, address, peer.address, 8) == -1
        assert engine.register_memory(address, 8) == -1
        assert engine.write_bytes_to_buffer(address, b"12345678", 8) == -1
        with pytest.raises(ValueError, match="no memory of this process"):
            engine.read_bytes_from_buffer(address, 8)


def _address_of(block: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(block))


def test_wrong_addresses_of_peers(engine: TransferEngine) -> None:
    source = registered(engine, b"1234")
    for name in (NOBODY, "junk", "", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "host name:1", ":5"):
        assert engine.transfer_sync_write(name, source.ptr, 8, 4) == -1, name
        assert engine.batch_transfer_async_write(name, [source.ptr], [8], [4]) == 0, name
        assert engine.transfer_submit_write(name, source.ptr, 8, 4) == 0, name
    assert engine.batch_transfer_sync_write(NOBODY, [], [], []) == -1


def test_a_port_that_speaks_something_else(engine: TransferEngine, master_address: str) -> None:
    source = registered(engine, b"1234")
    assert engine.transfer_sync_write(master_address, source.ptr, 8, 4) == -1
    with socket.create_server(("127.0.0.1", 0)) as silent:
        name = f"127.0.0.1:{silent.getsockname()[1]}"
        assert engine.transfer_sync_write(name, source.ptr, 8, 4) == -1


# ---- unregistering


def test_unregistered_memory_is_out_of_reach(engine: TransferEngine) -> None:
    source = registered(engine, b"new!")
    with TransferPeer(4096) as other:
        assert engine.transfer_sync_write(other.name, source.ptr, other.address, 4) == 0
        assert other.ask("unregister") == 0
        assert other.ask("unregister") == -3
        assert engine.transfer_sync_write(other.name, source.ptr, other.address + 8, 4) == -1
        assert engine.transfer_sync_read(other.name, source.ptr, other.address, 4) == -1
        assert other.bytes(8, 12) == b"\xee" * 4
        assert other.ask("register", 8, 64) == 0
        assert engine.transfer_sync_write(other.name, source.ptr, other.address + 8, 4) == 0
        assert engine.transfer_sync_write(other.name, source.ptr, other.address + 7, 4) == -1


def test_unregistering_ends_our_own_transfer(engine: TransferEngine) -> None:
    """Its memory is wanted back while the peer stands still: the transfer fails, unregister returns."""
    source = registered(engine, pattern(32 * MIB))
    with TransferPeer(32 * MIB) as other:
        assert engine.send_probe(other.name) == 0
        other.stop()
        with ThreadPoolExecutor(1) as pool:
            # First what is not waited for: it asks for the peer, over the connection that is open.
            batch = engine.transfer_submit_write(other.name, source.ptr, other.address, 32 * MIB)
            assert batch != 0
            code = pool.submit(engine.transfer_sync_write, other.name, source.ptr, other.address, 32 * MIB)
            assert engine.unregister_memory(source.ptr) == 0
            assert code.result(HANG_S) == -1
        # Waits: a batch lets go of its memory before it says how it ended.
        assert engine.get_batch_transfer_status([batch]) == -1
        assert engine.transfer_check_status(batch) in (-1, -2)  # on a slow machine its time may come first
        other.go_on()


def test_registering_and_unregistering_beside_transfers(engine: TransferEngine, peer: TransferPeer) -> None:
    """Ranges come and go in one thread while another writes from them: whole or refused, never torn."""
    memory = Memory(pattern(256 * KIB, 11))
    ending = threading.Event()
    codes: set[int] = set()

    def turn() -> None:
        while not ending.is_set():
            codes.add(engine.register_memory(memory.ptr, memory.size))
            codes.add(engine.unregister_memory(memory.ptr))

    turning = threading.Thread(target=turn)
    turning.start()
    try:
        for _ in range(200):
            assert engine.transfer_sync_write(peer.name, memory.ptr, peer.address, memory.size) in (0, -1)
            assert engine.transfer_sync_read(peer.name, memory.ptr, peer.address, 100) in (0, -1)
    finally:
        ending.set()
        turning.join(HANG_S)
    assert codes == {0}


# ---- peers that go


def test_a_killed_peer_fails_the_call_and_the_engine_goes_on(
    engine: TransferEngine, peer: TransferPeer
) -> None:
    source = registered(engine, pattern(64 * MIB))
    with TransferPeer(64 * MIB) as other:
        assert engine.transfer_sync_write(other.name, source.ptr, other.address, 64 * MIB) == 0
        other.stop()
        with ThreadPoolExecutor(2) as pool:
            write = pool.submit(engine.transfer_sync_write, other.name, source.ptr, other.address, 64 * MIB)
            read = pool.submit(engine.transfer_sync_read, other.name, source.ptr, other.address, 64 * MIB)
            batch = engine.transfer_submit_write(other.name, source.ptr, other.address, 64 * MIB)
            other.kill()
            assert (write.result(HANG_S), read.result(HANG_S)) == (-1, -1)
        assert engine.get_batch_transfer_status([batch]) == -1
        assert engine.transfer_sync_write(other.name, source.ptr, other.address, 1) == -1
        assert engine.send_probe(other.name) == -102
    assert engine.transfer_sync_write(peer.name, source.ptr, peer.address, 64 * MIB) == 0
    assert peer.holds(0, source.bytes())


def test_a_peer_that_stands_still_fails_the_call_in_time(
    peer: TransferPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MC_TRANSFER_TIMEOUT", "5")
    engine = started()
    source = registered(engine, pattern(32 * MIB))
    with TransferPeer(32 * MIB) as other:
        assert engine.send_probe(other.name) == 0
        other.stop()
        batch = engine.transfer_submit_write(other.name, source.ptr, other.address, 32 * MIB)
        assert engine.transfer_sync_write(other.name, source.ptr, other.address, 32 * MIB) == -1
        wait_until(lambda: engine.transfer_check_status(batch) != 0, "the batch ends")
        assert engine.transfer_check_status(batch) == -2
        other.go_on()
        assert engine.transfer_sync_write(other.name, source.ptr, other.address, 32 * MIB) == 0
        assert other.holds(0, source.bytes())


def test_another_process_at_the_same_port_is_not_written_to_unasked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The port is the same, the memory is another process's: the call that finds out fails, once."""
    engine = started()
    source = registered(engine, b"\x55" * 64)
    with TransferPeer(4096) as first:
        assert engine.transfer_sync_write(first.name, source.ptr, first.address, 64) == 0
    monkeypatch.setenv("MC_MIN_RPC_PORT", str(first.port))
    monkeypatch.setenv("MC_MAX_RPC_PORT", str(first.port))
    with TransferPeer(4096) as second:
        assert second.port == first.port
        assert engine.transfer_sync_write(second.name, source.ptr, second.address, 64) == -1
        assert second.bytes(0, 64) == b"\xee" * 64
        assert engine.transfer_sync_write(second.name, source.ptr, second.address, 64) == 0
    with TransferPeer(4096) as third:
        # Who asks for its memory first knows whose it is.
        assert engine.get_first_buffer_address(third.name) == third.address
        assert engine.transfer_sync_write(third.name, source.ptr, third.address, 64) == 0


# ---- the process


def test_a_forks_child_has_no_engine(engine: TransferEngine, peer: TransferPeer) -> None:
    memory = registered(engine, b"1234")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            codes = [
                engine.transfer_sync_write(peer.name, memory.ptr, peer.address, 4),
                engine.unregister_memory(memory.ptr),
                engine.batch_transfer_async_write(peer.name, [memory.ptr], [peer.address], [4]),
            ]
            del engine
            code = 0 if codes == [-1, -1, 0] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert engine.transfer_sync_write(peer.name, memory.ptr, peer.address, 4) == 0


def test_an_engine_that_goes_gives_its_port_back() -> None:
    engine = started()
    port = engine.get_rpc_port()
    memory = Memory(64)
    assert engine.register_memory(memory.ptr, 64) == 0
    del engine
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))
