"""Orders, groups and functions of distinct values against numpy and plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.columns import sorting
from pyprof.columns.distinct import distinct_places, map_distinct
from pyprof.columns.nesting import any_order

NUMBERS = st.lists(st.integers(-5, 40), max_size=60).map(lambda values: np.array(values, np.int64))


@given(NUMBERS)
def test_order(values):
    order = any_order(values)
    assert sorted(order.tolist()) == list(range(len(values)))
    assert values[order].tolist() == sorted(values.tolist())
    assert sorting.ascending(values) == (values.tolist() == sorted(values.tolist()))
    same = sorting.same_as_before(values, order)
    assert same.tolist() == (np.diff(values[order]) == 0).tolist()


@given(NUMBERS, st.randoms())
def test_order_by_several_is_stable(first, random):
    second = np.array([random.randint(0, 2) for _ in first], np.int64)
    order = sorting.order_by(first, lambda rows: [second[rows]])
    assert order.tolist() == np.lexsort([second, first]).tolist()


@given(NUMBERS)
def test_distinct_places_and_functions_of_distinct_values(values):
    places, of = distinct_places(np.maximum(values, -1), 41)
    expected = sorted({*values[values >= 0].tolist()})
    assert places.tolist() == expected
    assert of.tolist() == [expected.index(value) if value >= 0 else -1 for value in values.tolist()]
    asked: list[int] = []

    def square(value: int) -> int:
        asked.append(value)
        return value * value

    assert map_distinct(values, square).tolist() == (values * values).tolist()
    assert asked == sorted({*values.tolist()}), "each once, smallest first"
