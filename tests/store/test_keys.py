"""Keys have one byte form everywhere, and a block's key covers all that its bytes depend on."""

import os
import struct
import subprocess
import sys
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mooncake_store
from mooncake_store.errors import InvalidArgument
from mooncake_store.keys import (
    BLOCK_KEY_BYTES,
    KEY_BYTES_MAX,
    TOKEN_MAX,
    BlockIdentity,
    block_keys,
    key_bytes,
    root_hash,
)
from mooncake_store.status import Status

IDENTITY = BlockIdentity(model="org/model@r1", dtype="bfloat16")
TOKENS = list(range(100, 148))

# Never to be changed: these are the keys under which data is stored.
GOLDEN = {
    16: [
        "023cfe415afb8ef7c4d5c13658a40e3ba2f3636604eb237f8038f8c1e59b47e9",
        "7437e94ab068ebeb161c2fdd2e58c113faff6a82f46c437901e9a6d8e7b1c107",
        "732c12a52fd67017fb467b62a700bb145ce39e60cc92fd370c937a71ed0b5ea7",
    ],
    32: ["080d8f11cbf8eafbfefaf09fa767ea5f0c04ffd8fb51c3ec8fcdee0203f57cb8"],
}


def reference_keys(tokens: list[int], block_tokens: int, fields: list[str | int]) -> list[bytes]:
    """The documented encoding, written down a second time."""
    root = b""
    for tag, field in enumerate(fields, start=1):
        data = field.encode() if isinstance(field, str) else struct.pack("<Q", field)
        root += bytes([tag]) + struct.pack("<I", len(data)) + data
    previous = blake2b(root, digest_size=32, person=b"mooncake-root-1").digest()
    keys = []
    for index in range(len(tokens) // block_tokens):
        block = tokens[index * block_tokens : (index + 1) * block_tokens]
        data = previous + struct.pack(f"<{block_tokens}I", *block)
        previous = blake2b(data, digest_size=32, person=b"mooncake-blk-1").digest()
        keys.append(previous)
    return keys


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a", b"a"),
        (b"\x00\xff", b"\x00\xff"),
        ("ключ", "ключ".encode()),
        (0, b"0"),
        (12345678901234567890123, None),
        ("k" * KEY_BYTES_MAX, b"k" * 1024),
        (10**1023, None),
    ],
)
def test_keys_have_one_byte_form(key: str | bytes | int, expected: bytes | None) -> None:
    assert key_bytes(key) == (str(key).encode() if expected is None else expected)


def test_equal_bytes_are_one_key() -> None:
    assert key_bytes(12) == key_bytes("12") == key_bytes(b"12")


