"""Objects of many parts: bundles, structured objects, batches in stages."""

from mooncake_client.dropin.structured_object_store import *  # noqa: F403
from mooncake_client.dropin.structured_object_store import __all__ as __all__
