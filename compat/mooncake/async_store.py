"""The store whose methods are coroutines too."""

from mooncake_client.dropin.async_store import MooncakeDistributedStoreAsync

__all__ = ["MooncakeDistributedStoreAsync"]
