"""The master daemon: configuration, servicer, HTTP and metrics round a native master.

Never on the data path; must not be imported by a node or a client.
"""
