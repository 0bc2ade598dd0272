"""Many captures -> a data set of Parquet files in folders by rank, one task a file.

A file that exists and is not older than its capture is kept, so that an interrupted run can go on; a capture that fails is
reported and the others go on. The caller gives the function that makes records of a capture; `workers` runs the tasks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import NamedTuple, overload

from pyprof.columns.distinct import distinct_values
from pyprof.errors import InputError, PyprofError
from pyprof.model.records import Records
from pyprof.parse.records.locations import File, Remote, fetched, find, is_folder, locate, matching, modified_ns, put
from pyprof.parse.records.workers import on_dask, run_all
from pyprof.tables.files import whole_file

Load = Callable[[Path], Records]
_SUFFIXES = (".sqlite", ".nsys-rep", ".qdrep", ".sql", ".nvvp", ".nvprof", ".db", ".json", ".json.gz", ".trace")
_RANK = re.compile(r"(?:^|[^a-z])(?:rank|worker|node)[-_=.]?(\d{1,6})(?!\d)", re.IGNORECASE)


class Outcome(NamedTuple):
    """Outcome for one capture: the file written (None if it failed), whether it was there already, the error."""

    source: File
    target: File | None
    before: bool = False
    error: str = ""


def expand(names: Sequence[str]) -> list[File]:
    """The captures that the names mean: files, patterns, and folders with everything below them that has a capture's suffix.

    Raises InputError for a name that matches nothing.
    """
    files: dict[File, None] = {}
    for name in names:
        file = locate(name)
        some = [f for f in find(file) if f.name.endswith(_SUFFIXES)] if is_folder(file) else matching(file)
        if not some:
            raise InputError(f"{name}: there is no capture", "give files, a folder or a pattern such as 'run/*.sqlite'")
        files |= dict.fromkeys(some)
    return list(files)


def named_rank(file: File) -> int:
    """The rank in the name of a file's folder in a data set, or in its own name; -1 unknown."""
    in_folder = re.fullmatch(r"rank=(\d{1,6})", file.parent.name)
    rank = in_folder or _RANK.search(file.name)
    return int(rank[1]) if rank else -1


@overload
def stored(folder: Path) -> list[Path]: ...


@overload
def stored(folder: File) -> Sequence[File]: ...


def stored(folder: File) -> Sequence[File]:
    """The files of a data set, in order of rank and name. Links that lead out of its folder are no part of it."""

    def order(file: File) -> tuple[bool, int, str]:
        digits = file.parent.name.removeprefix("rank=")
        return not digits.isdecimal(), int(digits) if digits.isdecimal() else 0, file.name

    if isinstance(folder, Path):
        return sorted((file for file in folder.glob("rank=*/*.parquet") if _is_inside(file, folder)), key=order)
    return sorted(matching(folder / "rank=*/*.parquet"), key=order)


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def parse_many(files: Sequence[File], out: File, load: Load, jobs: int, scheduler: str | None = None) -> Iterator[Outcome]:
    """Parse each file into `out`, at most `jobs` at a time or on a dask cluster; outcomes come as they are ready.

    Raises InputError if `out` cannot be written, ToolError if pyarrow is not installed.
    """
    from pyprof.parse.records.parquet import need_pyarrow

    need_pyarrow()
    try:
        if isinstance(out, Path):
            out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}", "choose another place with -o") from error
    made = {file.name.removesuffix(".parquet"): file for file in stored(out)}
    waiting = []
    for file in files:
        known = made.get(_key(file))
        if known is not None and _is_current(known, file):
            yield Outcome(file, known, before=True)
        else:
            waiting.append(file)
    task = partial(_parse_one, out=out, load=load)
    results = run_all(task, waiting, jobs) if scheduler is None else on_dask(task, waiting, scheduler)
    for file, result in results:
        yield result if isinstance(result, Outcome) else Outcome(file, None, error=_reason(result))


def _is_current(known: File, file: File) -> bool:
    """Whether what was made of a file is at least as new; a store without dates is trusted."""
    made, recorded = modified_ns(known), modified_ns(file)
    if recorded is None:
        return not isinstance(file, Path)
    return made is None or made >= recorded


def _reason(error: Exception) -> str:
    if isinstance(error, BrokenProcessPool):
        return "its process died, perhaps for want of memory: fewer --jobs, then again"
    text = " ".join(str(error).split())
    return text if isinstance(error, PyprofError) else f"{type(error).__name__}: {text}"


def _key(file: File) -> str:
    """A name for what becomes of a file: its own, and a hash of its whole path, since other folders hold files of that name."""
    whole = str(file.absolute() if isinstance(file, Path) else file)
    return f"{file.name}-{hashlib.sha256(whole.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def _parse_one(file: File, out: File, load: Load) -> Outcome:
    capture = None
    try:
        with fetched(file) as capture:
            records = load(capture)
        ranks = distinct_values(records["rank"])
        rank = int(ranks[0]) if len(ranks) == 1 and ranks[0] >= 0 else named_rank(file)
        target = out / f"rank={rank if rank >= 0 else 'unknown'}" / f"{_key(file)}.parquet"
        _write(records, target, out)
    except PyprofError as error:
        message = str(error)
        return Outcome(file, None, error=message if capture is None else message.replace(str(capture), str(file)))
    except OSError as error:
        return Outcome(file, None, error=f"{out}: cannot be written: {error.strerror}")
    return Outcome(file, target)


def _write(records: Records, target: File, out: File) -> None:
    """Write a file of the data set `out` whole or not at all."""
    from pyprof.parse.records.parquet import write

    if isinstance(target, Remote):
        import tempfile

        with tempfile.TemporaryDirectory(prefix="pyprof-") as folder:
            write(records, Path(folder) / "net.parquet")
            put(Path(folder) / "net.parquet", target)
        return
    if isinstance(out, Path) and not _is_inside(target, out):
        raise InputError(f"{target}: a link leads out of the data set", "remove it, or choose another folder with -o")
    target.parent.mkdir(exist_ok=True)
    with whole_file(target) as stream:
        write(records, stream)
