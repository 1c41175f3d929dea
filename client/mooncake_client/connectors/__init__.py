"""What inference engines load to keep their KV blocks in the pool; docs/engines.md says which is for whom.

One file an engine, over `block_pool.py`, which knows none of them. A file of an engine imports that engine's
base class, so it is imported by the engine alone.
"""
