"""Distinct rows: the same as numpy's own, for any columns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.parse.distinct import distinct_rows

small, wide = st.integers(-2, 5), st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.integers(0, 30).flatmap(lambda n: st.lists(st.lists(small | wide, min_size=n, max_size=n), min_size=1, max_size=4)))
def test_the_same_as_numpys(columns: list[list[int]]) -> None:
    table = np.array(columns, np.int64).reshape(len(columns), -1)
    found = distinct_rows(*table)
    if not table.shape[1]:
        assert found.columns.shape == (len(columns), 0) and not len(found.first) and not len(found.inverse)
        return
    distinct, first, inverse = np.unique(table, axis=1, return_index=True, return_inverse=True)
    assert (found.columns == distinct).all() and (found.first == first).all() and (found.inverse == inverse.ravel()).all()


def test_a_table_of_values_gives_the_same_as_sorting() -> None:
    table = np.random.default_rng(1).integers(0, 40, (2, 5000))
    found = distinct_rows(*table)
    distinct, first, inverse = np.unique(table, axis=1, return_index=True, return_inverse=True)
    assert (found.columns == distinct).all() and (found.first == first).all() and (found.inverse == inverse.ravel()).all()
