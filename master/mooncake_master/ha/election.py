"""What an election among masters is: the interface to whoever keeps it, and how long a term may be trusted.

Owns the names of the keys and the times. A backend (etcd, redis) grants a term for LEASE_S and lets it lapse
by its own clock; `Tenure` counts from before each question by ours, so that a leader stops before that. Knows
no backend and no daemon. docs/ha.md.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, Protocol

from mooncake_store.errors import Unavailable

LEASE_S: Final = 3
"""A leader that is not heard of for so long may be followed by another."""
MARGIN_S: Final = 0.5
"""A leader stops serving so long before its lease can end: for clocks that do not run alike, and for requests
under way."""
RENEW_S: Final = 0.7
RENEW_RETRY_S: Final = 0.1  # after a renewal that was not answered
POLL_S: Final = 0.25
"""How often a standby looks whether somebody leads."""
CALL_TIMEOUT_S: Final = 0.6
"""Longest wait for one answer of a backend's member; two of them fit into a lease."""
ANNOUNCE_S: Final = 3.0
MEMBER_TTL_S: Final = 15
"""How long a master that ended is still in the list that clients get."""


class ElectionUnavailable(Unavailable):
    """The backend did not answer: nothing is known of what was asked, which may have been done."""


@dataclass(frozen=True)
class Leader:
    """Who leads: gRPC address "host:port", and the highest epoch taken."""

    address: str
    epoch: int


@dataclass(frozen=True)
class Term:
    """A won election. token: the backend's own mark of it."""

    address: str
    epoch: int
    token: str


@dataclass(frozen=True)
class Keys:
    """Where an election is kept; the prefix and `view` are Mooncake's."""

    view: str
    epoch: str
    members: str

    @classmethod
    def of(cls, cluster_id: str) -> Keys:
        prefix = f"mooncake-store/{cluster_id}/"
        return cls(view=f"{prefix}master_view", epoch=f"{prefix}epoch", members=f"{prefix}masters/")


class Election(Protocol):
    """A backend. All methods raise ElectionUnavailable within seconds when nobody answers."""

    async def campaign(self, address: str, *, above: int) -> Term | None:
        """Lead if nobody does: one transaction that also takes the next epoch, above `above` too.

        None: somebody leads. An error may hide a success; nobody else leads then before LEASE_S.
        """

    async def renew(self, term: Term, *, epoch: int) -> bool:
        """Lead on for LEASE_S from now, with an epoch that may have risen. False: the term is over."""

    async def resign(self, term: Term) -> None:
        """End the term, if it is not over: the next campaign may win."""

    async def leader(self) -> Leader | None:
        """Who leads now."""

    async def announce(self, address: str) -> None:
        """Stand in the list of masters that clients ask, for MEMBER_TTL_S."""

    async def close(self) -> None:
        """Leave the list and end connections. Does not raise."""


def boottime() -> float:
    """Seconds of a clock that also runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Tenure:
    """Until when a term may be trusted. asked_at: of `boottime`, read before the question was sent."""

    def __init__(self, term: Term, *, asked_at: float) -> None:
        self.term = term
        self.until = 0.0
        self.extend(asked_at)

    def extend(self, asked_at: float) -> None:
        """The backend said yes to a question that was sent after this."""
        self.until = max(self.until, asked_at + LEASE_S - MARGIN_S)

    def holds(self, now: float) -> bool:
        return now < self.until
