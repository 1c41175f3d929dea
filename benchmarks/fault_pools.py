"""A pool of either store for `faults.py`: its processes, which are killed and stopped, and a client here.

The one interface of what is compared. Each store's own packages are imported by its own pool only, for it
runs in the store's own environment.
"""

from __future__ import annotations

import ctypes
import mmap
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.request import urlopen

from benchmarks.processes import Server, ServerError, free_port

WRITER_KEYS: Final = 60
WRITER_VALUE_BYTES: Final = 1 << 20
CALL_TIMEOUT_MS: Final = 10_000
MASTER_READY: Final = r"serves gRPC on \S*?:(\d+), the lane on port (\d+), HTTP on port (\d+)"

OUR_MASTER: Final = "from mooncake_master.cli import main; raise SystemExit(main())"
OUR_NODE: Final = "from mooncake_client.node_daemon import main; raise SystemExit(main())"
OUR_WRITER: Final = f"""
import sys
from mooncake_client import Store
with Store(sys.argv[1]) as store:
    keys = [f"{{sys.argv[2]}}/{{number}}" for number in range({WRITER_KEYS})]
    values = [((key.encode() + b"/") * ({WRITER_VALUE_BYTES} // 4))[:{WRITER_VALUE_BYTES}] for key in keys]
    print("puts", flush=True)
    store.put_many(keys, values)
"""
MOONCAKE_STORE: Final = """
import sys, signal
from mooncake.store import MooncakeDistributedStore
def connected(segment):
    store = MooncakeDistributedStore()
    status = store.setup("127.0.0.1", "P2PHANDSHAKE", segment, 512 << 20, "tcp", "", sys.argv[1])
    assert status == 0, status
    return store
"""
MOONCAKE_NODE: Final = (
    MOONCAKE_STORE
    + """
store = connected(int(sys.argv[2]))
print("owns a segment", flush=True)
signal.pause()
"""
)
MOONCAKE_WRITER: Final = (
    MOONCAKE_STORE
    + f"""
store = connected(0)
keys = [f"{{sys.argv[2]}}/{{number}}" for number in range({WRITER_KEYS})]
values = [((key.encode() + b"/") * ({WRITER_VALUE_BYTES} // 4))[:{WRITER_VALUE_BYTES}] for key in keys]
print("puts", flush=True)
store.put_batch(keys, values)
"""
)


class Pool(ABC):
    """Context manager: what it started is gone at the end. rebuilds: a new master gets its keys back."""

    rebuilds = True
    writer_keys = WRITER_KEYS
    writer_value_bytes = WRITER_VALUE_BYTES

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._servers: list[Server] = []
        self._stopped: list[Server] = []
        self.master = self.start_master()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()
        for server in self._servers:
            server.kill()

    def launch(self, command: Sequence[str | Path], environment: dict[str, str] | None = None) -> Server:
        log = self._logs / f"{len(self._servers)}.log"
        self._servers.append(Server(command, log, environment))
        return self._servers[-1]

    def kill(self, server: Server) -> None:
        """SIGKILL, and gone."""
        server.kill()

    def stop(self, server: Server) -> None:
        server.send(signal.SIGSTOP)

    def restart_master(self) -> None:
        """kill -9, and the same on the same address; returns when it listens."""
        self.master.kill()
        self.master = self.start_master()

    @abstractmethod
    def start_master(self) -> Server:
        """On an address of its own, the same at each call."""

    @abstractmethod
    def start_node(self, segment_bytes: int) -> Server: ...

    @abstractmethod
    def start_writer(self, name: str) -> Server:
        """Says "puts" and puts a batch of WRITER_KEYS keys, each `name/number`."""

    @abstractmethod
    def connect(self) -> None: ...

    @abstractmethod
    def disconnect(self) -> None: ...

    @abstractmethod
    def put_many(self, keys: Sequence[str], values: Sequence[bytes], *, replace: bool = False) -> None:
        """All of them; raises otherwise."""

    @abstractmethod
    def not_stored(self, keys: Sequence[str], values: Sequence[bytes]) -> list[str]:
        """Puts; the keys of which neither this nor an earlier value is there now."""

    @abstractmethod
    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """None also for an error."""

    @abstractmethod
    def clear(self) -> None:
        """Removes everything."""

    @abstractmethod
    def expired_sessions(self) -> int:
        """How many clients and nodes the master has given up."""


