"""Rows found by a number that they share with others, of columns longer than what is sorted at once.

Both columns are parted by value, and each part of the one is looked up in the same part of the other. What the numbers mean is
not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pyprof.arrays.columns import Growing
from pyprof.arrays.sorting import Groups, cuts_of, parts_of
from pyprof.arrays.spool import PIECE_ROWS, computed, empty, pieces, release, row_type
from pyprof.arrays.types import Array, Bools


def first_rows(known: Array, wanted: Array) -> Array:
    """For each wanted number the first row of it among the known ones, -1 none."""
    return _rows(known, wanted, last=False)


def last_rows(known: Array, wanted: Array) -> Array:
    """For each wanted number the last row of it among the known ones, -1 none."""
    return _rows(known, wanted, last=True)


def _rows(known: Array, wanted: Array, *, last: bool) -> Array:
    result = empty(len(wanted), row_type(len(known)))
    cuts = cuts_of(known, PIECE_ROWS)
    of_known, of_wanted = Groups(parts_of(known, cuts), len(cuts) + 1), Groups(parts_of(wanted, cuts), len(cuts) + 1)
    for number in range(len(cuts) + 1):
        rows = of_known[number]
        values = known[rows]
        order = np.argsort(values, kind="stable")
        values, rows = values[order], rows[order]
        for asked in _parts(of_wanted[number]):
            numbers = wanted[asked]
            at = np.searchsorted(values, numbers, "right") - 1 if last else np.searchsorted(values, numbers)
            good = (at >= 0) & (at < len(values))
            good[good] = values[at[good]] == numbers[good]
            found = np.full(len(asked), -1, result.dtype)
            found[good] = rows[at[good]]
            result[asked] = found
        release()
    return result


def _parts(rows: Array) -> Iterator[Array]:
    return (rows[part] for part in pieces(len(rows)))


def rows_where(rows: int, chosen: Callable[[slice], Bools]) -> Array:
    """np.flatnonzero of a mask that is computed for some rows at a time."""
    found = Growing(row_type(rows))
    for part in pieces(rows):
        found.append((np.flatnonzero(chosen(part)) + part.start).astype(row_type(rows)))
    return found.whole()


def positions(mask: Bools) -> Array:
    """np.flatnonzero of a mask, in the narrowest type."""
    return rows_where(len(mask), lambda part: np.asarray(mask[part]))


def chosen(values: Array, which: Callable[[slice], Bools]) -> Array:
    """values[mask] of a mask that is computed for some rows at a time."""
    found = Growing(values.dtype)
    for part in pieces(len(values)):
        found.append(values[part][which(part)])
    return found.whole()


def mapped(codes: Array, values: Array) -> Array:
    """codes[values], some rows at a time."""
    return computed(len(values), codes.dtype, lambda part: codes[values[part]])


def copied(values: Array) -> Array:
    """A copy that can be written to."""
    result = empty(len(values), values.dtype)
    for part in pieces(len(values)):
        result[part] = values[part]
    return result


def highest(values: Array, least: int) -> int:
    """The largest of the values and of `least`."""
    return max([least, *(int(values[part].max()) for part in pieces(len(values)) if len(values))])
