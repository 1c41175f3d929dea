"""The demo's inputs repeat exactly and share prefixes as real ones do; its block contents betray any slip."""

import json
import os
import subprocess
import sys
from importlib import util
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_store.errors import InvalidArgument

SOURCE = Path(__file__).parents[2] / "examples/prefill_decode/workload.py"
PUBLISHED = Path(__file__).parents[3] / "shared/traces/mooncake_conversation_trace.jsonl"


def load_workload() -> Any:
    spec = util.spec_from_file_location("workload", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules["workload"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


workload = load_workload()


def test_the_built_in_input_repeats_in_another_process() -> None:
    program = (
        "import hashlib, sys; sys.path.insert(0, sys.argv[1]); import workload\n"
        "stream = workload.built_in(users=6, turns=2, documents=4)\n"
        "print(hashlib.sha256(repr(list(stream)).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program, str(SOURCE.parent)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "7")
    }
    assert len(digests) == 1


def test_another_seed_gives_another_stream() -> None:
    first, second = (list(workload.built_in(users=3, turns=1, documents=4, seed=seed)) for seed in (1, 2))
    assert first != second


def test_the_built_in_input_is_ordered_and_sized_as_asked() -> None:
    requests = list(workload.built_in(users=9, turns=3, documents=4, block_tokens=256))
    assert len(requests) == 27
    assert [item.timestamp_ms for item in requests] == sorted(item.timestamp_ms for item in requests)
    for item in requests:
        assert len(item.blocks) == item.input_tokens // 256
        assert len(item.output_blocks) == (item.input_tokens + item.output_tokens) // 256 - len(item.blocks)


def test_a_users_next_turn_finds_the_whole_conversation_so_far() -> None:
    turns = list(workload.built_in(users=1, turns=5, documents=1))
    for before, after in pairwise(turns):
        known = (*before.blocks, *before.output_blocks)
        assert after.blocks[: len(known)] == known


def test_users_share_prefixes_but_not_everything() -> None:
    summary = workload.summarize(workload.built_in())
    assert summary.requests == 480
    assert 0.6 < summary.prefix_hit_ratio < 0.95
    first_turns = workload.summarize(workload.built_in(turns=1))
    assert 0.2 < first_turns.prefix_hit_ratio < 0.9
    assert summary.distinct_blocks > 2_000


@pytest.mark.parametrize(
    "name", ["users", "turns", "documents", "system_prompts", "block_tokens", "think_ms"]
)
def test_a_number_below_one_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} is 0"):
        list(workload.built_in(**{name: 0}))


def test_more_than_there_is_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"documents is 100000, but .* holds \d+ source files"):
        list(workload.built_in(documents=100_000))
    with pytest.raises(InvalidArgument, match="system_prompts is 99"):
        list(workload.built_in(system_prompts=99))


def test_a_python_without_sources_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(InvalidArgument, match="holds 0 source files"):
        list(workload.built_in())


LINE = {"timestamp": 5, "input_length": 1000, "output_length": 3, "hash_ids": [0, 7]}


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_a_trace_is_read_in_order(tmp_path: Path) -> None:
    later = {**LINE, "timestamp": 9, "hash_ids": [0, 8], "other": 1}
    path = write(tmp_path / "t.jsonl", LINE, "", later)
    first, second = workload.trace(path)
    assert (first.timestamp_ms, first.input_tokens, first.output_tokens) == (5, 1000, 3)
    assert second.timestamp_ms == 9
    assert first.blocks[0] == second.blocks[0] == workload.trace_key(0)
    assert first.blocks[1] != second.blocks[1]
    assert {len(key) for key in (*first.blocks, *second.blocks)} == {32}
    assert first.output_blocks == ()
    assert list(workload.trace(path, limit=1)) == [first]
    assert list(workload.trace(path, limit=0)) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "a list, not an object"),
        ({**LINE, "timestamp": -1}, r"timestamp is -1; a whole number >= 0"),
        ({**LINE, "timestamp": 4}, r"timestamp 4 is before 5"),
        ({**LINE, "timestamp": 5.5}, r"timestamp is 5\.5"),
        ({**LINE, "input_length": 0}, r"input_length is 0; a whole number >= 1"),
        ({**LINE, "input_length": True}, r"input_length is True"),
        ({**LINE, "input_length": 10**30}, r"input_length is a number of 100 bits"),
        ({"timestamp": 5, "input_length": 1000, "hash_ids": [0, 7]}, r"output_length is missing"),
        ({**LINE, "hash_ids": None}, r"hash_ids is missing"),
        ({**LINE, "hash_ids": [0, -7]}, r"hash_ids is \[0, -7\]"),
        ({**LINE, "hash_ids": ["a", "b"]}, r"hash_ids is \['a', 'b'\]"),
        ({**LINE, "hash_ids": [0]}, r"1 hash_ids, but an input_length of 1000 has 2 blocks of 512 tokens"),
        ({**LINE, "hash_ids": [0, 1, 2]}, r"3 hash_ids, but an input_length of 1000 has 2 blocks"),
        (" " * (1 << 20) + "{}", r"longer than 1048576 bytes"),
    ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path: Path, line: object, message: str) -> None:
    path = write(tmp_path / "t.jsonl", LINE, line)
    stream = workload.trace(path)
    assert next(stream).timestamp_ms == 5
    with pytest.raises(InvalidArgument, match=rf"t\.jsonl line 2: {message}"):
        next(stream)


