"""Trace -> Records: kernel -> launch -> stack of ranges -> op instance, and backward joined to forward.

The steps of `attribute` are the rules of `pyprof help attribution` in their order; the findings of each are fields of its
result. Rules 2 and 3 work slice by slice of the capture's time, the others on all rows. Numpy over rows, Python only over
distinct stacks. Knows no file formats and no formulas: `OpRules` answers questions about ops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.columns.distinct import distinct_places, distinct_rows, distinct_values, is_constant
from pyprof.columns.nesting import any_order, runs
from pyprof.columns.sorting import same_as_before
from pyprof.columns.types import Array, Bools, Ints, Places, Rows
from pyprof.errors import EmptyCapture
from pyprof.model.markers import Kind
from pyprof.model.opcall import OpCall, OpRules
from pyprof.model.records import COLUMNS, GpuInfo, MarkedStep, Records, Unseen
from pyprof.model.trace import TABLES, ActivityKind, Trace, make_table
from pyprof.parse.attribution.derived import not_run, telling_text, with_steps, with_sums
from pyprof.parse.attribution.host import host_of
from pyprof.parse.attribution.launches import (
    Launched,
    align_clocks,
    find_launches,
    gather,
    gpus,
    launch_of_activity,
    ranks,
    take,
)
from pyprof.parse.attribution.marked_steps import Marks, find_engine_steps, mark_steps
from pyprof.parse.attribution.ops import (
    UNSETTLED,
    KernelOps,
    NumberedRanges,
    instances,
    op_after,
    op_table,
    ops_around,
    owners,
    with_none,
)
from pyprof.parse.attribution.phases import Evidence, Phases, find_phases
from pyprof.parse.attribution.ranges import NEVER, CaptureFacts
from pyprof.parse.attribution.slices import (
    MOST_KERNELS,
    KernelRanges,
    Slice,
    SliceResults,
    ThreadFacts,
    add_slice,
    attribute_slices,
)
from pyprof.parse.attribution.stacks import Placed, main_numbers, running_numbers
from pyprof.parse.attribution.unseen import UNSEEN, beside_gpu, count_launches, unseen_of
from pyprof.parse.attribution.whereabouts import whereabouts_on_cpu

# A name that activities and records share is the same number in both, without exception.
_MEASURED = tuple(column.name for column in TABLES["activities"] if column.name in COLUMNS)


@dataclass(eq=False, repr=False)
class _RuleFindings:
    """Results of the rules, by the number of each rule."""

    launches: Launched  # 1
    kernels: KernelRanges  # 2 and 3
    directions: _Directions  # 4
    forward: _Forward
    steps: _Steps  # 5
    phases: Phases
    instances: _Instances  # 6


def attribute(trace: Trace, rules: OpRules, most: int = MOST_KERNELS, *, with_host: bool = False) -> Records:
    """Give every activity of a capture its launch, stack, op and phase; without GPU activity, every op its time on the CPU.

    most: how many kernels are attributed at a time, about; the result does not depend on it. with_host: with what the host did.
    Raises EmptyCapture where there are neither activities nor op ranges.
    """
    launch = launch_of_activity(trace)
    align_clocks(trace, launch)
    capture, marks = CaptureFacts(trace, rules), Marks.of(trace)
    host, cut_off = host_of(trace, capture, launch) if with_host else None, capture.cut_off()
    launched = count_launches(trace, launch)
    unseen, lost_ns = unseen_of(trace, launch, launched), np.concatenate([launched.lost_kernels, launched.lost_graphs])
    capture.notes += beside_gpu(trace) if unseen is None and not len(launch) else []
    del trace  # from here on columns are freed as soon as no later rule reads them, unless the caller keeps them
    if len(launch):
        launches = find_launches(capture.trace, launch)  # rule 1
        capture.trace.launches = make_table("launches")
        kernels, results = attribute_slices(capture, launches, most)  # rules 2 and 3
    else:
        launches, kernels, results = _attribute_cpu(capture, unseen)
        if host is not None:
            host.whereabouts = whereabouts_on_cpu(capture.trace, launches)
    del launch
    directions = _find_directions(capture, launches, kernels, results.threads)  # rule 4
    forward = _join_forward(capture, kernels, results, directions)
    steps = _find_steps(capture, launches, kernels)  # rule 5
    ran, label = results.retyped.take()
    ops = op_table(capture.trace, Rows(kernels.op_row), forward.row, (Rows(ran), label))
    capture.trace.ranges = make_table("ranges")
    evidence = Evidence(
        ops.table.label[ops.op], kernels, directions.is_backward, launches, steps.step, capture.trace.activities["kind"],
        capture.trace.activities["name"], results.stacks.stacks,
    )  # fmt: skip
    phases = find_phases(capture, evidence)
    instances = _number_instances(capture, launches, kernels.inner, ops, forward.beside, steps)  # rule 6
    found = _RuleFindings(launches, kernels, directions, forward, steps, phases, instances)
    counts = _counts(capture, found) | results.stacks.cut | forward.unknown | cut_off  # rule 7
    counts[UNSEEN] = 0 if unseen else len(lost_ns)
    columns, devices = _columns(capture, found)
    if unseen is not None and (columns["kind"][:1] == ActivityKind.CPU).any():  # what ran on the device is not known
        devices = devices or [GpuInfo()]
        columns["gpu"] = np.broadcast_to(np.int32(0), len(columns["kind"]))
    capture.trace.activities = make_table("activities")
    calls, engine_steps, launch_thread, on_engine = (
        instances.calls,
        steps.engine_steps,
        launches.launch_thread,
        directions.on_engine,
    )
    del found, launches, kernels, directions, forward, steps, ops, evidence, phases, instances
    records = _records(capture.trace, results, columns, launch_thread, on_engine)
    records.counts = {name: count for name, count in counts.items() if count}
    records.calls, records.gpus, records.engine_steps, records.host = calls, devices, engine_steps, host
    if host is not None:
        host.classes = results.stacks.classes
    records.notes += capture.notes
    records.unseen = unseen
    mark_steps(records, marks, lost_ns)
    return records


def innermost_ranges(trace: Trace, rules: OpRules) -> tuple[Bools, Rows]:
    """For each activity whether it has a launch, and the row of the innermost range that it was launched in, -1 none."""
    capture = CaptureFacts(trace, rules)
    launches = find_launches(trace, launch_of_activity(trace))
    return launches.launched, Rows(attribute_slices(capture, launches, MOST_KERNELS)[0].range_row)


def _attribute_cpu(capture: CaptureFacts, unseen: Unseen | None) -> tuple[Launched, KernelRanges, SliceResults]:
    """Rules 2 and 3 without a GPU: ops on the CPU take the place of activities."""
    from pyprof.parse.attribution.cpu import cpu_rows

    around = ops_around(capture)
    try:
        called, capture.trace.activities, at = cpu_rows(capture, around)
    except EmptyCapture as error:
        raise (EmptyCapture(*unseen) if unseen is not None else error) from None
    found, results = KernelRanges.unknown(len(at)), SliceResults(capture)
    everything = Slice(0, -1 - NEVER, NEVER, around.nested.row, np.arange(len(at)))
    placed = Placed(at, np.zeros(len(at), np.bool_), called.range_thread, called.when)
    add_slice(capture, found, results, around, everything, placed)
    results.retyped.add(*not_run(capture.trace, around))
    return called, found, results


# ---------------------------------------------------------------------------------------------- rules 4 and 5, all rows


@dataclass(eq=False, repr=False)
class _Directions:
    """Rule 4. recomputed: see `OpsAround`; on_engine: launched on a thread of autograd's engine; engine: whether each thread is
    one."""

    recomputed: Array
    on_engine: Bools
    is_backward: Bools
    engine: Bools


def _find_directions(capture: CaptureFacts, launches: Launched, kernels: KernelRanges, threads: ThreadFacts) -> _Directions:
    # Never the main thread, they run backward functions, no Python-level range of theirs lies outside of those, and their own
    # sequence counter does not move (it moves where a checkpoint runs forward again).
    engine = threads.runs & ~threads.python & (capture.trace.threads["main"] != 1) & (threads.own.low >= threads.own.high)
    thread = launches.range_thread  # of a graph's kernel where it was recorded, not where the graph was launched
    # Torch before 1.6 printed numbers in any mode; where ops record gradients, those inside functions grow.
    constant = (threads.again.count > 1) & (threads.again.low == threads.again.high)
    recomputed, unsettled = kernels.state.copy(), np.flatnonzero(kernels.state == UNSETTLED)
    recomputed[unsettled] = np.where(constant[thread[unsettled]], 0, -1)
    on_engine = np.append(engine, False)[thread] & (recomputed != 1)
    return _Directions(recomputed, on_engine, (kernels.function_row >= 0) | kernels.in_engine | on_engine, engine)


@dataclass(eq=False, repr=False)
class _Forward:
    """Rule 4, for each row the forward range of its autograd function, -1 none. row: its op in `ranges`; beside: label of the
    op where the row stands beside the function; stack: code of its stack; unknown: number of functions without one, by reason.
    """

    row: Rows
    beside: Array
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
    labels, label = capture.labels, ranges["label"]
    beside = np.where(kernels.alone, take(label, row), -1).astype(np.int32)
    row[kernels.alone] = -1
    # Rule 3: where the forward op has no formula, the ops inside its backward tell more.
    has_own = np.isin(labels.kind[take(label, kernels.op_row)], (Kind.OP, Kind.DISPATCH))
    row[has_own & ~labels.has_formula[take(label, row)]] = -1
    unknown = {
        "backward functions whose forward thread is unknown": ties,
        "backward functions whose forward op is not in the capture": missing,
    }
    return _Forward(Rows(row), beside, take(take(forward_stack, owner), of_kernel).astype(np.int32), unknown)


def _side(capture: CaptureFacts, rows: Array) -> NumberedRanges:
    thread, seq, start, label = gather(capture.ranges, rows, "thread", "seq", "start_ns", "label")
    return NumberedRanges(capture.process[thread], thread, seq, start, label)


@dataclass(eq=False, repr=False)
class _Steps:
    """Rule 5. step: number of each row's step; engine_step: its index into engine_steps; -1 none."""

    step: Array
    engine_step: Array
    engine_steps: list[MarkedStep]


