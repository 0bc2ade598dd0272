"""Names of local files or of files in a store that fsspec reaches (`s3://bucket/run/rank0.sqlite`) -> a local file to open.

A remote file is copied here to be read, because the readers need a file on disk; output is written here and then copied, so
that it appears complete. Only remote names need fsspec (the extra `remote`) and the driver of the store.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyprof.errors import InputError, PyprofError, ToolError, UsageError, install_extra, unusable

_REMOVAL_S = 0.5  # an interrupt is answered within a second
_URL = re.compile(r"[A-Za-z][\w+.-]+(?:::\w+)*://")


class Remote(NamedTuple):
    """A file or folder in a store, by its URL; reads like a Path where only names matter."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> Remote:
        """The folder that it is in."""
        return Remote(self.url.rstrip("/").rpartition("/")[0])

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.url.rstrip('/')}/{name}")


File = Path | Remote


def locate(name: str) -> File:
    """The file that a name on the command line means."""
    return Remote(name) if _URL.match(name) else Path(name)


@contextmanager
def _store(remote: Remote) -> Iterator[tuple[Any, str]]:
    """The file system of a URL, and the path in it.

    Raises ToolError if fsspec or a driver is missing, UsageError for a kind of store unknown to fsspec, InputError if the
    store refuses.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise unusable(f"{remote}: such a name", "fsspec", error, install_extra("remote")) from error
    try:
        yield url_to_fs(remote.url)
    except ImportError as error:
        raise ToolError(f"{remote}: {error}", "install what it names beside pyprof") from error
    except ValueError as error:
        raise UsageError(f"{remote}: {error}", "stores that fsspec knows: s3, gs, az, http, sftp, ...") from error
    except FileNotFoundError as error:
        raise InputError(f"{remote}: no such file") from error
    except PyprofError:
        raise
    except Exception as error:  # each driver has its own exceptions, which cannot be imported without it
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{remote}: {reason}", "check the name and the rights, with the store's own tool") from error


def is_folder(file: File) -> bool:
    """Whether it is a folder."""
    if isinstance(file, Path):
        return file.is_dir()
    with _store(file) as (store, path):
        return bool(store.isdir(path))


def find(folder: File) -> list[File]:
    """All files below a folder."""
    if isinstance(folder, Path):
        return [*sorted(path for path in folder.rglob("*") if path.is_file())]
    with _store(folder) as (store, path):
        return [Remote(store.unstrip_protocol(name)) for name in sorted(store.find(path))]


def matching(pattern: File) -> list[File]:
    """The files that match a pattern with `*`, `?` or `[...]`; a plain name matches itself, whether the file exists or not."""
    text = str(pattern)
    signs = any(sign in text for sign in "*?[")
    if isinstance(pattern, Path):
        if pattern.exists() or not signs:
            return [pattern]
        base = Path(pattern.anchor or ".")
        inside = str(pattern.relative_to(pattern.anchor)) if pattern.anchor else text
        return [*sorted(path for path in base.glob(inside) if path.is_file())]
    with _store(pattern) as (store, path):
        if not signs or store.exists(path):
            return [Remote(store.unstrip_protocol(path))]
        return [Remote(store.unstrip_protocol(name)) for name in sorted(store.glob(path)) if store.isfile(name)]


def modified_ns(file: File) -> int | None:
    """Time of the last change, ns; None if the file does not exist or the store does not record it."""
    if isinstance(file, Path):
        return file.stat().st_mtime_ns if file.exists() else None
    with _store(file) as (store, path):
        if not store.exists(path):
            return None
        try:
            return int(store.modified(path).timestamp() * 1e9)
        except NotImplementedError:
            return None


@contextmanager
def fetched(file: File) -> Iterator[Path]:
    """The local file itself, or a temporary local copy with the same name."""
    if isinstance(file, Path):
        yield file
        return
    import tempfile  # imports several libraries; only copies need it

    with tempfile.TemporaryDirectory(prefix="pyprof-") as folder:
        copy = Path(folder) / (file.name or "capture")
        with _store(file) as (store, path):
            store.get_file(path, str(copy))
        yield copy


def put(path: Path, target: Remote) -> None:
    """Copy a file into a store. A partial copy is removed, or the next run would take it for a complete one."""
    with _store(target) as (store, name):
        store.makedirs(store._parent(name), exist_ok=True)
        try:
            store.put_file(str(path), name)
        except BaseException:
            _remove(store, name)
            raise


def _remove(store: Any, name: str) -> None:
    """Remove a partial file (most stores show none). Does not wait for a store that has stopped answering."""

    def remove() -> None:
        with suppress(Exception):
            store.rm_file(name)

    removing = threading.Thread(target=remove, daemon=True)
    removing.start()
    removing.join(_REMOVAL_S)
