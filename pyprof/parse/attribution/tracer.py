"""Python frames that torch.profiler recorded (`with_stack=True`) -> the time that recording them took the host, as far as the
trace itself proves it.

Between two events that follow one another in a Python function - a call of another, a return - lie a few bytecodes: about a
microsecond with what recording the event takes. In a trace in which some functions show that and others each time many times
more, the difference is the recorder's, which reads the locals of a function at each event. Pauses in which an op or a call of
the API begins or ends are left out, long ones too, since those may be work: what is found is a lower bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.arrays.columns import distinct_values
from pyprof.arrays.intervals import Segments, quantiles, union
from pyprof.arrays.nesting import crossing, nest
from pyprof.arrays.types import Bools, Ints
from pyprof.parse.sources.trace import Trace

_C_FUNCTION = ("<built-in", "<method", "<slot wrapper")
_EDGES = ("start_ns", "end_ns")
_USUAL_NS = 2_000  # at most, of the pauses of functions where recording costs least
_SLOW_NS = 5_000  # at least, of nearly all pauses of one kind to be told from what the function does itself
_LONG_NS = 200_000  # from here on a pause may be work
_BULK = 0.1  # quantile: what nearly all exceed
_LEAST = 16  # pauses of one kind
_FUNCTIONS = 3  # that have slow pauses: one alone may well compute in them


class _Pauses(NamedTuple):
    """thread; begin and end in ns; kind: the same for pauses of one function between events of the same kinds; function: code
    of its name."""

    thread: Ints
    begin: Ints
    end: Ints
    kind: Ints
    function: Ints


def tracer_time(trace: Trace) -> Segments:
    """When recording took the time of each thread, groups being rows of the trace's threads."""
    nothing = union(*np.zeros((3, 0), np.int64))
    is_c = np.array([text.startswith(_C_FUNCTION) for text in trace.strings.values], np.bool_)
    parts = [_pauses(trace, thread, is_c) for thread in distinct_values(trace.frames["thread"]).tolist()]
    if not parts:
        return nothing
    pauses = _Pauses(*map(np.concatenate, zip(*parts, strict=True)))
    used, code = np.unique(pauses.kind, return_inverse=True)
    code, length = code.ravel(), pauses.end - pauses.begin
    bulk, middle = quantiles(code, length, len(used), _BULK, 0.5)
    often = np.bincount(code, minlength=len(used)) >= _LEAST
    usual = float(middle[often].min(initial=np.inf))
    slow = (often & (bulk >= _SLOW_NS))[code] & (length < _LONG_NS)
    if usual > _USUAL_NS or len(distinct_values(pauses.function[slow])) < _FUNCTIONS:
        return nothing
    return union(pauses.thread[slow], pauses.begin[slow] + round(usual), pauses.end[slow])


def _pauses(trace: Trace, thread: int, is_c: Bools) -> _Pauses:
    """The times between one event of a thread's Python functions and the next in which nothing else is seen."""
    frames = trace.frames
    rows = np.flatnonzero(frames["thread"] == thread)
    begin, end, name = (frames[column][rows].astype(np.int64) for column in ("start_ns", "end_ns", "name"))
    order = np.lexsort((-end, begin))
    begin, end, name = begin[order], end[order], name[order]
    aside = crossing(begin, end, np.zeros(len(begin), np.bool_))
    begin, end, name = begin[~aside], end[~aside], name[~aside]
    time = np.concatenate([begin, end])
    event = np.concatenate([is_c[name], is_c[name] + 2])  # call or return, of a function in Python or in C
    order = np.argsort(time, kind="stable")
    time, event = time[order], event[order]
    first, last = time[:-1], time[1:]
    inside = nest(begin, end).innermost(first)
    function = name[inside] if len(name) else inside
    moments = [table[which][table["thread"] == thread] for table in (trace.ranges, trace.launches) for which in _EDGES]
    others = np.sort(np.concatenate(moments))
    alone = np.searchsorted(others, last) == np.searchsorted(others, first, "right")
    keep = alone & (inside >= 0) & (last > first) & ~is_c[function]
    kind = (function * 4 + event[:-1]) * 4 + event[1:]
    return _Pauses(np.full(int(keep.sum()), thread), *(column[keep] for column in (first, last, kind, function)))
