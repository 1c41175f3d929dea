"""Host and port as people write them, IPv6 included.

Owns the grammar, not name resolution: nothing here asks a name server. Standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from mooncake_store.errors import InvalidArgument

PORT_MAX = 65535
_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?")


@dataclass(frozen=True)
class Endpoint:
    """An address to listen on or to dial. `str()` puts IPv6 in brackets, so that it can be parsed again."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_host(value: str, *, field: str) -> str:
    """A host name, an IPv4 address, or an IPv6 address with or without brackets (returned without)."""
    text = value.strip()
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        if ":" in bare:
            IPv6Address(bare)
            return bare
        if bare is text and re.fullmatch(r"[0-9.]+", bare):
            IPv4Address(bare)
            return bare
    except ValueError as error:
        raise InvalidArgument(f"{field}: {value!r} is not an address: {error}") from error
    if bare is not text or len(bare) > 253 or not _NAME.fullmatch(bare):
        raise InvalidArgument(f"{field}: {value!r} is not a host name or an address")
    return bare


def parse_port(value: str | int, *, field: str, allow_zero: bool = False) -> int:
    """A port; 0, which means "any free one", only where that is allowed."""
    text = str(value).strip() if not isinstance(value, bool) else "bool"
    lowest = 0 if allow_zero else 1
    if not re.fullmatch(r"[0-9]{1,5}", text) or not lowest <= int(text) <= PORT_MAX:
        raise InvalidArgument(f"{field}: port {text[:32]!r} is not in {lowest}..{PORT_MAX}")
    return int(text)


def parse_endpoint(value: str, *, field: str, default_port: int | None = None) -> Endpoint:
    """`host:port`, `1.2.3.4:port` or `[v6]:port`; the port may be left out where there is a default."""
    text = value.strip()
    if "://" in text:
        scheme = text.split("://", 1)[0]
        raise InvalidArgument(f"{field}: {scheme}:// addresses are not supported; write host:port")
    if text.startswith("["):
        host, bracket, rest = text.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise InvalidArgument(f"{field}: {value!r} is not [address]:port")
        host, port_text = host + bracket, rest[1:] if rest else None
    elif text.count(":") > 1:
        raise InvalidArgument(
            f"{field}: {value!r} is ambiguous; put an IPv6 address in brackets: [::1]:50001"
        )
    else:
        host, colon, rest = text.partition(":")
        port_text = rest if colon else None
    if not host:
        raise InvalidArgument(f"{field}: {value!r} has no host; write host:port")
    if port_text is None:
        if default_port is None:
            raise InvalidArgument(f"{field}: {value!r} has no port; write host:port")
        return Endpoint(parse_host(host, field=field), default_port)
    return Endpoint(parse_host(host, field=field), parse_port(port_text, field=field))


def parse_endpoints(value: str, *, field: str, default_port: int | None = None) -> tuple[Endpoint, ...]:
    """A list `h:p,h:p`, in order; one that is named twice is kept once."""
    parts = value.split(",")
    if any(not part.strip() for part in parts):
        raise InvalidArgument(f"{field}: {value!r} has an empty entry; write host:port,host:port")
    found = (parse_endpoint(part, field=field, default_port=default_port) for part in parts)
    return tuple(dict.fromkeys(found))


def listening_host(host: str) -> str:
    """Where to listen for those who dial this host: loopback for loopback, else every interface of its
    family.
    """
    if host in _LOOPBACK or host.startswith("127."):
        return "127.0.0.1" if host == "localhost" else host
    return "::" if ":" in host else "0.0.0.0"


def is_wildcard(host: str) -> bool:
    """Whether the host means "every interface": good for listening, never for telling others."""
    if host in ("", "*"):
        return True
    try:
        return (IPv6Address(host) if ":" in host else IPv4Address(host)).is_unspecified
    except ValueError:
        return False
