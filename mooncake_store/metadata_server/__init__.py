"""Metadata servers: where programs of a cluster leave their addresses, and find those of others.

`server` is the HTTP one; `command` runs it alone (`mooncake_http_metadata_server`), the master inside itself.
"""
