"""Settings that are accepted and ignored, or refused in riddles (user problem 22), at every door.

The doors: a file, the environment, the class, `setup` by position, `setup` with a dict, `-D` of the REST
server, and for sizes the flags of a node. All give the same answer.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mooncake_client.dropin import MooncakeDistributedStore
from mooncake_client.dropin.mooncake_config import _VARIABLES, MooncakeConfig, load_config
from mooncake_client.node_config import NODE_FLAGS

Settings = dict[str, Any]
Door = Callable[[Settings], MooncakeConfig]

GIVEN: Settings = {
    "local_hostname": "localhost",
    "metadata_server": "P2PHANDSHAKE",
    "global_segment_size": 0,
    "local_buffer_size": 0,
    "protocol": "tcp",
    "device_name": "",
    "master_server_address": "127.0.0.1:50051",
}
DOORS = ("file", "environment", "class", "position", "dict", "rest")


class Joined:
    """In place of a membership of the pool."""

    def __init__(self, config: MooncakeConfig) -> None:
        self.config = config

    def end(self) -> None:
        pass


@pytest.fixture(params=DOORS)
def door(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Door:
    """Makes settings from GIVEN with changes; None takes one away. Raises ValueError if refused."""
    for name in ("MOONCAKE_CONFIG_PATH", *_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "mooncake.json"

    def from_file(settings: Settings) -> MooncakeConfig:
        path.write_text(json.dumps(settings))
        return MooncakeConfig.from_file(str(path))

    def from_environment(settings: Settings) -> MooncakeConfig:
        variables = {field: name for name, field in _VARIABLES.items()}
        for name, value in settings.items():
            if name not in variables:
                pytest.skip("the environment is full of names that are nobody's settings")
            monkeypatch.setenv(variables[name], str(value))
        return MooncakeConfig.load_from_env()

    def from_rest(settings: Settings) -> MooncakeConfig:
        path.write_text("{}")
        return load_config(str(path), {name: str(value) for name, value in settings.items()})

    def joined(*arguments: Any) -> MooncakeConfig:
        monkeypatch.setattr("mooncake_client.dropin.store.Membership", Joined)
        store = MooncakeDistributedStore()
        with caplog.at_level(logging.ERROR, logger="mooncake_store.dropin"):
            code = store.setup(*arguments)
        membership: Any = store._membership
        if code == 0:
            return membership.config  # type: ignore[no-any-return]
        assert code == -600
        assert membership is None
        raise ValueError(caplog.messages[-1])

    def by_position(settings: Settings) -> MooncakeConfig:
        if len(settings) != len(GIVEN):
            pytest.skip("Python itself refuses a call with more or fewer arguments: TypeError")
        return joined(*settings.values())

    doors: dict[str, Door] = {
        "file": from_file,
        "environment": from_environment,
        "class": lambda settings: MooncakeConfig(**settings),
        "position": by_position,
        "dict": joined,
        "rest": from_rest,
    }

    def enter(changes: Settings) -> MooncakeConfig:
        settings = {name: value for name, value in {**GIVEN, **changes}.items() if value is not None}
        return doors[request.param](settings)

    return enter


@pytest.mark.parametrize("field", ["global_segment_size", "local_buffer_size"])
@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("512mb", 512 << 20),
        ("1.5GB", 3 << 29),
        ("1e9", 1_000_000_000),
        ("16 MB", 16 << 20),
        ("1tb", 1 << 40),
        ("0", 0),
    ],
)
def test_up22_sizes(door: Door, field: str, written: str, size: int) -> None:
    assert getattr(door({field: written}), field) == size


@pytest.mark.parametrize("field", ["global_segment_size", "local_buffer_size"])
@pytest.mark.parametrize("written", ["-5", "50%", "abc", ""])
def test_up22_sizes_that_are_none_name_the_field(door: Door, field: str, written: str) -> None:
    with pytest.raises(ValueError, match=f"{field}.*{written}"):
        door({field: written})


@pytest.mark.parametrize(("written", "size"), [("512mb", 512 << 20), ("1.5GB", 3 << 29), ("1e9", 10**9)])
def test_up22_sizes_of_a_node(written: str, size: int) -> None:
    assert NODE_FLAGS.load([f"--global_segment_size={written}"]).config.global_segment_size == size


@pytest.mark.parametrize("written", ["-5", "50%", "abc", ""])
def test_up22_sizes_of_a_node_that_are_none_name_the_flag(written: str) -> None:
    with pytest.raises(ValueError, match=f"global_segment_size.*{written}"):
        NODE_FLAGS.load([f"--global_segment_size={written}"])


def test_up22_protocol_in_capitals(door: Door) -> None:
    assert door({"protocol": "TCP"}).protocol == "tcp"


def test_up22_protocol_that_is_none(door: Door) -> None:
    with pytest.raises(ValueError, match="protocol"):
        door({"protocol": ""})


def test_up22_host_with_a_port(door: Door) -> None:
    endpoint = door({"local_hostname": "127.0.0.1:10000"}).local_endpoint()
    assert (endpoint.host, endpoint.port) == ("127.0.0.1", 10000)


def test_up22_advertised_wildcard(door: Door) -> None:
    with pytest.raises(ValueError, match=r"local_hostname.*0\.0\.0\.0"):
        door({"local_hostname": "0.0.0.0"})


def test_up22_unknown_key(door: Door, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["door"] == "class":
        pytest.skip("Python itself refuses a call with another argument: TypeError")
    with pytest.raises(ValueError, match=r"golbal_segment_size.*global_segment_size"):
        door({"golbal_segment_size": "1"})


@pytest.mark.parametrize("field", ["local_hostname", "metadata_server", "master_server_address"])
def test_up22_required_setting_that_is_empty(door: Door, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        door({field: ""})


def test_up22_missing_master(door: Door, request: pytest.FixtureRequest) -> None:
    """Only the dict of `setup` has a default for it, Mooncake's."""
    kind = request.node.callspec.params["door"]
    if kind == "class":
        pytest.skip("Python itself refuses a call with fewer arguments: TypeError")
    if kind == "dict":
        assert door({"master_server_address": None}).master_server_address == "127.0.0.1:50051"
        return
    with pytest.raises(ValueError, match=r"MOONCAKE_MASTER|master_server_address"):
        door({"master_server_address": None})


