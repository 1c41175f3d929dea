"""`MooncakeConfig`, from a file or the environment."""

from mooncake_client.dropin.mooncake_config import MooncakeConfig

__all__ = ["MooncakeConfig"]
