"""Which ranges are set aside so that the rest nests, and which range is innermost, against a check of every pair."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.columns.nesting import any_order, crossing, nest, sort_ranges

_RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 3)), max_size=14)


def _cross(one: tuple[int, int], other: tuple[int, int]) -> bool:
    (_, b), (c, d) = sorted([one, other], key=lambda r: (r[0], -r[1]))
    return c < b < d


@given(_RANGES)
def test_what_stays_nests_and_what_goes_crosses_something_no_lighter(drawn: list[tuple[int, int, int]]) -> None:
    start, length, weight = (np.array([r[i] for r in drawn], np.int64) for i in range(3))
    order = sort_ranges(start, start + length)
    start, end, weight = start[order], (start + length)[order], weight[order]
    aside = crossing(start, end, weight)
    ranges = list(zip(start.tolist(), end.tolist(), strict=True))
    kept = [i for i in range(len(ranges)) if not aside[i]]
    assert not any(_cross(ranges[i], ranges[j]) for i in kept for j in kept)
    for i in np.flatnonzero(aside).tolist():
        assert any(_cross(ranges[i], ranges[j]) and weight[j] >= weight[i] for j in range(len(ranges)))
    heaviest = [i for i in range(len(ranges)) if weight[i] == weight.max(initial=0)]
    for i in heaviest:  # only another of the heaviest sets one of them aside
        assert not aside[i] or any(_cross(ranges[i], ranges[j]) for j in heaviest)


@given(_RANGES, st.lists(st.integers(-1, 45), max_size=8))
def test_innermost_is_the_shortest_range_open_then(drawn: list[tuple[int, int, int]], times: list[int]) -> None:
    start, length = (np.array([r[i] for r in drawn], np.int64) for i in range(2))
    order = sort_ranges(start, start + length)
    start, end = start[order], (start + length)[order]
    kept = ~crossing(start, end, np.zeros(len(start), np.int64))
    start, end = start[kept], end[kept]
    found = nest(start, end).innermost(np.array(times, np.int64))
    for time, position in zip(times, found.tolist(), strict=True):
        around = [i for i in range(len(start)) if start[i] <= time < end[i]]
        assert position == (max(around) if around else -1)


@pytest.mark.parametrize("falls", [0, 1, 5, 500])
def test_order_of_values_that_are_nearly_sorted(falls: int) -> None:
    random = np.random.default_rng(falls)
    values = np.arange(1000) // 3
    values[random.integers(0, 1000, falls)] = -1
    order = any_order(values)
    assert sorted(order.tolist()) == list(range(1000))
    assert values[order].tolist() == sorted(values.tolist())
