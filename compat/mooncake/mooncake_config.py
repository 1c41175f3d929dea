"""`MooncakeConfig`, from a file or the environment."""

from mooncake_client.dropin.mooncake_config import (
    DEFAULT_GLOBAL_SEGMENT_SIZE,
    DEFAULT_LOCAL_BUFFER_SIZE,
    MooncakeConfig,
    _parse_segment_size,
)

__all__ = [
    "DEFAULT_GLOBAL_SEGMENT_SIZE",
    "DEFAULT_LOCAL_BUFFER_SIZE",
    "MooncakeConfig",
    "_parse_segment_size",
]
