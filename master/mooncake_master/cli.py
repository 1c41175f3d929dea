"""`mooncake_master`: reads the flags, prints the effective configuration once, serves until told to stop."""

from __future__ import annotations

import asyncio
import logging

from mooncake_master.config import MASTER_FLAGS
from mooncake_store.endpoints import is_wildcard
from mooncake_store.errors import StoreError
from mooncake_store.logs import start_logging, tell_configuration

log = logging.getLogger("mooncake_store.master")


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 after SIGTERM or SIGINT, 1 when it could not start or run, 2 for a wrong flag."""
    loaded = MASTER_FLAGS.load_or_exit(argv)
    config = loaded.config
    start_logging(config.log_level, config.log_format)
    tell_configuration(log, loaded)
    if is_wildcard(config.metrics_host) or (is_wildcard(config.rpc_address) and not config.rpc_interface):
        log.warning(
            "ports listen on every interface, without authentication; --rpc_address, --metrics_host limit it"
        )
    try:
        # After the flags: --help must not wait for grpc and aiohttp, nor need them.
        from mooncake_master.daemon import serve
    except ModuleNotFoundError as error:
        log.error("%s is missing: pip install 'mooncake-store[master]'", error.name)
        return 1
    try:
        asyncio.run(serve(config))
    except StoreError as error:
        log.error("%s", error)
        return 1
    return 0
