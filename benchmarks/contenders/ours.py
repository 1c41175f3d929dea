"""This store: a master, one node that lends a segment, and `Store` in this process."""

from __future__ import annotations

import socket
import sys
from typing import Any, Final

from benchmarks.contender import Settings, WrongAnswer
from benchmarks.contenders import raw
from benchmarks.contenders.store import SAME_HOST, StoreContender, step_of
from benchmarks.work import OURS, Work
from mooncake_client import Store
from mooncake_client.dropin import MooncakeDistributedStore
from mooncake_store import _core

MASTER: Final = "from mooncake_master.cli import main; raise SystemExit(main())"
NODE: Final = "from mooncake_client.node_daemon import main; raise SystemExit(main())"
MASTER_READY: Final = r"serves gRPC on \S*?:(\d+), the lane on port (\d+)"
NODE_READY: Final = r"lending .* to the master at"
_CLIENT_ROLE: Final = 1
_HEADER_BYTES: Final = 24


class Ours(StoreContender):
    name = OURS
    verbs = frozenset(
        (
            *("exists", "get", "put", "read", "get_many", "put_many", "exists_many", "lookup_many"),
            *("pump", "step", "pack"),
            *SAME_HOST,
        )
    )

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._store: Store | None = None  # asks the master at each get, and moves bytes over TCP
        self._remembering: Store | None = None
        self._local: Store | None = None  # by the node's memory
        self._is_local = False
        self._lane_port = 0

    def start(self) -> str:
        python = (sys.executable, "-c")
        master = self.launch(
            "master",
            (
                *(*python, MASTER, "--port=0", "--lane_port=0", "--metrics_port=0"),
                *("--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1", "--enable_metric_reporting=false"),
            ),
        )
        grpc_port, lane_port = map(int, master.wait_for(MASTER_READY).groups())
        self._lane_port = lane_port
        node = self.launch(
            "node",
            (
                *(*python, NODE, f"--master_server_address=127.0.0.1:{grpc_port}", "--host=127.0.0.1"),
                f"--global_segment_size={self.settings.segment_bytes}",
            ),
        )
        node.wait_for(NODE_READY)
        address = f"127.0.0.1:{grpc_port}"
        self._store = Store(address, name="benchmark", location_cache="off", shared_memory="off")
        self._local = Store(address, name="same host", location_cache="off")
        self._store.register(self.memory.source)
        self._store.register(self.memory.target)
        self._remembering = Store(address, name="remembering", location_cache="on", shared_memory="off")
        self._remembering.register(self.memory.target)
        client = self._store._client()
        assert isinstance(client, _core.Client)  # a Store waits
        self._client = client
        self._dropin = MooncakeDistributedStore()
        settings = {"global_segment_size": 0, "master_server_addr": address, "shared_memory": "off"}
        if self._dropin.setup({"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", **settings}):
            raise WrongAnswer("the drop-in store does not start; the log says why")
        return _core.version()

    def stop(self) -> None:
        if self._store is not None:
            self._dropin.close()
        for store in (self._store, self._remembering, self._local):
            if store is not None:
                store.close()
        super().stop()

    def metadata_pids(self) -> list[int]:
        return [self.servers[0].pid]

    @property
    def store(self) -> Store:
        store = self._local if self._is_local else self._store
        assert store is not None, "not started"
        return store

    def prepare(self, work: Work) -> dict[str, float]:
        self._is_local = work.verb in SAME_HOST
        return super().prepare(work)

    def exists(self, key: str) -> None:
        if not self.store.exists(key):
            raise WrongAnswer(f"{key} is missing")

    def get(self, key: str, target: Any) -> None:
        size = self.store.get_into(key, target)
        if size != len(target):
            raise WrongAnswer(f"get of {len(target)} bytes: {size}")

    def view(self, key: str, size_bytes: int) -> None:
        view = self.store.get_view(key)
        if view is None or view.nbytes != size_bytes or not view.is_mapped:
            raise WrongAnswer(f"view of {key}: {view}")
        view.release()

    def put(self, key: str, source: Any) -> None:
        answer = self.store.put(key, source)
        if answer != "stored":
            raise WrongAnswer(f"put: {answer}")

    def exists_many(self, keys: list[str]) -> None:
        if not all(self.store.exists_many(keys)):
            raise WrongAnswer("exists: a key is missing")

    def lookup_many(self, keys: list[str]) -> None:
        if any(self._client.open(keys).statuses):
            raise WrongAnswer("lookup: a key is missing")

    def get_many(self, keys: list[str], targets: list[Any]) -> None:
        sizes = self.store.get_into_many(keys, targets)
        if any(size != len(target) for size, target in zip(sizes, targets, strict=True)):
            raise WrongAnswer(f"get of {len(keys)} keys: {sizes[:3]}...")

    def step(
        self, asked: list[str], keys: list[str], addresses: list[list[int]], sizes: list[list[int]]
    ) -> None:
        step_of(self._dropin, asked, keys, addresses, sizes)

    def pack(self, addresses: list[int], sizes: list[int]) -> None:
        _core.PackedMemory.of_addresses(addresses, sizes)

    def put_many(self, keys: list[str], sources: list[Any]) -> None:
        answers = self.store.put_many(keys, sources)
        if answers != ["stored"] * len(keys):
            raise WrongAnswer(f"put of {len(keys)} keys: {set(map(str, answers))}")

    def remove_many(self, keys: list[str]) -> None:
        answers = self.store.remove_many(keys)
        if not all(isinstance(answer, bool) for answer in answers):
            raise WrongAnswer(f"remove of {len(keys)} keys: {set(map(str, answers))}")

    def locate(self, key: str) -> str:
        assert self._remembering is not None, "not started"
        self._remembering._client().open([key])
        return key

    def read(self, located: Any, target: Any) -> None:
        assert self._remembering is not None, "not started"
        size = self._remembering.get_into(located, target)
        if size != len(target):
            raise WrongAnswer(f"get of {len(target)} bytes: {size}")

    def pump(self, work: Work, key: str, duration_s: float) -> int:
        verbs = _core.verb_numbers()
        sockets: list[socket.socket] = []
        try:
            for index in range(work.connections):
                lane = socket.create_connection(("127.0.0.1", self._lane_port))
                lane.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sockets.append(lane)
                process = b"benchmark" + index.to_bytes(7, "little")
                _ask(lane, verbs["hello"], _core.encode_hello(_CLIENT_ROLE, process))
                opened = _ask(
                    lane, verbs["open_session"], _core.encode_open_session(process, "pump", "", "default")
                )
                session = _core.parse_open_session_reply(opened)["session"]
                body = _core.encode_keys_request(session, [key.encode()])
                if _core.parse_statuses(_ask(lane, verbs["exists"], body)) != [0]:
                    raise WrongAnswer(f"{key} is missing")
            request = _core.encode_frame(verbs["exists"], body)
            answer_bytes = _HEADER_BYTES + len(_core.encode_statuses([0]))
            return raw.pump(sockets, request, answer_bytes, work.depth, duration_s)
        finally:
            for lane in sockets:
                lane.close()


def _ask(lane: socket.socket, verb: int, body: bytes) -> bytes:
    """One request on a fresh lane connection, and the body of its answer."""
    lane.sendall(_core.encode_frame(verb, body))
    header = _core.parse_frame_header(_exactly(lane, _HEADER_BYTES))
    answer = _exactly(lane, header["body_bytes"])
    if header["status"] != 0:
        raise WrongAnswer(f"verb {verb}: status {header['status']}, {answer!r}")
    return answer


def _exactly(lane: socket.socket, size: int) -> bytes:
    return lane.recv(size, socket.MSG_WAITALL) if size else b""
