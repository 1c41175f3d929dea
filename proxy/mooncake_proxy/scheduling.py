"""Which of several instances takes the next request.

A policy sees the candidates (well, below their limit) and returns one; it does no IO and changes no instance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from mooncake_proxy.config import LEAST_LOADED, ROUND_ROBIN, ProxyConfig
from mooncake_proxy.fleet import Instance
from mooncake_proxy.prefixes import Affinity, Prefix


class Policy(Protocol):
    def choose(self, candidates: Sequence[Instance], prefix: Prefix) -> Instance:
        """One of the candidates, of which there is at least one."""


class RoundRobin:
    """In turn. Who joins or leaves shifts the turn, and is not asked twice in a row for it."""

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, candidates: Sequence[Instance], prefix: Prefix) -> Instance:
        chosen = candidates[self._turn % len(candidates)]
        self._turn += 1
        return chosen


class LeastLoaded:
    """Who has the fewest requests of this proxy; of equals, in turn."""

    def __init__(self) -> None:
        self._turn = RoundRobin()

    def choose(self, candidates: Sequence[Instance], prefix: Prefix) -> Instance:
        least = min(instance.running for instance in candidates)
        return self._turn.choose([i for i in candidates if i.running == least], prefix)


class PrefixAware:
    """Who was asked for the longest prefix of this prompt, and never more than `load_bound` of the mean load.

    The bound is that of consistent hashing with bounded loads: with this request, nobody has more than
    ceil(load_bound * mean). Among those below it the longest match wins; of equals who has the most blocks of
    the prompt on its host, as the master says; of those the least loaded.
    """

    def __init__(self, load_bound: float, entries_max: int) -> None:
        self._load_bound = load_bound
        self.affinity = Affinity(entries_max)
        self._least = LeastLoaded()

    def choose(self, candidates: Sequence[Instance], prefix: Prefix) -> Instance:
        running = sum(instance.running for instance in candidates) + 1
        most = math.ceil(self._load_bound * running / len(candidates))
        allowed = [instance for instance in candidates if instance.running < most]
        assert allowed, "the least loaded is never above the mean"
        matches = self.affinity.matches(prefix.hashes)
        ranks = {instance.name: _rank(instance, matches, prefix.blocks_at) for instance in allowed}
        best = max(ranks.values())
        chosen = self._least.choose([i for i in allowed if ranks[i.name] == best], prefix)
        self.affinity.note(prefix.hashes, chosen.name)
        return chosen


def _rank(instance: Instance, matches: Mapping[str, int], blocks_at: Mapping[str, int]) -> tuple[int, int]:
    return matches.get(instance.name, 0), blocks_at.get(instance.endpoint.host, 0)


def policy_of(config: ProxyConfig) -> Policy:
    if config.scheduling == ROUND_ROBIN:
        return RoundRobin()
    if config.scheduling == LEAST_LOADED:
        return LeastLoaded()
    return PrefixAware(config.prefix_load_bound, config.prefix_entries_max)