def _find_steps(capture: CaptureFacts, launches: Launched, kernels: KernelRanges) -> _Steps:
    """Rule 5: the step of each row. Also marks in `kernels` what ran in optimizers whose ranges are set aside."""
    step = capture.steps(launches.launch_thread, launches.launch_ns)
    engine_steps, engine_step = find_engine_steps(capture, launches.launch_thread, launches.launch_ns)
    if engine_steps and not (capture.labels.kind == Kind.STEP).any():
        step = np.array([*(one.number for one in engine_steps), -1], np.int64)[engine_step]
    on = np.where(kernels.by_time, -1, launches.range_thread)
    kernels.optimizer |= capture.aside_at(Kind.OPTIMIZER, on, launches.when, leaks=False) >= 0
    return _Steps(step, engine_step, engine_steps)


# ---------------------------------------------------------------------------------------------- rules 6 and 7, all rows


@dataclass(eq=False, repr=False)
class _Instances:
    """Rule 6. Numbers of each row's op instance and of its forward's; codes into `calls` of its op (backward: its forward's),
    its own op and its innermost op; -1 none."""

    instance: Ints
    fwd_instance: Ints
    call: Array
    own: Array
    inner: Array
    calls: list[OpCall]


def _number_instances(
    capture: CaptureFacts, launches: Launched, inner: Array, ops: KernelOps, beside: Array, steps: _Steps
) -> _Instances:
    """Rule 6: instances numbered in order of begin. inner: label of each row's innermost op; beside: see `_Forward`."""
    wanted = [ops.table.label[np.where(ops.forward >= 0, ops.forward, ops.op)], ops.table.label[ops.op]]
    wanted = [with_sums(capture.trace, label, beside) for label in wanted]
    if steps.engine_steps and capture.labels.asks_step.any():
        texts = [telling_text(step.texts) for step in steps.engine_steps]
        wanted = [with_steps(capture, label, steps.engine_step, texts) for label in wanted]
    calls: list[OpCall] = []
    codes: list[Array] = []
    code_of_label = np.full(len(capture.trace.markers) + 1, -1, np.int32)
    for label in (*wanted, inner):
        used = np.zeros(len(code_of_label), np.bool_)
        used[label] = True
        for code in np.flatnonzero(used[:-1] & (code_of_label[:-1] < 0)).tolist():
            marker = capture.trace.markers[code]
            code_of_label[code] = len(calls)
            calls.append(marker.call or OpCall("autograd", marker.name, dispatcher=True, described=False))
        codes.append(code_of_label[label])
    call, own, inner = codes
    return _Instances(*instances(capture, ops, launches), call, own, inner, calls)


