"""Rule 1: GPU activities -> the API call that launched each, and where and when to look for its ranges; its device.

A kernel of a CUDA graph is launched with the graph but belongs to the ranges in which its node was recorded; each replay of the
graph is an execution of its own. Knows no ranges and no ops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values, map_distinct, row_type
from pyprof.columns.nesting import any_order
from pyprof.columns.sorting import places_in_runs
from pyprof.columns.types import Array, Bools, Integers, Ints
from pyprof.model.records import GPU_NUMBERS, GpuInfo
from pyprof.model.trace import Table, Trace
from pyprof.tables.units import human

_LEAST_SKEW_NS = 2_000  # what clocks differ by anyway
_LEAST_SHARE_SKEWED = 0.1  # of a device's activities
_MOST_OF_MEDIAN = 4


def take(values: Array, index: Integers) -> Ints:
    """values[index] as int64; -1 for index -1."""
    if not len(values):
        return np.full(len(index), -1, np.int64)
    taken: Ints = values.take(index).astype(np.int64, copy=False)
    taken[index < 0] = -1
    return taken


def gather(table: Table, rows: Integers, *names: str) -> list[Array]:
    """Some columns of some rows of a table."""
    return [table[name][rows] for name in names]


def ranks(texts: list[str]) -> Ints:
    """Rank of each text among the distinct ones, in alphabetical order."""
    return np.unique(np.array(texts, object), return_inverse=True)[1].ravel()


@dataclass(eq=False, repr=False)
class Launched:
    """Rule 1: facts about each activity (without a GPU each op) that need no ranges.

    launched: whether its launch is in the capture; launch_ns, launch_dur_ns, launch_thread: begin, duration and thread of the
    launch (-1 unknown); range_thread, when: where to look for its ranges; replay, replay_ns: see `_replays`; in_graph: whether
    it ran as a node of a CUDA graph; bare_node: as a node whose recording is not in the capture; dur_ns: its own time.
    """

    launched: Bools
    launch_ns: Ints
    launch_dur_ns: Ints
    launch_thread: Array
    range_thread: Array
    when: Ints
    replay: Ints
    replay_ns: Ints
    in_graph: Bools
    bare_node: Bools
    dur_ns: Ints


def find_launches(trace: Trace, launch: Array) -> Launched:
    """Rule 1 for all activities. launch: see `launch_of_activity`."""
    activities, launches = trace.activities, trace.launches
    known, in_graph = launch >= 0, activities["graph_node"] >= 0
    launch_ns, thread = take(launches["start_ns"], launch), take(launches["thread"], launch).astype(np.int32)
    range_thread, when, recorded = _recorded_in_graph(trace, thread, launch_ns)
    replay, replay_ns = _replays(trace, launch)
    launch_dur_ns = np.where(known, take(launches["end_ns"], launch) - launch_ns, -1)
    return Launched(
        launched=known,
        launch_ns=launch_ns,
        launch_dur_ns=launch_dur_ns,
        launch_thread=thread,
        range_thread=range_thread,
        when=when,
        replay=replay,
        replay_ns=replay_ns,
        in_graph=in_graph,
        bare_node=in_graph & ~recorded,
        dur_ns=activities["end_ns"].astype(np.int64) - activities["start_ns"],
    )


def align_clocks(trace: Trace, launch: Array) -> None:
    """Move the activities of devices whose clock is behind the host's, so that none begins before its launch, and note by how
    much. launch: see `launch_of_activity`.

    A kernel cannot begin before the call that launches it: where many do, the two clocks differ by at least that. A few are
    wrong pairs of an id used again.
    """
    activities = trace.activities
    rows = np.flatnonzero((launch >= 0) & (activities["graph_node"] < 0))
    if not len(rows):
        return
    early = trace.launches["start_ns"][launch[rows]] - activities["start_ns"][rows]
    if int(early.max()) < _LEAST_SKEW_NS:
        return
    (processes, devices), _, group = distinct_rows(activities["process"], activities["device"])
    moved, of = np.zeros(len(processes), np.int64), group[rows]
    for one in distinct_values(of).tolist():
        own = early[of == one]
        ahead = own[own >= _LEAST_SKEW_NS]
        if len(ahead) and len(ahead) >= _LEAST_SHARE_SKEWED * len(own):
            moved[one] = int(ahead[ahead <= _MOST_OF_MEDIAN * np.median(ahead)].max())
    if not moved.any():
        return
    for name in ("start_ns", "end_ns"):
        activities[name] = activities[name] + moved[group]
    trace.session_end_ns = max(trace.session_end_ns, int(activities["end_ns"].max()))
    said = [f"device {device}" for device in devices[moved > 0].tolist()]
    size = human(int(moved.max()), "ns")
    trace.notes.append(
        f"kernels began up to {size} before their launch, so the clock of {', '.join(said)} is that much behind the host's: "
        "its times are moved later by it"
    )


def launch_of_activity(trace: Trace) -> Array:
    """The row of the launch with an activity's (process, correlation id), -1 none.

    A driver call within a runtime call is part of it: the outer counts. Where a process used an id again, the call that began
    last before the activity; where all began after it (clocks of host and device differ a little), the first.
    """
    activities, launches = trace.activities, trace.launches
    corr, ids = activities["corr"], launches["corr"]
    # Most calls of some captures start nothing: they leave before anything is made of them.
    usable = np.flatnonzero((ids >= 0) & (launches["thread"] >= 0) & np.isin(ids, corr))
    known = _pair_code(trace.threads["process"][launches["thread"][usable]], ids[usable], corr)
    order = any_order(known)
    if (known[order][1:] == known[order][:-1]).any():
        tid, start, end = trace.threads["tid"][launches["thread"][usable]], *gather(launches, usable, "start_ns", "end_ns")
        order, _ = outermost_calls(distinct_rows(known, tid).inverse, start, end)
        order = order[np.lexsort((tid[order], start[order], known[order]))]
    rows, known = usable[order], known[order]
    wanted = _pair_code(activities["process"], corr, corr)
    first = np.searchsorted(known, wanted)
    found = corr >= 0
    found &= first < len(known)
    found[found] = known[first[found]] == wanted[found]
    if (known[1:] == known[:-1]).any():  # rare: an id used again
        last = np.searchsorted(known, wanted, "right")
        starts = launches["start_ns"][rows]
        for place in np.flatnonzero(found & (last - first > 1)).tolist():
            same = starts[first[place] : last[place]]  # no copy: there can be as many with the id as activities
            begun = int(np.searchsorted(same, activities["start_ns"][place], "right"))
            first[place] += max(begun - 1, 0)
    result = np.full(len(corr), -1, row_type(len(ids)))
    result[found] = rows[first[found]]
    return result


def outermost_calls(group: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """(rows of the calls that lie in no other one of their group; for each call the index of the one around it among these)."""
    order = np.lexsort((-end, start, group))
    rank = np.empty(len(end), np.int64)
    rank[np.argsort(end, kind="stable")] = np.arange(len(end))
    reach = np.maximum.accumulate(group[order].astype(np.int64) * len(end) + rank[order])  # the last to end so far
    ends = np.sort(end)[reach % max(len(end), 1)]
    first = np.ones(len(order), np.bool_)
    first[1:] = (np.diff(group[order]) != 0) | (start[order][1:] >= ends[:-1])
    of = np.empty(len(order), np.int64)
    of[order] = np.cumsum(first) - 1
    return order[first], of


def _recorded_in_graph(trace: Trace, thread: Array, when: Ints) -> tuple[Array, Ints, Bools]:
    """Where to look for the ranges of each activity: thread (-1 nowhere) and time; and whether its node was recorded there.

    Kernels of a CUDA graph have the place where their node was recorded, if the capture has it.
    """
    activities, nodes = trace.activities, trace.graph_nodes
    rows = np.flatnonzero(activities["graph_node"] >= 0)
    recorded = np.zeros(len(thread), np.bool_)
    if not len(rows) or not len(nodes["node"]):
        return thread, when, recorded
    process = take(trace.threads["process"], nodes["thread"])
    tid = take(trace.threads["tid"], nodes["thread"])
    row_of: dict[tuple[int, int], int] = {}
    # nsys writes a clone twice, as a node of its own and, a moment later, with its origin; the latter tells more.
    for row in np.lexsort((nodes["origin"], tid, nodes["start_ns"], nodes["origin"] < 0)).tolist():
        row_of.setdefault((int(process[row]), int(nodes["node"][row])), row)
    origin = nodes["origin"].tolist()
    distinct, _, inverse = distinct_rows(activities["process"][rows], activities["graph_node"][rows])
    found = np.array([_first_recording(row_of, origin, (p, n)) for p, n in distinct.T.tolist()], np.int64)[inverse]
    rows, found = rows[found >= 0], found[found >= 0]
    thread, when = thread.copy(), when.copy()
    thread[rows], when[rows], recorded[rows] = nodes["thread"][found], nodes["start_ns"][found], True
    return thread, when, recorded


def _first_recording(row_of: dict[tuple[int, int], int], origin: list[int], key: tuple[int, int]) -> int:
    """Row of the original node. Nodes are cloned when a graph is instantiated, nodes of child graphs several times."""
    row, seen = row_of.get(key, -1), set[int]()
    while row >= 0 and row not in seen:
        seen.add(row)
        earlier = row_of.get((key[0], origin[row]), -1)
        if earlier < 0:
            break
        row = earlier
    return row


def _replays(trace: Trace, launch: Ints) -> tuple[Ints, Ints]:
    """Which execution of its graph each activity is part of, and its begin: (replay, begin in ns); -1 outside of graphs.

    One launch is one replay; a node that one launch runs several times (a loop's body) runs in as many. Without a launch in the
    capture the correlation id identifies it.
    """
    activities = trace.activities
    rows = np.flatnonzero(activities["graph_node"] >= 0)
    if not len(rows):
        none = np.broadcast_to(np.int64(-1), len(launch))
        return none, none
    replay, begin = np.full(len(launch), -1, np.int64), np.full(len(launch), -1, np.int64)
    start, thread = activities["start_ns"][rows], take(trace.launches["thread"], launch[rows])
    execution = distinct_rows(  # by value, so that the numbers do not depend on the order of rows
        take(trace.launches["start_ns"], launch[rows]),
        take(trace.processes["pid"], activities["process"][rows]),
        take(trace.threads["tid"], thread),
        activities["corr"][rows],
    ).inverse
    node = activities["graph_node"][rows]
    used, code = np.unique(activities["name"][rows], return_inverse=True)
    name = ranks([trace.strings[text] for text in used.tolist()])[code.ravel()]
    same = gather(activities, rows, "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "stream", "device")
    order = np.lexsort((*same, name, activities["end_ns"][rows], start, node, execution))
    new = np.ones(len(rows), np.bool_)
    new[1:] = (np.diff(execution[order]) != 0) | (np.diff(node[order]) != 0)
    times = np.empty(len(rows), np.int64)
    times[order] = places_in_runs(new)
    distinct, _, inverse = distinct_rows(execution, times)
    earliest = np.full(distinct.shape[1], np.iinfo(np.int64).max)
    np.minimum.at(earliest, inverse, start)
    replay[rows], begin[rows] = inverse, earliest[inverse]
    return replay, begin


def gpus(trace: Trace, process: Integers, device: Integers) -> tuple[list[GpuInfo], Array]:
    """The distinct devices, and the index of each activity's, from its process and ordinal; -1 unknown.

    An ordinal that the capture does not describe (ROCm numbers devices that a process does not see) is of the only kind there.
    """
    table, strings = trace.devices, trace.strings
    found: list[GpuInfo] = []
    code_of: dict[tuple[int, int], int] = {}
    names = ranks([*map(strings.__getitem__, table["name"].tolist())])
    facts = [table[c] for c in ("cc_major", "cc_minor", *GPU_NUMBERS)]
    order = np.lexsort((*facts[::-1], names, table["device"], take(trace.processes["pid"], table["process"])))
    for row in order.tolist():
        major, minor, *rest = np.array(facts)[:, row].tolist()
        info = GpuInfo(strings[int(table["name"][row])], (major, minor) if major > 0 else None, *rest)
        if info not in found:
            found.append(info)
        code_of.setdefault((int(table["process"][row]), int(table["device"][row])), found.index(info))
    if not found:
        return found, np.full(len(process), -1, np.int64)
    kinds = {(info.name, info.cc, info.sms) for info in found}
    low, width = int(device.min(initial=0)), int(device.max(initial=0)) - int(device.min(initial=0)) + 1

    def code(pair: int) -> int:
        of_process, ordinal = divmod(pair, width)
        ordinal += low
        return code_of.get((of_process, ordinal), code_of.get((-1, ordinal), -1 if len(kinds) > 1 or ordinal < 0 else 0))

    return found, map_distinct(process.astype(np.int64) * width + (device - low), code)


def _pair_code(process: Array, ids: Array, corr: Array) -> Ints:
    """One number for each pair of process and correlation id (out of `corr`), ordered as (process, id)."""
    low, high = int(corr.min(initial=0)), int(corr.max(initial=0))
    if high - low >= 1 << 40:
        distinct = distinct_values(corr)
        ids, low, high = np.searchsorted(distinct, ids), 0, len(distinct) - 1
    code: Ints = process.astype(np.int64)
    code += 1  # in place: there are millions
    code *= high - low + 1
    code += ids
    code -= low
    return code
