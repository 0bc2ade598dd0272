"""The file that a command writes: there whole, or not at all.

The contents go to a hidden file beside the target, which takes the target's name when everything is written. Devices, pipes and
`/dev/stdout` cannot be replaced and are written directly. Nothing here knows what is written.
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
_unfinished: set[Path] = set()  # hidden files and folders of this process
_LOCK = "lock"  # in a hidden folder: locked by the process that made it
_TRIES = 5  # to remove a folder that others still write to
_STREAMS = ("/dev/", "/proc/")  # names of open files: /dev/stdout, /proc/self/fd/1


def check_output(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Find out before the work what would keep an output file from being written.

    Raises UsageError where the output is one of the inputs (by whatever link), InputError where it cannot be written.
    """
    if is_direct(path):
        return
    for given in inputs:
        # Of an input folder the files in the folders below are read; beside those a table may be written again.
        part = given.is_dir() and given.resolve() in path.resolve().parents[1:]
        if path.exists() and given.exists() and (part or path.samefile(given)):
            raise UsageError(f"{path}: the output is {'part of ' * part}the input {given}", "give another name with -o")
    if path.is_dir():
        raise InputError(f"{path}: cannot be written: it is a directory", _HINT)
    if not (folder := _target(path).parent).is_dir():
        raise InputError(f"{path}: cannot be written: there is no directory {folder}", _HINT)


@contextmanager
def whole_file(path: Path, inputs: Iterable[Path] = ()) -> Iterator[BinaryIO]:
    """A stream whose contents become the file `path` when the block ends, and are removed where it ends by an exception.

    Permissions are those that the umask gives, or those of the file that is replaced. A symbolic link is followed.
    Raises as `check_output`, and InputError with the cause for any OSError inside the block (a full disk), but BrokenPipeError.
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
def hidden_folder(target: Path) -> Iterator[Path]:
    """A folder beside an output for what is written on the way to it; removed with all that is in it, however the block ends.

    What a killed process left of the same output is removed first. Raises InputError where it cannot be made.
    """
    _remove_leftovers(target, ".parts")
    folder = target.parent / f".{target.name}.{os.urandom(4).hex()}.parts"
    _unfinished.add(folder)
    try:
        try:
            folder.mkdir()
            lock = _locked(folder / _LOCK)
        except OSError as error:
            raise InputError(f"{folder}: cannot be written: {error.strerror or error}", _HINT) from error
        with lock:
            yield folder
    finally:
        _forget(folder)


@contextmanager
def whole_text_file(path: Path, inputs: Iterable[Path] = ()) -> Iterator[IO[str]]:
    """As `whole_file`, for text in UTF-8 whose line ends are written as they are."""
    with whole_file(path, inputs) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")
        yield text
        text.flush()
        text.detach()  # the stream is closed by its owner


@contextmanager
def terminated_by_exception() -> Iterator[None]:
    """SIGTERM ends the block as an exception does (exit code 143), and no half-written file stays. For commands.

    An interrupt may fall between the making of a file and the `with` that is to remove it: what is there at the end is removed.
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
        remove_unfinished()
        signal.signal(signal.SIGTERM, before)


def remove_unfinished() -> None:
    """Remove the hidden files that this process is writing."""
    for hidden in (*_unfinished,):
        _forget(hidden)


def is_direct(path: Path) -> bool:
    """Whether a file is written where it is: an open file by its number, a pipe, a device."""
    if str(path).startswith(_STREAMS):
        return True
    return path.exists() and not path.is_file() and not path.is_dir()


def _target(path: Path) -> Path:
    """The file itself where `path` is a symbolic link, be it there or not."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


@contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    _remove_leftovers(target, ".part")
    hidden = target.parent / f".{target.name}.{os.urandom(4).hex()}.part"
    _unfinished.add(hidden)
    try:
        with _locked(hidden) as stream:
            yield stream
            stream.flush()
            with suppress(OSError):  # there is no file to replace, or it is somebody else's
                hidden.chmod(stat.S_IMODE(target.stat().st_mode))
            _keep(stream.fileno())  # a name on the disk before its contents would be an empty file after a loss of power
        os.replace(hidden, target)
    except BaseException:
        _forget(hidden)
        raise
    _unfinished.discard(hidden)
    _keep_folder(target.parent)


def _forget(hidden: Path) -> None:
    """Remove a hidden file or folder, if it is there; what ends its writing is told, not that it cannot be removed."""
    _unfinished.discard(hidden)
    with suppress(OSError):
        if hidden.is_dir():
            import shutil

            for _ in range(_TRIES):  # a process elsewhere may still make files in it
                shutil.rmtree(hidden, ignore_errors=True)
                if not hidden.exists():
                    break
        else:
            hidden.unlink()


def _locked(hidden: Path) -> BinaryIO:
    """A new file, locked against `_remove_leftovers` of other processes, which may remove it before it is locked."""
    while True:
        stream = open(hidden, "xb")
        _lock(stream)
        if hidden.exists():
            return stream
        stream.close()


def _keep(number: int) -> None:
    """Wait until an open file is on the disk. Raises OSError where it does not get there; some file systems cannot say."""
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise


def _keep_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where that can be asked for: the file is there whole either way."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _remove_leftovers(target: Path, suffix: str) -> None:
    """Remove what a killed process left of the same output; what a running one writes is locked and stays."""
    for left in target.parent.glob(f".{escape(target.name)}.*{suffix}"):
        with suppress(OSError), (left / _LOCK if left.is_dir() else left).open("r+b") as stream:
            _lock(stream)
            _forget(left)


def _lock(stream: BinaryIO) -> None:
    """Lock an open file until it is closed. Raises OSError where another process holds it."""
    try:
        import fcntl
    except ImportError:  # Windows, where a file that is open cannot be removed anyway
        return
    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
