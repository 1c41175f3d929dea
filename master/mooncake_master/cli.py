"""`mooncake_master`: reads the flags, prints the effective configuration once, serves until told to stop."""

from __future__ import annotations

import asyncio
import logging
import sys

from mooncake_master.config import MASTER_FLAGS
from mooncake_store.endpoints import is_wildcard
from mooncake_store.errors import StoreError


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 after SIGTERM or SIGINT, 1 when it could not start or run, 2 for a wrong flag."""
    loaded = MASTER_FLAGS.load_or_exit(argv)
    logging.basicConfig(
        stream=sys.stderr,
        level=loaded.config.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    log = logging.getLogger("mooncake_store.master")
    for warning in loaded.warnings:
        log.warning("%s", warning)
    log.info("effective configuration:\n  %s", "\n  ".join(loaded.effective()))
    config = loaded.config
    if is_wildcard(config.metrics_host) or (is_wildcard(config.rpc_address) and not config.rpc_interface):
        log.warning(
            "ports listen on every interface, without authentication; --rpc_address, --metrics_host limit it"
        )
    from mooncake_master.daemon import serve  # after the flags: --help must not wait for grpc and aiohttp

    try:
        asyncio.run(serve(loaded.config))
    except StoreError as error:
        print(f"mooncake_master: {error}", file=sys.stderr)
        return 1
    return 0
