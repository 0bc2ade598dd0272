"""Columns -> the text of rows, by Arrow: the same characters as `printed` gives.

A line is a sequence of pieces, and each piece is one of many texts: Arrow gathers them by number and joins them in one step.
Columns with few distinct combinations (a row's kind) become one piece together with their separators, made once per kind. The
first rows of a table decide which columns these are; a row's kind tells the values of its columns exactly. Imported only for
tables with many rows and with pyarrow installed. Quoting and headers are up to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.columns.arrow import to_arrow, to_arrow_texts, to_numpy
from pyprof.columns.distinct import is_constant
from pyprof.columns.types import Array, Floats, Ints
from pyprof.tables.table import Fractions, PerPool, Texts, Values, printed

BATCH_ROWS = 1_000  # joined at a time, in memory that is reused
_LARGEST = float(1 << 36)  # scaled numbers below this are rounded here: their last bit is far below _DOUBT
_DOUBT = 1e-4  # this near to half between two integers Python rounds instead
_MOST_DIGITS = 6  # beyond, Arrow writes small decimals with an exponent
_FEW = 6  # least rows per kind when columns are chosen
_MANY = 3  # below so many rows per kind one column is dropped
_FACTOR = np.int64(-7046029254386353131)  # odd, with well-mixed bits: overflowing products stay different


class RowTexts:
    """The text of rows, batch by batch.

    around: the text before the first field, between fields, and after the last; unknown: the text of unknown values.
    """

    def __init__(self, around: Sequence[str], unknown: str) -> None:
        self.around = [text.replace("%%", "%") for text in around]
        self.constants = to_arrow_texts([unknown, *self.around])
        self.pools = [PerPool(lambda values: to_arrow_texts(values.pool)) for _ in around[1:]]
        self.chosen = KindColumns()

    def text(self, values: Sequence[Values]) -> Iterator[memoryview]:
        """The lines of these rows in UTF-8, joined lazily in batches of BATCH_ROWS.

        Raises UnicodeEncodeError for lone surrogates; ArrowException if there is more text than Arrow can hold, perhaps only
        while iterating.
        """
        kinds = self.chosen.kinds(values)
        return self._line(values, kinds).batches(len(kinds.kind))

    def _line(self, values: Sequence[Values], kinds: Kinds) -> _Line:
        """The pieces of the lines: runs of columns that kinds tell, with their separators, and every other column."""
        told, line = {*kinds.columns}, _Line(self.constants)
        run = _Line(self.constants)  # adjacent pieces, one text per kind of row
        for place, (column, pool) in enumerate(zip(values, self.pools, strict=True)):
            if self.around[place]:
                run.add_constant(place + 1)
            if place in told:
                run.add(column.take(kinds.first), pool)
            else:
                line.add_run(run, kinds)
                line.add(column, pool)
                run = _Line(self.constants)
        run.add_constant(len(self.around))
        line.add_run(run, kinds)
        return line


class _Line:
    """The pieces of rows: one pool of texts, and for each piece a number into it, for all rows or per row.

    constants: the first texts of the pool; number 0 is the text of unknown values.
    """

    def __init__(self, constants: Any) -> None:
        self.texts, self.count = [constants], len(constants)
        self.numbers: list[int | Array] = []

    def add_constant(self, number: int) -> None:
        """Add a piece that is equal in all rows."""
        self.numbers.append(number)

    def add_run(self, run: _Line, kinds: Kinds) -> None:
        """Add pieces with one text per kind of row."""
        if len(run.texts) == 1:
            self.numbers += run.numbers
        else:
            offsets, text = run.joined(0, len(kinds.first))
            buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets - offsets[0])), pa.py_buffer(text)]
            self._add(pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers), kinds.kind)

    def add(self, values: Values, pool: PerPool[Any]) -> None:
        """Add a column."""
        texts, codes = _coded(values, pool)
        self._add(texts, codes)
        if values.unknown.any():
            self.numbers[-1] = np.where(values.unknown, 0, self.numbers[-1])

    def _add(self, texts: Any, codes: Array) -> None:
        self.texts.append(texts)
        self.numbers.append(codes.astype(np.int32) + np.int32(self.count))
        self.count += len(texts)

    def batches(self, rows: int) -> Iterator[memoryview]:
        """The text of all rows in batches of BATCH_ROWS."""
        for begin in range(0, rows, BATCH_ROWS):
            _, text = self.joined(begin, min(begin + BATCH_ROWS, rows))
            yield text
        pa.default_memory_pool().release_unused()

    @cached_property
    def _all(self) -> Any:
        return pa.concat_arrays(self.texts)

    def joined(self, begin: int, end: int) -> tuple[Array, memoryview]:
        """The text of some rows, and the offsets of the rows in it."""
        numbers = np.empty((end - begin, len(self.numbers)), np.int32)
        for place, number in enumerate(self.numbers):
            numbers[:, place] = number if isinstance(number, int) else number[begin:end]
        taken = pc.take(self._all, to_arrow(numbers.ravel()), boundscheck=False)
        offsets = np.frombuffer(taken.buffers()[1], np.int32)[taken.offset :][: len(taken) + 1 : len(self.numbers)]
        return offsets, memoryview(taken.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def _coded(values: Values, pool: PerPool[Any]) -> tuple[Any, Array]:
    """The distinct texts of a column and a code per row (any code for unknown values)."""
    if isinstance(values, Fractions):
        numbers: Floats = np.where(values.unknown, 0.0, values.values)
        first, codes = distinct(numbers.view(np.int64))
        return _decimals(numbers[first], values.digits), codes
    if isinstance(values, Texts):
        if len(values.pool) <= len(values.codes):
            return pool(values), values.codes
        texts = pool(values).take(to_arrow(np.maximum(values.codes, 0)))
    elif values.values.dtype == np.object_:  # sums beyond 64 bits
        texts = to_arrow_texts([*map(str, values.values.tolist())])
    else:
        texts = to_arrow(values.values).cast(pa.string())
    return texts, np.arange(len(texts))


def _decimals(numbers: Floats, digits: int) -> Any:
    """Numbers as decimals, rounded as Python rounds: doubtful cases are left to Python."""
    if digits > _MOST_DIGITS:
        return to_arrow_texts(printed(Fractions(numbers, np.zeros(len(numbers), np.bool_), digits)))
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = numbers * 10.0**digits
        whole = np.rint(scaled)
        # Rare: near half between two integers, large, not finite, or negative (-0.00 is a text of its own).
        doubt = ~(np.abs(scaled) < _LARGEST) | (np.abs(np.abs(scaled - whole) - 0.5) < _DOUBT) | np.signbit(numbers)
    parts = np.zeros((len(numbers), 2), np.int64)  # low and high half of 128-bit decimals; the high one is 0
    parts[:, 0] = np.where(doubt, 0, whole).astype(np.int64)
    texts = pa.Array.from_buffers(pa.decimal128(38, digits), len(numbers), [None, pa.py_buffer(parts)]).cast(pa.string())
    if doubt.any():
        exact = to_arrow_texts([f"{number:.{digits}f}" for number in numbers[doubt].tolist()])
        texts = pc.replace_with_mask(texts, to_arrow(doubt), exact)
    return texts


class Kinds(NamedTuple):
    """Kinds of rows. columns: positions of the columns that a kind tells; first: a row of each kind; kind: of each row."""

    columns: Sequence[int]
    first: Ints
    kind: Ints


class KindColumns:
    """Chooses the columns that kinds are made of, for all parts of one table."""

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
        # Different rows may be hashed to one number: a kind does not tell a column that differs within it.
        kind = code.astype(np.int64)

        def tells(column: list[Ints] | None) -> bool:
            return column is not None and all(bool((n[first].take(kind) == n).all()) for n in column)

        return Kinds(sorted(at for at, column in numbers.items() if at in self._columns and tells(column)), first, kind)


def distinct(numbers: Ints) -> tuple[Ints, Ints]:
    """A position of each distinct number, and the code of each number."""
    codes = to_numpy(to_arrow(numbers).dictionary_encode().indices)
    first = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    first[codes] = np.arange(len(codes))
    return first, codes


def _numbers(values: Values) -> list[Ints] | None:
    """Numbers that are equal where the column prints the same (without constant ones); None for sums beyond 64 bits."""
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
    """A hash per row; rows that differ in any column nearly always get different ones."""
    mixed: Array = np.zeros(rows, np.int64)
    for column in columns:
        for number in column or ():
            mixed *= _FACTOR
            mixed += number
    return mixed


def _choice(values: Sequence[Values]) -> list[int]:
    """Positions of columns with few distinct values, as long as their combinations are few."""
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
    """Number of distinct values."""
    return len(to_arrow(numbers).dictionary_encode().dictionary)
