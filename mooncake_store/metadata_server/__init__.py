"""Metadata servers: where programs of a cluster leave their addresses, and find those of others.

`server` is the HTTP one; `command` runs it alone (`mooncake_http_metadata_server`), the master inside itself.
`interface` is how every kind is asked, `opening` chooses one by its URL, and `publisher` keeps the entries of
one process there; `blocking` asks without a loop. Nothing is imported here: a node loads what it uses.
"""