def test_a_trace_that_is_missing_empty_or_binary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot be read: No such file"):
        list(workload.trace(tmp_path / "none"))
    with pytest.raises(InvalidArgument, match="holds no request"):
        list(workload.trace(write(tmp_path / "empty")))
    (tmp_path / "binary").write_bytes(b"\xff\x00\n")
    with pytest.raises(InvalidArgument, match="line 1: not JSON"):
        list(workload.trace(tmp_path / "binary"))


@pytest.mark.skipif(not PUBLISHED.is_file(), reason="the published trace is not beside this checkout")
def test_the_published_trace_has_the_published_size() -> None:
    summary = workload.summarize(workload.trace(PUBLISHED))
    assert (summary.requests, summary.block_reads, summary.distinct_blocks) == (12_031, 288_500, 182_790)


sizes = st.integers(0, 200) | st.sampled_from([4_096, 65_536, 65_543, 3 << 20])


@given(key=st.binary(min_size=1, max_size=32), size=sizes)
def test_a_block_verifies_as_itself(key: bytes, size: int) -> None:
    content = workload.block_bytes(key, size)
    assert content.nbytes == size
    assert workload.verify_block(key, content)
    assert workload.verify_block(key, bytes(content))
    target = bytearray(size + 3)
    workload.fill_block(key, memoryview(target)[3:])  # a start that no word is aligned to
    assert target[3:] == bytes(content)
    assert workload.verify_block(key, memoryview(target)[3:])


@given(key=st.binary(min_size=1, max_size=32), size=st.integers(1, 4_096), data=st.data())
def test_any_changed_byte_is_noticed(key: bytes, size: int, data: st.DataObject) -> None:
    content = workload.block_bytes(key, size).copy()
    content[data.draw(st.integers(0, size - 1))] ^= data.draw(st.integers(1, 255))
    assert not workload.verify_block(key, content)


@given(shift=st.integers(1, 4_000))
def test_a_shifted_swapped_or_shortened_block_is_noticed(shift: int) -> None:
    content = workload.block_bytes(b"key", 8_192)
    assert not workload.verify_block(b"key", np.roll(content, shift))
    assert not workload.verify_block(b"key", content[: 8_192 - shift])
    swapped = np.concatenate([content[4_096:], content[:4_096]])
    assert not workload.verify_block(b"key", swapped)


def test_a_piece_of_another_block_is_noticed() -> None:
    content, other = (workload.block_bytes(key, 65_536) for key in (b"a", b"b"))
    assert not workload.verify_block(b"a", other)
    content[4_096:8_192] = other[4_096:8_192]
    assert not workload.verify_block(b"a", content)
    assert not workload.verify_block(b"a", np.zeros(65_536, np.uint8))


def test_contents_are_fixed_for_all_time() -> None:
    """A reader in another process, on another machine, must expect the same bytes."""
    assert bytes(workload.block_bytes(b"key", 20)).hex() == "d067cb924fbd17348bcf6f481c8b4fb830efdf69"


def test_a_scattered_buffer_is_refused_rather_than_copied() -> None:
    with pytest.raises(InvalidArgument, match="not contiguous"):
        workload.fill_block(b"key", np.zeros((8, 8), np.uint8)[:, :4])
