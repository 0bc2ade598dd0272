"""A capture without a GPU -> one row for each op instance on the CPU, with its own time.

Own time is the time of its range minus that of instances nested in it (copies and casts), so the rows of a thread add up to the
time of its ops. Views and allocations inside an op belong to it. The row is named after the part of the op that took most time,
if any part computes among those: which copy or allocation takes longest differs from run to run.

Of a program on a GPU of which only ranges without ops were recorded, each range is a row.
"""

from __future__ import annotations

import numpy as np

from pyprof.columns.distinct import distinct_values
from pyprof.columns.types import Bools, Ints, Positions
from pyprof.errors import EmptyCapture
from pyprof.model.markers import Kind
from pyprof.model.trace import ActivityKind, Table, make_table
from pyprof.parse.attribution.launches import Launched
from pyprof.parse.attribution.ops import OpsAround, nearest, with_none
from pyprof.parse.attribution.ranges import NEVER, CaptureFacts, Nested

_NAMED = (Kind.USER, Kind.LAYER, Kind.STEP)


def cpu_rows(capture: CaptureFacts, around: OpsAround) -> tuple[Launched, Table, Positions]:
    """Stand-ins for GPU activities: when and where each row was called, the table of activities, and the position in `around`.

    Raises EmptyCapture if there are no ops.
    """
    nested, labels, label, start, formula_root = around.nested, around.labels, around.label, around.start, around.formula_root
    ranges_alone = np.isin(around.kind, _NAMED) & (np.arange(len(label)) < len(label) - 1)
    has_ops = bool(labels.is_op[label].any())
    if not has_ops and not (len(capture.trace.devices["name"]) and ranges_alone.any()):
        hint = (
            "record with ProfilerActivity.CPU, or by: pyprof run --tool torch net.py; ui.perfetto.dev shows steps and frames"
            if capture.trace.source == "kineto"
            else "call pyprof.init() in the program before its model is built, or run it inside "
            "torch.autograd.profiler.emit_nvtx(), and record with `nsys profile -t cuda,nvtx`"
        )
        raise EmptyCapture("the capture holds neither GPU activity nor ranges of ops", hint)
    markers, strings = capture.trace.markers, capture.trace.strings
    duration = np.append(np.maximum(capture.ranges["end_ns"][nested.row] - nested.start, 0), 0)
    here = np.arange(len(label))
    roots = formula_root == here
    rules, calls = capture.rules, [marker.call for marker in markers]
    moves = np.array([*(call is not None and rules.moves(call) for call in calls), False], np.bool_)
    computes = ~moves & np.array(
        [*(call is not None and not rules.is_structural(call.name) for call in calls), False], np.bool_
    )
    roots = roots | _without_formula(around, roots, roots & ~moves[label]) if has_ops else ranges_alone
    owner = nearest(nested, roots)
    at = np.flatnonzero(roots)
    outer = owner[nested.parent[at]]
    own_time = duration.copy()
    np.subtract.at(own_time, outer[outer >= 0], duration[at][outer >= 0])
    copied = labels.copy[label] & with_none(labels.copy[label][owner[nested.parent]])
    named = labels.inner[label] | labels.is_op[label] if has_ops else ranges_alone
    busiest = _busiest(nested, owner, duration, (named, named & computes[label]), copied)[at]
    name_of = np.empty(len(markers), np.int64)
    for code in distinct_values(label[busiest]).tolist():
        call = markers[code].call
        name_of[code] = strings.code(markers[code].name if call is None else call.name)
    none = np.full(len(at), -1, np.int64)
    nothing, thread = np.zeros(len(at), np.bool_), around.thread[at].astype(np.int64)
    called = Launched(
        launched=np.ones(len(at), np.bool_),
        launch_ns=start[at],
        launch_dur_ns=none if has_ops else duration[at],
        launch_thread=thread,
        range_thread=thread,
        when=start[at],
        replay=none,
        replay_ns=none,
        in_graph=nothing,
        bare_node=nothing,
        dur_ns=np.maximum(own_time[at], 0),
    )
    kind = np.broadcast_to(np.int8(ActivityKind.CPU), len(at))
    columns = {"kind": kind, "start_ns": start[at], "process": capture.process[thread], "name": name_of[label[busiest]]}
    return called, make_table("activities", columns), Positions(busiest)


def _without_formula(around: OpsAround, roots: Bools, working: Bools) -> Bools:
    """Ops outside every formula, outermost first, that contain no instance with a formula; for a backward function its ops.

    A dispatcher op whose inner instances only copy and fill does the work itself. working: instances that do more.
    """
    nested, labels, label = around.nested, around.labels, around.label
    op = labels.is_op[label]
    has_op = np.zeros(len(label), np.bool_)
    for level, above in reversed(nested.levels):
        has_op[above[op[level] | has_op[level]]] = True
        has_op[-1] = False
    holds = np.stack([roots, working]) | (labels.backward[label] & has_op)
    for level, above in reversed(nested.levels):
        for one in holds:
            one[above[one[level]]] = True
            one[-1] = False
    leaf = op & ~np.where(around.kind == Kind.DISPATCH, holds[1], holds[0]) & (around.formula_root < 0)
    covered = nearest(nested, leaf) >= 0
    return np.asarray(leaf & ~np.append(covered[nested.parent], False))


def _busiest(nested: Nested, owner: Positions, duration: Ints, named: tuple[Bools, Bools], copied: Bools) -> Ints:
    """For each root the range inside it with most own time; if several have as much, the outermost.

    named: masks of the candidates and of those that compute, which are preferred. copied: copies inside a copy; the
    innermost is taken, since it shows the dtypes.
    """
    alone = duration.copy()
    np.subtract.at(alone, nested.parent, duration[:-1])  # ranges without a parent are subtracted from the last element
    alone[copied] = NEVER - len(alone) + np.flatnonzero(copied)
    some, computing = named
    rows = np.flatnonzero((owner >= 0) & some)
    order = rows[np.lexsort((rows, -alone[rows], ~computing[rows], owner[rows]))]
    owners, first = np.unique(owner[order], return_index=True)
    result = np.arange(len(owner))
    result[owners] = order[first]
    return result
