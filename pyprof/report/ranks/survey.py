"""Files of ranks -> all that the tables of the report are made from, reading one rank at a time.

In memory stay the times of each rank's activities and collectives, not its records.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import count

import numpy as np

from pyprof.columns.types import Ints
from pyprof.errors import InputError, PyprofError
from pyprof.model.records import Records
from pyprof.parse.records.locations import File
from pyprof.report.ranks import busy, collectives, pipeline
from pyprof.report.ranks.arrivals import Arrivals, RankWaits, arrivals, waits
from pyprof.report.ranks.causes import Cause, Delayed, causes_of
from pyprof.report.ranks.clocks import Clocks, align
from pyprof.report.ranks.collective_calls import Attended, CollectiveCalls, Recorded
from pyprof.report.ranks.delays import delays
from pyprof.report.ranks.timeline import Timelines
from pyprof.report.ranks.units import Choose, Unit, units_of

_NAMED = 3  # ranks whose causes are looked for
_NOISES = 3  # times the noise of ends by which clocks must differ, where it is large
_APART_NS = 200_000  # ends of one collective differ by less, if it is one


class Survey:
    """All that is known of a job's ranks. units: without their records; every other column counts them in this order; busy:
    times of each unit by step; stages: its part in a pipeline; communicates: whether it has collectives; files: numbers of the
    files with units; groups: ranks of process groups, as recorded; failures: errors of files that cannot be used."""

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.busy: list[busy.Busy] = []
        self.communicates: list[bool] = []
        self.stages: list[pipeline.Stages | None] = []
        self.files: set[int] = set()
        self.groups: dict[str, int] = {}
        self.failures: list[PyprofError] = []
        self.calls, self.timelines = CollectiveCalls(), Timelines()
        self._base: int | None = None  # so that times are small numbers, which a float holds exactly

    def add(self, unit: Unit, file: int) -> None:
        """One unit; its records are not needed afterwards."""
        records = unit.records
        number = len(self.units)
        times = busy.of_records(records)
        rows, code, distinct = collectives.of_records(records)
        dated = unit.origin_ns >= 0
        if dated and self._base is None:
            self._base = unit.begin_ns + unit.origin_ns
        origin = unit.origin_ns - (self._base or 0) if dated else -unit.begin_ns
        start = records["start_ns"][rows].astype(np.int64) + origin
        end = start + np.maximum(records["dur_ns"][rows], 0)
        step, stream = records["step"][rows].astype(np.int64), records["stream"][rows].astype(np.int64)
        owner = unit.rank if unit.rank >= 0 else -2 - number
        self.calls.add(owner, Recorded(step, stream, start, end, code, distinct))
        self.timelines.add(records, origin, len(times.steps), unit.trace)
        self.busy.append(times)
        self.communicates.append(len(rows) > 0)
        between = np.array([not one.meets for one in distinct] + [False], np.bool_)[code]
        directions = [distinct[at].direction for at in code[between].tolist()]
        self.stages.append(pipeline.of_records(records, rows[between], directions, times, unit.ends))
        self.files.add(file)
        self.groups |= {} if records.host is None else records.host.groups
        self.groups |= {one.group: one.group_size for one in distinct if one.group and one.group_size}
        self.units.append(unit._replace(records=Records({}), trace=None))

    @cached_property
    def rank_numbers(self) -> Ints:
        """The number of each unit's rank; unknown ones are numbered after the others."""
        free = count(max((unit.rank for unit in self.units), default=-1) + 1)
        return np.array([unit.rank if unit.rank >= 0 else next(free) for unit in self.units], np.int64)

    @cached_property
    def ranks(self) -> list[int]:
        """The numbers of the ranks, ascending."""
        return sorted(set(self.rank_numbers.tolist()))

    @cached_property
    def rank_of(self) -> Ints:
        """The row in `ranks` of each unit."""
        return np.searchsorted(self.ranks, self.rank_numbers)

    @cached_property
    def clocks(self) -> Clocks:
        """By how much the clock of each unit is ahead."""
        # A unit that did not record when collectives ended keeps the clock of its session.
        parts = zip(self.units, self.calls.units, strict=True)
        ended = [part if unit.ends else Attended(*(column[:0] for column in part)) for unit, part in parts]
        found = align(ended, self.calls.group_of())
        noise = float(np.nanmax(found.spread, initial=0.0))
        dated = all(unit.origin_ns >= 0 for unit in self.units)
        if dated and noise > _APART_NS and np.abs(found.offset).max() < _NOISES * noise:
            # Ends that differ so much, as gloo's do on busy CPUs, say less of the clocks than the sessions do.
            return found._replace(offset=np.zeros_like(found.offset), component=np.arange(len(self.units)))
        return found

    @property
    def ends(self) -> bool:
        """Whether the end of every collective is known."""
        return all(unit.ends for unit in self.units)

    @cached_property
    def arrivals(self) -> Arrivals:
        """Arrival times of the ranks at each collective call."""
        return arrivals(self.calls.units, self.clocks.offset, len(self.calls), ends=self.ends)

    @cached_property
    def waits(self) -> RankWaits:
        """How long each unit waited in each step, and the others for it."""
        calls = self.calls
        return waits(calls.units, self.clocks.offset, self.arrivals, calls.step_of(), len(calls.steps))

    @cached_property
    def delays(self) -> Ints:
        """For each collective call the ns by which its last rank came after the next-to-last; each delay counts once."""
        return delays(self.arrivals, self.calls.units, self.timelines, self.clocks.offset, self.calls.group_of())

    @cached_property
    def saves(self) -> Ints:
        """For each of `ranks` the ns that its delays cost."""
        late = self.delays > 0
        return np.bincount(self.rank_of[self.arrivals.slowest[late]], self.delays[late], len(self.ranks)).astype(np.int64)

    @cached_property
    def slowest(self) -> list[int]:
        """Indices of the ranks whose delays cost most, the first three."""
        return [row for row in np.argsort(-self.saves, kind="stable").tolist() if self.saves[row]][:_NAMED]

    @cached_property
    def all_causes(self) -> list[Cause]:
        """Causes of the delays of `slowest`: work that took longer than on other ranks, at least a tenth of the delay."""
        if not self.ends:
            return []  # what looks like lateness may be waiting
        of_ranks = (self.rank_of, len(self.ranks))
        job = Delayed(self.arrivals, self.calls.units, self.timelines, self.clocks.offset, self.delays, *of_ranks)
        return causes_of(job, self.slowest)

    def causes(self, row: int) -> list[Cause]:
        """Causes of one of `slowest`."""
        return [cause for cause in self.all_causes if cause.rank == row]

    @cached_property
    def pipeline(self) -> pipeline.Pipeline | None:
        """The bubble of each rank, None if the job is no pipeline."""
        return pipeline.pipeline_of(self.stages, self.rank_numbers.tolist(), self.groups.get("", len(self.units)))

    @property
    def notes(self) -> list[str]:
        """Notes on data that the files lack, and what that means for the tables."""
        return _notes(self)


