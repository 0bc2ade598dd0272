"""Columns of numbers: their distinct rows, a column that grows piece by piece, and tables whose columns are handed over.

`distinct_rows` gives what np.unique(axis=1) gives, faster: where the ranges of the columns allow it they are packed into one
number, which sorts as the rows do. What the numbers mean is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.arrays.spool import Lengthening, computed, full, kept, pieces, running_count, taken, touched
from pyprof.arrays.types import Array, Ints

_FIRST_ROWS = 1 << 16


class Columns(dict[str, Array]):
    """A table that is used up on the way; its long columns lie on the disk where those are wanted there.

    A function that takes `Columns` may take columns out; one that takes a mapping or a Trace only reads.
    """

    def __setitem__(self, name: str, values: Array) -> None:
        super().__setitem__(name, kept(values))

    def take(self, name: str) -> Array:
        """Hand over a column: the table lacks it from now on, and its memory is free when its last user is done."""
        return self.pop(name)


class Distinct(NamedTuple):
    """columns: the distinct rows, ascending, one row of the array a column; first: where each stands first; inverse: for each
    row the number of its distinct one."""

    columns: Ints
    first: Ints
    inverse: Ints


def distinct_values(values: Array) -> Array:
    """The distinct values, ascending. Without counts np.unique imports numpy.ma, a tenth of the start of a command."""
    return np.unique(values, return_counts=True)[0]


def distinct_rows(*columns: npt.NDArray[Any]) -> Distinct:
    """The distinct rows of columns of equal length."""
    if not len(columns[0]):
        return Distinct(np.empty((len(columns), 0), np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
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
    there = full(size + 1, False, np.bool_)
    for part in pieces(len(places)):
        there[places[part]] = True
    there[-1] = False
    number = running_count(there)
    number -= 1
    number[-1] = -1
    return np.flatnonzero(there), taken(number, places)


def repeated(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values that stand there more than once, ascending."""
    found = np.sort(values)
    return distinct_values(found[1:][found[1:] == found[:-1]])


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
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return first, inverse.ravel()


def map_distinct(values: Ints, function: Callable[[int], int]) -> Array:
    """A function of integers applied once to each distinct value, smallest first."""
    if not len(values):
        return np.empty(0, np.int32)
    known = distinct_values(
        np.concatenate([np.empty(0, np.int64), *(_some_of_all(values[part]) for part in pieces(len(values)))])
    )
    mapped = narrowest(np.fromiter(map(function, known.tolist()), np.int64, len(known)))

    def of_part(part: slice) -> Array:
        heads = _heads(values[part])
        found = mapped[np.searchsorted(known, values[part][heads])]
        return np.repeat(found, np.diff(np.append(heads, part.stop - part.start))) if len(heads) < len(values[part]) else found

    return computed(len(values), mapped.dtype, of_part)


def _heads(values: Ints) -> Ints:
    """Where runs of one value begin: threads and processes stay the same for many rows, so that these are far fewer."""
    return np.append(0, np.flatnonzero(values[1:] != values[:-1]) + 1)


def _some_of_all(values: Ints) -> Ints:
    """The distinct values, ascending; sorted only where a sample lacks some."""
    values = values[_heads(values)]
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
    """One column that pieces are put to; as wide as the widest of them. It grows where it stands: pieces kept until they are
    joined would leave holes that no long column fits into.

    rows: about how many there will be; memory that is not written to takes none.
    """

    def __init__(self, dtype: Any, rows: int = 0) -> None:
        self._rows = 0
        self._file: Lengthening | None = None
        self._values: Array = np.empty(0, dtype)
        self._lengthen(max(rows, _FIRST_ROWS), self._values.dtype)

    def append(self, piece: Array) -> None:
        """Put numbers to the end."""
        rows = self._rows + len(piece)
        if piece.dtype.itemsize > self._values.dtype.itemsize:
            self._lengthen(len(self._values), piece.dtype)
        if rows > len(self._values):
            self._lengthen(max(rows, len(self._values) * 5 // 4), self._values.dtype)
        self._values[self._rows : rows] = piece
        self._rows = rows
        if self._file is not None:
            touched(piece.nbytes)

    def _lengthen(self, rows: int, dtype: np.dtype[Any]) -> None:
        if dtype == self._values.dtype:
            if self._file is not None:
                self._values = self._file.lengthened(rows, dtype)
                return
            self._file = Lengthening.of(rows, dtype)
            if self._file is None:
                self._values.resize(rows, refcheck=False)
                return
        else:
            self._file = Lengthening.of(rows, dtype)
        values = np.empty(rows, dtype) if self._file is None else self._file.lengthened(rows, dtype)
        for part in pieces(self._rows):
            values[part] = self._values[part]
        self._values = values

    def whole(self) -> Array:
        """All numbers; nothing can be put to them after that."""
        values, self._values = self._values, np.empty(0, self._values.dtype)
        if self._file is not None:
            self._file = None
            return values[: self._rows]
        values.resize(self._rows, refcheck=False)
        return values
