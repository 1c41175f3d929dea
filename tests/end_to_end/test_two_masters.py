"""Two masters by mistake: the older one stops serving, and whoever knows both goes on at the later one."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from master.running import HANG_S, RunningMaster
from processes import wait_until

from mooncake_client import Store
from mooncake_master.daemon import Daemon
from mooncake_store import _core
from mooncake_store.errors import StoreError

TTL = "--client_ttl=1"  # a master that was told keeps still for so long
MIB = 1 << 20


def address(daemon: Daemon) -> str:
    return f"127.0.0.1:{daemon.grpc_port}"


def node(*masters: Daemon) -> _core.Node:
    lent = _core.Node([("", MIB)], masters=[address(master) for master in masters], data_host="127.0.0.1")
    lent.start()
    assert lent.wait_mounted(int(HANG_S * 1000))
    return lent


def reign_of(lent: _core.Node) -> int | bytes:
    """The life of the master that it is mounted at; 0: none."""
    status = lent.status()
    return status["master"] if status["mounted"] else 0


def health(daemon: Daemon) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{daemon.http_port}/health", timeout=HANG_S) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.loads(refusal.read())


def test_the_older_of_two_masters_stands_back_as_long_as_the_later_one_reigns(tmp_path: Path) -> None:
    older_file, newer_file = tmp_path / "older", tmp_path / "newer"
    with RunningMaster(TTL, f"--state_file={older_file}") as older:
        newer_file.write_bytes(older_file.read_bytes())  # the mistake
        with RunningMaster(TTL, f"--state_file={newer_file}") as newer:
            only_older = node(older)
            both = node(newer, older)
            with Store(f"{address(older)},{address(newer)}") as store:
                wait_until(lambda: health(older)[0] == 503, "the older one steps down")
                assert health(older)[1]["ha_state"] == "deposed"
                assert health(newer)[0] == 200
                # This client was the older one's, and knows both.
                assert store.put("k", b"value") == "stored"
                assert store.get("k") == b"value"
                with Store(address(newer)) as other:
                    assert other.get("k") == b"value"
                with pytest.raises(StoreError, match="stepped down: one of epoch 2 reigns"):
                    Store(address(older), connect_timeout_ms=1_000)
            both.stop()  # nobody tells the older one any more
            wait_until(lambda: health(older)[0] == 200, "it serves again")
            assert only_older.wait_mounted(int(HANG_S * 1000))
            with Store(address(older)) as store:
                wait_until(lambda: store.put("k", b"value", replace=True) == "stored", "a put")
            only_older.stop()


def test_of_two_new_masters_one_remains() -> None:
    """Both are of epoch 1: neither came later."""
    with RunningMaster(TTL) as one, RunningMaster(TTL) as other:
        here, there = node(one, other), node(other, one)
        wait_until(lambda: {health(one)[0], health(other)[0]} == {200, 503}, "one steps down")
        remaining = one if health(one)[0] == 200 else other
        with Store(f"{address(one)},{address(other)}") as store, Store(address(remaining)) as certain:
            wait_until(lambda: reign_of(here) == reign_of(there) != 0, "both nodes at one master")
            assert store.put("k", b"value") == "stored"
            assert certain.get("k") == b"value"
        here.stop()
        there.stop()
