"""pyprof.columns.joins: rows with equal keys."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.columns.joins import first_rows, last_rows

NUMBERS = st.lists(st.integers(-3, 12), max_size=60)


@given(NUMBERS, NUMBERS)
def test_rows_of_numbers(known: list[int], wanted: list[int]) -> None:
    first = {number: row for row, number in reversed([*enumerate(known)])}
    last = {number: row for row, number in enumerate(known)}
    columns = np.array(known, np.int64), np.array(wanted, np.int32)
    assert first_rows(*columns).tolist() == [first.get(number, -1) for number in wanted]
    assert last_rows(*columns).tolist() == [last.get(number, -1) for number in wanted]
