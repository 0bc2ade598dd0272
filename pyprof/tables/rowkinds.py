"""Columns -> the kinds of their rows: rows that are equal in many columns, so that the text of these is made once for them all.

Which columns, the first rows of a table decide: those of few distinct values as long as there are few kinds. Whatever the
choice, a row's kind tells its values exactly. What the values mean is not known here. Imported only where pyarrow is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pyprof.arrays.arrow import to_arrow, to_numpy
from pyprof.arrays.spool import is_constant
from pyprof.arrays.types import Array, Ints
from pyprof.tables.table import Fractions, Texts, Values

_FEW = 6  # rows a kind, at least, where columns are chosen
_MANY = 3  # rows a kind below which one column less is taken
_FACTOR = np.int64(-7046029254386353131)  # odd, with bits all over: products that overflow stay different


class Kinds(NamedTuple):
    """columns: the places of those that a row's kind tells; first: for each kind a row of it; kind: of each row."""

    columns: Sequence[int]
    first: Ints
    kind: Ints


class Chosen:
    """The columns that kinds are made of, for the parts of one table."""

    def __init__(self) -> None:
        self._columns: list[int] | None = None

    def kinds(self, values: Sequence[Values]) -> Kinds:
        """The kinds of some rows."""
        rows = len(values[0].unknown)
        if self._columns is None:
            self._columns = _choice(values)
        numbers = {at: _numbers(values[at]) for at in self._columns}
        while True:
            first, code = distinct(_mixed([numbers[at] for at in self._columns], rows))
            if len(first) * _MANY <= rows or not self._columns:
                break
            self._columns.pop()
        # Different rows may be mixed to the same number: a column that differs within a kind is not told by it.
        kind = code.astype(np.int64)

        def tells(column: list[Ints] | None) -> bool:
            return column is not None and all(bool((n[first].take(kind) == n).all()) for n in column)

        return Kinds(sorted(at for at, column in numbers.items() if at in self._columns and tells(column)), first, kind)


def distinct(numbers: Ints) -> tuple[Ints, Ints]:
    """Where each distinct number stands first or later, and for each number which of these it is."""
    codes = to_numpy(to_arrow(numbers).dictionary_encode().indices)
    first = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    first[codes] = np.arange(len(codes))
    return first, codes


def _numbers(values: Values) -> list[Ints] | None:
    """Numbers that are equal where a column prints the same, but for those that are equal everywhere; None where such cannot be
    had."""
    if isinstance(values, Texts):
        numbers = [values.codes]
    elif values.values.dtype == np.object_:
        return None
    else:
        unknown = values.unknown
        number = values.values.view(np.int64) if isinstance(values, Fractions) else values.values
        numbers = [np.where(unknown, 0, number), unknown] if unknown.any() else [number]
    return [number.astype(np.int64, copy=False) for number in numbers if not is_constant(number)]


def _mixed(columns: Iterable[Sequence[Ints] | None], rows: int) -> Ints:
    """One number a row, nearly always another where any column differs."""
    mixed: Array = np.zeros(rows, np.int64)
    for column in columns:
        for number in column or ():
            mixed *= _FACTOR
            mixed += number
    return mixed


def _choice(values: Sequence[Values]) -> list[int]:
    """The columns of few distinct values, as long as all together have few."""
    rows = len(values[0].unknown)
    numbers = {at: found for at, column in enumerate(values) if (found := _numbers(column)) is not None}
    counts = {at: _count(_mixed([found], rows)) for at, found in numbers.items()}
    chosen: list[int] = []
    together: Ints = np.zeros(rows, np.int64)
    for at in sorted(counts, key=lambda at: (counts[at], at)):
        if counts[at] * _FEW > rows:
            break
        mixed = together
        for number in numbers[at]:
            mixed = mixed * _FACTOR + number
        if not numbers[at] or _count(mixed) * _FEW <= rows:
            chosen.append(at)
            together = mixed
    return chosen


def _count(numbers: Ints) -> int:
    """How many are distinct."""
    return len(to_arrow(numbers).dictionary_encode().dictionary)
