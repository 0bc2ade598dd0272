"""Tables of numbers, put away one after another -> the same columns, mapped from one temporary file.

For what is looked at several times, a table at a time: memory holds none of it in between. What a column means is not known
here.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from pyprof.arrays.spool import folder, pieces, watch
from pyprof.arrays.types import Array

_ALIGNED_BYTES = 8


class Shelf:
    """A temporary file of tables. Where the disk has no room for one, OSError says so."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix=".pyprof-", dir=folder())
        self._tables: list[list[tuple[int, np.dtype[Any], int]]] = []  # where, type and rows of each column

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def add(self, *columns: Array) -> None:
        """Put a table away."""
        places = []
        for column in columns:
            self._file.seek(0, 2)
            self._file.write(bytes(-self._file.tell() % _ALIGNED_BYTES))
            places.append((self._file.tell(), column.dtype, len(column)))
            for part in pieces(len(column)):
                self._file.write(np.ascontiguousarray(column[part]).data)
        self._tables.append(places)

    def __iter__(self) -> Iterator[list[Array]]:
        """The columns of each table, in the order of `add`, to be read only."""
        self._file.flush()
        if not self._file.seek(0, 2):  # which cannot be mapped
            yield from ([np.empty(0, dtype) for _, dtype, _ in places] for places in self._tables)
            return
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        watch(mapped)
        for places in self._tables:
            yield [np.frombuffer(mapped, dtype, rows, begin) for begin, dtype, rows in places]
