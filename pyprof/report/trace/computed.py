"""Records -> computed tracks of a timeline: layers above each stream, and counters over time for each device.

Layers stand above their kernels, nested, one slice for each burst of kernels; around them the phase and the step. Counters are
means over equal parts of the time: rates of known FLOPs and least bytes, activities launched but not finished, the theoretical
occupancy of running kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from pyprof.columns.intervals import depth
from pyprof.columns.types import Array, Bools, Floats, Ints
from pyprof.model.records import PHASES
from pyprof.model.trace import ActivityKind
from pyprof.prof.frame import Frame
from pyprof.prof.group import layer_names
from pyprof.prof.sums import is_enough
from pyprof.report.time.steps import Steps
from pyprof.report.trace.parts import Part, each, micros, text
from pyprof.report.trace.tracks import Tracks

_PARTS = 10_000  # most parts of a device's time
_PHASES = tuple(map(PHASES.index, ("forward", "backward", "optimizer")))


class LayerSlices(NamedTuple):
    """Slices: times in ns, numbers of track and name."""

    start: Ints
    end: Ints
    track: Ints
    name: Ints


class OnDevices(NamedTuple):
    """Records on devices in order of stream and begin. row: of the records; stream: number for (process, device, stream);
    device: number for (process, device)."""

    row: Ints
    stream: Ints
    device: Ints
    start: Ints
    end: Ints


def placed(frame: Frame, process: Ints, chosen: Ints) -> OnDevices:
    """The chosen records that ran on a device."""
    records = frame.records
    rows = chosen[records["kind"][chosen] != ActivityKind.CPU]
    keys = np.stack([process[rows], records["device"][rows], records["stream"][rows]]).astype(np.int64)
    stream = np.unique(keys, axis=1, return_inverse=True)[1].ravel() if len(rows) else rows
    device = np.unique(keys[:2], axis=1, return_inverse=True)[1].ravel() if len(rows) else rows
    start = records["start_ns"][rows].astype(np.int64)
    order = np.lexsort((start, stream))
    end = start + np.maximum(records["dur_ns"][rows], 0)
    return OnDevices(rows[order], stream[order], device[order], start[order], end[order])


# ---------------------------------------------------------------------------------------------- steps


def step_part(steps: Steps | None, tracks: Tracks, since_ns: int) -> Part:
    """The steps of the reports, by their times on the host."""
    if steps is None or not len(steps):
        return Part(0, lambda rows: [])
    begin = steps.begin_ns.astype(np.int64)
    names = [text(f"step {number}") for number in steps.number.tolist()]
    head = f'{{"ph":"X","cat":"pyprof_layer",{tracks.all[tracks.added(tracks.whole(), "steps", 0)].text}"args":{{}},"name":'

    def lines(rows: Ints) -> Iterator[str]:
        columns = zip(rows.tolist(), micros(begin[rows] - since_ns), micros(steps.time_ns[rows]), strict=True)
        return (f'{head}{names[row]},"ts":{moment},"dur":{took}}}' for row, moment, took in columns)

    return Part(len(steps), lines, begin)


# ---------------------------------------------------------------------------------------------- layers


def layer_part(frame: Frame, tracks: Tracks, process: Ints, at: OnDevices, since_ns: int) -> Part:
    """Steps, phases and layers over each stream, nested."""
    names: dict[str, int] = {}
    parts = [*_runs(frame, tracks, process, at, names)]
    found = LayerSlices(*map(np.concatenate, zip(*parts, strict=True))) if parts else LayerSlices(*(np.empty(0, np.int64),) * 4)
    order = np.argsort(found.start, kind="stable")  # stable: at equal begins the outer stays first
    found = LayerSlices(*(column[order] for column in found))
    heads = [f'{{"ph":"X","cat":"pyprof_layer","name":{text(name)},' for name in names]

    def lines(rows: Ints) -> Iterator[str]:
        start, end, track, name = (column[rows] for column in found)
        columns = zip(name.tolist(), each(lambda code: tracks.all[code].text, track), micros(start - since_ns),
                      micros(end - start), strict=True)  # fmt: skip
        return (f'{heads[code]}{on}"ts":{begin},"dur":{took},"args":{{}}}}' for code, on, begin, took in columns)

    return Part(len(order), lines, found.start)


def _runs(frame: Frame, tracks: Tracks, process: Ints, at: OnDevices, names: dict[str, int]) -> Iterator[LayerSlices]:
    """The slices of each stream, outer before inner."""
    records = frame.records
    paths = [tuple(name[1:] for name in layer_names(stack.layer)) for stack in records.stacks]
    for number in np.unique(at.stream).tolist():
        mine = np.flatnonzero(at.stream == number)
        rows, start = at.row[mine], at.start[mine]
        end = np.minimum(at.end[mine], np.append(start[1:], np.iinfo(np.int64).max))  # kernels of a graph may overlap
        # Copies and records without a phase belong to the forward, backward or optimizer before them on the stream.
        phase = records["phase"][rows]
        last = np.maximum.accumulate(np.where(np.isin(phase, _PHASES), np.arange(len(rows)), -1))
        lasting = np.where(last >= 0, phase[last], -1).astype(np.int64)
        levels = _levels(records["step"][rows], lasting, records["scope"][rows], paths, names)
        if not levels:
            continue
        row = int(rows[0])
        pid = tracks.gpu(int(process[row]), int(records["device"][row]))
        track = tracks.added(pid, f"layers of stream {int(records['stream'][row])}", number)
        new = np.zeros(len(rows), np.bool_)
        new[0] = True
        for level in levels:
            new[1:] |= level[1:] != level[:-1]
            first = np.flatnonzero(new)
            ends, code = np.maximum.reduceat(end, first), level[first]
            shown = code >= 0
            yield LayerSlices(start[first[shown]], ends[shown], np.full(int(shown.sum()), track), code[shown])


def _levels(step: Array, phase: Ints, scope: Array, paths: list[tuple[str, ...]], names: dict[str, int]) -> list[Ints]:
    """Number of the name at each depth, -1 for none."""

    def coded(made: Callable[[int], str], values: Array) -> Ints:
        distinct, inverse = np.unique(values, return_inverse=True)
        codes = [names.setdefault(made(one), len(names)) if one >= 0 else -1 for one in distinct.tolist()]
        return np.array(codes, np.int64)[inverse.ravel()]

    levels = [coded(lambda one: f"step {one}", step), coded(lambda one: PHASES[one], phase)]
    used = np.unique(scope).tolist()
    for number in range(max((len(paths[code]) for code in used if code >= 0), default=0)):
        deep = [code if code >= 0 and len(paths[code]) > number else -1 for code in used]
        place = np.array(deep, np.int64)[np.searchsorted(used, scope)]
        levels.append(coded(lambda one, number=number: paths[one][number], place))  # type: ignore[misc]
    return [level for level in levels if (level >= 0).any()]


# ---------------------------------------------------------------------------------------------- counters


def counter_part(frame: Frame, tracks: Tracks, process: Ints, at: OnDevices, since_ns: int) -> Part:
    """The counters of all devices."""
    times, heads, values = [np.empty(0, np.int64)], [], [np.empty(0)]
    code = [np.empty(0, np.int64)]
    for number in np.unique(at.device).tolist():
        mine = np.flatnonzero(at.device == number)
        row = int(at.row[mine[0]])
        pid = tracks.gpu(int(process[row]), int(frame.records["device"][row]))
        first, last = int(at.start[mine].min()), int(at.end[mine].max())
        # Equal parts of the time, about as many as activities, so no activity vanishes in a mean.
        parts = min(max(2 * len(mine), 100), _PARTS, max(last - first, 1))
        edges = np.array([first + (last - first) * part // parts for part in range(parts + 1)], np.int64)
        for name, mean in _counters(frame, at.row[mine], at.start[mine], at.end[mine], edges):
            value = np.append(np.round(mean, 3), 0.0)  # falls to 0 at the end
            new = np.append(True, value[1:] != value[:-1])
            heads.append(f'{{"ph":"C","pid":{text(pid)},"tid":0,"name":{text(name)},"args":{{{text(name)}:')
            times.append(edges[new])
            values.append(value[new])
            code.append(np.full(int(new.sum()), len(heads) - 1))
    when, number, value = np.concatenate(times), np.concatenate(code), np.concatenate(values)
    order = np.argsort(when, kind="stable")
    when, number, value = when[order], number[order], value[order]

    def lines(rows: Ints) -> Iterator[str]:
        columns = zip(number[rows].tolist(), micros(when[rows] - since_ns), value[rows].tolist(), strict=True)
        return (f'{heads[one]}{amount:g}}},"ts":{moment}}}' for one, moment, amount in columns)

    return Part(len(when), lines, when)


def _counters(frame: Frame, rows: Ints, start: Ints, end: Ints, edges: Ints) -> Iterator[tuple[str, Floats]]:
    """(name, mean in each part of the time) of each counter with known values."""
    records, costs = frame.records, frame.costs
    mean = partial(_mean, start - edges[0], np.maximum(end - start, 1), (edges - edges[0]).astype(np.float64))
    took = np.maximum(end - start, 1)
    kernels = np.isin(records["kind"][rows], (ActivityKind.KERNEL, ActivityKind.GRAPH))
    for name, amount, scale in (("TFLOP/s", costs.sure_flops_of(rows), 1e3), ("GB/s", costs.of("bytes", rows), 1.0)):
        known: Bools = kernels & (amount >= 0)
        if known.any():
            whole = is_enough(int(took[known].sum()), int(took[kernels].sum()), int(known.sum()), int(kernels.sum()))
            yield name if whole else f"{name} (at least)", mean(known, amount / took / scale)
    launch = records["launch_ns"][rows]
    begun = np.where((launch >= 0) & (launch < start), launch, start).astype(np.int64)
    yield "launch queue depth", depth(begun, end, edges)[0]
    occupancy = frame.occupancy
    known = kernels & ~occupancy.unknown[rows]
    if known.any():
        part, all_of = mean(known, occupancy.values[rows]), mean(known, np.ones(len(rows)))
        yield "theoretical occupancy %", np.divide(part, all_of, out=np.zeros(len(part)), where=all_of > 1e-9)


def _mean(start: Ints, took: Ints, edges: Floats, rows: Bools, rate: Floats) -> Floats:
    """Mean in each part of the summed rates of running activities."""

    def before(moments: Ints, rate: Floats) -> Floats:
        """For each edge: the sum of rate times the time since its moment, over earlier moments."""
        order = np.argsort(moments)
        moments, rate = moments[order].astype(np.float64), rate[order]
        count = np.searchsorted(moments, edges, "right")
        rates, areas = (np.append(0.0, np.cumsum(values)) for values in (rate, rate * moments))
        return np.asarray(rates[count] * edges - areas[count])

    area = before(start[rows], rate[rows]) - before((start + took)[rows], rate[rows])
    return np.maximum(np.diff(area) / np.diff(edges), 0.0)
