"""Some records of a long capture -> the records on which depends all that is computed of those; the others need not be read.

A cost is shared among the kernels of an op, a backward takes types from its forward, and a forward sizes from its backward: the
records of these ops are needed, which the numbers of instances name wherever they lie. Whether the device waited for a launch
depends on all that ran before. Nothing else does: each value here is that of the whole capture.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import Growing
from pyprof.arrays.spool import row_type
from pyprof.arrays.types import Array, Bools, Ints
from pyprof.hardware.devices import Gpu
from pyprof.parse.records.records import Records
from pyprof.parse.records.selection import choose_kinds, kind_codes
from pyprof.prof.frame import Frame
from pyprof.prof.infer import pairs_all
from pyprof.tables.table import PART_ROWS

_WORTH = 2  # times the needed records: a capture that is not larger is computed whole


def frame_of(records: Records, kinds: str, inside: Ints, gpu: Gpu | None = None) -> tuple[Frame, Ints]:
    """A frame from which everything can be read of some of the records of these kinds, and their rows in it.

    inside: positions of those among the records of these kinds, ascending.
    """
    of_kinds = np.isin(records["kind"], kind_codes(kinds))
    if len(inside) * _WORTH <= np.count_nonzero(of_kinds) and not pairs_all(records) and not _sparse(records):
        places = None if of_kinds.all() else np.flatnonzero(of_kinds)
        needed = around(records, inside if places is None else places[inside])
        if len(needed) * _WORTH <= len(records):
            some = records.select(needed)
            there = np.zeros(len(records), np.bool_)
            there[needed] = True
            numbers = needed if places is None else np.flatnonzero(there[places])
            del places
            return Nearby(choose_kinds(some, kinds), gpu, some, records, numbers), np.searchsorted(numbers, inside)
    return Frame(records.select(of_kinds), gpu, records), inside


class Nearby(Frame):
    """A frame of some records of a capture: it knows their numbers there, and all that ran."""

    def __init__(self, records: Records, gpu: Gpu | None, whole: Records, capture: Records, numbers: Ints) -> None:
        """records: those to show; whole: with the others that they were chosen from; capture: all that there are."""
        super().__init__(records, gpu, whole)
        self._ran, self._numbers = capture, numbers

    @property
    def numbers(self) -> Ints:
        return self._numbers


def around(records: Records, inside: Ints) -> Ints:
    """The positions of some records and of all of the same ops, of their forward and their backward, ascending."""
    wanted = _Instances()
    for begin in range(0, len(inside), PART_ROWS):
        wanted.add(*_instances(records, inside[begin : begin + PART_ROWS]))
    found, known = inside, -1
    while known != wanted.count:  # until no instance belongs to these that is not among them
        known, places = wanted.count, Growing(row_type(len(records)))
        for begin in range(0, len(records), PART_ROWS):
            rows = np.arange(begin, min(begin + PART_ROWS, len(records)))
            own, forward = _instances(records, rows)
            near = wanted.hold(own) | wanted.hold(forward)
            wanted.add(own[near], forward[near])
            near[inside[slice(*np.searchsorted(inside, (begin, begin + len(rows))))] - begin] = True  # those of no op
            places.append(rows[near].astype(row_type(len(records))))
        found = places.whole()
    return found.astype(np.int64)


def _sparse(records: Records) -> bool:
    """Whether numbers of instances are far larger than there are records, as in some records of a long capture."""
    most = 64 * len(records) + (1 << 24)
    parts = (np.arange(begin, min(begin + PART_ROWS, len(records))) for begin in range(0, len(records), PART_ROWS))
    return any(int(numbers.max(initial=-1)) > most for rows in parts for numbers in _instances(records, rows))


def _instances(records: Records, rows: Ints) -> tuple[Array, Array]:
    """The instances and forward instances of some records."""
    return records.of_rows("instance", rows), records.of_rows("fwd_instance", rows)


class _Instances:
    """Numbers of instances, of which there are at most about as many as records."""

    def __init__(self) -> None:
        self._there = np.zeros(1, np.bool_)  # of each number whether it is one; the last is that of none, -1
        self.count = 0

    def add(self, *instances: Array) -> None:
        """More of them; -1 is none."""
        for numbers in instances:
            more = int(numbers.max(initial=-1)) + 2 - len(self._there)
            if more > 0:
                self._there = np.append(self._there, np.zeros(max(more, len(self._there)), np.bool_))
            self._there[numbers] = True
        self._there[-1] = False
        self.count = int(np.count_nonzero(self._there))

    def hold(self, instances: Array) -> Bools:
        """Which of some numbers are among them."""
        return self._there[np.where(instances < len(self._there), instances, -1)]
