"""nvprof's CUPTI_ACTIVITY_KIND_MARKER, two rows a range -> the table `ranges`.

The row of the begin names the range and, in a C union, its thread; the row of the end has the same id. Texts are in `Names`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pyprof.arrays.columns import distinct_values, map_distinct
from pyprof.arrays.types import Ints
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
    """Collects (id, time) of begins and ends, and of begins also (name, domain, process, thread); -1 where unknown."""

    def __init__(self) -> None:
        self.begins, self.ends = [np.empty((6, 0), np.int64)], [np.empty((2, 0), np.int64)]

    def add(self, batch: Batch) -> None:
        flags, *columns, kind = batch.columns
        texts = batch.texts
        union = Block(texts.raw).gather(_UNION_BYTES, texts.begin).view("<u4").reshape(-1, 2).T.astype(np.int64)
        union[:, (texts.size < _UNION_BYTES) | ~np.isin(kind, (_PROCESS, _THREAD))] = -1
        union[1, kind != _THREAD] = -1
        self.begins.append(np.stack([*columns, *union])[:, flags == _START])
        self.ends.append(np.stack(columns[:2])[:, flags == _END])


def read_ranges(db: Database, names: Names, trace: Trace, thread: Callable[[int], int]) -> tuple[Table, set[int]]:
    """All ranges, a start without an end left open, and the processes that they name.

    thread: the row of `threads` of a thread id.
    """
    if not db.has(_MARKER, *_NEEDED):
        return make_table("ranges"), set()
    rows = db.collect(_MARKER, _COLUMNS, "objectId", _MarkerRows, blobs=True)
    begins = np.concatenate(rows.begins, axis=1)
    readable = begins[1] >= 0
    if not readable.all():
        trace.notes.append(f"{np.count_nonzero(~readable)} NVTX ranges without a readable time were left out")
    marker, begin, name, domain, pid, tid = begins[:, readable]
    end = _ends(np.concatenate(rows.ends, axis=1), marker, begin)
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
    return make_table("ranges", columns), set(distinct_values(pid[pid >= 0]).tolist())


def _ends(ends: Ints, marker: Ints, begin: Ints) -> Ints:
    """The end of each range, -1 where it is unknown: of several ends of one id the first after its begin, else the last."""
    ids, times = ends[:, (ends >= 0).all(axis=0)]
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
