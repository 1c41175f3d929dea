"""What programs written against Mooncake's transfer engine rely on: names, signatures, codes, settings."""

from __future__ import annotations

import ctypes
import inspect
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import election_servers
import numpy as np
import pytest
from dropin.memory import Memory, pattern
from dropin.test_compat import installed  # noqa: F401
from dropin.test_signatures import told
from dropin.transfer_peer import TransferPeer
from processes import HANG_S, Process, free_port

from mooncake_client.dropin.transfer_engine import TransferEngine, TransferNotify, TransferOpcode
from mooncake_client.dropin.transfer_start import RPC_PORTS, InnerTransferEngine

TABLE = Path(__file__).with_name("engine_signatures.txt")
ROWS = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
NOBODY = "127.0.0.1:1"


def started(
    hostname: str = "127.0.0.1", server: str = "P2PHANDSHAKE", protocol: str = "tcp"
) -> TransferEngine:
    engine = TransferEngine()
    assert engine.initialize(hostname, server, protocol, "") == 0
    return engine


@pytest.fixture(scope="module")
def engine() -> TransferEngine:
    return started()


@pytest.fixture(scope="module")
def peer() -> Iterator[TransferPeer]:
    with TransferPeer(4096) as running:
        yield running


# ---- names and signatures


@pytest.mark.parametrize("row", ROWS, ids=[row.partition("(")[0] for row in ROWS])
def test_method_has_mooncakes_signature(row: str) -> None:
    name, _, parameters = row.partition("(")
    method = getattr(TransferEngine, name)
    assert told(inspect.signature(method)) == parameters.removesuffix(")")


