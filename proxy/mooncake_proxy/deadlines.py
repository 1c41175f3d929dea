"""`timeout(seconds)`: an async context manager that ends what it holds with `asyncio.TimeoutError`."""

import sys

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout  # aiohttp depends on it there

__all__ = ["timeout"]
