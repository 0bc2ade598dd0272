"""Trace -> Records: kernel -> launch -> stack of ranges -> op instance, and backward joined to forward.

The steps of `attribute` are the rules of `pyprof help attribution` in their order. What a step finds of each kernel (without a
GPU of each op) are the fields of its result. Rules 2 and 3 work slice by slice of the capture's time, the others on the whole.
Numpy over all rows; Python only over distinct stacks. No file formats, no formulas: `OpRules` answers what is asked of ops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.arrays.columns import Columns, distinct_places, distinct_rows, distinct_values, is_constant
from pyprof.arrays.nesting import any_order, runs
from pyprof.arrays.sorting import ascending, same_as_before
from pyprof.arrays.types import Array, Bools, Places, Rows
from pyprof.markers import Kind
from pyprof.opcall import OpCall, OpRules
from pyprof.parse.attribution.derived import telling_text, with_steps
from pyprof.parse.attribution.engine_steps import find_engine_steps
from pyprof.parse.attribution.in_slices import add_slice, attribute_slices, no_results
from pyprof.parse.attribution.launches import Launched, find_launches, gather, gpus, ranks, take
from pyprof.parse.attribution.marked_steps import Marks, mark_steps
from pyprof.parse.attribution.ops import (
    KernelOps,
    OpsAround,
    Replays,
    Side,
    instances,
    op_after,
    op_table,
    owners,
    settled,
    with_none,
)
from pyprof.parse.attribution.phases import Evidence, find_phases
from pyprof.parse.attribution.ranges import NEVER, CaptureFacts, nest_all
from pyprof.parse.attribution.slices import MOST_KERNELS, KernelRanges, Slice, SliceResults, ThreadFacts
from pyprof.parse.attribution.stacks import Placed, main_numbers, running_numbers
from pyprof.parse.records.records import COLUMNS, GpuInfo, MarkedStep, Records
from pyprof.parse.sources.trace import TABLES, ActivityKind, Trace

# A name that activities and records share is the same number in both, without exception.
_MEASURED = tuple(column.name for column in TABLES["activities"] if column.name in COLUMNS)


def attribute(trace: Trace, rules: OpRules, most: int = MOST_KERNELS) -> Records:
    """Give every activity of a capture its launch, stack, op and phase; without GPU activity, every op its time on the CPU.

    most: how many kernels are attributed at a time, about; the result does not depend on it.
    Raises EmptyCapture where there are neither activities nor op ranges.
    """
    capture, marks = CaptureFacts(trace, rules), Marks.of(trace)
    del trace  # columns are freed on the way, where the caller keeps none
    if len(capture.activities["kind"]):
        launches = find_launches(capture.trace, capture.activities, capture.launches)  # rule 1
        kernels, results = attribute_slices(capture, launches, most)  # rules 2 and 3
    else:
        launches, kernels, results = _attribute_cpu(capture)
    directions = _find_directions(capture, launches, kernels, results.threads)  # rule 4
    forward = _join_forward(capture, kernels, results, directions)
    steps = _find_steps(capture, launches, kernels)  # rule 5
    ran, label = results.retyped.take()
    ops = op_table(capture.trace, Rows(kernels.op_row), forward.row, (Rows(ran), label))
    capture.ranges.clear()
    columns, devices = _measured(capture, launches, steps)
    columns["by_time"], columns["recomputed"], columns["stack"] = kernels.by_time, directions.recomputed, kernels.stack
    columns["scope"] = np.where(directions.is_backward & (forward.stack >= 0), forward.stack, kernels.stack)
    says = Evidence(ops.table.label[ops.op], kernels, directions.is_backward, launches.launch_thread, launches.in_graph)
    inferred = find_phases(capture, says, columns, results.stacks.stacks)
    calls = _number_instances(capture, launches, kernels.inner, columns, ops, steps)  # rule 6
    counts = _count_rows(launches, columns) | inferred | results.stacks.cut | forward.unknown  # rule 7
    engine_steps, launch_thread, on_engine = steps.engine_steps, launches.launch_thread, directions.on_engine
    del launches, kernels, directions, forward, steps, ops, says  # most of it would be held twice
    records = _records(capture.trace, results, columns, launch_thread, on_engine)
    records.counts = {name: count for name, count in counts.items() if count}
    records.calls, records.gpus, records.engine_steps = calls, devices, engine_steps
    mark_steps(records, marks)
    return records


def innermost_ranges(trace: Trace, rules: OpRules) -> tuple[Bools, Rows]:
    """For each activity whether it has a launch, and the row of the innermost range that it was launched in, -1 none."""
    capture = CaptureFacts(trace, rules)
    launches = find_launches(capture.trace, capture.activities, capture.launches)
    return launches.launched, Rows(attribute_slices(capture, launches, MOST_KERNELS)[0].range_row)


def ops_around(capture: CaptureFacts) -> OpsAround:
    """Rules 2 and 3 for all ranges of a capture at once, for those who need more than kernels."""
    nested, crossed = nest_all(capture.trace, capture.labels, Rows(np.flatnonzero(capture.kept)))
    if len(crossed):
        capture.set_aside(crossed)
    return OpsAround(capture, nested)


# ---------------------------------------------------------------------------------------------- without a GPU


def _attribute_cpu(capture: CaptureFacts) -> tuple[Launched, KernelRanges, SliceResults]:
    """Rows of ops in place of activities, and rules 2 and 3 for them."""
    from pyprof.parse.attribution.cpu import cpu_rows

    around = ops_around(capture)
    called, capture.activities, at = cpu_rows(capture, around)
    found, results = KernelRanges.unknown(len(at)), no_results(capture)
    everything = Slice(0, -1 - NEVER, NEVER, around.nested.row, np.arange(len(at)))
    placed = Placed(at, np.zeros(len(at), np.bool_), called.range_thread, called.when)
    add_slice(capture, found, results, around, everything, placed)
    return called, found, results


# ---------------------------------------------------------------------------------------------- rules 4 and 5, all rows


@dataclass(eq=False, repr=False)
class _Directions:
    """Rule 4: which rows ran again (see `OpsAround`), were launched on a thread of autograd's engine, are backward; and which
    threads are the engine's."""

    recomputed: Array
    on_engine: Bools
    is_backward: Bools
    engine: Bools


