"""Where the masters are: a list of addresses as it stands, or what an election in etcd or redis says.

Owns how a client or node reads an election, once, when it starts; the answer is every master that runs, the
leader first. Standard library only: a node imports no client of either. Must not campaign.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import time
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, Final

from mooncake_store.endpoints import Endpoint, parse_endpoint, parse_endpoints
from mooncake_store.errors import InvalidArgument, Unavailable
from mooncake_store.metadata_server.address import ServerAddress, parse_address

CLUSTER_VARIABLE: Final = "MC_STORE_CLUSTER_ID"
CLUSTER_DEFAULT: Final = "mooncake_cluster"
PATIENCE_S: Final = 5.0
"""How long an election is asked that does not answer, or in which no master stands."""
RETRY_S: Final = 0.25
ANSWER_TIMEOUT_S: Final = 1.0  # of one server
ANSWER_BYTES_MAX: Final = 1 << 20
MASTERS_MAX: Final = 64

_FAILURES: Final = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, HTTPException)

Found = tuple[list[str], list[str]]  # the leader's address or none; those of all masters


def is_election(text: str) -> bool:
    """Whether it names a server to ask, not the masters themselves."""
    return text.strip().lower().startswith(("etcd://", "redis://"))


def parse_masters(
    text: str, *, field: str, default_port: int | None = None, patience_s: float = PATIENCE_S
) -> tuple[Endpoint, ...]:
    """`h:p,h:p` as it is written; `etcd://h:p[,h:p]` and `redis://[user:pass@]h:p[/db]` by asking there.

    Waits at most about `patience_s`. Raises InvalidArgument for what cannot be meant, and Unavailable, naming
    `field`, where no master is found.
    """
    if not is_election(text):
        return parse_endpoints(text, field=field, default_port=default_port)
    try:
        address = parse_address(text)
    except InvalidArgument as error:
        raise InvalidArgument(f"{field}: {error}") from None
    assert address is not None
    if address.kind == "etcd" and address.username:
        raise InvalidArgument(f"{field}: {address}: an election in etcd is read without a user")
    cluster = os.environ.get(CLUSTER_VARIABLE, "").strip() or CLUSTER_DEFAULT
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,128}", cluster):
        raise InvalidArgument(
            f"{CLUSTER_VARIABLE}={cluster[:64]!r} in the environment is no name of a cluster"
        )
    return _ask(address, f"mooncake-store/{cluster}/", field, patience_s)


def _ask(address: ServerAddress, prefix: str, field: str, patience_s: float) -> tuple[Endpoint, ...]:
    ask: Callable[[ServerAddress, Endpoint, str], Found] = _ask_etcd if address.kind == "etcd" else _ask_redis
    deadline = time.monotonic() + patience_s
    why = ""
    while True:
        for server in address.endpoints:
            try:
                leader, members = ask(address, server, prefix)
            except _FAILURES as error:
                why = f"{server}: {error}"
                continue
            if found := _endpoints([*leader, *members]):
                return found
            why = f"no master stands there under {prefix}"
        if time.monotonic() >= deadline:
            raise Unavailable(f"{field}: no master is found through {address} in {patience_s:g} s: {why}")
        time.sleep(RETRY_S)


def _endpoints(addresses: list[str]) -> tuple[Endpoint, ...]:
    found = []
    for text in addresses[:MASTERS_MAX]:
        try:
            found.append(parse_endpoint(text, field="an election's address"))
        except InvalidArgument:
            continue  # what somebody else wrote there
    return tuple(dict.fromkeys(found))


def _ask_etcd(address: ServerAddress, server: Endpoint, prefix: str) -> Found:
    import urllib.request  # most who read a list of masters never need it

    # Of `master_view` and `masters/...`, by etcd's JSON gateway.
    first = prefix.encode() + b"master"
    end = first[:-1] + bytes([first[-1] + 1])
    question = {"key": _text64(first), "range_end": _text64(end), "limit": MASTERS_MAX}
    request = urllib.request.Request(
        f"http://{server}/v3/kv/range",
        data=json.dumps(question).encode(),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # not by a proxy for the web
    with opener.open(request, timeout=ANSWER_TIMEOUT_S) as answer:
        told = json.loads(answer.read(ANSWER_BYTES_MAX))
    leader: list[str] = []
    members: list[str] = []
    for entry in told.get("kvs", []):
        key, value = (base64.b64decode(entry[name]).decode() for name in ("key", "value"))
        (leader if key == f"{prefix}master_view" else members).append(value)
    return leader, members


def _text64(key: bytes) -> str:
    return base64.b64encode(key).decode("ascii")


def _ask_redis(address: ServerAddress, server: Endpoint, prefix: str) -> Found:
    questions = []
    if address.password:
        questions.append(["AUTH", *([address.username] if address.username else []), address.password])
    if address.db:
        questions.append(["SELECT", str(address.db)])
    questions += [["GET", f"{prefix}master_view"], ["ZRANGE", f"{prefix}masters/", "0", str(MASTERS_MAX - 1)]]
    with socket.create_connection((server.host, server.port), ANSWER_TIMEOUT_S) as connection:
        connection.sendall(b"".join(map(_command, questions)))
        reply = _RedisReply(connection)
        *_, view, members = [reply.read() for _ in questions]
    leader = [view.split(" ")[0]] if isinstance(view, str) else []
    return leader, [member for member in members or [] if isinstance(member, str)]


def _command(words: list[str]) -> bytes:
    packed = [b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words]
    return b"*%d\r\n%s" % (len(words), b"".join(packed))


class _RedisReply:
    """Reads replies of redis's protocol, of at most ANSWER_BYTES_MAX together. ValueError: it is none."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + ANSWER_TIMEOUT_S
        self._bytes = b""
        self._taken = 0

    def read(self, *, depth: int = 0) -> Any:
        line = self._until(lambda held: held.find(b"\r\n") + 2)[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise ValueError(f"redis refuses: {rest[:200].decode('utf-8', 'replace')}")
        if kind == b"+":
            return rest.decode("utf-8", "replace")
        if not re.fullmatch(rb"-?[0-9]{1,9}", rest) or depth > 1:
            raise ValueError(f"no reply of redis: {line[:40]!r}")
        number = int(rest)
        if kind == b":":
            return number
        if kind == b"$":
            return None if number < 0 else self._text(number)
        if kind == b"*" and number <= MASTERS_MAX:
            return [self.read(depth=depth + 1) for _ in range(number)]
        raise ValueError(f"no reply of redis: {line[:40]!r}")

    def _text(self, length: int) -> str:
        return self._until(lambda held: length + 2 if len(held) >= length + 2 else 1)[:-2].decode()

    def _until(self, end: Callable[[bytes], int]) -> bytes:
        """Takes the bytes up to where `end` says; it says 1 while they have not come."""
        while (length := end(self._bytes)) == 1:
            self._connection.settimeout(max(0.001, self._deadline - time.monotonic()))
            came = self._connection.recv(64 << 10)
            self._taken += len(came)
            if not came or self._taken > ANSWER_BYTES_MAX or time.monotonic() > self._deadline:
                raise ValueError("redis closed the connection, or answers too much or too slowly")
            self._bytes += came
        taken, self._bytes = self._bytes[:length], self._bytes[length:]
        return taken
