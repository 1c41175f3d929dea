"""`TransferEngine`: Mooncake's interface of one-sided reads and writes, over the native engine.

Owns names, signatures and codes that its users know; docs/dropin.md says what differs. Addresses are numbers:
memory must stay where it is while it is registered or transferred. Any number of threads may call at once; no
call holds the GIL while it waits.
"""

from __future__ import annotations

import json
import logging
import operator
import re
import threading
import weakref
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final

from mooncake_client.dropin.transfer_start import InnerTransferEngine, Running, end, start
from mooncake_store import _core
from mooncake_store.errors import InvalidArgument, StoreError, Unavailable
from mooncake_store.metadata_server.address import P2P_HANDSHAKE
from mooncake_store.status import Status

log = logging.getLogger("mooncake_store.dropin")

# Mooncake's transfer engine has codes of its own, other than its store's.
OK: Final = 0
FAILED: Final = -1
TOO_MANY: Final = -2
NOT_REGISTERED: Final = -3
BATCH_BUSY: Final = -4
OVERLAPS: Final = -7
NO_SUCH_HOST: Final = -101
NO_ANSWER: Final = -102

_REGISTERED: Final = {
    int(Status.OK): OK,
    int(Status.BUSY): TOO_MANY,
    int(Status.SEGMENT_ALREADY_EXISTS): OVERLAPS,
}
_UNREGISTERED: Final = {
    int(Status.OK): OK,
    int(Status.BUSY): BATCH_BUSY,
    int(Status.SEGMENT_NOT_FOUND): NOT_REGISTERED,
}


class TransferOpcode(Enum):
    Read = 0
    Write = 1

    def __int__(self) -> int:
        return self.value

    __index__ = __int__

    def __str__(self) -> str:
        return f"TransferOpcode.{self.name}"


class TransferNotify:
    """A name and a message for the engine at the other end."""

    def __init__(self, name: str = "", msg: str = "") -> None:
        self.name = name
        self.msg = msg

    def __setattr__(self, attribute: str, value: str) -> None:
        if not isinstance(value, str):
            raise TypeError(f"{attribute} is {value!r}; it must be str")
        super().__setattr__(attribute, value)

    def __repr__(self) -> str:
        return f"TransferNotify(name={self.name!r}, msg={self.msg!r})"


