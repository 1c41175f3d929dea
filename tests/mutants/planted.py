"""What a planted bug is: the mistake an engineer might make, as an exact change of text, and who must see it.

Owns the form only. The bugs themselves are in catalogue/, one file a part of the store; scratch.py applies
them to a copy of the tree, __main__.py runs the tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

ROOT: Final = Path(__file__).resolve().parents[2]
COMPILED: Final = (".cc", ".h")


class Rotten(Exception):
    """A planted bug that does not fit the sources any more."""


@dataclass(frozen=True)
class Edit:
    """`old` is found exactly once in `file`, and becomes `new`."""

    file: str
    old: str
    new: str

    @property
    def is_compiled(self) -> bool:
        return self.file.endswith(COMPILED)

    def applied(self, text: str) -> str:
        count = text.count(self.old)
        if count != 1:
            raise Rotten(f"{self.file} has this text {count} times, not once:\n{self.old}")
        if self.old == self.new:
            raise Rotten(f"{self.file}: nothing changes in this text:\n{self.old}")
        return text.replace(self.old, self.new)


Kind = Literal["test", "drawn", "native", "simulation"]


@dataclass(frozen=True)
class Sight:
    """One test that must turn red. Those that draw examples do so under every seed.

    test, drawn: `where` is a file of tests/, `name` a test in it. native: `where` is an executable of
    tests/native, `name` a TEST in it. simulation: both are empty.
    """

    kind: Kind
    where: str = ""
    name: str = ""

    def __str__(self) -> str:
        if self.kind == "simulation":
            return "simulation"
        return f"{self.where.removeprefix('tests/').removesuffix('.py')}::{self.name}"


@dataclass(frozen=True)
class Mutant:
    """One planted bug.

    story: one sentence, what somebody got wrong. may_hang: a test that does not end is red, too.
    """

    name: str
    story: str
    edits: tuple[Edit, ...]
    seen_by: tuple[Sight, ...]
    may_hang: bool = False

    @property
    def is_compiled(self) -> bool:
        return any(edit.is_compiled for edit in self.edits)


SIMULATION: Final = Sight("simulation")
"""tests/simulation under a block of its seeds for each of ours."""


def test(where: str, name: str) -> Sight:
    """A test of pytest: one whose examples are fixed."""
    return Sight("test", f"tests/{where}.py", name)


def drawn(where: str, name: str) -> Sight:
    """A test of pytest whose examples Hypothesis draws."""
    return Sight("drawn", f"tests/{where}.py", name)


def native(where: str, name: str) -> Sight:
    """A TEST of tests/native/<where>.cc."""
    return Sight("native", where, name)


def missing_sights(mutants: Iterable[Mutant]) -> list[str]:
    """Named tests that are not in the files that should hold them."""
    missing = []
    for mutant in mutants:
        for sight in mutant.seen_by:
            if sight.kind == "simulation":
                continue
            if sight.kind == "native":
                file, text = ROOT / f"tests/native/{sight.where}.cc", f"TEST({sight.name})"
            elif sight.name.startswith("Test"):
                file, text = ROOT / sight.where, f"\n{sight.name}"
            else:
                file, text = ROOT / sight.where, f"def {sight.name.partition('[')[0]}("
            if not file.exists() or text not in file.read_text(encoding="utf-8"):
                missing.append(f"{mutant.name}: no {text.strip()} in {file.relative_to(ROOT)}")
    return missing
