"""`mooncake_http_metadata_server`: the HTTP metadata server as a process of its own.

Owns flags, signals, log lines and exit status.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from mooncake_store._version import __version__
from mooncake_store.endpoints import Endpoint, is_wildcard
from mooncake_store.errors import StoreError
from mooncake_store.flags import GLOG_FLAGS, FlagTable, Kind, check_config, setting
from mooncake_store.logs import FORMATS, LEVELS, start_logging, tell_configuration
from mooncake_store.metadata_server.entries import BYTES_MAX, ENTRIES_MAX, VALUE_BYTES_MAX, Entries

log = logging.getLogger("mooncake_store.metadata_server")


@dataclass(frozen=True)
class MetadataServerConfig:
    """Checked settings. Sizes are bytes."""

    config_path: str = setting(Kind.TEXT, "", "JSON or YAML file with the same names; flags win over it.")
    log_level: str = setting(Kind.TEXT, "info", "How much is logged to stderr.", choices=LEVELS)
    log_format: str = setting(
        Kind.TEXT, "text", "How: lines for people, or one JSON object a line.", choices=FORMATS
    )
    host: str = setting(Kind.HOST, "0.0.0.0", "Address on which HTTP listens.")
    port: int = setting(Kind.PORT, 8080, "Port for HTTP; 0 takes any free one.", minimum=0)
    entries_max: int = setting(
        Kind.INT, ENTRIES_MAX, "Entries held; beyond them a new one is answered 507.", minimum=1
    )
    bytes_max: int = setting(Kind.SIZE, BYTES_MAX, "Bytes of keys and values held.", minimum=1024)
    value_bytes_max: int = setting(
        Kind.SIZE, VALUE_BYTES_MAX, "Bytes of one value; a longer one is answered 413.", minimum=1
    )

    def __post_init__(self) -> None:
        check_config(self)


METADATA_SERVER_FLAGS = FlagTable(
    "mooncake_http_metadata_server",
    "Holds addresses by key for the programs of a cluster, over HTTP.",
    MetadataServerConfig,
    GLOG_FLAGS,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 after SIGTERM or SIGINT, 1 when it could not start, 2 for a wrong flag."""
    loaded = METADATA_SERVER_FLAGS.load_or_exit(argv)
    config = loaded.config
    start_logging(config.log_level, config.log_format)
    tell_configuration(log, loaded)
    if is_wildcard(config.host):
        log.warning("the port listens on every interface, without authentication; --host limits it")
    try:
        asyncio.run(_serve(config))
    except ModuleNotFoundError as error:
        log.error("%s is missing: pip install 'mooncake-store[master]'", error.name)
        return 1
    except StoreError as error:
        log.error("%s", error)
        return 1
    return 0


async def _serve(config: MetadataServerConfig) -> None:
    # After the flags: --help must not need aiohttp.
    from mooncake_store.metadata_server.server import HttpMetadataServer

    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    entries = Entries(entries_max=config.entries_max, bytes_max=config.bytes_max)
    server = HttpMetadataServer(entries, value_bytes_max=config.value_bytes_max)
    await server.start(Endpoint(config.host, config.port), "--port")
    log.info("mooncake_http_metadata_server %s serves on %s", __version__, Endpoint(config.host, server.port))
    try:
        await stopping.wait()
    finally:
        log.info("stopping")
        await server.stop()


if __name__ == "__main__":
    sys.exit(main())
