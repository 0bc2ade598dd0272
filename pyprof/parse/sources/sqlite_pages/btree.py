"""The file of an SQLite database -> the cells of one table, a block of pages at a time.

The format is https://www.sqlite.org/fileformat2.html, sections 1.3 to 1.6. Knows nothing of the record in a cell. Raises
OddFile for everything that differs from the format, and for everything rare.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.columns.types import Array, Bytes, Ints

SLACK = 256  # spare bytes at the end of a block, so that a read of fixed width may run past the last cell
_LONGEST_SPILL = 64 << 20  # bytes of payloads in overflow pages, per block
_LEAF, _INTERIOR = 13, 5
_DEEPEST = 20
_MOST_PAYLOAD = (1 << 31) - 1


class OddFile(Exception):
    """Something in the file is unusual or broken, so it must be read row by row."""


class DamagedFile(Exception):
    """The file contradicts itself in a way that SQLite does not notice: rows read from it would be wrong."""


@dataclass(eq=False, repr=False)
class PageBlock:
    """Bytes from which many small pieces are copied at once; the last SLACK bytes are padding."""

    raw: Bytes
    _windows: dict[int, Array] = field(default_factory=dict)

    def gather(self, width: int, at: Ints) -> Array:
        """`width` bytes from each position, as one void each: a memcpy of 3 ns for any width up to 128."""
        windows = self._windows.get(width)
        if windows is None:
            windows = np.ndarray((len(self.raw) - width + 1,), f"V{width}", self.raw.data, strides=(1,))
            self._windows[width] = windows
        return windows[at]

    def words(self, at: Ints) -> npt.NDArray[np.uint64]:
        """The 8 bytes from each position as a big-endian number."""
        return self.gather(8, at).view(np.uint64).byteswap(inplace=True)


class Cells(NamedTuple):
    """Cells of a block: where the payload of each begins and ends, and its rowid (None unless requested).

    pages: number of leaf pages read so far.
    """

    block: PageBlock
    start: Ints
    end: Ints
    rowid: Ints | None
    pages: int


def varints(block: PageBlock, at: Ints) -> tuple[Ints, Ints]:
    """The numbers of variable length at the positions, and the bytes that each takes (1 to 9)."""
    words = block.words(at)
    every, some = int(np.bitwise_and.reduce(words)), int(np.bitwise_or.reduce(words))
    goes_on = [(every >> bit & 1, some >> bit & 1) for bit in range(63, 0, -8)]  # of each byte, in all words and in any
    same = next((number for number, (in_all, _) in enumerate(goes_on, 1) if not in_all), 0)
    if same and not goes_on[same - 1][1]:  # all take as many bytes
        value = (words >> np.uint64(56)) & np.uint64(0x7F)
        for index in range(1, same):
            value <<= np.uint64(7)
            value |= (words >> np.uint64(56 - 8 * index)) & np.uint64(0x7F)
        return value.view(np.int64), np.broadcast_to(np.int64(same), len(at))
    value = words >> np.uint64(56)
    length = np.ones(len(at), np.int64)
    more = value >= 128
    value &= np.uint64(0x7F)
    for index in range(1, 9):
        length += more
        if index == 8:
            last = block.gather(1, at + 8).view(np.uint8)
            value = np.where(more, (value << np.uint64(8)) | last, value)
            break
        byte = (words >> np.uint64(56 - 8 * index)) & np.uint64(0xFF)
        value = np.where(more, (value << np.uint64(7)) | (byte & np.uint64(0x7F)), value)
        more &= byte >= 128
        if not more.any():
            break
    return value.view(np.int64), length


class PageFile:
    """The pages of a database that is at rest, without a journal beside it.

    descriptor: the open file, which stays the caller's. The caller holds SQLite's read lock; since closing any descriptor of
    the file gives up the process's locks, this class opens and closes none.
    """

    def __init__(self, descriptor: int) -> None:
        if sys.byteorder != "little" or not hasattr(os, "preadv"):
            raise OddFile("this machine is not little-endian, or has no preadv")
        self._file = descriptor
        header = os.pread(self._file, 100, 0)
        size = os.fstat(self._file).st_size
        if len(header) < 100 or header[:16] != b"SQLite format 3\x00" or header[21:24] != b"\x40\x20\x20":
            raise OddFile("no header of SQLite 3")
        if header[56:60] != b"\x00\x00\x00\x01":
            raise OddFile("texts are not UTF-8")
        if not {header[18], header[19]} <= {1, 2}:
            raise OddFile("a newer file format")
        page = int.from_bytes(header[16:18], "big")
        self.page_bytes = 65_536 if page == 1 else page
        if self.page_bytes < 512 or self.page_bytes & (self.page_bytes - 1):
            raise OddFile(f"pages of {page} bytes")
        self.usable = self.page_bytes - header[20]
        if self.usable < 480:
            raise OddFile(f"{header[20]} bytes of a page are reserved")
        counted = int.from_bytes(header[28:32], "big")
        # Old writers leave the number of pages stale.
        self.pages = counted if counted and header[24:28] == header[92:96] else size // self.page_bytes
        if self.pages * self.page_bytes > size:
            raise OddFile("cut short")
        self.vacuumed = header[52:56] != bytes(4)
        self.most_local = self.usable - 35
        self.least_local = (self.usable - 12) * 32 // 255 - 23
        self._tree_of = np.zeros(self.pages + 1, np.int32)  # root of the table that each page read so far belongs to

    def _page(self, number: int) -> bytes:
        raw = os.pread(self._file, self.page_bytes, (number - 1) * self.page_bytes)
        if len(raw) != self.page_bytes:
            raise OddFile(f"page {number} is cut short")
        return raw

    # ------------------------------------------------------------------ the tree

    def leaves(self, root: int) -> Ints:
        """The leaf pages of a table in the order of its rows; all are at one depth.

        Raises DamagedFile where a page belongs to another table as well.
        """
        level = np.array([root], np.int64)
        visited = 0
        for _ in range(_DEEPEST):
            visited += len(level)
            if visited > self.pages or level.min() < 2 or level.max() > self.pages:
                raise OddFile("page numbers out of range")
            if not np.isin(self._tree_of[level], (0, root)).all():
                raise DamagedFile(f"the tables with root pages {root} and {self._tree_of[level].max()} share pages")
            self._tree_of[level] = root
            if self._page(int(level[0]))[0] == _LEAF:
                ordered = np.sort(level)
                if (ordered[1:] == ordered[:-1]).any():
                    raise OddFile("a page is used twice")
                return level
            children = []
            for number in level.tolist():
                raw = self._page(number)
                cells = int.from_bytes(raw[3:5], "big")
                first = 12 + 2 * cells
                if raw[0] != _INTERIOR or not cells or first > self.usable:
                    raise OddFile(f"page {number} is not an interior page of a table")
                pointers = np.frombuffer(raw, ">u2", cells, 12).astype(np.int64)
                if pointers.min() < first or pointers.max() > self.usable - 5:
                    raise OddFile(f"page {number}: a cell lies outside")
                left = np.ndarray((len(raw) - 3,), "V4", raw, strides=(1,))[pointers].view(">u4")
                children.append(np.append(left.astype(np.int64), int.from_bytes(raw[8:12], "big")))
            level = np.concatenate(children)
        raise OddFile("the tree is too deep")

    # ------------------------------------------------------------------ cells

    def cells(self, leaves: Ints, block_bytes: int, rowids: bool = False) -> Iterator[Cells]:
        """The cells of leaf pages, a block of pages at a time; each block overwrites the one before."""
        pages_a_read = max(min(block_bytes // self.page_bytes, len(leaves)), 1)
        block = PageBlock(np.zeros(pages_a_read * self.page_bytes + SLACK, np.uint8))
        for begin in range(0, len(leaves), pages_a_read):
            part = leaves[begin : begin + pages_a_read]
            # Pages that are neighbours in the file are read at once.
            for first, last in pairwise([0, *(np.flatnonzero(np.diff(part) != 1) + 1).tolist(), len(part)]):
                into = block.raw.data[first * self.page_bytes : last * self.page_bytes]
                if os.preadv(self._file, [into], (int(part[first]) - 1) * self.page_bytes) != len(into):
                    raise OddFile("cut short")
            at, page_end = self._pointers(
                block.raw[: len(part) * self.page_bytes].reshape(-1, self.page_bytes), len(leaves) == 1
            )
            if len(at):
                yield self._payloads(block, at, page_end, rowids)._replace(pages=begin + len(part))

    def _pointers(self, pages: Bytes, alone: bool) -> tuple[Ints, Ints]:
        """Where in the block each cell begins, and where the usable part of its page ends."""
        cells = pages[:, 3].astype(np.int64) << 8 | pages[:, 4]
        most = int(cells.max())
        if (pages[:, 0] != _LEAF).any() or 8 + 2 * most > self.usable or (cells.min() == 0 and not alone):
            raise OddFile("a page is not a leaf of a table")
        pointers = np.ascontiguousarray(pages[:, 8 : 8 + 2 * most]).view(">u2")
        at = pointers[np.arange(most) < cells[:, None]].astype(np.int64)
        if (at < np.repeat(8 + 2 * cells, cells)).any() or (at > self.usable - 4).any():
            raise OddFile("a cell lies outside its page")
        page = np.repeat(np.arange(len(pages)) * self.page_bytes, cells)
        return at + page, page + self.usable

    def _payloads(self, block: PageBlock, at: Ints, page_end: Ints, rowids: bool) -> Cells:
        size, length = varints(block, at)
        at = at + length
        rowid, length = varints(block, at) if rowids else (None, varints(block, at)[1])
        start = at + length
        end = start + size
        if int(size.min()) < 1 or int(size.max()) > _MOST_PAYLOAD:
            raise OddFile("a payload without bytes")
        spilled = np.flatnonzero(size > self.most_local)
        if len(spilled):
            block, start, end = self._gather_spilled(block, start, size, page_end, spilled)
        if (end > page_end).any():
            raise OddFile("a payload lies outside its page")
        return Cells(block, start, end, rowid, 0)

    def _gather_spilled(
        self, block: PageBlock, start: Ints, size: Ints, page_end: Ints, rows: Ints
    ) -> tuple[PageBlock, Ints, Ints]:
        """The block, with payloads that continue in overflow pages appended whole.

        For those rows `page_end` is set to the new end of the payload.
        """
        end = start + size
        whole, chunk = size[rows], self.usable - 4
        # In a file with auto_vacuum, SQLite finds overflow pages by their pointer map as well as by their chain.
        if int(whole.sum()) > _LONGEST_SPILL or self.vacuumed:
            raise OddFile("very long rows")
        local = self.least_local + (whole - self.least_local) % chunk
        local = np.where(local <= self.most_local, local, self.least_local)
        if (start[rows] + local + 4 > page_end[rows]).any():
            raise OddFile("a payload lies outside its page")
        used = len(block.raw) - SLACK
        parts = [block.raw[:used].tobytes()]
        for begin, kept, bytes_ in zip(start[rows].tolist(), local.tolist(), whole.tolist(), strict=True):
            here = block.raw[begin : begin + kept + 4].tobytes()
            parts += [here[:kept], self._chain(int.from_bytes(here[kept:], "big"), bytes_ - kept)]
        start[rows] = used + np.cumsum(whole) - whole
        end[rows] = page_end[rows] = start[rows] + whole
        return PageBlock(np.frombuffer(b"".join([*parts, bytes(SLACK)]), np.uint8)), start, end

    def _chain(self, number: int, size: int) -> bytes:
        """`size` bytes from the chain of overflow pages that begins with page `number`."""
        parts: list[bytes] = []
        chunk = self.usable - 4
        for _ in range(-(-size // chunk)):
            if not 2 <= number <= self.pages:
                raise OddFile("an overflow page out of range")
            raw = self._page(number)
            number = int.from_bytes(raw[:4], "big")
            parts.append(raw[4 : self.usable])
        return b"".join(parts)[:size]
