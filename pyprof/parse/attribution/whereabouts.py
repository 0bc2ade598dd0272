"""The ranges, Python frames and API calls of a capture -> where its host was while a device had nothing to do, as a tree.

Looked at are times of at least LEAST_NS between activities of a device (on a CPU: between rows of ops), of many the longest,
and the thread that launches the activity after them; where nothing of that thread is known, the main thread of its process. A
place's time is its self time: in it, and in no place inside of it. All functions of the recorder are one place, RECORDING.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.intervals import summed
from pyprof.columns.nesting import crossing, nest
from pyprof.columns.sorting import rows_of_spans
from pyprof.columns.types import Array, Bools, Ints
from pyprof.model.host import PLACE_KINDS, RECORDING, Whereabouts, without_number
from pyprof.model.markers import Kind
from pyprof.model.trace import Table as TraceTable
from pyprof.model.trace import Trace
from pyprof.parse.attribution.launches import Launched, take

LEAST_NS = 5_000
RECORDER = re.compile(
    r"(?:^|[/\\])(?:torch[/\\]profiler[/\\]\w+\.py\(\d+\): |pyprof[/\\]recording[/\\]bootstrap\.py\(\d+\): begun$)"
)
"""Names of functions that begin, step and end a recording, and call none of the program's."""
_MOST = 4096  # times
_MOST_AROUND = 8  # ranges around the first and the last activity
_LEAST_SHARE = 0.005  # of all these times: a place with less counts as the place around it
_NUMBER = re.compile(r"(?<![A-Za-z0-9.])[0-9]+(?![A-Za-z0-9.])")
# As Python shows what is written in C: `<built-in method tensor of type object at 0x7>`, `<method 'append' of 'list' objects>`.
_VERSION = re.compile(r"_v\d+$")  # of an API call: cudaFree_v3020
_BUILT_IN = re.compile(
    r"<(?:built-in (?:method|function)|method|slot wrapper|method-wrapper) '?([\w.]+)'?"
    r"(?: of '?([\w.]+)'?(?: objects?)?(?: at 0x[0-9a-fA-F]+)?)?>"
)
_RANGE, _FUNCTION, _OP, _CALL = range(len(PLACE_KINDS))
_KINDS = {Kind.USER: _RANGE, Kind.LAYER: _RANGE, Kind.OP: _OP, Kind.DISPATCH: _OP, Kind.BACKWARD: _OP, Kind.OPTIMIZER: _OP}


class _Times(NamedTuple):
    """Times without work for a device, in order; thread: row of the thread to look at, -1 unknown."""

    begin_ns: Ints
    end_ns: Ints
    thread: Ints

    def chosen(self, which: Bools | Ints) -> _Times:
        return _Times(*(column[which] for column in self))


class _Intervals(NamedTuple):
    """Ranges, frames and calls of a host, in no order; kind: place in PLACE_KINDS; name: place in a pool of names."""

    begin_ns: Ints
    end_ns: Ints
    thread: Ints
    kind: Ints
    name: Ints


def whereabouts(trace: Trace, launch: Array) -> Whereabouts | None:
    """The host's places in the long times between activities; None without any. launch: see `launch_of_activity`."""
    activities = trace.activities
    start, end = activities["start_ns"].astype(np.int64), activities["end_ns"].astype(np.int64)
    device = distinct_rows(activities["process"], activities["device"]).inverse
    return _of_units(trace, device, start, end, take(trace.launches["thread"], launch).astype(np.int64))


def whereabouts_on_cpu(trace: Trace, rows: Launched) -> Whereabouts | None:
    """The host's places in the long times between rows of a capture without a device; None without any."""
    thread = rows.launch_thread
    return _of_units(trace, trace.threads["process"][thread].astype(np.int64), rows.when, rows.when + rows.dur_ns, thread)


