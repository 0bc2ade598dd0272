"""Distinct rows as numpy finds them, first and largest values, and columns put together of pieces, as wide as they must be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.columns.distinct import (
    Growing,
    among,
    distinct_places,
    distinct_rows,
    extent,
    is_first,
    largest,
    map_distinct,
    narrowest,
    one_of,
)

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


@given(st.lists(small | wide), st.lists(small | wide))
def test_values_among_others(values: list[int], wanted: list[int]) -> None:
    found = among(np.array(values, np.int64), np.array(wanted, np.int64))
    assert found.tolist() == [value in wanted for value in values]
    for rows in (1, 1 << 20):  # by sorting, by a table where they are near each other
        found = one_of(np.array(wanted, np.int64), rows)(np.array(values, np.int64))
        assert found.tolist() == [value in wanted for value in values]


def test_rows_of_columns_of_one_value() -> None:
    found = distinct_rows(np.broadcast_to(np.int32(7), 5), np.broadcast_to(np.int64(-1), 5))
    assert found.columns.tolist() == [[7], [-1]] and found.first.tolist() == [0] and found.inverse.tolist() == [0] * 5


@given(st.lists(st.sampled_from(["bf16", "fp16", "fp32", ""])))
def test_texts_among_others(values: list[str]) -> None:
    assert among(np.array(values, np.str_), ("bf16", "fp16")).tolist() == [value in ("bf16", "fp16") for value in values]


@given(st.integers(1, 9).flatmap(lambda size: st.tuples(st.just(size), st.lists(st.integers(-1, size - 1)))))
def test_distinct_places(asked: tuple[int, list[int]]) -> None:
    size, places = asked
    distinct, which = distinct_places(np.array(places, np.int64), size)
    assert distinct.tolist() == sorted(set(places) - {-1})
    assert which.tolist() == [-1 if place < 0 else distinct.tolist().index(place) for place in places]


@given(st.lists(small | wide), st.integers(1, 400))
def test_a_function_is_asked_once_for_each_distinct_value(values: list[int], times: int) -> None:
    column = np.tile(np.array(values, np.int64), times)
    asked: list[int] = []

    def half(value: int) -> int:
        asked.append(value)
        return value // 2

    assert map_distinct(column, half).tolist() == [value // 2 for value in column.tolist()]
    assert asked == sorted(set(values))


VALUES = st.one_of(st.lists(st.integers(-3, 9), max_size=40), st.lists(st.integers(-(1 << 62), 1 << 62), max_size=40))


@given(VALUES)
def test_what_stands_there_for_the_first_time(values: list[int]) -> None:
    assert is_first(np.array(values, np.int64)).tolist() == [value not in values[:at] for at, value in enumerate(values)]


@given(VALUES, st.integers(1, 8))
def test_the_largest_come_first_and_equal_ones_as_they_stand(values: list[int], count: int) -> None:
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
