"""Captures -> baselines: copies under names in a folder, to compare later captures with."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from pyprof.errors import InputError, UsageError
from pyprof.model import ledger
from pyprof.parse.sources.sqlite import check_no_log
from pyprof.tables.files import whole_file

FOLDER = ".pyprof-baselines"
_NAME = re.compile(r"\w[\w.-]{0,99}")


def save(capture: Path, name: str, folder: Path) -> Path:
    """Copy a capture and its ledger into the folder, replacing earlier ones of this name; returns the copy's path.

    Raises UsageError for a bad name, InputError if the capture is a folder, needs a log beside it, or cannot be written.
    """
    _check(name)
    if not capture.is_file():
        raise InputError(f"{capture}: only a file can be kept as a baseline", "give the capture of one rank")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}", "name another folder with --baselines") from error
    check_no_log(capture)
    target = folder / f"{name}{''.join(capture.suffixes[-2:])}"
    with capture.open("rb") as source, whole_file(target) as stream:
        shutil.copyfileobj(source, stream)
    for other in _kept(name, folder):
        if other != target:
            other.unlink()
    steps, kept = ledger.beside(capture), folder / f"{name}{ledger.SUFFIX}"
    if steps is None:
        kept.unlink(missing_ok=True)
    else:
        with steps.open("rb") as source, whole_file(kept) as stream:
            shutil.copyfileobj(source, stream)
    return target


def find(name: str, folder: Path) -> Path:
    """The capture kept under a name. Raises UsageError for a bad name, InputError if there is no capture of that name."""
    _check(name)
    kept = _kept(name, folder)
    if not kept:
        names = sorted({path.name.split(".")[0] for path in folder.iterdir()}) if folder.is_dir() else []
        hint = f"there are: {', '.join(names)}" if names else f"keep one first: pyprof diff --save {name} FILE"
        raise InputError(f"no baseline {name!r} in {folder}", hint)
    return kept[0]


def _kept(name: str, folder: Path) -> list[Path]:
    found = (path for path in folder.glob(f"{name}*") if path.is_file() and path.name[len(name) :][:1] in ("", "."))
    return sorted(path for path in found if not path.name.endswith(ledger.SUFFIX))


def _check(name: str) -> None:
    if not _NAME.fullmatch(name) or "." in name:
        raise UsageError(f"{name!r} is no name for a baseline", "letters, digits, _ and -, for example main")
