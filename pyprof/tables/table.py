"""Tables: columns of values with a mask of unknown ones, headers, and both together.

Values are integers, fractions, or texts (and lists of them) as codes into a pool. Long tables are computed in chunks of rows
while they are written, because all columns together take many times the memory of their source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from pyprof.columns.types import Bools, Floats, Ints
from pyprof.errors import UsageError

Rows: TypeAlias = Ints | slice
PART_ROWS = 1 << 15  # rows that are computed or written at a time where that bounds memory
TABLE_ROWS = 1 << 17  # rows per chunk of a table that is computed while it is written: a row group of stored records
AnyInts: TypeAlias = npt.NDArray[Any]  # integers of any width, or Python's own (object) for sums beyond 64 bits


class Integers(NamedTuple):
    """Integers. unknown: mask of the rows whose value means nothing."""

    values: AnyInts
    unknown: Bools

    @classmethod
    def known(cls, values: AnyInts) -> Integers:
        """Integers that are all known."""
        return cls(values, np.broadcast_to(np.False_, len(values)))

    @classmethod
    def from_zero(cls, values: AnyInts) -> Integers:
        """Non-negative integers, from an array in which a negative number means unknown."""
        return cls(values, values < 0)

    def take(self, rows: Rows) -> Integers:
        """These rows only."""
        return Integers(self.values[rows], self.unknown[rows])


class Fractions(NamedTuple):
    """Floats. unknown: mask of the rows whose value means nothing; digits: digits printed after the point."""

    values: Floats
    unknown: Bools
    digits: int = 2

    @classmethod
    def not_nan(cls, values: Floats, digits: int = 2) -> Fractions:
        """Fractions from an array in which NaN means unknown."""
        return cls(values, np.isnan(values), digits)

    def take(self, rows: Rows) -> Fractions:
        """These rows only."""
        return Fractions(self.values[rows], self.unknown[rows], self.digits)


class Texts(NamedTuple):
    """Texts as codes into a pool; code -1 is unknown (an empty text is not).

    lists: for each pool entry the list it was joined from, for formats with lists; brief: the short form for aligned tables;
    right: aligned like numbers.
    """

    codes: npt.NDArray[Any]
    pool: Sequence[str]
    lists: Sequence[Sequence[str]] | None = None
    brief: Sequence[str] | None = None
    right: bool = False

    @property
    def unknown(self) -> Bools:
        """Mask of the rows without a text."""
        return np.asarray(self.codes < 0, np.bool_)

    def take(self, rows: Rows) -> Texts:
        """These rows only."""
        return self._replace(codes=self.codes[rows])


Values: TypeAlias = Integers | Fractions | Texts


class Header(NamedTuple):
    """Name and meaning of a column.

    key: for -c and keyed formats; text: above the column; unit: of its numbers (ns, B, FLOP, %, GB/s, ...); width: least
    characters in a table of a given width; grow: takes spare room of the line; empty: printed for an empty text.

    For people: moment: points in time, shown relative to the table's first; share: of a whole, drawn as a bar; detail: first to
    be left out on a narrow screen; good, bad: texts shown in green and red.
    """

    key: str
    text: str
    help: str
    unit: str = ""
    width: int = 7
    grow: bool = False
    empty: str = ""
    moment: bool = False
    share: bool = False
    detail: bool = False
    good: str = ""
    bad: str = ""

    def shown(self, values: Values) -> Values:
        """The values as printed: empty texts replaced by this column's `empty`."""
        return Texts(values.codes, [text or self.empty for text in values.pool]) if isinstance(values, Texts) else values


class Source(Protocol):
    """Columns by key, computed already or not."""

    @property
    def headers(self) -> Sequence[Header]: ...

    def of(self, key: str) -> Values:
        """The values of one column."""

    def take(self, rows: Ints) -> Source:
        """These rows only."""


class Table(NamedTuple):
    """Columns of equal length. name: used by formats that name tables; title: a line above it for people; since: origin of
    moments for people, in their unit; most: rows shown if several tables share a screen, 0 as many as fit."""

    headers: Sequence[Header]
    values: Sequence[Values]
    name: str = "rows"
    title: str = ""
    since: int | None = None
    most: int = 0

    @property
    def rows(self) -> Ints:
        """The numbers of all rows."""
        return np.arange(len(self.values[0].unknown) if self.values else 0)

    def of(self, key: str) -> Values:
        """The values of one column."""
        return self.values[[header.key for header in self.headers].index(key)]

    def take(self, rows: Rows) -> Table:
        """These rows only."""
        return self._replace(values=[values.take(rows) for values in self.values])

    def first(self, count: int) -> Table:
        """The first rows."""
        return self.take(slice(count))

    def parts(self) -> Iterator[Table]:
        """All rows at once."""
        yield self

    def whole(self) -> Table:
        """Itself."""
        return self


