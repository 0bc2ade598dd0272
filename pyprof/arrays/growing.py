"""Pieces of columns -> columns, in as little memory as their numbers allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Growing", "narrowest"]

Array = npt.NDArray[Any]
_FIRST_ROWS = 1 << 16


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
        self._values: Array = np.empty(max(rows, _FIRST_ROWS), dtype)
        self._rows = 0

    def append(self, piece: Array) -> None:
        """Put numbers to the end."""
        rows = self._rows + len(piece)
        if piece.dtype.itemsize > self._values.dtype.itemsize:
            wider = np.empty(len(self._values), piece.dtype)
            wider[: self._rows] = self._values[: self._rows]
            self._values = wider
        if rows > len(self._values):
            self._values.resize(max(rows, len(self._values) * 5 // 4), refcheck=False)
        self._values[self._rows : rows] = piece
        self._rows = rows

    def whole(self) -> Array:
        """All numbers; nothing can be put to them after that."""
        values, self._values = self._values, np.empty(0, self._values.dtype)
        values.resize(self._rows, refcheck=False)
        return values
