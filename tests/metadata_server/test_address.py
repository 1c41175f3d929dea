"""What `metadata_server` may say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import InvalidArgument
from mooncake_store.metadata_server.address import parse_address

H, G = Endpoint("h", 1), Endpoint("g", 2)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USERNAME", "PASSWORD", "DB_INDEX"):
        monkeypatch.delenv(f"MC_REDIS_{name}", raising=False)


@pytest.mark.parametrize(
    ("text", "kind", "endpoints", "shown"),
    [
        ("etcd://h:1", "etcd", (H,), "etcd://h:1"),
        ("etcd://h:1,g:2", "etcd", (H, G), "etcd://h:1,g:2"),
        ("etcd://h:1;g:2", "etcd", (H, G), "etcd://h:1,g:2"),
        ("etcd://u:secret@h:1", "etcd", (H,), "etcd://u:******@h:1"),
        ("h:1", "etcd", (H,), "etcd://h:1"),
        ("h:1,g:2", "etcd", (H, G), "etcd://h:1,g:2"),
        ("h", "etcd", (Endpoint("h", 2379),), "etcd://h:2379"),
        ("[::1]:5", "etcd", (Endpoint("::1", 5),), "etcd://[::1]:5"),
        ("redis://h:1", "redis", (H,), "redis://h:1"),
        ("redis://h", "redis", (Endpoint("h", 6379),), "redis://h:6379"),
        ("redis://h:1/3", "redis", (H,), "redis://h:1/3"),
        ("redis://u:p%40@s@h:1/3", "redis", (H,), "redis://u:******@h:1/3"),
        (" HTTP://h:1/metadata ", "http", (H,), "http://h:1/metadata"),
        ("http://h:1", "http", (H,), "http://h:1/metadata"),
        ("http://h/x/y", "http", (Endpoint("h", 80),), "http://h:80/x/y"),
    ],
)
def test_forms(text: str, kind: str, endpoints: tuple[Endpoint, ...], shown: str) -> None:
    address = parse_address(text)
    assert address is not None
    assert (address.kind, address.endpoints, str(address)) == (kind, endpoints, shown)
    assert "secret" not in repr(address)


def test_no_server() -> None:
    assert parse_address(" P2PHANDSHAKE ") is None


def test_users_and_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    address = parse_address("redis://u:p%40@s@h:1/3")
    assert address is not None
    assert (address.username, address.password, address.db) == ("u", "p@@s", 3)
    for name, value in (("USERNAME", "eu"), ("PASSWORD", "ep"), ("DB_INDEX", "7")):
        monkeypatch.setenv(f"MC_REDIS_{name}", value)
    address = parse_address("redis://h:1")
    assert address is not None
    assert (address.username, address.password, address.db) == ("eu", "ep", 7)
    address = parse_address("redis://:p@h:1/2")
    assert address is not None
    assert (address.password, address.db) == ("p", 2)


@pytest.mark.parametrize(
    "text",
    [
        *("", "etcd://", "http://", "ftp://h:1", "https://h:1/metadata", "h:1:2", "h:99999", "h 1", "h:1,"),
        *("redis://h:1/x", "redis://h:1/99999", "redis://h:1,g:2", "http://h:1/metadata?key=a", "0.0.0.0:1"),
        *(
            "etcd://" + ",".join(f"h{number}:1" for number in range(17)),
            "http://h:1/a\r\nX: y",
            "p2phandshake:",
        ),
    ],
)
def test_what_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidArgument, match="metadata_server"):
        parse_address(text)


@pytest.mark.parametrize(
    "text",
    ["user:secret@h:1", "http://u:secret@h:1/metadata", "redis://u:secret@h:1/x", "etcd://u:secret@:0"],
)
def test_a_refusal_shows_no_password(text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_address(text)
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None


@given(st.text())
def test_any_text_is_an_address_or_a_refusal(text: str) -> None:
    for prefix in ("", "etcd://", "redis://", "http://"):
        try:
            parse_address(prefix + text)
        except InvalidArgument:
            continue