def _of_units(trace: Trace, unit: Ints, start: Ints, end: Ints, ran_by: Ints) -> Whereabouts | None:
    """The places of all devices or processes. unit: the device of each activity, or the process of each row; ran_by: the thread
    that launched it, or ran it."""
    process = np.append(trace.threads["process"].astype(np.int64), -1)
    units = [unit == one for one in distinct_values(unit).tolist()]
    between = [_between(trace, start[mine], end[mine], ran_by[mine]) for mine in units]
    times = [one for some in between for one in some if len(one.begin_ns)]
    length = np.sort(np.concatenate([one.end_ns - one.begin_ns for one in times]))[::-1] if times else np.empty(0, np.int64)
    if not len(length):
        return None
    least = int(length[min(len(length), _MOST) - 1])
    times = [one.chosen(one.end_ns - one.begin_ns >= least) for one in times]
    names: dict[str, int] = {}
    did = _intervals(trace, names, times)
    pids, tree, rows, at = trace.processes["pid"], _Tree(names.get(RECORDING, -1)), list[Ints](), 0
    found = Whereabouts(names=list(names))
    for one in times:
        spans = distinct_values(one.thread).tolist()
        for thread in spans:
            mine = one.chosen(one.thread == thread)
            place = _places(did, mine, thread, tree)
            if (main := _main(trace, thread)) not in (thread, -1):
                # The thread that launched next may only have waited until the main thread had something for it.
                other = _places(did, mine, main, tree)
                covered = [summed(part[0], part[2], len(mine.begin_ns)) for part in (place, other)]
                better = covered[1] > 2 * covered[0]
                place = np.concatenate([place[:, ~better[place[0]]], other[:, better[other[0]]]], axis=1)
            rows.append(place + np.array([[at], [0], [0], [0]]))
            found.pid += [int(pids[process[thread]])] * len(mine.begin_ns)
            found.begin_ns += mine.begin_ns.tolist()
            found.end_ns += mine.end_ns.tolist()
            at += len(mine.begin_ns)
    time, node, ns, number = np.concatenate(rows, axis=1)
    return _pruned(found, tree, time, node, ns, number)


def _between(trace: Trace, start: Ints, end: Ints, thread: Ints) -> list[_Times]:
    """The long times in which none of these runs. A window may also begin and end with a range: so the times from the begin of
    each range around the first, and to the end of each around the last."""
    order = np.argsort(start, kind="stable")
    start, thread = start[order], thread[order]
    until = np.maximum.accumulate(np.maximum(end[order], start))
    long = np.flatnonzero(start[1:] - until[:-1] >= LEAST_NS)
    found, ranges = [_Times(until[long], start[long + 1], thread[long + 1])], trace.ranges
    for at, edge in ((0, int(start[0])), (-1, int(until[-1]))):
        around = (ranges["thread"] == thread[at]) & (ranges["open"] == 0)
        around &= (ranges["start_ns"] <= edge) & (ranges["end_ns"] >= edge)
        others = distinct_values(ranges["end_ns" if at else "start_ns"][around].astype(np.int64))[:_MOST_AROUND]
        values = ((*sorted((edge, other)), int(thread[at])) for other in others.tolist())
        found += [_Times(*(np.array([value]) for value in each)) for each in values]
    found.append(_cut(found[0], ranges, np.append(thread, -1)))
    return [one.chosen((one.end_ns - one.begin_ns >= LEAST_NS) & (one.thread >= 0)) for one in found]


def _cut(times: _Times, ranges: TraceTable, threads: Ints) -> _Times:
    """Cut the first and the last time of each of these threads to its first and last range: a window of steps begins and ends
    there."""
    wanted = np.zeros(int(threads.max()) + 2, np.bool_)
    wanted[threads] = True
    wanted[-1] = False  # of no thread
    mine = wanted.take(ranges["thread"], mode="clip") & (ranges["thread"] >= 0) & (ranges["open"] == 0)
    parts = [np.empty((3, 0), np.int64)]
    for name, first in (("start_ns", True), ("end_ns", False)):
        edge = ranges[name][mine]  # a copy
        if (rest := len(edge) - _MOST_AROUND) > 0:
            edge.partition(_MOST_AROUND if first else rest)
            edge = edge[:_MOST_AROUND] if first else edge[rest:]
        edge = np.sort(edge.astype(np.int64))
        at = np.searchsorted(times.begin_ns, edge, "right") - 1
        inside = (at >= 0) & (edge < times.end_ns[at]) if len(times.begin_ns) else np.zeros(len(edge), np.bool_)
        at, edge = at[inside], edge[inside]
        begin, end = (edge, times.end_ns[at]) if first else (times.begin_ns[at], edge)
        parts.append(np.stack([begin, end, times.thread[at]]))
    return _Times(*np.unique(np.concatenate(parts, axis=1), axis=1))


