"""The division of a window -> a timeline of so many columns, with the longest ops and gaps, and where devices idle.

The timeline has the busy time of each stream by phase and the idle time of each device by cause. Its size does not grow with
the kernels. Times are in ns since the window's begin; shares of a column are in thousandths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows, largest
from pyprof.columns.intervals import summed
from pyprof.columns.types import Floats, Ints
from pyprof.hardware.names import short_name
from pyprof.model.records import PHASES
from pyprof.prof.frame import Frame
from pyprof.prof.group import layer_names
from pyprof.report.time.causes import CAUSES
from pyprof.report.time.overview import Overview
from pyprof.tables.names import text_of

COLUMNS = 800
_FINE, _SHARES = 4_000, 120_000  # columns that a zoom can use, and shares of all lanes together
_SPANS = 8_000  # ops by themselves
_STREAMS = 8  # of a device: those with most time, the others together
_DEVICES = 16
_GAPS, _STEPS, _PLACES = 60, 200, 40


def timeline_of(overview: Overview, files: int = 1) -> dict[str, Any] | None:
    """The timeline as data for JSON; None if the records have no times. files: how many share the page."""
    division, window = overview.division, overview.window
    if not division.count or not division.wall_ns:
        return None
    lanes = _lanes(overview)
    parts = len(lanes.shown) * (len(PHASES) + 1) + min(division.count, _DEVICES) * len(CAUSES)  # lists of shares, at most
    fine = min(_FINE, _SHARES // parts, 8 * len(division.row))
    columns = max(fine, COLUMNS) // files
    steps, busy, idle = overview.steps, _busy(overview, lanes, columns), _idle(overview, columns)
    edges = [] if steps is None else [*zip(steps.begin_ns[:_STEPS].tolist(), steps.end_ns[:_STEPS].tolist(), strict=True)]
    return {
        "wall_ns": division.wall_ns,
        "columns": columns,
        "phases": [*PHASES, "unknown"],
        "causes": list(CAUSES),
        "steps": [[begin - window.begin_ns, end - window.begin_ns] for begin, end in edges],
        "steps_left": 0 if steps is None else max(len(steps) - _STEPS, 0),
        "devices": [
            {
                "pid": int(division.pids[at]),
                "number": int(division.devices[at]),
                "streams": busy[at],
                "idle": _sparse(idle[at], CAUSES),
            }
            for at in range(min(division.count, _DEVICES))
        ],
        "devices_left": max(division.count - _DEVICES, 0),
        "spans": _spans(overview, lanes, _SPANS // files),
        "gaps": [*_longest(overview)],
        "gaps_all": len(division.gaps),
    }


class _Lanes(NamedTuple):
    """Streams by themselves: shown: (device, stream; None: several together) of each; of: lane of each row of the division;
    begin, end: of each row in the window."""

    shown: list[tuple[int, int | None]]
    of: Ints
    begin: Ints
    end: Ints


def _lanes(overview: Overview) -> _Lanes:
    division, records = overview.division, overview.records
    row = division.row
    (of_device, number), _, lane = distinct_rows(division.device[row], records["stream"][row])
    start, dur = records["start_ns"][row], np.maximum(records["dur_ns"][row], 0)
    begin = np.maximum(start, division.begin_ns) - division.begin_ns
    end = np.maximum(np.minimum(start + dur, division.end_ns) - division.begin_ns, begin)
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
    return _Lanes(shown, place[lane], begin, end)


def _busy(overview: Overview, lanes: _Lanes, columns: int) -> list[list[dict[str, Any]]]:
    """Per device its streams: number (None: several together) and busy share of each column by phase."""
    division, shown = overview.division, lanes.shown
    kinds = len(PHASES) + 1
    phase = overview.records["phase"][division.row].astype(np.int64)
    group = lanes.of * kinds + np.where(phase < 0, len(PHASES), phase)
    share = _spread(group, lanes.begin, lanes.end, np.ones(len(group)), (len(shown) * kinds, columns), division.wall_ns)
    result: list[list[dict[str, Any]]] = [[] for _ in range(division.count)]
    for (on, name), shares in zip(shown, share.reshape(len(shown), kinds, columns), strict=True):
        result[on].append({"stream": name, "busy": _sparse(shares, (*PHASES, "unknown"))})
    return result


def _spans(overview: Overview, lanes: _Lanes, most: int) -> dict[str, Any]:
    """The longest ops as columns. A span: kernels of one op right after one another on a lane; by kernel name without an op."""
    division, records = overview.division, overview.records
    ops, op_of = _codes([one.op for one in records.calls])
    call, name = records["call"][division.row], records["name"][division.row]
    op, phase = np.where(call >= 0, op_of[call], -1), records["phase"][division.row].astype(np.int64)
    name = np.where(op < 0, name, -1)
    order = np.lexsort((lanes.begin, lanes.of))
    lane, op, phase, name, begin, end = (each[order] for each in (lanes.of, op, phase, name, lanes.begin, lanes.end))
    alike = (lane[1:] == lane[:-1]) & (op[1:] == op[:-1]) & (phase[1:] == phase[:-1]) & (name[1:] == name[:-1])
    close = begin[1:] - end[:-1] <= division.wall_ns // (8 * COLUMNS)
    first = np.flatnonzero(np.append(True, ~(alike & close))[: len(lane)])
    last = np.append(first[1:], len(lane)) - 1
    dur = end[last] - begin[first]
    chosen = np.sort(largest(dur, most))
    at = first[chosen]
    texts = [ops[code] if code >= 0 else short_name(records.strings[text])
             for code, text in zip(op[at].tolist(), name[at].tolist(), strict=True)]  # fmt: skip
    names = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return {
        "all": len(chosen) == len(first), "lane": lane[at].tolist(), "start_ns": begin[at].tolist(),
        "dur_ns": dur[chosen].tolist(),
        "phase": np.where(phase[at] < 0, len(PHASES), phase[at]).tolist(), "op": [names[text] for text in texts],
        "names": [text_of(text) or "(no name)" for text in names],
    }  # fmt: skip


def _idle(overview: Overview, columns: int) -> Floats:
    """(devices, CAUSES, columns): the idle share of each column."""
    division = overview.division
    gaps = division.gaps
    shape = (division.count * len(CAUSES), columns)
    result = np.zeros(shape)
    for code, cause in enumerate(CAUSES):
        rows, time = overview.idle.rows_of(cause)
        length, end = gaps.time_ns[rows], gaps.end_ns[rows] - division.begin_ns
        group = gaps.device[rows].astype(np.int64) * len(CAUSES) + code
        result += _spread(group, end - length, end, time / np.maximum(length, 1), shape, division.wall_ns)
    return result.reshape(division.count, len(CAUSES), columns)


def _spread(group: Ints, begin: Ints, end: Ints, weight: Floats, shape: tuple[int, int], wall_ns: int) -> Floats:
    """(groups, columns): the share of each column's time that the weighted intervals of each group cover."""
    groups, columns = shape
    width = wall_ns / columns
    # An interval fills its first column from its begin on, its last one up to its end, those between completely.
    head, tail, between = np.zeros(groups * columns), np.zeros(groups * columns), np.zeros((groups, columns + 1))
    left, right = begin / width, end / width
    first, last = (np.minimum(each.astype(np.int64), columns - 1) for each in (left, right))
    far = np.flatnonzero(first != last)
    np.add.at(head, group * columns + first, weight * np.where(first == last, right - left, first + 1 - left))
    np.add.at(tail, (group * columns + last)[far], (weight * (right - last))[far])
    np.add.at(between, (group[far], first[far] + 1), weight[far])
    np.add.at(
        between, (group[far], last[far]), -weight[far]
    )  # after all that is added: sums of fractions depend on their order
    return np.asarray((head + tail).reshape(shape) + np.cumsum(between, axis=1)[:, :columns])


