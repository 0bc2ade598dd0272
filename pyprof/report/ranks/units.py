"""Files and folders -> the ranks in them, one after another: the records of each, and where its clock stands.

A unit is what one rank did in one file. The rank is what the capture says, else what the folder of a data set or the file's
name says; several processes or devices of one file that say none are units of their own. Nothing here knows collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pyprof.arrays.distinct import distinct_rows
from pyprof.errors import InputError, PyprofError, UsageError
from pyprof.parse.records.dataset import expand, named_rank, stored
from pyprof.parse.records.locations import File, fetched, is_folder, locate, matching
from pyprof.parse.records.records import Records
from pyprof.parse.sources.trace import ActivityKind

__all__ = ["Failure", "Unit", "files_of", "units_of"]


@dataclass(frozen=True)
class Unit:
    """The GPU activity of one rank in one file.

    rank: -1 where nothing says it; place: the file, and where it holds several units also process and device; origin_ns: what
    to add to a time to have nanoseconds since 1970, -1 unknown; begin_ns: the first record of the file.
    """

    rank: int
    place: str
    records: Records
    origin_ns: int
    begin_ns: int


@dataclass(frozen=True)
class Failure:
    """A file that cannot be read, or in which nothing ran on a GPU, and why."""

    path: File
    reason: str


def files_of(names: Sequence[str]) -> list[File]:
    """The files that are meant: of a data set its Parquet files by rank, else captures and records as they are given.

    Raises InputError where a name stands for nothing.
    """
    found: dict[File, None] = {}
    for name in names:
        folder = locate(name)
        inside = (stored(folder) or matching(folder / "*.parquet")) if is_folder(folder) else []
        found |= dict.fromkeys(inside or expand([name]))
    return list(found)


def units_of(path: File, choose: Callable[[Records], npt.NDArray[np.bool_]] | None = None) -> Iterator[Unit | Failure]:
    """What is in one file; a file that cannot be used is a Failure, not an error. choose: a mask over records, None: all."""
    try:
        with fetched(path) as local:
            yield from _units(path, local, choose)
    except UsageError:
        raise
    except PyprofError as error:
        yield Failure(path, str(error))


def _units(path: File, local: Path, choose: Callable[[Records], npt.NDArray[np.bool_]] | None) -> Iterator[Unit]:
    """The units of a file that is at `local` for the time being."""
    from pyprof.loading import load

    records = load(str(local))
    if choose is not None:
        records = records.select(choose(records))
    start = records["start_ns"]
    kinds = (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.MEMCPY, ActivityKind.MEMSET)
    rows = np.flatnonzero(np.isin(records["kind"], kinds) & (start >= 0))
    if not len(rows):
        raise InputError(f"{path}: nothing ran on a GPU in it")
    origin, begin = records.utc_ns, int(start[rows].min())
    rank = records["rank"][rows].astype(np.int64)
    where = [np.where(rank >= 0, -1, records[name][rows]) for name in ("pid", "device")]
    distinct = distinct_rows(rank, *where)
    several = distinct.columns.shape[1] > 1
    for number, (recorded, pid, device) in enumerate(distinct.columns.T.tolist()):
        said = f"{path.name}, process {pid}, device {device}" if several and recorded < 0 else path.name
        known = recorded if recorded >= 0 or several else named_rank(path)
        part = rows[distinct.inverse == number]
        yield Unit(known, said, records if len(part) == len(records) else records.select(part), origin, begin)