def _find_directions(capture: CaptureFacts, launches: Launched, kernels: KernelRanges, threads: ThreadFacts) -> _Directions:
    # Never the main thread, they run backward functions, no Python-level range of theirs lies outside of those, and their own
    # sequence counter does not move (it moves where a checkpoint runs forward again).
    engine = threads.runs & ~threads.python & (capture.trace.threads["main"] != 1) & (threads.own.low >= threads.own.high)
    thread = launches.range_thread  # of a graph's kernel where it was recorded, not where the graph was launched
    constant = (threads.again.count > 1) & (threads.again.low == threads.again.high)
    recomputed = settled(kernels.state, thread, constant)
    on_engine = np.append(engine, False)[thread] & (recomputed != 1)
    return _Directions(recomputed, on_engine, (kernels.function_row >= 0) | kernels.in_engine | on_engine, engine)


@dataclass(eq=False, repr=False)
class _Forward:
    """Rule 4: the forward range of each row's autograd function, -1 none: row of its op in `ranges`, code of its stack; and how
    many functions have none, by why."""

    row: Rows
    stack: Array
    unknown: dict[str, int]


def _join_forward(capture: CaptureFacts, kernels: KernelRanges, results: SliceResults, directions: _Directions) -> _Forward:
    ranges, function = capture.ranges, kernels.function_row
    numbered = np.where(take(ranges["seq"], function) >= 0, function, -1)
    functions, of_kernel = distinct_places(numbered, len(ranges["label"]))
    forward, forward_op, forward_stack = results.forward.take()
    apart = np.flatnonzero(~directions.engine[ranges["thread"][forward]])
    sides = _side(capture, forward[apart]), _side(capture, functions)
    owner, ties, missing = owners(*sides, ranges["fwd_thread"][functions], capture.trace.markers)
    owner = Places(take(apart, owner))
    bare = np.flatnonzero((owner >= 0) & (take(forward_op, owner) < 0))
    if len(bare):
        bare = distinct_values(owner[bare])
        forward_op[bare] = op_after(capture, Rows(forward[bare]))
    row = np.where(directions.is_backward, take(take(forward_op, owner), of_kernel), -1)
    unknown = {
        "backward functions whose forward thread is unknown": ties,
        "backward functions whose forward op is not in the capture": missing,
    }
    return _Forward(Rows(row), take(take(forward_stack, owner), of_kernel).astype(np.int32), unknown)


