"""Files and folders -> the ranks in them, one after another: the records of each, and where its clock stands.

A unit is what one rank did in one file. The rank is the one that was recorded, else the one in the name of the file or of its
folder in a data set; where several processes or devices of one file have none, each is a unit of its own. Knows no collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import among, distinct_rows
from pyprof.columns.types import Array, Bools
from pyprof.errors import InputError, PyprofError, UsageError
from pyprof.model.records import PHASES, Records
from pyprof.model.trace import ActivityKind, Trace
from pyprof.parse.records.dataset import expand, named_rank, stored
from pyprof.parse.records.locations import File, fetched, is_folder, locate, matching

Choose = Callable[[Records], Bools]  # a mask over records
_ON_GPU = (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.MEMCPY, ActivityKind.MEMSET)


class Unit(NamedTuple):
    """The GPU activity of one rank in one file; without any, its ops on the CPU.

    rank: -1 unknown; name: of the file, with process and device where it holds several units; origin_ns: what to add to a time
    to have nanoseconds since 1970, -1 unknown; begin_ns: the first record of the file; ends: whether collectives end where
    their records do, unlike ops on the CPU that request one and return; trace: the capture, None for records alone.
    """

    rank: int
    name: str
    records: Records
    origin_ns: int
    begin_ns: int
    ends: bool = True
    trace: Trace | None = None


def files_of(names: Sequence[str]) -> list[File]:
    """All files that these names lead to: of a data set its Parquet files by rank, else captures and records as named.

    Raises InputError if a name leads to no file.
    """
    found: dict[File, None] = {}
    for name in names:
        folder = locate(name)
        inside = (stored(folder) or matching(folder / "*.parquet")) if is_folder(folder) else []
        found |= dict.fromkeys(inside or expand([name]))
    return list(found)


def units_of(path: File, choose: Choose | None = None) -> Iterator[Unit | PyprofError]:
    """The units in one file; why a file cannot be used is yielded, not raised. choose: None for all records."""
    try:
        with fetched(path) as local:
            yield from _units(path, local, choose)
    except UsageError:
        raise
    except PyprofError as error:
        yield error


def _units(path: File, local: Path, choose: Choose | None) -> Iterator[Unit]:
    """The units of a file that is at `local` for the time being."""
    from pyprof.loading.load import load_with_trace

    records, trace = load_with_trace(str(local))
    hint = "`pyprof summary` shows a run on the CPU alone; ranks are compared by their collectives (NCCL, RCCL, gloo)"
    nothing = InputError(f"{path}: nothing ran on a GPU in it, and no collective on the CPU", hint)
    ends = on_gpu = bool(among(records["kind"], _ON_GPU).any())
    if not on_gpu:
        if not (records["phase"] == PHASES.index("communication")).any():
            raise nothing
        if trace is not None:
            records, ends = with_workers(records, trace)
    if choose is not None:
        records = records.select(choose(records))
    wanted = among(records["kind"], _ON_GPU if on_gpu else (ActivityKind.CPU,))
    rows = np.flatnonzero(wanted & (records["start_ns"] >= 0))
    if not len(rows):
        raise nothing
    rank, *places = (records[name][rows] for name in ("rank", "pid", "device"))
    distinct = distinct_rows(rank, *(np.where(rank >= 0, -1, values) for values in places))
    begin_ns, several = int(records["start_ns"][rows].min()), distinct.columns.shape[1] > 1
    for number, (recorded, pid, device) in enumerate(distinct.columns.T.tolist()):
        name = f"{path.name}, process {pid}, device {device}" if several and recorded < 0 else path.name
        known = recorded if recorded >= 0 or several else named_rank(path)
        part = rows[distinct.inverse == number]
        chosen = records if len(part) == len(records) else records.select(part)
        yield Unit(known, name, chosen, records.utc_ns, begin_ns, ends, trace)


def with_workers(records: Records, trace: Trace) -> tuple[Records, bool]:
    """Records of a CPU run in which collectives last as long as on gloo's own threads, if captured (the op that requests one
    returns earlier); and whether nearly all could be found there."""
    labels = {code: m.name.removeprefix("gloo:") for code, m in enumerate(trace.markers) if m.name.startswith("gloo:")}
    working = np.flatnonzero(np.isin(trace.ranges["label"], list(labels)))
    working = working[np.argsort(trace.ranges["start_ns"][working], kind="stable")]
    process = trace.threads["process"][trace.ranges["thread"][working]]
    columns: dict[str, Array] = {name: records[name].copy() for name in ("start_ns", "dur_ns")}
    asked = np.flatnonzero(records["phase"] == PHASES.index("communication"))
    asked = asked[np.argsort(records["start_ns"][asked], kind="stable")]
    lacking = 0
    for pid in np.unique(records["pid"][asked]).tolist():
        mine = working[trace.processes["pid"][process] == pid].tolist()
        for row in asked[records["pid"][asked] == pid].tolist():
            begin = int(records["start_ns"][row])
            at = next((n for n, r in enumerate(mine) if trace.ranges["start_ns"][r] >= begin), None)
            lacking += at is None
            if at is not None:
                one = mine.pop(at)
                columns["start_ns"][row] = trace.ranges["start_ns"][one]
                columns["dur_ns"][row] = trace.ranges["end_ns"][one] - trace.ranges["start_ns"][one]
    return records.with_ops(columns, records.calls), 10 * lacking <= len(asked)
