"""Distinct rows: the same as numpy's own, for any columns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.columns.distinct import among, distinct_places, distinct_rows, map_distinct, one_of

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
