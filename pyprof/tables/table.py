"""What a table is made of: values with a mask of what is unknown, headers, and both together.

Values are columns: whole numbers, fractions, texts (and lists of them) as codes into a pool. Long tables are computed in parts
of their rows while they are written, for all columns together take many times the memory of what they are computed from.
Neither the records or reports that they describe nor the formats that write them are known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from pyprof.arrays.types import Bools, Floats, Ints
from pyprof.errors import UsageError

Rows: TypeAlias = Ints | slice
PART_ROWS = 1 << 15  # of a table whose columns are computed while it is written
AnyInts: TypeAlias = npt.NDArray[Any]  # integers of any width, or Python's own (object) where 64 bits do not hold a sum


class Integers(NamedTuple):
    """Whole numbers of any sign. unknown: the rows whose number means nothing."""

    values: AnyInts
    unknown: Bools

    @classmethod
    def known(cls, values: AnyInts) -> Integers:
        """Numbers that are all known."""
        return cls(values, np.broadcast_to(np.False_, len(values)))

    @classmethod
    def from_zero(cls, values: AnyInts) -> Integers:
        """Numbers from 0 on, in an array that marks what is unknown by a number below 0."""
        return cls(values, values < 0)

    def take(self, rows: Rows) -> Integers:
        """These rows only."""
        return Integers(self.values[rows], self.unknown[rows])


class Fractions(NamedTuple):
    """Fractions. unknown: the rows whose number means nothing; digits: after the point, where they are printed."""

    values: Floats
    unknown: Bools
    digits: int = 2

    @classmethod
    def not_nan(cls, values: Floats, digits: int = 2) -> Fractions:
        """Fractions in an array that marks what is unknown by NaN."""
        return cls(values, np.isnan(values), digits)

    def take(self, rows: Rows) -> Fractions:
        """These rows only."""
        return Fractions(self.values[rows], self.unknown[rows], self.digits)


class Texts(NamedTuple):
    """Texts as codes into a pool of distinct ones; code -1 is unknown, which an empty text is not.

    lists: what each of the pool was joined from, for formats that hold lists; brief: what an aligned table prints instead;
    right: aligned like numbers.
    """

    codes: npt.NDArray[Any]
    pool: Sequence[str]
    lists: Sequence[Sequence[str]] | None = None
    brief: Sequence[str] | None = None
    right: bool = False

    @property
    def unknown(self) -> Bools:
        """The rows without a text."""
        return np.asarray(self.codes < 0, np.bool_)

    def take(self, rows: Rows) -> Texts:
        """These rows only."""
        return self._replace(codes=self.codes[rows])


Values: TypeAlias = Integers | Fractions | Texts


class Header(NamedTuple):
    """What a column is called and what it holds; how it is computed is not its business.

    key: for -c and the keyed formats; text: above the column; unit: of its numbers (ns, B, FLOP, %, GB/s, ...); width: least
    characters in a table of a given width; grow: takes what is left of the line there; empty: printed for an empty text.

    For people: moment: numbers are moments, of which the time since the table's first is read; share: of a whole, which has a
    bar; detail: left out first where a screen is too narrow; good, bad: texts that are so.
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
        """The values as they are printed: empty texts as this column prints them."""
        return Texts(values.codes, [text or self.empty for text in values.pool]) if isinstance(values, Texts) else values


class Source(Protocol):
    """Columns that can be chosen by key, whether they are computed already or not."""

    @property
    def headers(self) -> Sequence[Header]: ...

    def of(self, key: str) -> Values:
        """The values of one column."""

    def take(self, rows: Ints) -> Source:
        """These rows only."""


class Table(NamedTuple):
    """Columns of equal length. name: of the table where a format names it; title: a line above it where people read it; since:
    what moments are counted from for them, in the unit of these; most: rows on a screen of several tables, 0 as many as fit."""

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
    """Columns and rows of a source, which are computed when the table is written."""

    headers: Sequence[Header]
    source: Source
    rows: Ints
    name: str = "rows"
    title: str = ""
    since: int | None = None
    most: int = 0

    def first(self, count: int) -> Table:
        """The first rows, for which nothing is computed of others where they are few."""
        chosen = self._replace(rows=self.rows[:count])
        return next(chosen.parts()) if count <= PART_ROWS else chosen.whole()

    def parts(self) -> Iterator[Table]:
        """Some rows after others, never none; all at once where they are in an order of their own, which scatters a part's."""
        size = PART_ROWS if (self.rows[1:] > self.rows[:-1]).all() else len(self.rows)
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
    """What is made of the distinct texts of a column, once for all parts of a table that share them."""

    make: Callable[[Texts], _Made]
    last: tuple[Sequence[str], _Made] | None = None

    def __call__(self, values: Texts) -> _Made:
        if self.last is None or self.last[0] is not values.pool:
            self.last = values.pool, self.make(values)
        return self.last[1]


class Keyed(Protocol):
    """Whatever can be chosen by a key: a header, a column."""

    @property
    def key(self) -> str: ...


_Keyed = TypeVar("_Keyed", bound=Keyed)


SAME = {"sil": "time", "time": "sil"}
"""Keys of one thing that another table calls otherwise: rows have `sil`, groups and trees `time`; either is understood."""


def choose(keys: str, among: Sequence[_Keyed], aliases: Mapping[str, str] | None = None) -> list[_Keyed]:
    """The columns of a comma list, in its order. aliases: other names of keys.

    Raises UsageError for an unknown column, with the nearest that exists, and where none is named.
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
    """Texts out of a pool in which None is unknown."""
    if None not in pool:
        return Texts(codes, [text or "" for text in pool])
    code = np.array([*(-1 if text is None else number for number, text in enumerate(pool)), -1], np.int64)
    return Texts(code[codes], [text or "" for text in pool])


def printed(values: Values, unknown: str = "na") -> list[str]:
    """Every value of a column as text; unknown: the text of what is unknown."""
    if isinstance(values, Texts):
        pool = [*values.pool, unknown]
        return [pool[code] for code in values.codes.tolist()]
    form = "%d" if isinstance(values, Integers) else f"%.{values.digits}f"
    pairs = zip(values.values.tolist(), values.unknown.tolist(), strict=True)
    return [unknown if missing else form % value for value, missing in pairs]


def coded(values: Values) -> tuple[Ints, list[str]]:
    """What a column prints: codes into distinct texts in order. What is unknown is the last code, equal to no text."""
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
    """Numbers whose ascending order is largest first for numbers and alphabetical for texts; the unknown last."""
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
