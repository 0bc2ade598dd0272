"""Python frames that torch.profiler recorded (`with_stack=True`) -> the time that recording them took the host, as far as the
trace itself proves it.

Between two calls of C functions that follow one another in one Python function lie a few bytecodes: well under a microsecond,
and as much with the recording of a call. In a trace in which some functions show that and others, each time, many times more,
the difference is the recorder's: it copies the locals of a function at each call. Nothing else is counted, so that what is
known is a lower bound.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import distinct_values
from pyprof.arrays.intervals import Segments, quantiles, union
from pyprof.arrays.nesting import crossing, nest
from pyprof.arrays.types import Bools, Ints
from pyprof.parse.sources.trace import Table, Trace

_C_FUNCTION = ("<built-in", "<method", "<slot wrapper")
_USUAL_NS = 2_000  # at most, of the pauses that the functions have where recording costs least
_SLOW_NS = 5_000  # at least, of nearly all pauses of a function to be told from what it does itself
_LEAST = 16  # pauses of a function
_BULK = 0.1  # quantile: what nearly all exceed


def tracer_time(trace: Trace) -> Segments:
    """When recording took the time of each thread, groups being rows of the trace's threads."""
    frames, parts = trace.frames, []
    is_c = np.array([text.startswith(_C_FUNCTION) for text in trace.strings.values], np.bool_)
    for thread in distinct_values(frames["thread"]).tolist():
        rows = np.flatnonzero(frames["thread"] == thread)
        begin, end, function = _pauses(frames, rows, is_c)
        keep = ~_holds_any(trace, thread, begin, end)
        parts.append((np.full(int(keep.sum()), thread), begin[keep], end[keep], function[keep]))
    if not parts:
        return union(*np.zeros((3, 0), np.int64))
    group, begin, end, function = map(np.concatenate, zip(*parts, strict=True))
    used, code = np.unique(function, return_inverse=True)
    code, length = code.ravel(), end - begin
    bulk = quantiles(code, length, len(used), _BULK)[0]
    middle = quantiles(code, length, len(used), 0.5)[0]
    often = np.bincount(code, minlength=len(used)) >= _LEAST
    usual = float(middle[often].min(initial=np.inf))
    slow = (often & (bulk >= _SLOW_NS))[code]
    if usual > _USUAL_NS or not slow.any():
        return union(*np.zeros((3, 0), np.int64))
    return union(group[slow], begin[slow] + round(usual), end[slow])


def _pauses(frames: Table, rows: Ints, is_c: Bools) -> tuple[Ints, Ints, Ints]:
    """(begin, end, name of the function) of the times between two calls of C functions that follow one another in one."""
    begin, end, name = (frames[column][rows].astype(np.int64) for column in ("start_ns", "end_ns", "name"))
    order = np.lexsort((-end, begin))
    begin, end, name = begin[order], end[order], name[order]
    aside = crossing(begin, end, np.zeros(len(begin), np.bool_))
    begin, end, name = begin[~aside], end[~aside], name[~aside]
    parent = nest(begin, end).parent
    by_caller = np.argsort(parent, kind="stable")  # and of one caller in order of begin
    one, two = by_caller[:-1], by_caller[1:]
    pair = (parent[one] == parent[two]) & (parent[one] >= 0) & is_c[name[one]] & is_c[name[two]] & (begin[two] > end[one])
    one, two = one[pair], two[pair]
    return end[one], begin[two], name[parent[one]]


def _holds_any(trace: Trace, thread: int, begin: Ints, end: Ints) -> Bools:
    """In which of these times of a thread an op or a call of the API begins."""
    moments = [table["start_ns"][table["thread"] == thread] for table in (trace.ranges, trace.launches)]
    times = np.sort(np.concatenate(moments))
    return np.asarray(np.searchsorted(times, end) > np.searchsorted(times, begin))
