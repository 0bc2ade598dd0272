"""A capture, or records -> what every part of a report looks at: its window, its steps, one division of its time, the costs.

The window runs from the first complete step to the last one's end, or where no steps are marked from the first kernel to the
last (see `pyprof help terms`). What was launched before, up to the end of a range named warm-up, is set-up. Knows no advice and
no text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np

from pyprof.arrays.columns import among, distinct_rows
from pyprof.arrays.intervals import spans, summed
from pyprof.arrays.processes import at_once
from pyprof.arrays.spool import kept, pieces
from pyprof.arrays.types import Bools, Ints
from pyprof.parse.records.records import Records
from pyprof.parse.sources.trace import ActivityKind, Trace
from pyprof.prof.frame import Frame
from pyprof.report.calls import Calls, calls_of
from pyprof.report.division import BUSY, Division, mean_parts
from pyprof.report.hostside import CAUSES, Idle, idle_causes, unrecorded
from pyprof.report.steps import ENDING, Steps, find_steps, set_up_end, steps_of_records

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_BEGINNING = 0.01  # of the time of kernels: with less of it ahead of a loss the window begins after the loss
_TIMED = (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU)


class Window(NamedTuple):
    """Begin and end in ns; set_up_ns, after_ns: how long the capture runs before it and after; unrecorded_ns: of set_up_ns, the
    time that was cut off because work of it was not recorded."""

    begin_ns: int
    end_ns: int
    set_up_ns: int
    after_ns: int
    unrecorded_ns: int = 0


class _Divided(NamedTuple):
    """What one process hands to another: what it worked out of the division, and causes of its gaps."""

    division: dict[str, Any]
    causes: tuple[Ints, ...]


class Overview:
    """What is known of one capture, each thing computed when it is first looked at.

    frame: all records with their costs; trace: None where the file held records; chosen: the records of the part that the user
    asked for, None: the whole.
    """

    def __init__(self, frame: Frame, trace: Trace | None = None, chosen: Bools | None = None) -> None:
        self.frame, self.trace, self.chosen = frame, trace, chosen

    @property
    def records(self) -> Records:
        """All records, those outside of the window too."""
        return self.frame.records

    @cached_property
    def calls(self) -> Calls | None:
        """The capture's API calls."""
        return None if self.trace is None else calls_of(self.trace)

    @cached_property
    def steps(self) -> Steps | None:
        """The complete steps of the window, None where nothing marks any."""
        found = self._marked_steps
        if found is None:
            return None
        if self.chosen is not None:
            keep = self._chosen_steps(found)  # as long as they took on the host, which a device may be behind
            return replace(found, begin_ns=found.begin_ns[keep], end_ns=found.end_ns[keep]) if keep.any() else None
        window, begin, end = self.window, found.begin_ns, found.end_ns.copy()
        if len(end) == 1 or found.kind not in ENDING:
            end[-1] = window.end_ns
        keep = (end > window.begin_ns) & (begin < window.end_ns)  # the window may cut off a begin that was not recorded
        if not keep.any():
            return None
        return replace(found, begin_ns=np.maximum(begin[keep], window.begin_ns), end_ns=end[keep])

    @cached_property
    def _marked_steps(self) -> Steps | None:
        if self.trace is None:
            return steps_of_records(self.records)
        return find_steps(self.trace, self.records, self._launches, self._set_up_end)

    @cached_property
    def _launches(self) -> Ints:
        """When each record was launched (an op on the CPU: begun), -1 unknown."""
        records = self.records
        return kept(np.where(records["kind"] == ActivityKind.CPU, records["start_ns"], records["launch_ns"]).astype(np.int64))

    @cached_property
    def _set_up_end(self) -> int:
        return _LEAST if self.trace is None else set_up_end(self.trace, self._launches[self._launches >= 0])

    def _ends(self, index: Any) -> Ints:
        """The end of some records; of an op on the CPU with the ops inside it, where the capture is there."""
        records, around = self.records, self._ends_around
        ends: Ints = records["start_ns"][index] + np.maximum(records["dur_ns"][index], 0)
        return ends if around is None else np.maximum(ends, around[index])

    @cached_property
    def _ends_around(self) -> Ints | None:
        """When the last op inside each op on the CPU ends, None where there are none or the capture is not there."""
        records = self.records
        if self.trace is None or not (records["kind"] == ActivityKind.CPU).any():
            return None
        activities = self.trace.activities
        pid = self.trace.processes["pid"][activities["process"]]
        keys = (np.concatenate([records["pid"], pid]), np.concatenate([records["start_ns"], activities["start_ns"]]))
        code = distinct_rows(*keys).inverse
        mine, theirs = np.split(code, [len(records)])
        _, last = spans(theirs, activities["start_ns"], activities["end_ns"], int(code.max(initial=-1)) + 1)
        return last[mine]

    def _last_end(self, which: Callable[[slice], Bools], initial: int) -> int:
        """The last end of some records, or a time where that is later. which: of a slice of the records."""
        for part in pieces(len(self.records)):
            mine = which(part)
            initial = int(self._ends(part)[mine].max(initial=initial))
        return initial

    @cached_property
    def _bounds(self) -> tuple[int, int]:
        """Begin and end of the window as steps or kernels give them."""
        records, steps = self.records, self._marked_steps
        start, kind = records["start_ns"], records["kind"]
        if self.chosen is None and steps is not None:
            begin, end = int(steps.begin_ns[0]), int(steps.end_ns[-1])

            def launched(part: slice) -> Bools:
                launch = self._launches[part]
                return (start[part] >= 0) & (launch >= begin) & (launch < end)

            return begin, self._last_end(launched, end)
        chosen = self.chosen

        def shown(part: slice) -> Bools:
            if chosen is not None:
                return chosen[part] & (start[part] >= 0)
            found: Bools = among(kind[part], _TIMED) & (start[part] >= 0)
            if self._set_up_end > _LEAST:  # what has no launch is placed by when it ran
                launch = self._launches[part]
                found &= ((launch < 0) | (launch >= self._set_up_end)) & (start[part] >= self._set_up_end)
            return found

        begin = min((int(start[part][shown(part)].min(initial=_MOST)) for part in pieces(len(records))), default=_MOST)
        if begin == _MOST:
            return 0, 0
        end = self._last_end(shown, _LEAST)
        if chosen is not None and steps is not None and (whole := self._chosen_steps(steps)).any():
            # The steps as they are marked, but without the time in which what was not chosen still runs.
            earliest = int(steps.begin_ns[whole].min())
            ran = self._last_end(lambda part: (start[part] >= 0) & ~chosen[part] & (start[part] < begin), earliest)
            begin = min(begin, ran)
            end = max(end, int(steps.end_ns[whole].max()))
        return begin, end

    def _chosen_steps(self, steps: Steps) -> Bools:
        """Which of these steps launched something, and nothing but what was chosen."""
        launched = np.sort(self._launches[self._launches >= 0])
        chosen = np.sort(self._launches[(self._launches >= 0) & np.asarray(self.chosen)])
        count, of_chosen = (
            np.searchsorted(times, steps.end_ns) - np.searchsorted(times, steps.begin_ns) for times in (launched, chosen)
        )
        return np.asarray((count > 0) & (count == of_chosen))

    @cached_property
    def window(self) -> Window:
        """The time that the report is about."""
        begin, end = self._bounds
        records, cut = self.records, 0
        if self.chosen is None and end > begin:
            cut = self._beginning_lost(begin, end)
        start = records["start_ns"]
        first = min((int(start[part][start[part] >= 0].min(initial=begin)) for part in pieces(len(start))), default=begin)
        last = self._last_end(lambda part: np.ones(part.stop - part.start, np.bool_), end)
        return Window(begin + cut, end, max(begin + cut - first, 0), max(last - end, 0), cut)

    def _beginning_lost(self, begin: int, end: int) -> int:
        """How much of the window's begin lies before the end of a gap of lost work that next to no kernel time precedes."""
        whole = self._whole = Division(self.records, self._ends, begin, end)
        if not whole.on_gpu or not len(lost := unrecorded(whole)):
            return 0
        ends = np.sort(whole.gaps.ends(lost))
        kind, start, dur_ns = (self.records[name] for name in ("kind", "start_ns", "dur_ns"))
        time = np.zeros(len(ends) + 1, np.int64)  # of what began since the end before each, and since the last
        for part in pieces(len(kind)):
            ran = np.flatnonzero(among(kind[part], _TIMED) & (whole.device[part] >= 0))
            time += summed(np.searchsorted(ends, start[part][ran], "right"), dur_ns[part][ran], len(time))
        before = np.cumsum(time)
        early = ends[before[:-1] < _BEGINNING * before[-1]]
        return int(early[-1]) - begin if len(early) else 0

    @cached_property
    def division(self) -> Division:
        """The window's time on each device."""
        window = self.window
        result: Division | None = self.__dict__.pop("_whole", None)
        if result is None or (result.begin_ns, result.end_ns) != (window.begin_ns, max(window.end_ns, window.begin_ns)):
            result = Division(self.records, self._ends, window.begin_ns, window.end_ns)
        self.__dict__.pop("_launches", None)  # nothing after the window needs these, which are as long as the records
        return result

    def prepare(self) -> None:
        """Compute what all of a report looks at, costs and idle time at once where there may be several processes."""
        _ = self.calls, self.frame.classes, self.division

        def costs() -> None:
            _ = self.frame.costs, self.frame.roofline, self.division.busy_ns

        def idle() -> _Divided:
            found = self.idle
            return _Divided(self.division.worked_out(), (found.cause, found.late, found.divided, found.waited))

        _, found = cast("tuple[None, _Divided]", at_once([costs, idle], len(self.records)))
        if "idle" not in self.__dict__:
            self.division.take_over(found.division)
            self.idle = Idle(self.division.gaps, *found.causes)

    @cached_property
    def inside(self) -> Bools:
        """Which records run in the window."""
        return kept(np.asarray(self.division.device >= 0))

    @cached_property
    def idle(self) -> Idle:
        """The causes of each gap of the division."""
        return idle_causes(self.division, self.trace, self.calls, self.steps)

    def idle_by_device(self) -> Ints:
        """(CAUSES, devices): ns."""
        return self.idle.by_device

    @cached_property
    def parts(self) -> dict[str, int]:
        """The wall time in its parts, BUSY and CAUSES, in ns: means over devices that add up to it exactly."""
        division = self.division
        names = (*BUSY, *CAUSES)
        if not division.count:
            return dict.fromkeys(names, 0) | {"unknown": division.wall_ns}
        both = np.concatenate([division.busy_ns, self.idle_by_device()])
        return dict(zip(names, mean_parts(both, division.wall_ns), strict=True))

    @property
    def busy_ns(self) -> int:
        """Time in which a device works, mean over devices."""
        return sum(self.parts[name] for name in BUSY)

    @property
    def idle_ns(self) -> int:
        """Time in which it does not."""
        return self.division.wall_ns - self.busy_ns
