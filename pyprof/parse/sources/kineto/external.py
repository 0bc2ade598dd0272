"""Kernels whose launch no correlation id tells -> the launch or the op with their External id.

ROCm once wrote the id on the launch and the kernel alone; where calls were not recorded, it is the id of the innermost op that
launched. Old releases counted these ids in another way on ops: they are used only where ids are unique and times agree.
"""

from __future__ import annotations

import numpy as np

from pyprof.columns.types import Array, Bools, Ints
from pyprof.model.markers import Kind
from pyprof.model.trace import Table, Trace, concatenated, make_table

_AGREE = 0.9  # of the pairs whose times must allow that one launched the other
_BY_ID = "(by External id)"  # the name of a launch that was not recorded


def join_by_external_id(trace: Trace, activity: Array, launch: Array) -> list[str]:
    """Give activities without a launch the one with their External id, or else a launch at the begin of the op with that id.

    activity, launch: External id of the first rows of `activities` and `launches`. Changes both tables; returns a note on ops.
    """
    activities, launches = trace.activities, trace.launches
    known = np.zeros(len(activities["corr"]), np.bool_)
    known[: len(activity)] = activity > 0
    known &= ~((activities["corr"] > 0) & np.isin(activities["corr"], launches["corr"]))
    rows = np.flatnonzero(known)
    if not len(rows):
        return []
    free = int(max(activities["corr"].max(initial=0), launches["corr"].max(initial=0))) + 1
    ids = activity[rows].astype(np.int64)
    pairs = _launches_of(launches, launch.astype(np.int64), ids, activities["start_ns"][rows])
    if pairs is not None:
        corr, of_launch = activities["corr"].astype(np.int64), launches["corr"].astype(np.int64)
        at, call = pairs
        corr[rows[at]] = of_launch[call] = free + np.arange(len(at))
        activities["corr"], launches["corr"] = corr, of_launch
        return []
    op = _ops_of(trace, ids, activities["start_ns"][rows])
    if op is None:
        return []
    rows, op, corr = rows[op >= 0], op[op >= 0], activities["corr"].astype(np.int64)
    corr[rows] = free + np.arange(len(rows))
    activities["corr"] = corr
    start = trace.ranges["start_ns"][op]
    columns = {
        "start_ns": start,
        "end_ns": start,
        "thread": trace.ranges["thread"][op],
        "corr": corr[rows],
        "name": np.full(len(rows), trace.strings.code(_BY_ID)),
    }
    trace.launches = concatenated([launches, make_table("launches", columns)])
    return [
        f"{len(rows):,} kernels, copies and fills are placed by External id, at the begin of their op: no launch has their id"
    ]


def _launches_of(launches: Table, external: Ints, ids: Ints, start: Ints) -> tuple[Ints, Ints] | None:
    """Pairs of activity and launch with one id, both in order of begin; None where their numbers or times do not fit."""
    bare = np.flatnonzero((external > 0) & (launches["corr"][: len(external)] <= 0) & np.isin(external, ids))
    if not len(bare):
        return None
    at = np.lexsort((start, ids))
    call = bare[np.lexsort((launches["start_ns"][bare], external[bare]))]
    if len(at) != len(call) or (ids[at] != external[call]).any() or not _agree(launches["start_ns"][call] <= start[at]):
        return None
    return at, call


def _ops_of(trace: Trace, ids: Ints, start: Ints) -> Ints | None:
    """The row of the only op with each id, -1 none; None where they are not of one numbering."""
    ranges = trace.ranges
    ops = np.array([*(one.kind in (Kind.DISPATCH, Kind.BACKWARD, Kind.ENGINE) for one in trace.markers), False], np.bool_)
    rows = np.flatnonzero(ops[ranges["label"]] & (ranges["op_id"] > 0))
    if not len(rows):
        return None
    numbers, first, count = np.unique(ranges["op_id"][rows], return_index=True, return_counts=True)
    at = np.minimum(np.searchsorted(numbers, ids), len(numbers) - 1)
    found = (numbers[at] == ids) & (count[at] == 1)
    if not _agree(found):
        return None
    op = np.where(found, rows[first[at]], -1)
    begun = ranges["start_ns"][op]
    order = np.argsort(start[found], kind="stable")
    # What an op launched begins after it, and streams run in the order of their launches, but for a few.
    if not _agree(begun[found] <= start[found]) or not _agree(np.diff(begun[found][order]) >= 0):
        return None
    return op


def _agree(these: Bools) -> bool:
    return not len(these) or float(these.mean()) >= _AGREE
