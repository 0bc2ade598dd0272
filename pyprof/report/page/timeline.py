"""The division of a window -> a timeline of so many columns: per stream the busy time by phase, per device the idle time by
cause, and the longest gaps one by one.

Its size does not grow with the kernels. Times are in ns since the window's begin; shares of a column are in thousandths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from pyprof.arrays.columns import distinct_rows, largest
from pyprof.arrays.intervals import summed
from pyprof.arrays.spool import pieces, taken
from pyprof.arrays.types import Floats, Ints
from pyprof.parse.records.records import PHASES
from pyprof.prof.frame import Frame
from pyprof.report.time.causes import CAUSES
from pyprof.report.time.overview import Overview
from pyprof.tables.names import text_of

COLUMNS = 800
_STREAMS = 8  # of a device, those with most time; the others are one together
_DEVICES = 16
_GAPS, _STEPS = 60, 200
_Weighted: TypeAlias = tuple[Ints, Ints, Ints, Floats]  # of intervals the group, begin, end and weight


def timeline_of(overview: Overview, columns: int = COLUMNS) -> dict[str, Any] | None:
    """None where the records do not say when they ran."""
    division, window = overview.division, overview.window
    if not division.count or not division.wall_ns:
        return None
    steps = overview.steps
    edges = [] if steps is None else [*zip(steps.begin_ns[:_STEPS].tolist(), steps.end_ns[:_STEPS].tolist(), strict=True)]
    return {
        "wall_ns": division.wall_ns,
        "columns": columns,
        "phases": [*PHASES, "unknown"],
        "causes": list(CAUSES),
        "steps": [[begin - window.begin_ns, end - window.begin_ns] for begin, end in edges],
        "steps_left": 0 if steps is None else max(len(steps) - _STEPS, 0),
        "devices": [*_devices(overview, columns)],
        "devices_left": max(division.count - _DEVICES, 0),
        "gaps": [*_longest(overview)],
        "gaps_all": len(division.gaps),
    }


def _devices(overview: Overview, columns: int) -> Iterator[dict[str, Any]]:
    division = overview.division
    busy = _busy(overview, columns)
    idle = _idle(overview, columns)
    for at in range(min(division.count, _DEVICES)):
        yield {
            "pid": int(division.pids[at]), "number": int(division.devices[at]),
            "streams": busy[at], "idle": _sparse(idle[at], CAUSES),
        }  # fmt: skip


def _busy(overview: Overview, columns: int) -> list[list[dict[str, Any]]]:
    """For each device its streams: the number (None: several together) and, by phase, the share of each column."""
    division, records = overview.division, overview.records
    row, begins, takes = division.row, records["start_ns"], records["dur_ns"]
    device, stream = taken(division.device, row), taken(records["stream"], row)
    (of_device, number), _, lane = distinct_rows(device, stream)

    def times(part: slice) -> tuple[Ints, Ints]:
        """Begin and end of some in the window."""
        start, dur = begins[row[part]], np.maximum(takes[row[part]], 0)
        begin = np.maximum(start, division.begin_ns) - division.begin_ns
        return begin, np.maximum(np.minimum(start + dur, division.end_ns) - division.begin_ns, begin)

    spent = np.zeros(len(number), np.int64)
    for part in pieces(len(row)):
        begin, end = times(part)
        spent += summed(lane[part], end - begin, len(number))
    shown: list[tuple[int, int | None]] = []
    place, order = np.zeros(len(number), np.int64), np.lexsort((-spent, of_device))
    for at in order.tolist():
        mine = [one for one in shown if one[0] == of_device[at]]
        if len(mine) < _STREAMS:
            shown.append((int(of_device[at]), int(number[at])))
        elif len(mine) == _STREAMS:
            shown.append((int(of_device[at]), None))
        place[at] = len(shown) - 1
    kinds = len(PHASES) + 1
    phases = records["phase"]

    def intervals(part: slice) -> _Weighted:
        phase = phases[row[part]].astype(np.int64)
        group = place[lane[part]] * kinds + np.where(phase < 0, len(PHASES), phase)
        return group, *times(part), np.ones(len(group))

    share = _spread(len(row), intervals, (len(shown) * kinds, columns), division.wall_ns)
    result: list[list[dict[str, Any]]] = [[] for _ in range(division.count)]
    for (on, name), shares in zip(shown, share.reshape(len(shown), kinds, columns), strict=True):
        result[on].append({"stream": name, "busy": _sparse(shares, (*PHASES, "unknown"))})
    return result


def _idle(overview: Overview, columns: int) -> Floats:
    """(devices, CAUSES, columns): the share of each column."""
    division = overview.division
    gaps = division.gaps
    shape = (division.count * len(CAUSES), columns)
    result = np.zeros(shape)
    for code, cause in enumerate(CAUSES):
        rows, time = overview.idle.rows_of(cause)

        def intervals(part: slice, rows: Ints = rows, time: Ints = time, code: int = code) -> _Weighted:
            own = rows[part]
            length, end = gaps.time_ns[own], gaps.end_ns[own] - division.begin_ns
            group = gaps.device[own].astype(np.int64) * len(CAUSES) + code
            return group, end - length, end, time[part] / np.maximum(length, 1)

        if len(rows):
            result += _spread(len(rows), intervals, shape, division.wall_ns)
    return result.reshape(division.count, len(CAUSES), columns)


def _spread(rows: int, intervals: Callable[[slice], _Weighted], shape: tuple[int, int], wall_ns: int) -> Floats:
    """(groups, columns): the share of each column's time that intervals of each group cover. intervals: those of some rows."""
    groups, columns = shape
    width = wall_ns / columns
    # Of the first column from the begin on, of the last one up to the end, of those between them the whole.
    head, tail, between = np.zeros(groups * columns), np.zeros(groups * columns), np.zeros((groups, columns + 1))

    def edges(part: slice) -> tuple[Ints, Floats, Floats, Ints, Ints, Floats]:
        group, begin, end, weight = intervals(part)
        left, right = begin / width, end / width
        first, last = (np.minimum(each.astype(np.int64), columns - 1) for each in (left, right))
        return group, left, right, first, last, weight

    for part in pieces(rows):
        group, left, right, first, last, weight = edges(part)
        np.add.at(head, group * columns + first, weight * np.where(first == last, right - left, first + 1 - left))
        far = np.flatnonzero(first != last)
        np.add.at(tail, (group * columns + last)[far], (weight * (right - last))[far])
        np.add.at(between, (group[far], first[far] + 1), weight[far])
    for part in pieces(rows):  # after all that is added: sums of fractions depend on their order
        group, _, _, first, last, weight = edges(part)
        far = np.flatnonzero(first != last)
        np.add.at(between, (group[far], last[far]), -weight[far])
    return np.asarray((head + tail).reshape(shape) + np.cumsum(between, axis=1)[:, :columns])