def _sparse(shares: Floats, names: tuple[str, ...]) -> dict[str, list[int]]:
    """Thousandths of each column by name, capped at the whole column; names without any are left out."""
    whole = np.rint(1000 * np.clip(shares, 0, 1)).astype(np.int64)
    return {name: part.tolist() for name, part in zip(names, whole, strict=True) if part.any()}


def _longest(overview: Overview) -> Iterator[dict[str, Any]]:
    """The longest gaps, longest first."""
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


def places_of(overview: Overview) -> list[dict[str, Any]]:
    """The ops before which the devices idled longest: op (or kernel name, or the window's end), layer, number of gaps; time_ns
    and causes with their ns are means over the devices."""
    gaps, records, idle = overview.division.gaps, overview.records, overview.idle
    if not len(gaps):
        return []
    after = gaps.after
    ops, op_of = _codes([one.op for one in records.calls])
    layers, layer_of = _codes(["".join(layer_names(one.layer))[1:] for one in records.stacks])

    call, scope, there = records["call"][after], records["scope"][after], after >= 0
    op = np.where(there, op_of[call], -2)
    name = np.where(op == -1, records["name"][after], -1)
    (op, name, layer), _, group = distinct_rows(op, name, np.where(there, layer_of[scope], -1))
    count, devices = len(op), max(overview.division.count, 1)
    time = summed(group, gaps.time_ns.astype(np.int64), count) // devices
    gaps_of = np.bincount(group, minlength=count)
    causes = {}
    for cause in CAUSES:
        rows, ns = idle.rows_of(cause)
        causes[cause] = summed(group[rows], ns, count) // devices

    def what(at: int) -> str:
        if op[at] == -2:
            return "the window's end"
        return text_of(ops[op[at]] if op[at] >= 0 else records.strings[int(name[at])])

    return [
        {
            "op": what(at), "layer": text_of(layers[layer[at]]) if layer[at] >= 0 else "", "gaps": int(gaps_of[at]),
            "time_ns": int(time[at]),
            "causes": sorted(([cause, int(ns[at])] for cause, ns in causes.items() if ns[at]), key=lambda one: -one[1]),
        }
        for at in np.argsort(-time, kind="stable")[:_PLACES].tolist()
    ]  # fmt: skip


def _codes(texts: Sequence[str]) -> tuple[list[str], Ints]:
    """(distinct texts; the place of each text among them, and -1 at the end for none)."""
    known = dict.fromkeys(texts)
    code = {text: number for number, text in enumerate(known)}
    return [*known], np.array([*map(code.__getitem__, texts), -1], np.int64)
