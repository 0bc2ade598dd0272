"""First rows of each value, and rows of the largest values."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.columns.distinct import extent, is_first, largest

VALUES = st.one_of(st.lists(st.integers(-3, 9), max_size=40), st.lists(st.integers(-(1 << 62), 1 << 62), max_size=40))


@given(VALUES)
def test_first_rows_of_each_value(values: list[int]) -> None:
    assert is_first(np.array(values, np.int64)).tolist() == [value not in values[:at] for at, value in enumerate(values)]


@given(VALUES, st.integers(1, 8))
def test_the_largest_come_first_and_equal_ones_by_row(values: list[int], count: int) -> None:
    expected = sorted(range(len(values)), key=lambda at: (-values[at], at))[:count]
    assert largest(np.array(values, np.int64), count).tolist() == expected


@given(VALUES, st.integers(0, 8))
def test_equal_ones_in_the_order_of_another_column(values: list[int], count: int) -> None:
    ties = [at * 7 % 4 for at in range(len(values))]
    expected = sorted(range(len(values)), key=lambda at: (-values[at], ties[at], at))[:count]
    assert largest(np.array(values, np.int64), count, np.array(ties, np.int64)).tolist() == expected


@given(VALUES)
def test_the_least_and_the_greatest(values: list[int]) -> None:
    assert extent(np.array(values, np.int64)) == ((min(values), max(values)) if values else (0, -1))
