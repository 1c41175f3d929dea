"""Which batch holds which fields of which sample."""

from mooncake_client.dropin.dataproto_catalog import DataProtoCatalog

__all__ = ["DataProtoCatalog"]
