"""Rows by a number in common, and orders by one column and by several, against numpy and plain Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.columns import sorting
from pyprof.columns.nesting import any_order
from pyprof.columns.sorting import matching_rows

NUMBERS = st.lists(st.integers(-3, 12), max_size=60)


@given(NUMBERS, NUMBERS)
def test_rows_of_numbers(known: list[int], wanted: list[int]) -> None:
    first = {number: row for row, number in reversed([*enumerate(known)])}
    last = {number: row for row, number in enumerate(known)}
    columns = np.array(known, np.int64), np.array(wanted, np.int32)
    assert matching_rows(*columns).tolist() == [first.get(number, -1) for number in wanted]
    assert matching_rows(*columns, last=True).tolist() == [last.get(number, -1) for number in wanted]


ARRAYS = st.lists(st.integers(-5, 40), max_size=60).map(lambda values: np.array(values, np.int64))


@given(ARRAYS)
def test_order(values):
    order = any_order(values)
    assert sorted(order.tolist()) == list(range(len(values)))
    assert values[order].tolist() == sorted(values.tolist())
    same = sorting.same_as_before(values, order)
    assert same.tolist() == (np.diff(values[order]) == 0).tolist()


@given(ARRAYS, st.randoms())
def test_order_by_several_is_stable(first, random):
    second = np.array([random.randint(0, 2) for _ in first], np.int64)
    order = sorting.order_by(first, lambda rows: [second[rows]])
    assert order.tolist() == np.lexsort([second, first]).tolist()
