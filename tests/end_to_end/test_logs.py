"""What an operator reads while nodes come and go: the logs of real daemons, as text and as JSON."""

import json
import signal
from typing import Any

import pytest
from processes import MASTER_READY, Process, address_of, master, node


def entries(log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.splitlines()]


@pytest.mark.slow
def test_a_node_that_comes_and_goes_is_told_by_master_and_node() -> None:
    with master() as at, node(address_of(at), "--segment_name=here") as lender:
        lender.wait_for("lending here at")
        endpoint = at.wait_for(r"segment here joined the pool: 16MiB at (\S+)").group(1)
        assert endpoint.removeprefix("tcp://") in lender.log
        assert lender.end() == 0
        at.wait_for("segment here left the pool")
        assert at.end() == 0
        assert "stopping" in at.log
        assert "WARNING" not in at.log, at.log


@pytest.mark.slow
def test_json_has_one_object_a_line_from_start_to_end() -> None:
    json_log = "--log_format=json"
    with master(0, json_log, "-v=1") as at:
        port = at.wait_for(MASTER_READY).group(1)
        with node(f"127.0.0.1:{port}", json_log, "--segment_name=here") as lender:
            lender.wait_for("lending here at")
            at.wait_for("segment here joined the pool")
            assert lender.end(signal.SIGINT) == 0
        assert at.end() == 0
    said = entries(at.log)
    assert all({"time", "level", "logger", "message"} <= set(entry) for entry in said)
    assert {entry["logger"] for entry in said} == {"mooncake_store.master"}
    (settings,) = [entry["settings"] for entry in said if "settings" in entry]
    assert settings["log_format"] == "json"
    (joined,) = [entry for entry in said if "joined the pool" in entry["message"]]
    assert (joined["segment"], joined["level"]) == ("here", "info")
    assert any("--v has no meaning here" in entry["message"] for entry in said)
    assert {entry["logger"] for entry in entries(lender.log)} == {"mooncake_store.node"}


def test_a_failure_to_start_is_a_json_line_too() -> None:
    with Process("mooncake_client.node_daemon", "--log_format=json", "--global_segment_size=900tb") as lender:
        assert lender.wait() == 1
    last = entries(lender.log)[-1]
    assert last["level"] == "error"
    assert "memory" in last["message"]
