"""The settings of a Store: checked by name, and the environment heard in one place."""

from __future__ import annotations

from typing import Any

import pytest

from mooncake_client.client_config import ClientConfig, client_config
from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import InvalidArgument


def test_defaults_are_those_of_the_documents() -> None:
    assert client_config("127.0.0.1:50001", {}, environment={}) == ClientConfig()


def test_several_masters_come_as_a_list_or_by_comma() -> None:
    wanted = (Endpoint("m1", 50001), Endpoint("::1", 50002))
    for given in ("m1:50001,[::1]:50002", ["m1:50001", "[::1]:50002"], ("m1:50001", "[::1]:50002")):
        assert client_config(given, {}, environment={}).master_server_addr == wanted


def test_the_timeout_of_the_call_wins_over_the_environment_and_that_over_the_default() -> None:
    environment = {"MC_RPC_TIMEOUT_MS": "1234"}
    assert client_config("m:1", {}, environment=environment).rpc_timeout_ms == 1234
    assert client_config("m:1", {"rpc_timeout_ms": None}, environment=environment).rpc_timeout_ms == 1234
    assert client_config("m:1", {"rpc_timeout_ms": 5}, environment=environment).rpc_timeout_ms == 5
    assert client_config("m:1", {}, environment={}).rpc_timeout_ms == 10_000


@pytest.mark.parametrize("heard", ["abc", "-1", "0", "1e3", "9" * 30, "3600001"])
def test_a_bad_timeout_in_the_environment_is_named(heard: str) -> None:
    with pytest.raises(InvalidArgument, match=f"MC_RPC_TIMEOUT_MS='{heard}'"):
        client_config("m:1", {}, environment={"MC_RPC_TIMEOUT_MS": heard})


@pytest.mark.parametrize(
    ("address", "settings", "message"),
    [
        ("m", {}, "master_server_addr: 'm' has no port"),
        ("0.0.0.0:1", {}, r"master_server_addr 0\.0\.0\.0:1 means every interface"),
        ("etcd://u:p@m:1", {}, "an election in etcd is read without a user"),
        ([], {}, "master_server_addr: '' has an empty entry"),
        ([1], {}, "is not a host:port or a list of them"),
        ("m:1", {"control": "carrier"}, "control: 'carrier' is unknown; choose one of auto, lane, grpc"),
        ("m:1", {"control": "grpc", "lane": "m:2"}, "control is 'grpc' and lane is m:2"),
        ("m:1", {"checksum": "none"}, "checksum: 'none' is unknown"),
        ("m:1", {"tenant": ""}, "tenant is empty"),
        ("m:1", {"tenant": "x" * 256}, "tenant .* at most 255 bytes"),
        ("m:1", {"name": "a\nb"}, r"name 'a\\nb' must be printable"),
        ("m:1", {"connect_timeout_ms": 0}, "connect_timeout_ms: 0ms is not in 1ms"),
        ("m:1", {"rpc_timeout_ms": -5}, "rpc_timeout_ms: -5ms is not in"),
        ("m:1", {"rpc_timeout_ms": "5"}, "rpc_timeout_ms: '5' is not a duration"),
        ("m:1", {"connections_a_peer_max": 65}, r"connections_a_peer_max: 65 is not in 1\.\.64"),
        ("m:1", {"lane": "nowhere"}, "lane: 'nowhere' has no port"),
    ],
)
def test_a_bad_setting_is_named_with_its_value(address: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        client_config(address, settings, environment={})


def test_the_location_cache_is_on_unless_the_call_or_the_environment_says_otherwise() -> None:
    heard = {"MOONCAKE_LOCATION_CACHE": "OFF"}
    assert client_config("m:1", {}, environment={}).location_cache == "on"
    assert client_config("m:1", {}, environment=heard).location_cache == "off"
    assert client_config("m:1", {"location_cache": "on"}, environment=heard).location_cache == "on"
    with pytest.raises(InvalidArgument, match=r"MOONCAKE_LOCATION_CACHE='no' .* choose one of on, off"):
        client_config("m:1", {}, environment={"MOONCAKE_LOCATION_CACHE": "no"})
    with pytest.raises(InvalidArgument, match=r"location_cache_max: 0 is not in 1"):
        client_config("m:1", {"location_cache_max": 0}, environment={})
