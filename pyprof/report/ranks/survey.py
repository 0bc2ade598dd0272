"""Files of ranks -> all that the tables of the report are made from, reading one rank at a time.

What stays in memory is a few numbers a rank and step, and the distinct collectives and layers; all else is in temporary files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pyprof.errors import InputError
from pyprof.parse.records.locations import File
from pyprof.parse.records.records import Records
from pyprof.report.ranks import collectives
from pyprof.report.ranks.arrivals import Arrivals, Waits, arrivals, waits
from pyprof.report.ranks.busy import Busy
from pyprof.report.ranks.busy import of_records as busy_of
from pyprof.report.ranks.causes import WorkTimes
from pyprof.report.ranks.clocks import Clocks, align
from pyprof.report.ranks.meetings import Meetings
from pyprof.report.ranks.units import Failure, Unit, units_of

__all__ = ["Place", "Survey", "how_aligned", "survey"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Place:
    """A unit without its records. dated: the start of its session is known; communicates: it has collectives."""

    rank: int
    place: str
    file: int
    dated: bool
    communicates: bool


@dataclass
class Survey:
    """rank_of: the row in `ranks` of each unit; ranks: their numbers; busy: times of each unit by step."""

    places: list[Place]
    ranks: list[int]
    rank_of: Ints
    busy: list[Busy]
    meetings: Meetings
    work: WorkTimes
    clocks: Clocks
    arrivals: Arrivals
    waits: Waits
    failures: list[Failure]
    notes: list[str] = field(default_factory=list)

    def __enter__(self) -> Survey:
        return self

    def __exit__(self, *error: object) -> None:
        """Give the temporary files back."""
        self.meetings.close()
        self.work.close()


class _Collector:
    """What has been read so far."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.busy: list[Busy] = []
        self.failures: list[Failure] = []
        self.meetings, self.work = Meetings(), WorkTimes()
        self.base: int | None = None  # so that times are small numbers, which a float holds exactly

    def add(self, unit: Unit, file: int) -> None:
        records = unit.records
        number = len(self.places)
        busy = busy_of(records)
        rows, which, found = collectives.of_records(records)
        dated = unit.origin_ns >= 0
        if dated and self.base is None:
            self.base = unit.begin_ns + unit.origin_ns
        origin = unit.origin_ns - (self.base or 0) if dated else -unit.begin_ns
        start = records["start_ns"][rows].astype(np.int64) + origin
        end = start + np.maximum(records["dur_ns"][rows], 0)
        owner = unit.rank if unit.rank >= 0 else -2 - number
        self.meetings.add(owner, records["step"][rows].astype(np.int64), records["stream"][rows], which, start, end, found)
        self.work.add(number, records, len(busy.steps))
        self.busy.append(busy)
        self.places.append(Place(unit.rank, unit.place, file, dated, len(rows) > 0))


def survey(files: Iterable[File], choose: Callable[[Records], npt.NDArray[np.bool_]] | None = None) -> Survey:
    """Read every file and compare. choose: a mask over records, None: all of them.

    Raises InputError where nothing ran on a GPU in any file.
    """
    read = _Collector()
    try:
        return _compared(read, files, choose)
    except BaseException:
        read.meetings.close()
        read.work.close()
        raise


def _compared(read: _Collector, files: Iterable[File], choose: Callable[[Records], npt.NDArray[np.bool_]] | None) -> Survey:
    for number, path in enumerate(files):
        for unit in units_of(path, choose):
            if isinstance(unit, Failure):
                read.failures.append(unit)
            else:
                read.add(unit, number)
    if not read.places:
        raise InputError(
            read.failures[0].reason if read.failures else "no files", "give captures of a GPU, or what pyprof parse wrote"
        )
    ranks, rank_of = _numbered(read.places)
    meetings = read.meetings
    clocks = align(meetings.units(), meetings.group_of())
    found = arrivals(meetings.units, clocks.offset, len(meetings))
    spent = waits(meetings.units, clocks.offset, found, meetings.step_of(), len(meetings.steps))
    whole = Survey(read.places, ranks, rank_of, read.busy, meetings, read.work, clocks, found, spent, read.failures)
    whole.notes = _notes(whole)
    return whole


def _numbered(places: list[Place]) -> tuple[list[int], Ints]:
    """Numbers of ranks in order, those that nothing says after the others; and the row of each unit's."""
    free = max((place.rank for place in places), default=-1) + 1
    numbers = []
    for place in places:
        numbers.append(place.rank if place.rank >= 0 else free)
        free += place.rank < 0
    ranks, rank_of = np.unique(np.array(numbers, np.int64), return_inverse=True)
    return ranks.tolist(), rank_of.ravel()


def _listed(numbers: list[int]) -> str:
    """The first numbers of a list, and how many more there are."""
    shown = ", ".join(map(str, numbers[:8]))
    return shown if len(numbers) <= 8 else f"{shown} and {len(numbers) - 8} more"


def _notes(whole: Survey) -> list[str]:
    """What the files lack and what that means for the tables."""
    numbers = [whole.ranks[row] for row in whole.rank_of.tolist()]
    notes = []
    if any(place.rank < 0 for place in whole.places):
        notes.append("some captures do not say their rank: these are numbered in order of file, process and device")
    elif lost := sorted(set(range(max(whole.ranks) + 1)) - set(whole.ranks)):
        notes.append(f"no records of rank {_listed(lost)}: who waits for them cannot be told")
    if len(whole.ranks) == 1:
        notes.append("records of one rank only: what it waits for, and the time of transfers without waiting, cannot be told")
    quiet = sorted({n for n, place in zip(numbers, whole.places, strict=True) if not place.communicates})
    if quiet:
        notes.append(f"no communication was recorded on rank {_listed(quiet)}")
    left_out = np.bincount(whole.rank_of[whole.waits.unit], whole.waits.left_out, len(whole.ranks))
    if len(whole.ranks) > 1 and (missing := [whole.ranks[row] for row in np.flatnonzero(left_out).tolist()]):
        notes.append(
            f"{int(left_out.sum())} collectives could not be compared, on rank {_listed(missing)}: sent between two ranks, "
            "met by no other rank, or in another number in the step than on most ranks"
        )
    loose = [n for n, unit in zip(numbers, range(len(numbers)), strict=True) if how_aligned(whole, unit) == "not"]
    if len(whole.ranks) > 1 and loose:
        notes.append(
            f"the clock of rank {_listed(loose)} stands alone: neither the session's start nor common collectives are there"
        )
    wide = float(np.nanmax(whole.clocks.spread, initial=0.0))
    if wide > 200_000:
        notes.append(
            f"ends of collectives still differ by {wide / 1e3:.0f} us after aligning: the process groups are perhaps not "
            "recorded, and collectives of different groups taken for one"
        )
    return notes


def how_aligned(whole: Survey, unit: int) -> str:
    """What ties a unit's clock to the others: collectives, session, file (one capture for all) or not."""
    component = whole.clocks.component
    if (component == component[unit]).sum() > 1:
        return "collectives"
    if whole.places[unit].dated:
        return "session"
    return "file" if len({place.file for place in whole.places}) == 1 else "not"
