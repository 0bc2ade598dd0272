"""pyprof.arrays.joining: rows by a number in common."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.arrays.joining import chosen, copied, first_rows, last_rows, mapped, rows_where

NUMBERS = st.lists(st.integers(-3, 12), max_size=60)


@given(NUMBERS, NUMBERS)
def test_rows_of_numbers(known: list[int], wanted: list[int]) -> None:
    first = {number: row for row, number in reversed([*enumerate(known)])}
    last = {number: row for row, number in enumerate(known)}
    columns = np.array(known, np.int64), np.array(wanted, np.int32)
    assert first_rows(*columns).tolist() == [first.get(number, -1) for number in wanted]
    assert last_rows(*columns).tolist() == [last.get(number, -1) for number in wanted]


@given(NUMBERS)
def test_masks_and_codes(numbers: list[int]) -> None:
    values = np.array(numbers, np.int64)
    rows = rows_where(len(values), lambda part: values[part] > 3)
    assert rows.tolist() == np.flatnonzero(values > 3).tolist()
    assert chosen(values, lambda part: values[part] > 3).tolist() == values[values > 3].tolist()
    assert mapped(np.arange(100, dtype=np.int32), values[rows]).tolist() == values[rows].tolist()
    copy = copied(np.broadcast_to(np.int64(7), len(values)))
    copy += 1
    assert copy.tolist() == [8] * len(values)
