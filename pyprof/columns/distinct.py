"""Columns of numbers: their distinct rows, and a column that grows piece by piece.

`distinct_rows` gives what np.unique(axis=1) gives, faster: where the ranges of the columns allow it they are packed into one
number, which sorts as the rows do. What the numbers mean is not known here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.columns.types import Array, Ints

_FIRST_ROWS = 1 << 16
_HASHED_ROWS = 1 << 14
_MOST_LOOKED_UP = 1 << 20  # numbers in a table


class Distinct(NamedTuple):
    """columns: the distinct rows, ascending, one row of the array a column; first: where each stands first; inverse: for each
    row the number of its distinct one."""

    columns: Ints
    first: Ints
    inverse: Ints


def row_type(rows: int) -> type[np.signedinteger[Any]]:
    """The narrowest type for numbers of so many rows."""
    return np.int32 if rows < 1 << 31 else np.int64


def is_constant(values: Array) -> bool:
    """Whether there are rows, all with one value."""
    return len(values) > 0 and bool(values[0] == values[-1]) and bool((values == values[0]).all())


def distinct_values(values: Array) -> Array:
    """The distinct values, ascending. Without counts np.unique imports numpy.ma, a tenth of the start of a command."""
    return np.unique(values, return_counts=True)[0]


def among(values: npt.NDArray[Any], wanted: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Whether each value is a wanted one. Where np.isin sorts, it imports numpy.ma."""
    known = distinct_values(np.asarray(wanted))
    if not len(known):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return np.asarray(known[at] == values)


