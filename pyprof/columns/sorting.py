"""Columns -> the order of their rows, their runs, and the rows of another column that hold the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pyprof.columns.distinct import row_type
from pyprof.columns.nesting import any_order, runs, stable_order
from pyprof.columns.types import Array, Bools, Integers, Ints


def order_by(first: Array, rest: Callable[[Array], Sequence[Array]]) -> Array:
    """A stable order by several columns, the first counts most. rest: gives the other columns for some rows; asked only for
    rows whose first column equals another row's."""
    order = any_order(first)
    tied, group = runs(same_as_before(first, order))
    if len(tied):
        rows = order[tied]
        order[tied] = rows[np.lexsort([rows, *reversed(rest(rows)), group])]
    return order


def same_as_before(values: Array, order: Array) -> Bools:
    """Whether each value, in this order, equals the one before it; one shorter than the order."""
    ordered = values[order]
    return np.asarray(ordered[1:] == ordered[:-1])


def places_in_runs(begins: Bools) -> Ints:
    """Each row's place in its run, from 0. begins: whether a run begins at a row, as at the first."""
    rows = np.arange(len(begins))
    return rows - np.maximum.accumulate(np.where(begins, rows, 0))


def rows_of_spans(first: Integers, last: Integers) -> tuple[Ints, Ints]:
    """All rows of the spans first:last, and before each the number of its span: 2:4, 7:8 -> (0 0 1), (2 3 7)."""
    count = last - first
    span = np.repeat(np.arange(len(count)), count)
    return span, np.arange(len(span)) - np.repeat(np.cumsum(count) - last, count)


def matching_rows(known: Array, wanted: Array, *, last: bool = False) -> Array:
    """For each wanted number the first row of `known` that equals it, or the last; -1 none."""
    order = stable_order(known)
    values, result = known[order], np.full(len(wanted), -1, row_type(len(known)))
    at = np.searchsorted(values, wanted, "right") - 1 if last else np.searchsorted(values, wanted)
    good = np.flatnonzero((at >= 0) & (at < len(values)))
    good = good[values[at[good]] == wanted[good]]
    result[good] = order[at[good]]
    return result
