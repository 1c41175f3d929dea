"""What `TransferEngine.initialize` starts: a native engine on a port of its own, and how it finds others.

Owns the settings, from the call and the environment, and their checks. Must not know transfers.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import re
from dataclasses import dataclass
from typing import Final

from mooncake_client.dropin.mooncake_config import KNOWN_PROTOCOLS
from mooncake_client.dropin.transfer_peers import Peers, ServedPeers, peers_of
from mooncake_store import _core
from mooncake_store.endpoints import Endpoint, is_wildcard, listening_host, parse_endpoint
from mooncake_store.errors import InvalidArgument, StoreError

log = logging.getLogger("mooncake_store.dropin")

RPC_PORTS: Final = (15_000, 17_000)
"""Where Mooncake's engines listen, so that firewalls that let them through let this through."""
PORT_TRIES_MAX: Final = 64
TIMEOUT_S: Final = (5, 30, 86_400)
"""MC_TRANSFER_TIMEOUT: least, default and most, in seconds."""
STALL_S_MAX: Final = 10
_OF_OTHER_HARDWARE: Final = frozenset(("nvlink", "nvlink_intra", "hip"))
"""Protocols that only a build for that hardware takes; the others are carried by TCP."""


class InnerTransferEngine:
    """What `get_engine` gives: something to hand to `store.setup(engine=...)`, which has no use for it."""

    def __init__(self, engine: _core.TransferEngine) -> None:
        self._engine = engine


@dataclass(frozen=True)
class Running:
    """An engine from initialize on."""

    settings: tuple[str, str, str, str]
    engine: _core.TransferEngine
    peers: Peers
    inner: InnerTransferEngine


def start(settings: tuple[str, str, str, str]) -> Running:
    """Raises InvalidArgument, Unavailable or OSError, naming the setting; then nothing is left behind."""
    local_hostname, metadata_server, protocol, _ = settings
    endpoint = _local_endpoint(local_hostname)
    _check_protocol(protocol)
    peers = peers_of(metadata_server, local_hostname, endpoint.host)
    if is_wildcard(endpoint.host) and isinstance(peers, ServedPeers):
        raise InvalidArgument(
            f"local_hostname {local_hostname!r} means every interface; name one that others can dial"
        )
    least_s, default_s, most_s = TIMEOUT_S
    timeout_s = _setting("MC_TRANSFER_TIMEOUT", default_s, least_s, most_s)
    host = os.environ.get("MC_TCP_BIND_ADDRESS", "") or listening_host(endpoint.host)
    if is_wildcard(host):
        log.warning(
            "listening on every interface (MC_TCP_BIND_ADDRESS names one): whoever reaches the port may read "
            "and write the memory that is registered"
        )
    engine = _listen(host, timeout_ms=timeout_s * 1000)
    try:
        peers.announce(engine.port)
    except StoreError:
        engine.stop()
        raise
    return Running(settings, engine, peers, InnerTransferEngine(engine))


def end(engine: _core.TransferEngine, peers: Peers) -> None:
    if not engine.is_stopped:  # as it is in a fork's child
        peers.withdraw()
        engine.stop()


def _local_endpoint(local_hostname: str) -> Endpoint:
    bare = local_hostname.strip()
    if bare.count(":") > 1 and not bare.startswith("["):
        bare = f"[{bare}]"
    return parse_endpoint(bare.removesuffix(":0"), field="local_hostname", default_port=0)


def _check_protocol(protocol: str) -> None:
    name = protocol.strip().lower()
    if name in _OF_OTHER_HARDWARE:
        raise InvalidArgument(f"protocol {protocol!r} needs hardware that this build does not serve; use tcp")
    if name not in ("tcp", ""):
        known = "" if name in KNOWN_PROTOCOLS else ", which is not one that is known"
        log.warning("protocol %r%s: tcp carries the data", protocol, known)


def _setting(name: str, default: int, least: int, most: int) -> int:
    """A whole number of the environment. Raises InvalidArgument, naming it; below the least it is that."""
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) > most:
        raise InvalidArgument(f"{name} is {text!r}; it must be a whole number up to {most}")
    return max(least, int(text))


def _listen(host: str, *, timeout_ms: int) -> _core.TransferEngine:
    """On a free port of MC_MIN_RPC_PORT to MC_MAX_RPC_PORT. Raises InvalidArgument or OSError."""
    first = _setting("MC_MIN_RPC_PORT", RPC_PORTS[0], 1, 65_535)
    last = _setting("MC_MAX_RPC_PORT", max(first, RPC_PORTS[1]), 1, 65_535)
    if last < first:
        raise InvalidArgument(f"MC_MIN_RPC_PORT is {first}, above MC_MAX_RPC_PORT, {last}")
    cores = len(os.sched_getaffinity(0))
    ports = random.sample(range(first, last + 1), min(PORT_TRIES_MAX, last - first + 1))
    for port in ports:
        try:
            return _core.TransferEngine(
                host,
                port,
                threads=min(4, max(2, cores)),
                transfer_timeout_ms=timeout_ms,
                stall_timeout_ms=min(timeout_ms, STALL_S_MAX * 1000),
            )
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            if port == ports[-1]:
                raise OSError(
                    error.errno,
                    f"no free port in MC_MIN_RPC_PORT..MC_MAX_RPC_PORT ({first}..{last}) "
                    f"was found in {len(ports)} tries: {error}",
                ) from error
    raise AssertionError("there is always a port to try")