class LazyTable(NamedTuple):
    """Columns and rows of a source, computed when the table is written."""

    headers: Sequence[Header]
    source: Source
    rows: Ints
    name: str = "rows"
    title: str = ""
    since: int | None = None
    most: int = 0

    def first(self, count: int) -> Table:
        """The first rows; only these are computed if they are few."""
        chosen = self._replace(rows=self.rows[:count])
        return next(chosen.parts()) if count <= TABLE_ROWS else chosen.whole()

    def parts(self) -> Iterator[Table]:
        """Chunks of rows, at least one; all rows at once if they are not ascending, since chunks would be scattered."""
        size = TABLE_ROWS if (self.rows[1:] > self.rows[:-1]).all() else len(self.rows)
        for start in range(0, max(len(self.rows), 1), size):
            part = self.source.take(self.rows[start : start + size])
            yield Table(self.headers, [part.of(header.key) for header in self.headers], *self[3:])

    def whole(self) -> Table:
        """All rows at once."""
        return Table(self.headers, [self.source.of(h.key).take(self.rows) for h in self.headers], *self[3:])


AnyTable: TypeAlias = Table | LazyTable
_Made = TypeVar("_Made")


@dataclass(eq=False, repr=False)
class PerPool(Generic[_Made]):
    """Something made from the distinct texts of a column, once for all chunks that share the pool."""

    make: Callable[[Texts], _Made]
    last: tuple[Sequence[str], _Made] | None = None

    def __call__(self, values: Texts) -> _Made:
        if self.last is None or self.last[0] is not values.pool:
            self.last = values.pool, self.make(values)
        return self.last[1]


class Keyed(Protocol):
    """Anything with a key: a header, a column."""

    @property
    def key(self) -> str: ...


_Keyed = TypeVar("_Keyed", bound=Keyed)


SAME = {"sil": "time", "time": "sil"}
"""Two keys for one thing: rows have `sil`, groups and trees `time`; either is understood."""


def choose(keys: str, among: Sequence[_Keyed], aliases: Mapping[str, str] | None = None) -> list[_Keyed]:
    """The columns of a comma-separated list, in its order. aliases: other names of keys.

    Raises UsageError for an unknown column, suggesting the nearest, and for an empty list.
    """
    by_key = dict(zip(map(attrgetter("key"), among), among, strict=True))
    chosen = []
    for part in keys.split(","):
        key = part.strip().lower()
        meant_key = (aliases or {}).get(key, key)
        column = by_key.get(key) or by_key.get(meant_key) or by_key.get(SAME.get(meant_key, ""))
        if column is not None:
            chosen.append(column)
        elif key:
            import difflib

            near = difflib.get_close_matches(key, by_key, 1, 0.4)
            meant = f"did you mean {near[0]}? " if near else ""
            raise UsageError(f"there is no column {key!r}", f"{meant}columns: {','.join(by_key)}")
    if not chosen:
        raise UsageError("no columns were chosen", f"for example -c {','.join(list(by_key)[:3])}")
    return chosen


def texts(codes: AnyInts, pool: Sequence[str | None]) -> Texts:
    """Texts from codes and a pool in which None means unknown."""
    if None not in pool:
        return Texts(codes, [text or "" for text in pool])
    code = np.array([*(-1 if text is None else number for number, text in enumerate(pool)), -1], np.int64)
    return Texts(code[codes], [text or "" for text in pool])


def printed(values: Values, unknown: str = "na") -> list[str]:
    """Every value of a column as text; unknown: the text of unknown values."""
    if isinstance(values, Texts):
        pool = [*values.pool, unknown]
        return [pool[code] for code in values.codes.tolist()]
    form = "%d" if isinstance(values, Integers) else f"%.{values.digits}f"
    pairs = zip(values.values.tolist(), values.unknown.tolist(), strict=True)
    return [unknown if missing else form % value for value, missing in pairs]


def coded(values: Values) -> tuple[Ints, list[str]]:
    """The printed values of a column as codes into sorted distinct texts; unknown gets the code after the last."""
    if isinstance(values, Texts):
        used, inverse = np.unique(values.codes, return_inverse=True)
        found = printed(values._replace(codes=used))
    else:
        distinct, inverse = np.unique(values.values, return_inverse=True)
        found = printed(values._replace(values=distinct, unknown=np.broadcast_to(np.False_, len(distinct))))
    pool = sorted(set(found))
    code = {text: number for number, text in enumerate(pool)}
    codes = np.array([code[text] for text in found], np.int64)[inverse.ravel()]
    return np.where(values.unknown, len(pool), codes), pool


def sort_key(values: Values) -> Floats | Ints:
    """Sort keys: ascending order is largest first for numbers, alphabetical for texts, unknown last."""
    if isinstance(values, Texts):
        found = values.pool
        order = {text: rank for rank, text in enumerate(sorted(set(found)))}  # equal texts tie, however they are pooled
        ranks: Ints = np.array([*(order[text] for text in found), len(order)], np.int64)[values.codes]
        return ranks
    if isinstance(values, Fractions):
        return np.where(values.unknown, np.inf, -values.values)
    numbers = values.values
    if numbers.dtype == np.object_:  # sums beyond 64 bits
        numbers = np.unique(numbers, return_inverse=True)[1].ravel()
    # As whole numbers: a float does not tell those above 2**53 apart. ~n is -n - 1, which every 64-bit number has.
    return np.where(values.unknown, np.iinfo(np.int64).max, ~numbers.astype(np.int64))
