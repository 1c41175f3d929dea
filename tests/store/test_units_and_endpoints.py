"""Sizes, durations and addresses: what people write is understood exactly, or refused by name."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_store import endpoints, units
from mooncake_store.endpoints import Endpoint, parse_endpoint, parse_endpoints, parse_host
from mooncake_store.errors import InvalidArgument
from mooncake_store.units import format_duration, format_size, parse_duration_ms, parse_size

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512mb", 512 << 20),
        ("1.5GB", 3 * GIB // 2),
        ("1e9", 1_000_000_000),
        ("16 MB", 16 << 20),
        ("1tb", 1 << 40),
        ("0", 0),
        ("4 GB", 4 * GIB),
        ("4GiB", 4 * GIB),
        ("4g", 4 * GIB),
        ("7b", 7),
        (" 12 ", 12),
        ("3355443200", 3355443200),
        (1024, 1024),
        ("1.0001kb", 1024),
        ("1.5e3", 1500),
    ],
)
def test_sizes_people_write_are_understood(text: str | int, size: int) -> None:
    assert parse_size(text, field="f") == size


@pytest.mark.parametrize(
    "text",
    [
        "-5",
        "50%",
        "abc",
        "",
        " ",
        "1.5",
        "1e",
        "5 xb",
        "1 2",
        "0x10",
        "1e-3",
        "9999999tb",
        "nan",
        "inf",
        "٣",
        "1e99",
        "9" * 30,
        "1." + "0" * 99,
        -1,
        2**70,
        True,
        None,
        1.5,
    ],
)
def test_what_is_no_size_is_refused_naming_the_field(text: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^global_segment_size: "):
        parse_size(text, field="global_segment_size")  # type: ignore[arg-type]


@given(st.integers(0, units.BYTES_MAX) | st.integers(0, 1 << 20).map(lambda n: n << 20))
def test_a_printed_size_is_read_back(size: int) -> None:
    assert parse_size(format_size(size), field="f") == size


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("10000", 10_000),
        ("10s", 10_000),
        ("500ms", 500),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("1.5s", 1_500),
        (7, 7),
    ],
)
def test_durations_people_write_are_understood(text: str | int, milliseconds: int) -> None:
    assert parse_duration_ms(text, field="f") == milliseconds


def test_a_bare_duration_counts_the_unit_of_its_flag() -> None:
    assert parse_duration_ms("10", field="f", bare_unit="s") == 10_000
    assert parse_duration_ms("10ms", field="f", bare_unit="s") == 10


@pytest.mark.parametrize("text", ["-1", "", "1d", "s", "0.5", "1e3", "10 000", "9" * 18, True, None])
def test_what_is_no_duration_is_refused_naming_the_field(text: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^ttl: "):
        parse_duration_ms(text, field="ttl")  # type: ignore[arg-type]


@given(st.integers(0, units.DURATION_MS_MAX))
def test_a_printed_duration_is_read_back(milliseconds: int) -> None:
    assert parse_duration_ms(format_duration(milliseconds), field="f") == milliseconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:10000", Endpoint("127.0.0.1", 10000)),
        ("[::1]:50001", Endpoint("::1", 50001)),
        ("[fe80::1%eth0]:1", Endpoint("fe80::1%eth0", 1)),
        ("node-7.cluster_a.local:65535", Endpoint("node-7.cluster_a.local", 65535)),
        (" localhost:50001 ", Endpoint("localhost", 50001)),
    ],
)
def test_addresses_people_write_are_understood(text: str, expected: Endpoint) -> None:
    assert parse_endpoint(text, field="f") == expected
    assert parse_endpoint(str(expected), field="f") == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":50001",
        "host",
        "host:",
        "host:0",
        "host:65536",
        "host:-1",
        "host:x",
        "::1:50001",
        "[::1",
        "[::1]50001",
        "[nope]:1",
        "[]:1",
        "300.1.1.1:80",
        "1.2.3:80",
        "ho st:1",
        "-host:1",
        "a..b:1",
        "etcd://h:1",
        "h:1:2",
        "é:1",
        "[1.2.3.4]:5",
        "h:٣",
        "a" * 300 + ":1",
    ],
)
def test_what_is_no_address_is_refused_naming_the_field(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^master_server_address: "):
        parse_endpoint(text, field="master_server_address")


def test_an_unbracketed_ipv6_address_is_told_about_brackets() -> None:
    with pytest.raises(InvalidArgument, match=r"\[::1\]:50001"):
        parse_endpoint("::1:50001", field="f")


def test_a_missing_port_takes_the_default_where_there_is_one() -> None:
    assert parse_endpoint("[::1]", field="f", default_port=7) == Endpoint("::1", 7)
    assert parse_endpoint("host", field="f", default_port=7) == Endpoint("host", 7)
    with pytest.raises(InvalidArgument, match="has no port"):
        parse_endpoint("host", field="f")


def test_lists_keep_their_order_and_drop_repetitions() -> None:
    assert [str(item) for item in parse_endpoints("b:2, a:1,b:2", field="f")] == ["b:2", "a:1"]
    for text in ("", "a:1,", ",a:1", "a:1,,b:2"):
        with pytest.raises(InvalidArgument, match="empty entry"):
            parse_endpoints(text, field="f")


def test_hosts_are_checked_without_asking_a_name_server() -> None:
    assert parse_host("[::]", field="f") == "::"
    assert parse_host("no.such.host.invalid", field="f") == "no.such.host.invalid"
    assert [
        host for host in ("0.0.0.0", "::", "", "127.0.0.1", "::1", "x") if endpoints.is_wildcard(host)
    ] == [
        "0.0.0.0",
        "::",
        "",
    ]


@pytest.mark.parametrize(
    "parse",
    [
        lambda text: parse_size(text, field="f"),
        lambda text: parse_duration_ms(text, field="f"),
        lambda text: parse_endpoints(text, field="f"),
        lambda text: parse_host(text, field="f"),
    ],
)
@given(text=st.text(max_size=30) | st.text("0123456789.eEkmgtbsh:[]-+ ", max_size=30))
def test_any_text_is_understood_or_refused(parse: Callable[[str], object], text: str) -> None:
    message = "f: "
    try:
        parse(text)
    except InvalidArgument as error:
        message = str(error)
    assert message.startswith("f: ")
