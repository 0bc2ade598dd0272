"""Orders of rows by their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pyprof.columns.nesting import any_order, runs
from pyprof.columns.types import Array, Bools


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
    """Whether each value in this order, from the second on, equals the one before it."""
    ordered = values[order]
    return np.asarray(ordered[1:] == ordered[:-1])
