"""Medians, quartiles, ratios and percentiles of the benchmarks, by hand-made numbers."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.figures import Spread, percentile, ratios, sample_of, spread

TIMES = st.lists(st.floats(1, 1e9), min_size=1, max_size=50)


def test_quartiles_of_eleven_rounds_are_rounds() -> None:
    assert spread([11, 1, 2, 10, 3, 9, 4, 8, 5, 7, 6]) == Spread(3.5, 6, 8.5)
    assert spread([1, 2, 3, 4, 5]) == Spread(2, 3, 4)


def test_quartiles_of_an_even_count_are_interpolated() -> None:
    assert spread([1, 2, 3, 4]) == Spread(1.75, 2.5, 3.25)
    assert spread([1, 3]) == Spread(1.5, 2, 2.5)


def test_one_round_is_its_own_quartiles() -> None:
    assert spread([7.0]) == Spread(7, 7, 7)


def test_no_rounds_have_no_spread() -> None:
    with pytest.raises(ValueError, match="no values"):
        spread([])


@given(TIMES)
def test_quartiles_are_in_order_and_within_the_values(values: list[float]) -> None:
    low, median, high = spread(values)
    assert min(values) <= low <= median <= high <= max(values) or len(set(values)) == 1
    assert median == pytest.approx(statistics.median(values))


def test_ratios_pair_the_rounds() -> None:
    """Load that slowed a whole round cancels out; a ratio of the two medians would say 0.1."""
    ours, theirs = [1.0, 10.0, 100.0], [2.0, 20.0, 200.0]
    assert ratios(ours, theirs) == Spread(0.5, 0.5, 0.5)
    assert ratios([1.0, 100.0, 10.0], [100.0, 100.0, 1.0]).median == 1.0


def test_ratios_of_unequal_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rounds of ours and 1"):
        ratios([1.0, 2.0], [1.0])


def test_percentile_is_a_value_that_was_seen() -> None:
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 0.99) == 99
    assert percentile(values, 0.5) == 50
    assert percentile(values, 1.0) == 100
    assert percentile([5.0], 0.99) == 5
    assert percentile([1.0, 2.0], 0.99) == 2


def test_a_sample_divides_cpu_time_by_calls_and_keys() -> None:
    sample = sample_of([30.0, 10.0, 20.0], server_cpu_ns=600, client_cpu_ns=300, keys=10)
    assert (sample.calls, sample.median_ns, sample.p99_ns, sample.mean_ns) == (3, 20, 30, 20)
    assert (sample.server_cpu_ns, sample.client_cpu_ns, sample.server_cpu_ns_a_key) == (200, 100, 20)
