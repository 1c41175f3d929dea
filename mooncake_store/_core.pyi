"""Native core of mooncake_store, built from native/bindings/."""

def version() -> str:
    """Version of the distribution this module was built from."""
