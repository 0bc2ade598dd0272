"""Columns -> the text of rows by Arrow: the same characters as `printed` gives.

A line is made of pieces, each one of many texts that stand one after another: Arrow takes these by their numbers and puts them
together in one step. Columns of which many rows have the same are one piece with what stands between them, made once for each
kind of row. Which columns, the first rows of a table decide: those of few distinct values as long as there are few kinds.
Whatever the choice, a row's kind tells its values exactly. Imported only where many rows are written and pyarrow is installed.
Quoting and headers are the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof.arrays.arrow import to_arrow, to_arrow_texts, to_numpy
from pyprof.arrays.columns import is_constant
from pyprof.arrays.types import Array, Floats, Ints
from pyprof.tables.table import Fractions, PerPool, Texts, Values, printed

BATCH_ROWS = 1_000  # that are joined at a time, in memory that is used again
_LARGEST = float(1 << 36)  # of a number times a power of ten that is rounded here; its last bit is far below _DOUBT
_DOUBT = 1e-4  # how near to half between two whole numbers Python rounds instead
_MOST_DIGITS = 6  # beyond, Arrow writes small decimals with an exponent
_FEW = 6  # rows a kind, at least, where columns are chosen
_MANY = 3  # rows a kind below which one column less is taken
_FACTOR = np.int64(-7046029254386353131)  # odd, with bits all over: products that overflow stay different


class RowTexts:
    """The text of rows, some at a time.

    around: what stands before the first field, between two, and after the last; unknown: the text of what is unknown.
    """

    def __init__(self, around: Sequence[str], unknown: str) -> None:
        self.around = [text.replace("%%", "%") for text in around]
        self.constants = to_arrow_texts([unknown, *self.around])
        self.pools = [PerPool(lambda values: to_arrow_texts(values.pool)) for _ in around[1:]]
        self.chosen = KindColumns()

    def text(self, values: Sequence[Values]) -> Iterator[memoryview]:
        """The lines of these rows in UTF-8, BATCH_ROWS after others; they are joined when they are asked for.

        Raises UnicodeEncodeError for a text that is no Unicode, ArrowException where there is more text than Arrow holds; the
        latter perhaps when lines are asked for.
        """
        kinds = self.chosen.kinds(values)
        return self._line(values, kinds).batches(len(kinds.kind))

    def _line(self, values: Sequence[Values], kinds: Kinds) -> _Line:
        """What the lines are joined from: the columns that kinds tell with what stands around them, and each other column."""
        told, line = {*kinds.columns}, _Line(self.constants)
        run = _Line(self.constants)  # of what follows one another, for each kind of row
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
    """The pieces of rows: texts one after another, and for each piece the number of its text, of all rows or of each.

    constants: the first of the texts; number 0 is that of what is unknown.
    """

    def __init__(self, constants: Any) -> None:
        self.texts, self.count = [constants], len(constants)
        self.numbers: list[int | Array] = []

    def add_constant(self, number: int) -> None:
        """A piece that is the same in all rows."""
        self.numbers.append(number)

    def add_run(self, run: _Line, kinds: Kinds) -> None:
        """Pieces whose texts each kind of row has."""
        if len(run.texts) == 1:
            self.numbers += run.numbers
        else:
            offsets, text = run.joined(0, len(kinds.first))
            buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets - offsets[0])), pa.py_buffer(text)]
            self._add(pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers), kinds.kind)

    def add(self, values: Values, pool: PerPool[Any]) -> None:
        """A column."""
        texts, codes = _coded(values, pool)
        self._add(texts, codes)
        if values.unknown.any():
            self.numbers[-1] = np.where(values.unknown, 0, self.numbers[-1])

    def _add(self, texts: Any, codes: Array) -> None:
        self.texts.append(texts)
        self.numbers.append(codes.astype(np.int32) + np.int32(self.count))
        self.count += len(texts)

    def batches(self, rows: int) -> Iterator[memoryview]:
        """The text of so many rows, BATCH_ROWS after others."""
        for begin in range(0, rows, BATCH_ROWS):
            _, text = self.joined(begin, min(begin + BATCH_ROWS, rows))
            yield text
        pa.default_memory_pool().release_unused()

    @cached_property
    def _all(self) -> Any:
        return pa.concat_arrays(self.texts)

    def joined(self, begin: int, end: int) -> tuple[Array, memoryview]:
        """The text of some rows, and where each of them begins and ends in it."""
        numbers = np.empty((end - begin, len(self.numbers)), np.int32)
        for place, number in enumerate(self.numbers):
            numbers[:, place] = number if isinstance(number, int) else number[begin:end]
        taken = pc.take(self._all, to_arrow(numbers.ravel()), boundscheck=False)
        offsets = np.frombuffer(taken.buffers()[1], np.int32)[taken.offset :][: len(taken) + 1 : len(self.numbers)]
        return offsets, memoryview(taken.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def _coded(values: Values, pool: PerPool[Any]) -> tuple[Any, Array]:
    """The texts of one column, and for each row which of them it is; any where it is unknown."""
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
    """Rounded as Python rounds: where the product with the power of ten leaves a doubt, Python does it."""
    if digits > _MOST_DIGITS:
        return to_arrow_texts(printed(Fractions(numbers, np.zeros(len(numbers), np.bool_), digits)))
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = numbers * 10.0**digits
        whole = np.rint(scaled)
        # Half between two whole numbers, large, no number, or below zero (-0.00 is a text of its own): rare.
        doubt = ~(np.abs(scaled) < _LARGEST) | (np.abs(np.abs(scaled - whole) - 0.5) < _DOUBT) | np.signbit(numbers)
    parts = np.zeros((len(numbers), 2), np.int64)  # of a 128-bit decimal the low part; the high one is 0
    parts[:, 0] = np.where(doubt, 0, whole).astype(np.int64)
    texts = pa.Array.from_buffers(pa.decimal128(38, digits), len(numbers), [None, pa.py_buffer(parts)]).cast(pa.string())
    if doubt.any():
        exact = to_arrow_texts([f"{number:.{digits}f}" for number in numbers[doubt].tolist()])
        texts = pc.replace_with_mask(texts, to_arrow(doubt), exact)
    return texts


class Kinds(NamedTuple):
    """columns: the places of those that a row's kind tells; first: for each kind a row of it; kind: of each row."""

    columns: Sequence[int]
    first: Ints
    kind: Ints


class KindColumns:
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
