"""The tables of a capture -> what the host did while the GPU had nothing to do, when a step began, how long gloo worked.

Records know what ran and when it was launched; the ranges of the host's threads are in the capture alone. Knows one capture.
"""

from __future__ import annotations

import re

import numpy as np

from pyprof.arrays.types import Array, Ints
from pyprof.markers import Kind
from pyprof.parse.records.records import PHASES, Records
from pyprof.parse.sources.trace import Trace

PYTHON, LOADING = "(Python)", "(data loading)"
_LOADER = re.compile(r"DataLoader|data_?load", re.I)
_NUMBER = re.compile(r"[\s#_:]*\d+$")  # of a range that is opened once a step
_SHOWN = (Kind.USER, Kind.OP, Kind.LAYER, Kind.DISPATCH, Kind.BACKWARD, Kind.OPTIMIZER, Kind.STEP)


def doing(trace: Trace, pid: Ints, tid: Ints, begin: Ints, end: Ints) -> list[str]:
    """For each pause, in which the next launch of this thread was awaited, what this thread was in for at least half of it, or
    if nothing is known of it the main thread of its process: `(data loading)`, else the innermost range, `(Python)` where only
    a step was open; '' nothing recorded. Pauses of a thread do not overlap."""
    found = np.full(len(begin), "", object)
    ranges, threads = trace.ranges, trace.threads
    long = ranges["end_ns"] - ranges["start_ns"] >= (end - begin).min() // 2
    shown = long & np.isin(trace.kinds, _SHOWN) & (ranges["open"] == 0)
    of_process = trace.processes["pid"][threads["process"]]
    for process, thread in set(zip(pid.tolist(), tid.tolist(), strict=True)):
        for looked_at in (threads["tid"] == thread, threads["main"] == 1):
            rows = np.flatnonzero(shown & np.isin(ranges["thread"], np.flatnonzero((of_process == process) & looked_at)))
            mine = np.flatnonzero((pid == process) & (tid == thread) & (found == ""))
            mine = mine[np.argsort(begin[mine], kind="stable")]
            for at, name in _covering(trace, rows, begin[mine], end[mine]):
                found[mine[at]] = name
    return [str(name) for name in found]


def _covering(trace: Trace, rows: Ints, begin: Ints, end: Ints) -> list[tuple[int, str]]:
    """(pause, name of the range that says most about it); rows: of ranges; pauses in order."""
    start, stop = trace.ranges["start_ns"][rows], trace.ranges["end_ns"][rows]
    low, high = np.searchsorted(end, start, "right"), np.searchsorted(begin, stop, "left")
    count = np.maximum(high - low, 0)
    which = np.repeat(np.arange(len(rows)), count)
    pause = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count) + low[which]
    inside = np.minimum(stop[which], end[pause]) - np.maximum(start[which], begin[pause])
    enough = 2 * inside >= end[pause] - begin[pause]
    which, pause = which[enough], pause[enough]
    label = trace.ranges["label"][rows[which]]
    markers = {code: trace.markers[code] for code in set(label.tolist())}
    worth = {code: 2 if m.kind == Kind.STEP else 0 if _LOADER.search(m.name) else 1 for code, m in markers.items()}
    order = np.lexsort(((stop - start)[which], [worth[code] for code in label.tolist()], pause))
    best = order[np.flatnonzero(np.diff(pause[order], prepend=-1))]
    return [(int(pause[at]), _named(markers[int(label[at])].kind, markers[int(label[at])].name)) for at in best.tolist()]


def _named(kind: Kind, name: str) -> str:
    if kind == Kind.STEP:
        return PYTHON
    if _LOADER.search(name):
        return LOADING
    return _NUMBER.sub("", name) or name if kind == Kind.USER else name


def begin_of(trace: Trace, pid: int, step: int, first: int) -> int:
    """When this process began a step, -1 unknown. step -1: the first thing that it did at all, unless something ran before the
    first activity that is looked at, which began at `first`."""
    threads = np.flatnonzero(trace.processes["pid"][trace.threads["process"]] == pid)
    if step >= 0:
        labels = [code for code, marker in enumerate(trace.markers) if marker.step == step]
        mine = np.isin(trace.ranges["label"], labels) & np.isin(trace.ranges["thread"], threads)
        return int(trace.ranges["start_ns"][mine].min(initial=np.iinfo(np.int64).max)) if mine.any() else -1
    processes = np.flatnonzero(trace.processes["pid"] == pid)
    ran = trace.activities["start_ns"][np.isin(trace.activities["process"], processes)]  # some are of no known process
    if len(ran) and int(ran.min()) < first:
        return -1
    starts = [table["start_ns"][np.isin(table["thread"], threads)] for table in (trace.ranges, trace.launches)]
    return min((int(values.min()) for values in starts if len(values)), default=-1)


def with_workers(records: Records, trace: Trace) -> tuple[Records, bool]:
    """Records of a run on the CPU with the time of each collective from its begin to its end on gloo's own threads, where the
    capture has it: the op that requests one returns before. And whether it has that of nearly all."""
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
