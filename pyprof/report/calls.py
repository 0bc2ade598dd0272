"""The API calls of a capture -> columns of who called when, whether the host waited for the device in it, and in which op.

A call waits by its name (synchronisation, a plain copy, freeing memory), or because it is a copy that had run when it
returned: cudaMemcpyAsync to or from memory that is not pinned does not return before.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pyprof.arrays.columns import among, distinct_rows, distinct_values
from pyprof.arrays.intervals import count_before, latest, order_of
from pyprof.arrays.joining import copied, mapped, rows_where
from pyprof.arrays.spool import computed, joined, pieces, taken
from pyprof.arrays.types import Bools, Integers, Ints
from pyprof.opcall import OpRules
from pyprof.parse.attribution.attribute import ops_around
from pyprof.parse.attribution.launches import launch_of_activity
from pyprof.parse.attribution.phases import texts_where
from pyprof.parse.attribution.ranges import CaptureFacts
from pyprof.parse.attribution.stacks import Placed, Stacks
from pyprof.parse.sources.trace import ActivityKind, Strings, Trace

_LAUNCHES = re.compile(r"Launch|Memcpy|Memset")
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
    name: Integers
    waits: Bools
    thread: Integers
    strings: Strings

    def of_names(self, named: Callable[[str], object]) -> Bools:
        """Which calls have a name for which `named` gives something."""
        return mapped(texts_where(self.strings, self.name, lambda text: named(text) is not None), self.name)

    def by_launching_threads(self) -> Bools:
        """Which calls were made by threads that launch work: others, as those that pin memory, hold nobody up."""
        launches, thread = self.of_names(_LAUNCHES.search), self.thread
        wanted = distinct_values(taken(thread, rows_where(len(thread), lambda part: launches[part])))
        return computed(len(thread), np.bool_, lambda part: among(thread[part], wanted))


def calls_of(trace: Trace) -> Calls:
    """All API calls of a capture."""
    launches, activities = trace.launches, trace.activities
    thread, name = launches["thread"], launches["name"]
    pid = trace.processes["pid"][trace.threads["process"]]
    waiting = texts_where(trace.strings, name, lambda text: _WAITS.match(text) is not None)
    waits = copied(mapped(waiting, name))
    launch, kind = launch_of_activity(trace), activities["kind"]
    for part in pieces(len(kind)):
        copies = np.flatnonzero((kind[part] == ActivityKind.MEMCPY) & (launch[part] >= 0)) + part.start
        done = launches["end_ns"][launch[copies]] >= activities["end_ns"][copies]
        waits[launch[copies[done]]] = True
    times = launches["start_ns"], launches["end_ns"]
    return Calls(mapped(pid, thread), mapped(trace.threads["tid"], thread), *times, name, waits, thread, trace.strings)


def waiting_call(calls: Calls, pid: Ints, tid: Ints, dry: Ints, launch: Ints) -> Ints:
    """The row of the call in which the launching thread waited for the device when the line ran dry, -1 none.

    Else that in which another thread of the process waited, if the launching thread made no call meanwhile and launched after
    it: autograd's thread has nothing to do before the main thread returns from .item().
    """
    pids, tids = joined([calls.pid, pid]), joined([calls.tid, tid])
    thread, launching = np.split(distinct_rows(pids, tids).inverse, [len(calls.pid)])
    found = _open_wait(calls, thread, launching, dry)
    process, launching_process = np.split(distinct_rows(pids).inverse, [len(calls.pid)])
    other = _open_wait(calls, process, launching_process, dry)
    order = order_of(thread, calls.start_ns)
    by, start = (thread, calls.start_ns) if order is None else (taken(thread, order), taken(calls.start_ns, order))
    until = count_before(by, start, launching, calls.end_ns[other], inclusive=True)
    meanwhile = until - count_before(by, start, launching, calls.start_ns[other], inclusive=False)
    quiet = (other >= 0) & (meanwhile == 0)
    quiet[quiet] &= calls.end_ns[other[quiet]] <= launch[quiet]
    return np.where(found >= 0, found, np.where(quiet, other, -1))


def _open_wait(calls: Calls, group: Ints, wanted: Ints, dry: Ints) -> Ints:
    """Of the waiting calls of the wanted group that are open at each time, the one that ends last; -1 none."""
    rows = rows_where(len(calls.waits), lambda part: calls.waits[part])
    rows = rows[np.lexsort((calls.end_ns[rows], calls.start_ns[rows], group[rows]))]
    if not len(rows):
        return np.full(len(dry), -1, np.int64)
    holder = rows[latest(group[rows], calls.end_ns[rows])]
    at = count_before(group[rows], calls.start_ns[rows], wanted, dry, inclusive=True) - 1
    found = holder[np.maximum(at, 0)]
    return np.where((at >= 0) & (group[found] == wanted) & (calls.end_ns[found] >= dry), found, -1)


def origins(trace: Trace, rules: OpRules, calls: Calls, rows: Ints) -> list[tuple[str, str]]:
    """For each of these calls the op that made it, and its source line or else its layers; `-` where unknown."""
    capture = CaptureFacts(trace, rules)
    around = ops_around(capture)
    thread, when = calls.thread[rows], calls.start_ns[rows]
    at = around.nested.innermost(thread, when)
    stacks = Stacks(capture.trace, capture.aside)
    chains = stacks.chains(around.nested, around.seq, at)
    codes = stacks.codes(Placed(at, np.zeros(len(rows), np.bool_), thread, when), chains)
    found = []
    for root, code in zip(around.root(at).tolist(), codes.tolist(), strict=True):
        marker = trace.markers[around.label[root]] if root >= 0 else None
        call = None if marker is None else marker.call
        lines, layers = stacks.stacks[code].trace, ":".join(stacks.stacks[code].layer)
        name = "-" if marker is None else marker.name if call is None else call.op
        found.append((name, lines[-1] if lines else layers or "-"))
    return found
