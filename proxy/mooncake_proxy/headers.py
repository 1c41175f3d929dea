"""Which headers go on, in both directions (RFC 9110, 7.6.1), and the request's id."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from multidict import CIMultiDict

REQUEST_ID: Final = "X-Request-Id"

_HOP_BY_HOP: Final = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    )
)
# Made anew for each connection, or meant for the proxy alone: its own key never leaves it.
_NOT_TO_INSTANCES: Final = _HOP_BY_HOP | {
    *("host", "content-length", "content-encoding", "expect", "x-api-key", "x-request-id"),
}
_NOT_TO_CLIENTS: Final = _HOP_BY_HOP | {"server", "date", "content-length", "x-request-id"}
_ID: Final = re.compile(r"[A-Za-z0-9._:@/+=-]{1,256}")


def request_id(headers: Mapping[str, str]) -> str:
    """The client's, where it is one; else a new one."""
    given = headers.get(REQUEST_ID, "")
    return given if _ID.fullmatch(given) else os.urandom(16).hex()


def to_instance(headers: CIMultiDict[str] | Mapping[str, str], identity: str, key: str) -> CIMultiDict[str]:
    """A client's headers for an instance. key: sent where the client sends no Authorization; may be empty."""
    sent = _without(headers, _NOT_TO_INSTANCES)
    sent[REQUEST_ID] = identity
    if key and "Authorization" not in sent:
        sent["Authorization"] = f"Bearer {key}"
    return sent


def to_client(headers: Mapping[str, str], identity: str) -> CIMultiDict[str]:
    """An instance's headers for the client. Its length is left to who writes the body."""
    sent = _without(headers, _NOT_TO_CLIENTS)
    sent[REQUEST_ID] = identity
    return sent


def _without(headers: Mapping[str, str], dropped: frozenset[str] | set[str]) -> CIMultiDict[str]:
    named = headers.get("Connection")
    if named is not None:  # whatever it names belongs to this connection only
        dropped = dropped | {token.strip().lower() for token in named.split(",")}
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped)
