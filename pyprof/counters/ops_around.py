"""A capture -> the ops around each measured launch. Knows no metric."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from pyprof.columns.types import Ints
from pyprof.counters.match import AMBIGUOUS, NONE, ORDER, Match, unmatched
from pyprof.model.markers import Kind
from pyprof.model.opcall import OpRules
from pyprof.model.records import Records
from pyprof.model.trace import ActivityKind, Trace, make_table
from pyprof.parse.attribution.ops import ops_around
from pyprof.parse.attribution.ranges import CaptureFacts

OpStack = tuple[str, ...]
_OPS = (Kind.OP, Kind.DISPATCH, Kind.BACKWARD)
_LAUNCHES = re.compile(r"(cuda|hip|cu)(Ext)?(Module)?Launch(Cooperative)?Kernel")
_GRAPHS = re.compile(r"(cuda|hip|cu)GraphLaunch")


def ops_at(trace: Trace, rules: OpRules, thread: Ints, when: Ints) -> list[OpStack]:
    """The names of the ops open on each thread (row of `threads`) at each time, outermost first, without their namespaces.

    Each distinct innermost range is looked at once.
    """
    capture = CaptureFacts(trace, rules)
    nested = ops_around(capture).nested
    at = nested.innermost(thread, when)
    known: dict[int, OpStack] = {-1: ()}
    label, parent = capture.ranges["label"], nested.parent
    for position in at.tolist():
        chain = []
        while position not in known:
            chain.append(position)
            position = int(parent[position])
        for inner in reversed(chain):
            marker = trace.markers[label[nested.row[inner]]]
            name = marker.call.op if marker.call is not None else marker.name
            known[inner] = known[position] + ((name,) if marker.kind in _OPS else ())
            position = inner
    return [known[position] for position in at.tolist()]


def ops_of_ranges(trace: Trace, rules: OpRules) -> tuple[list[OpStack | None], Match]:
    """The ops around the launches that torch.profiler measured, which have an order and no times.

    The n-th was launched by the n-th call that launches a kernel. Where there are more of one than of the other, or several
    devices, whose order among each other is not known, each may belong to several calls, those that launch graphs included: it
    has their ops where these agree.
    """
    assert trace.measured is not None
    count, calls, graphs = len(trace.measured), _kernel_launches(trace), _calls(trace, _GRAPHS)
    both = np.concatenate([calls, graphs])
    stacks = ops_at(trace, rules, trace.launches["thread"][both].astype(np.int64), trace.launches["start_ns"][both])
    stacks, of_graphs = stacks[: len(calls)], set(stacks[len(calls) :])
    found: list[OpStack | None] = [None] * count
    devices = np.array([launch.device for launch in trace.measured.launches])
    for device in np.unique(devices).tolist():
        rows = np.flatnonzero(devices == device).tolist()
        spare = len(calls) - len(rows)
        for nth, row in enumerate(rows):
            first, last = sorted((nth, nth + spare))
            fitting = set(stacks[max(first, 0) : last + 1]) | (of_graphs if spare < 0 else set())
            found[row] = fitting.pop() if len(fitting) == 1 else None
    one = len(calls) == count and len(set(devices.tolist())) == 1
    return found, unmatched(count, ORDER if one else AMBIGUOUS if len(calls) else NONE)


def with_kernels(trace: Trace, match: Match) -> Trace | None:
    """The trace with the kernels that it measured but does not hold; None if a launch is not settled.

    Their correlation ids are the numbers of the launches. All are as long as each other, so that several main kernels of an op
    have equal parts of its FLOPs.
    """
    calls, measured = _kernel_launches(trace), trace.measured
    if measured is None or (match.how != ORDER).any() or len(trace.activities["kind"]):
        return None
    launches = {name: column.copy() for name, column in trace.launches.items()}
    launches["corr"][:] = -1
    launches["corr"][calls] = np.arange(len(calls))
    start = launches["start_ns"][calls]
    columns = {
        "kind": np.full(len(calls), ActivityKind.KERNEL),
        "start_ns": start,
        "end_ns": start + 1,
        "process": trace.threads["process"][launches["thread"][calls]],
        "device": np.array([launch.device for launch in measured.launches]),
        "corr": launches["corr"][calls],
        "name": np.array([trace.strings.code(launch.name) for launch in measured.launches], np.int64),
    }
    return replace(trace, launches=launches, activities=make_table("activities", columns))


def _kernel_launches(trace: Trace) -> Ints:
    """The calls that launch one kernel, in order of begin, without driver calls inside a runtime call."""
    launches, rows = trace.launches, _calls(trace, _LAUNCHES)
    rows = rows[np.lexsort((-launches["end_ns"][rows], launches["start_ns"][rows], launches["thread"][rows]))]
    ends = launches["end_ns"][rows]
    same = np.append(False, launches["thread"][rows][1:] == launches["thread"][rows][:-1])
    inside = same & (ends <= np.append(-1, ends[:-1])) if len(rows) else same[:0]
    rows = rows[~inside]
    return rows[np.argsort(launches["start_ns"][rows], kind="stable")]


def _calls(trace: Trace, pattern: re.Pattern[str]) -> Ints:
    """The API calls of some names."""
    names, code = np.unique(trace.launches["name"], return_inverse=True)
    fits = np.array([pattern.match(trace.strings[name]) is not None for name in names.tolist()], np.bool_)
    return np.flatnonzero(fits[code.ravel()]) if len(code) else np.zeros(0, np.int64)


def ops_of_records(records: Records, trace: Trace | None, rules: OpRules, match: Match) -> list[OpStack | None]:
    """The ops around each launch, by its record; none where several records fit and differ.

    Without the capture itself, the op and the innermost op of the record.
    """
    rows = np.unique(match.pool)
    if trace is None:
        both = zip(records["call"][rows].tolist(), records["inner"][rows].tolist(), strict=True)
        stacks = [tuple(records.calls[code].op for code in dict.fromkeys(codes) if code >= 0) for codes in both]
    else:
        pids = trace.processes["pid"][trace.threads["process"]].tolist()
        threads = {key: row for row, key in enumerate(zip(pids, trace.threads["tid"].tolist(), strict=True))}
        keys = zip(records["pid"][rows].tolist(), records["tid"][rows].tolist(), strict=True)
        thread = np.array([threads.get(key, -1) for key in keys], np.int64)
        stacks = ops_at(trace, rules, thread, records["launch_ns"][rows])
    number = {stack: code for code, stack in enumerate(dict.fromkeys(stacks))}
    codes = np.full(len(records), -1)
    codes[rows] = [number[stack] for stack in stacks]
    found: list[OpStack | None] = [*number, None]
    return [found[code] for code in match.agreed(codes).tolist()]
