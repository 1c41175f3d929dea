"""The REST server; `mc_store_rest_server` runs it."""

from mooncake_client.dropin.store_service import MooncakeStoreService, _shm_name_to_path
from mooncake_client.dropin.store_service import main as sync_main

__all__ = ["MooncakeStoreService", "_shm_name_to_path", "sync_main"]

if __name__ == "__main__":
    raise SystemExit(sync_main())
