"""`mooncake_proxy`: reads the flags, prints the effective configuration once, serves until told to stop."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence

from mooncake_proxy.config import PROXY_FLAGS, Secrets
from mooncake_store.endpoints import is_wildcard
from mooncake_store.errors import InvalidArgument, StoreError
from mooncake_store.logs import start_logging, tell_configuration

log = logging.getLogger("mooncake_store.proxy")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 after SIGTERM or SIGINT, 1 when it could not start, 2 for a wrong flag or variable."""
    loaded = PROXY_FLAGS.load_or_exit(argv)
    config = loaded.config
    try:
        secrets = Secrets.of()
    except InvalidArgument as error:
        print(f"mooncake_proxy: {error}", file=sys.stderr)
        return 2
    start_logging(config.log_level, config.log_format)
    tell_configuration(log, loaded)
    for name, value in (
        ("ADMIN_API_KEY", secrets.admin_api_key),
        ("OPENAI_API_KEY", secrets.upstream_api_key),
    ):
        log.info("%s is %s", name, "set" if value else "not set")
    if is_wildcard(config.host):
        log.warning(
            "the port listens on every interface, without authentication of clients; --host limits it"
        )
    if not config.prefill:
        log.warning("no --prefill: the decode instances compute every prompt themselves")
    try:
        # After the flags: --help must not wait for aiohttp, nor need it.
        from mooncake_proxy.daemon import serve
    except ModuleNotFoundError as error:
        log.error("%s is missing: pip install 'mooncake-store[proxy]'", error.name)
        return 1
    try:
        asyncio.run(serve(config, secrets))
    except StoreError as error:
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
