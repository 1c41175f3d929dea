"""Which of several instances takes the next request.

A policy sees the candidates (well, below their limit) and returns one; it does no IO and changes no instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mooncake_proxy.config import LEAST_LOADED, ROUND_ROBIN
from mooncake_proxy.fleet import Instance


class Policy(Protocol):
    def choose(self, candidates: Sequence[Instance]) -> Instance:
        """One of the candidates, of which there is at least one."""


class RoundRobin:
    """In turn. Who joins or leaves shifts the turn, and is not asked twice in a row for it."""

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, candidates: Sequence[Instance]) -> Instance:
        chosen = candidates[self._turn % len(candidates)]
        self._turn += 1
        return chosen


class LeastLoaded:
    """Who has the fewest requests of this proxy; of equals, in turn."""

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, candidates: Sequence[Instance]) -> Instance:
        least = min(instance.running for instance in candidates)
        equals = [instance for instance in candidates if instance.running == least]
        chosen = equals[self._turn % len(equals)]
        self._turn += 1
        return chosen


POLICIES: dict[str, type[RoundRobin] | type[LeastLoaded]] = {
    ROUND_ROBIN: RoundRobin,
    LEAST_LOADED: LeastLoaded,
}


def policy_of(name: str) -> Policy:
    return POLICIES[name]()
