"""Tables of an SQLite file -> columns, read from its pages by numpy in less time than SQLite takes to walk over the rows.

It reads only rowid tables of files at rest whose columns hold what is asked for; everything else is an OddFile, and the caller
reads row by row. SQLite itself tells what tables there are, and holds the lock. What the values mean is not known here.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from pyprof.arrays.growing import Growing, narrowest
from pyprof.parse.sources.sqlite_pages.btree import Block, Cells, Ints, OddFile, PageFile
from pyprof.parse.sources.sqlite_pages.cells import Columns, decode

__all__ = ["OddFile", "PageReader"]

BLOCK_BYTES = 2 << 20  # about what the second level of caches holds
TEXT_BLOCK_BYTES = 4 << 20  # whoever reads texts has more to do for each block
# A damaged schema can put bytes that are no text into SQLite's own message, which Python then fails to decode.
_FAULTS = (sqlite3.Error, UnicodeDecodeError, OSError)


class PageReader:
    """A database opened read-only. Every method raises OddFile where the file is not as it should be, or rare."""

    def __init__(self, path: Path) -> None:
        immutable = not os.access(path.parent, os.W_OK)
        uri = f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if immutable else ''}"
        try:
            self._connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        except _FAULTS as error:
            raise OddFile(str(error)) from error
        try:
            # A transaction of reading, so that nobody writes between what SQLite says and what is read from the pages.
            self._connection.execute("BEGIN")
            self._rows("SELECT count(*) FROM sqlite_master")
            self._file = PageFile(path)
        except _FAULTS as error:
            self._connection.close()
            raise OddFile(str(error)) from error
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
        self._file.close()

    def integers(self, table: str, columns: Sequence[str], *, narrow: bool = False) -> list[npt.NDArray[Any]]:
        """Integer columns of a table in the order of its rows; NULL reads as -1; narrow: those in 32 bits that fit.

        Raises OddFile also where the table lacks a column, or a value is no integer.
        """
        distinct = list(dict.fromkeys(columns))
        kept: list[Growing] = []
        for cells, asked, share in self._cells(table, distinct, None):
            if not kept:  # as long as the first block lets expect
                rows = int(len(cells.start) / share * 1.03) + 1
                kept = [Growing(np.int32 if narrow else np.int64, rows) for _ in distinct]
            read = [np.empty(len(cells.start), np.int64) for _ in distinct]
            decode(cells, asked, read)
            for column, values in zip(kept, read, strict=True):
                column.append(narrowest(values) if narrow else values)
        found = [column.whole() for column in kept] or [np.empty(0, np.int64) for _ in distinct]
        return [found[distinct.index(column)] for column in columns]

    def batches(self, table: str, columns: Sequence[str], text_column: str) -> Iterator[tuple[list[Ints], Any]]:
        """The same in blocks of rows, each with a column of texts as a pyarrow StringArray; there NULL is an empty text.

        Bytes that are not UTF-8 are left as they are. Raises OddFile also in the middle, and where the column is not declared
        as one of texts.
        """
        distinct = list(dict.fromkeys(columns))
        for cells, asked, _ in self._cells(table, distinct, text_column):
            found = [np.empty(len(cells.start), np.int64) for _ in distinct]
            texts = decode(cells, asked, found)
            assert texts is not None  # one was asked for
            yield [found[distinct.index(column)] for column in columns], _as_arrow(cells.block, *texts)

    # ------------------------------------------------------------------ what SQLite says

    def _rows(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except _FAULTS as error:
            raise OddFile(str(error)) from error

    def _cells(self, table: str, columns: Sequence[str], text: str | None) -> Iterator[tuple[Cells, Columns, float]]:
        """Blocks of cells, each with what to read of them and the share of the table's pages that was read."""
        asked = self._asked(table, columns, text)
        roots = self._rows("SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?", table)
        if len(roots) != 1 or type(roots[0][0]) is not int:
            raise OddFile(f"{table} is no table with pages")
        leaves = self._file.leaves(roots[0][0])
        for cells in self._file.cells(leaves, BLOCK_BYTES if text is None else TEXT_BLOCK_BYTES, asked.alias in asked.wanted):
            yield cells, asked, cells.pages / len(leaves)

    def _asked(self, table: str, columns: Sequence[str], text: str | None) -> Columns:
        rows = self._rows("SELECT name, type, dflt_value, pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid", table)
        place = {row[0]: index for index, row in enumerate(rows)}
        missing = {*columns, *([] if text is None else [text])} - set(place)
        if missing or text in columns or any(row[4] for row in rows):
            raise OddFile(f"{table} lacks columns, has generated ones, or is asked for one both as integers and texts")
        affinities = [_affinity(str(row[1]).upper()) for row in rows]
        if any(affinities[place[column]] == "REAL" for column in columns) or (
            text is not None and affinities[place[text]] != "TEXT"
        ):
            raise OddFile(f"{table} has columns of other types")
        wanted = {place[column]: index for index, column in enumerate(columns)}
        return Columns(
            wanted=wanted,
            text=None if text is None else place[text],
            alias=self._alias(table, rows),
            filled=frozenset(index for index, row in enumerate(rows) if row[2] is not None and str(row[2]).upper() != "NULL"),
            wide={index for index, affinity in enumerate(affinities) if affinity in ("TEXT", "BLOB")} - set(wanted),
        )

    def _alias(self, table: str, rows: Sequence[tuple[Any, ...]]) -> int | None:
        """The column that is the rowid by another name: an INTEGER PRIMARY KEY that needs no index of its own."""
        keys = [index for index, row in enumerate(rows) if row[3]]
        if len(keys) != 1 or str(rows[keys[0]][1]).upper() != "INTEGER":
            return None
        indexed = self._rows("SELECT 1 FROM pragma_index_list(?) WHERE origin = 'pk'", table)
        return None if indexed else keys[0]


def _affinity(declared: str) -> str:
    """What SQLite makes of a declared type: https://www.sqlite.org/datatype3.html, section 3.1."""
    if "INT" in declared:
        return "INTEGER"
    if any(name in declared for name in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if "BLOB" in declared or not declared:
        return "BLOB"
    return "REAL" if any(name in declared for name in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def _as_arrow(block: Block, begins: Ints, sizes: Ints) -> Any:
    """Texts out of a block: Arrow copies every other one of those that the positions cut the block into."""
    import pyarrow as pa

    from pyprof.arrays.arrow import to_arrow

    rows = len(begins)
    order = np.argsort(begins, kind="stable")
    cuts = np.empty(2 * rows, np.int32)
    cuts[0::2] = begins[order]
    cuts[1::2] = begins[order] + sizes[order]
    if (cuts[1:] < cuts[:-1]).any():
        raise OddFile("cells that overlap")
    pieces = pa.Array.from_buffers(pa.string(), 2 * rows - 1, [None, pa.py_buffer(cuts), pa.py_buffer(block.raw)])
    which = np.empty(rows, np.int32)
    which[order] = np.arange(0, 2 * rows, 2, dtype=np.int32)
    return pieces.take(to_arrow(which))
