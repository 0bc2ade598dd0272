"""The allocations of a capture -> the peak of each GPU (without one, of the CPU), and the ranges open at that moment."""

from __future__ import annotations

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values, largest
from pyprof.columns.types import Bools, Ints
from pyprof.model.allocations import CPU
from pyprof.model.host import HeldMemory, MemoryPeak
from pyprof.model.markers import Kind
from pyprof.model.trace import Trace
from pyprof.parse.attribution.launches import take
from pyprof.parse.attribution.stacks import layers_of

_HELD = 256  # blocks at a peak
_SOFTMAX = frozenset({"softmax", "_softmax", "_safe_softmax"})
_PHASES = {Kind.BACKWARD: "backward", Kind.ENGINE: "backward", Kind.OPTIMIZER: "optimizer"}


def memory_peaks(trace: Trace) -> list[MemoryPeak]:
    """Peaks of what tensors hold, by process and device. Empty where no totals were recorded."""
    table = trace.memory
    rows = np.flatnonzero(table["allocated"] >= 0) if trace.source == "kineto" else np.empty(0, np.int64)
    on_gpu = table["device"][rows] >= 0
    rows = rows[on_gpu] if on_gpu.any() else rows
    process = take(trace.threads["process"], table["thread"][rows])
    (processes, devices), _, group = distinct_rows(process, table["device"][rows])
    found = []
    for number, (of, device) in enumerate(zip(processes.tolist(), devices.tolist(), strict=True)):
        own = rows[group == number]
        own = own[np.argsort(table["time_ns"][own], kind="stable")]
        at = int(table["allocated"][own].argmax())
        row = int(own[at])
        reserved = int(table["reserved"][row])
        pid = int(trace.processes["pid"][of]) if of >= 0 else -1
        where = _ranges_at(trace, int(table["thread"][row]), int(table["time_ns"][row]))
        allocated, relative = int(table["allocated"][row]), device == CPU and not trace.tensors
        allocated += _before(trace, own) if device == CPU else 0
        time, held = int(table["time_ns"][row]), _held(trace, own, at)
        found.append(MemoryPeak(pid, device, allocated, reserved if reserved > 0 else None, time, *where, held, relative))
    return found


def _before(trace: Trace, own: Ints) -> int:
    """Bytes of the model's tensors on the CPU that no event allocated: torch counts from the recording's begin."""
    address = trace.memory["address"][own]
    _, last = np.unique(address[::-1], return_index=True)
    last = len(own) - 1 - last
    made = {*address[last[trace.memory["bytes"][own[last]] > 0]].tolist()}
    return sum(one.size for one in trace.tensors if one.device == CPU and one.address not in made)


def _held(trace: Trace, own: Ints, peak: int) -> list[HeldMemory]:
    """The largest blocks in use after an event. own: the device's events in order of time."""
    table = trace.memory
    address, size = table["address"][own], table["bytes"][own]
    if (address == -1).any():
        return []
    order = np.argsort(address, kind="stable")
    last = order[order <= peak]
    last = last[np.append(address[last[1:]] != address[last[:-1]], True)]  # what happened to each address last
    alive = last[size[last] > 0]
    alive = alive[largest(size[alive], _HELD)]
    freed = np.isin(address[alive], address[peak + 1 :][size[peak + 1 :] < 0])
    of_softmax = np.isin(size[alive], size[_in_softmax(trace, own) & (size > 0)])
    count = dict[tuple[str | None, str | None, int, bool, bool], int]()
    for row, *rest in zip(own[alive].tolist(), size[alive].tolist(), freed.tolist(), of_softmax.tolist(), strict=True):
        phase, op, *_ = _ranges_at(trace, int(table["thread"][row]), int(table["time_ns"][row]))
        key = (op, phase, *rest)
        count[key] = count.get(key, 0) + 1
    return [HeldMemory(op, phase, bytes_, number, *marks) for (op, phase, bytes_, *marks), number in count.items()]


def _in_softmax(trace: Trace, rows: Ints) -> Bools:
    """Which events of memory happened in a softmax."""
    ranges, table, result = trace.ranges, trace.memory, np.zeros(len(rows), np.bool_)
    named = np.array([one.name.rpartition("::")[2] in _SOFTMAX for one in trace.markers] + [False], np.bool_)
    inside = np.flatnonzero(named[ranges["label"]])
    for thread in distinct_values(table["thread"][rows]).tolist() if len(inside) else ():
        mine, those = np.flatnonzero(table["thread"][rows] == thread), inside[ranges["thread"][inside] == thread]
        change = np.zeros(len(mine) + 1, np.int64)
        for sign, column in ((1, "start_ns"), (-1, "end_ns")):
            np.add.at(change, np.searchsorted(table["time_ns"][rows[mine]], ranges[column][those]), sign)
        result[mine] = np.cumsum(change)[:-1] > 0
    return result


def _ranges_at(trace: Trace, thread: int, time_ns: int) -> tuple[str | None, str | None, str | None, str | None]:
    """Phase, op, layer and source line of what was open on a thread at a time: the outermost op, the innermost layer."""
    ranges = trace.ranges
    opened = np.flatnonzero((ranges["thread"] == thread) & (ranges["start_ns"] <= time_ns) & (ranges["end_ns"] > time_ns))
    opened = opened[np.lexsort((-ranges["end_ns"][opened], ranges["start_ns"][opened]))]
    markers = [trace.markers[label] for label in ranges["label"][opened].tolist()]
    ops = [one.call.op if one.call is not None else one.name for one in markers if one.kind in (Kind.OP, Kind.DISPATCH)]
    layers = layers_of([one for one in markers if one.kind == Kind.LAYER])
    phase = next((_PHASES[one.kind] for one in reversed(markers) if one.kind in _PHASES), "forward" if ops else None)
    sources = [trace.strings[code] for code in ranges["src"][opened].tolist() if code >= 0]
    return phase, next(iter(ops), None), next(reversed(layers), None), next(reversed(sources), None)
