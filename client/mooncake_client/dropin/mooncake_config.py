"""The settings of a drop-in store, from a call, a `mooncake.json` or the environment: one parser for all.

Owns names in every spelling that clients use, defaults and checks. A wrong value raises InvalidArgument,
which is a ValueError, naming the setting; so does an unknown name, with the nearest known one. Must not
connect.
"""

from __future__ import annotations

import difflib
import json
import logging
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from mooncake_store.endpoints import Endpoint, is_wildcard, parse_endpoint
from mooncake_store.errors import InvalidArgument
from mooncake_store.masking import mask_secrets
from mooncake_store.masters import is_election, parse_masters
from mooncake_store.metadata_server.address import parse_address
from mooncake_store.units import parse_size

log = logging.getLogger("mooncake_store.dropin")

DEFAULT_MASTER_PORT: Final = 50051
CONFIG_FILE_BYTES_MAX: Final = 1 << 20
CLIENT_PORT_MIN, CLIENT_PORT_MAX, CLIENT_PORT_TRIES = 12_300, 14_300, 20
"""Mooncake's: firewalls are opened for them. When none of those tried is free, any free port is taken."""

KNOWN_PROTOCOLS: Final = frozenset(
    [
        "tcp",
        "rdma",
        "efa",
        "nvmeof",
        "nvlink",
        "musa",
        "nvlink_intra",
        "hip",
        "barex",
        "cxl",
        "ascend",
        "ub",
        "ubshmem",
        "maca",
        "sunrise_link",
        "rpc_only",
    ]
)
_TRUE: Final = frozenset(("true", "1", "yes", "on", "enable"))
_FALSE: Final = frozenset(("false", "0", "no", "off", "disable"))

_SPELLINGS: Final[Mapping[str, str]] = {
    "device_name": "device_name",
    "device_names": "device_name",
    "rdma_devices": "device_name",
    "master_server_address": "master_server_address",
    "master_server_addr": "master_server_address",
    "enable_offload": "enable_ssd_offload",
}
"""Names that mean a field of another name."""

OF_CLIENTS: Final = frozenset(
    (
        # vLLM, its older releases included
        "mode",
        "prefill_url",
        "decode_url",
        "metadata_backend",
        "preferred_segment",
        "replica_num",
        # LMCache hands on all that its own settings hold
        "transfer_timeout",
        "storage_root_dir",
        "prefer_local_alloc",
        "mooncake_prefer_local_alloc",
        "save_chunk_meta",
        # SGLang
        "master_metrics_port",
        "check_server",
        "standalone_storage",
        "client_server_address",
        "enable_group_semantics",
        "extra_backend_tag",
        # Mooncake's dummy client; here a client needs no socket of another one
        "ipc_socket_path",
    )
)
"""Names that mean something to engines that use the store, and nothing to the store."""


