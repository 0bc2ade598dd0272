"""Output files that appear whole or not at all.

Contents go to a hidden file beside the target, which is renamed to the target when everything is written. Devices, pipes and
`/dev/stdout` cannot be replaced and are written directly.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from types import FrameType
from typing import IO, BinaryIO, NoReturn

from pyprof.errors import InputError, UsageError

_HINT = "choose another name or place with -o"
_unfinished: set[Path] = set()  # hidden files of this process
_STREAMS = ("/dev/", "/proc/")  # names of open files: /dev/stdout, /proc/self/fd/1


def check_output(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Check before the work that an output file can be written.

    Raises UsageError if the output is one of the inputs (by whatever link), InputError if it cannot be written.
    """
    if is_direct(path):
        return
    for given in inputs:
        # Of an input folder only files in its subfolders are read; a table may be written beside those.
        part = given.is_dir() and given.resolve() in path.resolve().parents[1:]
        if path.exists() and given.exists() and (part or path.samefile(given)):
            raise UsageError(f"{path}: the output is {'part of ' * part}the input {given}", "give another name with -o")
    if path.is_dir():
        raise InputError(f"{path}: cannot be written: it is a directory", _HINT)
    if not (folder := _target(path).parent).is_dir():
        raise InputError(f"{path}: cannot be written: there is no directory {folder}", _HINT)


@contextmanager
def whole_file(path: Path, inputs: Iterable[Path] = ()) -> Iterator[BinaryIO]:
    """A stream whose contents become the file `path` when the block ends, and vanish if it ends by an exception.

    Permissions follow the umask, or the replaced file. A symbolic link is followed. Raises as `check_output`, and InputError
    for any OSError inside the block (a full disk) except BrokenPipeError.
    """
    check_output(path, inputs)
    try:
        if is_direct(path):
            with path.open("ab") as stream:
                yield stream
        else:
            with _replacing(_target(path)) as stream:
                yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}", _HINT) from error


@contextmanager
def whole_text_file(path: Path, inputs: Iterable[Path] = ()) -> Iterator[IO[str]]:
    """As `whole_file`, for UTF-8 text; line ends are not translated."""
    with whole_file(path, inputs) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")
        yield text
        text.flush()
        text.detach()  # the stream is closed by its owner


@contextmanager
def text_output(path: str | None, inputs: Iterable[str] = ()) -> Iterator[IO[str]]:
    """Standard output, or the file of -o as `whole_text_file` writes it."""
    if path is None:
        yield sys.stdout
        return
    with whole_text_file(Path(path), map(Path, inputs)) as stream:
        yield stream


@contextmanager
def terminated_by_exception() -> Iterator[None]:
    """Let SIGTERM end the block by an exception (exit code 143), leaving no half-written file. For commands.

    An interrupt may fall between the creation of a file and the `with` that removes it: the rest is removed at the end.
    """

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(128 + signal.SIGTERM)

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # only the main thread takes signals
        yield
        return
    try:
        yield
    finally:
        for hidden in (*_unfinished,):
            _forget(hidden)
        signal.signal(signal.SIGTERM, before)


def is_direct(path: Path) -> bool:
    """Whether a file is written in place: an open file descriptor, a pipe, a device."""
    if str(path).startswith(_STREAMS):
        return True
    return path.exists() and not path.is_file() and not path.is_dir()


def _target(path: Path) -> Path:
    """The file that a symbolic link points to, whether it exists or not."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


@contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    _remove_leftovers(target)
    hidden = target.parent / f".{target.name}.{os.urandom(4).hex()}.part"
    _unfinished.add(hidden)
    try:
        with _locked(hidden) as stream:
            yield stream
            stream.flush()
            with suppress(OSError):  # no file to replace, or it belongs to someone else
                hidden.chmod(stat.S_IMODE(target.stat().st_mode))
            _keep(stream.fileno())  # before the rename: else a power loss could leave an empty file
        os.replace(hidden, target)
    except BaseException:
        _forget(hidden)
        raise
    _unfinished.discard(hidden)
    _keep_folder(target.parent)


def _forget(hidden: Path) -> None:
    """Remove a hidden file if it exists; a failure to remove it is not reported."""
    _unfinished.discard(hidden)
    with suppress(OSError):
        hidden.unlink()


def _locked(hidden: Path) -> BinaryIO:
    """Create a file locked against `_remove_leftovers` of other processes; try again if one removed it before the lock."""
    while True:
        stream = open(hidden, "xb")
        _lock(stream)
        if hidden.exists():
            return stream
        stream.close()


def _keep(number: int) -> None:
    """Flush an open file to disk. Raises OSError if that fails; file systems without fsync are accepted."""
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise


def _keep_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, where supported: the file is whole either way."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _remove_leftovers(target: Path) -> None:
    """Remove what a killed process left of the same output; files of a running process are locked and stay."""
    for left in target.parent.glob(f".{escape(target.name)}.*.part"):
        with suppress(OSError), left.open("r+b") as stream:
            _lock(stream)
            _forget(left)


def _lock(stream: BinaryIO) -> None:
    """Lock an open file until it is closed. Raises OSError if another process has locked it."""
    try:
        import fcntl
    except ImportError:  # Windows, where a file that is open cannot be removed anyway
        return
    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
