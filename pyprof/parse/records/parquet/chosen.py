"""Positions of rows in a file -> where they lie in its row groups, so that others need not be read. No Arrow here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.arrays.types import Array, Ints


class Piece(NamedTuple):
    """The chosen rows of one row group. part: which of the chosen these are, in the order of the file; rows: which of the row
    group, a slice where they follow one another."""

    group: int
    part: slice
    rows: slice | Ints

    def of(self, values: Array) -> Array:
        """These rows of a column of the row group; of one value for all rows it takes no room."""
        if values.strides == (0,):
            return np.broadcast_to(values[0], self.part.stop - self.part.start)
        found: Array = values[self.rows] if isinstance(self.rows, slice) else values.take(self.rows)
        return found


class Chosen:
    """Some rows of a file."""

    def __init__(self, begins: Ints, rows: slice | Array) -> None:
        """begins: of the row groups, and the end of the last. rows: positions in the file, in any order."""
        self._begins, self._order = begins, None
        if isinstance(rows, slice):
            self._rows: Array = np.empty(0, np.int64)
            self._first: int | None = rows.start
            self._edges: Ints = np.clip(begins, rows.start, rows.stop) - rows.start
            return
        if (rows[1:] < rows[:-1]).any():
            self._order = np.argsort(rows, kind="stable")
            rows = rows[self._order]
        self._rows, self._first = rows, None
        self._edges = np.searchsorted(rows, begins.astype(rows.dtype))

    def __iter__(self) -> Iterator[Piece]:
        """The row groups that hold chosen rows, in the order of the file."""
        for group in np.flatnonzero(np.diff(self._edges)).tolist():
            part = slice(*self._edges[group : group + 2].tolist())
            yield Piece(group, part, self._within(part, int(self._begins[group])))

    def _within(self, part: slice, begin: int) -> slice | Ints:
        """These of the rows, counted from the begin of their row group."""
        count = part.stop - part.start
        if self._first is not None:
            first = self._first + part.start - begin
            return slice(first, first + count)
        rows = self._rows[part]
        first = int(rows[0]) - begin
        if int(rows[-1]) - begin == first + count - 1 and (rows[1:] > rows[:-1]).all():
            return slice(first, first + count)
        inner: Ints = rows - rows.dtype.type(begin)
        return inner

    @property
    def ascending(self) -> bool:
        """Whether the rows were given in the order of the file."""
        return self._order is None

    @property
    def back(self) -> Ints:
        """For each row as it was given its place in the order of the file."""
        count = int(self._edges[-1])
        if self._order is None:
            return np.arange(count)
        places = np.empty(count, np.int64)
        places[self._order] = np.arange(count)
        return places
