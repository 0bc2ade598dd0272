"""Records of one rank -> its activities in order of begin: layer and op of each, and how late the host launched it.

The pause before an activity counts as lateness of the host up to the launch of the activity. A rank that waits in a collective
is busy with it, so that it has no pause. One unit at a time, the others in a temporary file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from pyprof.arrays.columns import distinct_rows, extent
from pyprof.arrays.joining import rows_where
from pyprof.arrays.shelf import Shelf
from pyprof.arrays.sorting import order_by
from pyprof.arrays.spool import computed, full, pieces, running_most, taken
from pyprof.arrays.types import Array, Integers, Ints
from pyprof.parse.attribution.pauses import LONG_NS, begin_of, doing
from pyprof.parse.records.host import Host
from pyprof.parse.records.records import Records
from pyprof.parse.sources.trace import ActivityKind, Trace
from pyprof.report.ranks.busy import COMMUNICATION, classes

Work = tuple[str, str]  # (layer, op)
LATE = "(launched late)"
LATE_LAUNCH: Work = ("-", LATE)  # in many short pauses, or in all
APART: Work = ("-", "(other communication)")  # with ranks that are not recorded, or between two
NOT_RECORDED = "(not recorded)"
UNKNOWN = -(1 << 62)


class Timeline(NamedTuple):
    """Activities of one unit in order of begin. start, end, launch (or UNKNOWN): ns of its own clock, as meetings have them;
    work: code into `Timelines.work`, -1 communication; pause: ns before it in which the host was late; doing: code into
    `Timelines.work` of that lateness."""

    start: Ints
    end: Ints
    launch: Ints
    work: Integers
    pause: Ints
    doing: Integers


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
        self._shelf = Shelf()

    def close(self) -> None:
        """Remove the temporary file."""
        self._shelf.close()

    def add(self, records: Records, origin: int, steps: int, trace: Trace | None = None) -> None:
        """One unit. origin: ns to add to its times; trace: its capture, None where only records are known."""
        rows = _rows_in_order(records)
        names = ("kind", "phase", "start_ns", "dur_ns", "launch_ns")
        kind, phase, start, dur, recorded = (taken(records[name], rows) for name in names)
        launch = computed(
            len(rows),
            np.int64,
            lambda part: np.where((recorded[part] < 0) & (kind[part] == ActivityKind.CPU), start[part], recorded[part]),
        )
        first = int(np.where(launch[:1] >= 0, launch[:1], start[:1]).sum())
        least = extent(taken(records["step"], rows))[0]
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

        def column(of_part: Callable[[slice], Array], dtype: type[np.signedinteger[Any]] = np.int64) -> Array:
            return computed(len(rows), dtype, of_part)

        self._shelf.add(
            column(lambda part: start[part] + np.int64(origin)),
            column(lambda part: start[part] + np.maximum(dur[part], 0) + np.int64(origin)),
            column(lambda part: np.where(launch[part] >= 0, launch[part] + origin, UNKNOWN)),
            column(lambda p: np.where(classes(kind[p], phase[p]) == COMMUNICATION, -1, codes[of_row[p]]), np.int32),
            pause,
            doing,
        )

    def _codes(self, records: Records, rows: Array) -> tuple[Ints, Ints]:
        """Numbers of distinct work, and which of these each row is."""
        distinct = distinct_rows(taken(records["scope"], rows), taken(records["call"], rows))
        codes = np.zeros(distinct.columns.shape[1], np.int64)
        for at, (scope, call) in enumerate(distinct.columns.T.tolist()):
            stack = records.stacks[scope] if scope >= 0 else None
            layer = ":".join(stack.layer) if stack is not None else ""
            op = records.calls[call].op if call >= 0 else "na"
            codes[at] = code = self.work.setdefault((layer or "-", op), len(self.work))
            if stack is not None and stack.trace:
                self.src.setdefault(code, stack.trace[-1])
        return codes, distinct.inverse

    def _doing(self, records: Records, rows: Array, launch: Ints, pause: Ints, trace: Trace | None) -> Array:
        """What the host did in each pause; without a capture the user's range from which it launched then."""
        codes = full(len(rows), 0, np.int32)
        long = rows_where(len(pause), lambda part: pause[part] >= LONG_NS)
        if not len(long):
            return codes
        pid, tid = (records[name][rows[long]].astype(np.int64) for name in ("pid", "tid"))
        if trace is None and records.host is not None:
            return self._named(codes, long, _recorded(records.host, pid, tid, launch[long]))
        if trace is None:
            ranges = [stack.ranges[-1] if stack.ranges else "" for stack in records.stacks] + [""]
            return self._named(codes, long, [ranges[code] for code in records["stack"][rows[long]].tolist()])
        return self._named(codes, long, doing(trace, pid, tid, launch[long] - pause[long], launch[long]))

    def _named(self, codes: Array, rows: Array, names: list[str]) -> Array:
        codes[rows] = [self.work.setdefault((name or NOT_RECORDED, LATE), len(self.work)) for name in names]
        return codes

    def units(self) -> Iterator[Timeline]:
        """Each unit's, in the order of `add`."""
        for columns in self._shelf:
            yield Timeline(*columns)


def _recorded(host: Host, pid: Ints, tid: Ints, launch: Ints) -> list[str]:
    """What threads did before these launches, '' where that is not recorded."""
    known = {
        (one.pid, one.tid, launched): one.names[code]
        for one in host.doing
        for launched, code in zip(one.launch_ns, one.code, strict=True)
    }
    return [known.get(key, "") for key in zip(pid.tolist(), tid.tolist(), launch.tolist(), strict=True)]


def _rows_in_order(records: Records) -> Array:
    """The rows of steps, or all where there are no steps, in order of begin."""
    step, start = records["step"], records["start_ns"]
    any_step = any((step[part] >= 0).any() for part in pieces(len(step)))
    rows = rows_where(len(step), lambda part: (step[part] >= 0) | np.bool_(not any_step))
    return taken(rows, order_by(taken(start, rows), lambda rows: ()))


def late_launches(start: Ints, dur: Integers, launch: Ints, begin: int | None = None) -> Ints:
    """For each activity of a GPU the ns of the pause before it that had passed when it was launched.

    All in order of start; launch: -1 unknown; begin: when the host began, None: with the first activity.
    """
    latest = running_most(computed(len(start), np.int64, lambda part: start[part] + np.maximum(dur[part], 0)))

    def late(part: slice) -> Ints:
        before = latest[max(part.start - 1, 0) : part.stop - 1]
        if part.start == 0:
            before = np.append(start[:1] if begin is None else np.full(len(start[:1]), begin), before)
        return np.asarray(np.maximum(np.minimum(launch[part], start[part]) - before, 0))

    return computed(len(start), np.int64, late)
