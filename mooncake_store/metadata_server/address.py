"""What `metadata_server` may say: which kind of server, where, and who asks. Grammar only; no IO.

Refusals never show a password.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from mooncake_store.endpoints import Endpoint, is_wildcard, parse_endpoint, parse_endpoints
from mooncake_store.errors import InvalidArgument
from mooncake_store.masking import MASK

P2P_HANDSHAKE: Final = "P2PHANDSHAKE"
"""No server: processes are found without one."""
KINDS: Final = (
    "etcd://h:p[,h:p], h:p (etcd), redis://[user:password@]h:p[/db], http://h:p/metadata or P2PHANDSHAKE"
)
DEFAULT_PORTS: Final = {"etcd": 2379, "redis": 6379, "http": 80}
ENDPOINTS_MAX: Final = 16
DB_MAX: Final = 65_535
FIELD: Final = "metadata_server"


@dataclass(frozen=True)
class ServerAddress:
    """kind: etcd, redis or http. path: of http. db: of redis. `str()` hides the password."""

    kind: str
    endpoints: tuple[Endpoint, ...]
    username: str = ""
    password: str = field(default="", repr=False)
    db: int = 0
    path: str = ""

    def __str__(self) -> str:
        who = f"{self.username}:{MASK}@" if self.password else f"{self.username}@" if self.username else ""
        tail = f"/{self.db}" if self.kind == "redis" and self.db else self.path
        return f"{self.kind}://{who}{','.join(map(str, self.endpoints))}{tail}"


def parse_address(value: str) -> ServerAddress | None:
    """None for P2PHANDSHAKE. Raises InvalidArgument, naming the setting and, without secrets, its value."""
    text = value.strip()
    if text.upper() == P2P_HANDSHAKE:
        return None
    kind, separator, rest = text.partition("://")
    if not separator:
        kind, rest = "etcd", text
    kind = kind.lower()
    if kind not in DEFAULT_PORTS or not re.fullmatch(r"[!-~]+", rest):
        raise _refused(text, f"must be {KINDS}")
    who, at, where = rest.rpartition("@")
    if at and not (separator and kind != "http"):
        # Without a scheme printed configuration would show what stands before the @.
        raise _refused(text, "has a user, which only etcd:// and redis:// take")
    username, _, password = who.partition(":")
    found = {"etcd": _etcd, "redis": _redis, "http": _http}[kind](where, text)
    if not found.endpoints or len(found.endpoints) > ENDPOINTS_MAX:
        raise _refused(text, f"names {len(found.endpoints)} servers; 1 to {ENDPOINTS_MAX} may be")
    if any(is_wildcard(endpoint.host) for endpoint in found.endpoints):
        raise _refused(text, "means every interface and cannot be dialled")
    username, password, db = unquote(username), unquote(password), found.db
    if kind == "redis":
        username = username or os.environ.get("MC_REDIS_USERNAME", "")
        password = password or os.environ.get("MC_REDIS_PASSWORD", "")
    return ServerAddress(kind, found.endpoints, username, password, db, found.path)


def _etcd(where: str, text: str) -> ServerAddress:
    return ServerAddress("etcd", _endpoints("etcd", where.replace(";", ","), text))


def _redis(where: str, text: str) -> ServerAddress:
    where, _, db = where.partition("/")
    db = db or os.environ.get("MC_REDIS_DB_INDEX", "").strip() or "0"
    if not re.fullmatch("[0-9]{1,5}", db) or int(db) > DB_MAX:
        raise _refused(text, f"has the database {db[:32]!r}, which is not in 0..{DB_MAX}")
    return ServerAddress("redis", _endpoints("redis", where, text)[:1], db=int(db))


def _http(where: str, text: str) -> ServerAddress:
    where, _, path = where.partition("/")
    if "?" in path or "#" in path:
        raise _refused(text, "has a query, which the store adds itself")
    return ServerAddress("http", _endpoints("http", where, text)[:1], path=f"/{path or 'metadata'}")


def _endpoints(kind: str, where: str, text: str) -> tuple[Endpoint, ...]:
    try:
        if kind == "etcd":
            return parse_endpoints(where, field=FIELD, default_port=DEFAULT_PORTS[kind])
        return (parse_endpoint(where, field=FIELD, default_port=DEFAULT_PORTS[kind]),)
    except InvalidArgument as error:
        raise _refused(text, f"must be {KINDS}: {error}") from None


def _refused(text: str, why: str) -> InvalidArgument:
    shown = re.sub(r"(^|://).*@", rf"\1{MASK}@", text)
    return InvalidArgument(f"{FIELD} {shown[:256]!r} {why}")