class TransferEngine:
    """Reads and writes memory that other engines registered, and registers memory for them to.

    Returns codes: 0, or negative for a failure, whose reason the logger `mooncake_store.dropin` tells. Raises
    TypeError for arguments of another type. Before `initialize` every call fails.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Running | None = None

    # ---- beginning

    def initialize(self, local_hostname: str, metadata_server: str, protocol: str, device_name: str) -> int:
        """Listen on a port of its own: `get_rpc_port`.

        local_hostname: what others dial; with a metadata server also the name under which they find
            this engine. A port in it is part of the name alone.
        metadata_server: `P2PHANDSHAKE`: peers are named `host:port`; or `http://host:port/metadata`, `etcd://`
            and `redis://`.
        protocol: what is not tcp is carried by tcp too, with a warning.
        device_name: without meaning, TCP needs none.
        """
        settings = (_text(local_hostname), _text(metadata_server), _text(protocol), _text(device_name))
        with self._lock:
            if self._running is not None:
                if self._running.settings == settings:
                    return OK
                return _refused("initialize", "it is initialised already, with other settings")
            try:
                self._running = start(settings)
                # At the latest when the interpreter ends, while there is one.
                weakref.finalize(self, end, self._running.engine, self._running.peers)
            except (StoreError, OSError) as error:
                return _refused("initialize", str(error))
        return OK

    def initialize_ext(
        self, local_hostname: str, metadata_server: str, protocol: str, device_name: str, metadata_type: str
    ) -> int:
        """The same with the metadata server's kind apart: such as `http` and `host:port/metadata`."""
        server = _text(metadata_server)
        if _text(metadata_type) and server != P2P_HANDSHAKE and "://" not in server:
            server = P2P_HANDSHAKE if metadata_type == P2P_HANDSHAKE else f"{metadata_type}://{server}"
        return self.initialize(local_hostname, server, protocol, device_name)

    def get_rpc_port(self) -> int:
        """0 before initialize."""
        return self._running.engine.port if self._running is not None else 0

    def get_engine(self) -> InnerTransferEngine | None:
        return self._running.inner if self._running is not None else None

    def get_engine_ptr(self) -> int:
        """A number that tells engines of this process apart; 0 before initialize. It points to nothing."""
        return id(self._running.engine) if self._running is not None else 0

    def get_local_topology(self, device_name: str | None = None) -> str:
        """JSON: of each NUMA node its preferred and its other network devices, of which TCP needs none."""
        del device_name
        nodes = sorted(
            int(match.group(1))
            for path in Path("/sys/devices/system/node").glob("node*")
            if (match := re.fullmatch(r"node(\d+)", path.name))
        )
        return json.dumps({f"cpu:{node}": [[], []] for node in nodes or [0]}, indent="\t") + "\n"

    # ---- memory

    def register_memory(self, buffer_addr: int, capacity: int, location: str = "*") -> int:
        """Let peers read and write it. -7: it overlaps what is registered, -1: no memory of this host.

        location: without meaning.
        """
        del location
        address, length = _address(buffer_addr), _address(capacity)
        if self._running is None:
            return _not_initialised("register_memory")
        status = self._running.engine.register(address, length)
        return _code(_REGISTERED, status, "register_memory")

    def unregister_memory(self, addr: int) -> int:
        """Returns when nobody reads or writes it any more; transfers that go on after a second are cut off.

        -3: it is not registered.
        """
        address = _address(addr)
        if self._running is None:
            return _not_initialised("unregister_memory")
        return _code(_UNREGISTERED, self._running.engine.unregister(address), "unregister_memory")

    def batch_register_memory(
        self, buffer_addresses: Sequence[int], capacities: Sequence[int], location: str = "*"
    ) -> int:
        """All of them, or none and the first one's code."""
        if len(buffer_addresses) != len(capacities):
            return _refused(
                "batch_register_memory", f"{len(buffer_addresses)} addresses, {len(capacities)} capacities"
            )
        done: list[int] = []
        for address, capacity in zip(buffer_addresses, capacities, strict=True):
            code = self.register_memory(address, capacity, location)
            if code != OK:
                for registered in reversed(done):
                    self.unregister_memory(registered)
                return code
            done.append(address)
        return OK

    def batch_unregister_memory(self, buffer_addresses: Sequence[int]) -> int:
        """Each of them; the first failure's code."""
        codes = [self.unregister_memory(address) for address in buffer_addresses]
        return next((code for code in codes if code != OK), OK)

    def allocate_managed_buffer(self, length: int) -> int:
        """The address of zeroed memory that is registered; 0: there is none."""
        wanted = _address(length)
        if self._running is None:
            _not_initialised("allocate_managed_buffer")
            return 0
        address = self._running.engine.lend(wanted)
        if address == 0:
            _refused("allocate_managed_buffer", _core.TransferEngine.why())
        return address

    def free_managed_buffer(self, buffer_addr: int, length: int) -> int:
        """As unregister_memory. length: without meaning, it is known."""
        address, _ = _address(buffer_addr), _address(length)
        if self._running is None:
            return _not_initialised("free_managed_buffer")
        return _code(_UNREGISTERED, self._running.engine.give_back(address), "free_managed_buffer")

    def write_bytes_to_buffer(self, dest_address: int, src_ptr: bytes | str, length: int) -> int:
        """Copy the first `length` of these bytes there."""
        if not isinstance(src_ptr, (bytes, bytearray, str)):
            raise TypeError(f"src_ptr must be bytes or str, not {type(src_ptr).__name__}")
        data = src_ptr.encode() if isinstance(src_ptr, str) else src_ptr
        try:
            _core.copy_to_address(_address(dest_address), data, _address(length))
        except ValueError as error:
            return _refused("write_bytes_to_buffer", str(error))
        return OK

    def read_bytes_from_buffer(self, source_address: int, length: int) -> bytes:
        """Raises ValueError where there is no memory."""
        return _core.copy_from_address(_address(source_address), _address(length))

    def get_first_buffer_address(self, segment_name: str) -> int:
        """What a peer registered first, of what is registered now; 0: nothing, or nobody answered."""
        found = self._peer(segment_name, "get_first_buffer_address")
        if found is None:
            return 0
        running, peer = found
        status, address = running.engine.first_buffer(peer)
        self._noted(running, segment_name, status, "get_first_buffer_address")
        return address

    # ---- transfers that are waited for

    def transfer_sync_write(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        transport_hint: str = "",
    ) -> int:
        del transport_hint
        return self._transfer(target_hostname, [buffer], [peer_buffer_address], [length], True)

    def transfer_sync_read(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        transport_hint: str = "",
    ) -> int:
        del transport_hint
        return self._transfer(target_hostname, [buffer], [peer_buffer_address], [length], False)

    def transfer_sync(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        opcode: TransferOpcode,
        notify: TransferNotify | None = None,
        transport_hint: str = "",
    ) -> int:
        """notify: given to the peer's `get_notifies` when the last byte is there."""
        del transport_hint
        return self._transfer(
            target_hostname, [buffer], [peer_buffer_address], [length], _is_write(opcode), notify
        )

    def batch_transfer_sync_write(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int:
        del transport_hint
        return self._transfer(target_hostname, buffers, peer_buffer_addresses, lengths, True)

    def batch_transfer_sync_read(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int:
        del transport_hint
        return self._transfer(target_hostname, buffers, peer_buffer_addresses, lengths, False)

    def batch_transfer_sync(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        opcode: TransferOpcode,
        notify: TransferNotify | None = None,
        transport_hint: str = "",
    ) -> int:
        """notify: given to the peer's `get_notifies` when the last byte is there."""
        del transport_hint
        return self._transfer(
            target_hostname, buffers, peer_buffer_addresses, lengths, _is_write(opcode), notify
        )

    # ---- transfers that are not

    def batch_transfer_async_write(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int:
        """An id for get_batch_transfer_status; 0: it was not taken. Until then the memory must stay."""
        del transport_hint
        return self._submit(target_hostname, buffers, peer_buffer_addresses, lengths, True)

    def batch_transfer_async_read(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int:
        """As batch_transfer_async_write."""
        del transport_hint
        return self._submit(target_hostname, buffers, peer_buffer_addresses, lengths, False)

    def batch_transfer_async(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        opcode: TransferOpcode,
        transport_hint: str = "",
    ) -> int:
        """As batch_transfer_async_write."""
        del transport_hint
        return self._submit(target_hostname, buffers, peer_buffer_addresses, lengths, _is_write(opcode))

    def transfer_submit_write(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        transport_hint: str = "",
    ) -> int:
        """An id for transfer_check_status; 0: it was not taken."""
        del transport_hint
        return self._submit(target_hostname, [buffer], [peer_buffer_address], [length], True)

    def transfer_check_status(self, batch_id: int) -> int:
        """1 done, 0 pending, -1 failed or not known, -2 not done within its time."""
        batch = _address(batch_id)
        if self._running is None:
            return _not_initialised("transfer_check_status")
        found = self._running.engine.outcome(batch)
        if found < 0:
            log.warning("transfer_check_status: %s", _core.TransferEngine.why())
        return found

    def get_batch_transfer_status(self, batch_ids: Sequence[int]) -> int:
        """Waits for all of them: 0 when each is done, else -1."""
        if isinstance(batch_ids, (str, bytes)) or not isinstance(batch_ids, Sequence):
            raise TypeError(f"batch_ids must be a list, not {type(batch_ids).__name__}")
        batches = [_address(batch) for batch in batch_ids]
        if self._running is None:
            return _not_initialised("get_batch_transfer_status")
        self._running.engine.wait(batches)
        codes = [self.transfer_check_status(batch) for batch in batches]
        return OK if all(code == 1 for code in codes) else FAILED

    # ---- other engines

    def get_notifies(self) -> list[TransferNotify]:
        """What peers have told since it was asked last."""
        if self._running is None:
            return []
        return [
            TransferNotify(name.decode(errors="replace"), message.decode(errors="replace"))
            for name, message in self._running.engine.take_notices()
        ]

    def send_probe(self, peer_server_name: str) -> int:
        """0: the peer answers. -101: no such name, -102: it does not, -1 before initialize."""
        if self._running is None:
            return _not_initialised("send_probe")
        found = self._peer(peer_server_name, "send_probe")
        if found is None:
            return NO_SUCH_HOST
        running, peer = found
        status = running.engine.ping(peer)
        return OK if self._noted(running, peer_server_name, status, "send_probe") else NO_ANSWER

    def warmup_efa_segment(self, segment_name: str) -> int:
        """0: there is nothing to warm up for TCP."""
        _text(segment_name)
        return OK

    # ---- inside

    def _transfer(
        self,
        target: str,
        buffers: Sequence[int],
        remotes: Sequence[int],
        lengths: Sequence[int],
        write: bool,
        notify: TransferNotify | None = None,
    ) -> int:
        if notify is not None and not isinstance(notify, TransferNotify):
            raise TypeError(f"notify must be a TransferNotify, not {type(notify).__name__}")
        found = self._peer(target, "transfer")
        if found is None:
            return FAILED
        running, peer = found
        notice = None if notify is None else (notify.name, notify.msg)
        try:
            status = running.engine.transfer(peer, write, buffers, remotes, lengths, notice)
        except ValueError as error:
            return _refused("transfer", str(error))
        return OK if self._noted(running, target, status, "transfer") else FAILED

    def _submit(
        self,
        target: str,
        buffers: Sequence[int],
        remotes: Sequence[int],
        lengths: Sequence[int],
        write: bool,
    ) -> int:
        found = self._peer(target, "transfer")
        if found is None:
            return 0
        running, peer = found
        try:
            batch = running.engine.submit(peer, write, buffers, remotes, lengths)
        except ValueError as error:
            _refused("transfer", str(error))
            return 0
        if batch == 0:
            self._noted(running, target, int(Status.RPC_FAIL), "transfer")
        return batch

    def _peer(self, name: str, what: str) -> tuple[Running, tuple[str, int]] | None:
        """Where that engine listens. None: it is not known, which was logged."""
        name = _text(name)
        running = self._running
        if running is None:
            _not_initialised(what)
            return None
        try:
            endpoint = running.peers.find(name)
        except (InvalidArgument, Unavailable) as error:
            _refused(what, str(error))
            return None
        return running, (endpoint.host, endpoint.port)

    def _noted(self, running: Running, name: str, status: int, what: str) -> bool:
        """Whether it went well; else it is logged, and where the peer is, is asked for anew."""
        if status == 0:
            return True
        running.peers.forget(name)
        _refused(what, f"{name}: {_core.TransferEngine.why()}")
        return False


# Not in the class's body: there it would hide the module's name from the annotations.
TransferEngine.TransferOpcode = TransferOpcode  # type: ignore[attr-defined]


# ---- arguments and codes


def _address(number: Any) -> int:
    """Raises TypeError for what is no whole number from 0 to 2^64-1."""
    value = operator.index(number)
    if not 0 <= value < 1 << 64:
        raise TypeError(f"{value} is not in 0..2^64-1")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} must be str, not {type(value).__name__}")
    return value


def _is_write(opcode: Any) -> bool:
    if not isinstance(opcode, TransferOpcode):
        raise TypeError(f"opcode must be a TransferOpcode, not {type(opcode).__name__}")
    return opcode is TransferOpcode.Write


def _refused(what: str, why: str) -> int:
    log.warning("%s: %s", what, why)
    return FAILED


def _not_initialised(what: str) -> int:
    return _refused(what, "the engine is not initialised")


def _code(codes: dict[int, int], status: int, what: str) -> int:
    if status != 0:
        _refused(what, _core.TransferEngine.why())
    return codes.get(status, FAILED)
