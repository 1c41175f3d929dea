"""Fixtures of the state machine's tests: every machine's invariants hold at the end, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from metadata.harness import Harness

Make = Callable[..., Harness]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes harnesses with settings of native/metadata/options.h."""
    made: list[Harness] = []

    def build(epoch: int = 1, seed: int = 1, **settings: Any) -> Harness:
        made.append(Harness(settings=settings, epoch=epoch, seed=seed))
        return made[-1]

    yield build
    for harness in made:
        harness.machine.check_invariants()


@pytest.fixture
def pool(make: Make) -> Harness:
    """Default settings."""
    return make()
