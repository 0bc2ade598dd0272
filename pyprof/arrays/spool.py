"""Columns as plain arrays, under names that others still use; each goes when its last caller does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pyprof.arrays.columns import is_constant as is_constant
from pyprof.arrays.columns import row_type as row_type
from pyprof.arrays.types import Array

PIECE_ROWS = 1 << 20
SMALL_PIECE_ROWS = 1 << 18


@contextmanager
def columns_on_disk(_folder: Path | None = None, piece_rows: int | None = None) -> Iterator[None]:
    """Does nothing."""
    yield


def on_disk() -> bool:
    """False: columns are in memory."""
    return False


def empty(rows: int, dtype: Any) -> Array:
    """np.empty."""
    return np.empty(rows, dtype)


def full(rows: int, value: Any, dtype: Any) -> Array:
    """np.full."""
    return np.full(rows, value, dtype)


def kept(values: Array) -> Array:
    """The column itself."""
    return values


def joined(parts: list[Array]) -> Array:
    """Columns one after another; the list is emptied."""
    result = parts[0] if len(parts) == 1 else np.concatenate(parts)
    parts.clear()
    return result


def piece_rows() -> int:
    """PIECE_ROWS."""
    return PIECE_ROWS


def pieces(rows: int) -> Iterator[slice]:
    """All rows at once; nothing where there are none."""
    if rows:
        yield slice(0, rows)


def computed(rows: int, dtype: Any, values: Callable[[slice], Array]) -> Array:
    """The result of a function of all rows."""
    return np.asarray(values(slice(0, rows))).astype(dtype, copy=False)


def of_parts(rows: int, dtype: Any, parts: Iterator[Array], default: Any) -> Array:
    """A column of some values after others; of one value, or of none and then the default, it takes no room."""
    same, held, result = np.broadcast_to(np.dtype(dtype).type(default), rows), 0, None
    for values in parts:
        if len(values) and not held:
            same = np.broadcast_to(values[0], rows)
        if result is None and len(values) and (values != same[0]).any():
            result = np.full(rows, same[0], dtype)
        if result is not None:
            result[held : held + len(values)] = values
        held += len(values)
    return same if result is None else result


def taken(values: Array, index: Array) -> Array:
    """values[index]; of a column of one value without making it whole first."""
    if values.strides == (0,):
        return np.full(len(index), values[0], values.dtype) if len(index) else np.empty(0, values.dtype)
    return values.take(index)


def running_count(mask: Array) -> Array:
    """How many are true up to each row, this one too."""
    return np.cumsum(mask, dtype=row_type(len(mask)))


def running_most(values: Array) -> Array:
    """The largest value up to each row, this one too."""
    return np.maximum.accumulate(values)


def touched() -> None:
    """Does nothing."""


def release() -> None:
    """Does nothing."""
