"""The served folders -> the names of the captures in them, and a name -> its file, if it lies in one of the folders.

A name is the path below its folder, with `/`; with several folders it begins with the folder's own name. Nothing outside is
ever opened: `..` is refused, targets of symbolic links must lie in a served folder, and only regular files are read, in
formats that can be read without writing anything.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pyprof.errors import InputError, PyprofError, UsageError
from pyprof.mcp.results import bare, is_plain
from pyprof.model import ledger
from pyprof.parse.sources import graph_captures, kernel_information
from pyprof.parse.sources.inputs import SQLITE

# Names of captures and records; a file of another name can be asked for, but is not listed.
SUFFIXES = (
    ".sqlite", ".sqlite3", ".db", ".sql", ".nvvp", ".nvprof", ".json", ".json.gz", ".dict", ".jsonl", ".parquet", ".pickle",
)  # fmt: skip
_MOST_ENTRIES = 100_000  # of files and folders that are looked at for a list
_WAL = 2  # in an SQLite header: reading it writes files beside it
_REPORT = b"NVIDIA Tegra Profiler Report"
REFUSALS = ("outside_folders", "not_found", "not_a_file", "not_a_folder", "needs_export", "unreadable", "too_many_files")
_OUTSIDE = "this lies outside of the served folders"
_LIST = "the tool `captures` lists the names"


class Refused(PyprofError):
    """A file that is not served. code: one of REFUSALS."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.code = code


class ServedFile(NamedTuple):
    """A file that can be asked for."""

    name: str
    bytes: int


class Folders:
    """The folders that are served. Raises InputError if one is not a folder."""

    def __init__(self, folders: Sequence[str]) -> None:
        if not folders:
            raise UsageError("no folder was given", "pyprof mcp FOLDER")
        self._roots: dict[str, Path] = {}
        for folder in folders:
            root = Path(folder).resolve()
            if not root.is_dir():
                raise InputError(f"{folder}: not a folder", "give the folders that hold captures")
            label, number = root.name or "root", 2
            while label in self._roots:
                label, number = f"{root.name}-{number}", number + 1
            self._roots[label] = root

    def captures(self) -> Iterator[ServedFile]:
        """The files with names of captures, by name. Links are not followed, hidden folders not entered."""
        entries = 0
        for label, root in self._roots.items():
            for folder, folders, files in os.walk(root):
                folders[:] = sorted(name for name in folders if not name.startswith("."))
                entries += len(folders) + len(files)
                if entries > _MOST_ENTRIES:
                    raise Refused("too_many_files", f"more than {_MOST_ENTRIES} files", "serve a folder with fewer")
                for file in sorted(files):
                    below = Path(folder, file).relative_to(root).as_posix()
                    name = f"{label}/{below}" if len(self._roots) > 1 else below
                    if file.endswith(SUFFIXES) and not file.startswith(".") and is_plain(name):
                        with suppress(OSError):
                            about = Path(folder, file).lstat()
                            if stat.S_ISREG(about.st_mode):
                                yield ServedFile(name, about.st_size)

    def file(self, name: str) -> Path:
        """The file of a name, its links followed. Raises Refused."""
        found = self._found(name)
        self._check(found)
        self._check_beside(found)
        return found

    def folder(self, name: str) -> Path:
        """The folder of a name, its links followed. Raises Refused."""
        found = self._found(name)
        if not found.is_dir():
            raise Refused("not_a_folder", "this is not a folder", "name the folder that holds a capture of each rank")
        return found

    def _found(self, name: str) -> Path:
        wanted = PurePosixPath(bare(name))
        if ".." in wanted.parts or "\0" in str(wanted):
            raise Refused("outside_folders", "names with `..` are refused", _LIST)
        for path in self._places(wanted):
            try:
                found = path.resolve(strict=True)
            except (OSError, RuntimeError):
                continue
            if not self._is_inside(found):
                raise Refused("outside_folders", _OUTSIDE, _LIST)
            return found
        raise Refused("not_found", "there is no such file in the served folders", _LIST)

    def _places(self, wanted: PurePosixPath) -> Iterator[Path]:
        """Where a name may lead; an absolute one only if it begins with a served folder."""
        if wanted.is_absolute():
            if not self._is_inside(Path(wanted)):
                raise Refused("outside_folders", _OUTSIDE, _LIST)
            yield Path(wanted)
            return
        label, *below = wanted.parts or ("",)
        if len(self._roots) > 1 and label in self._roots:
            yield self._roots[label].joinpath(*below)
        for root in self._roots.values():
            yield root / wanted

    def _is_inside(self, path: Path) -> bool:
        return any(path.is_relative_to(root) for root in self._roots.values())

    def _check_beside(self, path: Path) -> None:
        """Raise Refused if a file read along with it (a trace of its graphs' capture, say) would not be served itself."""
        others = *graph_captures.may_open(path), path.parent / kernel_information.NAME, ledger.beside(path)
        for other in filter(None, others):
            found = Path(os.path.realpath(other))
            if found.exists() and not self._is_inside(found):
                raise Refused("outside_folders", "what is read beside it lies outside of the served folders", _LIST)
            if found.is_file():
                self._check(found)

    def _check(self, path: Path) -> None:
        """Raise Refused unless it is a regular file that can be read without writing."""
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise Refused("not_a_file", "this is not a regular file", _LIST)
            with path.open("rb") as stream:
                head = stream.read(max(len(_REPORT), 100))
        except OSError as error:
            raise Refused("unreadable", f"it cannot be read: {error.strerror}", "check its permissions") from error
        if head.startswith(_REPORT) or path.suffix in (".nsys-rep", ".qdrep"):
            raise Refused("needs_export", "an nsys report must be exported first", "nsys export --type sqlite REPORT")
        if head.startswith(SQLITE) and _WAL in head[18:20]:
            raise Refused("needs_export", "SQLite would write beside this file to read it", "export the capture again")
