"""What a command does when whoever reads its output has enough, as `head` has: it ends without a word."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

BROKEN_PIPE_STATUS = 128 + signal.SIGPIPE
"""The exit status that a shell shows of a program ended by SIGPIPE, which Python ignores."""


@contextmanager
def quiet_broken_pipe() -> Iterator[None]:
    """Everything printed inside is flushed inside; a reader that went ends the program by SystemExit."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(BROKEN_PIPE_STATUS) from None
