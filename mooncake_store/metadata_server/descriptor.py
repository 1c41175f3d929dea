"""What a process leaves at a metadata server of itself, in Mooncake's keys and forms, and how it is read.

Values come from the network: they are checked before anything is dialled.
"""

from __future__ import annotations

import json
import os
import re
from typing import Final

from mooncake_store.endpoints import Endpoint, parse_host, parse_port
from mooncake_store.errors import InvalidArgument, Unavailable
from mooncake_store.metadata_server.interface import MetadataServer

CLUSTER_VARIABLE: Final = "MC_METADATA_CLUSTER_ID"
TCP_PROTO_VERSION: Final = 0
"""None of Mooncake's: its clients must not take the data port for one of theirs."""


def key_of(kind: str, name: str) -> str:
    """kind: rpc_meta or ram. Below MC_METADATA_CLUSTER_ID where that is set."""
    cluster = os.environ.get(CLUSTER_VARIABLE, "").strip("/")
    if not re.fullmatch(r"[A-Za-z0-9._-]*", cluster):
        raise InvalidArgument(
            f"{CLUSTER_VARIABLE} {cluster[:64]!r} may hold letters, digits, '.', '_' and '-'"
        )
    return "/".join(part for part in ("mooncake", cluster, kind, name) if part)


def address_value(endpoint: Endpoint) -> bytes:
    """What stands under `rpc_meta`."""
    return json.dumps({"ip_or_host_name": endpoint.host, "rpc_port": endpoint.port}).encode()


def parse_address_value(value: bytes, *, name: str) -> Endpoint:
    """Raises Unavailable for what is no address; `name` is whose it should be."""
    try:
        told = json.loads(value)
        host, port = told["ip_or_host_name"], told["rpc_port"]
        if not isinstance(host, str) or not isinstance(port, int):
            raise TypeError("not a host and a port")
        return Endpoint(parse_host(host, field="ip_or_host_name"), parse_port(port, field="rpc_port"))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Unavailable(
            f"the metadata server's address of {name!r} is no address: {value[:200]!r}"
        ) from error


def segment_entries(segments: dict[str, int], endpoint: Endpoint, timestamp: str) -> dict[str, bytes]:
    """By key, what a node tells of its segments (bytes by name), which are served at one endpoint.

    timestamp: the same as long as the process lives, so that what it tells stays the same.
    """
    entries = {}
    for name, size in segments.items():
        descriptor = {
            "name": name,
            "protocol": "tcp",
            "tcp_data_host": endpoint.host,
            "tcp_data_port": endpoint.port,
            "tcp_proto_version": TCP_PROTO_VERSION,
            "rdma_server_name": "",
            # A node's addresses are its own: values are asked for by id.
            "buffers": [{"name": "cpu:0", "addr": 0, "length": size}],
            "timestamp": timestamp,
        }
        entries[key_of("rpc_meta", name)] = address_value(endpoint)
        entries[key_of("ram", name)] = json.dumps(descriptor).encode()
    return entries


async def find_endpoint(server: MetadataServer, name: str) -> Endpoint | None:
    """Where the process or segment of a name is reached; None where the server knows none."""
    value = await server.get(key_of("rpc_meta", name))
    return None if value is None else parse_address_value(value, name=name)
