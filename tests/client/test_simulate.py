"""`mooncake simulate`: a pool of N blocks in the real state machine, beside models that fit a screen."""

from __future__ import annotations

import json
from array import array
from collections import OrderedDict
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_client.chart import chart_lines
from mooncake_client.cli import main
from mooncake_client.simulate import Plan, Run, plan, simulate
from mooncake_client.trace import LINE_BYTES_MAX, Trace, read_trace
from mooncake_store import _core
from mooncake_store.errors import InvalidArgument

Requests = list[list[int]]
BLOCK_BYTES = 1 << 20

# Few blocks, so that they come again; a request has no block twice.
requests = st.lists(st.lists(st.integers(0, 9), unique=True, max_size=5), min_size=1, max_size=30)


def write_trace(folder: Path, found: Requests, **fields: object) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps({"hash_ids": one, **fields}) + "\n" for one in found))
    return path


def flat(found: Requests) -> Trace:
    blocks = array("I", [block for one in found for block in one])
    numbers = {block: index for index, block in enumerate(dict.fromkeys(blocks))}
    return Trace(
        array("I", [numbers[block] for block in blocks]),
        array("I", map(len, found)),
        array("Q", range(0, 700 * len(found), 700)),
        len(numbers),
    )


def run(found: Requests, capacity: int, policy: str = "lru") -> Run:
    (only,) = simulate(flat(found), Plan((capacity,), BLOCK_BYTES, (policy,)), lambda *_: None)
    return only


