"""A reader of pages for another process: it opens the same file again, perhaps on another machine that sees it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar
from weakref import finalize

from pyprof.errors import InputError
from pyprof.parse.sources.sqlite_pages.btree import PageFile

Reader = TypeVar("Reader", bound=PageFile)


def identity(descriptor: int) -> tuple[int, int]:
    """Size in bytes of an open file, and when it was changed last, in ns."""
    found = os.fstat(descriptor)
    return found.st_size, found.st_mtime_ns


def reopened(kind: type[Reader], path: str, expected: tuple[int, int]) -> Reader:
    """A reader of the file of this name. Raises InputError where there is none here, or another one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise _unseen(path, error.strerror or str(error)) from error
    try:
        if identity(descriptor) != expected:
            raise _unseen(path, "another file is there, or it was changed")
        reader = kind(descriptor, Path(path))
    except BaseException:
        os.close(descriptor)
        raise
    finalize(reader, os.close, descriptor)
    return reader


def _unseen(path: str, why: str) -> InputError:
    return InputError(f"{path}: a worker cannot read it: {why}", "all workers must see the same files under the same names")
