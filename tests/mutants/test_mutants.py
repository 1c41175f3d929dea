"""Keeps the planted bugs fit to be planted, and plants those in Python; `make mutants` plants all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mutants import sight
from mutants.__main__ import chosen
from mutants.catalogue import MUTANTS
from mutants.planted import ROOT, Edit, Mutant, Rotten, Sight, missing_sights
from mutants.scratch import apply_all


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_planted_bug_applies_to_the_sources_as_they_are(mutant: Mutant) -> None:
    apply_all(mutant.edits, {})
    assert mutant.edits
    assert mutant.seen_by


def test_the_tests_that_should_see_a_planted_bug_exist() -> None:
    assert missing_sights(MUTANTS) == []


def test_planted_bugs_have_names_and_stories_of_their_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30
    assert len({mutant.story for mutant in MUTANTS}) == len(MUTANTS)
    assert all(mutant.story.endswith(".") for mutant in MUTANTS)


def test_bugs_in_python_are_judged_over_native_code_without_a_bug() -> None:
    """They came after the compiled ones, of which the last is still in the module that they run over."""
    compiled = [mutant.is_compiled for mutant in chosen("", python=False)]
    assert compiled == sorted(compiled)
    assert len(set(compiled)) == 2


@pytest.mark.parametrize("text", ["", "a b", "b b"])
def test_text_that_is_not_there_exactly_once_is_rotten(text: str) -> None:
    edit = Edit("file.py", "b" if text != "a b" else "c", "d")
    with pytest.raises(Rotten, match=r"file\.py has this text \d times"):
        edit.applied(text)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (
            "FAILED tests/a.py::test_b[shorter than a header] - AssertionError: never: counted",
            "AssertionError: n",
        ),
        ("FAILED tests/a.py::test_b", ""),
        ("ERROR tests/a.py - ImportError: no", "ImportError: no"),
    ],
)
def test_a_failed_test_is_red_whatever_its_examples_are_called(line: str, what: str) -> None:
    verdict = sight.judge(Sight("test", "tests/a.py", "test_b"), 1, f"....\n{line}\n1 failed in 3 s\n")
    assert verdict.outcome == "red"
    assert verdict.what.startswith(what)
    assert sight.judge(Sight("test", "tests/a.py", "test_b"), 1, "no tests ran\n").outcome == "undecided"


@pytest.mark.slow
@pytest.mark.timeout(1200)  # some thirty runs of pytest
def test_planted_bugs_in_python_are_seen(tmp_path: Path) -> None:
    """The installed native module serves. That all is green without a bug, the suite itself shows."""
    run = subprocess.run(
        [sys.executable, "-m", "mutants", "--python", "--no-baseline", f"--scratch={tmp_path}"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
