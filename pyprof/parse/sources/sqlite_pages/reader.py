"""Tables of an SQLite file -> columns, read from its pages by numpy in less time than SQLite takes to step through the rows.

Only rowid tables of files at rest are read, whose columns hold the requested types; everything else is an OddFile, and the
caller reads row by row. The caller also knows the schema and holds SQLite's lock. This module must not know what values mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.arrays.growing import Growing, narrowest
from pyprof.parse.sources.sqlite_pages.btree import Bytes, Cells, Ints, OddFile, PageFile
from pyprof.parse.sources.sqlite_pages.cells import Wanted, decode

__all__ = ["NOT_AN_INTEGER", "Batch", "Cell", "OddFile", "PageReader", "Schema", "Texts"]

Cell = int | float | str | bytes | None  # what SQLite can hold in one cell
NOT_AN_INTEGER = -(1 << 63)  # in integer columns of rows read one by one: the cell holds a fraction, a text or a blob

BLOCK_BYTES = 2 << 20  # about the size of a second-level cache
TEXT_BLOCK_BYTES = 4 << 20  # the work per block is larger where texts are read


class Texts(NamedTuple):
    """Texts or blobs within bytes: where each begins and its size in bytes (0 for NULL). They are valid until the next batch.

    After the last one `raw` has at least 32 bytes of padding.
    """

    raw: Bytes
    begin: Ints
    size: Ints

    def to_bytes(self) -> list[bytes]:
        """Each text as bytes of its own."""
        raw = self.raw.tobytes()
        return [raw[begin : begin + size] for begin, size in zip(self.begin.tolist(), self.size.tolist(), strict=True)]


class Batch(NamedTuple):
    """Some rows of a table: the requested integer columns in their order (NULL is -1), and the texts or blobs of one more."""

    columns: Sequence[Ints]
    texts: Texts


class Schema(NamedTuple):
    """A table as SQLite describes it.

    root: its root page, 0 where it has none (a view); affinities: type affinity of each column by name, in their order;
    alias: the column that is another name of the rowid; filled: columns with a default other than NULL; plain: whether all
    columns are stored, none generated.
    """

    name: str
    root: int
    affinities: dict[str, str]
    alias: str | None
    filled: frozenset[str]
    plain: bool

    def wanted(self, columns: Sequence[str], wide: str | None, blobs: bool) -> Wanted:
        """What to read of the records. Raises OddFile where the pages do not hold it."""
        if not self.plain or not self.root or not {*columns} <= self.affinities.keys() or wide in columns:
            raise OddFile(f"{self.name} has no pages, lacks columns or has generated ones, or one is requested as two types")
        real = any(self.affinities[column] == "REAL" for column in columns)
        if real or (wide is not None and self.affinities.get(wide) != ("BLOB" if blobs else "TEXT")):
            raise OddFile(f"{self.name} has columns of other types")
        place = {column: index for index, column in enumerate(self.affinities)}
        return Wanted(
            {place[column]: index for index, column in enumerate(columns)},
            None if wide is None else place[wide],
            None if self.alias is None else place[self.alias],
            {place[column] for column in self.filled},
            {place[name] for name, kind in self.affinities.items() if kind in ("TEXT", "BLOB")} - {place[c] for c in columns},
            blobs,
        )


class PageReader:
    """The tables of a database file. Every method raises OddFile where the file is unusual or broken, DamagedFile where tables
    share pages.

    descriptor: the open file.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self._file = PageFile(descriptor, path)

    def integers(self, schema: Schema, columns: Sequence[str], *, narrow: bool = False) -> list[npt.NDArray[np.int64]]:
        """Integer columns of a table in the order of its rows; NULL is -1; narrow: in 32 bits those that fit.

        Raises OddFile also where the table lacks a column, or a value is not an integer.
        """
        kept: list[Growing] = []
        for cells, wanted, share in self._cells(schema, columns, None):
            if not kept:  # as long as the first block lets expect
                rows = int(len(cells.start) / share * 1.03) + 1
                kept = [Growing(np.int32 if narrow else np.int64, rows) for _ in columns]
            read = [np.empty(len(cells.start), np.int64) for _ in columns]
            decode(cells, wanted, read)
            for column, values in zip(kept, read, strict=True):
                column.append(narrowest(values) if narrow else values)
        return [column.whole() for column in kept] or [np.empty(0, np.int64) for _ in columns]

    def batches(self, schema: Schema, columns: Sequence[str], wide: str | None, *, blobs: bool = False) -> Iterator[Batch]:
        """Integer columns in batches of rows, each with the texts (or blobs) of one more column.

        A text that is not UTF-8 is left as it is; in a column of blobs, what is not a blob is empty. Raises OddFile also after
        some batches, and where the column is not declared as one of texts (or blobs).
        """
        for cells, wanted, _ in self._cells(schema, columns, wide, blobs):
            read = [np.empty(len(cells.start), np.int64) for _ in columns]
            yield Batch(read, Texts(cells.block.raw, *decode(cells, wanted, read)))

    def _cells(
        self, schema: Schema, columns: Sequence[str], wide: str | None, blobs: bool = False
    ) -> Iterator[tuple[Cells, Wanted, float]]:
        """Blocks of cells, each with what to read of them and the share of the table's pages read so far."""
        wanted = schema.wanted(columns, wide, blobs)
        leaves = self._file.leaves(schema.root)
        for cells in self._file.cells(
            leaves, BLOCK_BYTES if wide is None else TEXT_BLOCK_BYTES, wanted.alias in wanted.integers
        ):
            yield cells, wanted, cells.pages / len(leaves)
