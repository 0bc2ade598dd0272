"""Tables of an SQLite file -> columns, read from its pages by numpy in less time than SQLite takes to step through the rows.

Only rowid tables of files at rest are read, whose columns hold the requested types; everything else is an OddFile, and the
caller reads row by row. The caller also knows the schema and holds SQLite's lock. This module must not know what values mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

    def take(self, rows: Ints | npt.NDArray[np.bool_]) -> Batch:
        """Some of the rows."""
        raw, begin, size = self.texts
        return Batch([column[rows] for column in self.columns], Texts(raw, begin[rows], size[rows]))


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
    filled: set[str]
    plain: bool

    def wanted(self, columns: Sequence[str], wide: str | None, blobs: bool) -> Wanted:
        """What to read of the records; columns that the table lacks are left out. Raises OddFile where pages cannot give it."""
        if not self.plain or not self.root or wide in columns:
            raise OddFile(f"{self.name} has no pages or has generated columns, or a column is requested as two types")
        wanted = Wanted({}, None, None, set(), set(), blobs)
        for place, (column, affinity) in enumerate(self.affinities.items()):
            if (column == wide and affinity != ("BLOB" if blobs else "TEXT")) or (column in columns and affinity == "REAL"):
                raise OddFile(f"{column} of {self.name} is declared as another type")
            if column in columns:
                wanted.integers[place] = columns.index(column)
            elif affinity in ("TEXT", "BLOB"):
                wanted.known_wide.add(place)
            if column in self.filled:
                wanted.filled.add(place)
            wanted = wanted._replace(
                wide=place if column == wide else wanted.wide, alias=place if column == self.alias else wanted.alias
            )
        return wanted


class PageReader(PageFile):
    """The tables of a database file. Every method raises OddFile where the file is unusual or broken, DamagedFile where tables
    share pages."""

    def integers(self, schema: Schema, columns: Sequence[str], *, narrow: bool = False) -> list[npt.NDArray[np.int64]]:
        """Integer columns of a table in the order of its rows; NULL, and a column that the table lacks, is -1.

        narrow: in 32 bits those that fit. Raises OddFile also where a value is not an integer.
        """
        kept: list[Growing] = []
        for cells, wanted, share in self._cells(schema, columns, None):
            if not kept:  # as long as the first block lets expect
                rows = int(len(cells.start) / share * 1.03) + 1
                kept = [Growing(np.int32 if narrow else np.int64, rows) for _ in columns]
            read = np.full((len(columns), len(cells.start)), -1, np.int64)
            decode(cells, wanted, read)
            for column, values in zip(kept, read, strict=True):
                column.append(narrowest(values) if narrow else values)
        return list(map(Growing.whole, kept)) or list(np.empty((len(columns), 0), np.int64))

    def batches(self, schema: Schema, columns: Sequence[str], wide: str | None, *, blobs: bool = False) -> Iterator[Batch]:
        """Integer columns in batches of rows, each with the texts (or blobs) of one more column.

        A text that is not UTF-8 is left as it is; in a column of blobs, what is not a blob is empty. Raises OddFile also after
        some batches, and where the column is not declared as one of texts (or blobs).
        """
        for cells, wanted, _ in self._cells(schema, columns, wide, blobs):
            read = np.full((len(columns), len(cells.start)), -1, np.int64)
            yield Batch(list(read), Texts(cells.block.raw, *decode(cells, wanted, read)))

    def _cells(
        self, schema: Schema, columns: Sequence[str], wide: str | None, blobs: bool = False
    ) -> Iterator[tuple[Cells, Wanted, float]]:
        """Blocks of cells, each with what to read of them and the share of the table's pages read so far."""
        wanted = schema.wanted(columns, wide, blobs)
        leaves = self.leaves(schema.root)
        block_bytes = BLOCK_BYTES if wide is None else TEXT_BLOCK_BYTES
        for cells in self.cells(leaves, block_bytes, wanted.alias in wanted.integers):
            yield cells, wanted, cells.pages / len(leaves)
