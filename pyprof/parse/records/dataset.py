"""Many captures -> a data set of Parquet files in folders by rank, one task a file.

What was written before and is not older than its capture is left as it is, so that a run which was broken off goes on; a file
that fails is named and the others go on. How a capture becomes records is the caller's, where tasks run that of `executors`.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from pyprof.errors import InputError, PyprofError
from pyprof.parse.records.locations import File, Remote, fetched, find, is_folder, matching, modified_ns, place, put
from pyprof.parse.records.records import Records
from pyprof.parse.records.workers import on_dask, run_all

__all__ = ["Outcome", "expand", "named_rank", "parse_many", "stored"]

Load = Callable[[Path], Records]
_SUFFIXES = (".sqlite", ".nsys-rep", ".qdrep", ".sql", ".nvvp", ".nvprof", ".db", ".json", ".json.gz", ".trace")
_RANK = re.compile(r"(?:^|[^a-z])(?:rank|worker|node)[-_=.]?(\d{1,6})(?!\d)", re.IGNORECASE)


class Outcome(NamedTuple):
    """What became of one capture: the file written (None: it failed), whether it had been there before, what went wrong."""

    source: File
    target: File | None
    before: bool = False
    error: str = ""


def expand(names: Sequence[str]) -> list[File]:
    """The captures that are meant: files, patterns, and folders with all in them that has a capture's suffix.

    Raises InputError where a name stands for nothing.
    """
    found: dict[File, None] = {}
    for name in names:
        file = place(name)
        some = [f for f in find(file) if f.name.endswith(_SUFFIXES)] if is_folder(file) else matching(file)
        if not some:
            raise InputError(f"{name}: there is no capture", "give files, a folder or a pattern such as 'run/*.sqlite'")
        found |= dict.fromkeys(some)
    return list(found)


def named_rank(file: File) -> int:
    """The rank that a file's folder in a data set or its own name tells; -1 none."""
    folder = re.fullmatch(r"rank=(\d{1,6})", file.parent.name)
    found = folder or _RANK.search(file.name)
    return int(found[1]) if found else -1


@overload
def stored(folder: Path) -> list[Path]: ...


@overload
def stored(folder: File) -> list[File]: ...


def stored(folder: File) -> list[Any]:
    """The files of a data set, in order of rank and name."""

    def order(file: File) -> tuple[bool, int, str]:
        digits = file.parent.name.removeprefix("rank=")
        return not digits.isdecimal(), int(digits) if digits.isdecimal() else 0, file.name

    inside: list[File] = (
        [*folder.glob("rank=*/*.parquet")] if isinstance(folder, Path) else matching(folder / "rank=*/*.parquet")
    )
    return sorted(inside, key=order)


def parse_many(files: Sequence[File], out: File, load: Load, jobs: int, scheduler: str | None = None) -> Iterator[Outcome]:
    """Parse each file into `out`, at most `jobs` at a time or on a dask cluster; outcomes come as they are ready.

    Raises InputError where `out` cannot be written, ToolError where there is no pyarrow to write with.
    """
    from pyprof.parse.records.parquet import need_pyarrow

    need_pyarrow()
    try:
        if isinstance(out, Path):
            out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}", "choose another place with -o") from error
    there = {file.name.removesuffix(".parquet"): file for file in stored(out)}
    waiting = []
    for file in files:
        known = there.get(_key(file))
        if known is not None and _is_current(known, file):
            yield Outcome(file, known, before=True)
        else:
            waiting.append(file)
    task = partial(_parse_one, out=out, load=load)
    results = run_all(task, waiting, jobs) if scheduler is None else on_dask(task, waiting, scheduler)
    for file, result in results:
        yield result if isinstance(result, Outcome) else Outcome(file, None, error=_said(result))


def _is_current(known: File, file: File) -> bool:
    """Whether what was made of a file is at least as new; what its store does not date is."""
    made, recorded = modified_ns(known), modified_ns(file)
    if recorded is None:
        return not isinstance(file, Path)
    return made is None or made >= recorded


def _said(error: Exception) -> str:
    if isinstance(error, BrokenProcessPool):
        return "its process died, perhaps for want of memory: fewer --jobs, then again"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _key(file: File) -> str:
    """A name for what becomes of a file: its own, and what tells it from one of that name elsewhere."""
    whole = str(file.absolute() if isinstance(file, Path) else file)
    return f"{file.name}-{hashlib.sha256(whole.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def _parse_one(file: File, out: File, load: Load) -> Outcome:
    path = None
    try:
        with fetched(file) as path:
            records = load(path)
        ranks = np.unique(records["rank"])
        rank = int(ranks[0]) if len(ranks) == 1 and ranks[0] >= 0 else named_rank(file)
        return Outcome(file, _write(records, out / f"rank={rank if rank >= 0 else 'unknown'}", _key(file)))
    except PyprofError as error:
        said = str(error)
        return Outcome(file, None, error=said if path is None else said.replace(str(path), str(file)))
    except OSError as error:
        return Outcome(file, None, error=f"{out}: cannot be written: {error.strerror}")


def _write(records: Records, folder: File, key: str) -> File:
    """Write a file that appears whole or not at all."""
    from pyprof.parse.records.parquet import write

    if isinstance(folder, Remote):
        with tempfile.TemporaryDirectory(prefix="pyprof-") as beside:
            write(records, Path(beside) / "net.parquet")
            put(Path(beside) / "net.parquet", folder / f"{key}.parquet")
        return folder / f"{key}.parquet"
    target = folder / f"{key}.parquet"
    folder.mkdir(exist_ok=True)
    for left in folder.glob(f".{escape(key)}-*"):  # of a run that was killed
        left.unlink(missing_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{key}-")
    os.close(handle)
    try:
        write(records, Path(name))
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
    return target
