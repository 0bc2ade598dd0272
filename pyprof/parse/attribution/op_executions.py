"""Trace -> every execution of an op or annotation, nested ones too, as torch.profiler counts them: own time and total time.

These are the rows that `key_averages` adds up, not the op instances of Records: `aten::linear` and the `aten::addmm` inside it
are two. CPU time is the range's duration, device time the sum of the activities launched inside it; memory is allocations
minus frees inside it, if the capture has them. Modules and Python frames are not executions (torch's table has rows for
them where stacks were recorded); their time belongs to the annotation around them. No formulas here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.columns.types import Bools, Ints, Positions
from pyprof.model.markers import Kind, Marker
from pyprof.model.opcall import OpRules
from pyprof.model.trace import Trace, make_table
from pyprof.parse.attribution.launches import find_launches, launch_of_activity
from pyprof.parse.attribution.ops import OpsAround, nearest, ops_around
from pyprof.parse.attribution.ranges import CaptureFacts
from pyprof.parse.attribution.slices import locate

_SHOWN = (Kind.USER, Kind.OP, Kind.LAYER, Kind.DISPATCH, Kind.BACKWARD, Kind.ENGINE, Kind.OPTIMIZER, Kind.STEP, Kind.INTERNAL)
_MODULE = "nn.Module: "  # frames of Python, which torch's table does not add up either


@dataclass(frozen=True)
class Executions:
    """One row an execution. label: code into markers and names; time in ns and memory in bytes of its own (self_) and with all
    inside it; kernels: activities launched in it and in nothing inside it.

    on_device: whether anything ran on a GPU; with_memory: whether memory was recorded. If not, those columns are 0.
    """

    markers: list[Marker]
    names: list[str]
    label: Ints
    start_ns: Ints
    cpu_ns: Ints
    self_cpu_ns: Ints
    device_ns: Ints
    self_device_ns: Ints
    kernels: Ints
    cpu_mem: Ints
    self_cpu_mem: Ints
    device_mem: Ints
    self_device_mem: Ints
    on_device: bool
    with_memory: bool

    def __len__(self) -> int:
        return len(self.label)


def executions(trace: Trace, rules: OpRules) -> Executions:
    """All executions of a capture, in order of thread and begin."""
    capture = CaptureFacts(trace, rules)
    around = ops_around(capture)
    nested, size = around.nested, len(around.label)
    names = list(map(_name, trace.markers))
    shown, owner, above = _owners(around, trace.markers, names)
    cpu = np.append(np.maximum(trace.ranges["end_ns"][nested.row] - nested.start, 0), 0)
    inside = np.zeros(size, np.int64)
    child = shown & (above >= 0)
    np.add.at(inside, above[child], cpu[child])
    memory = trace.memory if trace.source == "kineto" else make_table("memory")  # of tensors, not of their allocator
    on_device = len(trace.activities["kind"]) > 0
    self_device, kernels = np.zeros(size, np.int64), np.zeros(size, np.int64)
    if on_device:
        rows = find_launches(trace, launch_of_activity(trace))
        placed = locate(capture, around, rows.range_thread, rows.when)
        at = np.where(placed.by_time, -1, owner[placed.at])
        np.add.at(self_device, at[at >= 0], rows.dur_ns[at >= 0])
        np.add.at(kernels, at[at >= 0], 1)
    mine = owner[nested.innermost(memory["thread"].astype(np.int64), memory["time_ns"])]
    of_host, of_device = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for result, which in ((of_host, memory["device"] < 0), (of_device, memory["device"] >= 0)):
        np.add.at(result, mine[which & (mine >= 0)], memory["bytes"][which & (mine >= 0)])
    totals = np.stack([self_device, of_host, of_device])
    for level, around_level in reversed(nested.levels):
        for total in totals:
            np.add.at(total, around_level, total[level])  # executions without a parent add to the last element, position -1
    device, host_mem, device_mem = totals[:, shown]
    return Executions(
        trace.markers, names, around.label[shown], around.start[shown], cpu[shown], (cpu - inside)[shown],
        device, self_device[shown], kernels[shown], host_mem, of_host[shown], device_mem, of_device[shown],
        on_device, len(memory["bytes"]) > 0,
    )  # fmt: skip


def _owners(around: OpsAround, markers: list[Marker], names: list[str]) -> tuple[Bools, Positions, Positions]:
    """(which ranges are executions, the innermost execution around or at each range, the one around that).

    An op whose only inner op has its own name is one execution with it, as in torch's table.
    """
    nested, label = around.nested, around.label
    shown = np.array([*(one.kind in _SHOWN and not one.text.startswith(_MODULE) for one in markers), False], np.bool_)[label]
    code_of: dict[str, int] = {}
    name = np.array([*(code_of.setdefault(text, len(code_of)) for text in names), -1], np.int64)[label]
    while True:
        owner = nearest(nested, shown)
        above = Positions(np.append(owner[nested.parent], -1))
        child = shown & (above >= 0)
        alone = np.bincount(above[child], minlength=len(label)) == 1
        twin = child & alone[above] & (name == name[above])
        if not twin.any():
            return shown, owner, above
        shown = shown & ~twin


def _name(marker: Marker) -> str:
    """Name in torch's table."""
    if marker.kind == Kind.STEP and not marker.own:
        return "ProfilerStep*"
    if marker.kind in (Kind.ENGINE, Kind.OPTIMIZER) and not marker.own:
        return marker.text.partition(", sizes = ")[0]
    return marker.name
