"""Generated from proto/mooncake_store/v1 by `make proto`; not edited by hand."""
