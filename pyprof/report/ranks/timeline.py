"""Records of one rank -> its activities in order of begin: layer and op of each, and how late the host launched it.

The pause before an activity counts as lateness of the host up to the launch of the activity. A rank that waits in a collective
is busy with it, so that it has no pause. One unit at a time, the others in a temporary file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.types import Ints
from pyprof.parse.records.records import Records
from pyprof.parse.sources.trace import ActivityKind, Trace
from pyprof.report.ranks import host
from pyprof.report.ranks.busy import COMMUNICATION, classes

Work = tuple[str, str]  # (layer, op)
LATE = "(launched late)"
LATE_LAUNCH: Work = ("-", LATE)  # in many short pauses, or in all
APART: Work = ("-", "(other communication)")  # with ranks that are not recorded, or between two
NOT_RECORDED = "(not recorded)"
UNKNOWN = -(1 << 62)
_LONG_NS = 50_000  # from here on it matters what the host did in a pause


class Timeline(NamedTuple):
    """Activities of one unit in order of begin. start, end, launch (or UNKNOWN): ns of its own clock, as meetings have them;
    work: code into `Timelines.work`, -1 communication; pause: ns before it in which the host was late; doing: code into
    `Timelines.work` of that lateness."""

    start: Ints
    end: Ints
    launch: Ints
    work: Ints
    pause: Ints
    doing: Ints


class Timelines:
    """Those of all units. work: a number for each (layer, op), and for each thing that the host did while it was late, with the
    op `(launched late)`; src: the source line of the first of each, where recorded; begin: of each unit, when it began its
    first step, ns of its own clock, its first launch where that is not known; steps: of each unit."""

    def __init__(self) -> None:
        self.work: dict[Work, int] = {LATE_LAUNCH: 0, APART: 1}
        self.src: dict[int, str] = {}
        self.begin: list[int] = []
        self.begin_known: list[bool] = []
        self.steps: list[int] = []
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="pyprof-ranks-")
        self._blocks: list[int] = []

    def close(self) -> None:
        """Remove the temporary file."""
        self._file.close()

    def add(self, records: Records, origin: int, steps: int, trace: Trace | None = None) -> None:
        """One unit. origin: ns to add to its times; trace: its capture, None where only records are known."""
        step = records["step"]
        inside = np.flatnonzero((step >= 0) | ~(step >= 0).any())
        rows = inside[np.argsort(records["start_ns"][inside], kind="stable")]
        names = ("kind", "start_ns", "dur_ns", "launch_ns")
        kind, start, dur, launch = (records[name][rows].astype(np.int64) for name in names)
        launch = np.where((launch < 0) & (kind == ActivityKind.CPU), start, launch)
        first = int(np.where(launch >= 0, launch, start)[:1].sum())
        begun = (
            -1 if trace is None else host.begin_of(trace, int(records["pid"][rows[0]]), int(step[rows].min()), int(start[0]))
        )
        self.begin_known.append(0 <= begun <= first)
        begun = begun if self.begin_known[-1] else first
        pause = late_launches(start, dur, launch, begun)
        work = np.where(classes(records)[rows] == COMMUNICATION, -1, self._codes(records, rows))
        doing = self._doing(records, rows, launch, pause, trace)
        self.begin.append(begun + origin)
        self.steps.append(steps)
        self._blocks.append(self._file.tell())
        known = np.where(launch >= 0, launch + origin, UNKNOWN)
        end = start + np.maximum(dur, 0)
        np.save(self._file, np.stack([start + origin, end + origin, known, work, pause, doing]))

    def _codes(self, records: Records, rows: Ints) -> Ints:
        distinct = distinct_rows(records["scope"][rows], records["call"][rows])
        codes = np.zeros(distinct.columns.shape[1], np.int64)
        for at, (scope, call) in enumerate(distinct.columns.T.tolist()):
            stack = records.stacks[scope] if scope >= 0 else None
            layer = ":".join(stack.layer) if stack is not None else ""
            op = records.calls[call].op if call >= 0 else "na"
            codes[at] = code = self.work.setdefault((layer or "-", op), len(self.work))
            if stack is not None and stack.trace:
                self.src.setdefault(code, stack.trace[-1])
        return codes[distinct.inverse]

    def _doing(self, records: Records, rows: Ints, launch: Ints, pause: Ints, trace: Trace | None) -> Ints:
        """What the host did in each pause; without a capture the user's range from which it launched then."""
        codes = np.zeros(len(rows), np.int64)
        long = np.flatnonzero(pause >= _LONG_NS)
        if not len(long):
            return codes
        if trace is None:
            ranges = [stack.ranges[-1] if stack.ranges else "" for stack in records.stacks] + [""]
            return self._named(codes, long, [ranges[code] for code in records["stack"][rows[long]].tolist()])
        pid, tid = (records[name][rows[long]].astype(np.int64) for name in ("pid", "tid"))
        return self._named(codes, long, host.doing(trace, pid, tid, launch[long] - pause[long], launch[long]))

    def _named(self, codes: Ints, rows: Ints, names: list[str]) -> Ints:
        codes[rows] = [self.work.setdefault((name or NOT_RECORDED, LATE), len(self.work)) for name in names]
        return codes

    def units(self) -> Iterator[Timeline]:
        """Each unit's, in the order of `add`."""
        for position in self._blocks:
            self._file.seek(position)
            yield Timeline(*np.load(self._file))


def late_launches(start: Ints, dur: Ints, launch: Ints, begin: int | None = None) -> Ints:
    """For each activity of a GPU the ns of the pause before it that had passed when it was launched.

    All in order of start; launch: -1 unknown; begin: when the host began, None: with the first activity.
    """
    end = np.maximum.accumulate(start + np.maximum(dur, 0))
    before = np.concatenate([start[:1] if begin is None else np.full(len(start[:1]), begin), end[:-1]])
    late: Ints = np.clip(np.minimum(launch, start) - before, 0, None)
    return late
