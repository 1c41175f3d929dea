"""A whole daemon in this process, its event loop on a thread, for tests that speak to it from outside."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from mooncake_master.config import MASTER_FLAGS
from mooncake_master.daemon import Daemon

HANG_S = 120  # not a measure of speed: it only turns a hang into a failure
FREE_PORTS = ("--port=0", "--lane_port=0", "--metrics_port=0")
LOOPBACK = ("--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1")


class RunningMaster:
    """Context manager; the flags are those of `mooncake_master`."""

    def __init__(self, *flags: str) -> None:
        self.daemon = Daemon(MASTER_FLAGS.load([*FREE_PORTS, *LOOPBACK, *flags]).config)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="master")

    def _run(self, coroutine: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(HANG_S)

    def __enter__(self) -> Daemon:
        self._thread.start()
        try:
            self._run(self.daemon.start())
        except BaseException:
            self._end()
            raise
        return self.daemon

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._run(self.daemon.stop())
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_S)
        self._loop.close()
