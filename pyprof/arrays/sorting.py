"""Orders and groups of rows by their values; `cuts_of` and `parts_of` are names that others still use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pyprof.arrays.columns import row_type
from pyprof.arrays.nesting import any_order, runs, stable_order
from pyprof.arrays.types import Array, Bools, Integers, Ints


def ascending(values: Array) -> bool:
    """Whether no value is less than the one before it."""
    return not (values[1:] < values[:-1]).any()


def order_by(first: Array, rest: Callable[[Array], Sequence[Array]]) -> Array:
    """The rows in ascending order of several columns, the first counts most, and of equal ones in their own; rest: the others
    of some rows, asked only for those that have the first in common with another."""
    order = any_order(first)
    tied, group = runs(same_as_before(first, order))
    if len(tied):
        rows = order[tied]
        order[tied] = rows[np.lexsort([rows, *reversed(rest(rows)), group])]
    return order


def same_as_before(values: Array, order: Array) -> Bools:
    """For each place of an order but the first whether its value is that of the place before it."""
    ordered = values[order]
    return np.asarray(ordered[1:] == ordered[:-1])


def cuts_of(values: Array, _most: int) -> Array:
    """No value parts the rows: they are looked at together."""
    return values[:0]


def parts_of(values: Array, cuts: Array) -> Array:
    """The number of each row's part; a cut begins the part after it."""
    if not len(cuts):
        return np.broadcast_to(np.int16(0), len(values))
    return np.searchsorted(cuts, values, "right").astype(np.int16 if len(cuts) < 1 << 15 else np.int32)


class Groups:
    """Rows by a small number that each has, from 0 on, in their order within each group."""

    def __init__(self, number: Integers, count: int) -> None:
        self._bounds = np.append(0, np.cumsum(np.bincount(number, minlength=count)[:count])).tolist()
        self._order = None if ascending(number) else stable_order(number).astype(row_type(len(number)))

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, number: int) -> Ints:
        """The rows of a group, ascending."""
        begin, end = self._bounds[number], self._bounds[number + 1]
        return np.arange(begin, end) if self._order is None else self._order[begin:end].astype(np.int64)

    def long(self, number: int) -> Array:
        """The same."""
        return self[number]

    def all(self) -> Array:
        """The rows of all groups one after another."""
        return np.arange(self._bounds[-1]) if self._order is None else self._order