def distinct_rows(*columns: npt.NDArray[Any]) -> Distinct:
    """The distinct rows of columns of equal length."""
    if not len(columns[0]):
        return Distinct(np.empty((len(columns), 0), np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
    rows = len(columns[0])
    if all(column.strides == (0,) for column in columns):  # of one value for all rows
        first = np.zeros(1, np.int64)
        return Distinct(
            np.stack([column[first] for column in columns]).astype(np.int64), first, np.broadcast_to(np.int64(0), rows)
        )
    key, size = _packed(columns[0])
    for column in columns[1:]:
        values, width = _packed(column)
        if size * width >= 1 << 62:  # too wide together: numbers of the distinct ones so far take no more than rows
            _, inverse = np.unique(key, return_inverse=True)
            key, size = inverse.ravel(), len(key)
            if size * width >= 1 << 62:
                _, inverse = np.unique(values, return_inverse=True)
                values, width = inverse.ravel(), len(key)
        key *= width
        key += values
        size *= width
    first, inverse = _first_and_inverse(key, size)
    return Distinct(np.stack([*map(itemgetter(first), columns)]).astype(np.int64), first, inverse)


def distinct_places(places: npt.NDArray[Any], size: int) -> tuple[Ints, Ints]:
    """The distinct numbers from 0 to size - 1, ascending without -1, and for each the index of its own, -1 for -1."""
    there = np.zeros(size + 1, np.bool_)
    there[places] = True
    there[-1] = False
    number = np.cumsum(there, dtype=row_type(size + 1))
    number -= 1
    number[-1] = -1
    return np.flatnonzero(there), number.take(places)


def extent(values: Array) -> tuple[int, int]:
    """The least and the greatest of some whole numbers; 0 and -1 of none."""
    own = values[:]
    return (int(own.min()), int(own.max())) if len(own) else (0, -1)


def repeated(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values that stand there more than once, ascending."""
    rows = len(values)
    low, high = extent(values)
    if high - low >= 4 * rows:
        found = np.sort(values)
        return distinct_values(found[1:][found[1:] == found[:-1]])
    last = np.empty(high - low + 1, row_type(rows))  # the last row of each value, which others of the same value are not
    numbers = np.arange(rows, dtype=last.dtype)
    last[values - low] = numbers
    return distinct_values(values[last[values - low] != numbers])


def is_first(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether each value stands there for the first time."""
    rows = len(values)
    low, high = extent(values)
    result = np.zeros(rows, np.bool_)
    if high - low >= 4 * rows:
        result[np.unique(values, return_index=True)[1]] = True
        return result
    place, numbers = np.empty(high - low + 1, row_type(rows)), values.astype(np.int64) - low
    place[numbers[::-1]] = np.arange(rows - 1, -1, -1)  # the last written of equals is their first
    result[place[numbers]] = True
    return result


def largest(values: npt.NDArray[Any], count: int, *ties: npt.NDArray[Any]) -> Ints:
    """The rows of the largest values, the largest first, equal ones in the order of `ties`, else as they stand; at most so
    many."""
    found, own = np.arange(len(values)), values.astype(np.int64)
    if len(found) > count > 0:
        enough = own >= np.partition(own, len(own) - count)[len(own) - count]
        found, own = found[enough], own[enough]
    return found[np.lexsort([*(tie[found] for tie in ties[::-1]), -own])[:count]]


def is_repeated(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether each value stands there more than once."""
    return one_of(repeated(values), len(values))(values)


def one_of(wanted: npt.NDArray[Any], rows: int) -> Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]:
    """Whether each value is a wanted one, asked for so many rows in all: by a table where that is not much longer."""
    if not len(wanted):
        return lambda values: np.zeros(len(values), np.bool_)
    low, high = int(wanted.min()), int(wanted.max())
    if high - low >= 4 * rows:
        return lambda values: among(values, wanted)
    marks = np.zeros(high - low + 3, np.bool_)  # plus one place for values below and one for values above
    marks[wanted - low + 1] = True
    return lambda values: np.asarray(marks.take(np.clip(values - low + 1, 0, high - low + 2)))


def _packed(column: Array) -> tuple[Ints, int]:
    """A copy of the column from 0 on, and how many values it could have."""
    low, high = int(column.min()), int(column.max())
    if high - low >= 1 << 62:
        _, inverse = np.unique(column, return_inverse=True)
        return inverse.ravel(), len(column)
    return np.subtract(column, low, dtype=np.int64), high - low + 1


def _first_and_inverse(key: Ints, size: int) -> tuple[Ints, Ints]:
    rows = len(key)
    if size <= 4 * rows:  # a table of all values instead of sorting
        narrow = np.dtype(np.int32 if rows < 1 << 31 else np.int64)
        where: Array = np.full(size, -1, narrow)
        where[key[::-1]] = np.arange(rows - 1, -1, -1, dtype=narrow)
        present = where >= 0
        number: Array = np.cumsum(present, dtype=narrow)
        number -= 1
        return where[present].astype(np.int64), number[key].astype(np.int64)
    if rows >= _HASHED_ROWS and "pyarrow" in sys.modules and len(distinct_values(key[:: max(rows // 1024, 1)])) < 512:
        return _hashed(key)  # several times as fast as sorting where many are equal
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return first, inverse.ravel()


def encoded(values: Ints) -> tuple[Ints, Array]:
    """The distinct values in any order, and of each row the place of its own among them."""
    if "pyarrow" not in sys.modules:
        known, places = np.unique(values, return_inverse=True)
        return known, places.ravel()
    from pyprof.columns.arrow import to_arrow, to_numpy

    found = to_arrow(values).dictionary_encode()
    return to_numpy(found.dictionary), to_numpy(found.indices)


def _hashed(key: Ints) -> tuple[Ints, Ints]:
    """As `_first_and_inverse`, by a table of hashes."""
    values, codes = encoded(key)
    first = np.empty(len(values), np.int64)
    first[codes[::-1]] = np.arange(len(key) - 1, -1, -1)
    order = np.argsort(values)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return first[order], number[codes]


def map_distinct(values: Array, function: Callable[[int], int]) -> Array:
    """A function of integers applied once to each distinct value, smallest first."""
    if not len(values):
        return np.empty(0, np.int32)
    known = _some_of_all(values)
    mapped = narrowest(np.fromiter(map(function, known.tolist()), np.int64, len(known)))
    heads = _heads(values)
    found, low, width = values[heads], int(known[0]), int(known[-1]) - int(known[0]) + 1
    if width <= min(len(values), _MOST_LOOKED_UP):  # numbers that lie so close are places in a table
        table = np.zeros(width, mapped.dtype)
        table[known.astype(np.int64) - low] = mapped
        found = table.take(found.astype(np.int64) - low)
    else:
        found = mapped[np.searchsorted(known, found)]
    return np.repeat(found, np.diff(np.append(heads, len(values)))) if len(heads) < len(values) else found


def _heads(values: Ints) -> Ints:
    """Where runs of one value begin: threads and processes stay the same for many rows, so that these are far fewer."""
    return np.append(0, np.flatnonzero(values[1:] != values[:-1]) + 1)


def _some_of_all(values: Ints) -> Ints:
    """The distinct values, ascending; sorted only where they are far apart and a sample lacks some."""
    values = values[_heads(values)]
    least, most = int(values.min()), int(values.max())
    if most - least < 4 * len(values) + 1024:
        there = np.zeros(most - least + 1, np.bool_)
        there[values.astype(np.int64) - least] = True
        return np.flatnonzero(there) + least
    known = distinct_values(values[:: max(len(values) // 1024, 1)])
    if len(known) < 256:
        place = np.searchsorted(known, values)
        if (known[np.minimum(place, len(known) - 1)] == values).all():
            return known
    return distinct_values(values)


def narrowest(values: Array) -> Array:
    """A copy in 32 bits where all numbers fit, else the same array."""
    limits = np.iinfo(np.int32)
    if not len(values) or (values.min() >= limits.min and values.max() <= limits.max):
        return values.astype(np.int32)
    return values


class Growing:
    """A column built by appending pieces, as wide as the widest of them. It grows in place: freeing separate pieces after
    joining them would leave memory too fragmented for a long column.

    rows: the expected number; memory that is never written to costs nothing.
    """

    def __init__(self, dtype: Any, rows: int = 0) -> None:
        self._rows = 0
        self._values: Array = np.empty(max(rows, _FIRST_ROWS), dtype)

    def append(self, piece: Array) -> None:
        """Put numbers to the end."""
        if piece.dtype.itemsize > self._values.dtype.itemsize:
            self._values = self._values.astype(piece.dtype)
        rows = self._rows + len(piece)
        if rows > len(self._values):
            self._values.resize(max(rows, len(self._values) * 5 // 4), refcheck=False)
        self._values[self._rows : rows] = piece
        self._rows = rows

    def whole(self) -> Array:
        """All numbers; nothing can be put to them after that."""
        values, self._values = self._values, np.empty(0, self._values.dtype)
        values.resize(self._rows, refcheck=False)
        return values
