"""A growing column is its pieces end to end, in the widest dtype of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.columns.distinct import Growing, narrowest

NUMBERS = st.one_of(st.integers(-5, 5), st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1))


@given(st.lists(NUMBERS))
def test_a_column_is_in_32_bits_where_all_of_it_fits(numbers: list[int]) -> None:
    column = np.array(numbers, np.int64)
    found = narrowest(column)
    assert found.tolist() == numbers
    fits = all(-(1 << 31) <= number < 1 << 31 for number in numbers)
    assert found.dtype == (np.int32 if fits else np.int64)


@given(st.lists(st.lists(NUMBERS, max_size=5)), st.integers(0, 8))
def test_pieces_stand_end_to_end(pieces: list[list[int]], rows: int) -> None:
    column = Growing(np.int32, rows)
    for piece in pieces:
        column.append(narrowest(np.array(piece, np.int64)))
    assert column.whole().tolist() == [number for piece in pieces for number in piece]


def test_a_column_grows_beyond_what_was_expected() -> None:
    column = Growing(np.int32, 10)
    pieces = [np.arange(n, n + 50_000, dtype=np.int32) for n in range(0, 400_000, 50_000)]
    for piece in pieces:
        column.append(piece)
    column.append(np.array([1 << 40]))
    whole = column.whole()
    assert len(whole) == 400_001 and (whole[:-1] == np.arange(400_000)).all() and whole[-1] == 1 << 40


@pytest.mark.parametrize("expected", [0, 100_000, 3_000_000])
@pytest.mark.parametrize("wide_at", [0, 1, 20, 39])
def test_a_column_becomes_wider_on_the_way(expected: int, wide_at: int) -> None:
    pieces = [np.arange(n, n + 50_000, dtype=np.int32) for n in range(0, 2_000_000, 50_000)]
    pieces[wide_at] = pieces[wide_at].astype(np.int64) + (1 << 40)
    column = Growing(np.int32, expected)
    for piece in pieces:
        column.append(piece)
    whole = column.whole()
    assert whole.dtype == np.int64 and (whole == np.concatenate(pieces)).all()
    whole[5] = -1  # it can be written to
    assert len(Growing(np.int32, expected).whole()) == 0
