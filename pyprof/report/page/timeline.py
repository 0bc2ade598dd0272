"""The division of a window -> a timeline of so many columns: per stream the busy time by phase, per device the idle time by
cause, and the longest gaps one by one.

Its size does not grow with the kernels. Times are in ns since the window's begin; shares of a column are in thousandths.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.intervals import summed
from pyprof.arrays.types import Floats, Ints
from pyprof.parse.records.records import PHASES
from pyprof.prof.frame import Frame
from pyprof.report.hostside import CAUSES
from pyprof.report.overview import Overview
from pyprof.tables.names import text_of

COLUMNS = 800
_STREAMS = 8  # of a device, those with most time; the others are one together
_DEVICES = 16
_GAPS, _STEPS = 60, 200


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
    row = division.row
    device, stream = division.device[row], records["stream"][row].astype(np.int64)
    phase = records["phase"][row].astype(np.int64)
    phase = np.where(phase < 0, len(PHASES), phase)
    begin = np.maximum(records["start_ns"][row], division.begin_ns) - division.begin_ns
    end = np.minimum(records["start_ns"][row] + np.maximum(records["dur_ns"][row], 0), division.end_ns) - division.begin_ns
    end = np.maximum(end, begin)
    (of_device, number), _, lane = distinct_rows(device, stream)
    spent = summed(lane, end - begin, len(number))
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
    group = place[lane] * kinds + phase
    share = _spread(group, begin, end, np.ones(len(group)), (len(shown) * kinds, columns), division.wall_ns)
    result: list[list[dict[str, Any]]] = [[] for _ in range(division.count)]
    for (on, name), part in zip(shown, share.reshape(len(shown), kinds, columns), strict=True):
        result[on].append({"stream": name, "busy": _sparse(part, (*PHASES, "unknown"))})
    return result


def _idle(overview: Overview, columns: int) -> Floats:
    """(devices, CAUSES, columns): the share of each column."""
    division = overview.division
    gaps = division.gaps
    shape = (division.count * len(CAUSES), columns)
    result = np.zeros(shape)
    for code, cause in enumerate(CAUSES):
        rows, time = overview.idle.rows_of(cause)
        if len(rows):
            end = gaps.ends(rows) - division.begin_ns
            part, group = time / np.maximum(gaps.time_ns[rows], 1), gaps.device[rows].astype(np.int64) * len(CAUSES) + code
            result += _spread(group, end - gaps.time_ns[rows], end, part, shape, division.wall_ns)
    return result.reshape(division.count, len(CAUSES), columns)


def _spread(group: Ints, begin: Ints, end: Ints, weight: Floats, shape: tuple[int, int], wall_ns: int) -> Floats:
    """(groups, columns): the share of each column's time that weighted intervals of each group cover."""
    groups, columns = shape
    width = wall_ns / columns
    left, right = begin / width, end / width
    first, last = np.minimum(left.astype(np.int64), columns - 1), np.minimum(right.astype(np.int64), columns - 1)
    # Of the first column from the begin on, of the last one up to the end, of those between them the whole.
    at, size = group * columns, groups * columns
    same = first == last
    found = np.bincount(at + first, weight * np.where(same, right - left, first + 1 - left), size)
    far = np.flatnonzero(~same)
    found += np.bincount((at + last)[far], (weight * (right - last))[far], size)
    between = np.zeros((groups, columns + 1))
    np.add.at(between, (group[far], first[far] + 1), weight[far])
    np.add.at(between, (group[far], last[far]), -weight[far])
    return np.asarray(found.reshape(shape) + np.cumsum(between, axis=1)[:, :columns])


def _sparse(shares: Floats, names: tuple[str, ...]) -> dict[str, list[int]]:
    """Thousandths of the columns for each name that has any; streams that overlap make no more than the whole."""
    whole = np.rint(1000 * np.clip(shares, 0, 1)).astype(np.int64)
    return {name: part.tolist() for name, part in zip(names, whole, strict=True) if part.any()}


def _longest(overview: Overview) -> Iterator[dict[str, Any]]:
    """The gaps that last longest, in order of length."""
    division, frame = overview.division, overview.frame
    gaps = division.gaps
    for at in np.argsort(-gaps.time_ns, kind="stable")[:_GAPS].tolist():
        yield {
            "device": int(gaps.device[at]),
            "start_ns": int(gaps.starts(slice(at, at + 1))[0]) - division.begin_ns,
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
