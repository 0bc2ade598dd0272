"""The tables of a capture -> what a thread did in a pause before a launch, when a process began a step, and the actions of
a pipeline.

Records hold kernels and their launches; only the capture has the ranges of the host's threads.
"""

from __future__ import annotations

import re

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.intervals import spans
from pyprof.columns.sorting import rows_of_spans
from pyprof.columns.types import Array, Ints
from pyprof.model.host import Doing, StageActions, without_number
from pyprof.model.markers import Kind
from pyprof.model.pipeline import action_of
from pyprof.model.trace import Trace
from pyprof.parse.attribution.launches import take

PYTHON, LOADING = "(Python)", "(data loading)"
_LOADER = re.compile(r"DataLoader|data_?load", re.I)
LONG_NS = 50_000  # from here on it matters what the host did in a pause
_COMMUNICATES = re.compile(r"[nrhx]ccl|all_?reduce|all_?gather|all_?to_?all|reduce_?scatter|broadcast", re.I)
_SHOWN = (Kind.USER, Kind.OP, Kind.LAYER, Kind.DISPATCH, Kind.BACKWARD, Kind.OPTIMIZER, Kind.STEP)


def doing(trace: Trace, pid: Ints, tid: Ints, begin: Ints, end: Ints) -> list[str]:
    """The occupation of a thread in each pause before its next launch: `(data loading)`, else the innermost range, `(Python)`
    if only a step was open; '' unknown.

    A range counts if it covers half of the pause. If the thread has none, the main thread of its process is asked. Pauses of a
    thread do not overlap.
    """
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
    """(index of a pause, name of the range that tells most about it). rows: of ranges; pauses are in order."""
    start, stop = trace.ranges["start_ns"][rows], trace.ranges["end_ns"][rows]
    low, high = np.searchsorted(end, start, "right"), np.searchsorted(begin, stop, "left")
    which, pause = rows_of_spans(low, np.maximum(low, high))
    inside = np.minimum(stop[which], end[pause]) - np.maximum(start[which], begin[pause])
    enough = 2 * inside >= end[pause] - begin[pause]
    which, pause = which[enough], pause[enough]
    label = trace.ranges["label"][rows[which]]
    markers = {code: trace.markers[code] for code in set(label.tolist())}
    worth = {code: 2 if m.kind == Kind.STEP else 0 if _LOADER.search(m.name) else 1 for code, m in markers.items()}
    order = np.lexsort(((stop - start)[which], np.array([worth[code] for code in label.tolist()], np.int64), pause))
    best = order[np.flatnonzero(np.diff(pause[order], prepend=-1))]
    names = {}
    for code, marker in markers.items():
        name = without_number(marker.name) if marker.kind == Kind.USER else marker.name
        names[code] = PYTHON if marker.kind == Kind.STEP else LOADING if _LOADER.search(marker.name) else name
    return list(zip(pause[best].tolist(), map(names.__getitem__, label[best].tolist()), strict=True))


def begin_of(trace: Trace, pid: int, step: int, first: int) -> int:
    """When this process began a step, -1 unknown. step -1: when it did anything at all, but unknown if something ran before
    `first`, the begin of the first activity in question."""
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


def named_pauses(trace: Trace, launch: Array) -> list[Doing]:
    """Activities of launching threads before launches that came at least LONG_NS after their device had run dry. Only for
    captures with several devices or communication, where ranks are compared. launch: see `launch_of_activity`."""
    activities, launches = trace.activities, trace.launches
    start = activities["start_ns"].astype(np.int64)
    units, _, unit = distinct_rows(activities["process"], activities["device"])
    used = np.zeros(len(trace.strings) + 1, np.bool_)
    used[activities["name"]] = True
    if units.shape[1] < 2 and not any(_COMMUNICATES.search(trace.strings[code]) for code in np.flatnonzero(used[:-1]).tolist()):
        return []
    begun, thread = take(launches["start_ns"], launch), take(launches["thread"], launch)
    order = np.lexsort((start, unit))
    first = np.append(True, np.diff(unit[order]) != 0)
    ends = np.maximum(activities["end_ns"][order], start[order])
    latest = np.concatenate([np.maximum.accumulate(part) for part in np.split(ends, np.flatnonzero(first)[1:])])
    before = np.append(0, latest[:-1])
    pause = np.where(first, 0, np.minimum(begun, start)[order] - before)
    rows = np.flatnonzero((pause >= LONG_NS) & (begun[order] >= 0))
    pause, begun, thread = pause[rows], begun[order][rows], thread[order][rows]
    pid, tid = trace.processes["pid"][trace.threads["process"][thread]], trace.threads["tid"][thread]
    if not len(rows):
        return []
    names = np.array(doing(trace, pid.astype(np.int64), tid.astype(np.int64), begun - pause, begun), object)
    found = []
    for one, other in sorted(set(zip(pid.tolist(), tid.tolist(), strict=True))):
        mine = np.flatnonzero((pid == one) & (tid == other))
        pool: dict[str, int] = {}
        codes = [pool.setdefault(name, len(pool)) for name in names[mine].tolist()]
        found.append(Doing(one, other, begun[mine].tolist(), codes, list(pool)))
    return found


def begins_of_steps(trace: Trace) -> list[tuple[int, int, int]]:
    """(process id, number of a step, its begin there) of each step; number -1: begin of the process's first range or launch."""
    of_thread = trace.processes["pid"][trace.threads["process"]].astype(np.int64)
    ranges, launches = trace.ranges, trace.launches
    step = np.array([*(-1 if one.step is None else one.step for one in trace.markers), -1], np.int64)[ranges["label"]]
    pid, begun = of_thread[ranges["thread"]], ranges["start_ns"].astype(np.int64)
    called = of_thread[launches["thread"]], launches["start_ns"].astype(np.int64)
    keys = np.concatenate([pid, pid[step >= 0], called[0]])
    numbers = np.concatenate([np.full(len(pid), -1), step[step >= 0], np.full(len(called[0]), -1)])
    times = np.concatenate([begun, begun[step >= 0], called[1]])
    (pids, steps), _, code = distinct_rows(keys, numbers)
    first, _ = spans(code, times, times, len(pids))
    return list(zip(pids.tolist(), steps.tolist(), first.tolist(), strict=True))


def actions_of(trace: Trace) -> list[StageActions]:
    """Actions of a pipeline, by process."""
    ranges, of_thread = trace.ranges, trace.threads["process"]
    chosen = np.array([*(action_of(marker.text) is not None for marker in trace.markers), False], np.bool_)
    rows = np.flatnonzero(chosen[ranges["label"]])
    rows = rows[np.argsort(ranges["start_ns"][rows], kind="stable")]
    process = of_thread[ranges["thread"][rows]]
    found = []
    for one in distinct_values(process).tolist():
        mine = rows[process == one]
        texts = [trace.markers[code].text for code in ranges["label"][mine].tolist()]
        pid = int(trace.processes["pid"][one])
        found.append(StageActions(pid, texts, ranges["start_ns"][mine].tolist(), ranges["end_ns"][mine].tolist()))
    return found
