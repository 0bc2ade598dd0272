"""The API calls of a capture -> columns of who called when, whether the host waited for the device in it, and in which op.

A call waits by its name (synchronisation, a plain copy, freeing memory), or because it is a copy that had run when it
returned: cudaMemcpyAsync to or from memory that is not pinned does not return before.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from pyprof.arrays.types import Bools, Ints
from pyprof.opcall import OpRules
from pyprof.parse.attribution.attribute import ops_around
from pyprof.parse.attribution.launches import launch_of_activity
from pyprof.parse.attribution.ranges import CaptureFacts
from pyprof.parse.attribution.stacks import Placed, Stacks
from pyprof.parse.sources.trace import ActivityKind, Strings, Trace

_WAITS = re.compile(
    r"(cuda|cu|hip)(Device|Ctx|Stream|Event|Thread)Synchronize(_|$)"
    r"|(cuda|cu|hip)Memcpy(?!.*(Async|Batch))"
    r"|(cuda|hip)Free(_|$)|cuMemFree(_v2)?(_|$)"
)


class Calls(NamedTuple):
    """One row an API call.

    pid, tid: as records have them; name: code into strings; waits: the host waited in it; thread: row of the trace's threads.
    """

    pid: Ints
    tid: Ints
    start_ns: Ints
    end_ns: Ints
    name: Ints
    waits: Bools
    thread: Ints
    strings: Strings


def calls_of(trace: Trace) -> Calls:
    """All API calls of a capture."""
    launches, activities = trace.launches, trace.activities
    thread = launches["thread"].astype(np.int64)
    process = trace.threads["process"][thread].astype(np.int64)
    names, code = np.unique(launches["name"], return_inverse=True)
    waits = np.array([_WAITS.match(trace.strings[name]) is not None for name in names.tolist()], np.bool_)[code.ravel()]
    launch = launch_of_activity(trace)
    copies = np.flatnonzero((activities["kind"] == ActivityKind.MEMCPY) & (launch >= 0))
    done = launches["end_ns"][launch[copies]] >= activities["end_ns"][copies]
    waits[launch[copies[done]]] = True
    return Calls(
        trace.processes["pid"][process],
        trace.threads["tid"][thread],
        launches["start_ns"],
        launches["end_ns"],
        launches["name"].astype(np.int64),
        waits,
        thread,
        trace.strings,
    )


def origins(trace: Trace, rules: OpRules, calls: Calls, rows: Ints) -> list[tuple[str, str]]:
    """For each of these calls the op that made it, and its source line or else its layers; `-` where unknown."""
    capture = CaptureFacts(trace, rules)
    around = ops_around(capture)
    thread, when = calls.thread[rows], calls.start_ns[rows]
    at = around.nested.innermost(thread, when)
    stacks = Stacks(capture.trace, capture.aside)
    codes = stacks.codes(Placed(at, np.zeros(len(rows), np.bool_), thread, when), around.nested, around.seq)
    found = []
    for root, code in zip(around.root(at).tolist(), codes.tolist(), strict=True):
        marker = trace.markers[around.label[root]] if root >= 0 else None
        call = None if marker is None else marker.call
        lines, layers = stacks.stacks[code].trace, ":".join(stacks.stacks[code].layer)
        name = "-" if marker is None else marker.name if call is None else call.op
        found.append((name, lines[-1] if lines else layers or "-"))
    return found
