"""Rows found by a number that they share with others; and, from `rows_where` on, names that others still use for numpy's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pyprof.arrays.columns import row_type
from pyprof.arrays.nesting import stable_order
from pyprof.arrays.types import Array, Bools


def first_rows(known: Array, wanted: Array) -> Array:
    """For each wanted number the first row of it among the known ones, -1 none."""
    return _rows(known, wanted, last=False)


def last_rows(known: Array, wanted: Array) -> Array:
    """For each wanted number the last row of it among the known ones, -1 none."""
    return _rows(known, wanted, last=True)


def _rows(known: Array, wanted: Array, *, last: bool) -> Array:
    order = stable_order(known)
    values, result = known[order], np.full(len(wanted), -1, row_type(len(known)))
    at = np.searchsorted(values, wanted, "right") - 1 if last else np.searchsorted(values, wanted)
    good = np.flatnonzero((at >= 0) & (at < len(values)))
    good = good[values[at[good]] == wanted[good]]
    result[good] = order[at[good]]
    return result


def rows_where(rows: int, chosen: Callable[[slice], Bools]) -> Array:
    """np.flatnonzero of a mask, which is asked for only where there are rows."""
    return positions(chosen(slice(0, rows)) if rows else np.empty(0, np.bool_))


def positions(mask: Bools) -> Array:
    """np.flatnonzero of a mask, in the narrowest type."""
    return np.flatnonzero(mask).astype(row_type(len(mask)))


def chosen(values: Array, which: Callable[[slice], Bools]) -> Array:
    """values[mask] of a mask that is asked for only where there are rows."""
    return values[which(slice(0, len(values)))] if len(values) else values


def mapped(codes: Array, values: Array) -> Array:
    """codes[values]."""
    return codes[values]


def copied(values: Array) -> Array:
    """A copy that can be written to."""
    return values.copy()
