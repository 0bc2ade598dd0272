"""Files that a recording wrote into a folder of its own -> the user's folder, under names that nothing has there.

A recording is written beside its final place and moved there when it is complete, so that a file of an earlier run, of the
program itself, or of another program is never replaced or removed. Knows names only, not what the files hold.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from glob import escape
from itertools import count
from pathlib import Path
from typing import BinaryIO

from pyprof.errors import InputError, UsageError

_CAPTURES = (".json.gz", ".json", ".sqlite", ".nsys-rep")
_RECORDS = ".dict"


def record_name(capture: Path) -> Path:
    """Where the records of a capture are written: `net.json.gz` -> `net.dict`."""
    stem = next((capture.name.removesuffix(ending) for ending in _CAPTURES if capture.name.endswith(ending)), capture.name)
    return capture.with_name(stem + _RECORDS)


class Staging:
    """A hidden folder beside the files called `name`; leaving the `with` removes it with everything that `keep` did not move.

    folder: where to write files whose names begin with that of `name`. ranked: this is one process of a distributed job, and
    each has a Staging; they agree on a number since each chooses it before the job runs. What a killed run left of the same
    output is removed first: a run that is under way holds a lock in its folder.
    Raises UsageError if `name` names no file, InputError if its folder cannot be written to.
    """

    def __init__(self, name: Path, ranked: bool = False) -> None:
        if name.name in ("", ".."):
            raise UsageError(f"{name}: not the name of a file", "give a name with -o, for example -o net")
        self._name = name
        self._prefix = f".{name.name}.run-"
        try:
            for left in name.parent.glob(f"{escape(self._prefix)}*"):
                _remove_leftover(left)
            self._number = 1
            if ranked:  # a number under which no rank has files
                pattern = re.compile(re.escape(name.name) + r"(?:\.(\d{1,9}))?\.rank\d+(?:\.|$)")
                found = map(pattern.match, os.listdir(name.parent))
                self._number = 1 + max((int(match[1] or 1) for match in found if match is not None), default=0)
            self._root, self._lock = self._make()
        except OSError as error:
            raise _cannot_write(name.parent, error) from error
        self.folder = self._root / "made"

    def __enter__(self) -> Staging:
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._lock.close()

    def keep(self) -> Callable[[Path], Path]:
        """Move the files in `folder` to the user's folder. Returns a function: where a file was written -> where it is now,
        relative to the current folder if inside.

        Takes the first free number: NAME, NAME.2, ... so that no file, capture or records of that name exist yet.
        Raises InputError if they cannot be moved; they stay in `folder` then, and no later run removes them.
        """
        name, made = self._name, sorted(path for path in self.folder.iterdir() if path.name.startswith(self._name.name))
        try:
            for number in count(self._number):
                numbered = name.name if number == 1 else f"{name.name}.{number}"
                moves = {path: name.with_name(numbered + path.name.removeprefix(name.name)) for path in made}
                records = [record_name(target) for target in moves.values()]
                others = [one.with_suffix(ending) for one in records for ending in _CAPTURES]
                if not any(map(os.path.lexists, [*moves.values(), *records, *others])) and _move(moves):
                    break
        except OSError as error:
            if self._lock is not None:  # without its lock nobody takes the folder for a leftover
                (self._root / "lock").unlink(missing_ok=True)
                self._lock.close()
                self._lock = None
            raise _cannot_write(name.parent, error, f"what was recorded is in {self.folder}") from error
        before, after = str(self.folder / name.name), name.with_name(numbered)

        def moved(path: Path) -> Path:
            found, here = Path(f"{after}{str(path).removeprefix(before)}"), Path.cwd()
            return found.relative_to(here) if found.is_relative_to(here) else found

        return moved

    def _make(self) -> tuple[Path, BinaryIO | None]:
        """The folder and its open lock file; a new one where another run removed it as a leftover before it was locked."""
        while True:
            root = Path(tempfile.mkdtemp(prefix=self._prefix, dir=self._name.parent))
            try:
                with suppress(FileNotFoundError):
                    lock = (root / "lock").open("xb")
                    if _take(lock, without_locks=True) and (root / "lock").exists():
                        (root / "made").mkdir()
                        return root, lock
                    lock.close()
            except OSError:
                shutil.rmtree(root, ignore_errors=True)
                raise


def _cannot_write(folder: Path, error: OSError, hint: str = "choose another place with -o") -> InputError:
    return InputError(f"{folder}: cannot be written to: {error.strerror or error}", hint)


def _take(lock: BinaryIO, without_locks: bool) -> bool:
    """Lock an open file; returns whether that worked. without_locks: the answer on a file system without locks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return without_locks
    return True


def _remove_leftover(folder: Path) -> None:
    """Remove the folder of a run that is over. Never raises."""
    with suppress(OSError):
        folder.rmdir()  # killed before it had a lock
    with suppress(OSError), (folder / "lock").open("r+b") as lock:
        if _take(lock, without_locks=False):
            shutil.rmtree(folder, ignore_errors=True)


def _move(moves: dict[Path, Path]) -> bool:
    """Move all or none; False where something is at one of the targets.

    Each target is first made, empty, which fails where its name is taken, by another process at the same time too.
    """
    held: dict[Path, Path] = {}
    try:
        for source, target in moves.items():
            target.mkdir() if source.is_dir() else target.touch(exist_ok=False)
            held[source] = target
        for source in moves:
            os.replace(source, held[source])
            del held[source]
    except FileExistsError:
        return False
    finally:
        for target in held.values():
            target.rmdir() if target.is_dir() else target.unlink()
    return True
