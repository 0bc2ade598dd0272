"""Columns of numbers -> their distinct rows, repeated values and largest values; a column that grows by pieces.

`distinct_rows` gives the result of np.unique(axis=1), faster: the columns are packed into one integer if their ranges allow,
which sorts as the rows do.
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


class Distinct(NamedTuple):
    """columns: the distinct rows, ascending, shape (columns, distinct rows); first: index of each one's first occurrence;
    inverse: for each row the index of its distinct row."""

    columns: Ints
    first: Ints
    inverse: Ints


def row_type(rows: int) -> type[np.signedinteger[Any]]:
    """The narrowest dtype for the numbers of `rows` rows."""
    return np.int32 if rows < 1 << 31 else np.int64


def is_constant(values: Array) -> bool:
    """Whether all values are equal; False without values."""
    return len(values) > 0 and bool(values[0] == values[-1]) and bool((values == values[0]).all())


def distinct_values(values: Array) -> Array:
    """The distinct values, ascending. np.unique without counts imports numpy.ma, a tenth of a command's start."""
    return np.unique(values, return_counts=True)[0]


def among(values: npt.NDArray[Any], wanted: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """np.isin(values, wanted), which would import numpy.ma when it sorts."""
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
    if all(column.strides == (0,) for column in columns):  # one value, broadcast
        first = np.zeros(1, np.int64)
        return Distinct(
            np.stack([column[first] for column in columns]).astype(np.int64), first, np.broadcast_to(np.int64(0), rows)
        )
    key, size = _packed(columns[0])
    for column in columns[1:]:
        values, width = _packed(column)
        if size * width >= 1 << 62:  # too wide: replace the key by the rank of its distinct values
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
    """Distinct indices below `size`, ascending, without -1; and for each index its position among them, -1 for -1."""
    there = np.zeros(size + 1, np.bool_)
    there[places] = True
    there[-1] = False
    number = np.cumsum(there, dtype=row_type(size + 1))
    number -= 1
    number[-1] = -1
    return np.flatnonzero(there), number.take(places)


def extent(values: Array) -> tuple[int, int]:
    """(minimum, maximum) of integers; (0, -1) if there are none."""
    return (int(values.min()), int(values.max())) if len(values) else (0, -1)


def repeated(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values that occur more than once, ascending."""
    rows = len(values)
    low, high = extent(values)
    if high - low >= 4 * rows:
        found = np.sort(values)
        return distinct_values(found[1:][found[1:] == found[:-1]])
    last = np.empty(high - low + 1, row_type(rows))  # last row of each value: other rows of that value differ from it
    numbers = np.arange(rows, dtype=last.dtype)
    last[values - low] = numbers
    return distinct_values(values[last[values - low] != numbers])


def is_first(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether each row is the first with its value."""
    rows = len(values)
    low, high = extent(values)
    result = np.zeros(rows, np.bool_)
    if high - low >= 4 * rows:
        result[np.unique(values, return_index=True)[1]] = True
        return result
    place, numbers = np.empty(high - low + 1, row_type(rows)), values.astype(np.int64) - low
    place[numbers[::-1]] = np.arange(rows - 1, -1, -1)  # of equal values the first row is written last
    result[place[numbers]] = True
    return result


def largest(values: npt.NDArray[Any], count: int, *ties: npt.NDArray[Any]) -> Ints:
    """Rows of the `count` largest values, largest first; equal values in ascending order of `ties`, then of rows."""
    found, own = np.arange(len(values)), values.astype(np.int64)
    if len(found) > count > 0:
        enough = own >= np.partition(own, len(own) - count)[len(own) - count]
        found, own = found[enough], own[enough]
    return found[np.lexsort([*(tie[found] for tie in ties[::-1]), -own])[:count]]


def is_repeated(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether each row's value occurs more than once."""
    return one_of(repeated(values), len(values))(values)


def one_of(wanted: npt.NDArray[Any], rows: int) -> Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]:
    """A function like np.isin(values, wanted), by a lookup table if that pays off for `rows` rows in all."""
    if not len(wanted):
        return lambda values: np.zeros(len(values), np.bool_)
    low, high = int(wanted.min()), int(wanted.max())
    if high - low >= 4 * rows:
        return lambda values: among(values, wanted)
    marks = np.zeros(high - low + 3, np.bool_)  # with one entry below and one above
    marks[wanted - low + 1] = True
    return lambda values: np.asarray(marks.take(np.clip(values - low + 1, 0, high - low + 2)))


def _packed(column: Array) -> tuple[Ints, int]:
    """A copy of the column shifted to begin at 0, and the size of its range."""
    low, high = int(column.min()), int(column.max())
    if high - low >= 1 << 62:
        _, inverse = np.unique(column, return_inverse=True)
        return inverse.ravel(), len(column)
    return np.subtract(column, low, dtype=np.int64), high - low + 1


def _first_and_inverse(key: Ints, size: int) -> tuple[Ints, Ints]:
    rows = len(key)
    if size <= 4 * rows:  # a table of all values is faster than sorting
        narrow = row_type(rows)
        where: Array = np.full(size, -1, narrow)
        where[key[::-1]] = np.arange(rows - 1, -1, -1, dtype=narrow)
        present = where >= 0
        number: Array = np.cumsum(present, dtype=narrow)
        number -= 1
        return where[present].astype(np.int64), number[key].astype(np.int64)
    if rows >= _HASHED_ROWS and "pyarrow" in sys.modules and len(distinct_values(key[:: max(rows // 1024, 1)])) < 512:
        return _hashed(key)  # several times as fast as sorting if many are equal
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return first, inverse.ravel()


def _hashed(key: Ints) -> tuple[Ints, Ints]:
    """As `_first_and_inverse`, by Arrow's hash table."""
    from pyprof.columns.arrow import to_arrow, to_numpy

    found = to_arrow(key).dictionary_encode()
    values, codes = to_numpy(found.dictionary), to_numpy(found.indices)
    first = np.empty(len(values), np.int64)
    first[codes[::-1]] = np.arange(len(key) - 1, -1, -1)
    order = np.argsort(values)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return first[order], number[codes]


def map_distinct(values: Array, function: Callable[[int], int]) -> Array:
    """A function of integers applied once to each distinct value, smallest first."""
    found = distinct_rows(values)
    known = found.columns[0].tolist()
    return narrowest(np.fromiter(map(function, known), np.int64, len(known)))[found.inverse]


def narrowest(values: Array) -> Array:
    """An int32 copy if all numbers fit, else the array itself."""
    limits = np.iinfo(np.int32)
    if not len(values) or (values.min() >= limits.min and values.max() <= limits.max):
        return values.astype(np.int32)
    return values


class Growing:
    """A column that grows by pieces, with the widest of their dtypes. It is resized in place: a list of pieces to concatenate
    later would fragment memory.

    rows: expected length; memory that is never written costs nothing.
    """

    def __init__(self, dtype: Any, rows: int = 0) -> None:
        self._rows = 0
        self._values: Array = np.empty(max(rows, _FIRST_ROWS), dtype)

    def append(self, piece: Array) -> None:
        """Append numbers."""
        if piece.dtype.itemsize > self._values.dtype.itemsize:
            self._values = self._values.astype(piece.dtype)
        rows = self._rows + len(piece)
        if rows > len(self._values):
            self._values.resize(max(rows, len(self._values) * 5 // 4), refcheck=False)
        self._values[self._rows : rows] = piece
        self._rows = rows

    def whole(self) -> Array:
        """The whole column; ends the growing."""
        values, self._values = self._values, np.empty(0, self._values.dtype)
        values.resize(self._rows, refcheck=False)
        return values
