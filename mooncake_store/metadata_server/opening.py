"""The metadata server that a URL names. Imports the library of its kind, and no other."""

from __future__ import annotations

from mooncake_store.errors import InvalidArgument
from mooncake_store.metadata_server.address import FIELD, ServerAddress, parse_address
from mooncake_store.metadata_server.interface import TIMEOUT_S, MetadataServer


def open_metadata_server(url: str, *, timeout_s: float = TIMEOUT_S) -> MetadataServer | None:
    """None for P2PHANDSHAKE. Nothing is dialled yet.

    Raises InvalidArgument, naming the setting: for a URL of no known form, and for a kind whose library is
    missing, with the extra that brings it.
    """
    address = parse_address(url)
    return None if address is None else _open(address, timeout_s)


def _open(address: ServerAddress, timeout_s: float) -> MetadataServer:
    try:
        if address.kind == "etcd":
            from mooncake_store.metadata_server.etcd_backend import EtcdServer

            return EtcdServer(address, timeout_s=timeout_s)
        if address.kind == "redis":
            from mooncake_store.metadata_server.redis_backend import RedisServer

            return RedisServer(address, timeout_s=timeout_s)
    except ModuleNotFoundError as error:
        raise InvalidArgument(
            f"{FIELD} {address}: {error.name} is missing: pip install 'mooncake-store[{address.kind}]'"
        ) from error
    from mooncake_store.metadata_server.http_backend import HttpServer

    return HttpServer(address, timeout_s=timeout_s)
