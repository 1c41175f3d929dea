"""The settings of a `Store`; each declared once, checked once when it connects.

Owns names, defaults, checks, and the one place where a client hears the environment. Must not connect.
Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mooncake_client.node_config import DEFAULT_MASTER, NAME_BYTES_MAX
from mooncake_store.endpoints import Endpoint, is_wildcard, parse_endpoint
from mooncake_store.errors import InvalidArgument
from mooncake_store.flags import Kind, check_config, setting
from mooncake_store.masters import parse_masters

TENANT_BYTES_MAX = 255
RPC_TIMEOUT_VARIABLE = "MC_RPC_TIMEOUT_MS"
RPC_TIMEOUT_MS_MAX = 3_600_000
CONTROL_VARIABLE = "MOONCAKE_CONTROL"
CONTROLS = ("auto", "lane", "grpc")
SHARED_MEMORY_VARIABLE = "MOONCAKE_SHARED_MEMORY"
SHARED_MEMORY = ("auto", "off")
LOCATION_CACHE_VARIABLE = "MOONCAKE_LOCATION_CACHE"
SWITCH = ("on", "off")


@dataclass(frozen=True)
class ClientConfig:
    """Checked settings of one client. Times are in ms, sizes in bytes."""

    master_server_addr: tuple[Endpoint, ...] = setting(
        Kind.ENDPOINTS, (DEFAULT_MASTER,), "The master, or several of which one is running."
    )
    lane: str = setting(Kind.TEXT, "", "Instead of master_server_addr: the address of a master's lane.")
    tenant: str = setting(Kind.TEXT, "default", "Namespace of all keys of this client.")
    name: str = setting(Kind.TEXT, "", "Name of this client, for people.")
    host_id: str = setting(Kind.TEXT, "", "Names the machine; segments on the same one are preferred.")
    control: str = setting(
        Kind.TEXT,
        "auto",
        "Door to the master: lane; grpc alone; auto: the lane, or gRPC where only the lane is closed.",
        choices=CONTROLS,
    )
    shared_memory: str = setting(
        Kind.TEXT,
        "auto",
        "Read by a mapping from nodes of this host, user and tenant that lend it: auto; off: over TCP alone.",
        choices=SHARED_MEMORY,
    )
    checksum: str = setting(
        Kind.TEXT,
        "all",
        "Values that are verified: all, or only those read from disk.",
        choices=("all", "disk"),
    )
    connect_timeout_ms: int = setting(
        Kind.DURATION, 1_000, "Deadline for finding and reaching the master.", minimum=1, maximum=60_000
    )
    rpc_timeout_ms: int = setting(
        Kind.DURATION, 10_000, "Deadline of one call.", minimum=1, maximum=RPC_TIMEOUT_MS_MAX
    )
    connections_a_peer_max: int = setting(
        Kind.INT, 8, "Connections to one node.", unit="connections", minimum=1, maximum=64
    )
    bytes_in_flight_a_peer_max: int = setting(
        Kind.SIZE, 256 << 20, "Bytes under way to or from one node; more waits.", minimum=16 << 20
    )

    location_cache: str = setting(
        Kind.TEXT,
        "on",
        "Read a value where it was found within the last second, without asking the master: on or off.",
        choices=SWITCH,
    )
    location_cache_max: int = setting(
        Kind.INT, 16_384, "Keys that are remembered so.", unit="keys", minimum=1, maximum=1 << 20
    )

    def __post_init__(self) -> None:
        check_config(self)
        if not self.lane and not self.master_server_addr:
            raise InvalidArgument("master_server_addr is empty; name at least one host:port")
        for endpoint in self.master_server_addr:
            if is_wildcard(endpoint.host):
                raise InvalidArgument(
                    f"master_server_addr {endpoint} means every interface and cannot be dialled"
                )
        if self.lane:
            parse_endpoint(self.lane, field="lane")
            if self.control == "grpc":
                raise InvalidArgument(
                    f"control is 'grpc' and lane is {self.lane}; name the master's gRPC address instead"
                )
        for name, limit in (
            ("tenant", TENANT_BYTES_MAX),
            ("name", NAME_BYTES_MAX),
            ("host_id", NAME_BYTES_MAX),
        ):
            value = getattr(self, name)
            if len(value.encode("utf-8", "replace")) > limit or not value.isprintable():
                raise InvalidArgument(f"{name} {value[:64]!r} must be printable and at most {limit} bytes")
        if not self.tenant:
            raise InvalidArgument("tenant is empty; the tenant of everybody is 'default'")

    def where(self) -> str:
        """The address and its setting, for messages."""
        if self.lane:
            return f"{self.lane} (lane)"
        return f"{','.join(map(str, self.master_server_addr))} (master_server_addr)"


def client_config(
    master_server_addr: str | Sequence[str],
    settings: Mapping[str, Any],
    *,
    environment: Mapping[str, str] = os.environ,
) -> ClientConfig:
    """The configuration of a call to `Store(...)`: what is None takes the environment or the default."""
    addresses = [master_server_addr] if isinstance(master_server_addr, str) else list(master_server_addr)
    if not all(isinstance(address, str) for address in addresses):
        raise InvalidArgument(
            f"master_server_addr {master_server_addr!r} is not a host:port or a list of them"
        )
    given = {name: value for name, value in settings.items() if value is not None}
    heard = environment.get(RPC_TIMEOUT_VARIABLE, "").strip()
    if "rpc_timeout_ms" not in given and heard:
        given["rpc_timeout_ms"] = _heard_timeout(heard)
    control = environment.get(CONTROL_VARIABLE, "").strip()
    if "control" not in given and control and not given.get("lane"):
        given["control"] = _heard_choice(CONTROL_VARIABLE, control, CONTROLS)
    shared_memory = environment.get(SHARED_MEMORY_VARIABLE, "").strip()
    if "shared_memory" not in given and shared_memory:
        given["shared_memory"] = _heard_choice(SHARED_MEMORY_VARIABLE, shared_memory, SHARED_MEMORY)
    cache = environment.get(LOCATION_CACHE_VARIABLE, "").strip()
    if "location_cache" not in given and cache:
        given["location_cache"] = _heard_choice(LOCATION_CACHE_VARIABLE, cache, SWITCH)
    if not given.get("lane"):
        given["master_server_addr"] = parse_masters(",".join(addresses), field="master_server_addr")
    return ClientConfig(**given)


def embedded_config(settings: Mapping[str, Any]) -> ClientConfig:
    """The configuration of an embedded store, whose lane is known only when its master runs."""
    return client_config((), {**settings, "lane": "127.0.0.1:1"})


def _heard_choice(variable: str, text: str, choices: Sequence[str]) -> str:
    if text.lower() in choices:
        return text.lower()
    raise InvalidArgument(
        f"{variable}={text!r} in the environment is unknown; choose one of {', '.join(choices)}"
    )


def _heard_timeout(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= RPC_TIMEOUT_MS_MAX:
        return int(text)
    raise InvalidArgument(
        f"{RPC_TIMEOUT_VARIABLE}={text!r} in the environment is not a number of milliseconds in "
        f"1..{RPC_TIMEOUT_MS_MAX}"
    )
