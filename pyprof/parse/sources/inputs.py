"""A name -> its bytes, opened once: a file, a pipe, `-` for standard input, a folder. What they mean is not known here."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pyprof.errors import InputError, NotACapture, UsageError
from pyprof.messages import tell

if TYPE_CHECKING:
    from pyprof.parse.sources.sqlite import Database

HEAD_BYTES = 1 << 20
_PATIENCE_S = 2.0
GZIP, SQLITE = b"\x1f\x8b", b"SQLite format 3\x00"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")  # as a shell of Windows redirects


class _Rest(io.RawIOBase):
    """A stream whose first bytes were read already: those, and then the rest."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = io.BytesIO(head), rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        more = self._head.read(len(buffer)) or self._rest.read(len(buffer))
        buffer[: len(more)] = more
        return len(more)


class Input(ExitStack):
    """An input, opened once. Use it in a `with`.

    head: its first bytes (none of a folder); folder: it is a folder; is_file: it is a file on disk that can be read again, not
    a pipe or the like; standard: it is standard input.
    Raises InputError, in one line, if it cannot be opened or is empty.
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
        """All its bytes from the first."""
        if self.is_file:
            self._stream.seek(0)
            return self._stream
        return io.BufferedReader(_Rest(self.head, self._stream), HEAD_BYTES)

    def read_share(self) -> float | None:
        """Share of the file read so far, 0 to 1; None if it is not read as a stream."""
        if not self.is_file or self._stream.closed:
            return None
        position = os.lseek(self._stream.fileno(), 0, os.SEEK_CUR)  # not `tell`, which would wait for a read under way
        return position / os.fstat(self._stream.fileno()).st_size if position > HEAD_BYTES else None

    def file(self) -> tuple[IO[bytes], Path]:
        """The open file and its path, for libraries that open files by name; a temporary copy if it is not on disk."""
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
        """Names of the database's tables; none if it is not a database."""
        return self.database.tables if self.head.startswith(SQLITE) else ()

    def text(self, most: int) -> bytes:
        """The first bytes of its text, decompressed if needed; perhaps none if the file is damaged."""
        if not self.head.startswith(GZIP):
            return self.head[:most]
        import zlib

        try:
            return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(self.head, most)
        except zlib.error:
            return b""

    @property
    def encoding(self) -> str:
        """UTF-8 or UTF-16, for decoders that drop a byte order mark."""
        return "utf-16" if self.text(2).startswith(_UTF16) else "utf-8-sig"

    def decoded(self) -> str:
        """The beginning of its text."""
        return self.text(HEAD_BYTES).decode(self.encoding, "replace")


@contextmanager
def _waiting(path: Path) -> Iterator[None]:
    """Tell the user after a moment that we wait for a named pipe: without a writer, opening it blocks for ever."""
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
    # Some caller put a stream of text there.
    return io.BufferedReader(io.BytesIO(sys.stdin.read().encode("utf-8", "surrogateescape")))
