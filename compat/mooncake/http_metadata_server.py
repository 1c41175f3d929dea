"""The metadata server; the command `mooncake_http_metadata_server` comes with mooncake-store itself."""

from mooncake_client.dropin.http_metadata_server import KVBootstrapServer, main

__all__ = ["KVBootstrapServer", "main"]

if __name__ == "__main__":
    raise SystemExit(main())
