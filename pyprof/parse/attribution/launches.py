"""GPU activities -> the API call that launched each, and where and when to look for its ranges.

A kernel of a CUDA graph is launched with the graph but belongs to the ranges under which its node was recorded; each replay of
the graph is an execution of its own. No ranges and no ops here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.arrays.distinct import distinct_rows
from pyprof.parse.sources.trace import Table, Trace

__all__ = ["Recorded", "launch_of_activity", "launched", "ranks", "recorded_in_graph", "replays", "take"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def take(values: npt.NDArray[np.generic], position: npt.NDArray[np.integer]) -> Ints:
    """values[position] as int64, whatever stands where position is -1; all -1 where there are no values."""
    if not len(values):
        return np.full(len(position), -1, np.int64)
    taken: Ints = values[np.maximum(position, 0)].astype(np.int64)
    return taken


def launch_of_activity(trace: Trace) -> Ints:
    """The row of the launch with an activity's (process, correlation id), -1 none.

    A driver call within a runtime call is part of it: the outer counts. Where a process used an id again, the call that began
    last before the activity; where all began after it (clocks of host and device differ a little), the first.
    """
    activities, launches = trace.activities, trace.launches
    # Most calls of some captures start nothing: they leave before anything is made of them.
    usable = np.flatnonzero((launches["corr"] >= 0) & (launches["thread"] >= 0) & np.isin(launches["corr"], activities["corr"]))
    code = _pair_coder(activities["corr"])
    known = code(trace.threads["process"][launches["thread"][usable]], launches["corr"][usable])
    order = _outermost(known, trace.threads["tid"], launches, usable)
    rows, known = usable[order], known[order]
    del usable, order
    wanted = code(activities["process"], activities["corr"])
    first = _first_places(known, wanted)
    found = activities["corr"] >= 0
    found &= first < len(known)
    found[found] = known[first[found]] == wanted[found]
    if (known[1:] == known[:-1]).any():  # rare: an id used again
        last = np.searchsorted(known, wanted, "right")
        starts = launches["start_ns"][rows]
        for activity in np.flatnonzero(found & (last - first > 1)).tolist():
            theirs = starts[first[activity] : last[activity]]  # no copy: there can be as many with the id as activities
            begun = int(np.searchsorted(theirs, activities["start_ns"][activity], "right"))
            first[activity] += max(begun - 1, 0)
    del wanted, known
    result = np.full(len(first), -1, np.int64)
    result[found] = rows[first[found]]
    return result


def _outermost(code: Ints, tid_of_thread: Ints, launches: Table, rows: Ints) -> Ints:
    """Of these rows of launches, as places in `code`, those that lie in no other call with the same code on the same thread,
    ordered by (code, start, thread)."""
    order = np.argsort(code)  # not a stable one, which takes three times as long
    if not (code[order][1:] == code[order][:-1]).any():
        return order
    tid, start, end = tid_of_thread[launches["thread"][rows]], launches["start_ns"][rows], launches["end_ns"][rows]
    order = np.lexsort((-end, start, tid, code))
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(code[order]) != 0) | (np.diff(tid[order]) != 0)
    ends, rank = np.unique(end[order], return_inverse=True)
    latest = np.maximum.accumulate(np.cumsum(new) * len(ends) + rank.ravel())  # the latest end so far of one code and thread
    before = np.concatenate([[0], latest[:-1]]) % len(ends)
    order = order[new | (start[order] >= ends[before])]
    by_begin: Ints = order[np.lexsort((tid[order], start[order], code[order]))]
    return by_begin


class Recorded(NamedTuple):
    """Where the ranges of each activity are: thread (-1 nowhere), time, and whether it ran as a node of a CUDA graph."""

    thread: npt.NDArray[Any]
    when: Ints
    in_graph: Bools


def recorded_in_graph(trace: Trace, when: Ints, thread: npt.NDArray[Any]) -> Recorded:
    """Kernels of a CUDA graph take thread and time at which their node was recorded, where the capture tells it."""
    activities, nodes = trace.activities, trace.graph_nodes
    in_graph = activities["graph_node"] >= 0
    if not in_graph.any() or not len(nodes["node"]):
        return Recorded(thread, when, in_graph)
    process = take(trace.threads["process"], nodes["thread"])
    tid = take(trace.threads["tid"], nodes["thread"])
    row_of: dict[tuple[int, int], int] = {}
    for row in np.lexsort((nodes["origin"], tid, nodes["start_ns"])).tolist():
        row_of.setdefault((int(process[row]), int(nodes["node"][row])), row)
    origin = nodes["origin"].tolist()
    rows = np.flatnonzero(in_graph)
    distinct, _, inverse = distinct_rows(activities["process"][rows], activities["graph_node"][rows])
    found = np.array([_first_recording(row_of, origin, (p, n)) for p, n in distinct.T.tolist()], np.int64)[inverse]
    rows, found = rows[found >= 0], found[found >= 0]
    thread, when = thread.copy(), when.copy()
    thread[rows], when[rows] = nodes["thread"][found], nodes["start_ns"][found]
    return Recorded(thread, when, in_graph)


def _first_recording(row_of: dict[tuple[int, int], int], origin: list[int], key: tuple[int, int]) -> int:
    """Nodes are cloned when a graph is instantiated, those of child graphs more than once: back to the node recorded first."""
    row, seen = row_of.get(key, -1), set[int]()
    while row >= 0 and row not in seen:
        seen.add(row)
        earlier = row_of.get((key[0], origin[row]), -1)
        if earlier < 0:
            break
        row = earlier
    return row


def replays(trace: Trace, launch: Ints, in_graph: Bools) -> tuple[Ints, Ints]:
    """Which execution of its graph each activity is part of, and its begin: (replay, begin in ns); -1 outside of graphs.

    One launch is one replay; a node that one launch runs several times (a loop's body) runs in as many. Without a launch in the
    capture the correlation id stands for it.
    """
    activities = trace.activities
    rows = np.flatnonzero(in_graph)
    if not len(rows):
        none = np.broadcast_to(np.int64(-1), len(launch))
        return none, none
    replay, begin = np.full(len(launch), -1, np.int64), np.full(len(launch), -1, np.int64)
    start, thread = activities["start_ns"][rows], take(trace.launches["thread"], launch[rows])
    has = launch[rows] >= 0
    execution = distinct_rows(  # by value, so that the numbers do not depend on the order of rows
        np.where(has, take(trace.launches["start_ns"], launch[rows]), -1),
        take(trace.processes["pid"], activities["process"][rows]),
        np.where(has, take(trace.threads["tid"], thread), -1),
        activities["corr"][rows],
    ).inverse
    node = activities["graph_node"][rows]
    used, code = np.unique(activities["name"][rows], return_inverse=True)
    name = ranks([trace.strings[text] for text in used.tolist()])[code.ravel()]
    same = [activities[c][rows] for c in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "stream", "device")]
    order = np.lexsort((*same, name, activities["end_ns"][rows], start, node, execution))
    new = np.ones(len(rows), np.bool_)
    new[1:] = (np.diff(execution[order]) != 0) | (np.diff(node[order]) != 0)
    first = np.flatnonzero(new)
    times = np.empty(len(rows), np.int64)
    times[order] = np.arange(len(rows)) - np.repeat(first, np.diff(np.append(first, len(rows))))
    distinct, _, inverse = distinct_rows(execution, times)
    earliest = np.full(distinct.shape[1], np.iinfo(np.int64).max)
    np.minimum.at(earliest, inverse, start)
    replay[rows], begin[rows] = inverse, earliest[inverse]
    return replay, begin


def ranks(texts: list[str]) -> Ints:
    """A number for each text that depends on the text alone, in their order."""
    rank_of = {text: rank for rank, text in enumerate(sorted(set(texts)))}
    return np.array([rank_of[text] for text in texts], np.int64)


def launched(trace: Trace) -> dict[str, Any]:
    """What is known of each activity without any range.

    launched: whether its launch is in the capture; launch_ns, launch_dur_ns, launch_thread: begin, time and thread of that;
    range_thread, when: where its ranges are; replay, replay_ns: see `replays`; in_graph; dur_ns: its own time.
    """
    activities = trace.activities
    launch = launch_of_activity(trace)
    has = launch >= 0
    launch_ns = np.where(has, take(trace.launches["start_ns"], launch), -1)
    thread = np.where(has, take(trace.launches["thread"], launch), -1).astype(np.int32)
    recorded, when, in_graph = recorded_in_graph(trace, launch_ns, thread)
    replay, replay_ns = replays(trace, launch, in_graph)
    return {
        "launched": has,
        "launch_ns": launch_ns,
        "launch_dur_ns": np.where(has, take(trace.launches["end_ns"], launch) - launch_ns, -1),
        "launch_thread": thread,
        "when": when,
        "range_thread": recorded,
        "in_graph": in_graph,
        "replay": replay,
        "replay_ns": replay_ns,
        "dur_ns": activities["end_ns"] - activities["start_ns"],
    }


def _first_places(known: Ints, wanted: Ints) -> Ints:
    """np.searchsorted(known, wanted) for what is there; for the rest some place that holds another number, or none."""
    low, high = (int(known[0]), int(known[-1])) if len(known) else (0, -1)
    if high - low >= 8 * len(known):
        return np.searchsorted(known, wanted)
    table = np.full(high - low + 2, len(known), np.int32)
    table[known[::-1] - low] = np.arange(len(known) - 1, -1, -1, dtype=np.int32)
    inside = (wanted >= low) & (wanted <= high)
    return table[np.where(inside, wanted - low, high - low + 1)].astype(np.int64)


def _pair_coder(corr: npt.NDArray[Any]) -> Callable[[npt.NDArray[Any], npt.NDArray[Any]], Ints]:
    """What makes one number of a process and one of these correlation ids, ordered as (process, id)."""
    low, high = int(corr.min(initial=0)), int(corr.max(initial=0))
    if high - low >= 1 << 40:
        distinct = np.unique(corr)
        return lambda process, ids: (process.astype(np.int64) + 1) * len(distinct) + np.searchsorted(distinct, ids)

    def code(process: npt.NDArray[Any], ids: npt.NDArray[Any]) -> Ints:
        found = process.astype(np.int64)
        found += 1
        found *= high - low + 1
        found += ids
        found -= low
        return found

    return code
