"""Long columns -> files without a name on the disk, mapped into memory: what a command holds does not grow with its capture.

Inside `columns_on_disk` long columns that are made by `empty`, `full` and `computed` lie there; everywhere else, and short
ones, in memory. A file loses its name as soon as it is open, so that it is gone with its last array however the process ends,
and processes forked later share it. `release` gives the pages in memory back to the system, which keeps what was written.
What a column means is not known here.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from pathlib import Path
from typing import Any
from weakref import WeakSet, finalize

import numpy as np

from pyprof.arrays.heap import reuse
from pyprof.arrays.types import Array
from pyprof.errors import InputError

PIECE_ROWS = 1 << 20  # handled at a time where all rows together would take memory
SMALL_PIECE_ROWS = 1 << 18  # where many columns of each piece are in memory; of fewer rows the number of steps counts
_LEAST_BYTES = 2 << 20  # of a column that is worth a file
_MOST_MAPPED_BYTES = 64 << 20  # of files in this process's memory, those of its libraries (about 40 MB) among them
WRITTEN_BYTES = 1 << 20  # at a time: of less the system makes short pages, which cost more to map
_ZEROS = bytes(WRITTEN_BYTES)
_FOLDER: ContextVar[Path | None] = ContextVar("folder of long columns", default=None)
_PIECE_ROWS: ContextVar[int | None] = ContextVar("rows handled at a time", default=None)
_MAPPED: WeakSet[mmap.mmap] = WeakSet()


@contextmanager
def columns_on_disk(folder: Path | None = None, piece_rows: int | None = None) -> Iterator[None]:
    """Long columns made inside lie in a folder: that of the output, else the one of a block around, TMPDIR, /var/tmp (/tmp
    often is memory) or what Python takes for temporary files. On systems without such files they stay in memory.

    piece_rows: so many rows are handled at a time, None: as in a block around, else PIECE_ROWS.
    """
    if not hasattr(os, "posix_fallocate"):
        yield
        return
    reuse()
    token = _FOLDER.set(_FOLDER.get() if folder is None and on_disk() else _usable(folder))
    rows = _PIECE_ROWS.set(piece_rows or _PIECE_ROWS.get())
    try:
        yield
    finally:
        _FOLDER.reset(token)
        _PIECE_ROWS.reset(rows)


def _usable(folder: Path | None) -> Path:
    given = os.environ.get("TMPDIR")
    for choice in (folder, Path(given) if given else None, Path("/var/tmp")):
        if choice is not None and os.access(choice, os.W_OK | os.X_OK):
            return choice
    import tempfile

    return Path(tempfile.gettempdir())


def on_disk() -> bool:
    """Whether long columns go to the disk here."""
    return _FOLDER.get() is not None


def folder() -> Path | None:
    """Where long columns lie; None: in memory."""
    return _FOLDER.get()


def empty(rows: int, dtype: Any) -> Array:
    """A column to be filled. Raises InputError where the disk has no room for it."""
    file = Lengthening.of(rows, dtype)
    return np.empty(rows, dtype) if file is None else file.lengthened(rows, dtype)


def shared(column: Array) -> Array:
    """The same column where processes that are forked later can write into it."""
    if _is_mapped(column):
        return column
    file = Lengthening(_FOLDER.get() or _usable(None))
    return _column(file, len(column), column.dtype, _parts(column))


class Lengthening:
    """A column on the disk that is made longer where it stands."""

    def __init__(self, folder: Path) -> None:
        import tempfile  # of several libraries, for long columns alone

        self._folder = folder
        try:
            with tempfile.TemporaryFile(prefix=".pyprof-", suffix=".part", dir=folder) as file:
                self._descriptor = os.dup(file.fileno())
        except OSError as error:
            raise _no_room(folder, 0, error) from error
        self.bytes = 0
        finalize(self, os.close, self._descriptor)

    @classmethod
    def of(cls, rows: int, dtype: Any) -> Lengthening | None:
        """A new one where a column so long belongs on the disk."""
        folder = _FOLDER.get()
        return None if folder is None or rows * np.dtype(dtype).itemsize < _LEAST_BYTES else cls(folder)

    def append(self, values: Array, dtype: Any) -> None:
        """Write values to the end, of which no column was made yet. Raises InputError where the disk has no room for them."""
        rows = WRITTEN_BYTES // np.dtype(dtype).itemsize
        for begin in range(0, len(values), rows):
            left = np.ascontiguousarray(values[begin : begin + rows], dtype).view(np.uint8).data
            try:
                while left:
                    size = os.pwrite(self._descriptor, left, self.bytes)
                    left = left[size:]
                    self.bytes += size
            except OSError as error:
                raise _no_room(self._folder, values.nbytes, error) from error
        touched()

    def lengthened(self, rows: int, dtype: Any) -> Array:
        """The same bytes as a column of so many rows. Raises InputError where the disk has no room for it."""
        size = rows * np.dtype(dtype).itemsize
        try:
            # A write to memory that finds no room on the disk kills the process.
            os.posix_fallocate(self._descriptor, 0, size)
            # Zeros that are written make long pages in the system's cache at once. Without them each 4 kB that are first
            # touched in memory are a page of their own, which takes seven times as long as the zeros.
            for begin in range(self.bytes, size, len(_ZEROS)):
                os.pwrite(self._descriptor, memoryview(_ZEROS)[: size - begin], begin)
            self.bytes = max(self.bytes, size)
            mapped = mmap.mmap(self._descriptor, size)
        except OSError as error:
            raise _no_room(self._folder, size, error) from error
        watch(mapped)
        return np.frombuffer(mapped, dtype)


def _no_room(folder: Path, size: int, error: OSError) -> InputError:
    hint = "make room there, or set TMPDIR and write elsewhere"
    return InputError(f"{folder}: no room for {size:,} bytes of columns: {error.strerror}", hint)


def watch(mapped: mmap.mmap) -> None:
    """Let `release` take the pages of a mapped file out of memory too."""
    _MAPPED.add(mapped)


def kept(values: Array) -> Array:
    """The column itself, or where it is long and in memory the same on the disk."""
    if _FOLDER.get() is None or values.nbytes < _LEAST_BYTES or values.strides == (0,) or _is_mapped(values):
        return values
    return _column(Lengthening.of(len(values), values.dtype), len(values), values.dtype, _parts(values))


def joined(parts: list[Array]) -> Array:
    """Columns one after another; the list is emptied."""
    if len(parts) == 1:
        return parts.pop()
    rows, dtype = sum(map(len, parts)), np.result_type(*parts)
    return _column(Lengthening.of(rows, dtype), rows, dtype, chain.from_iterable(map(_parts, _emptied(parts))))


def _emptied(parts: list[Array]) -> Iterator[Array]:
    while parts:
        yield parts.pop(0)


def _parts(values: Array) -> Iterator[Array]:
    return (values[part] for part in pieces(len(values)))


def _column(file: Lengthening | None, rows: int, dtype: Any, parts: Iterable[Array]) -> Array:
    """A column of some values after others, in a file or in memory. Written to the file they cost half as much as memory that
    is mapped from it."""
    if file is None:
        result, begin = np.empty(rows, dtype), 0
        for values in parts:
            result[begin : begin + len(values)] = values
            begin += len(values)
        return result
    for values in parts:
        file.append(values, dtype)
    return file.lengthened(rows, dtype)


def _is_mapped(values: Array) -> bool:
    base: object = values
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap)


def full(rows: int, value: Any, dtype: Any) -> Array:
    """A column of one value that can be written to."""
    parts = (np.broadcast_to(value, part.stop - part.start) for part in pieces(rows))
    return _column(Lengthening.of(rows, dtype), rows, dtype, parts)


def piece_rows() -> int:
    """How many rows are handled at a time."""
    return _PIECE_ROWS.get() or PIECE_ROWS


def pieces(rows: int) -> Iterator[slice]:
    """All rows, some at a time; between these the pages of columns on the disk leave memory."""
    size = piece_rows()
    for begin in range(0, rows, size):
        end = min(begin + size, rows)
        yield slice(begin, end)
        touched()


def computed(rows: int, dtype: Any, values: Callable[[slice], Array]) -> Array:
    """A column from a function of slices of rows."""
    if rows <= piece_rows():
        found = np.asarray(values(slice(0, rows))).astype(dtype, copy=False)
        touched()  # few rows far from each other are in as many pages as all
        return found
    parts = (np.broadcast_to(values(part), part.stop - part.start) for part in pieces(rows))
    return _column(Lengthening.of(rows, dtype), rows, dtype, parts)


def of_parts(rows: int, dtype: Any, parts: Iterator[Array], default: Any) -> Array:
    """A column of some values after others; of one value, or of none and then the default, it takes no room."""
    same, held = np.broadcast_to(np.dtype(dtype).type(default), rows), 0
    for values in parts:
        if len(values) and not held:
            same = np.broadcast_to(values[0], rows)
        if len(values) and (values != same[0]).any():
            before = (same[part] for part in pieces(held))
            return _column(Lengthening.of(rows, dtype), rows, dtype, chain(before, [values], parts))
        held += len(values)
    return same


def taken(values: Array, index: Array) -> Array:
    """values[index], some rows at a time."""
    if values.strides == (0,):  # of one value for all rows, of which `take` would make a whole column each time
        return full(len(index), values[0], values.dtype) if len(index) else np.empty(0, values.dtype)
    return computed(len(index), values.dtype, lambda part: values.take(index[part]))


def is_constant(values: Array) -> bool:
    """Whether there are rows, all with one value."""
    return (
        len(values) > 0
        and bool(values[0] == values[-1])
        and all(bool((values[part] == values[0]).all()) for part in pieces(len(values)))
    )


def row_type(rows: int) -> type[np.signedinteger[Any]]:
    """The narrowest type for numbers of so many rows."""
    return np.int32 if rows < 1 << 31 else np.int64


def running_count(mask: Array) -> Array:
    """How many are true up to each row, this one too."""
    rows, before = len(mask), 0
    result = empty(rows, row_type(rows))
    for part in pieces(rows):
        result[part] = np.cumsum(mask[part]) + before
        before = int(result[part.stop - 1])
    return result


def running_most(values: Array) -> Array:
    """The largest value up to each row, this one too."""
    result, most = empty(len(values), values.dtype), np.iinfo(values.dtype).min
    for part in pieces(len(values)):
        result[part] = np.maximum.accumulate(np.maximum(values[part], most))
        most = result[part.stop - 1]
    return result


def touched() -> None:
    """Say that columns on the disk were written or read: where they hold much memory by now, their pages leave it."""
    if _MAPPED and _mapped_bytes() > _MOST_MAPPED_BYTES:
        release()


def _mapped_bytes() -> float:
    """How much of mapped files is in this process's memory; all of it where the system does not say (Linux does)."""
    try:
        descriptor = os.open("/proc/self/statm", os.O_RDONLY)  # without a file of Python's a tenth of the time
    except OSError:
        return float("inf")
    try:
        return int(os.read(descriptor, 256).split()[2]) * mmap.PAGESIZE
    finally:
        os.close(descriptor)


def release() -> None:
    """Take the pages of all columns on the disk out of this process's memory; they come again when they are read."""
    for mapped in list(_MAPPED):
        mapped.madvise(mmap.MADV_DONTNEED)
