"""A run and traces of graphs being captured -> the run, with the recording of the graphs that it replays.

All kernels of a replayed graph share one launch, which tells nothing about ops. During the capture of the graph each had a
launch of its own, inside its op. Where the kernels of a replay match those of a captured graph (see `replayed`), the run gets
the ranges and threads of the capture, and a row of `graph_nodes` for each of its launches: attribution then finds the op of a
replayed kernel in the same way as for nodes that nsys recorded. The run itself may contain the capture too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.types import Array, Bools, Ints
from pyprof.model.markers import Kind, graph_capture
from pyprof.model.scheduler_steps import read
from pyprof.model.trace import Table, Trace, concatenated, make_table
from pyprof.parse.attribution.captured import Family, GraphTrace, families
from pyprof.parse.attribution.launches import gather
from pyprof.parse.attribution.replayed import Fits, Replays, matched, replays

_SMALLEST, _SMALL, _LARGE = (1, 2, 4), 8, 16  # between the sizes that engines capture unless told otherwise
_LARGE_FROM = 256
_APART_NS = 1_000_000  # between the run and each capture in the timeline of both


class Explained(NamedTuple):
    """A run joined with the captures of its graphs.

    trace: both in one; kernels, of: how many replayed activities are explained, out of how many; by: names of the captures
    that explain them; refused: why each other capture explains nothing.
    """

    trace: Trace
    kernels: int
    of: int
    by: list[str]
    refused: list[str]

    @property
    def notes(self) -> list[str]:
        """Notes for people, one line each."""
        if not self.kernels:
            return self.refused[:1]
        by = self.by[0] if len(self.by) == 1 else f"{len(self.by)} captures"
        return [
            f"{self.kernels:,} of {self.of:,} kernels of graphs have the ops of {by or 'the capture in this trace'}",
            *self.refused[:1],
        ]


def unexplained(run: Trace) -> Bools:
    """Mask of activities that ran as graph nodes of which nothing, or only the layer, is known."""
    node = run.activities["graph_node"]
    return np.asarray((node >= 0) & ~np.isin(node, run.graph_nodes["node"][_timed(run)]))


def _timed(run: Trace) -> Bools:
    """Which nodes were recorded on a known thread; annotations give the layer alone for the others."""
    return np.asarray(run.threads["tid"][run.graph_nodes["thread"]] >= 0)


def explained(run: Trace, captures: list[GraphTrace]) -> Explained:
    """The run, with the ops of the matching captures for kernels of replays. Neither input is changed."""
    among = unexplained(run)
    if not among.any():
        reason = "explains nothing, since no graph is replayed in the run whose ops are not known"
        return Explained(run, 0, 0, [], [f"{capture.name}: {reason}" for capture in captures])
    sources = [GraphTrace("", run), *captures]
    known = [
        family for number, source in enumerate(sources) for family in families(number, source, run.strings, itself=number == 0)
    ]
    found = replays(run, among)
    step, sizes = _steps(run, found)
    by_size = {size: _allowed(known, size) for size in set(sizes)}
    of_process = {  # the families that replays of a process may have run, as bits: of the run's own trace its own alone
        process: sum(1 << bit for bit, family in enumerate(known) if family.source or family.process == process)
        for process in distinct_values(found.process).tolist()
    }
    allowed = [by_size[size] & of_process[process] for size, process in zip(sizes, found.process.tolist(), strict=True)]
    match = matched(found, known, step, allowed)
    trace = _merged(run, sources, known, found, match.family, match.launch)
    used = {known[family].source for family in distinct_values(match.family[match.family >= 0]).tolist()}
    fits = Fits(found, known)
    unused = [number for number in range(1, len(sources)) if number not in used]
    of_source = {number: [bit for bit, family in enumerate(known) if family.source == number] for number in unused}
    told = used <= {0}  # of captures that were given
    refused = [f"{sources[i].name}: {_reason(fits, of_source[i], by_size, match.ambiguous)}" for i in unused if told]
    by = [sources[number].name for number in sorted(used)]
    return Explained(trace, int((match.family >= 0).sum()), len(found.rows), by, refused)


# ---------------------------------------------------------------------------------------------- the size of a step

Size = tuple[int, ...]  # the tokens of a step, else its requests; empty if unknown


def _steps(run: Trace, of: Replays) -> tuple[Ints, list[Size]]:
    """For each replay the number of the scheduler step that launched it (-1 none), and the size of that step."""
    says = [read(marker.name) if marker.kind in (Kind.USER, Kind.STEP) else None for marker in run.markers]
    ranges = run.ranges
    rows = np.flatnonzero(np.array([*(one is not None for one in says), False], np.bool_)[ranges["label"]])
    rows = rows[np.argsort(ranges["start_ns"][rows], kind="stable")]
    process = run.threads["process"][ranges["thread"][rows]]
    start, end = ranges["start_ns"][rows], ranges["end_ns"][rows]
    label = ranges["label"][rows].tolist()
    number, sizes = np.full(len(of.launch), -1, np.int64), list[Size]()
    for replay, launch in enumerate(of.launch.tolist()):
        when = run.launches["start_ns"][launch]
        upto = int(np.searchsorted(start, when, "right"))
        around = [at for at in range(max(upto - 8, 0), upto) if end[at] > when and process[at] == of.process[replay]]
        steps = [one for at in around if (one := says[label[at]]) is not None]
        tokens = {one.tokens for one in steps if one.tokens is not None}
        requests = {one.requests for one in steps if one.requests is not None}
        # Where tokens are drafted a graph is of a multiple of either that is not recorded.
        sizes.append(() if any(one.drafting for one in steps) else tuple(sorted(tokens or requests)))
        number[replay] = around[0] if around else -1
    return number, sizes


def _allowed(known: list[Family], size: Size) -> int:
    """The families that a step of this size may have run, as bits: an engine takes the next captured size and pads."""
    mask = 0
    for mode in {family.mode for family in known}:
        sizes = sorted({one for family in known if family.mode == mode for one in family.sizes})
        fitting = {s for wanted in size if (s := _next_size(sizes, wanted)) is not None}
        for bit, family in enumerate(known):
            if family.mode == mode and (not size or fitting.issuperset(family.sizes)):
                mask |= 1 << bit
    return mask


def _next_size(sizes: list[int], wanted: int) -> int | None:
    """The smallest captured size that holds a step; None if a smaller one may exist that is not among these."""
    found = next((size for size in sizes if size >= wanted), None)
    if found is None or found == wanted or sizes[0] < wanted:
        return found
    by = _SMALL if wanted <= _LARGE_FROM else _LARGE
    return found if found <= next((size for size in _SMALLEST if size >= wanted), -(-wanted // by) * by) else None


# ---------------------------------------------------------------------------------------------- why not


def _reason(fits: Fits, known: list[int], sizes: dict[Size, int], ambiguous: set[int]) -> str:
    """Why the graphs of a capture explain nothing, for people."""
    if not known:
        return "no graph is captured in it"
    ran = {one for size in sizes for one in size}
    captured = {size for bit in known for size in fits.families[bit].sizes}
    said = ", ".join(map(str, sorted(captured - ran or captured)))
    part, exact = max(fits.share(fits.families[family]) for family in known)
    share = f"{'' if exact else 'at most '}{part:.0%}"
    if not any(mask >> family & 1 for mask in sizes.values() for family in known):
        steps = ", ".join(map(str, sorted({size[-1] for size in sizes if size})[:4]))
        named = ", ".join(map(str, sorted(captured & ran)))
        shapes = f"; it is named one of {named}, and its shapes are not" if named else ""
        return f"captured for batch size {said}, and the steps are of {steps} tokens ({share} of a replay fit by order){shapes}"
    if ambiguous.intersection(known):
        sizes_of = {fits.families[bit].sizes for bit in ambiguous}
        if len(sizes_of) > 1:
            alike = ", ".join(map(str, sorted({size for of_one in sizes_of for size in of_one})))
            return f"captured for batch sizes {alike}, of which several fit alike, and no annotation says the size of a step"
        return "several of its calls or graphs fit each kernel alike, and not the same would be said of it"
    return f"of other graphs: {share} of the kernels of a replay follow in its order"


# ---------------------------------------------------------------------------------------------- both in one trace


def _merged(run: Trace, sources: list[GraphTrace], known: list[Family], of: Replays, family: Ints, launch: Ints) -> Trace:
    """The run with the ranges and threads of the captures that are used, and the nodes of its replays."""
    if not (family >= 0).any():
        return run
    process = np.repeat(of.process, np.diff(of.first))
    source = np.array([*(one.source for one in known), -1], np.int64)[family]
    node = _numbered(run.activities["graph_node"], of.rows, np.stack([process, source, _in_order(sources, source, launch)]))
    hit = source >= 0
    keep = _timed(run) | ~np.isin(run.graph_nodes["node"], node[of.rows[hit]])
    known_nodes = {name: values[keep] for name, values in run.graph_nodes.items()}
    threads, ranges, nodes, ends = [run.threads], [run.ranges], [known_nodes], [run.session_end_ns]
    for owner, number in distinct_rows(process[hit], source[hit]).columns.T.tolist():
        trace = sources[number].trace
        shift = before = 0
        if number:
            begin = min(int(table["start_ns"].min()) for table in (trace.ranges, trace.launches) if len(table["start_ns"]))
            tables = (run.activities, run.launches, run.ranges)
            last = max(*ends, *(int(table["end_ns"].max(initial=0)) for table in tables))
            shift, before, tids = last + _APART_NS - begin, sum(len(t["tid"]) for t in threads), trace.threads["tid"]
            threads.append(make_table("threads", {"process": np.full(len(tids), owner), "tid": tids}))
            ranges.append(_adopted(run, trace, before, shift))
            ends.append(int(ranges[-1]["end_ns"].max(initial=-2)) + 1)
        own = hit & (process == owner) & (source == number)
        found, at = np.unique(node[of.rows[own]], return_index=True)
        calls = launch[own][at]
        thread, start = gather(trace.launches, calls, "thread", "start_ns")
        nodes.append(make_table("graph_nodes", {"node": found, "thread": thread + before, "start_ns": start + shift}))
    ranges[0] = {**run.ranges, "open": _never_closed(run)}
    return replace(
        run, activities={**run.activities, "graph_node": node}, threads=concatenated([*map(dict, threads)]),
        ranges=concatenated([*map(dict, ranges)]), graph_nodes=concatenated([*map(dict, nodes)]), session_end_ns=max(ends),
    )  # fmt: skip


def _numbered(nodes: Array, rows: Ints, origin: Ints) -> Ints:
    """Node numbers of all activities: the recorded ones if, in these rows, each number has a single origin; else new
    ones."""
    numbers = distinct_rows(origin[0], nodes[rows]).columns.shape[1]
    nodes = nodes.astype(np.int64)
    if numbers < distinct_rows(origin[0], nodes[rows], origin[1], origin[2]).columns.shape[1]:
        nodes[rows] = nodes.max() + 1 + distinct_rows(*origin).inverse
    return nodes


def _in_order(sources: list[GraphTrace], source: Ints, launch: Ints) -> Ints:
    """For each launch its rank by begin in its source: rows may stand in any order."""
    result = launch.copy()
    for number in distinct_values(source[source >= 0]).tolist():
        launches = sources[number].trace.launches
        place = np.empty(len(launches["start_ns"]), np.int64)
        place[np.lexsort((launches["thread"], launches["end_ns"], launches["start_ns"]))] = np.arange(len(place))
        result[source == number] = place[launch[source == number]]
    return result


def _never_closed(trace: Trace) -> Array:
    """Whether each range was never closed, or only by the end of the session."""
    last, ranges = trace.session_end_ns, trace.ranges
    return ranges["open"] if last < 0 else np.where(ranges["end_ns"] >= last, np.int8(1), ranges["open"])


def _adopted(run: Trace, trace: Trace, before: int, shift: int) -> Table:
    """The ranges of a capture with markers and texts of the run, on threads after the first `before`. Ranges that mark steps or
    the capture itself are left out: they say nothing about the replays."""
    markers = trace.markers
    said = np.array([marker.kind != Kind.STEP and not graph_capture(marker.text) for marker in markers], np.bool_)
    keep = np.flatnonzero(said[trace.ranges["label"]])
    table = {name: values[keep] for name, values in trace.ranges.items()}
    code = np.full(len(markers), -1, np.int64)
    for label in distinct_values(table["label"]).tolist():
        marker = markers[label]
        code[label] = run.labels.add((marker.kind, marker.text, repr(marker.call)), marker)
    table["label"] = code[table["label"]]
    for name in ("domain", "src"):
        used = distinct_values(table[name][table[name] >= 0])
        new = np.array([run.strings.code(trace.strings[text]) for text in used.tolist()] + [-1], np.int64)
        table[name] = np.where(table[name] >= 0, new[np.searchsorted(used, table[name])], -1)
    table["open"] = _never_closed(trace)[keep]
    table |= {name: table[name] + shift for name in ("start_ns", "end_ns")}
    table["thread"] = table["thread"].astype(np.int64) + before
    table["fwd_thread"] = np.where(table["fwd_thread"] >= 0, table["fwd_thread"].astype(np.int64) + before, -1)
    return make_table("ranges", table)
