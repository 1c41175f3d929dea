"""Runs the simulated cluster (simulation.cc) over the standard seeds; checks that it stirs what it should.

The executable does the judging; docs/testing.md tells how to use it.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

FIRST, SEEDS = 1, 200
NIGHTLY_SEEDS = 6_000

Counts = dict[str, dict[str, int]]


def run(build: Path, *arguments: str, timeout_s: int = 900) -> str:
    command = [str(build / "simulation"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-100_000:]
    return done.stdout


def counts(summary: str) -> Counts:
    """The summary's lines, each `title: name=count ...`."""
    parsed: Counts = {}
    for line in summary.splitlines():
        title, _, rest = line.partition(": ")
        parsed[title] = {name: int(count) for name, count in re.findall(r"(\S+)=(\d+)", rest)}
    return parsed


@pytest.fixture(scope="module")
def standard(native_tests: Path) -> Counts:
    return counts(run(native_tests, "--first", str(FIRST), "--seeds", str(SEEDS)))


@pytest.mark.parametrize(
    ("title", "names"),
    [
        (
            "calls",
            "put upsert get open exists match_prefix remove force_remove touch task",
        ),
        (
            "faults",
            "resets delays repeats reorders client_crashes node_crashes master_crashes node_silences "
            "slow_nodes client_pauses node_pauses master_pauses master_moves takeovers partitions "
            "one_way_partitions refused lost_records stray_records",
        ),
        ("seeds", "calm network crashes masters pauses cuts storm"),
        (
            "answers",
            "get.OK get.OBJECT_NOT_FOUND get.BUFFER_OVERFLOW get.REPLICA_IS_NOT_READY open.OK put.OK "
            "put.OBJECT_ALREADY_EXISTS put.NO_AVAILABLE_HANDLE put.DEADLINE upsert.OK remove.OK "
            "remove.OBJECT_HAS_LEASE force_remove.OK exists.OK crashed_calls",
        ),
        (
            "lane",
            "put_start.OK put_start.REPLICA_IS_NOT_READY put_start.NO_AVAILABLE_HANDLE put_end.OK "
            "lookup.UNREACHABLE lookup.SESSION_UNKNOWN put_revoke.OK",
        ),
        (
            "master",
            "evicted_keys evicted_leased_keys evicted_soft_pinned_keys parked_calls waits_for_space "
            "space_wait_timeouts confirm_wait_timeouts replayed_requests repeats_attached discarded_puts "
            "orphaned_puts reaped_puts superseded_keys expired_keys lost_keys sessions_expired "
            "segments_expelled partial_allocations adopted_replicas tasks_succeeded",
        ),
        (
            "nodes",
            "drains gone stale_grants no_ranges fenced_refusals expulsions remembered stale",
        ),
    ],
    ids=lambda value: value if " " not in value else "",
)
def test_standard_seeds_stir_everything(standard: Counts, title: str, names: str) -> None:
    """A simulation in which these do not happen would pass for want of trying."""
    missing = [name for name in names.split() if standard[title].get(name, 0) == 0]
    assert not missing, standard[title]


def test_same_seed_is_the_same_run(native_tests: Path) -> None:
    """Bit for bit, also in another process, whose addresses differ, and after other seeds."""
    alone = run(native_tests, "--first", "7", "--seeds", "1", "--hashes")
    after_others = run(native_tests, "--first", "3", "--seeds", "5", "--hashes")
    line = next(line for line in alone.splitlines() if line.startswith("seed 7:"))
    assert line in after_others.splitlines()


def test_keeping_the_story_changes_nothing(native_tests: Path) -> None:
    """A failed seed is run again with its lines kept; that must be the same run."""
    plain = run(native_tests, "--first", "7", "--seeds", "1", "--hashes")
    with_story = run(native_tests, "--first", "7", "--seeds", "1", "--hashes", "--story")
    assert plain == with_story


@pytest.mark.nightly
@pytest.mark.timeout(7_200)
def test_many_seeds(native_tests: Path) -> None:
    run(native_tests, "--first", "1001", "--seeds", str(NIGHTLY_SEEDS), timeout_s=7_000)
