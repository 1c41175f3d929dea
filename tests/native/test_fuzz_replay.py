"""Replays the corpus of tests/fuzz, and seeded mutations of it, with the compiler that built the package.

`make fuzz` runs the same targets under libFuzzer with sanitizers; here a machine without clang still sees
that no known input is mishandled, and that a few thousand new ones are not either.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

FUZZ = Path(__file__).resolve().parents[1] / "fuzz"
TARGETS = sorted(path.stem for path in FUZZ.glob("*_fuzz.cc"))
MUTATIONS = 3000


def _replay(native_tests: Path, target: str, *arguments: str) -> None:
    command = [str(native_tests / f"{target}_replay"), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert run.returncode == 0, f"{' '.join(command)}\n{run.stdout}{run.stderr}"


@pytest.mark.parametrize("target", TARGETS)
def test_corpus_is_handled(native_tests: Path, target: str, tmp_path: Path) -> None:
    corpus = FUZZ / "corpus" / target
    assert any(corpus.iterdir()), f"{corpus} is empty: make fuzz ONLY={target} MINIMIZE=1"
    _replay(native_tests, target, f"--crash={tmp_path / 'input'}", str(corpus))


@pytest.mark.parametrize("target", TARGETS)
def test_mutations_of_the_corpus_are_handled(native_tests: Path, target: str, tmp_path: Path) -> None:
    crash = f"--crash={tmp_path / 'input'}"
    corpus = FUZZ / "corpus" / target
    _replay(native_tests, target, crash, f"--mutations={MUTATIONS}", "--seed=1", str(corpus))


@pytest.mark.parametrize("target", TARGETS)
def test_seeds_in_the_corpus_are_those_of_the_target(native_tests: Path, target: str, tmp_path: Path) -> None:
    """A change of a format that left its seeds behind would leave the fuzzer at the gate."""
    _replay(native_tests, target, f"--write-seeds={tmp_path}")
    for seed in tmp_path.iterdir():
        kept = FUZZ / "corpus" / target / seed.name
        is_current = kept.exists() and kept.read_bytes() == seed.read_bytes()
        assert is_current, (
            f"{kept} is out of date: {native_tests}/{target}_replay --write-seeds={kept.parent}"
        )
