"""`mooncake_client`: a node that lends memory to the pool until it is told to stop.

Owns the process: flags, signals, log lines, exit status. The node itself is native (`native/node/`); this
imports neither numpy nor pydantic nor grpc, and stays small. A master that is not there is not a failure: the
node waits for it, and comes back after every loss by itself.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mooncake_client.node_config import NODE_FLAGS, NodeConfig
from mooncake_client.published import publish_nodes
from mooncake_store import _core
from mooncake_store.endpoints import Endpoint, is_wildcard
from mooncake_store.errors import StoreError
from mooncake_store.logs import start_logging, tell_configuration
from mooncake_store.ports import cannot_listen

if TYPE_CHECKING:
    from mooncake_client.client_http import ClientHttp
    from mooncake_store.metadata_server.publisher import Publisher

log = logging.getLogger("mooncake_store.node")

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_LOOK_S: Final = 0.5  # between looks at the node, for the log


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 after SIGTERM or SIGINT, 1 when it could not start, 2 for a wrong flag.

    After a second one it is the signal's own.
    """
    loaded = NODE_FLAGS.load_or_exit(argv)
    config = loaded.config
    if config.global_segment_size == 0:
        print(
            "mooncake_client: --global_segment_size=0 lends no memory, and lending memory is all that this "
            "process does; give it a size such as 4GB (a program that only reads and writes needs no "
            "mooncake_client)",
            file=sys.stderr,
        )
        return 2
    start_logging(config.log_level, config.log_format)
    tell_configuration(log, loaded)
    if is_wildcard(config.host):
        log.warning("the data port listens on every interface, without authentication; --host limits it")
    # Blocked before any thread starts, so that all of them inherit it and the signal waits for serve().
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        node = start_node(config)
    except OSError as error:
        log.error("%s", cannot_listen(Endpoint(config.host, config.data_port), "--data_port", error))
        return 1
    except (RuntimeError, ValueError) as error:
        log.error("%s", error)
        return 1
    publisher: Publisher | None = None
    try:
        publisher = publish_nodes(config.metadata_server, lambda: [node], ttl_ms=config.metadata_ttl_ms)
        listeners = listen(node, config, {} if publisher is None else publisher.counters())
    except StoreError as error:
        log.error("%s", error)
        if publisher is not None:
            publisher.end()
        node.stop()
        return 1
    try:
        serve(node, config)
    finally:
        if publisher is not None:
            publisher.end()  # before the node: nobody should be sent to one that leaves
        end(node, config)
        for listener in listeners:
            listener.end()
    return 0


def listen(node: _core.Node, config: NodeConfig, published: Mapping[str, int]) -> list[ClientHttp]:
    """The HTTP ports that are asked for. Raises StoreError naming the one that is taken.

    published: the publisher's counters, which change.
    """
    wanted = [(config.port, "--port")] if config.port else []
    if config.enable_http_server:
        wanted.append((config.http_port, "--http_port"))
    if not wanted:
        return []
    from mooncake_client.client_http import ClientHttp

    listeners: list[ClientHttp] = []
    for port, flag in wanted:
        endpoint = Endpoint(config.host, port)
        try:
            listener = ClientHttp(
                endpoint,
                health=lambda: 0 if node.status()["mounted"] else 2,
                counters=lambda: {**node.status()["stats"], **published},
                masters=config.master_server_address,
            )
        except OSError as error:
            for started in listeners:
                started.end()
            raise cannot_listen(endpoint, flag, error) from error
        listeners.append(listener)
        log.info("HTTP on port %d (%s) is open", listener.port, flag)
    return listeners


def end(node: _core.Node, config: NodeConfig) -> None:
    """Leave the pool in order. A second stop signal ends the process at once, as if it were killed."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    was_mounted = node.status()["mounted"]
    node.stop(config.stop_handover_ms)
    if was_mounted:
        moved = node.status()["stats"]["handed_over_total"]
        log.info("has left the pool; other nodes took over %d values", moved)
    else:
        log.info("ends; it was in no pool")


def start_node(config: NodeConfig) -> _core.Node:
    """A node that listens and looks for its master. Raises what names the port or memory that it lacks."""
    node = _core.Node(
        [(config.segment_name, config.global_segment_size)],
        masters=[str(endpoint) for endpoint in config.master_server_address],
        data_host=config.host,
        data_port=config.data_port,
        advertised_host=config.advertised_host() or "",
        host_id=config.effective_host_id(),
        data_threads=config.data_thread_count(),
        memory_fault_threads=config.memory_fault_thread_count(),
        peer_bytes_max=config.peer_bytes_in_flight_max,
        connect_timeout_ms=config.connect_timeout_ms,
        request_timeout_ms=config.rpc_timeout_ms,
        stall_timeout_ms=config.send_stall_ms,
        shared_memory=config.shared_memory == "auto",
    )
    node.start()
    return node


def serve(node: _core.Node, config: NodeConfig) -> None:
    """Until a stop signal; tells the log when the master comes and goes."""
    masters = ",".join(map(str, config.master_server_address))
    log.info("data port %d is open", node.data_port)
    node.wait_mounted(config.connect_timeout_ms)
    was_mounted: bool | None = None
    told_unreachable = False
    told_memory_error = ""
    told_expulsions = 0
    while True:
        status = node.status()
        # Told apart from the loss of the connection: it may be back before anybody looked.
        if (expulsions := status["stats"]["expulsions_total"]) != told_expulsions:
            told_expulsions = expulsions
            log.warning(
                "the master at %s had expelled this node: what it held is gone, and it begins anew "
                "(its story: mooncake stat --node %s)",
                masters,
                status["segment_names"][0],
            )
        if status["mounted"] != was_mounted:
            _tell_mounted(status, masters, was_mounted)
            was_mounted = status["mounted"]
            told_unreachable = False
        # Once: it is tried again and again, and the answer stays the same.
        if status["unreachable"] and not told_unreachable:
            told_unreachable = True
            log.error(
                "not in the pool of the master at %s: %s; --advertise_host sets the address that a node "
                "tells others; trying on",
                masters,
                status["last_error"],
            )
        if status["memory_error"] != told_memory_error:
            told_memory_error = status["memory_error"]
            log.error("%s", told_memory_error)
        stop = signal.sigtimedwait(STOP_SIGNALS, _LOOK_S)
        # A process that was stopped (SIGSTOP) for longer than the wait gets here with a number that nothing
        # ever wrote: CPython 3.10 to 3.13 give up an interrupted wait so.
        if stop is not None and stop.si_signo in STOP_SIGNALS:
            log.info("%s: stopping", signal.Signals(stop.si_signo).name)
            return


def _tell_mounted(status: dict[str, Any], masters: str, was_mounted: bool | None) -> None:
    if status["mounted"]:
        log.info(
            "lending %s at %s to the master at %s, epoch %d",
            ", ".join(status["segment_names"]),
            status["data_endpoint"],
            masters,
            status["epoch"],
        )
    else:
        log.warning(
            "%s the master at %s (--master_server_address): %s; trying on",
            "waiting for" if was_mounted is None else "lost",
            masters,
            status["last_error"] or "no answer yet",
        )


if __name__ == "__main__":
    sys.exit(main())
