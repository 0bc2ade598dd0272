"""nvprof's CUPTI_ACTIVITY_KIND_MARKER, two rows a range -> the table `ranges`.

A row of the begin names the range and, in a C union, its thread; the row of the end has the same id. Texts are in `Names`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.markers import split_ids
from pyprof.parse.sources.nvprof_names import Names
from pyprof.parse.sources.sqlite import Database, distinct_values, map_distinct
from pyprof.parse.sources.trace import Table, Trace, make_table

__all__ = ["Ranges", "read_ranges"]

Ints = npt.NDArray[np.int64]

_MARKER, _START, _END = "CUPTI_ACTIVITY_KIND_MARKER", 2, 4
_PROCESS, _THREAD = 1, 2  # CUPTI_ACTIVITY_OBJECT_*


class Ranges(NamedTuple):
    """table: the ranges; pids: processes that they name."""

    table: Table
    pids: set[int]


def read_ranges(db: Database, names: Names, trace: Trace, thread: Callable[[int], int]) -> Ranges:
    """All ranges, a start without an end left open; thread: the row of `threads` of a thread id."""
    if not db.has(_MARKER, "flags", "timestamp", "id", "objectKind", "objectId", "name"):
        return Ranges(make_table("ranges"), set())
    columns = ("id", "timestamp", "objectKind", "name", "domain")
    # Of the union's 12 bytes only those of its kind are initialised: process and thread are the first 8.
    raw, union, whole = db.integers_and_bytes(_MARKER, columns, "objectId", 8, f"flags = {_START}")
    readable = raw["timestamp"] >= 0
    if not readable.all():
        trace.notes.append(f"{np.count_nonzero(~readable)} NVTX ranges without a readable time were left out")
        raw = {name: values[readable] for name, values in raw.items()}
        union, whole = union[readable], whole[readable]
    end = _ends(db, raw["id"], raw["timestamp"])
    threads, pids = _objects(raw["objectKind"], union, whole, thread)

    def decode(text: str) -> tuple[int, int, int]:
        bare, seq, op_id, keyed = split_ids(text)
        return trace.labels.code(bare, keyed=keyed, numbered=seq >= 0), seq, op_id

    def domain(name: int) -> int:
        text = names.get(name) if name > 0 else None
        return trace.strings.code(text) if text else -1

    label, seq, op_id = names.say(raw["name"], decode)
    found = {
        "start_ns": raw["timestamp"],
        "end_ns": end,
        "thread": threads,
        "label": label,
        "seq": seq,
        "op_id": op_id,
        "domain": map_distinct(raw["domain"], domain),
        "open": end < 0,
    }
    return Ranges(make_table("ranges", found), pids)


def _objects(
    kind: Ints, union: npt.NDArray[np.uint8], whole: npt.NDArray[np.bool_], thread: Callable[[int], int]
) -> tuple[Ints, set[int]]:
    """Rows of `threads`, -1 where the object is none, and the processes named."""
    pid, tid = union.view("<u4").T.astype(np.int64)
    of_thread = whole & (kind == _THREAD)
    result = np.full(len(kind), -1, np.int64)
    result[of_thread] = map_distinct(tid[of_thread], thread)
    return result, distinct_values(pid[of_thread | (whole & (kind == _PROCESS))])


def _ends(db: Database, marker: Ints, begin: Ints) -> Ints:
    """The end of each range, -1 where there is none: of several ends of one id the first after its begin, else the last."""
    raw = db.integers(_MARKER, ("id", "timestamp"), f"flags = {_END}")
    known = (raw["id"] >= 0) & (raw["timestamp"] >= 0)
    ids, times = raw["id"][known], raw["timestamp"][known]
    if not len(ids):
        return np.full(len(marker), -1, np.int64)
    order = np.argsort(ids, kind="stable")
    ids, times = ids[order], times[order]
    if (ids[1:] == ids[:-1]).any():
        order = np.lexsort((times, ids))
        ids, times = ids[order], times[order]
        at = _first_after(ids, times, marker, begin)
    else:
        at = np.minimum(np.searchsorted(ids, marker), len(ids) - 1)
    return np.where(ids[at] == marker, times[at], -1)


def _first_after(ids: Ints, times: Ints, marker: Ints, begin: Ints) -> Ints:
    """Which of the sorted (ids, times) is for each (marker, begin) the first of this id not before it, else the last of it."""
    order = np.lexsort((np.repeat([1, 0], [len(ids), len(marker)]), np.append(times, begin), np.append(ids, marker)))
    is_end = order < len(ids)
    before = np.empty(len(order), np.int64)
    before[order] = np.cumsum(is_end)  # ends in order before each row
    at = np.minimum(before[len(ids) :], len(ids) - 1)
    return np.where(ids[at] == marker, at, np.maximum(before[len(ids) :] - 1, 0))
