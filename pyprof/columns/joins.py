"""Numbers -> the rows of another table that have the same number."""

from __future__ import annotations

import numpy as np

from pyprof.columns.distinct import row_type
from pyprof.columns.nesting import stable_order
from pyprof.columns.types import Array


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
