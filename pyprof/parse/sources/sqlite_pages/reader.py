"""Tables of an SQLite file -> columns, read from its pages by numpy in less time than SQLite takes to step through the rows.

Reads only rowid tables of files at rest whose columns hold the requested types; everything else is an OddFile, and the caller
reads row by row. The caller also knows the schema and holds SQLite's lock. Knows nothing of what values mean.

The format of a record is https://www.sqlite.org/fileformat2.html, section 2.1. Headers are read for many rows at once: the
serial types of a run of columns are one piece of bytes as long as each takes one byte. Most columns have one width in all rows
of a block, so values stand equally far from each other there and are copied together, many columns at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import Growing, narrowest
from pyprof.columns.types import Array, Bools, Bytes, Ints
from pyprof.parse.sources.sqlite_pages.btree import Cells, OddFile, PageBlock, PageFile, varints

Cell = int | float | str | bytes | None  # what SQLite can hold in one cell
NOT_AN_INTEGER = -(1 << 63)  # in integer columns of rows read one by one: the cell holds a fraction, a text or a blob

BLOCK_BYTES = 2 << 20  # about the size of a second-level cache
TEXT_BLOCK_BYTES = 4 << 20  # the work per block is larger where texts are read

_FLOAT = 7
_WIDTHS = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)  # bytes by serial type; 10 and 11 are reserved, others are texts and blobs
_MOST_NARROW = len(_WIDTHS) - 1
_WIDTH = np.array(_WIDTHS, np.int64)
_SHIFT = 64 - 8 * _WIDTH  # bits, from the 8 bytes that begin with a number to the number
_POWERS = (1, 2, 4, 8)
_CONSTANT = np.array([-1, 0, 0, 0, 0, 0, 0, 0, 0, 1], np.int64)  # of serial types without a value; NULL reads as -1
_LONGEST_RUN = 32  # columns
_MOST_WINDOW = 112  # bytes before a column, of which 8 are read: copies are as fast up to 128


class PackedTexts(NamedTuple):
    """Texts or blobs within bytes: where each begins and its size in bytes (0 for NULL). They are valid until the next batch.

    After the last one `raw` has at least 32 bytes of padding.
    """

    raw: Bytes
    begin: Ints
    size: Ints

    def to_bytes(self) -> list[bytes]:
        raw = self.raw.tobytes()
        return list(map(raw.__getitem__, map(slice, self.begin.tolist(), (self.begin + self.size).tolist())))


class Batch(NamedTuple):
    """Some rows of a table: the requested integer columns in their order (NULL is -1), and the texts or blobs of one more."""

    columns: Sequence[Ints]
    texts: PackedTexts

    def take(self, rows: Ints | Bools) -> Batch:
        raw, begin, size = self.texts
        return Batch([column[rows] for column in self.columns], PackedTexts(raw, begin[rows], size[rows]))


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
        """The columns to read from the records, without those that the table lacks. Raises OddFile if pages cannot give
        them."""
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
    """The tables of a database file. Every method raises OddFile if the file is unusual or broken, DamagedFile if tables share
    pages."""

    def integers(self, schema: Schema, columns: Sequence[str], *, narrow: bool = False) -> list[Ints]:
        """Integer columns of a table in the order of its rows; NULL, and a column that the table lacks, is -1.

        narrow: in 32 bits those that fit. Raises OddFile also if a value is not an integer.
        """
        kept: list[Growing] = []
        for cells, wanted, share in self._cells(schema, columns, None):
            if not kept:  # as long as the first block lets expect
                rows = int(len(cells.start) / share * 1.03) + 1
                kept = list(map(Growing, repeat(np.int32 if narrow else np.int64, len(columns)), repeat(rows)))
            read = np.full((len(columns), len(cells.start)), -1, np.int64)
            decode(cells, wanted, read)
            for column, values in zip(kept, read, strict=True):
                column.append(narrowest(values) if narrow else values)
        return list(map(Growing.whole, kept)) or list(np.empty((len(columns), 0), np.int64))

    def batches(self, schema: Schema, columns: Sequence[str], wide: str | None, *, blobs: bool = False) -> Iterator[Batch]:
        """Integer columns of all rows in batches, each with the texts (or blobs) of one more column.

        A text that is not UTF-8 stays as it is; in a column of blobs, a cell of another type is empty. Raises OddFile also
        after some batches, and if the column is not declared as one of texts (or blobs).
        """
        for cells, wanted, _ in self._cells(schema, columns, wide, blobs):
            read = np.full((len(columns), len(cells.start)), -1, np.int64)
            yield Batch(list(read), PackedTexts(cells.block.raw, *decode(cells, wanted, read)))

    def _cells(
        self, schema: Schema, columns: Sequence[str], wide: str | None, blobs: bool = False
    ) -> Iterator[tuple[Cells, Wanted, float]]:
        """Blocks of cells, each with the columns to read and the share of the pages read so far."""
        wanted = schema.wanted(columns, wide, blobs)
        leaves = self.leaves(schema.root)
        block_bytes = BLOCK_BYTES if wide is None else TEXT_BLOCK_BYTES
        for cells in self.cells(leaves, block_bytes, wanted.alias in wanted.integers):
            yield cells, wanted, cells.pages / len(leaves)


# ---------------------------------------------------------------------------------------------- records in cells


class Wanted(NamedTuple):
    """The columns to read from the records of one table, by their place in a record, from 0.

    integers: integer columns, each with the index of its result; wide: the column of texts (or of blobs, if `blobs`) to locate,
    None for none; alias: the column that is another name of the rowid; filled: columns whose default is not NULL, which rows
    written before they were added do not hold; known_wide: columns in which texts or blobs are expected, to which those met on
    the way are added.
    """

    integers: dict[int, int]
    wide: int | None
    alias: int | None
    filled: set[int]
    known_wide: set[int]
    blobs: bool

    def runs(self) -> list[tuple[int, int]]:
        """Columns begin:end read together; a wide one is read alone."""
        runs: list[tuple[int, int]] = []
        for column in range(max([*self.integers, -1 if self.wide is None else self.wide], default=-1) + 1):
            begin = runs[-1][0] if runs else column
            if runs and column - begin < _LONGEST_RUN and not {begin, column} & self.known_wide:
                runs[-1] = begin, column + 1
            else:
                runs.append((column, column + 1))
        return runs


def decode(cells: Cells, wanted: Wanted, out: Ints) -> tuple[Ints, Ints]:
    """Fill the results, a row each; returns the begin and size in bytes of each text or blob (0 for NULL, or if not wanted)."""
    while True:  # each time one more column is known to be wide
        rows = _RecordRows(cells, wanted)
        if rows.read(out):
            return rows.located


class _RecordRows:
    """The records of one block, and how far they are read: the next byte of each header and of each record's values."""

    def __init__(self, cells: Cells, wanted: Wanted) -> None:
        self.wanted = wanted
        self.cells = cells
        self.block: PageBlock = cells.block
        size, length = varints(self.block, cells.start)
        if (size <= length).any() or (size > cells.end - cells.start).any():  # a record has at least one column
            raise OddFile("a header is empty or longer than its record")
        self.header = cells.start + length
        self.values = cells.start + size
        self.header_end = self.values
        self.located = self.values, np.zeros(len(self.values), np.int64)

    def read(self, out: Ints) -> bool:
        """Whether everything was read; if not, one more column is known to be wide, and all must be read again."""
        for begin, end in self.wanted.runs():
            if begin in self.wanted.known_wide:
                self._wide(begin)
            elif not self._narrow(begin, end, out):
                return False
        complete = self.header == self.header_end
        if (self.values[complete] != self.cells.end[complete]).any():
            raise OddFile("a record is longer than its header says")
        return True

    def _narrow(self, begin: int, end: int, out: Ints) -> bool:
        """Columns whose serial types take one byte each."""
        count = end - begin
        words = -(-count // 8)
        packed = self.block.gather(8 * words, self.header).view(np.uint64).reshape(-1, words)
        packed[:, -1] &= np.uint64((1 << 8 * ((count - 1) % 8 + 1)) - 1)
        types = packed.view(np.uint8)
        left = self.header_end - self.header
        if short := int(left.min()) < count:  # rows written before columns were added
            types[np.arange(8 * words) >= left[:, None]] = 0
            filled = [column for column in self.wanted.filled & self.wanted.integers.keys() if begin <= column < end]
            if any((left <= column - begin).any() for column in filled):
                raise OddFile("a row that holds the default of a later column")
        differ = np.bitwise_or.reduce(packed ^ packed[0]).view(np.uint8)
        columns = []
        for place in range(count):
            own = np.ascontiguousarray(types[:, place]) if differ[place] else types[:1, place]
            if (own > _MOST_NARROW).any():
                if begin + place in self.wanted.integers:
                    raise OddFile("a text in a column of integers")
                self.wanted.known_wide.add(begin + place)
                return False
            columns.append(own)
        while columns:
            taken = self._window(begin, columns, out)
            begin, columns = begin + taken, columns[taken:]
        self.header = np.minimum(self.header + count, self.header_end) if short else self.header + count
        return True

    def _window(self, begin: int, types: list[Bytes], out: Ints) -> int:
        """Read the columns that are equally far from where the values stand in each row: all up to the first whose width
        differs, this one too. types: of each column, one for all rows where these have the same. Returns how many were read.

        The bytes of all these are copied at once: a copy of many bytes takes as long as one of eight.
        """
        places, at = [], 0
        for own in types:
            places.append(at)
            if len(own) > 1 or at > _MOST_WINDOW:
                break
            at += _WIDTHS[own[0]]
        wanted = [place for place in range(len(places)) if begin + place in self.wanted.integers]
        size = -(-(places[wanted[-1]] + 8) // 8) * 8 if wanted else 0
        window = self.block.gather(size, self.values) if wanted else np.empty(0, "V1")
        last = types[len(places) - 1]
        self.values = self.values + (places[-1] + (np.int64(_WIDTHS[last[0]]) if len(last) == 1 else _WIDTH.take(last)))
        if (self.values > self.cells.end).any():
            raise OddFile("a value lies outside its record")
        for place in wanted:
            result = out[self.wanted.integers[begin + place]]
            if begin + place == self.wanted.alias and self.cells.rowid is not None:
                result[:] = self.cells.rowid
            else:
                _integers(types[place], window, size, places[place], result)
        return len(places)

    def _wide(self, column: int) -> None:
        """Skip a column of texts or blobs, and locate them if it is the wanted one."""
        there = self.header < self.header_end
        types, length = varints(self.block, np.minimum(self.header, self.header_end))
        if not there.all():
            if column in self.wanted.filled:
                raise OddFile("a row that holds the default of a later column")
            types, length = np.where(there, types, 0), np.where(there, length, 0)
        if (types < 0).any() or ((types == 10) | (types == 11)).any():
            raise OddFile("a reserved serial type")
        small = np.array([*_WIDTHS, 0, 0], np.int64)[np.minimum(types, 11)]
        size = np.where(types >= 12, (types - 12) >> 1, small)
        if column == self.wanted.wide:
            right = (types >= 12) & (types & 1 == (0 if self.wanted.blobs else 1))
            if not self.wanted.blobs and (~right & (types != 0)).any():
                raise OddFile("a value that is not a text in a column of texts")
            self.located = self.values, np.where(right, size, 0)
        self.header = self.header + length
        self.values = self.values + size
        if (self.header > self.header_end).any() or (self.values > self.cells.end).any():
            raise OddFile("a value lies outside its record")


def _integers(types: Bytes, window: Array, size: int, at: int, out: Ints) -> None:
    """The integers of one column. types: of each row, or one for all; window: `size` bytes of each row; at: offset of the
    column among these."""
    least, most = int(types.min()), int(types.max())
    if least <= _FLOAT <= most and (types == _FLOAT).any():
        raise OddFile("a fraction in a column of integers")
    if len(types) == 1 and not _WIDTHS[least]:
        out[:] = _CONSTANT[least]
        return
    width = _WIDTHS[least] if len(types) == 1 else 8
    read = width if width in _POWERS else 8
    out[:] = np.ndarray((len(out),), f">i{read}", window.data, offset=at, strides=(size,))
    if len(types) == 1:
        if read > width:
            out >>= 64 - 8 * width
        return
    out >>= _SHIFT.take(types)
    if not least or most > _FLOAT:
        constant = np.flatnonzero(_WIDTH.take(types) == 0)
        out[constant] = _CONSTANT[types[constant]]