def _side(capture: CaptureFacts, rows: Array) -> Side:
    thread, seq, start, label = gather(capture.ranges, rows, "thread", "seq", "start_ns", "label")
    return Side(capture.process[thread], thread, seq, start, label)


@dataclass(eq=False, repr=False)
class _Steps:
    """Rule 5: number of each row's step, place of its engine's step in these, -1 none."""

    step: Array
    engine_step: Array
    engine_steps: list[MarkedStep]


def _find_steps(capture: CaptureFacts, launches: Launched, kernels: KernelRanges) -> _Steps:
    """Rule 5: the step of each row; and optimizers whose ranges are set aside, which are added to `kernels`."""
    step = capture.steps(launches.launch_thread, launches.launch_ns)
    engine_steps, engine_step = find_engine_steps(capture, launches.launch_thread, launches.launch_ns)
    if engine_steps and not (capture.labels.kind == Kind.STEP).any():
        step = np.array([*(one.number for one in engine_steps), -1], np.int64)[engine_step]
    on = np.where(kernels.by_time, -1, launches.range_thread)
    kernels.optimizer |= capture.aside_at(Kind.OPTIMIZER, on, launches.when, leaks=False) >= 0
    return _Steps(step, engine_step, engine_steps)


class _RecordColumns(Columns):
    """Columns of Records, each in its type as soon as it is put; one of a single value takes no memory."""

    def __setitem__(self, name: str, values: Array) -> None:
        values = values.astype(COLUMNS[name][0], copy=False)
        super().__setitem__(name, np.broadcast_to(values[0], len(values)) if is_constant(values) else values)


def _measured(capture: CaptureFacts, launches: Launched, steps: _Steps) -> tuple[_RecordColumns, list[GpuInfo]]:
    """The columns that the capture has of each row itself, and the devices; takes all activities."""
    trace, columns, thread, activities = capture.trace, _RecordColumns(), launches.launch_thread, capture.activities
    process = activities.take("process") if "process" in activities else capture.process[thread]
    unknown = np.broadcast_to(np.int64(-1), len(thread))
    for name in _MEASURED:
        columns[name] = activities.take(name) if name in activities else unknown
    activities.clear()
    for name in ("dur_ns", "launch_ns", "launch_dur_ns"):
        columns[name] = getattr(launches, name)
    columns["step"], columns["engine_step"] = steps.step, steps.engine_step
    columns["pid"], columns["rank"] = (take(trace.processes[name], process) for name in ("pid", "rank"))
    columns["tid"] = take(trace.threads["tid"], thread)
    devices, columns["gpu"] = gpus(trace, process, columns["device"])
    return columns, devices


# ---------------------------------------------------------------------------------------------- rules 6 and 7, all rows


