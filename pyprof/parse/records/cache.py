"""The bytes of a capture -> the records that were made of them before, kept as Parquet in a folder of the user's.

The folder is the user's own and not one beside the capture: whoever sends a capture could send records with it that it does not
hold. An entry is named by a digest of the capture's bytes, of its file name and of the code that made it, and by one of
itself, so that neither another capture, nor another version, nor a damaged entry can be taken for it. The file name counts,
since a rank may stand only there. What a capture means is not known here.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

from pyprof.errors import InputError, PyprofError, ToolError
from pyprof.memory import bytes_of
from pyprof.messages import done, stage, tell
from pyprof.model.records import Records
from pyprof.parse.records import parquet
from pyprof.tables.files import whole_file

VARIABLE = "PYPROF_CACHE_SIZE"
_LIMIT = "10G"
_BLOCK_BYTES = 4 << 20
_JOURNALS = ("-wal", "-journal")  # where SQLite keeps changes not yet in the file


def check() -> None:
    """Raises UsageError for a limit that is no size, ToolError if pyarrow is missing or the folder is not the user's own."""
    parquet.need_pyarrow()
    limit_bytes()
    _own_folder(make=False)


def limit_bytes() -> int:
    """The most that all entries take together: the variable PYPROF_CACHE_SIZE, else 10 GiB. Raises UsageError for no size."""
    return bytes_of(os.environ.get(VARIABLE, _LIMIT), VARIABLE)


def folder() -> Path:
    """Where entries are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base if base else Path.home() / ".cache", "pyprof", "records")


class Entry:
    """The cached records of one file. facts: its inode, size and times when it was hashed, to notice later changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts = _facts(path)
        self.key = f"{_digest(path)}-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}-{_code()}"

    def find(self) -> Records | None:
        """The cached records, or None. A damaged entry is removed."""
        for name in sorted(folder().glob(f"{self.key}.*.parquet")) if _own_folder(make=False) else []:
            with suppress(OSError, PyprofError):
                if name.is_symlink() or _digest(name) != name.name.split(".")[1]:
                    name.unlink()
                    continue
                found = parquet.read(name)
                os.utime(name)  # the last to be used is the last to be removed
                return found
        return None

    def keep(self, records: Records) -> None:
        """Keep the records of the file, and remove those that were not used for longest, until all take no more than the limit.

        Says in one line where they cannot be kept; the command goes on.
        """
        if _facts(self.path) != self.facts:
            tell("note: not kept by --cache: the capture was changed meanwhile")
            return
        try:
            _own_folder(make=True)
            unnamed = folder() / f"{self.key}.new"  # what a killed process left is removed by the next that writes it
            with whole_file(unnamed) as stream:
                parquet.write(records, stream)
            with suppress(FileNotFoundError):  # another process has written the same bytes, and named them
                os.replace(unnamed, folder() / f"{self.key}.{_digest(unnamed)}.parquet")
            _make_room()
        except (OSError, InputError) as error:
            tell(f"note: not kept by --cache: {error}")


def entry_of(path: Path) -> Entry | None:
    """The cache entry of a file; None if the file cannot be read or its records depend on more than its bytes."""
    try:
        return None if _journalled(path) else Entry(path)
    except OSError:
        return None  # whoever reads it says why


def _journalled(path: Path) -> bool:
    real = os.path.realpath(path)
    return any(os.path.lexists(real + suffix) for suffix in _JOURNALS)


def _facts(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    digest, read, size = hashlib.sha256(), 0, max(path.stat().st_size, 1)
    block = memoryview(bytearray(_BLOCK_BYTES))
    with path.open("rb", buffering=0) as stream, stage(f"looking for {path.name} among what was kept"):
        while count := stream.readinto(block):
            digest.update(block[:count])
            done((read := read + count) / size)
    return digest.hexdigest()


@cache
def _code() -> str:
    """A digest of the names, sizes and times of pyprof's own files, and of its version: other code may find other records."""
    import pyprof

    root = Path(pyprof.__file__).parent
    digest = hashlib.sha256(pyprof.__version__.encode())
    for path in sorted(path for path in root.rglob("*.*") if path.suffix in (".py", ".csv")):
        facts = path.stat()
        digest.update(f"{path.relative_to(root)} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _own_folder(*, make: bool) -> bool:
    """Whether the folder is there. Raises ToolError if it is somebody else's, or others may write to it."""
    where = folder()
    if make:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        facts = os.lstat(where)
    except (FileNotFoundError, NotADirectoryError):
        return False
    others = hasattr(os, "getuid") and (facts.st_uid != os.getuid() or facts.st_mode & 0o022)
    if not stat.S_ISDIR(facts.st_mode) or others:
        raise ToolError(
            f"{where}: others may write there: what is in it cannot be trusted", f"rm -r {where}, or set XDG_CACHE_HOME"
        )
    return True


def _make_room() -> None:
    """Remove what was least lately used, until the rest takes no more than the limit; half-written files count too."""
    found = []
    for path in folder().iterdir():
        with suppress(OSError):
            facts = path.stat()
            found.append((facts.st_mtime_ns, facts.st_size, path))
    whole, most = sum(size for _, size, _ in found), limit_bytes()
    for _, size, path in sorted(found):
        if whole <= most:
            break
        with suppress(OSError):
            path.unlink()
            whole -= size
