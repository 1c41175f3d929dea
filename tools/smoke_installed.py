"""An installation as its user meets it: `--help`, `--version`, a master, a node, one put and one get.

Run by the Python of the installation, from a folder other than the checkout. Prints seconds as JSON, of which
none decides anything; every wait is bounded only to turn a hang into a failure. Standard library and
mooncake_client only.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

HANG_S = 120.0
COMMANDS = ("mooncake_master", "mooncake_client", "mooncake_proxy", "mooncake")
LOOPBACK = ("--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1")
FREE_PORTS = ("--port=0", "--lane_port=0", "--metrics_port=0")


class Daemon:
    """A started command; ended and waited for at the end of `with`."""

    def __init__(self, command: str, *flags: str) -> None:
        self._process = subprocess.Popen(
            [_path(command), *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._hang = threading.Timer(HANG_S, self._process.kill)

    def wait_for(self, pattern: str) -> str:
        """The first group of the first line that matches."""
        assert self._process.stdout is not None
        seen = []
        for line in self._process.stdout:
            seen.append(line)
            if match := re.search(pattern, line):
                return match[1]
        raise RuntimeError(f"no {pattern!r} in:\n{''.join(seen)}")

    def __enter__(self) -> Daemon:
        self._hang.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate()
        self._hang.cancel()


def _path(command: str) -> str:
    return str(Path(sys.executable).parent / command)


def _seconds(since: float) -> float:
    return round(time.monotonic() - since, 3)


def main() -> int:
    took = {}
    for command in COMMANDS:
        for flag in ("--help", "--version"):
            began = time.monotonic()
            done = subprocess.run(
                [_path(command), flag], capture_output=True, text=True, check=True, timeout=HANG_S
            )
            assert command in done.stdout, done
            assert not done.stderr, done
            took[f"{command} {flag}"] = _seconds(began)

    began = time.monotonic()
    with Daemon("mooncake_master", *FREE_PORTS, *LOOPBACK) as master:
        port = master.wait_for(r"serves gRPC on \S*?:(\d+)")
        took["master ready"] = _seconds(began)
        flags = (
            f"--master_server_address=127.0.0.1:{port}",
            "--global_segment_size=64mb",
            "--host=127.0.0.1",
        )
        with Daemon("mooncake_client", *flags) as node:
            node.wait_for(r"(lending) ")
            took["node ready"] = _seconds(began)
            from mooncake_client import Store

            with Store(f"127.0.0.1:{port}") as store:
                value = bytes(range(256)) * 4096
                assert store.put("smoke", value) == "stored"
                took["first put"] = _seconds(began)
                assert store.get("smoke") == value
                took["first get"] = _seconds(began)
    print(json.dumps(took, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