def _number_instances(
    capture: CaptureFacts, launches: Launched, inner: Array, columns: Columns, ops: KernelOps, steps: _Steps
) -> list[OpCall]:
    """Rule 6: instances numbered in order of begin, and calls as codes into the pool of distinct ones that is returned. inner:
    label of each row's innermost op."""
    replays = Replays(launches.replay, launches.replay_ns, columns["start_ns"])
    columns["instance"], columns["fwd_instance"] = instances(capture, ops, replays)
    wanted = {"call": ops.table.label[np.where(ops.forward >= 0, ops.forward, ops.op)], "own": ops.table.label[ops.op]}
    if steps.engine_steps and capture.labels.asks_step.any():
        texts = [telling_text(step.texts) for step in steps.engine_steps]
        wanted = {name: with_steps(capture, label, steps.engine_step, texts) for name, label in wanted.items()}
    wanted["inner"] = inner
    calls: list[OpCall] = []
    code_of_label = np.full(len(capture.trace.markers) + 1, -1, np.int64)
    for name, label in wanted.items():
        used = np.zeros(len(code_of_label), np.bool_)
        used[label] = True
        for code in np.flatnonzero(used[:-1] & (code_of_label[:-1] < 0)).tolist():
            marker = capture.trace.markers[code]
            code_of_label[code] = len(calls)
            calls.append(marker.call or OpCall("autograd", marker.name, dispatcher=True, described=False))
        columns[name] = take(code_of_label, label)
    return calls


def _count_rows(launches: Launched, columns: Columns) -> dict[str, int]:
    """Rule 7: kernels of which something is not in the capture."""
    kernel = columns["kind"] == ActivityKind.KERNEL
    return {
        "kernels without a launch in the capture": int((kernel & ~launches.launched).sum()),
        "kernels of graphs whose capture is not known": int((kernel & launches.bare_node).sum()),
    }


def _records(trace: Trace, results: SliceResults, columns: Columns, launch_thread: Array, on_engine: Bools) -> Records:
    """Rule 7: every row, in an order that does not depend on the file's. Takes the numbers of results."""
    order = _order(columns, trace)
    if not ascending(order):
        for name in list(columns):
            if columns[name].strides != (0,):  # one value for all
                columns[name] = columns[name][order]
    records = Records(
        dict(columns), trace.strings, results.stacks.stacks, source=trace.source, notes=list(trace.notes), utc_ns=trace.utc_ns
    )
    records.seq_offsets, records.seq_numbers = results.take_numbers(order)
    records.columns["seq"] = main_numbers(records, on_engine[order])
    pid = take(trace.processes["pid"], trace.threads["process"])
    thread = distinct_rows(pid, trace.threads["tid"]).inverse.astype(np.int32)  # threads of one process and id are one
    records.columns["sub"] = running_numbers(records, with_none(thread)[launch_thread[order]])
    records.columns = {name: records.columns[name] for name in COLUMNS}
    return records


def _order(columns: Columns, trace: Trace) -> Array:
    """Rows by start, process, device, stream and correlation id, then by all else, so that no order of the file shows."""
    start = columns["start_ns"]
    order = any_order(start)
    # Few begin in one nanosecond: only those are sorted by the rest.
    tied, group = runs(same_as_before(start, order))
    keys = [group, *gather(columns, order[tied], "pid", "device", "stream", "corr")]
    by_keys = np.lexsort(keys[::-1])
    order[tied] = order[tied][by_keys]
    same = np.ones(max(len(tied) - 1, 0), np.bool_)
    for key in keys:
        same &= np.diff(key[by_keys]) == 0
    still, group = runs(same)
    tied = tied[still]
    rows = order[tied]
    rest = ("tid", "launch_ns", "dur_ns", "kind", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
    last = ("graph_node", "regs", "smem_bytes", "bytes", "copykind", "instance", "fwd_instance")
    name = ranks([*map(trace.strings.__getitem__, columns["name"][rows].tolist())])
    keys = [group, *gather(columns, rows, *rest), name, *gather(columns, rows, *last)]
    order[tied] = rows[np.lexsort(keys[::-1])]
    return order
