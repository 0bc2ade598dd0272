"""An SQLite file opened read-only -> its tables as numpy columns, whatever is missing or odd in it.

nsys and nvprof share it. Columns are read from the file's pages, or row by row where the pages are refused. Every fault of the
file leaves here as an error of ours; this module must not know what a table means.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from pyprof.errors import InputError, NotACapture
from pyprof.parse.sources.sqlite_pages.btree import DamagedFile
from pyprof.parse.sources.sqlite_pages.reader import Batch, Cell, OddFile, PageReader, Schema

if TYPE_CHECKING:
    from pyprof.parse.sources.rows import RowReader

__all__ = ["Database"]

Ints = npt.NDArray[np.int64]
_LEAST_ROW_BYTES = 8
# A damaged file can put bytes that are not text into SQLite's own message, which Python then fails to decode.
_FAULTS = (sqlite3.Error, UnicodeDecodeError, DamagedFile)
_TEXT = ("CHAR", "CLOB", "TEXT")


class _Collector(Protocol):
    """Something that takes rows batch by batch."""

    def add(self, batch: Batch) -> None: ...


Collector = TypeVar("Collector", bound=_Collector)


class Database:
    """A capture in SQLite, never written to. Use it in a `with`.

    descriptor: the open file, which must stay open as long as the database. name: the file's name for people.
    Raises InputError where the file is damaged or in use, at the first access that finds it so.
    """

    def __init__(self, descriptor: int, path: Path, name: str) -> None:
        self.name = name
        self._descriptor, self._path = descriptor, path
        self._bytes = os.fstat(descriptor).st_size
        self._check_whole(os.pread(descriptor, 100, 0))
        self._schemas: dict[str, Schema | None] = {}
        # An export beside which a journal was left, or in a folder without write permission, opens only as immutable.
        immutable = "" if os.access(path.parent, os.W_OK) else "&immutable=1"
        try:
            self._driver = sqlite3.connect(
                f"file:{quote(str(path.absolute()))}?mode=ro{immutable}", uri=True, isolation_level=None
            )
        except _FAULTS as error:
            raise self._fault(error) from error
        # A text that is not UTF-8 must not end the whole parse.
        self._driver.text_factory = lambda raw: raw.decode("utf-8", "replace")
        try:
            self._driver.execute("BEGIN")  # a read transaction: nobody writes between what SQLite says and what the pages hold
            found = self.rows("SELECT name, rootpage, sql FROM sqlite_master WHERE type IN ('table', 'view')")
        except BaseException:
            self._driver.close()
            raise
        self._roots = {str(name): root if isinstance(root, int) else 0 for name, root, _ in found}
        self._virtual = {str(name) for name, _, sql in found if str(sql).upper().startswith("CREATE VIRTUAL")}
        self.tables = self._roots.keys()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.close()

    def _check_whole(self, header: bytes) -> None:
        """Raise InputError where the file is shorter than its header says, even if all that is read would be there."""
        page, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
        counted = header[24:28] == header[92:96]  # old writers leave the number of pages stale
        expected = 100 if len(header) < 100 else (65_536 if page == 1 else page) * pages if counted else 0
        if self._bytes < expected:
            raise InputError(f"{self.name}: cut short: {self._bytes} of {expected} bytes are there", "copy or export it again")

    def _fault(self, error: Exception) -> InputError:
        text = str(error)
        if "not a database" in text:
            return NotACapture(f"{self.name}: not an SQLite database", "pass the file that `nsys export --type sqlite` wrote")
        if "locked" in text:
            return InputError(
                f"{self.name}: another program is writing to it: {text}", "wait for that program, or copy the file"
            )
        if "readonly" in text:  # SQLite would have to roll back what an interrupted program wrote
            return InputError(
                f"{self.name}: a program was interrupted while writing to it: {text}",
                f"export it again, or let `sqlite3 {self.name} .tables` repair it",
            )
        return InputError(f"{self.name}: cannot be read: {text}", "the file is damaged or cut short: export or copy it again")

    # ------------------------------------------------------------------ schema

    def has(self, table: str, *columns: str) -> bool:
        """Whether a table exists with all these columns."""
        schema = self.schema(table)
        return schema is not None and bool(schema.affinities) and {*columns} <= schema.affinities.keys()

    def schema(self, table: str) -> Schema | None:
        """What SQLite says of a table, None where there is none of that name."""
        if table not in self._schemas:
            self._schemas[table] = self._describe(table) if table in self._roots else None
        return self._schemas[table]

    def _describe(self, table: str) -> Schema:
        root = self._roots[table]
        if table in self._virtual or (root and [*self._roots.values()].count(root) > 1):
            fault = "is a virtual table" if table in self._virtual else f"shares root page {root} with another table"
            raise InputError(f"{self.name}: the table {table} {fault}", "no profiler writes that: export it again")
        rows = self.rows("SELECT name, type, dflt_value, pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid", table)
        keys = [str(name) for name, _, _, key, _ in rows if key]
        # An INTEGER PRIMARY KEY that needs no index of its own is the rowid by another name.
        alias = len(keys) == 1 and any(str(row[0]) == keys[0] and str(row[1]).upper() == "INTEGER" for row in rows)
        if alias and self.rows("SELECT 1 FROM pragma_index_list(?) WHERE origin = 'pk'", table):
            alias = False
        return Schema(
            table,
            root,
            {str(row[0]): _affinity(str(row[1]).upper()) for row in rows},
            keys[0] if alias else None,
            frozenset(str(row[0]) for row in rows if row[2] is not None and str(row[2]).upper() != "NULL"),
            not any(row[4] for row in rows),
        )

    def about_rows(self, table: str) -> int:
        """Number of rows of a table if none was deleted, without counting; at most what the file has room for."""
        try:
            (most,) = self._driver.execute(f'SELECT max(rowid) FROM "{table}"').fetchone()
        except _FAULTS:
            return 0
        return min(max(most, 0), self._bytes // _LEAST_ROW_BYTES) if isinstance(most, int) else 0

    # ------------------------------------------------------------------ values

    def rows(self, sql: str, *values: str) -> list[tuple[Cell, ...]]:
        """All rows of a query that has few."""
        try:
            return self._driver.execute(sql, values).fetchall()
        except _FAULTS as error:
            raise self._fault(error) from error

    def integers(self, table: str, columns: Sequence[str], *, narrow: bool = False) -> dict[str, Ints]:
        """Integer columns of a table, empty where it is absent; -1 where a column is absent, or a cell is not an integer.

        narrow: where there are many rows, a column whose numbers fit may come in 32 bits.
        """
        schema = self.schema(table)
        present = [column for column in dict.fromkeys(columns) if schema is not None and column in schema.affinities]
        if schema is None or not present:
            return {column: np.empty(0, np.int64) for column in columns}
        try:
            if self._pages is None:
                raise OddFile
            read = self._pages.integers(schema, present, narrow=narrow)
        except OddFile:
            read = self._row_reader.integers(table, present)
        except _FAULTS as error:
            raise self._fault(error) from error
        found = dict(zip(present, read, strict=True))
        missing = np.broadcast_to(np.int64(-1), len(read[0]))
        return {column: found.get(column, missing) for column in columns}

    def collect(
        self, table: str, columns: Sequence[str], wide: str | None, start: Callable[[], Collector], *, blobs: bool = False
    ) -> Collector:
        """Give a collector all rows of a table in batches: integer columns, and the texts (or blobs) of one more column.

        A column that the table lacks, and NULL, is -1, in the wide one empty. Where the pages have to be given up in the
        middle, a new collector begins again row by row; there a cell that is not an integer is NOT_AN_INTEGER.
        """
        schema = self.schema(table)
        if schema is None:
            return start()
        present = [column for column in columns if column in schema.affinities]
        wide = wide if wide in schema.affinities else None
        readers: list[Callable[[], Iterator[Batch]]] = [lambda: self._row_reader.batches(table, present, wide, blobs=blobs)]
        if (pages := self._pages) is not None and present:
            readers.insert(0, lambda: pages.batches(schema, present, wide, blobs=blobs))
        for read in readers:
            collector = start()
            try:
                for batch in read():
                    found = dict(zip(present, batch.columns, strict=True))
                    missing = np.broadcast_to(np.int64(-1), len(batch.texts.size))
                    collector.add(Batch([found.get(column, missing) for column in columns], batch.texts))
                return collector
            except OddFile:
                continue
            except _FAULTS as error:
                raise self._fault(error) from error
        raise AssertionError("rows can always be read one by one")

    @cached_property
    def _pages(self) -> PageReader | None:
        """The reader of whole columns; None where the file as a whole is unusual."""
        try:
            return PageReader(self._descriptor, self._path)
        except OddFile:
            return None

    @cached_property
    def _row_reader(self) -> RowReader:
        from pyprof.parse.sources.rows import RowReader  # imports SQLAlchemy

        return RowReader(self._driver, self._fault)


def _affinity(declared: str) -> str:
    """What SQLite makes of a declared type: https://www.sqlite.org/datatype3.html, section 3.1."""
    if "INT" in declared:
        return "INTEGER"
    if any(name in declared for name in _TEXT):
        return "TEXT"
    if "BLOB" in declared or not declared:
        return "BLOB"
    return "REAL" if any(name in declared for name in ("REAL", "FLOA", "DOUB")) else "NUMERIC"