def _sparse(shares: Floats, names: tuple[str, ...]) -> dict[str, list[int]]:
    """Thousandths of the columns for each name that has any; streams that overlap make no more than the whole."""
    whole = np.rint(1000 * np.clip(shares, 0, 1)).astype(np.int64)
    return {name: part.tolist() for name, part in zip(names, whole, strict=True) if part.any()}


def _longest(overview: Overview) -> Iterator[dict[str, Any]]:
    """The gaps that last longest, in order of length."""
    division, frame = overview.division, overview.frame
    gaps = division.gaps
    for at in largest(gaps.time_ns, _GAPS).tolist():
        yield {
            "device": int(gaps.device[at]),
            "start_ns": int(gaps.start_ns[at]) - division.begin_ns,
            "time_ns": int(gaps.time_ns[at]),
            "causes": [[cause, ns] for ns, cause in sorted(overview.idle.causes_of(at), reverse=True)],
            "before": _what(frame, int(gaps.before[at])),
            "after": _what(frame, int(gaps.after[at])),
        }


def _what(frame: Frame, row: int) -> str | None:
    """The op of a record, else its kernel; None at an end of the window."""
    if row < 0:
        return None
    records = frame.records
    call = int(records["call"][row])
    name = records.calls[call].op if call >= 0 else records.strings[int(records["name"][row])]
    return text_of(name) or None