def survey(files: Iterable[File], choose: Choose | None = None) -> Survey:
    """Read every file. choose: a mask over records, None: all of them.

    Raises InputError if nothing ran on a GPU in any file.
    """
    whole = Survey()
    for number, path in enumerate(files):
        for unit in units_of(path, choose):
            if isinstance(unit, PyprofError):
                whole.failures.append(unit)
            else:
                whole.add(unit, number)
    if not whole.units:
        raise next(iter(whole.failures), InputError("no files", "give captures of a GPU, or what pyprof parse wrote"))
    return whole


def _listed(numbers: Iterable[int]) -> str:
    """The first of some numbers, and how many more there are."""
    distinct = sorted(set(numbers))
    shown = ", ".join(map(str, distinct[:8]))
    return shown if len(distinct) <= 8 else f"{shown} and {len(distinct) - 8} more"


def _notes(whole: Survey) -> list[str]:
    numbers = whole.rank_numbers.tolist()
    several = len(whole.ranks) > 1
    notes = []
    if any(unit.rank < 0 for unit in whole.units):
        notes.append("some captures do not record their rank: they are numbered in order of file, process and device")
    elif lost := set(range(max(whole.ranks) + 1)) - set(whole.ranks):
        notes.append(f"no records of rank {_listed(lost)}: who waits for them is unknown")
    if not several:
        notes.append("records of one rank only: what it waits for, and the time of transfers without waiting, are unknown")
    if not whole.ends:
        notes.append(
            "records of a run on the CPU do not say when collectives ended: give the captures for reasons and bandwidth"
        )
    if quiet := [n for n, found in zip(numbers, whole.communicates, strict=True) if not found]:
        notes.append(f"no communication was recorded on rank {_listed(quiet)}")
    left_out = np.bincount(whole.rank_of[whole.waits.unit], whole.waits.left_out, len(whole.ranks))
    if several and left_out.any():
        notes.append(
            f"{int(left_out.sum())} collectives could not be compared, on rank "
            f"{_listed(whole.ranks[row] for row in np.flatnonzero(left_out).tolist())}: sent between two ranks, "
            "met by no other rank (or not at one time), or in another number in the step than on most ranks"
        )
    alone = [n for unit, n in enumerate(numbers) if how_aligned(whole, unit) == "not"]
    if several and alone:
        notes.append(f"the clock of rank {_listed(alone)} stands alone: no common collectives, no start of its session")
    wide = float(np.nanmax(whole.clocks.spread, initial=0.0))
    if wide > _APART_NS:
        notes.append(
            f"ends of collectives still differ by {wide / 1e3:.0f} us after aligning: perhaps the CPUs that ran "
            "them were busy (gloo), or process groups were not recorded, and collectives of different groups were taken for one"
        )
    return notes


def how_aligned(whole: Survey, unit: int) -> str:
    """How a unit's clock was aligned with the others: collectives, session, file (one capture for all) or not."""
    component = whole.clocks.component
    if (component == component[unit]).sum() > 1:
        return "collectives"
    if whole.units[unit].origin_ns >= 0:
        return "session"
    return "file" if len(whole.files) == 1 else "not"
