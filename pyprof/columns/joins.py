"""Keys -> rows of another table with the same key, and the rows of each group."""

from __future__ import annotations

import numpy as np

from pyprof.columns.distinct import row_type
from pyprof.columns.nesting import stable_order
from pyprof.columns.types import Array, Integers, Ints


def first_rows(known: Array, wanted: Array) -> Array:
    """For each wanted number the first row of `known` that equals it, -1 none."""
    return _rows(known, wanted, last=False)


def last_rows(known: Array, wanted: Array) -> Array:
    """For each wanted number the last row of `known` that equals it, -1 none."""
    return _rows(known, wanted, last=True)


def _rows(known: Array, wanted: Array, *, last: bool) -> Array:
    order = stable_order(known)
    values, result = known[order], np.full(len(wanted), -1, row_type(len(known)))
    at = np.searchsorted(values, wanted, "right") - 1 if last else np.searchsorted(values, wanted)
    good = np.flatnonzero((at >= 0) & (at < len(values)))
    good = good[values[at[good]] == wanted[good]]
    result[good] = order[at[good]]
    return result


class RowsByGroup:
    """The rows of each group, by a group number from 0 on per row."""

    def __init__(self, number: Integers, count: int) -> None:
        self._bounds = np.append(0, np.cumsum(np.bincount(number, minlength=count)[:count])).tolist()
        self._order = None if (number[1:] >= number[:-1]).all() else stable_order(number).astype(row_type(len(number)))

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, number: int) -> Ints:
        """The rows of a group, ascending."""
        begin, end = self._bounds[number], self._bounds[number + 1]
        return np.arange(begin, end) if self._order is None else self._order[begin:end].astype(np.int64)
