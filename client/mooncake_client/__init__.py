"""The client library and the node daemon.

Imports nothing by itself: the node daemon lives in this package and must start without numpy or grpc. What
the package exports is loaded on first use, by the module's `__getattr__`.
"""