class Ours(Pool):
    def __init__(self, logs: Path) -> None:
        self._port = free_port()
        self._store: Any = None
        super().__init__(logs)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start_master(self) -> Server:
        master = self.launch(
            (
                *(
                    sys.executable,
                    "-c",
                    OUR_MASTER,
                    f"--port={self._port}",
                    "--lane_port=0",
                    "--metrics_port=0",
                ),
                *("--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1", "--enable_metric_reporting=false"),
                f"--state_file={self._logs / 'reign.json'}",
            )
        )
        self._http = int(master.wait_for(MASTER_READY).group(3))
        return master

    def start_node(self, segment_bytes: int) -> Server:
        node = self.launch(
            (
                *(sys.executable, "-c", OUR_NODE, f"--master_server_address={self.address}"),
                *("--host=127.0.0.1", f"--global_segment_size={segment_bytes}"),
            )
        )
        node.wait_for(r"lending .* to the master at")
        return node

    def start_writer(self, name: str) -> Server:
        return self.launch((sys.executable, "-c", OUR_WRITER, self.address, name))

    def connect(self) -> None:
        from mooncake_client import Store

        self._store = Store(self.address, rpc_timeout_ms=CALL_TIMEOUT_MS)

    def disconnect(self) -> None:
        if self._store is not None:
            self._store.close()

    def put_many(self, keys: Sequence[str], values: Sequence[bytes], *, replace: bool = False) -> None:
        answers = self._store.put_many(keys, values, replace=replace)
        if answers != ["stored"] * len(keys):
            raise ServerError(f"put_many: {set(map(str, answers))}")

    def not_stored(self, keys: Sequence[str], values: Sequence[bytes]) -> list[str]:
        from mooncake_store.errors import StoreError

        try:
            answers = self._store.put_many(keys, values, timeout_ms=2_000)
        except StoreError:
            return list(keys)
        return [key for key, answer in zip(keys, answers, strict=True) if answer not in ("stored", "exists")]

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        from mooncake_store.errors import StoreError

        try:
            answers = self._store.get_many(keys)
        except StoreError:
            return [None] * len(keys)
        return [answer if isinstance(answer, bytes) else None for answer in answers]

    def clear(self) -> None:
        self._store.remove_many(list(self._store.keys()))

    def expired_sessions(self) -> int:
        with urlopen(f"http://127.0.0.1:{self._http}/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        names = ("master_sessions_expired_total ", "master_early_expiries_total ")
        return int(sum(float(line.split()[1]) for line in lines if line.startswith(names)))


class Mooncake(Pool):
    """Its clients read into one registered buffer; a miss or an error is a negative length."""

    rebuilds = False
    BUFFER_BYTES: Final = 512 << 20

    def __init__(self, logs: Path) -> None:
        self._port, self._http = free_port(), free_port()
        self._store: Any = None
        super().__init__(logs)

    def start_master(self) -> Server:
        master = self.launch(
            (
                Path(sys.executable).parent / "mooncake_master",
                *(f"--rpc_port={self._port}", f"--metrics_port={self._http}", "--logtostderr"),
            )
        )
        master.wait_for_port(self._port)
        return master

    def _python(self, program: str, *arguments: str) -> Server:
        quiet = {"GLOG_minloglevel": "2", "MC_LOG_LEVEL": "error"}
        return self.launch((sys.executable, "-c", program, f"127.0.0.1:{self._port}", *arguments), quiet)

    def start_node(self, segment_bytes: int) -> Server:
        node = self._python(MOONCAKE_NODE, str(max(segment_bytes, 16 << 20)))
        node.wait_for("owns a segment")
        return node

    def start_writer(self, name: str) -> Server:
        return self._python(MOONCAKE_WRITER, name)

    def connect(self) -> None:
        from mooncake.store import MooncakeDistributedStore

        self._store = MooncakeDistributedStore()
        status = self._store.setup(
            "127.0.0.1", "P2PHANDSHAKE", 0, self.BUFFER_BYTES, "tcp", "", f"127.0.0.1:{self._port}"
        )
        if status != 0:
            raise ServerError(f"MooncakeDistributedStore.setup answers {status}")
        self._memory = mmap.mmap(-1, self.BUFFER_BYTES)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._store.register_buffer(self._base, self.BUFFER_BYTES)

    def disconnect(self) -> None:
        if self._store is not None:
            self._store.close()

    def _place(self, lengths: Sequence[int]) -> list[int]:
        places, at = [], 0
        for length in lengths:
            places.append(at)
            at += length
        return places

    def _put(self, keys: Sequence[str], values: Sequence[bytes], call: Callable[..., list[int]]) -> list[int]:
        sizes = [len(value) for value in values]
        places = self._place(sizes)
        for at, value in zip(places, values, strict=True):
            self._memory[at : at + len(value)] = value
        return call(list(keys), [self._base + at for at in places], sizes)

    def put_many(self, keys: Sequence[str], values: Sequence[bytes], *, replace: bool = False) -> None:
        call = self._store.batch_upsert_from if replace else self._store.batch_put_from
        answers = self._put(keys, values, call)
        self._sizes = {
            **getattr(self, "_sizes", {}),
            **{k: len(v) for k, v in zip(keys, values, strict=True)},
        }
        if any(answers):
            raise ServerError(f"batch_put_from: {set(answers)}")

    def not_stored(self, keys: Sequence[str], values: Sequence[bytes]) -> list[str]:
        """A put of a key that is there answers 0 here, so what counts is whether it exists."""
        self._put(keys, values, self._store.batch_put_from)
        there = self._store.batch_is_exist(list(keys))
        return [key for key, answer in zip(keys, there, strict=True) if answer != 1]

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        sizes = [getattr(self, "_sizes", {}).get(key, WRITER_VALUE_BYTES) for key in keys]
        places = self._place(sizes)
        lengths = self._store.batch_get_into(list(keys), [self._base + at for at in places], sizes)
        return [
            self._memory[at : at + length] if length > 0 else None
            for at, length in zip(places, lengths, strict=True)
        ]

    def clear(self) -> None:
        self._store.remove_all()

    def expired_sessions(self) -> int:
        """Said by the master in its log."""
        return self._log_of(self.master).count("client_expired")

    def _log_of(self, server: Server) -> str:
        number = self._servers.index(server)
        return (self._logs / f"{number}.log").read_text(errors="replace")


POOLS: Final[dict[str, Callable[[Path], Pool]]] = {"ours": Ours, "mooncake": Mooncake}