@pytest.mark.parametrize(
    "key",
    ["", b"", "x" * 1025, b"y" * 5000, -1, True, None, 1.5, "\ud800", pytest.param(10**5000, id="huge")],
)
def test_a_bad_key_is_refused_with_its_own_code(key: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        key_bytes(key)  # type: ignore[arg-type]
    assert caught.value.code == Status.INVALID_KEY
    assert len(str(caught.value)) < 300


def test_the_length_is_named() -> None:
    with pytest.raises(InvalidArgument, match="has 1025 bytes; a key has 1 to 1024"):
        key_bytes(b"k" * 1025)
    assert len(key_bytes("é" * (KEY_BYTES_MAX // 2))) == KEY_BYTES_MAX
    with pytest.raises(InvalidArgument, match="1026 bytes"):
        key_bytes("é" * 513)


@pytest.mark.parametrize("block_tokens", [16, 32])
def test_block_keys_are_the_golden_ones(block_tokens: int) -> None:
    keys = block_keys(TOKENS, block_tokens, identity=IDENTITY)
    assert [key.hex() for key in keys] == GOLDEN[block_tokens]


@given(
    st.lists(st.integers(0, TOKEN_MAX), max_size=40),
    st.integers(1, 9),
    st.text(min_size=1, max_size=9),
    st.text(max_size=9),
    st.text(max_size=9),
)
def test_block_keys_follow_the_documented_encoding(
    tokens: list[int], block_tokens: int, model: str, salt: str, lora: str
) -> None:
    identity = BlockIdentity(
        model, "fp8_e4m3", tp_rank=1, tp_size=2, pp_rank=2, pp_size=4, salt=salt, lora=lora
    )
    fields: list[str | int] = [model, "fp8_e4m3", block_tokens, 1, 2, 2, 4, salt, lora]
    assert block_keys(tokens, block_tokens, identity=identity) == reference_keys(tokens, block_tokens, fields)


@given(st.binary(max_size=100), st.integers(1, 8))
def test_tokens_give_the_same_keys_in_every_form(tokens: bytes, block_tokens: int) -> None:
    expected = block_keys(tokens, block_tokens, identity=IDENTITY)
    array = np.frombuffer(tokens, np.uint8)
    forms = [
        bytearray(tokens),
        memoryview(tokens),
        list(tokens),
        tuple(tokens),
        array,
        array.astype(np.int64),
    ]
    forms += [np.repeat(array, 2)[::2], array.astype(">u2")]
    for form in forms:
        assert block_keys(form, block_tokens, identity=IDENTITY) == expected
    assert len(expected) == len(tokens) // block_tokens
    assert all(len(key) == BLOCK_KEY_BYTES for key in expected)


@given(st.lists(st.integers(0, 9), min_size=8, max_size=40), st.integers(1, 4), st.integers(0, 9))
def test_a_chain_continued_at_any_block_is_the_same_chain(tokens: list[int], size: int, cut: int) -> None:
    whole = block_keys(tokens, size, identity=IDENTITY)
    cut = min(cut, len(whole))
    head = block_keys(tokens[: cut * size], size, identity=IDENTITY)
    parent = head[-1] if head else None
    assert head + block_keys(tokens[cut * size :], size, identity=IDENTITY, parent=parent) == whole


def test_a_changed_token_changes_its_block_and_all_after_it() -> None:
    changed = [*TOKENS]
    changed[20] += 1
    before, after = (block_keys(tokens, 16, identity=IDENTITY) for tokens in (TOKENS, changed))
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, False]


def test_only_the_exact_identity_shares() -> None:
    others = [
        replace(IDENTITY, model="org/model@r2"),
        replace(IDENTITY, dtype="fp8_e4m3"),
        replace(IDENTITY, tp_size=2),
        replace(IDENTITY, tp_size=2, tp_rank=1),
        replace(IDENTITY, pp_size=2),
        replace(IDENTITY, salt="2"),
        replace(IDENTITY, lora="2"),
    ]
    keys = {block_keys(TOKENS, 16, identity=identity)[0] for identity in (IDENTITY, *others)}
    assert len(keys) == len(others) + 1
    assert block_keys(TOKENS, 32, identity=IDENTITY)[0] not in keys
    assert root_hash(16, IDENTITY) != root_hash(32, IDENTITY)
    # Text that moves from one field to the next must not give the same bytes.
    assert root_hash(16, replace(IDENTITY, salt="ab")) != root_hash(16, replace(IDENTITY, salt="a", lora="b"))


@pytest.mark.parametrize("seed", ["0", "12345"])
def test_other_processes_compute_the_same_keys(seed: str) -> None:
    program = (
        "from mooncake_store.keys import BlockIdentity, block_keys\n"
        "keys = block_keys(range(100, 148), 16, identity=BlockIdentity('org/model@r1', 'bfloat16'))\n"
        "print(*[key.hex() for key in keys])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    cwd = Path(mooncake_store.__file__).parents[1]
    output = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=cwd, capture_output=True, text=True, check=True
    ).stdout
    assert output.split() == GOLDEN[16]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([1, 2, -3], r"tokens\[2\] is -3"),
        ([1, 2**32], r"tokens\[1\] is 4294967296"),
        ([1, 2.5], r"tokens\[1\] is 2.5"),
        (np.array([5, -1]), r"tokens\[1\] is -1"),
        (np.array([2**40]), r"tokens\[0\] is 1099511627776"),
        (np.array([1.0]), "integers, not 1-D float64"),
        (np.zeros((2, 2), int), "1-D of integers, not 2-D"),
        (memoryview(np.array([1, 2])), "single bytes"),
        ("text", "encode it first"),
        (None, "tokens must be"),
    ],
)
def test_bad_tokens_are_named(tokens: object, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        block_keys(tokens, 1, identity=IDENTITY)  # type: ignore[arg-type]


def test_bad_block_size_parent_and_identity_are_named() -> None:
    with pytest.raises(InvalidArgument, match="block_tokens is 0"):
        block_keys(b"x", 0, identity=IDENTITY)
    with pytest.raises(InvalidArgument, match="parent has 3 bytes"):
        block_keys(b"x", 1, identity=IDENTITY, parent=b"abc")
    with pytest.raises(InvalidArgument, match=r"tp_rank 2 is not in"):
        BlockIdentity("m", "bf16", tp_rank=2, tp_size=2)
    with pytest.raises(InvalidArgument, match="model is empty"):
        BlockIdentity("", "bf16")
    with pytest.raises(InvalidArgument, match="dtype is empty"):
        BlockIdentity("m", "")
