"""What happens in a round: drawn from its seed, before anything is done."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

KILL, STOP = "kill", "stop"


@dataclass(frozen=True)
class Fault:
    """One stroke against one role.

    after_s: from the round's beginning, or, with amid_rebuild, from the moment at which the master of the
        stroke before listens again. rest_s: how long it stays dead or stopped.
    """

    kind: str
    role: str
    after_s: float
    rest_s: float
    amid_rebuild: bool = False


def draw_round(seed: str, number: int, roles: Mapping[str, Sequence[str]], stop_max_s: float) -> list[Fault]:
    """One or two faults. roles: names by kind; each kind is as likely as the others, whatever its numbers."""
    chance = random.Random(f"{seed}/{number}")
    kinds = sorted(roles)

    def fault(role_kind: str, after_s: float, amid_rebuild: bool = False) -> Fault:
        kind = chance.choice((KILL, STOP))
        rest_s = chance.uniform(1, stop_max_s) if kind == STOP else chance.choice((0.0, chance.uniform(0, 2)))
        return Fault(kind, chance.choice(sorted(roles[role_kind])), after_s, rest_s, amid_rebuild)

    if chance.random() < 0.25:
        first = Fault(KILL, roles["master"][0], chance.uniform(0, 1), 0.0)
        second = fault(chance.choice(kinds), chance.uniform(0, 0.4), amid_rebuild=True)
        return [first, second]
    faults = [fault(chance.choice(kinds), chance.uniform(0, 1))]
    if chance.random() < 0.6:
        second = fault(chance.choice(kinds), chance.uniform(0, 3))
        if second.role != faults[0].role:
            faults.append(second)
    return faults
