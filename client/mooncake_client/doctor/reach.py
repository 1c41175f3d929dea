"""How each node of a pool is reached from here: by a mapping of its memory, or over TCP and why.

Owns the words for it, which `mooncake status` uses as well. What is found out is found by dialling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from mooncake_client.client_config import ClientConfig
from mooncake_client.doctor.checks import Check, Verdict, all_within, printable
from mooncake_client.doctor.greeting import DATA_ROLE, greet
from mooncake_client.node_config import this_host_id
from mooncake_client.records import SegmentUse
from mooncake_store import _core
from mooncake_store.endpoints import Endpoint, parse_endpoint
from mooncake_store.errors import StoreError
from mooncake_store.units import format_size

NODES_MAX: Final = 256
"""Dialled at most; of a larger pool these say enough."""
DIAL_S: Final = 2.0
LOCAL_SHOWN: Final = 16
"""Nodes of one host that `mooncake status` tells of."""
TCP: Final = "tcp://"
SHARED_MEMORY: Final = "shm://"

_REMEDIES: Final = (
    ("shared_memory is off here", "unset MOONCAKE_SHARED_MEMORY here, or set it to auto"),
    (
        "the node lends no memory",
        "start the node with --shared_memory=auto (its default), and as new as this",
    ),
    ("the node is of another user", "run both as one user: who maps a node's memory reads all of it"),
    ("the node is on another host or", "give the containers the host's network (--network=host)"),
    ("its Unix socket", "see the node's log; to another tenant than default memory is never lent"),
)


@dataclass(frozen=True)
class Node:
    """A node by its addresses. is_local: on this host, as it says."""

    endpoint: str
    local: str
    segments: tuple[str, ...]
    is_local: bool


@dataclass(frozen=True)
class Way:
    """How one node is reached. why_unreachable: over TCP; empty where it is. why_not: it is not mapped."""

    node: Node
    software: str
    took_ms: float
    mapped_bytes: int
    why_unreachable: str
    why_not: str

    def words(self) -> str:
        """One line for people."""
        where = f"{self.node.endpoint} ({', '.join(self.node.segments[:3])})"
        if self.mapped_bytes:
            by = f"shared memory, {format_size(self.mapped_bytes)} mapped"
        elif self.node.is_local:
            by = f"TCP, although it is on this host: {self.why_not}"
        else:
            by = "TCP, it is on another host"
        if self.why_unreachable:
            by = f"nothing over TCP: {self.why_unreachable}" + (f"; {by}" if self.mapped_bytes else "")
        return f"{where}: {by}"


def nodes_of(segments: Sequence[SegmentUse], host_id: str = "") -> list[Node]:
    """The nodes behind segments, those of this host first."""
    here = host_id or this_host_id()
    named: dict[tuple[str, str], list[SegmentUse]] = {}
    for segment in segments:
        tcp = next((one.removeprefix(TCP) for one in segment.endpoints if one.startswith(TCP)), "")
        local = next((one for one in segment.endpoints if one.startswith(SHARED_MEMORY)), "")
        named.setdefault((tcp, local), []).append(segment)
    nodes = [
        Node(tcp, local, tuple(one.name for one in of_node), any(one.host_id == here for one in of_node))
        for (tcp, local), of_node in named.items()
    ]
    return sorted(nodes, key=lambda node: (not node.is_local, node.endpoint))


def ways_to(nodes: Sequence[Node], config: ClientConfig, seconds: float) -> list[Way]:
    """Dials each, several at a time; all within `seconds`. One that is not done by then is unreachable."""
    answers = all_within(seconds, [partial(_way, node, config) for node in nodes])
    return [
        answer if isinstance(answer, Way) else Way(node, "", 0.0, 0, str(answer), "not asked in time")
        for node, answer in zip(nodes, answers, strict=True)
    ]


def _way(node: Node, config: ClientConfig) -> Way:
    why_unreachable, software, took_ms = "", "", 0.0
    try:
        endpoint: Endpoint = parse_endpoint(node.endpoint, field=f"the address of {node.segments[0]}")
        greeting = greet(endpoint, DATA_ROLE, config.tenant, DIAL_S)
        software, took_ms = greeting.software, greeting.took_ms
    except StoreError as error:
        why_unreachable = str(error)
    mapped_bytes, why_not = 0, ""
    if node.is_local:
        try:
            mapped_bytes, why_not = _core.why_not_mapped(
                node.endpoint, node.local, config.tenant, config.shared_memory == "auto", int(DIAL_S * 1000)
            )
        except ValueError as error:
            why_not = str(error)
        if not mapped_bytes and not why_not:
            why_not = "the node answers by its Unix socket and lends no memory to this tenant"
    return Way(node, software, took_ms, mapped_bytes, why_unreachable, why_not)


def local_lines(segments: Sequence[SegmentUse], config: ClientConfig) -> Iterator[str]:
    """For `mooncake status`: a line for each node of this host, within DIAL_S or so."""
    local = [node for node in nodes_of(segments, config.host_id) if node.is_local][:LOCAL_SHOWN]
    for way in ways_to(local, config, 2 * DIAL_S + 1):
        yield f"node here: {printable(way.words())}"


def way_checks(ways: Sequence[Way]) -> Iterator[Check]:
    for way in ways:
        yield _check(way)


def _check(way: Way) -> Check:
    verdict: Verdict = "ok"
    remedy = ""
    if way.why_unreachable:
        verdict = "warn" if way.mapped_bytes else "fail"
        remedy = (
            "see that the node runs and its --data_port is open from here; --advertise_host sets the address"
        )
    elif way.node.is_local and not way.mapped_bytes:
        verdict = "warn"
        remedy = next((do for begin, do in _REMEDIES if way.why_not.startswith(begin)), "see the node's log")
    said = way.words()
    if way.software:
        said += f"; {way.software}, answers in {way.took_ms:.1f} ms"
    return Check("pool.node", verdict, said, remedy)
