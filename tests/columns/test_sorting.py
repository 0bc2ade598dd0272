"""Orders by one column and by several against numpy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.columns import sorting
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
