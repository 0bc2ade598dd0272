"""A name (file, pipe, folder, `-` for standard input) -> its bytes, opened once; and which of its rows have a time.

All sources read their input by `Input`, and leave out rows without a time by `LeftOut`.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from pyprof.columns.types import Array
from pyprof.errors import InputError, NotACapture, UsageError
from pyprof.messages import tell
from pyprof.model.trace import Table

if TYPE_CHECKING:
    from pyprof.parse.sources.sqlite import Database

HEAD_BYTES = 1 << 20
_PATIENCE_S = 2.0
GZIP, SQLITE, PICKLE = b"\x1f\x8b", b"SQLite format 3\x00", b"\x80"
_LAST_NS = 1 << 62  # beyond it no time lies; sums and differences of times below it fit 64 bits
_EPOCH_NS = 10**18  # the year 2001: times from here on count from 1970
_UTF16 = (b"\xff\xfe", b"\xfe\xff")  # written by a redirection in PowerShell


class _Rest(io.RawIOBase):
    """A stream of bytes that were read already, then the rest."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = io.BytesIO(head), rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        more = self._head.read(len(buffer)) or self._rest.read(len(buffer))
        buffer[: len(more)] = more
        return len(more)


class Input(ExitStack):
    """An input, opened once; a context manager.

    head: the first bytes, empty for a folder; folder: it is a folder; is_file: it is a file on disk, which can be read again;
    standard: it is standard input. Raises InputError if it cannot be opened or is empty.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.path, self.standard = Path(name), name == "-"
        self.name = "standard input" if self.standard else name
        self.head, self.is_file, self.folder, endless = b"", False, False, False
        try:
            with _waiting(self.path):
                self._stream = _standard_input() if self.standard else self.enter_context(self.path.open("rb"))
                self.head = self._stream.read(HEAD_BYTES)
            if not self.standard:
                facts = os.fstat(self._stream.fileno())
                self.is_file = stat.S_ISREG(facts.st_mode)
                endless = not facts.st_size if self.is_file else not stat.S_ISFIFO(facts.st_mode)
        except IsADirectoryError:
            self.folder = True
        except FileNotFoundError as error:
            raise InputError(f"{name}: no such file", "check the name, or record a capture first") from error
        except PermissionError as error:
            raise InputError(f"{name}: no permission to read it", f"chmod u+r {name}") from error
        except (OSError, ValueError) as error:
            self.close()
            raise InputError(f"{name}: cannot be read: {getattr(error, 'strerror', error)}", "check the path") from error
        if self.head and endless and not os.isatty(self._stream.fileno()):
            self.close()
            raise InputError(f"{name}: a device or a file of the kernel, which may have no end", "copy it to a file first")
        if not self.head and not self.folder:
            self.close()
            raise NotACapture(f"{self.name}: the file is empty", "record or export the capture again")

    def stream(self) -> io.BufferedReader:
        """All bytes from the first."""
        if self.is_file:
            self._stream.seek(0)
            return self._stream
        return io.BufferedReader(_Rest(self.head, self._stream), HEAD_BYTES)

    def read_share(self) -> float | None:
        """Share of the file that was read from its stream, 0 to 1; None if unknown."""
        if not self.is_file or self._stream.closed:
            return None
        position = os.lseek(self._stream.fileno(), 0, os.SEEK_CUR)  # not `tell`, which would wait for a read under way
        return position / os.fstat(self._stream.fileno()).st_size if position > HEAD_BYTES else None

    def file(self) -> tuple[IO[bytes], Path]:
        """The open file and its path; a temporary copy if the input is not on disk."""
        if self.is_file and (path := self.path.resolve()).exists():
            return self._stream, path
        import shutil
        import tempfile

        copy = self.enter_context(tempfile.NamedTemporaryFile(prefix="pyprof-", suffix=self.path.suffix))
        shutil.copyfileobj(self.stream(), copy)
        copy.flush()
        return copy.file, Path(copy.name)

    @cached_property
    def database(self) -> Database:
        """The input as an SQLite database."""
        from pyprof.parse.sources.sqlite import Database

        stream, path = self.file()
        return self.enter_context(closing(Database(stream.fileno(), path, self.name)))

    @property
    def tables(self) -> Collection[str]:
        """Names of its tables; empty if it is not a database."""
        return self.database.tables if self.head.startswith(SQLITE) else ()

    def text(self, most: int) -> bytes:
        """The first bytes, decompressed if compressed; perhaps empty if the file is damaged."""
        if not self.head.startswith(GZIP):
            return self.head[:most]
        import zlib

        try:
            return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(self.head, most)
        except zlib.error:
            return b""

    @property
    def encoding(self) -> str:
        """Encoding of a text, UTF-8 or UTF-16; decoding with it drops a byte order mark."""
        return "utf-16" if self.text(2).startswith(_UTF16) else "utf-8-sig"

    def decoded(self) -> str:
        """The beginning as text."""
        return self.text(HEAD_BYTES).decode(self.encoding, "replace")


@contextmanager
def _waiting(path: Path) -> Iterator[None]:
    """Tell after a moment that a named pipe waits for its writer, which may never come."""
    if not path.is_fifo():
        yield
        return
    import threading

    timer = threading.Timer(_PATIENCE_S, tell, [f"{path}: a pipe; waits for what another process writes to it"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _standard_input() -> io.BufferedReader:
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("no file was given, and standard input is a terminal", "python -m pyprof.prof net.dict")
    if (binary := getattr(sys.stdin, "buffer", None)) is not None:
        return binary  # type: ignore[no-any-return]
    # A caller replaced it by a stream of text.
    return io.BufferedReader(io.BytesIO(sys.stdin.read().encode("utf-8", "surrogateescape")))


# ---------------------------------------------------------------------------------------------- rows without a time


def of_epoch(start: Array) -> bool:
    """Whether most of these times count from 1970, so that one near 0 is no time of the same clock."""
    return len(start) > 0 and int(np.median(start)) > _EPOCH_NS


@dataclass
class LeftOut:
    """Number of rows without a time or a thread: of kernels, copies and fills, and of everything else."""

    activities: int = 0
    others: int = 0

    def keep(self, columns: Table, *, activities: bool) -> Table:
        """The rows of `columns` whose start_ns and end_ns are a time; the others are counted: a begin of -1, an end before the
        begin, and 0 for both, which a profiler writes that knows neither."""
        start, end = columns["start_ns"], columns["end_ns"]
        known = (start != -1) & (start > -_LAST_NS) & (start <= end) & (end < _LAST_NS)
        kept = known & ((start != 0) | (end != 0))
        self.count(int(len(kept) - kept.sum()), activities=activities)
        return columns if kept.all() else {name: values[kept] for name, values in columns.items()}

    def count(self, number: int, *, activities: bool) -> None:
        """Count more rows."""
        if activities:
            self.activities += number
        else:
            self.others += number

    def notes(self) -> list[str]:
        """One note with both numbers, none where every row had a time."""
        what = [f"{number:,} of the {name}" for number, name in (
            (self.activities, "kernels, copies and fills"), (self.others, "ranges, ops and calls")) if number]  # fmt: skip
        why = "no time (none, 0, or an end before the begin) or no thread"
        return [f"left out, since they have {why}: {', '.join(what)}"] if what else []