def _counts(capture: CaptureFacts, found: _RuleFindings) -> dict[str, int]:
    """Rule 7: number of kernels for which something is missing or inferred."""
    kernel = capture.trace.activities["kind"] == ActivityKind.KERNEL
    return {
        "kernels without a launch in the capture": int((kernel & ~found.launches.launched).sum()),
        "kernels of graphs whose capture is not known": int((kernel & found.launches.bare_node).sum()),
        "kernels whose phase is inferred from their name": int(found.phases.inferred.sum()),
    }


def _columns(capture: CaptureFacts, found: _RuleFindings) -> tuple[dict[str, Array], list[GpuInfo]]:
    """The columns of Records except seq and sub, each in its type, and the devices. A column with one value takes no memory."""
    trace, launches, steps, instances = capture.trace, found.launches, found.steps, found.instances
    process = trace.activities["process"]
    devices, gpu = gpus(trace, process, trace.activities["device"])
    stack, backward = found.kernels.stack, found.directions.is_backward
    columns = {name: trace.activities[name] for name in _MEASURED} | {
        "dur_ns": launches.dur_ns,
        "pid": take(trace.processes["pid"], process),
        "rank": take(trace.processes["rank"], process),
        "tid": take(trace.threads["tid"], launches.launch_thread),
        "gpu": gpu,
        "launch_ns": launches.launch_ns,
        "launch_dur_ns": launches.launch_dur_ns,
        "instance": instances.instance,
        "fwd_instance": instances.fwd_instance,
        "stack": stack,
        "scope": np.where(backward & (found.forward.stack >= 0), found.forward.stack, stack),
        "call": instances.call,
        "inner": instances.inner,
        "own": instances.own,
        "dir": found.phases.direction,
        "phase": found.phases.phase,
        "step": steps.step,
        "engine_step": steps.engine_step,
        "recomputed": found.directions.recomputed,
        "by_time": found.kernels.by_time,
        "phase_inferred": np.where(found.phases.inferred, np.int8(1), np.int8(-1)),
    }
    for name, values in columns.items():
        values = values.astype(COLUMNS[name][0], copy=False)
        columns[name] = np.broadcast_to(values[0], len(values)) if is_constant(values) else values
    return columns, devices


def _records(trace: Trace, results: SliceResults, columns: dict[str, Array], launch_thread: Array, on_engine: Bools) -> Records:
    """Rule 7: all rows, in an order that does not depend on the order of the file. The sequence numbers of `results` are
    freed."""
    order = _order(columns, trace)
    if (order[1:] < order[:-1]).any():
        for name, values in columns.items():
            if values.strides != (0,):  # one value for all
                columns[name] = values[order]
    records = Records(
        columns, trace.strings, results.stacks.stacks, source=trace.source, notes=list(trace.notes), utc_ns=trace.utc_ns
    )
    records.seq_offsets, records.seq_numbers = results.take_numbers(order)
    records.columns["seq"] = main_numbers(records, on_engine[order])
    pid = take(trace.processes["pid"], trace.threads["process"])
    thread = distinct_rows(pid, trace.threads["tid"]).inverse.astype(np.int32)  # threads of one process and id are one
    records.columns["sub"] = running_numbers(records, with_none(thread)[launch_thread[order]])
    records.columns = {name: records.columns[name] for name in COLUMNS}
    return records


def _order(columns: dict[str, Array], trace: Trace) -> Array:
    """Order of the rows by start, process, device, stream and correlation id, then by everything else, so that the file's order
    never shows."""
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