def test_no_method_is_missing_from_the_table() -> None:
    methods = {
        name
        for name, value in vars(TransferEngine).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    assert methods == {row.partition("(")[0] for row in ROWS}
    assert len(ROWS) == 30


def test_names_of_the_module(installed: Path) -> None:  # noqa: F811
    program = """
from mooncake.engine import (
    CoroRPCInterface, InnerTransferEngine, Read, ReceivedData, ReceivedTensor, RpcInterface, SharedSegment,
    SUPPORT_CUDA, SUPPORT_EFA, SUPPORT_HIP, SUPPORT_INTRA_NVLINK, SUPPORT_MNNVL, SUPPORT_MUSA,
    TransferEngine, TransferNotify, TransferOpcode, Write, create_rpc_client, create_rpc_server,
)
engine = TransferEngine()
print(engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""), engine.get_rpc_port() > 0)
print(Read is TransferOpcode.Read, TransferEngine.TransferOpcode is TransferOpcode)
print(CoroRPCInterface is RpcInterface, SharedSegment.supported())
print(SUPPORT_CUDA, SUPPORT_EFA, SUPPORT_HIP, SUPPORT_INTRA_NVLINK, SUPPORT_MNNVL, SUPPORT_MUSA)
for make in (RpcInterface, create_rpc_client, create_rpc_server, lambda: SharedSegment.create("n", 1, 1, 0)):
    try:
        make()
    except NotImplementedError as error:
        print("docs/dropin.md" in str(error))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={"PYTHONPATH": str(installed), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    expected = "0 True True True True False " + "False " * 6 + "True " * 4
    assert done.stdout.split() == expected.split(), done.stderr


def test_opcodes_and_notices_are_as_users_know_them() -> None:
    read, write = TransferOpcode.Read, TransferOpcode.Write
    assert (int(read), int(write), read.value, write.name) == (0, 1, 0, "Write")
    assert (str(read), repr(write)) == ("TransferOpcode.Read", "<TransferOpcode.Write: 1>")
    assert TransferOpcode(1) is write
    assert read != 0
    assert (TransferNotify().name, TransferNotify().msg) == ("", "")
    notice = TransferNotify("a", "b")
    assert (notice.name, notice.msg) == ("a", "b")
    notice.msg = "c"
    assert (notice.msg, TransferNotify(name="x", msg="y").name) == ("c", "x")
    with pytest.raises(TypeError, match="msg is 5"):
        notice.msg = 5  # type: ignore[assignment]


# ---- codes

MEMORY = Memory(pattern(64 * 1024))
AT = MEMORY.ptr
CODES: dict[str, tuple[Callable[[TransferEngine, TransferPeer], Any], Any]] = {
    "a write": (lambda e, p: e.transfer_sync_write(p.name, AT, p.address, 100), 0),
    "a read": (lambda e, p: e.transfer_sync_read(p.name, AT, p.address, 100), 0),
    "of no bytes": (lambda e, p: e.transfer_sync_write(p.name, AT, p.address, 0), 0),
    "beyond the peer's memory": (lambda e, p: e.transfer_sync_write(p.name, AT, p.address + 4000, 100), -1),
    "not the peer's memory": (lambda e, p: e.transfer_sync_write(p.name, AT, p.address + (1 << 30), 1), -1),
    "to nobody": (lambda e, p: e.transfer_sync_write(NOBODY, AT, p.address, 1), -1),
    "to no name": (lambda e, p: e.transfer_sync_write("junk", AT, p.address, 1), -1),
    "with a hint": (lambda e, p: e.transfer_sync_write(p.name, AT, p.address, 1, "rdma"), 0),
    "with a named hint": (
        lambda e, p: e.batch_transfer_sync_read(p.name, [AT], [p.address], [1], transport_hint="x"),
        0,
    ),
    "an empty batch": (lambda e, p: e.batch_transfer_sync_write(p.name, [], [], []), 0),
    "lists of different lengths": (lambda e, p: e.batch_transfer_sync_write(p.name, [AT], [], [1]), -1),
    "tuples": (lambda e, p: e.batch_transfer_sync_write(p.name, (AT,), (p.address,), (1,)), 0),
    "numpy's numbers": (
        lambda e, p: e.batch_transfer_sync_write(
            p.name, np.array([AT]), np.array([p.address]), [np.uint64(1)]
        ),
        0,
    ),
    "an asynchronous batch to nobody": (lambda e, p: e.batch_transfer_async_read(NOBODY, [AT], [8], [1]), 0),
    "an asynchronous batch of different lengths": (
        lambda e, p: e.batch_transfer_async_write(p.name, [AT], [8, 9], [1]),
        0,
    ),
    "a submitted write to nobody": (lambda e, p: e.transfer_submit_write(NOBODY, AT, 8, 1), 0),
    "status of nothing": (lambda e, p: e.get_batch_transfer_status([]), 0),
    "status of an unknown batch": (lambda e, p: e.get_batch_transfer_status([1 << 40]), -1),
    "check of an unknown batch": (lambda e, p: e.transfer_check_status(77), -1),
    "the first buffer of nobody": (lambda e, p: e.get_first_buffer_address(NOBODY), 0),
    "the first buffer of no name": (lambda e, p: e.get_first_buffer_address("junk"), 0),
    "probe": (lambda e, p: e.send_probe(p.name), 0),
    "probe of oneself": (lambda e, p: e.send_probe(f"127.0.0.1:{e.get_rpc_port()}"), 0),
    "probe of nobody": (lambda e, p: e.send_probe(NOBODY), -102),
    "probe of no name": (lambda e, p: e.send_probe("junk"), -101),
    "warm-up": (lambda e, p: e.warmup_efa_segment("x"), 0),
    "registering nothing": (lambda e, p: e.register_memory(AT, 0), -1),
    "registering address 0": (lambda e, p: e.register_memory(0, 100), -1),
    "unregistering the unknown": (lambda e, p: e.unregister_memory(12345), -3),
    "registering no batch": (lambda e, p: e.batch_register_memory([], []), 0),
    "registering lists of different lengths": (lambda e, p: e.batch_register_memory([AT, AT + 64], [64]), -1),
    "unregistering no batch": (lambda e, p: e.batch_unregister_memory([]), 0),
    "freeing what was not allocated": (lambda e, p: e.free_managed_buffer(AT, 100), -3),
    "more memory than there is": (lambda e, p: e.allocate_managed_buffer(1 << 62), 0),
    "bytes copied": (
        lambda e, p: (e.write_bytes_to_buffer(AT, b"\0\xff", 2), e.read_bytes_from_buffer(AT, 2)),
        (0, b"\0\xff"),
    ),
    "a part of the bytes": (lambda e, p: e.write_bytes_to_buffer(AT, bytearray(b"hello"), 3), 0),
    "text copied": (
        lambda e, p: (e.write_bytes_to_buffer(AT, "ab", 2), e.read_bytes_from_buffer(AT, 2)),
        (0, b"ab"),
    ),
    "more bytes than there are": (lambda e, p: e.write_bytes_to_buffer(AT, b"hello", 6), -1),
    "no bytes": (lambda e, p: e.read_bytes_from_buffer(AT, 0), b""),
}


@pytest.mark.parametrize("what", CODES)
def test_code(engine: TransferEngine, peer: TransferPeer, what: str) -> None:
    call, expected = CODES[what]
    answer = call(engine, peer)
    assert answer == expected
    assert type(answer) in (int, bytes, tuple)


def test_registrations_do_not_overlap(engine: TransferEngine) -> None:
    memory = Memory(8192)
    assert engine.register_memory(memory.ptr, 8192, "cpu:0") == 0
    for start, length in ((0, 8192), (100, 100), (0, 1), (8191, 1)):
        assert engine.register_memory(memory.ptr + start, length, location="*") == -7
    assert engine.unregister_memory(memory.ptr + 1) == -3
    assert engine.unregister_memory(memory.ptr) == 0
    assert engine.unregister_memory(memory.ptr) == -3


def test_a_batch_is_registered_whole_or_not_at_all(engine: TransferEngine) -> None:
    memory = Memory(8192)
    first, second = memory.ptr, memory.ptr + 4096
    assert engine.batch_register_memory([first, second, first + 10], [4096, 4096, 1]) == -7
    assert engine.batch_register_memory([first, 0], [4096, 4096]) == -1
    assert engine.unregister_memory(first) == -3
    assert engine.batch_register_memory([first, second], [4096, 4096]) == 0
    assert engine.batch_unregister_memory([first, 8, second]) == -3
    assert engine.batch_unregister_memory([first, second]) == -3


def test_managed_buffers_are_registered_zeroed_and_freed_once(
    engine: TransferEngine, peer: TransferPeer
) -> None:
    sizes = (1, 16, 4096, 1 << 20, 64 << 20)
    buffers = [engine.allocate_managed_buffer(size) for size in sizes]
    assert all(buffers)
    me = f"127.0.0.1:{engine.get_rpc_port()}"
    for address, size in zip(buffers, sizes, strict=True):
        assert engine.read_bytes_from_buffer(address, size) == bytes(size)
        assert engine.write_bytes_to_buffer(address, b"\x07", 1) == 0
        assert engine.transfer_sync_write(me, address, address, 1) == 0
        assert engine.unregister_memory(address) == -3
    for address, size in zip(buffers, sizes, strict=True):
        assert engine.free_managed_buffer(address, size) == 0
        assert engine.free_managed_buffer(address, size) == -3
    source = Memory(b"x")
    assert engine.transfer_sync_write(me, source.ptr, buffers[-1], 1) == -1
    assert engine.free_managed_buffer(engine.allocate_managed_buffer(0), 0) == 0


WRONG_TYPES: dict[str, Callable[[TransferEngine], Any]] = {
    "an address that is text": lambda e: e.transfer_sync_write(NOBODY, "a", 8, 3),  # type: ignore[arg-type]
    "an address that is a fraction": lambda e: e.batch_transfer_sync_write(NOBODY, [1.5], [8], [3]),  # type: ignore[list-item]
    "a negative address": lambda e: e.register_memory(-1, 4),
    "a negative length": lambda e: e.allocate_managed_buffer(-1),
    "a peer that is none": lambda e: e.transfer_sync_write(None, 8, 8, 3),  # type: ignore[arg-type]
    "an opcode that is a number": lambda e: e.transfer_sync(NOBODY, 8, 8, 1, 1),  # type: ignore[arg-type]
    "a notice that is text": lambda e: e.transfer_sync(NOBODY, 8, 8, 1, TransferOpcode.Read, "n"),  # type: ignore[arg-type]
    "one status": lambda e: e.get_batch_transfer_status(5),  # type: ignore[arg-type]
    "bytes that are a view": lambda e: e.write_bytes_to_buffer(AT, memoryview(b"ab"), 2),  # type: ignore[arg-type]
    "one buffer": lambda e: e.batch_transfer_sync_write(NOBODY, 8, 8, 3),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", WRONG_TYPES)
def test_arguments_of_another_type_are_refused(engine: TransferEngine, what: str) -> None:
    with pytest.raises(TypeError):
        WRONG_TYPES[what](engine)


def test_before_initialize_everything_fails() -> None:
    engine = TransferEngine()
    assert (engine.get_rpc_port(), engine.get_engine(), engine.get_engine_ptr()) == (0, None, 0)
    assert engine.register_memory(AT, 10) == engine.unregister_memory(AT) == -1
    assert engine.allocate_managed_buffer(10) == engine.get_first_buffer_address(NOBODY) == 0
    assert engine.free_managed_buffer(AT, 10) == -1
    assert engine.transfer_sync_write(NOBODY, AT, 8, 1) == -1
    assert engine.batch_transfer_async_write(NOBODY, [AT], [8], [1]) == 0
    assert engine.get_batch_transfer_status([1]) == engine.transfer_check_status(1) == -1
    assert engine.send_probe(NOBODY) == -1
    assert engine.get_notifies() == []
    assert json.loads(engine.get_local_topology())


# ---- settings


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (("127.0.0.1", "P2PHANDSHAKE", "tcp", ""), 0),
        (("127.0.0.1:0", "P2PHANDSHAKE", "tcp", ""), 0),
        (("127.0.0.1:23456", "P2PHANDSHAKE", "rdma", "mlx5_0"), 0),
        (("localhost", "P2PHANDSHAKE", "", ""), 0),
        (("0.0.0.0", "P2PHANDSHAKE", "TCP", ""), 0),
        (("no-such-host.invalid", "P2PHANDSHAKE", "efa", ""), 0),
        (("", "P2PHANDSHAKE", "tcp", ""), -1),
        (("two words", "P2PHANDSHAKE", "tcp", ""), -1),
        (("127.0.0.1", "", "tcp", ""), -1),
        (("127.0.0.1", "nonsense", "tcp", ""), -1),
        (("127.0.0.1", "etcd://127.0.0.1:1", "tcp", ""), -1),
        (("127.0.0.1", "redis://127.0.0.1:1", "tcp", ""), -1),
        (("127.0.0.1", f"http://{NOBODY}/metadata", "tcp", ""), -1),
        (("127.0.0.1", "P2PHANDSHAKE", "nvlink", ""), -1),
        (("127.0.0.1", "P2PHANDSHAKE", "nvlink_intra", ""), -1),
        (("127.0.0.1", "P2PHANDSHAKE", "hip", ""), -1),
    ],
)
def test_initialize(settings: tuple[str, str, str, str], code: int) -> None:
    engine = TransferEngine()
    assert engine.initialize(*settings) == code
    assert (engine.get_rpc_port() > 0) == (code == 0)


def test_initialize_by_name_and_twice() -> None:
    engine = TransferEngine()
    settings = {
        "local_hostname": "127.0.0.1",
        "metadata_server": "P2PHANDSHAKE",
        "protocol": "tcp",
        "device_name": "",
    }
    assert engine.initialize(**settings) == 0
    port = engine.get_rpc_port()
    assert RPC_PORTS[0] <= port <= RPC_PORTS[1]
    assert engine.initialize(**settings) == 0
    assert engine.initialize(**{**settings, "local_hostname": "localhost"}) == -1
    assert engine.get_rpc_port() == port
    assert isinstance(engine.get_engine(), InnerTransferEngine)
    assert engine.get_engine() is engine.get_engine()
    assert engine.get_engine_ptr() > 0


def test_initialize_ext_names_the_servers_kind() -> None:
    for server, kind, code in (
        ("P2PHANDSHAKE", "P2PHANDSHAKE", 0),
        ("P2PHANDSHAKE", "", 0),
        (NOBODY, "http", -1),
        (NOBODY, "etcd", -1),
        (NOBODY, "junk", -1),
    ):
        assert TransferEngine().initialize_ext("127.0.0.1", server, "tcp", "", kind) == code


def test_port_range_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    monkeypatch.setenv("MC_MIN_RPC_PORT", str(port))
    monkeypatch.setenv("MC_MAX_RPC_PORT", str(port))
    engine = started()
    assert engine.get_rpc_port() == port
    assert TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == -1
    assert "MC_MIN_RPC_PORT" in caplog.text
    for value in ("x", "70000", "-1"):
        monkeypatch.setenv("MC_MIN_RPC_PORT", value)
        assert TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == -1
    monkeypatch.setenv("MC_MIN_RPC_PORT", str(port))
    monkeypatch.setenv("MC_TRANSFER_TIMEOUT", "soon")
    assert TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == -1
    assert "MC_TRANSFER_TIMEOUT is 'soon'" in caplog.text


def test_what_fails_is_told_with_its_reason(engine: TransferEngine, caplog: pytest.LogCaptureFixture) -> None:
    engine.transfer_sync_write(NOBODY, AT, 8, 1)
    engine.transfer_sync_write(f"127.0.0.1:{engine.get_rpc_port()}", AT, 8, 1)
    engine.initialize("127.0.0.1", "etcd://x:1", "tcp", "")
    assert "127.0.0.1:1" in caplog.text
    assert "1 bytes at 0x8 are not registered" in caplog.text


def test_topology_names_this_machines_nodes(engine: TransferEngine) -> None:
    topology = json.loads(engine.get_local_topology("mlx5_0"))
    assert topology["cpu:0"] == [[], []]
    assert all(name.startswith("cpu:") for name in topology)


def test_ipv6_names_with_and_without_brackets() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    for host in ("::1", "[::1]"):
        engine = started(host)
        memory = Memory(b"ab")
        assert engine.register_memory(memory.ptr, 2) == 0
        for name in (f"[::1]:{engine.get_rpc_port()}", f"::1:{engine.get_rpc_port()}"):
            assert engine.transfer_sync_write(name, memory.ptr, memory.ptr + 1, 1) == 0


def test_the_gil_is_free_while_memory_is_registered() -> None:
    """Another thread must run during many calls that hold nothing else up."""
    engine = started()
    memory = Memory(4096)
    ran = threading.Event()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(10)
    try:
        threading.Thread(target=ran.set).start()
        for _ in range(100_000):
            assert engine.register_memory(memory.ptr, 64) == engine.unregister_memory(memory.ptr) == 0
            if ran.is_set():
                break
    finally:
        sys.setswitchinterval(interval)
    assert ran.is_set()


# ---- a metadata server


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    port = free_port()
    with Process(
        "mooncake_client.dropin.http_metadata_server", "--host=127.0.0.1", f"--port={port}"
    ) as running:
        running.wait_for("serves on")
        yield f"http://127.0.0.1:{port}/metadata"


def test_engines_find_each_other_by_name(server: str) -> None:
    engine = started("127.0.0.1:23451", server)
    source = Memory(pattern(1000))
    with TransferPeer(4096, "127.0.0.1:23452", server) as other:
        assert engine.transfer_sync_write("127.0.0.1:23452", source.ptr, other.address, 1000) == 0
        assert other.holds(0, source.bytes())
        assert engine.get_first_buffer_address("127.0.0.1:23452") == other.address
        assert engine.send_probe("127.0.0.1:23452") == 0
        # A port is no name here, and a name is taken once.
        assert engine.transfer_sync_write(f"127.0.0.1:{other.port}", source.ptr, other.address, 1) == -1
        assert TransferEngine().initialize("127.0.0.1:23452", server, "tcp", "") == -1
    assert engine.transfer_sync_write("127.0.0.1:23452", source.ptr, 4096, 1) == -1


def test_a_name_is_given_back_at_the_end(server: str) -> None:
    url = server.removeprefix("http://")
    for _ in range(2):
        engine = TransferEngine()
        assert engine.initialize_ext("127.0.0.1:23453", url, "tcp", "", "http") == 0
        del engine
    program = f"""
from mooncake_client.dropin.transfer_engine import TransferEngine
engine = TransferEngine()
print(engine.initialize("127.0.0.1:23454", {server!r}, "tcp", ""))
"""
    for _ in range(2):  # also when the interpreter ends with it
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        assert (done.stdout.split(), done.stderr) == (["0"], "")


def test_the_name_of_a_killed_engine_is_free_at_once(server: str) -> None:
    program = f"""
import os, signal
from mooncake_client.dropin.transfer_engine import TransferEngine
engine = TransferEngine()
print(engine.initialize("127.0.0.1:23456", {server!r}, "tcp", ""), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        assert (done.stdout.split(), done.returncode) == (["0"], -9)


@pytest.mark.parametrize("kind", ["etcd", "redis"])
def test_engines_find_each_other_in_etcd_and_redis(kind: str, tmp_path: Path) -> None:
    make = election_servers.etcd if kind == "etcd" else election_servers.redis
    with make(tmp_path) as metadata:
        engine = TransferEngine()
        assert engine.initialize_ext("127.0.0.1:23457", metadata.address, "tcp", "", kind) == 0
        source = Memory(pattern(1000))
        with TransferPeer(4096, "127.0.0.1:23458", f"{kind}://{metadata.address}") as other:
            assert engine.transfer_sync_write("127.0.0.1:23458", source.ptr, other.address, 1000) == 0
            assert other.holds(0, source.bytes())
        del engine


def test_every_interface_is_no_name_for_others(server: str) -> None:
    assert TransferEngine().initialize("0.0.0.0:23455", server, "tcp", "") == -1


# ---- as engines call it


def test_as_vllms_connector_calls_it(peer: TransferPeer) -> None:
    """Registers its caches in one batch, then ten threads write blocks of all layers."""
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "") == 0
    layers = [Memory(pattern(64 * 1024, seed)) for seed in range(4)]
    assert engine.batch_register_memory([each.ptr for each in layers], [each.size for each in layers]) == 0
    remote_session = f"127.0.0.1:{peer.port}"
    threads = [
        threading.Thread(
            target=engine.batch_transfer_sync_write,
            args=(
                remote_session,
                [layer.ptr + block * 64 for layer in layers],
                [peer.address + (block * 4 + i) * 64 for i in range(4)],
                [64] * 4,
            ),
        )
        for block in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    blocks = b"".join(layer.bytes(b * 64, b * 64 + 64) for b in range(10) for layer in layers)
    assert peer.holds(0, blocks)


def test_as_sglang_calls_it(peer: TransferPeer) -> None:
    """Its session is host:port, a code below 0 is a failure, and a probe says when it is back."""
    engine = started(protocol="rdma")
    memory = Memory(pattern(4096, 5))
    assert engine.batch_register_memory([memory.ptr], [memory.size]) == 0
    assert engine.batch_transfer_sync_write(peer.name, [memory.ptr], [peer.address], [4096]) >= 0
    with TransferPeer(4096) as gone:
        name, address = gone.name, gone.address
        assert engine.send_probe(name) == 0
    assert engine.transfer_sync_write(name, memory.ptr, address, 4096) < 0
    assert engine.send_probe(name) != 0
    assert engine.batch_unregister_memory([memory.ptr]) == 0


def test_a_store_takes_an_engine(master_address: str, engine: TransferEngine) -> None:
    from mooncake_client.dropin import MooncakeDistributedStore

    store = MooncakeDistributedStore()
    inner = engine.get_engine()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", master_address, inner)
    assert (code, store.close()) == (0, 0)


def test_memory_of_ctypes_is_memory(engine: TransferEngine) -> None:
    block = ctypes.create_string_buffer(64)
    assert engine.register_memory(ctypes.addressof(block), 64) == 0
    assert engine.write_bytes_to_buffer(ctypes.addressof(block), b"abc", 3) == 0
    assert block.value == b"abc"
    assert engine.unregister_memory(ctypes.addressof(block)) == 0
