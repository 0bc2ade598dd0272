"""Columns -> the order of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pyprof.columns.nesting import any_order, runs
from pyprof.columns.types import Array, Bools


def ascending(values: Array) -> bool:
    """Whether the values never fall."""
    return not (values[1:] < values[:-1]).any()


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
