"""Is the master there and well, and how is each node reached?

Owns the order: what names resolve to, who answers there, what it says of the pool, then the nodes.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from mooncake_client.client_config import ClientConfig
from mooncake_client.doctor.checks import Check, Late, checked, within
from mooncake_client.doctor.greeting import CLIENT_ROLE, greet
from mooncake_client.doctor.reach import NODES_MAX, nodes_of, way_checks, ways_to
from mooncake_client.records import SegmentUse
from mooncake_client.status_text import state_of, status_lines
from mooncake_store._version import __version__
from mooncake_store.endpoints import Endpoint, is_wildcard, parse_endpoint
from mooncake_store.errors import StoreError

ANSWER_S: Final = 3.0
"""Of a name server, a connection, a greeting."""
ASK_S: Final = 10.0
"""Of a session and two questions to the master."""
NODES_S: Final = 20.0
MASTERS_MAX: Final = 8
GRPC_REMEDY: Final = "see that mooncake_master runs there (--port), and that nothing between drops it"


def pool_checks(config: ClientConfig, name: str) -> list[Check]:
    """name: of the session that is opened for it."""
    found: list[Check] = []
    answering: Endpoint | None = None
    for endpoint in config.master_server_addr[:MASTERS_MAX]:
        checks = checked("master.address", 2 * ANSWER_S, partial(_address, endpoint), GRPC_REMEDY)
        if checks[-1].verdict == "ok" and answering is None:
            checks += checked("master.grpc", 2 * ANSWER_S, partial(_grpc, endpoint, config), GRPC_REMEDY)
            if any(check.name == "master.grpc" and check.verdict != "fail" for check in checks):
                answering = endpoint
        found += checks
    if answering is None:
        return found
    if len(config.master_server_addr) > 1:
        # Of several one is to answer, and it does.
        found = [replace(one, verdict="ok", remedy="") if one.verdict == "fail" else one for one in found]
    return found + _state(replace(config, name=name))


def _address(endpoint: Endpoint) -> Sequence[Check]:
    try:
        told = within(
            ANSWER_S, lambda: socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
        )
    except (OSError, Late, UnicodeError) as error:
        remedy = "see the name server, or name an address (--master, MOONCAKE_MASTER)"
        return [Check("master.address", "fail", f"{endpoint.host} is no known name: {error}", remedy)]
    addresses = ", ".join(dict.fromkeys(str(one[4][0]) for one in told))
    try:
        socket.create_connection((endpoint.host, endpoint.port), timeout=ANSWER_S).close()
    except OSError as error:
        said = f"{endpoint} ({addresses}) does not take connections: {error.strerror or error}"
        return [Check("master.address", "fail", said, GRPC_REMEDY)]
    return [Check("master.address", "ok", f"{endpoint} is {addresses} and takes connections")]


def _grpc(endpoint: Endpoint, config: ClientConfig) -> Sequence[Check]:
    """Who answers over gRPC, and whether the lane that it names does."""
    import grpc

    from mooncake_store.v1.master_pb2 import DiscoverRequest
    from mooncake_store.v1.master_pb2_grpc import MasterServiceStub

    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    try:
        with grpc.insecure_channel(str(endpoint), options=options) as channel:
            found = MasterServiceStub(channel).Discover(DiscoverRequest(), timeout=ANSWER_S)  # type: ignore[no-untyped-call]
    except grpc.RpcError as error:
        said = f"{endpoint} does not answer as a master: {error.code().name}: {error.details()}"
        return [Check("master.grpc", "fail", said, GRPC_REMEDY)]
    return [_version(endpoint, found), _lane(endpoint, found.lane_endpoint, config)]


def _version(endpoint: Endpoint, found: Any) -> Check:
    said = f"{endpoint} is a master of version {found.software}, epoch {found.epoch}"
    if found.deposed_by_epoch:
        remedy = "two masters run: stop the older one, and ask the one that reigns"
        return Check(
            "master.grpc", "warn", f"{said}; it stepped down for epoch {found.deposed_by_epoch}", remedy
        )
    if found.software != __version__:
        remedy = "fine while an upgrade is under way; in the end run one version everywhere"
        return Check("master.grpc", "warn", f"{said}; here is {__version__}", remedy)
    return Check("master.grpc", "ok", said)


def _lane(endpoint: Endpoint, told: str, config: ClientConfig) -> Check:
    try:
        host_and_port = f"0.0.0.0{told}" if told.startswith(":") else told
        lane = parse_endpoint(host_and_port, field="the lane's address")
        if is_wildcard(lane.host):  # the master tells a host only where it was given one
            lane = Endpoint(endpoint.host, lane.port)
        greeting = greet(lane, CLIENT_ROLE, config.tenant, ANSWER_S)
    except StoreError as error:
        remedy = "open the lane's port (mooncake_master --lane_port): over gRPC calls are many times slower"
        return Check("master.lane", "warn", str(error), remedy)
    return Check("master.lane", "ok", f"{lane} answers in {greeting.took_ms:.1f} ms")


def _state(config: ClientConfig) -> list[Check]:
    """What the master says of the pool, and then the nodes."""
    told: list[tuple[Mapping[str, int], list[SegmentUse]]] = []

    def ask() -> Sequence[Check]:
        from mooncake_client.store import Store

        with Store.from_config(config) as store:
            told.append((store.stats(), store.segments()))
        return _health(*told[0])

    remedy = "see the master's log; `mooncake events` says what happened lately"
    found = checked("master.health", ASK_S, ask, remedy)
    if not told:
        return found
    nodes = nodes_of(told[0][1], config.host_id)
    found += checked(
        "pool.node",
        NODES_S + 1,
        lambda: list(way_checks(ways_to(nodes[:NODES_MAX], config, NODES_S))),
    )
    if len(nodes) > NODES_MAX:
        found.append(Check("pool.nodes", "ok", f"{len(nodes)} nodes, of which {NODES_MAX} were dialled"))
    return found


def _health(stats: Mapping[str, int], segments: Sequence[SegmentUse]) -> Sequence[Check]:
    said = "; ".join(line.strip() for line in status_lines(stats, segments))
    if stats["deposed_by_epoch"]:
        remedy = "two masters run: stop the older one (docs/operations.md)"
        return [Check("master.health", "fail", said, remedy)]
    if not segments:
        return [Check("master.health", "warn", said, "start a node: puts have no room until one joins")]
    if state_of(stats) != "serving":
        return [Check("master.health", "warn", said, "wait: nodes tell what they hold within seconds")]
    if stats.get("suspected_node_count", 0):
        return [Check("master.health", "warn", said, "mooncake events names the nodes and who reports them")]
    return [Check("master.health", "ok", said)]
