"""CRC-32C: published vectors, and all implementations of this processor against a bitwise reference."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_store import _core

IMPLEMENTATIONS = _core.crc32c_implementations()
RANDOM_BYTES = random.Random(1).randbytes(8192)
CHECKSUMS = st.integers(0, 2**32 - 1)


def bitwise_crc32c(data: bytes, crc: int = 0) -> int:
    state = crc ^ 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


# RFC 3720, appendix B.4, and the check value of the CRC catalogue.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_published_vectors(implementation: str, data: bytes, expected: int) -> None:
    assert _core.crc32c_by(implementation, data) == expected
    assert _core.crc32c(data) == expected


def test_the_portable_implementation_is_always_there() -> None:
    assert IMPLEMENTATIONS[0] == "table"
    assert len(set(IMPLEMENTATIONS)) == len(IMPLEMENTATIONS)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_every_length_and_alignment_round_a_step_agrees_with_the_reference(implementation: str) -> None:
    lengths = [*range(70), *range(120, 140), *range(250, 270), *range(380, 390), 511, 512, 513, 4096]
    for length in lengths:
        offset = length * 7 % 64
        data = RANDOM_BYTES[offset : offset + length]
        expected = bitwise_crc32c(data, crc=length)
        assert _core.crc32c_by(implementation, memoryview(RANDOM_BYTES)[offset:][:length], length) == expected
        assert _core.crc32c_copy_by(implementation, data, length) == (expected, data)


@given(data=st.binary(max_size=700), crc=CHECKSUMS)
def test_implementations_agree_with_the_reference(data: bytes, crc: int) -> None:
    expected = bitwise_crc32c(data, crc)
    for implementation in IMPLEMENTATIONS:
        assert _core.crc32c_by(implementation, data, crc) == expected


@given(pieces=st.lists(st.binary(max_size=400), max_size=6))
def test_chunks_give_the_checksum_of_the_whole(pieces: list[bytes]) -> None:
    crc = 0
    for piece in pieces:
        crc = _core.crc32c(piece, crc)
    assert crc == _core.crc32c(b"".join(pieces))


@given(a=st.binary(max_size=400), b=st.binary(max_size=400))
def test_combine_gives_the_checksum_of_both(a: bytes, b: bytes) -> None:
    assert _core.crc32c_combine(_core.crc32c(a), _core.crc32c(b), len(b)) == _core.crc32c(a + b)


@given(a=CHECKSUMS, b=CHECKSUMS, c=CHECKSUMS, lengths=st.tuples(*[st.integers(0, 2**62)] * 2))
def test_combine_is_associative_for_lengths_that_no_test_can_hold(
    a: int, b: int, c: int, lengths: tuple[int, int]
) -> None:
    length_b, length_c = lengths
    left = _core.crc32c_combine(_core.crc32c_combine(a, b, length_b), c, length_c)
    right = _core.crc32c_combine(a, _core.crc32c_combine(b, c, length_c), length_b + length_c)
    assert left == right


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_large_value_agrees_across_implementations(implementation: str) -> None:
    """Many steps of the widest kernel, an odd tail, and more than one chunk of a copy."""
    data = RANDOM_BYTES * 13 + b"tail"
    expected = _core.crc32c_by("table", data)
    assert _core.crc32c_by(implementation, data) == expected
    assert _core.crc32c_copy_by(implementation, data) == (expected, data)


@given(data=st.binary(max_size=1200), crc=CHECKSUMS)
def test_copy_fills_exactly_its_destination(data: bytes, crc: int) -> None:
    room = bytearray(b"\xa5" * (len(data) + 16))
    target = memoryview(room)[8 : 8 + len(data)]
    assert _core.crc32c_copy(target, data, crc) == _core.crc32c(data, crc)
    assert bytes(room) == b"\xa5" * 8 + data + b"\xa5" * 8


def test_copy_refuses_sizes_that_differ() -> None:
    with pytest.raises(ValueError, match="the destination has 3 bytes, the source 4"):
        _core.crc32c_copy(bytearray(3), b"four")


def test_copy_refuses_a_destination_that_cannot_be_written() -> None:
    with pytest.raises((BufferError, TypeError)):
        _core.crc32c_copy(b"abcd", b"four")  # type: ignore[arg-type]


def test_an_unknown_implementation_is_named() -> None:
    with pytest.raises(ValueError, match="abacus"):
        _core.crc32c_by("abacus", b"")
