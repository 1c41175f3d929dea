"""What of an HTTP server's log is worth a traceback. Needs aiohttp."""

from __future__ import annotations

import logging

from aiohttp.http import HttpProcessingError


def is_our_fault(record: logging.LogRecord) -> bool:
    """A filter for aiohttp's log: what a peer sent wrong is answered 400, not worth a traceback each time."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)
