"""nvprof's CUPTI_ACTIVITY_KIND_MARKER, two rows a range -> the table `ranges`.

The row of the begin names the range and, in a C union, its thread; the row of the end has the same id. Texts are in `Names`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pyprof.arrays.columns import Growing, distinct_values, map_distinct, narrowest
from pyprof.arrays.types import Array, Ints
from pyprof.parse.sources.nvprof_names import Names
from pyprof.parse.sources.sqlite import Database
from pyprof.parse.sources.sqlite_pages.btree import Block
from pyprof.parse.sources.sqlite_pages.reader import Batch
from pyprof.parse.sources.trace import Table, Trace, make_table

_MARKER, _START, _END = "CUPTI_ACTIVITY_KIND_MARKER", 2, 4
_COLUMNS = ("flags", "id", "timestamp", "name", "domain", "objectKind")
_NEEDED = ("flags", "timestamp", "id", "objectKind", "objectId", "name")
_PROCESS, _THREAD = 1, 2  # CUPTI_ACTIVITY_OBJECT_*
_UNION_BYTES = 8  # of its 12 only those of its kind are initialised: process and thread are the first 8


class _MarkerRows:
    """Collects begins and ends as columns: id and time of both, of begins also name, domain and thread; -1 where unknown."""

    def __init__(self) -> None:
        self.begins = [Growing(dtype) for dtype in (np.int32, np.int64, np.int32, np.int32, np.int32)]
        self.ends = [Growing(dtype) for dtype in (np.int32, np.int64)]
        self.pids: set[int] = set()
        self.unreadable = 0  # begins without a time

    def add(self, batch: Batch) -> None:
        flags, *columns, kind = batch.columns
        texts = batch.texts
        union = Block(texts.raw).gather(_UNION_BYTES, texts.begin).view("<u4").reshape(-1, 2).T.astype(np.int64)
        union[:, (texts.size < _UNION_BYTES) | ~np.isin(kind, (_PROCESS, _THREAD))] = -1
        pid, tid = union
        tid[kind != _THREAD] = -1
        marker, time = columns[:2]
        begins, ends = flags == _START, (flags == _END) & (marker >= 0) & (time >= 0)
        self.unreadable += int(np.count_nonzero(begins & (time < 0)))
        begins &= time >= 0
        self.pids.update(distinct_values(pid[begins & (pid >= 0)]).tolist())
        for column, values in zip(self.begins, (*columns, tid), strict=True):
            column.append(narrowest(values[begins]))
        for column, values in zip(self.ends, (marker, time), strict=True):
            column.append(narrowest(values[ends]))


def read_ranges(db: Database, names: Names, trace: Trace, thread: Callable[[int], int]) -> tuple[Table, set[int]]:
    """All ranges, a start without an end left open, and the processes that they name.

    thread: the row of `threads` of a thread id.
    """
    if not db.has(_MARKER, *_NEEDED):
        return make_table("ranges"), set()
    rows = db.collect(_MARKER, _COLUMNS, "objectId", _MarkerRows, blobs=True)
    if rows.unreadable:
        trace.notes.append(f"{rows.unreadable} NVTX ranges without a readable time were left out")
    marker, begin, name, domain, tid = (column.whole() for column in rows.begins)
    ids, times = (column.whole() for column in rows.ends)
    end = _ends(ids, times, marker, begin)
    label, seq, op_id = names.split(name, trace.labels)

    def code_of_domain(name: int) -> int:
        text = names.get(name) if name > 0 else None
        return trace.strings.code(text) if text else -1

    columns = {
        "start_ns": begin,
        "end_ns": end,
        "thread": map_distinct(tid, lambda number: thread(number) if number >= 0 else -1),
        "label": label,
        "seq": seq,
        "op_id": op_id,
        "domain": map_distinct(domain, code_of_domain),
        "open": end < 0,
    }
    return make_table("ranges", columns), rows.pids


def _ends(ids: Array, times: Array, marker: Array, begin: Array) -> Array:
    """The end of each range, -1 where it is unknown: of several ends of one id the first after its begin, else the last."""
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
    """For each (marker, begin), the place in the sorted (ids, times) of the first of its id not before it, else of its last."""
    order = np.lexsort((np.repeat([1, 0], [len(ids), len(marker)]), np.append(times, begin), np.append(ids, marker)))
    is_end = order < len(ids)
    before = np.empty(len(order), np.int64)
    before[order] = np.cumsum(is_end)  # ends in order before each row
    at = np.minimum(before[len(ids) :], len(ids) - 1)
    return np.where(ids[at] == marker, at, np.maximum(before[len(ids) :] - 1, 0))
