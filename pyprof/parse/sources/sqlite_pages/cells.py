"""Records in the cells of an SQLite table -> columns of integers, and where the texts of one column stand.

The format is https://www.sqlite.org/fileformat2.html, section 2.1. Headers are read for many rows at once: the serial types of
a run of columns are one piece of bytes as long as each takes one byte, widths are found by a table, and where the values begin
by sums of bytes within 8-byte words. Values that are no integers where integers are asked for are an OddFile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pyprof.parse.sources.sqlite_pages.btree import Block, Cells, Ints, OddFile, varints

__all__ = ["Columns", "decode"]

Types = npt.NDArray[np.uint8]
_FLOAT = 7
_WIDE = 0x80
_WIDTHS = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)  # bytes by serial type; 10 and 11 are reserved, others are texts and blobs
_WIDTH = bytes([*_WIDTHS, *[_WIDE] * (256 - len(_WIDTHS))])
_CONSTANT = np.array([-1, 0, 0, 0, 0, 0, 0, 0, 0, 1], np.int64)  # of serial types without a value; NULL reads as -1
_LONGEST_RUN = 31  # 8 bytes each: sums of that many stay below 256
_ONES = np.uint64(0x0101010101010101)


@dataclass
class Columns:
    """What is asked of the records of one table; columns are told by where they stand in a record, from 0.

    wanted: integer columns, each with the index of its result; text: the column of texts; alias: the column that stands for
    the rowid; filled: columns that are not NULL in rows written before they were added; wide: columns in which texts or blobs
    are to be expected, to which those are added that are met.
    """

    wanted: dict[int, int]
    text: int | None
    alias: int | None
    filled: frozenset[int]
    wide: set[int] = field(default_factory=set)

    @property
    def count(self) -> int:
        """Columns up to the last that is needed."""
        return max([*self.wanted, -1 if self.text is None else self.text], default=-1) + 1

    def runs(self) -> list[tuple[int, int]]:
        """Columns begin:end read together; a wide one is read alone."""
        runs: list[tuple[int, int]] = []
        for column in range(self.count):
            alone = column in self.wide or column == self.text
            if runs and not alone and runs[-1][1] - runs[-1][0] < _LONGEST_RUN and runs[-1][0] not in self.wide | {self.text}:
                runs[-1] = runs[-1][0], column + 1
            else:
                runs.append((column, column + 1))
        return runs


def decode(cells: Cells, columns: Columns, out: Sequence[Ints]) -> tuple[Ints, Ints] | None:
    """Fill the results; where a column of texts is asked for, where each text begins and how many bytes it has (NULL: 0)."""
    for _ in range(columns.count + 1):  # each time one column more is known as wide
        rows = _Rows(cells, columns)
        if rows.read(out):
            return rows.texts
    raise OddFile("columns of no type")


class _Rows:
    """Where in the records of one block the reading is: at which byte of the header, and at which of the values."""

    def __init__(self, cells: Cells, columns: Columns) -> None:
        self.columns = columns
        self.cells = cells
        self.block: Block = cells.block
        size, length = varints(self.block, cells.start)
        if (size <= length).any() or (size > cells.end - cells.start).any():  # a record has at least one column
            raise OddFile("a header longer than its record, or an empty one")
        self.header = cells.start + length
        self.values = cells.start + size
        self.header_end = self.values
        self.texts: tuple[Ints, Ints] | None = None

    def read(self, out: Sequence[Ints]) -> bool:
        """Whether all was read; otherwise one more column is wide now, and all must be read again."""
        for begin, end in self.columns.runs():
            if begin in self.columns.wide or begin == self.columns.text:
                self._wide(begin)
            elif not self._narrow(begin, end, out):
                return False
        complete = self.header == self.header_end
        if (self.values[complete] != self.cells.end[complete]).any():
            raise OddFile("a record longer than its header says")
        return True

    def _narrow(self, begin: int, end: int, out: Sequence[Ints]) -> bool:
        """Columns whose serial types take one byte each."""
        count = end - begin
        words = -(-count // 8)
        packed = self.block.gather(8 * words, self.header).view(np.uint64).reshape(-1, words)
        packed[:, -1] &= np.uint64((1 << 8 * ((count - 1) % 8 + 1)) - 1)
        types = packed.view(np.uint8)
        left = self.header_end - self.header
        if short := int(left.min()) < count:  # rows written before columns were added
            types[np.arange(8 * words) >= left[:, None]] = 0
        said = types.tobytes().translate(_WIDTH)
        widths = np.frombuffer(said, np.uint8).reshape(-1, 8 * words)
        if _WIDE in said:
            found = int((widths == _WIDE).any(axis=0).argmax()) + begin
            if found in self.columns.wanted:
                raise OddFile("a text in a column of integers")
            self.columns.wide.add(found)
            return False
        ends = widths.view(np.uint64) * _ONES  # each byte is the sum of those up to it
        for word in range(1, words):
            ends[:, word] += (ends[:, word - 1] >> np.uint64(56)) * _ONES
        sums = ends.view(np.uint8)
        begins, self.values = self.values, self.values + sums[:, count - 1]
        if (self.values > self.cells.end).any():
            raise OddFile("a value outside of its record")
        for column in range(begin, end):
            if column in self.columns.wanted:
                if short and column in self.columns.filled and (left <= column - begin).any():
                    raise OddFile("a default")
                at = column - begin
                result = out[self.columns.wanted[column]]
                if column == self.columns.alias:
                    self._alias(result)
                else:
                    self._integers(types[:, at].copy(), begins, sums[:, at], result)
        self.header = np.minimum(self.header + count, self.header_end) if short else self.header + count
        return True

    def _alias(self, out: Ints) -> None:
        assert self.cells.rowid is not None
        out[:] = self.cells.rowid

    def _integers(self, types: Types, begins: Ints, ends: Types, out: Ints) -> None:
        """The integers of one column, of which each ends that many bytes after the beginning of its run."""
        least, most = int(types.min()), int(types.max())
        if least <= _FLOAT <= most and (types == _FLOAT).any():
            raise OddFile("a fraction in a column of integers")
        if least == most and not _WIDTHS[least]:
            out[:] = _CONSTANT[least]
            return
        if least == most:
            width = _WIDTHS[least]
            np.right_shift(self.block.words(begins + (ends - np.uint8(width))).view(np.int64), 64 - 8 * width, out=out)
            return
        widths = np.frombuffer(types.tobytes().translate(_WIDTH), np.uint8)
        shifts = (np.uint8(64) - (widths << np.uint8(3))).astype(np.int64)
        np.right_shift(self.block.words(begins + (ends - widths)).view(np.int64), shifts, out=out)
        if not least or most > _FLOAT:
            constant = np.flatnonzero(widths == 0)
            out[constant] = _CONSTANT[types[constant]]

    def _wide(self, column: int) -> None:
        """A column of texts or blobs, of which only the one that is asked for is kept."""
        there = self.header < self.header_end
        types, length = varints(self.block, np.minimum(self.header, self.header_end))
        if not there.all():
            if column in self.columns.filled:
                raise OddFile("a default")
            types, length = np.where(there, types, 0), np.where(there, length, 0)
        if (types < 0).any() or ((types == 10) | (types == 11)).any():
            raise OddFile("a serial type that cannot be")
        small = np.array([*_WIDTHS, 0, 0], np.int64)[np.minimum(types, 11)]
        size = np.where(types >= 12, (types - 12) >> 1, small)
        if column == self.columns.text:
            if ((types != 0) & ((types < 13) | (types & 1 == 0))).any():
                raise OddFile("no text in a column of texts")
            self.texts = self.values, size
        self.header = self.header + length
        self.values = self.values + size
        if (self.header > self.header_end).any() or (self.values > self.cells.end).any():
            raise OddFile("a value outside of its record")
