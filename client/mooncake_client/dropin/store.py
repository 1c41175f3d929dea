"""`MooncakeDistributedStore`: setup, health and end; everything else is in the parts that it joins."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Mapping
from typing import Any

from mooncake_client.client_http import masters_known_at
from mooncake_client.dropin.base import log
from mooncake_client.dropin.codes import INVALID_PARAMS, NOT_SUPPORTED, OK, error_code
from mooncake_client.dropin.host_memory import MooncakeHostMemAllocator
from mooncake_client.dropin.membership import Membership
from mooncake_client.dropin.mooncake_config import DICT_DEFAULTS, MooncakeConfig, from_mapping
from mooncake_client.dropin.parallel_tensors import ParallelTensors
from mooncake_client.dropin.pieces import PiecesOfValues
from mooncake_client.dropin.plain_values import PlainValues
from mooncake_client.dropin.pool_verbs import PoolVerbs
from mooncake_client.dropin.tensors import Tensors
from mooncake_client.dropin.tp_tensors import TpTensors
from mooncake_store.endpoints import parse_endpoint
from mooncake_store.errors import StoreError
from mooncake_store.units import parse_size

NOT_INITIALIZED = 1
DUMMY_PORT = 50052
"""Of a node that tells its master, where server_address has none: Mooncake's default."""


def _positional(
    local_hostname: str,
    metadata_server: str,
    global_segment_size: int,
    local_buffer_size: int,
    protocol: str,
    rdma_devices: str,
    master_server_addr: str,
    engine: object = None,
    enable_ssd_offload: bool = False,
    ssd_offload_path: str = "",
    tenant_id: str = "default",
    enable_client_http_server: bool = False,
    client_http_port: int = 9300,
    control: str = "",
    shared_memory: str = "",
) -> None:
    """The form of setup whose settings are arguments."""


_SETUP = inspect.signature(_positional)


class MooncakeDistributedStore(PlainValues, PiecesOfValues, Tensors, TpTensors, ParallelTensors, PoolVerbs):
    """Mooncake's store over this project's client; `docs/dropin.md` says what differs.

    Codes, not exceptions: 0 or more is success, below it one of Mooncake's numbers. Exceptions say that the
    call itself cannot be (a TypeError), or Ctrl-C.
    """

    def _start_parts(self) -> None:
        super()._start_parts()
        self._pool, self._pool_bytes_left = MooncakeHostMemAllocator(), 0

    def _forget_parts(self) -> None:
        super()._forget_parts()
        self._pool, self._pool_bytes_left = MooncakeHostMemAllocator(), 0

    def setup(self, *args: Any, **kwargs: Any) -> int:
        """Join the pool: seven settings or more, or one dict of them. 0, or why not, which is logged.

        global_segment_size: memory lent to the pool, 0: none; metadata_server is told of it. engine,
        local_buffer_size and rdma_devices have no meaning here. control, which is this store's own: by which
        door the master is asked, as of `Store`; so is shared_memory. Raises TypeError when a setting is
        missing among several.
        """
        given = args[0] if len(args) == 1 and not kwargs else kwargs.get("config") if not args else None
        if isinstance(given, Mapping) and len(kwargs) <= 1:
            settings, defaults = dict(given), DICT_DEFAULTS
        else:
            bound = _SETUP.bind(*args, **kwargs)
            bound.apply_defaults()
            settings, defaults = dict(bound.arguments), {}
            del settings["engine"]
        try:
            return self._join(from_mapping(settings, defaults, where="setup"))
        except StoreError as error:
            log.error("setup: %s", error)
            return error_code(error.code)

    def _join(self, config: MooncakeConfig) -> int:
        if config.enable_ssd_offload:
            log.error("setup: enable_ssd_offload is not built; leave it out to keep values in memory only")
            return NOT_SUPPORTED
        if config.protocol != "tcp":
            log.warning("setup: protocol %s is not built; tcp carries the data", config.protocol)
        membership = Membership(config)
        self.close()  # an earlier membership: the last setup counts
        self._membership = membership
        # Also at the interpreter's exit, while native threads can still end in order.
        self._finalizer = weakref.finalize(self, membership.end)
        log.info("setup: %s", config)
        return OK

    def setup_dummy(self, mem_pool_size: int, local_buffer_size: int, server_address: str) -> int:
        """Join the pool of which a node tells, whose `--port` server_address is; no memory is lent.

        mem_pool_size: bytes that alloc_from_mem_pool may hand out.
        """
        settings = {
            "local_hostname": "localhost",
            "metadata_server": "P2PHANDSHAKE",
            "global_segment_size": 0,
            "local_buffer_size": local_buffer_size,
        }
        try:
            pool_bytes = parse_size(mem_pool_size, field="mem_pool_size")
            node = parse_endpoint(server_address, field="server_address", default_port=DUMMY_PORT)
            settings["master_server_address"] = ",".join(masters_known_at(node))
            code = self._join(from_mapping(settings, DICT_DEFAULTS, where="setup_dummy"))
        except StoreError as error:
            log.error("setup_dummy: %s", error)
            return error_code(error.code)
        self._pool_bytes_left = pool_bytes if code == OK else 0
        return code

    def init_all(self, arg0: str, arg1: str, arg2: int, /) -> int:
        """-600: what setup replaced long ago."""
        return INVALID_PARAMS

    def close(self) -> int:
        """Leave the pool; values on memory lent here go with it. Calls of other threads end. Idempotent."""
        membership, self._membership = self._membership, None
        if membership is not None:
            self._finalizer()
            with self._lock:
                self._forget_parts()
        return OK

    def health_check(self) -> int:
        """0 healthy, 1 not set up or closed, 2 the master did not answer the last heartbeat."""
        membership = self._membership
        return NOT_INITIALIZED if membership is None else membership.health()

    def get_hostname(self) -> str:
        """The name of the segment lent at setup, by which others can prefer it; else local_hostname."""
        membership = self._membership
        return "" if membership is None else membership.hostname

    def alloc_from_mem_pool(self, arg0: int, /) -> int:
        """The address of so many bytes, as long as the store has joined; 0: there are not as many.

        Only after setup_dummy is there such a pool.
        """
        with self._lock:
            if not 0 < arg0 <= self._pool_bytes_left:
                return 0
            self._pool_bytes_left -= arg0
            return self._pool.alloc(arg0)

    def get_offload_rpc_read_count(self) -> int:
        """0: nothing is read from another client's disk."""
        return 0

    def _get_pyclient_capsule(self) -> object:
        """For extensions that are compiled against Mooncake's C++ client: there is none."""
        raise RuntimeError("there is no PyClient of Mooncake's in this process")


MooncakeDistributedStore.setup.__signature__ = _SETUP.replace(  # type: ignore[attr-defined]
    parameters=[
        inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        *_SETUP.parameters.values(),
    ],
    return_annotation="int",
)