def _main(trace: Trace, thread: int) -> int:
    """The main thread of a thread's process, -1 if it is not known."""
    of_process = trace.threads["process"] == trace.threads["process"][thread]
    found = np.flatnonzero(of_process & (trace.threads["main"] == 1))
    return int(found[0]) if len(found) else -1


def _intervals(trace: Trace, names: dict[str, int], times: list[_Times]) -> _Intervals:
    """All ranges, frames and calls that lie in one of these times, or around it; adds their names."""
    ranges, frames, launches = trace.ranges, trace.frames, trace.launches
    begins, ends = (np.sort(np.concatenate([one[at] for one in times])) for at in (0, 1))

    def meets(table: TraceTable) -> Bools:
        """Whether more of the times have begun before it ends than have ended when it begins."""
        begun = np.searchsorted(begins, table["end_ns"])
        begun -= np.searchsorted(ends, table["start_ns"], "right")
        return begun > 0

    kinds = np.array([*(_KINDS.get(marker.kind, -1) for marker in trace.markers), -1], np.int64)
    kind = np.where(ranges["open"] == 0, kinds[ranges["label"]], -1)
    rows = np.flatnonzero((kind >= 0) & meets(ranges))

    def of_label(code: int) -> str:
        marker = trace.markers[code]
        if marker.kind != Kind.USER:
            return marker.name
        name = without_number(marker.name)
        return name if name.isdecimal() else _NUMBER.sub("*", name)

    def of_text(code: int) -> str:
        text = trace.strings[code]
        if RECORDER.search(text):
            return RECORDING
        if (built_in := _BUILT_IN.fullmatch(text)) is None:
            return text
        method, owner = built_in.groups()
        return method if re.match("type$|module$|pybind11_", owner or "module") else f"{owner}.{method}"

    def of_call(code: int) -> str:
        return _VERSION.sub("", trace.strings[code])

    parts = [
        _Intervals(
            ranges["start_ns"][rows], ranges["end_ns"][rows], ranges["thread"][rows], kind[rows],
            _named(ranges["label"][rows], of_label, names),
        )
    ]  # fmt: skip
    for table, code, text in ((frames, _FUNCTION, of_text), (launches, _CALL, of_call)):
        rows = np.flatnonzero(meets(table))
        begin, end, thread = (table[name][rows] for name in ("start_ns", "end_ns", "thread"))
        name = _named(table["name"][rows], text, names)
        parts.append(_Intervals(begin, end, thread, np.full(len(rows), code), name))
    return _Intervals(*(np.concatenate(columns).astype(np.int64) for columns in zip(*parts, strict=True)))


def _named(codes: Array, text: Callable[[int], str], names: dict[str, int]) -> Ints:
    used, inverse = np.unique(codes, return_inverse=True)
    return np.array([names.setdefault(text(code), len(names)) for code in used.tolist()], np.int64)[inverse.ravel()]


class _Tree:
    """Places, each in another one. parent: -1 for those in none; recording: the name of a place that holds no others."""

    def __init__(self, recording: int) -> None:
        self.recording = recording
        self.parent, self.kind, self.name = list[int](), list[int](), list[int]()
        self._codes: dict[tuple[int, int, int], int] = {}

    def codes(self, parent: Ints, kind: Ints, name: Ints) -> Ints:
        """The number of each of these places, which are added if they are new."""
        (parents, kinds, names), _, inverse = distinct_rows(parent, kind, name)
        found = []
        for key in zip(parents.tolist(), kinds.tolist(), names.tolist(), strict=True):
            if (code := self._codes.setdefault(key, len(self.parent))) == len(self.parent):
                for column, value in zip((self.parent, self.kind, self.name), key, strict=True):
                    column.append(value)
            found.append(code)
        return np.array(found, np.int64)[inverse]