@dataclass
class MooncakeConfig:
    """Checked settings. Sizes are bytes; device_name and local_buffer_size have no meaning here. `str()`
    hides passwords.

    metadata_server: where memory lent is told of, for programs that look there; P2PHANDSHAKE: nowhere.
    local_hostname: of this process, with or without a port; others dial it when memory is lent.
    global_segment_size: memory lent to the pool; 0: this process only reads and writes.
    protocol: what is not tcp is carried by tcp too, with a warning.
    control: the client's door to the master, as of `Store`; empty: MOONCAKE_CONTROL, else auto.
    shared_memory: with processes of this host, as of `Store`, both ways; empty: MOONCAKE_SHARED_MEMORY, else
        auto.
    """

    local_hostname: str
    metadata_server: str
    global_segment_size: int
    local_buffer_size: int
    protocol: str
    device_name: str
    master_server_address: str
    enable_ssd_offload: bool = False
    ssd_offload_path: str = ""
    tenant_id: str = "default"
    enable_client_http_server: bool = False
    client_http_port: int = 9300
    control: str = ""
    shared_memory: str = ""

    def __post_init__(self) -> None:
        for name in ("local_hostname", "metadata_server", "master_server_address"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise InvalidArgument(f"{name} is {value!r}; it must be set")
        for name in ("global_segment_size", "local_buffer_size"):
            setattr(self, name, parse_size(_plain(getattr(self, name)), field=name))
        if not isinstance(self.protocol, str) or not self.protocol.strip():
            raise InvalidArgument(f"protocol is {self.protocol!r}; tcp is what this store speaks")
        self.protocol = self.protocol.strip().lower()
        if self.protocol not in KNOWN_PROTOCOLS:
            raise InvalidArgument(
                f"protocol {self.protocol!r} is unknown; tcp is what this store speaks, in place of "
                f"{', '.join(sorted(KNOWN_PROTOCOLS - {'tcp'}))} too"
            )
        self.enable_ssd_offload = parse_bool(self.enable_ssd_offload, field="enable_ssd_offload")
        self.enable_client_http_server = parse_bool(
            self.enable_client_http_server, field="enable_client_http_server"
        )
        self.tenant_id = self.tenant_id or "default"
        self.ssd_offload_path = self.ssd_offload_path or ""
        port = str(self.client_http_port).strip()
        if not (port.isascii() and port.isdigit() and int(port[:6]) <= 65535):
            raise InvalidArgument(f"client_http_port {self.client_http_port!r} is not in 0..65535")
        self.client_http_port = int(port)
        self.local_endpoint()
        if not is_election(self.master_server_address):  # that is asked when it connects
            self.masters()
        parse_address(self.metadata_server)

    def __str__(self) -> str:
        return mask_secrets(repr(self))

    def local_endpoint(self) -> Endpoint:
        """Host and port of this process; port 0 where none was given."""
        endpoint = parse_endpoint(self.local_hostname, field="local_hostname", default_port=0)
        if is_wildcard(endpoint.host):
            raise InvalidArgument(
                f"local_hostname {self.local_hostname!r} means every interface; name one that others can dial"
            )
        return endpoint

    def masters(self) -> tuple[Endpoint, ...]:
        """The master, or several of which one is running."""
        field = "master_server_address"
        found = parse_masters(self.master_server_address, field=field, default_port=DEFAULT_MASTER_PORT)
        for endpoint in found:
            if is_wildcard(endpoint.host):
                raise InvalidArgument(f"{field} {endpoint} means every interface and cannot be dialled")
        return found

    @staticmethod
    def from_file(file_path: str) -> MooncakeConfig:
        """From a JSON file. Required: local_hostname, metadata_server, master_server_address."""
        return from_mapping(file_settings(file_path), FILE_DEFAULTS, where=file_path)

    @staticmethod
    def load_from_env() -> MooncakeConfig:
        """From the file that MOONCAKE_CONFIG_PATH names, else from MOONCAKE_MASTER and its kin."""
        return load_config("", {})


def load_config(path: str, overrides: Mapping[str, Any]) -> MooncakeConfig:
    """From a file, or as the environment says where `path` is empty; overrides (`-D`) win over either."""
    path = path or os.environ.get("MOONCAKE_CONFIG_PATH", "")
    settings = file_settings(path) if path else environment_settings()
    for name in overrides:
        wins = _SPELLINGS.get(name, name)
        settings = {key: value for key, value in settings.items() if _SPELLINGS.get(key, key) != wins}
    if not path and not any(
        _SPELLINGS.get(name, name) == "master_server_address" for name in [*settings, *overrides]
    ):
        raise InvalidArgument(
            "Neither the environment variable 'MOONCAKE_CONFIG_PATH' nor 'MOONCAKE_MASTER' is set."
            " The one names a file, the other a master (host:port)"
        )
    defaults = FILE_DEFAULTS if path else ENVIRONMENT_DEFAULTS
    return from_mapping(
        {**settings, **overrides},
        defaults,
        where=path or "the environment",
        elsewhere={name: f"-D {name}" for name in overrides},
    )


def file_settings(path: str) -> dict[str, Any]:
    """What a JSON file says, not yet checked."""
    with open(path, encoding="utf-8") as file:
        text = file.read(CONFIG_FILE_BYTES_MAX + 1)
    if len(text) > CONFIG_FILE_BYTES_MAX:
        raise InvalidArgument(f"{path} is larger than {CONFIG_FILE_BYTES_MAX} bytes")
    try:
        values = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise InvalidArgument(f"{path} holds a {type(values).__name__}, not an object of settings")
    return values


def environment_settings() -> dict[str, Any]:
    """What the environment says, not yet checked. A variable set to nothing is an empty setting."""
    return {name: os.environ[key] for key, name in _VARIABLES.items() if key in os.environ}


def client_ports() -> tuple[range, int]:
    """Ports of which a process whose local_hostname has none takes one, and how many are tried."""
    first = _number("MC_STORE_CLIENT_MIN_PORT", CLIENT_PORT_MIN, 1, 65535)
    last = _number("MC_STORE_CLIENT_MAX_PORT", CLIENT_PORT_MAX, first, 65535)
    return range(first, last + 1), _number("MC_STORE_CLIENT_SETUP_RETRIES", CLIENT_PORT_TRIES, 1, 1000)


def client_metrics_enabled() -> bool:
    """Whether MC_STORE_CLIENT_METRIC leaves the metrics of the client's own HTTP port on."""
    name = "MC_STORE_CLIENT_METRIC"
    return parse_bool(os.environ.get(name) or "1", field=name)


def _number(name: str, default: int, minimum: int, maximum: int) -> int:
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    number = int(text) if re.fullmatch("[0-9]{1,9}", text) else -1
    if not minimum <= number <= maximum:
        raise InvalidArgument(f"{name} {text!r} is not in {minimum}..{maximum}")
    return number


_VARIABLES: Final[Mapping[str, str]] = {
    "MOONCAKE_MASTER": "master_server_address",
    "LOCAL_HOSTNAME": "local_hostname",
    "MOONCAKE_LOCAL_HOSTNAME": "local_hostname",  # wins over the one above
    "MOONCAKE_TE_META_DATA_SERVER": "metadata_server",
    "MOONCAKE_GLOBAL_SEGMENT_SIZE": "global_segment_size",
    "MOONCAKE_LOCAL_BUFFER_SIZE": "local_buffer_size",
    "MOONCAKE_PROTOCOL": "protocol",
    "MOONCAKE_DEVICE": "device_name",
    "MOONCAKE_OFFLOAD_ENABLED": "enable_ssd_offload",
    "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH": "ssd_offload_path",
    "MOONCAKE_TENANT_ID": "tenant_id",
    "MOONCAKE_ENABLE_CLIENT_HTTP_SERVER": "enable_client_http_server",
    "MOONCAKE_CLIENT_HTTP_PORT": "client_http_port",
}

DEFAULT_GLOBAL_SEGMENT_SIZE: Final = 3_355_443_200
DEFAULT_LOCAL_BUFFER_SIZE: Final = 1_073_741_824
FILE_DEFAULTS: Final[Mapping[str, Any]] = {
    "global_segment_size": DEFAULT_GLOBAL_SEGMENT_SIZE,
    "local_buffer_size": DEFAULT_LOCAL_BUFFER_SIZE,
    "protocol": "tcp",
    "device_name": "",
}
ENVIRONMENT_DEFAULTS: Final[Mapping[str, Any]] = {
    **FILE_DEFAULTS,
    "local_hostname": "localhost",
    "metadata_server": "P2PHANDSHAKE",
}
DICT_DEFAULTS: Final[Mapping[str, Any]] = {
    "global_segment_size": 16 << 20,
    "local_buffer_size": 16 << 20,
    "protocol": "tcp",
    "device_name": "",
    "master_server_address": f"127.0.0.1:{DEFAULT_MASTER_PORT}",
}


def from_mapping(
    values: Mapping[str, Any],
    defaults: Mapping[str, Any],
    *,
    where: str,
    elsewhere: Mapping[str, str] = MappingProxyType({}),
) -> MooncakeConfig:
    """The settings that `values` names in any spelling; twice the same is once.

    where: they come from, for errors; elsewhere: those that come from another place, by name.
    """
    fields = MooncakeConfig.__dataclass_fields__
    given: dict[str, Any] = {}
    for name, value in values.items():
        field = _SPELLINGS.get(name, name)
        if field not in fields:
            if name in OF_CLIENTS:
                continue
            raise InvalidArgument(f"{elsewhere.get(name, where)}: unknown setting {name!r}{_nearest(name)}")
        if field in given and given[field] != value:
            raise InvalidArgument(
                f"{elsewhere.get(name, where)}: {field} is given twice: {given[field]!r} and {value!r}"
            )
        given[field] = value
    settings = {**defaults, **given}
    missing = [
        name
        for name in ("local_hostname", "metadata_server", "master_server_address")
        if name not in settings
    ]
    if missing:
        raise InvalidArgument(f"{where}: Missing required config field: {', '.join(missing)}")
    return MooncakeConfig(**settings)


def parse_bool(value: object, *, field: str) -> bool:
    """true, 1, yes, on, enable or their opposites, in any case."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE and value is not None:
        return False
    raise InvalidArgument(f"{field}: {value!r} is not a bool; write true or false")


def _parse_segment_size(value: Any) -> int:
    """Bytes of a size in any form; the name under which programs import it."""
    return parse_size(_plain(value), field="global_segment_size")


def _plain(size: Any) -> Any:
    """What counts as a whole number elsewhere (numpy's) counts here; of a bare fraction the whole part."""
    if isinstance(size, float):
        return int(size) if math.isfinite(size) else str(size)
    if isinstance(size, str):
        return re.sub(r"^\s*([0-9]+)\.[0-9]+\s*$", r"\1", size)
    return size if isinstance(size, bool) or not hasattr(size, "__index__") else size.__index__()


def _nearest(name: str) -> str:
    known = [*MooncakeConfig.__dataclass_fields__, *_SPELLINGS]
    found = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {found[0]!r}?" if found else ""