def test_up22_switches(door: Door, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["door"] == "position":
        pytest.skip("the form of seven settings has no switch")
    for text in ("true", "YES", "on", "1", "enable"):
        assert door({"enable_client_http_server": text}).enable_client_http_server is True
    for text in ("false", "No", "off", "0", "disable"):
        assert door({"enable_client_http_server": text}).enable_client_http_server is False
    for text in ("maybe", ""):
        with pytest.raises(ValueError, match="enable_client_http_server"):
            door({"enable_client_http_server": text})


def test_up22_effective_settings_are_told_once(master_address: str, caplog: pytest.LogCaptureFixture) -> None:
    store = MooncakeDistributedStore()
    with caplog.at_level(logging.INFO, logger="mooncake_store.dropin"):
        assert (
            store.setup({**GIVEN, "global_segment_size": "16mb", "master_server_address": master_address})
            == 0
        )
    assert store.close() == 0
    told = [message for message in caplog.messages if "global_segment_size=16777216" in message]
    assert len(told) == 1
    assert f"master_server_address='{master_address}'" in told[0]


def test_environment_wins_by_its_longer_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOONCAKE_CONFIG_PATH", raising=False)
    monkeypatch.setenv("MOONCAKE_MASTER", "a:1")
    monkeypatch.setenv("LOCAL_HOSTNAME", "short")
    assert MooncakeConfig.load_from_env().local_hostname == "short"
    monkeypatch.setenv("MOONCAKE_LOCAL_HOSTNAME", "long")
    assert MooncakeConfig.load_from_env().local_hostname == "long"


def test_null_in_a_file_is_the_default(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.json"
    path.write_text(json.dumps({**GIVEN, "tenant_id": None, "ssd_offload_path": None}))
    config = MooncakeConfig.from_file(str(path))
    assert (config.tenant_id, config.ssd_offload_path) == ("default", "")
