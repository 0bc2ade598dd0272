"""A file -> Trace, whatever tool wrote it: told apart by content, never by name.

Adding a format is one module here and one line in `open_trace`.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from pyprof.errors import InputError, NotACapture, ToolError
from pyprof.parse.sources.trace import Trace

__all__ = ["check_readable", "is_capture", "open_trace"]

_REPORTS = (".nsys-rep", ".qdrep")
_REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"  # how nsys begins its own files


def check_readable(path: Path) -> None:
    """Raise InputError, in one line, where a path is no file that can be read."""
    if path.is_dir():
        raise InputError(f"{path}: is a directory, not a capture", "name one file in it")
    try:
        with path.open("rb") as stream:
            empty = not stream.read(1)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file", "check the name, or record a capture first") from error
    except PermissionError as error:
        raise InputError(f"{path}: no permission to read it", f"chmod u+r {path}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", "check the path") from error
    if empty:
        raise NotACapture(f"{path}: the file is empty", "record or export the capture again")


def is_capture(path: Path) -> bool:
    """Whether a file begins as a capture of one of the formats does, whatever it is called."""
    from pyprof.parse.sources.kineto import reader as kineto
    from pyprof.parse.sources.sqlite import is_sqlite

    return is_sqlite(path) or _begins(path, _REPORT_MAGIC) or kineto.sniff(path)


def open_trace(path: Path) -> Trace:
    """Read a capture.

    Raises InputError, NotACapture or EmptyCapture with a hint, ToolError where an nsys report needs an nsys that is not there.
    """
    from pyprof.parse.sources.sqlite import is_sqlite

    check_readable(path)
    if is_sqlite(path):
        return _open_database(path)
    if path.suffix in _REPORTS or _begins(path, _REPORT_MAGIC):
        return _open_report(path)

    from pyprof.parse.sources.kineto import reader as kineto

    if kineto.sniff(path):
        return kineto.read(path)
    raise NotACapture(
        f"{path}: neither an SQLite capture of nsys or nvprof nor a torch.profiler trace",
        "nsys: `nsys export --type sqlite REPORT`; nvprof: the file of `nvprof -o`; torch.profiler: its .json trace",
    )


def _begins(path: Path, magic: bytes) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(magic)) == magic


def _open_database(path: Path) -> Trace:
    from pyprof.parse.sources import nsys, nvprof
    from pyprof.parse.sources.sqlite import Database

    with Database(path) as db:
        if nvprof.matches(db):
            return nvprof.read(db)
        if nsys.matches(db):
            return nsys.read(db)
        raise NotACapture(
            f"{path}: an SQLite database, but of neither nsys nor nvprof",
            "pass the file that `nsys export --type sqlite` or `nvprof -o` wrote",
        )


def _open_report(path: Path) -> Trace:
    """An nsys report can only be exported by nsys itself, of the same or a newer version."""
    command = f"nsys export --type sqlite -o {path.with_suffix('.sqlite')} {path}"
    nsys = shutil.which("nsys")
    if nsys is None:
        raise ToolError(f"{path}: an nsys report must be exported first, and nsys is not on PATH", f"where nsys is: {command}")
    with tempfile.TemporaryDirectory(prefix="pyprof-") as folder:
        target = Path(folder) / "export.sqlite"
        arguments = [nsys, "export", "--type", "sqlite", "--output", str(target), str(path)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode or not target.exists():
            said = (done.stderr or done.stdout).strip().splitlines()
            raise ToolError(
                f"{path}: nsys could not export it: {said[-1] if said else 'no message'}", f"try by hand: {command}"
            )
        return _open_database(target)