def lru_hits(found: Requests, capacity: int) -> tuple[int, int]:
    """A request asks for all its blocks, then puts the missing ones, in order."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = prefix_hits = 0
    for one in found:
        missing = [block for block in one if block not in held]
        hits += len(one) - len(missing)
        prefix_hits += one.index(missing[0]) if missing else len(one)
        for block in one:
            if block in held:
                held.move_to_end(block)
        for block in missing:
            if len(held) == capacity:
                held.popitem(last=False)
            held[block] = None
    return hits, prefix_hits


def most_hits(found: Requests, capacity: int) -> int:
    """By trying everything: after each request any blocks of those at hand may be kept."""
    best: dict[frozenset[int], int] = {frozenset(): 0}
    for one in found:
        after: dict[frozenset[int], int] = {}
        for held, hits in best.items():
            at_hand = held | set(one)
            for kept in combinations(sorted(at_hand), min(capacity, len(at_hand))):
                key = frozenset(kept)
                after[key] = max(after.get(key, 0), hits + len(held & set(one)))
        best = after
    return max(best.values())


# The state machine never takes a block away while its request puts: that needs room for one whole request.
@given(found=requests, capacity=st.integers(6, 12))
def test_lru_hits_what_a_list_in_order_of_use_hits(found: Requests, capacity: int) -> None:
    score = run(found, capacity).found.whole
    assert (score.hits, score.prefix_hits) == lru_hits(found, capacity)
    assert score.accesses == sum(map(len, found))


@given(
    found=st.lists(st.lists(st.integers(0, 5), unique=True, max_size=3), min_size=1, max_size=9),
    capacity=st.integers(1, 3),
)
def test_belady_hits_as_much_as_any_choice_can(found: Requests, capacity: int) -> None:
    assert run(found, capacity).belady.whole.hits == most_hits(found, capacity)


@given(found=requests, capacity=st.integers(1, 12))
def test_no_run_beats_belady_and_belady_does_not_beat_a_cache_without_an_end(
    found: Requests, capacity: int
) -> None:
    one = run(found, capacity)
    accesses = [block for request in found for block in request]
    assert one.infinite.whole.hits == len(accesses) - len(set(accesses))
    assert one.found.whole.hits <= one.belady.whole.hits <= one.infinite.whole.hits
    assert one.found.whole.prefix_hits <= one.found.whole.hits


def test_a_known_trace_has_known_figures() -> None:
    # Two conversations in turn, each one block longer every time, and room for less than both.
    found = [[1, 2], [11, 12], [1, 2, 3], [11, 12, 13], [1, 2, 3, 4]]
    one = run(found, 3)
    assert (one.infinite.whole.hits, one.belady.whole.hits) == (7, 5)
    assert (one.found.whole.hits, one.found.whole.prefix_hits) == (1, 0)  # 12 survives the third, 11 does not
    assert run(found, 100).found.whole.hits == 7
    assert run(found, 100).found.second == one.infinite.second


def test_the_pool_holds_as_many_blocks_as_it_says() -> None:
    pool = _core.TraceReplay(5, BLOCK_BYTES, "lru")
    blocks, lengths, times = array("I", range(5)), array("I", [5]), array("Q", [0])
    assert pool.run(blocks, lengths, times) == (1, 5, 0, 0)
    assert pool.run(blocks, lengths, times) == (2, 10, 5, 5)
    assert pool.run(array("I", [5]), array("I", [1]), times)[2] == 5
    pool.check_invariants()
    stats = pool.stats()
    assert stats["evicted_keys_total"] == 1
    # A request has given its leases back when the next one comes.
    assert stats["evicted_leased_keys_total"] == 0


def test_a_request_larger_than_the_pool_ends() -> None:
    one = run([list(range(50)), list(range(50))], 8)
    assert one.found.whole.accesses == 100


def test_a_long_request_goes_in_several_batches() -> None:
    blocks = list(range(40_000))
    one = run([blocks, blocks], 40_000)
    assert one.found.whole.prefix_hits == 40_000


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"timestamp": 1}', "no list of block hashes under hash_ids or block_hashes"),
        ('{"hash_ids": 3}', "no list"),
        ("3", "no list"),
        ('{"hash_ids": [1, 2.5]}', "2.5 is no block hash"),
        ('{"hash_ids": [null]}', "None is no block hash"),
        ('{"hash_ids": [true]}', "True is no block hash"),
        ('{"hash_ids": [[1]]}', "no block hash"),
        ('{"hash_ids": [1], "timestamp": "x"}', "timestamp 'x' is no number"),
        ('{"hash_ids": [1], "timestamp": NaN}', "timestamp nan is no number"),
        ('{"hash_ids": [1], "timestamp": -1}', "timestamp -1 is not in"),
        ('{"hash_ids": [1], "timestamp": 1e300}', "is not in 0"),
        ('{"hash_ids": [' + "9" * 5_000 + "]}", "no JSON"),
        ("\xff\xfe", "no JSON"),
    ],
)
def test_a_line_that_is_no_request_is_named(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"[1]\n" + line.encode("latin-1") + b"\n")
    with pytest.raises(InvalidArgument, match="line 2") as raised:
        read_trace(path)
    assert says in str(raised.value)


def test_a_line_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b" " * (LINE_BYTES_MAX + 1))
    with pytest.raises(InvalidArgument, match="longer than"):
        read_trace(path)


@pytest.mark.parametrize("text", ["", "\n\n", "[]\n", '{"hash_ids": []}\n'])
def test_a_trace_that_asks_for_nothing_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match="asks for no block"):
        read_trace(path)


def test_hashes_are_numbers_of_any_size_or_text(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '{"hash_ids": [-7, 123456789012345678901234567890, 0]}\n'
        '\n{"block_hashes": ["a", "0"], "timestamp": 2.5}\n[0, "a", "a"]\n'
    )
    trace = read_trace(path, time_unit="s")
    assert list(trace.blocks) == [0, 1, 2, 3, 4, 2, 3]
    assert list(trace.lengths) == [3, 2, 2]
    assert list(trace.times_ms) == [0, 2500, 2500]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "--blocks or --dram"),
        ({"blocks": "10", "dram": "1GiB"}, "--blocks or --dram"),
        ({"blocks": "10,x"}, "--blocks: 'x'"),
        ({"blocks": "-5"}, "--blocks: '-5'"),
        ({"blocks": "0"}, "a pool of 0 blocks"),
        ({"blocks": "99999999999"}, "a pool of 99999999999 blocks"),
        ({"dram": "1kb"}, "a pool of 0 blocks"),
        ({"dram": "lots"}, "--dram"),
        ({"blocks": "10", "block_size": "0"}, "--block_size"),
        ({"blocks": "10", "block_size": "1tb"}, "--block_size"),
        ({"blocks": "10", "ssd": "1tb"}, "--ssd"),
        ({"blocks": "10", "policy": "clairvoyance"}, "--policy: 'clairvoyance' is none of adaptive, lru"),
        ({"blocks": ",".join(map(str, range(1, 400)))}, "at most 256 runs"),
    ],
)
def test_an_option_that_is_wrong_is_named(settings: dict[str, str], says: str) -> None:
    given = {"blocks": "", "dram": "", "ssd": "", "block_size": "1MiB", "policy": ""} | settings
    with pytest.raises(InvalidArgument) as raised:
        plan(**given)
    assert says in str(raised.value)


def test_memory_is_counted_as_the_master_charges_it() -> None:
    wanted = plan(blocks="", dram="1GiB", ssd="", block_size="1MiB", policy="lru")
    assert wanted.capacities == (1024,)
    assert plan(blocks="", dram="1kb", ssd="", block_size="65", policy="").capacities == (8,)


def test_the_command_answers_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_trace(tmp_path, [[1, 2, 3]] * 4, timestamp=5)
    assert main(["simulate", "--trace", str(path), "--blocks", "2,8", "--policy", "lru", "--json"]) == 0
    small, large = json.loads(capsys.readouterr().out)
    assert (small["capacity_blocks"], large["capacity_blocks"]) == (2, 8)
    assert large["policy"] == "lru"
    assert large["block_hit_rate"] == large["prefix_hit_rate"] == 0.75
    assert large["second_half_block_hit_rate"] == 1.0
    assert small["belady_block_hit_rate"] == 0.5
    assert small["infinite_block_hit_rate"] == 0.75
    assert large["accesses"] == 12
    assert large["requests"] == 4


def test_the_command_shows_a_table_and_a_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_trace(tmp_path, [[1, 2, 3]] * 4)
    assert main(["simulate", "--trace", str(path), "--blocks", "2,8", "--policy", "lru"]) == 0
    shown = capsys.readouterr().out
    assert "4 requests for 12 blocks, 3 different" in shown
    assert "0.7500" in shown
    assert "* Belady, o lru" in shown


def test_the_command_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_trace(tmp_path, [[1]])
    assert main(["simulate", "--trace", str(path), "--blocks", "8", "--ssd", "1gb"]) == 1
    assert "--ssd: '1gb'" in capsys.readouterr().err
    assert main(["simulate", "--trace", str(tmp_path / "none"), "--blocks", "8"]) == 1
    assert "No such file" in capsys.readouterr().err
    assert main(["simulate", "--blocks", "8"]) == 2


def test_a_chart_has_each_curve_at_its_height() -> None:
    lines = chart_lines("rates", {"a": [0.0, 1.0], "b": [0.5, 1.0]}, ["1", "20"])
    assert lines[0] == "rates: * a, o b"
    assert lines[1].endswith("o")  # where both are, the later one
    assert lines[-1].split() == ["1", "20"]
    assert chart_lines("", {"a": [0.0]}, ["1"])[-3].endswith("*")


@pytest.mark.parametrize("wrong", [{"lengths": [2]}, {"times_ms": []}, {"blocks": [1, 2, 3]}])
def test_numbers_that_do_not_fit_together_are_refused(wrong: dict[str, list[int]]) -> None:
    numbers = {"blocks": [0], "lengths": [1], "times_ms": [0]} | wrong
    blocks, lengths = array("I", numbers["blocks"]), array("I", numbers["lengths"])
    with pytest.raises(ValueError, match=r"lengths|times_ms"):
        _core.TraceReplay(4, BLOCK_BYTES, "lru").run(blocks, lengths, array("Q", numbers["times_ms"]))


def test_a_pool_or_trace_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity_blocks"):
        _core.TraceReplay(0, BLOCK_BYTES, "lru")
    with pytest.raises(ValueError, match="not below the count"):
        _core.TraceBound(array("I", [7]), 4)
    with pytest.raises(ValueError, match="more than the whole trace"):
        _core.TraceBound(array("I", [0]), 4).run(array("I", [0, 0]), array("I", [2]))
