"""Records of one rank -> its activities in order of begin: layer and op of each, and how late the host launched it.

The pause before an activity counts as lateness of the host up to the launch of the activity. A rank that waits in a collective
is busy with it, so that it has no pause.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.types import Array, Integers, Ints
from pyprof.model.host import Host
from pyprof.model.records import Records
from pyprof.model.trace import ActivityKind, Trace
from pyprof.parse.attribution.pauses import LONG_NS, begin_of, doing
from pyprof.report.ranks.busy import COMMUNICATION, classes

Work = tuple[str, str]  # (layer, op)
LATE = "(launched late)"
LATE_LAUNCH: Work = ("-", LATE)  # in many short pauses, or in all
APART: Work = ("-", "(other communication)")  # with ranks that are not recorded, or between two
NOT_RECORDED = "(not recorded)"
UNKNOWN = -(1 << 62)


class Timeline(NamedTuple):
    """Activities of one unit in order of begin. start, end, launch (or UNKNOWN): ns of its own clock, as for collective calls;
    work: code into `Timelines.work`, -1 communication; pause: ns before it in which the host was late; doing: code into
    `Timelines.work` of that lateness."""

    start: Ints
    end: Ints
    launch: Ints
    work: Integers
    pause: Ints
    doing: Integers


class Timelines:
    """Timelines of all units. work: a number for each (layer, op), and for each activity of a late host, with the op
    `(launched late)`; src: source line of the first of each, if recorded; begin: when each unit began its first step, ns of its
    own clock, or its first launch if that is not known; steps: how many each unit has."""

    def __init__(self) -> None:
        self.work: dict[Work, int] = {LATE_LAUNCH: 0, APART: 1}
        self.src: dict[int, str] = {}
        self.begin: list[int] = []
        self.begin_known: list[bool] = []
        self.steps: list[int] = []
        self.units: list[Timeline] = []  # in the order of `add`

    def add(self, records: Records, origin: int, steps: int, trace: Trace | None = None) -> None:
        """One unit. origin: ns to add to its times; trace: its capture, None for records alone."""
        rows = np.flatnonzero(records["step"] >= 0)  # launches of steps, or all without steps
        rows = rows if len(rows) else np.arange(len(records))
        rows = rows[np.argsort(records["start_ns"][rows], kind="stable")]
        kind, phase, start, dur, launch = (records[name][rows] for name in ("kind", "phase", "start_ns", "dur_ns", "launch_ns"))
        launch = np.where((launch < 0) & (kind == ActivityKind.CPU), start, launch)
        first, least = int(launch[0] if launch[0] >= 0 else start[0]), int(records["step"][rows].min())
        pid, host = int(records["pid"][rows[0]]), records.host
        if trace is not None:
            begun = begin_of(trace, pid, least, int(start[0]))
        else:
            known = {} if host is None else {one[:2]: one[2] for one in host.begins}
            begun = known.get((pid, least), -1)
        self.begin_known.append(0 <= begun <= first)
        begun = begun if self.begin_known[-1] else first
        pause = late_launches(start, dur, launch, begun)
        codes, of_row = self._codes(records, rows)
        doing = self._doing(records, rows, launch, pause, trace)
        self.begin.append(begun + origin)
        self.steps.append(steps)
        talks = classes(kind, phase) == COMMUNICATION
        self.units.append(
            Timeline(
                start + origin,
                start + np.maximum(dur, 0) + origin,
                np.where(launch >= 0, launch + origin, UNKNOWN),
                np.where(talks, -1, codes[of_row]).astype(np.int32),
                pause,
                doing,
            )
        )

    def _codes(self, records: Records, rows: Array) -> tuple[Ints, Ints]:
        """(code into `Timelines.work` of each distinct work, for each row its index into these)."""
        distinct = distinct_rows(records["scope"][rows], records["call"][rows])
        codes = np.zeros(distinct.columns.shape[1], np.int64)
        for at, (scope, call) in enumerate(distinct.columns.T.tolist()):
            stack = records.stacks[scope] if scope >= 0 else None
            layer = ":".join(stack.layer) if stack is not None else ""
            op = records.calls[call].op if call >= 0 else "na"
            codes[at] = code = self.work.setdefault((layer or "-", op), len(self.work))
            if stack is not None and stack.trace:
                self.src.setdefault(code, stack.trace[-1])
        return codes, distinct.inverse

    def _doing(self, records: Records, rows: Ints, launch: Ints, pause: Ints, trace: Trace | None) -> Array:
        """Code of the host's activity in each pause; of records without a host, of the user's range that it launched from."""
        codes, long = np.zeros(len(rows), np.int32), np.flatnonzero(pause >= LONG_NS)
        if not len(long):
            return codes
        pid, tid = (records[name][rows[long]].astype(np.int64) for name in ("pid", "tid"))
        if trace is not None:
            names = doing(trace, pid, tid, launch[long] - pause[long], launch[long])
        elif records.host is not None:
            names = _recorded(records.host, pid, tid, launch[long])
        else:
            ranges = [stack.ranges[-1] if stack.ranges else "" for stack in records.stacks] + [""]
            names = [ranges[code] for code in records["stack"][rows[long]].tolist()]
        codes[long] = [self.work.setdefault((name or NOT_RECORDED, LATE), len(self.work)) for name in names]
        return codes


def _recorded(host: Host, pid: Ints, tid: Ints, launch: Ints) -> list[str]:
    """Activities of threads before these launches, '' if not recorded."""
    known = {
        (one.pid, one.tid, launched): one.names[code]
        for one in host.doing
        for launched, code in zip(one.launch_ns, one.code, strict=True)
    }
    return [known.get(key, "") for key in zip(pid.tolist(), tid.tolist(), launch.tolist(), strict=True)]


def late_launches(start: Ints, dur: Integers, launch: Ints, begin: int | None = None) -> Ints:
    """For each activity of a GPU the ns of the pause before it that had passed when it was launched.

    All in order of start; launch: -1 unknown; begin: when the host began, None: with the first activity.
    """
    ends = np.maximum.accumulate(start + np.maximum(dur, 0))
    before = np.append(start[:1] if begin is None else np.full(len(start[:1]), begin), ends[:-1])
    return np.asarray(np.maximum(np.minimum(launch, start) - before, 0))
