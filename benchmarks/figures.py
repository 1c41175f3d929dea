"""Samples and what is made of them: medians, quartiles, ratios. Standard library only; no IO."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple


class Spread(NamedTuple):
    """First quartile, median and third quartile."""

    low: float
    median: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Quartiles with linear interpolation, the extremes included; one value is its own quartiles."""
    if not values:
        raise ValueError("there is no spread of no values")
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(low, median, high)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Spread of ours/theirs round by round: both of a pair saw the same load of the machine."""
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} rounds of ours and {len(theirs)} of the other are not pairs")
    return spread([mine / other for mine, other in zip(ours, theirs, strict=True)])


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed (nearest rank)."""
    if not sorted_values:
        raise ValueError("there is no percentile of no values")
    return sorted_values[max(0, math.ceil(share * len(sorted_values)) - 1)]


@dataclass(frozen=True)
class Sample:
    """One contender's part of one round: many calls of one work.

    CPU times are those of all its server processes and of its client's process, a call.
    """

    calls: int
    median_ns: float
    p99_ns: float
    mean_ns: float
    server_cpu_ns: float
    client_cpu_ns: float
    server_cpu_ns_a_key: float

    def as_json(self) -> dict[str, float]:
        return asdict(self)


def sample_of(times_ns: Sequence[float], server_cpu_ns: float, client_cpu_ns: float, keys: int) -> Sample:
    """keys: of one call. The CPU times are those of all calls together."""
    ordered = sorted(times_ns)
    calls = len(ordered)
    return Sample(
        calls=calls,
        median_ns=statistics.median(ordered),
        p99_ns=percentile(ordered, 0.99),
        mean_ns=statistics.fmean(ordered),
        server_cpu_ns=server_cpu_ns / calls,
        client_cpu_ns=client_cpu_ns / calls,
        server_cpu_ns_a_key=server_cpu_ns / calls / max(1, keys),
    )
