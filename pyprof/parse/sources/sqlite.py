"""An SQLite file opened read-only -> its tables as numpy columns, whatever is missing or odd in it.

For nsys and nvprof. Columns are read from the file's pages, or row by row if the pages are refused. Every fault of the file
becomes an error of ours here; knows nothing of what a table means.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import quote

import numpy as np

from pyprof.columns.types import Ints
from pyprof.errors import InputError, NotACapture
from pyprof.parse.sources.sqlite_pages.btree import DamagedFile, OddFile
from pyprof.parse.sources.sqlite_pages.reader import Batch, Cell, PageReader, Schema

if TYPE_CHECKING:
    from pyprof.parse.sources.rows import RowReader

_LEAST_ROW_BYTES = 8
_COMPANIONS = ("-journal", "-wal", "-shm")  # files that belong to a database, by SQLite's names
# A damaged file can put bytes that are not text into SQLite's own message, which Python then fails to decode.
_FAULTS = (sqlite3.Error, UnicodeDecodeError, DamagedFile)


class _Collector(Protocol):
    """An object that takes rows batch by batch."""

    def add(self, batch: Batch) -> None: ...


Collector = TypeVar("Collector", bound=_Collector)


def uri_of(path: Path) -> str:
    """A URI with which SQLite reads a capture, including a log beside it, and never writes to it."""
    # In a folder without write permission a file that once had a log opens only as immutable, which is blind to a log.
    immutable = "" if os.access(path.parent, os.W_OK) or _log_of(path) else "&immutable=1"
    return f"file:{quote(str(path.absolute()))}?mode=ro{immutable}"


def check_no_log(path: Path) -> None:
    """Raise InputError if SQLite keeps changes beside a file: the file alone is another capture."""
    if log := _log_of(path):
        raise InputError(
            f"{path}: {log} beside it holds changes that are not in the file",
            "let what writes it end, then try again; after a crash: sqlite3 FILE 'PRAGMA wal_checkpoint(TRUNCATE)'",
        )


def _log_of(path: Path) -> str | None:
    """The name of a log beside the file that is not empty."""
    for suffix in ("-journal", "-wal"):
        beside = os.path.realpath(path) + suffix
        if os.path.isfile(beside) and os.path.getsize(beside):
            return os.path.basename(beside)
    return None


class Database:
    """A capture in SQLite, never written to; `close` it.

    descriptor: the open file, which must stay open as long as the database. name: the file's name for people. Raises InputError
    if the file is damaged or in use, at the first access that finds it so.
    """

    def __init__(self, descriptor: int, path: Path, name: str) -> None:
        self.name = name
        self._bytes = os.fstat(descriptor).st_size
        # Shorter than its header says it is damaged, even if everything that is read would be there.
        header = os.pread(descriptor, 100, 0)
        page, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
        counted = header[24:28] == header[92:96]  # old writers leave the number of pages stale
        expected = 100 if len(header) < 100 else (65_536 if page == 1 else page) * pages if counted else 0
        if self._bytes < expected:
            raise InputError(f"{self.name}: cut short: {self._bytes} of {expected} bytes are there", "copy or export it again")
        for suffix in _COMPANIONS:  # SQLite would open them beside the file, and wait for a pipe for ever
            beside = os.path.realpath(path) + suffix
            with contextlib.suppress(OSError):
                if not stat.S_ISREG(os.stat(beside).st_mode):
                    raise InputError(
                        f"{self.name}: {os.path.basename(beside)} beside it is not a file",
                        "remove it, or copy the capture elsewhere",
                    )
        self._log = _log_of(path)
        try:
            self._driver = sqlite3.connect(uri_of(path), uri=True, isolation_level=None)
        except _FAULTS as error:
            raise self._fault(error) from error
        # A text that is not UTF-8 must not end the whole parse.
        self._driver.text_factory = partial(str, encoding="utf-8", errors="replace")
        self._schemas: dict[str, Schema] = {}
        self.tables: dict[str, tuple[int, str]] = {}  # of tables and views the root page and the SQL that made them
        self._spelling: dict[str, str] = {}  # names of tables as the file spells them, by their small letters
        try:
            # A read transaction: nobody writes between SQLite's answers and our reading of the pages.
            self.rows("BEGIN")
            for table, root, sql in self.rows("SELECT name, rootpage, sql FROM sqlite_master WHERE type IN ('table', 'view')"):
                self.tables[str(table)] = (root if isinstance(root, int) else 0, str(sql))
                self._spelling[str(table).lower()] = str(table)
            if log := _log_of(path):
                raise OddFile(f"{log} may hold changes that are not in the file, or must be rolled back")
            self._pages: PageReader | None = PageReader(descriptor)
        except OddFile:
            self._pages = None  # all tables are read row by row
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._driver.close()

    def _fault(self, error: Exception) -> InputError:
        text = str(error)
        if "not a database" in text:
            return NotACapture(f"{self.name}: not an SQLite database", "pass the file that `nsys export --type sqlite` wrote")
        if "locked" in text:
            return InputError(f"{self.name}: another program is writing to it: {text}", "wait for it, or copy the file")
        if "readonly" in text:  # SQLite would have to roll back what an interrupted program wrote
            hint = f"export it again, or let `sqlite3 {self.name} .tables` repair it"
            return InputError(f"{self.name}: a program was interrupted while writing to it: {text}", hint)
        if self._log and ("unable to open" in text or "disk I/O" in text):  # SQLite keeps an index of a log in a file beside it
            hint = "copy both to a folder of yours that has free space"
            return InputError(f"{self.name}: {self._log} beside it cannot be used here: {text}", hint)
        return InputError(f"{self.name}: cannot be read: {text}", "the file is damaged or cut short: export or copy it again")

    # ------------------------------------------------------------------ schema

    def has(self, table: str, *columns: str) -> bool:
        """Whether a table exists with all these columns. Capital and small letters are the same in names, as SQLite has it."""
        schema = self.schema(table)
        return schema is not None and bool(schema.affinities) and {*self._spelt(schema, columns)} <= schema.affinities.keys()

    @staticmethod
    def _spelt(schema: Schema, columns: Iterable[str]) -> list[str]:
        """Names of columns as a table spells them; one that it lacks stays."""
        spelling = {name.lower(): name for name in schema.affinities}
        return [spelling.get(name.lower(), name) for name in columns]

    def alike(self, table: str) -> list[str]:
        """The table of this name, else those that have it with a number behind it (`KERNEL_V3`): one for each version."""
        if table.lower() in self._spelling:
            return [table]
        numbered = re.compile(rf"{table}_?V?\d+", re.IGNORECASE)
        return sorted(filter(numbered.fullmatch, self.tables))

    def rows_in(self, table: str) -> bool:
        """Whether a table has any row."""
        return self.schema(table) is not None and bool(self.rows(f'SELECT 1 FROM "{table}" LIMIT 1'))

    def schema(self, table: str) -> Schema | None:
        """SQLite's description of a table, None if there is none of that name.

        Raises InputError for a table that no profiler writes and whose rows could not be trusted.
        """
        table = self._spelling.get(table.lower(), table)
        if table in self._schemas or table not in self.tables:
            return self._schemas.get(table)
        root, sql = self.tables[table]
        if sql.upper().startswith("CREATE VIRTUAL"):
            raise InputError(f"{self.name}: {table} is a virtual table", "no profiler writes that: export it again")
        for other, (root_of_other, _) in self.tables.items():
            if root and root == root_of_other and other != table:
                raise self._fault(DamagedFile(f"{table} and {other} have the same root page {root}"))
        columns = self.rows("SELECT name, type, dflt_value, pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid", table)
        schema = Schema(table, root, {}, None, set(), plain=True)
        keys = 0
        for column, declared, default, key, hidden in columns:
            schema.affinities[str(column)] = _affinity(str(declared).upper())
            if default is not None and str(default).upper() != "NULL":
                schema.filled.add(str(column))
            keys += bool(key)
            alias = str(column) if key and str(declared).upper() == "INTEGER" else schema.alias
            schema = schema._replace(alias=alias, plain=schema.plain and not hidden)
        # An INTEGER PRIMARY KEY that needs no index of its own is the rowid by another name.
        if keys > 1 or self.rows("SELECT 1 FROM pragma_index_list(?) WHERE origin = 'pk'", table):
            schema = schema._replace(alias=None)
        self._schemas[table] = schema
        return schema

    def about_rows(self, table: str) -> int:
        """Number of rows of a table if none was deleted, without counting; at most what the file has room for."""
        try:
            (most,) = self._driver.execute(f'SELECT max(rowid) FROM "{table}"').fetchone()
        except _FAULTS:
            return 0
        return min(max(most, 0), self._bytes // _LEAST_ROW_BYTES) if isinstance(most, int) else 0

    # ------------------------------------------------------------------ values

    def rows(self, sql: str, *values: str) -> list[tuple[Cell, ...]]:
        """All rows of a query with a small result."""
        try:
            return self._driver.execute(sql, values).fetchall()
        except _FAULTS as error:
            raise self._fault(error) from error

    def integers(self, table: str, columns: Mapping[str, str], *, narrow: bool = False) -> dict[str, Ints]:
        """Integer columns of a table, empty without the table; -1 without the column, and for a cell that is no integer.

        columns: name in the table by name in the result; narrow: in a long table, a column whose numbers fit may come in 32
        bits.
        """
        schema = self.schema(table)
        if schema is None:
            return dict.fromkeys(columns, np.empty(0, np.int64))
        names = self._spelt(schema, columns.values())
        assert len({*names}) == len(columns), "each column can be requested once"
        try:
            if self._pages is None:
                raise OddFile
            read = self._pages.integers(schema, names, narrow=narrow)
        except OddFile:
            read = self._row_reader.integers(schema.name, names)
        except _FAULTS as error:
            raise self._fault(error) from error
        return dict(zip(columns, read, strict=True))

    def collect(
        self, table: str, columns: Sequence[str], wide: str, start: Callable[[], Collector], *, blobs: bool = False
    ) -> Collector:
        """Give a collector all rows of a table in batches: integer columns, and the texts (or blobs) of one more column.

        A missing column and NULL are -1, in the wide column empty. If the pages have to be given up in the middle, a new
        collector begins again row by row; there a cell that is no integer is NOT_AN_INTEGER.
        """
        schema, collector = self.schema(table), start()
        if schema is None:
            return collector
        *columns, wide = self._spelt(schema, (*columns, wide))
        try:
            if self._pages is None:
                raise OddFile
            for batch in self._pages.batches(schema, columns, wide, blobs=blobs):
                collector.add(batch)
        except OddFile:
            collector = start()
            for batch in self._row_reader.batches(schema.name, columns, wide, blobs=blobs):
                collector.add(batch)
        except _FAULTS as error:
            raise self._fault(error) from error
        return collector

    @cached_property
    def _row_reader(self) -> RowReader:
        from pyprof.parse.sources.rows import RowReader  # imports SQLAlchemy

        return RowReader(self._driver, self._fault)


def _affinity(declared: str) -> str:
    """SQLite's affinity of a declared type: https://www.sqlite.org/datatype3.html, section 3.1."""
    if "INT" in declared:
        return "INTEGER"
    if "CHAR" in declared or "CLOB" in declared or "TEXT" in declared:
        return "TEXT"
    if "BLOB" in declared or not declared:
        return "BLOB"
    return "REAL" if "REAL" in declared or "FLOA" in declared or "DOUB" in declared else "NUMERIC"
