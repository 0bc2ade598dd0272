"""An SQLite file opened read-only, its tables as numpy columns whatever is missing or odd in it.

What nsys and nvprof share. Every fault of the file leaves here as an error of ours; nothing here knows what a table means.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from pyprof.arrays.distinct import distinct_rows
from pyprof.errors import InputError, NotACapture

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from pyprof.parse.sources.arrow import ArrowReader
    from pyprof.parse.sources.sqlite_pages.reader import PageReader

__all__ = ["MAGIC", "Database", "distinct_values", "is_sqlite", "map_distinct", "to_integer", "to_text"]

Ints = npt.NDArray[np.int64]

MAGIC = b"SQLite format 3\x00"
Read = TypeVar("Read")
_BATCH_ROWS = 65_536
_LEAST_ROW_BYTES = 8
ARROW_FROM_BYTES = 1 << 20  # below, importing pyarrow takes longer than it saves
# A damaged file can put bytes that are no text into SQLite's own message, which Python then fails to decode.
_FAULTS = (sqlite3.Error, UnicodeDecodeError)


def is_sqlite(path: Path) -> bool:
    """Whether a file begins as every SQLite 3 database does."""
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def _check_whole(path: Path) -> None:
    """Raise InputError where a file is shorter than its header says, even if the part that is read would be there."""
    with path.open("rb") as stream:
        header = stream.read(100)
    if len(header) < 100:
        raise InputError(f"{path}: cut short: {len(header)} bytes of an SQLite database", "copy or export it again")
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    counted = header[24:28] == header[92:96]  # old writers leave the number of pages stale
    expected = (65_536 if page == 1 else page) * pages
    size = path.stat().st_size
    if counted and size < expected:
        raise InputError(f"{path}: cut short: {size} of {expected} bytes are there", "copy or export it again")


class Database:
    """A capture in SQLite, never written to. Use it in a `with`.

    Raises InputError where the file cannot be opened or is damaged, at the first access that meets the damage.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_whole(path)
        # An export beside which a journal was left, or in a folder without write permission, opens only as immutable.
        immutable = not os.access(path.parent, os.W_OK)
        uri = f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if immutable else ''}"
        self._columns: dict[str, dict[str, str]] = {}
        self._uri = uri
        try:
            self._driver = sqlite3.connect(uri, uri=True)
            # A text that is not UTF-8 must not end the whole parse.
            self._driver.text_factory = lambda raw: raw.decode("utf-8", "replace")
            self._driver.execute("PRAGMA query_only = ON")
            self._names = {str(row[0]) for row in self._driver.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except _FAULTS as error:
            raise self._damaged(error) from error

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("pages", "arrow"):
            reader = self.__dict__.get(name)
            if reader is not None:
                reader.close()
        self._driver.close()

    def _damaged(self, error: Exception) -> InputError:
        text = str(error)
        if "not a database" in text:
            return NotACapture(f"{self.path}: not an SQLite database", "pass the file that `nsys export --type sqlite` wrote")
        return InputError(f"{self.path}: cannot be read: {text}", "the file is damaged or cut short: export or copy it again")

    @cached_property
    def _row_reader(self) -> Engine:
        """What tables are read through row by row; large files seldom need it, and it takes a tenth of a second to import."""
        import sqlalchemy

        return sqlalchemy.create_engine("sqlite://", creator=lambda: self._driver, poolclass=sqlalchemy.StaticPool)

    @cached_property
    def pages(self) -> PageReader | None:
        """The fastest reader of whole columns; None where the file is small or no plain one."""
        if self.path.stat().st_size < ARROW_FROM_BYTES:
            return None
        from pyprof.parse.sources.sqlite_pages.reader import OddFile, PageReader

        try:
            return PageReader(self.path)
        except OddFile:
            return None

    @cached_property
    def arrow(self) -> ArrowReader | None:
        """A reader of whole columns and queries; None where the file is small or ADBC is not installed."""
        if self.path.stat().st_size < ARROW_FROM_BYTES:
            return None
        try:
            from pyprof.parse.sources.arrow import ArrowReader, OddFile
        except ImportError:
            return None
        try:
            return ArrowReader(self._uri)
        except OddFile:
            return None

    @property
    def tables(self) -> set[str]:
        """Names of the tables that are there, with or without rows."""
        return self._names

    def columns(self, table: str) -> dict[str, str]:
        """Column names of a table with their declared types; empty where the table is absent."""
        if table not in self._columns:
            rows = self.rows(f'PRAGMA table_info("{table}")') if table in self._names else []
            self._columns[table] = {str(row[1]): str(row[2]).upper() for row in rows}
        return self._columns[table]

    def has(self, table: str, *columns: str) -> bool:
        """Whether a table is there with all these columns."""
        present = self.columns(table)
        return bool(present) and all(column in present for column in columns)

    def about_rows(self, table: str) -> int:
        """How many rows a table has if none was deleted, without counting them; never more than the file has room for."""
        try:
            found = self._driver.execute(f'SELECT max(rowid) FROM "{table}"').fetchone()[0]
        except _FAULTS:
            return 0
        return min(max(found, 0), self.path.stat().st_size // _LEAST_ROW_BYTES) if isinstance(found, int) else 0

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of a query of few rows."""
        try:
            return self._driver.execute(sql).fetchall()
        except _FAULTS as error:
            raise self._damaged(error) from error

    def batches(self, sql: str) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a query in lists of at most 65,536."""
        try:
            cursor = self._row_reader.raw_connection().cursor()
            cursor.execute(sql)
            while rows := cursor.fetchmany(_BATCH_ROWS):
                yield list(rows)
        except _FAULTS as error:
            raise self._damaged(error) from error

    def select(self, table: str, columns: Sequence[str], where: str = "", *, also: Sequence[str] = ()) -> str:
        """SQL that reads columns of a table; one that it lacks, and every NULL, reads as -1. also: expressions after them."""
        present = self.columns(table)
        parts = [*(f'coalesce("{c}", -1)' if c in present else "-1" for c in columns), *also]
        return f'SELECT {", ".join(parts)} FROM "{table}"' + (f" WHERE {where}" if where else "")

    def integers(
        self, table: str, columns: Sequence[str], where: str = "", *, narrow: bool = False
    ) -> dict[str, npt.NDArray[np.int64]]:
        """Integer columns of a table, empty where it is absent; what is no integer reads as -1.

        narrow: where there are many rows, a column whose numbers fit may come in 32 bits.
        """
        if not self.columns(table):
            return {c: np.empty(0, np.int64) for c in columns}
        if not where and (whole := self._by_pages(table, columns, narrow=narrow)) is not None:
            return whole
        sql = self.select(table, columns, where)
        if (read := self._by_arrow(lambda arrow: arrow.integers(sql, len(columns), narrow=narrow))) is not None:
            return dict(zip(columns, read, strict=True))
        parts = [_as_integers(batch, len(columns)) for batch in self.batches(sql)]
        stacked = np.concatenate(parts) if parts else np.empty((0, len(columns)), np.int64)
        return {c: np.ascontiguousarray(stacked[:, i]) for i, c in enumerate(columns)}

    def integers_and_bytes(
        self, table: str, columns: Sequence[str], blob: str, width: int, where: str = ""
    ) -> tuple[dict[str, npt.NDArray[np.int64]], npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
        """Integer columns of a table, of a column of blobs the first `width` bytes (rows x width), and whether they were there.

        What is no blob or a shorter one reads as zeros. The table has the column of blobs.
        """
        value = f'"{blob}"'
        there = f"typeof({value}) = 'blob' AND length({value}) >= {width}"
        sql = self.select(table, columns, where, also=(f"CASE WHEN {there} THEN substr({value}, 1, {width}) ELSE x'' END",))
        read = self._by_arrow(lambda arrow: arrow.integers_and_bytes(sql, len(columns), width))
        if read is None:
            parts = [(np.empty((0, len(columns)), np.int64), np.empty((0, width), np.uint8), np.empty(0, np.bool_))]
            parts += [_numbers_and_bytes(batch, len(columns), width) for batch in self.batches(sql)]
            numbers, packed, whole = (np.concatenate(part) for part in zip(*parts, strict=True))
            read = [np.ascontiguousarray(column) for column in numbers.T], packed, whole
        return dict(zip(columns, read[0], strict=True)), read[1], read[2]

    def _by_pages(self, table: str, columns: Sequence[str], *, narrow: bool) -> dict[str, npt.NDArray[Any]] | None:
        """The columns where the file is as it should be, else None."""
        present = [column for column in dict.fromkeys(columns) if column in self.columns(table)]
        if self.pages is None or not present:
            return None
        from pyprof.parse.sources.sqlite_pages.reader import OddFile

        try:
            read = self.pages.integers(table, present, narrow=narrow)
        except OddFile:
            return None
        found = dict(zip(present, read, strict=True))
        missing = np.broadcast_to(np.int64(-1), len(read[0]))
        return {column: found.get(column, missing) for column in columns}

    def batches_with_text(self, table: str, columns: Sequence[str], text: str) -> Iterator[tuple[list[Ints], Any]]:
        """Integer columns of a table and an Arrow array of texts, some rows at a time; NULL, and a column that the table lacks,
        as -1 or an empty text.

        Raises OddFile, perhaps after some batches, where only rows can be read one by one.
        """
        from pyprof.parse.sources.sqlite_pages.reader import OddFile

        if self.pages is None:
            raise OddFile("small, or no plain file")
        present = [column for column in columns if column in self.columns(table)]
        for read, texts in self.pages.batches(table, present, text):
            found = dict(zip(present, read, strict=True))
            yield [found.get(column, np.broadcast_to(np.int64(-1), len(texts))) for column in columns], texts

    def _by_arrow(self, read: Callable[[ArrowReader], Read]) -> Read | None:
        """What is read by columns where the file is as it should be, else None."""
        if self.arrow is None:
            return None
        from pyprof.parse.sources.arrow import OddFile

        try:
            return read(self.arrow)
        except OddFile:
            return None


def _as_integers(rows: list[tuple[Any, ...]], width: int) -> npt.NDArray[np.int64]:
    try:
        flat = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * width)
    except (TypeError, ValueError, OverflowError):
        flat = np.fromiter((to_integer(value) for row in rows for value in row), np.int64, len(rows) * width)
    return flat.reshape(len(rows), width)


def _numbers_and_bytes(
    rows: list[tuple[Any, ...]], columns: int, width: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """Rows of integers and then a blob of `width` bytes or none."""
    whole = np.fromiter((bool(row[-1]) for row in rows), np.bool_, len(rows))
    packed = np.zeros((len(rows), width), np.uint8)
    packed[whole] = np.frombuffer(b"".join(row[-1] for row in rows), np.uint8).reshape(-1, width)
    return _as_integers([row[:-1] for row in rows], columns), packed, whole


def to_integer(value: Any) -> int:
    """An integer from whatever stands in a column of integers, -1 where that is none."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if -(1 << 63) <= number < 1 << 63 else -1


def to_text(value: Any) -> str:
    """A text from whatever stands in a column of texts; empty where that is NULL."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _heads(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where runs of one value begin. Threads and processes stay the same for many rows: runs are far fewer than rows."""
    return np.concatenate([np.arange(min(len(values), 1)), np.flatnonzero(values[1:] != values[:-1]) + 1])


def distinct_values(values: npt.NDArray[np.int64]) -> set[int]:
    """The values that occur."""
    return set(np.unique(values[_heads(values)]).tolist())


def map_distinct(values: npt.NDArray[np.int64], function: Callable[[int], int]) -> npt.NDArray[np.int64]:
    """A function of integers applied once to each distinct value, smallest first."""
    if not len(values):
        return np.empty(0, np.int64)
    heads = _heads(values)
    distinct, inverse = _distinct(values[heads])
    mapped = np.array([function(value) for value in distinct.tolist()], np.int64)[inverse]
    return np.repeat(mapped, np.diff(np.append(heads, len(values)))) if len(heads) < len(values) else mapped


def _distinct(values: Ints) -> tuple[Ints, Ints]:
    """The distinct values, ascending, and which of them each is; sorted only where a sample does not have all of them."""
    known = np.unique(values[:: max(len(values) // 1024, 1)])
    if len(known) < 256:
        place = np.searchsorted(known, values)
        if (known[np.minimum(place, len(known) - 1)] == values).all():
            return known, place
    found = distinct_rows(values)
    return found.columns[0], found.inverse
