"""Many captures -> a data set of Parquet files in folders by rank, one task a file in several processes.

What was written before and is not older than its capture is left as it is, so that a run which was broken off goes on; a file
that fails is named and the others go on. How a capture becomes records is the caller's.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pyprof.errors import InputError, PyprofError
from pyprof.parse.records import Records

__all__ = ["Outcome", "expand", "named_rank", "parse_many", "stored"]

Load = Callable[[Path], Records]
_SUFFIXES = (".sqlite", ".nsys-rep", ".qdrep", ".sql", ".nvvp", ".nvprof", ".db", ".json", ".json.gz", ".trace")
_RANK = re.compile(r"(?:^|[^a-z])(?:rank|worker|node)[-_=.]?(\d{1,6})(?!\d)", re.IGNORECASE)


class Outcome(NamedTuple):
    """What became of one capture: the file written (None: it failed), whether it had been there before, what went wrong."""

    source: Path
    target: Path | None
    before: bool = False
    error: str = ""


def expand(names: Sequence[str]) -> list[Path]:
    """The captures that are meant: files, patterns, and folders with all in them that has a capture's suffix.

    Raises InputError where a name stands for nothing.
    """
    found: dict[Path, None] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            some = [p for p in path.rglob("*") if p.name.endswith(_SUFFIXES) and p.is_file()]
        elif path.exists() or not any(sign in name for sign in "*?["):
            some = [path]
        else:
            base = Path(path.anchor or ".")
            some = [p for p in base.glob(str(path.relative_to(path.anchor)) if path.anchor else name) if p.is_file()]
        if not some:
            raise InputError(f"{name}: there is no capture", "give files, a folder or a pattern such as 'run/*.sqlite'")
        found |= dict.fromkeys(sorted(some))
    return list(found)


def named_rank(path: Path) -> int:
    """The rank that a file's folder in a data set or its own name tells; -1 none."""
    folder = re.fullmatch(r"rank=(\d{1,6})", path.parent.name)
    found = folder or _RANK.search(path.name)
    return int(found[1]) if found else -1


def stored(folder: Path) -> list[Path]:
    """The files of a data set, in order of rank and name."""

    def place(path: Path) -> tuple[bool, int, str]:
        digits = path.parent.name.removeprefix("rank=")
        return not digits.isdecimal(), int(digits) if digits.isdecimal() else 0, path.name

    return sorted(folder.glob("rank=*/*.parquet"), key=place)


def parse_many(files: Sequence[Path], out: Path, load: Load, jobs: int) -> Iterator[Outcome]:
    """Parse each file into `out`, at most `jobs` at a time; outcomes come as they are ready.

    Raises InputError where `out` cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}", "choose another place with -o") from error
    there = {path.stem: path for path in stored(out)}
    waiting = []
    for file in files:
        known = there.get(_key(file))
        if known is not None and file.exists() and known.stat().st_mtime_ns >= file.stat().st_mtime_ns:
            yield Outcome(file, known, before=True)
        else:
            waiting.append(file)
    with _executor(min(jobs, len(waiting))) as executor:
        if executor is None:
            yield from (_parse_one(file, out, load) for file in waiting)
        else:
            yield from _outcomes({executor.submit(_parse_one, file, out, load): file for file in waiting})


@contextmanager
def _executor(jobs: int) -> Iterator[Executor | None]:
    if jobs < 2:
        yield None
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as executor:
        yield executor


def _outcomes(tasks: dict[Future[Outcome], Path]) -> Iterable[Outcome]:
    for task in as_completed(tasks):
        try:
            yield task.result()
        except BrokenProcessPool:
            yield Outcome(tasks[task], None, error="its process died, perhaps for want of memory: fewer --jobs, then again")


def _key(file: Path) -> str:
    """A name for what becomes of a file: its own, and what tells it from one of that name elsewhere."""
    return f"{file.name}-{hashlib.sha256(str(file.absolute()).encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def _parse_one(file: Path, out: Path, load: Load) -> Outcome:
    from pyprof.parse.parquet import write

    try:
        records = load(file)
        ranks = np.unique(records["rank"])
        rank = int(ranks[0]) if len(ranks) == 1 and ranks[0] >= 0 else named_rank(file)
        folder = out / f"rank={rank if rank >= 0 else 'unknown'}"
        folder.mkdir(exist_ok=True)
        target = folder / f"{_key(file)}.parquet"
        handle, name = tempfile.mkstemp(dir=folder, prefix=".")
        os.close(handle)
        try:
            write(records, Path(name))
            os.chmod(name, 0o644)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except PyprofError as error:
        return Outcome(file, None, error=str(error))
    except OSError as error:
        return Outcome(file, None, error=f"{out}: cannot be written: {error.strerror}")
    return Outcome(file, target)
