"""A capture, or records -> what every part of a report looks at: its window, its steps, one division of its time, the costs.

The window runs from the first complete step to the last one's end, or where no steps are marked from the first activity to the
last (see `pyprof help terms`). What was launched before, up to the end of a range named warm-up, is set-up. Knows no advice and
no text.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import among, distinct_values
from pyprof.columns.intervals import summed
from pyprof.columns.types import Bools, Ints
from pyprof.model.host import Host
from pyprof.model.records import Records
from pyprof.model.trace import ActivityKind
from pyprof.prof.frame import Frame
from pyprof.report.time.causes import CAUSES, Idle, idle_causes, unrecorded
from pyprof.report.time.division import BUSY, Division, mean_parts
from pyprof.report.time.places import HostPlaces, host_places
from pyprof.report.time.replay import TimelineReplay
from pyprof.report.time.steps import Steps, steps_of
from pyprof.report.time.waits import Waits

_BEGINNING = 0.01  # of the time of kernels: with less of it ahead of a loss the window begins after the loss
_MODULE = re.compile(r"(?:torch|aten|prims|c10d)\b")
_TORCH = re.compile(r"\b(?:at::native|aten::|c10d?::|torch)|DataParallel|FSDP::|ProfilerStep#|Optimizer\.|nccl:")
_TIMED = (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU)


class Window(NamedTuple):
    """Begin and end in ns; set_up_ns, after_ns: how long the capture runs before it and after; unrecorded_ns: of set_up_ns, the
    time that was cut off because work of it was not recorded; paused_ns: time in the window between two cycles of a profiler's
    schedule, which is no wall time."""

    begin_ns: int
    end_ns: int
    set_up_ns: int
    after_ns: int
    unrecorded_ns: int = 0
    paused_ns: int = 0


class Overview:
    """Everything known of one capture, computed when it is first looked at.

    frame: all records with their costs; chosen: mask of the part that the user asked for, None for all.
    """

    def __init__(self, frame: Frame, chosen: Bools | None = None) -> None:
        self.frame, self.chosen = frame, chosen

    @property
    def records(self) -> Records:
        """All records, those outside of the window too."""
        return self.frame.records

    @property
    def host(self) -> Host | None:
        """Work of the host beside launches; None for records without their capture."""
        return self.records.host

    @cached_property
    def waits(self) -> Waits | None:
        """Calls in which the host waited for a device; None for records without their capture."""
        return None if self.host is None else Waits.of(self.host)

    @cached_property
    def uses_torch(self) -> bool:
        """Whether the program is one of PyTorch, so that its words are the program's: nothing but kernels of libraries is taken
        for one, but not of cuRAND, which torch does not call; kernels and ranges of which none is torch's are not."""
        records, stacks = self.records, self.records.stacks
        steps = "" if records.steps is None else records.steps.kind
        if (
            records.source == "kineto"
            or steps not in ("", "range")
            or any(_MODULE.match(call.module) for call in records.calls)
        ):
            return True
        ranges = {name for stack in stacks for name in stack.ranges}
        if any(set(stack.layer) - set(stack.ranges) for stack in stacks) or any(map(_TORCH.search, ranges)):
            return True
        names = [*map(records.strings.__getitem__, distinct_values(self.frame.classes.records["name"]).tolist())]
        families = {kernel.family for kernel in self.frame.of_classes.costs.kernels}
        if any(map(_TORCH.search, names)) or any(name.startswith(("inductor", "nvfuser", "triton")) for name in families):
            return True
        return not ranges and "unknown" not in families and not any("generate_seed_pseudo" in name for name in names)

    @cached_property
    def steps(self) -> Steps | None:
        """The complete steps of the window, None if nothing marks any."""
        found, window = self._marked_steps, self.window
        if found is None:
            return None
        if self.chosen is not None:  # as long as they took on the host, which a device may be behind
            keep = self._chosen_steps(found)
            return found.take(keep) if keep.any() else None
        found = replace(found, begin_ns=np.maximum(found.begin_ns, window.begin_ns))  # a begin that was not recorded is cut off
        if found.kind == "engine":  # its annotation ends when all is launched, the step when that has run
            found.end_ns[-1] = window.end_ns
        keep = (found.end_ns > found.begin_ns) & (found.begin_ns < window.end_ns)
        return found.take(keep) if keep.any() else None

    @cached_property
    def _marked_steps(self) -> Steps | None:
        return steps_of(self.records)

    @cached_property
    def _launches(self) -> Ints:
        """When each record was launched (an op on the CPU: begun), -1 unknown."""
        records, on_cpu = self.records, self.records["kind"] == ActivityKind.CPU
        return np.where(on_cpu, records["start_ns"], records["launch_ns"]) if on_cpu.any() else records["launch_ns"]

    @property
    def _ends(self) -> Ints:
        return self.records["start_ns"] + np.maximum(self.records["dur_ns"], 0)

    @cached_property
    def _bounds(self) -> tuple[int, int]:
        """Begin and end of the window as steps or activities give them."""
        start, steps, chosen = self.records["start_ns"], self._marked_steps, self.chosen
        if chosen is None and steps is not None:
            begin, end = int(steps.begin_ns[0]), int(steps.end_ns[-1])
            return begin, self._last_end_of(begin, end)
        shown = start >= 0
        if chosen is not None:
            shown &= chosen
        elif self.records.steps is not None and (warm := self.records.steps.set_up_end_ns) is not None:
            # What has no launch is placed by when it ran.
            shown &= ((self._launches < 0) | (self._launches >= warm)) & (start >= warm)
        if not shown.any():
            return 0, 0
        begin, end = int(start[shown].min()), int(self._ends[shown].max())
        if chosen is not None and steps is not None and (whole := self._chosen_steps(steps)).any():
            # The steps as they are marked, but without the time in which what was not chosen still runs.
            earliest = int(steps.begin_ns[whole].min())
            others = (start >= 0) & ~chosen & (start < begin)
            begin = min(begin, int(self._ends[others].max(initial=earliest)))
            end = max(end, int(steps.end_ns[whole].max()))
        elif chosen is not None and chosen.all():
            begin = min(begin, self._host_begin_ns)
        return begin, end

    @property
    def _host_begin_ns(self) -> int:
        """When the host of a program without steps did anything first; the end of time where that is not known."""
        begin = -1 if self.host is None or self._marked_steps is not None else self.host.begin_ns
        return begin if begin >= 0 else np.iinfo(np.int64).max

    def _last_end_of(self, begin: int, end: int) -> int:
        """End of the last activity launched between `begin` and `end`, but not before `end`."""
        launched = (self.records["start_ns"] >= 0) & (self._launches >= begin) & (self._launches < end)
        return int(self._ends[launched].max(initial=end))

    def _chosen_steps(self, steps: Steps) -> Bools:
        """Mask of the steps that launched something and whose launches all belong to the chosen part."""
        launched = np.sort(self._launches[self._launches >= 0])
        chosen = np.sort(self._launches[(self._launches >= 0) & np.asarray(self.chosen)])
        count, of_chosen = (
            np.searchsorted(times, steps.end_ns) - np.searchsorted(times, steps.begin_ns) for times in (launched, chosen)
        )
        return np.asarray((count > 0) & (count == of_chosen))

    @cached_property
    def _divided(self) -> tuple[Window, Division]:
        (begin, end), start, cut = self._bounds, self.records["start_ns"], 0
        division = Division(self.records, begin, end)
        if self.chosen is None and end > begin:
            cut = self._beginning_lost(division)
        pauses = self._pauses(begin + cut, end)
        if cut or pauses:
            division = Division(self.records, begin + cut, end, pauses)
        first = int(start[start >= 0].min(initial=min(begin, self._host_begin_ns)))
        last = int(self._ends.max(initial=end))
        paused = sum(until - since for since, until in pauses)
        return Window(begin + cut, end, max(begin + cut - first, 0), max(last - end, 0), cut, paused), division

    @property
    def window(self) -> Window:
        """The time that the report is about."""
        return self._divided[0]

    @property
    def division(self) -> Division:
        """The window's time on each device."""
        return self._divided[1]

    def _pauses(self, begin: int, end: int) -> tuple[tuple[int, int], ...]:
        """Times between cycles of a profiler's schedule: from the end of the last activity of one cycle to the next cycle."""
        steps = self._marked_steps
        if steps is None:
            return ()
        found = []
        for at in np.flatnonzero(steps.end_ns[:-1] < steps.begin_ns[1:]).tolist():
            since, until = self._last_end_of(int(steps.begin_ns[0]), int(steps.end_ns[at])), int(steps.begin_ns[at + 1])
            running = (self.records["start_ns"] < since) & (self._ends > since)  # launched by no step
            since, until = max(int(self._ends[running].max(initial=since)), begin), min(until, end)
            if until > since:
                found.append((since, until))
        return tuple(found)

    def _beginning_lost(self, whole: Division) -> int:
        """Length of the window's beginning to cut off: up to the last gap of lost work before which next to nothing ran."""
        if not whole.on_gpu or not len(lost := unrecorded(whole)):
            return 0
        ends = np.sort(whole.gaps.end_ns[lost])
        records = self.records
        ran = np.flatnonzero(among(records["kind"], _TIMED) & (whole.device >= 0))
        # Kernel time of what began since the end before each, and since the last.
        since = np.searchsorted(ends, records["start_ns"][ran], "right")
        before = np.cumsum(summed(since, records["dur_ns"][ran], len(ends) + 1))
        early = ends[before[:-1] < _BEGINNING * before[-1]]
        return int(early[-1]) - whole.begin_ns if len(early) else 0

    @property
    def missing(self) -> str | None:
        """A note on facts that records without their capture lack; None if nothing is missing or there are no times."""
        if self.host is not None or not self.division.count:
            return None
        copies = "" if np.isin(self.records["kind"], (ActivityKind.MEMCPY, ActivityKind.MEMSET)).any() else ", copies of memory"
        return (
            f"records hold no API calls but launches{copies}, begin and end of steps: idle causes, steps, MFU and advice may "
            "differ from those of the capture or of its .parquet"
        )

    @cached_property
    def inside(self) -> Bools:
        """Which records run in the window."""
        return np.asarray(self.division.device >= 0)

    @cached_property
    def idle(self) -> Idle:
        """The causes of each gap of the division."""
        return idle_causes(self.division, self.host, self.waits)

    def host_places(self, cause: str | None = None) -> HostPlaces | None:
        """Where the host was in the idle time of a cause, or in all; None if the capture does not show it."""
        tree = None if self.host is None else self.host.whereabouts
        return None if tree is None else host_places(self.division, self.idle, tree, cause)

    @cached_property
    def replay(self) -> TimelineReplay:
        """The window's timeline, to be played again with changes."""
        steps = self.steps if self.steps is None or self.steps.kind != "engine" else None  # whose last one ends on the device
        return TimelineReplay(self.division, self.waits, None if steps is None else int(steps.end_ns[-1]))

    def forget_replay(self) -> None:
        """Free the replay's memory; it is made anew when asked for."""
        self.__dict__.pop("replay", None)

    @cached_property
    def parts(self) -> dict[str, int]:
        """The wall time in its parts, BUSY and CAUSES, in ns: means over devices that add up to it exactly."""
        division = self.division
        names = (*BUSY, *CAUSES)
        if not division.count:
            return dict.fromkeys(names, 0) | {"unknown": division.wall_ns}
        both = np.concatenate([division.busy_ns, self.idle.by_device])
        return dict(zip(names, mean_parts(both, division.wall_ns), strict=True))

    @property
    def busy_ns(self) -> int:
        """Busy time, mean over devices."""
        return sum(self.parts[name] for name in BUSY)

    @property
    def idle_ns(self) -> int:
        """Idle time, mean over devices."""
        return self.division.wall_ns - self.busy_ns
