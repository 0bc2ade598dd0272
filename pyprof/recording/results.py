"""Files that a recording left in a folder of its own -> the user's folder, under names that nothing has there.

A recording is written beside its final place and moved there when it is complete, so that a file of an earlier run, of the
program itself, or of another program is never replaced or removed. Knows names only, not what the files hold.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from pyprof.errors import InputError

__all__ = ["keep", "record_name", "staging_folder"]

_CAPTURE_ENDINGS = (".json.gz", ".sqlite")


def record_name(capture: Path) -> Path:
    """Where the records of a capture stand: `net.json.gz` -> `net.dict`."""
    for ending in _CAPTURE_ENDINGS:
        if capture.name.endswith(ending):
            return capture.with_name(capture.name.removesuffix(ending) + ".dict")
    return capture.with_name(capture.name + ".dict")


@contextmanager
def staging_folder(name: Path) -> Iterator[Path]:
    """A hidden folder beside the files called `name`, removed at the end. What a run that was killed left there goes first.

    Raises InputError where that folder cannot be written to.
    """
    parent = name.parent
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise InputError(f"{parent}: no folder that can be written to", "choose another place with -o")
    prefix = f".{name.name}.run-"
    for left in parent.glob(f"{_escaped(prefix)}*"):
        owner = left.name.removeprefix(prefix)
        if owner.isdecimal() and not _runs(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    folder = parent / f"{prefix}{os.getpid()}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _escaped(text: str) -> str:
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in text)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def keep(folder: Path, name: Path, ending: str = "") -> dict[Path, Path]:
    """Move what stands in `folder` under NAME + ending beside the user's files: (where it was made -> where it is now).

    The first number is taken under which none of the files is there yet, nor records of them: NAME, then NAME.2, NAME.3, ...
    ending: what follows the number (`.rank0`).
    """
    made = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    for number in count(1):
        numbered = name.name if number == 1 else f"{name.name}.{number}"
        moves = {path: name.with_name(numbered + path.name.removeprefix(name.name)) for path in made}
        taken = [name.with_name(numbered + ending + suffix) for suffix in (*_CAPTURE_ENDINGS, ".nsys-rep", ".dict")]
        taken += [place for target in moves.values() for place in (target, record_name(target))]
        if not any(os.path.lexists(place) for place in taken) and _move(moves):
            return moves
    raise AssertionError("numbers do not end")


def _move(moves: dict[Path, Path]) -> bool:
    """Move all or none: False where one of the places was taken in the meantime."""
    done: list[Path] = []
    for source, target in moves.items():
        try:
            _move_to_free(source, target)
        except FileExistsError:
            for moved in done:
                os.replace(moved, next(path for path, place in moves.items() if place == moved))
            return False
        done.append(target)
    return True


def _move_to_free(source: Path, target: Path) -> None:
    """Rename without replacing. Raises FileExistsError where something is at the target."""
    if not source.is_dir():
        try:
            os.link(source, target)  # unlike a rename, it fails where the name is taken
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            pass
        else:
            source.unlink()
            return
    if os.path.lexists(target):
        raise FileExistsError(target)
    os.rename(source, target)