def _places(did: _Intervals, times: _Times, thread: int, tree: _Tree) -> Ints:
    """(time, place, its self time in ns, how often it was open in that time), as four rows."""
    rows = np.flatnonzero(did.thread == thread)
    first = np.searchsorted(times.end_ns, did.begin_ns[rows], "right")
    last = np.searchsorted(times.begin_ns, did.end_ns[rows], "left")
    rows, first, last = rows[last > first], first[last > first], last[last > first]
    begin, end = did.begin_ns[rows], did.end_ns[rows]
    order = np.lexsort((did.kind[rows], -end, begin))
    aside = crossing(begin[order], end[order], np.zeros(len(order), np.int8))
    order = order[~aside]
    rows, first, last, begin, end = rows[order], first[order], last[order], begin[order], end[order]
    forest, node = nest(begin, end), np.full(len(rows), -1, np.int64)
    whole = np.append(did.name[rows] == tree.recording, False)  # with all that is inside, whatever it is
    for level in forest.by_depth:
        around = forest.parent[level]
        outer = np.where(around >= 0, node[around], -1)
        whole[level] |= whole[around]
        node[level] = np.where(whole[around], outer, -1)
        level, outer = level[~whole[around]], outer[~whole[around]]
        node[level] = tree.codes(outer, did.kind[rows[level]], did.name[rows[level]])
    which, time = rows_of_spans(first, last)
    inside = np.minimum(end[which], times.end_ns[time]) - np.maximum(begin[which], times.begin_ns[time])
    # A range lies in every time in which a range inside of it lies: both are found by (range, time), which ascends.
    key, outer = which * (len(times.begin_ns) + 1) + time, forest.parent[which]
    has = outer >= 0
    at = np.searchsorted(key, outer[has] * (len(times.begin_ns) + 1) + time[has])
    own = inside - np.bincount(at, inside[has], len(inside)).astype(np.int64)
    return np.stack([time, node[which], own, (~whole[outer]).astype(np.int64)])


def _pruned(found: Whereabouts, tree: _Tree, time: Ints, node: Ints, ns: Ints, number: Ints) -> Whereabouts:
    """The tree without places that hardly count, and the sums of what is left."""
    whole = [0] * len(tree.parent)
    for code, spent in enumerate(summed(node, ns, len(tree.parent)).tolist()):
        whole[code] = spent
    for code in range(len(whole) - 1, -1, -1):  # a place comes after the one around it
        if tree.parent[code] >= 0:
            whole[tree.parent[code]] += whole[code]
    least = _LEAST_SHARE * sum(until - since for since, until in zip(found.begin_ns, found.end_ns, strict=True))
    target: list[int] = []
    for code, spent in enumerate(whole):
        around = target[tree.parent[code]] if tree.parent[code] >= 0 else -1
        if spent < least:
            target.append(around)
            continue
        target.append(len(found.node_name))
        found.node_parent.append(around)
        found.node_kind.append(tree.kind[code])
        found.node_name.append(tree.name[code])
    to = np.array([*target, -1], np.int64)
    kept = np.array([whole[code] >= least for code in range(len(whole))] + [False], np.bool_)
    known = to[node] >= 0
    pairs, _, inverse = distinct_rows(time[known], to[node][known])
    found.time, found.node = pairs[0].tolist(), pairs[1].tolist()
    found.ns = summed(inverse, ns[known], pairs.shape[1]).tolist()
    found.number = summed(inverse, np.where(kept[node], number, 0)[known], pairs.shape[1]).tolist()
    used = sorted(set(found.node_name))
    at = {code: place for place, code in enumerate(used)}
    found.names, found.node_name = [found.names[code] for code in used], [at[code] for code in found.node_name]
    return found
