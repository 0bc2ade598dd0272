"""Some records of a long capture -> the records on which depends all that is computed of those; the others need not be read.

A cost is shared among the kernels of an op, a backward takes types from its forward, and a forward sizes from its backward: the
records of these ops are needed, which the numbers of instances name wherever they lie. Whether the device waited for a launch
depends on all that ran before. Nothing else does: each value here is that of the whole capture.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.arrays.columns import Growing
from pyprof.arrays.spool import pieces, row_type
from pyprof.arrays.types import Array, Bools, Ints
from pyprof.hardware.devices import Gpu
from pyprof.parse.records.records import Records
from pyprof.prof.frame import Frame
from pyprof.prof.infer import pairs_all
from pyprof.tables.table import PART_ROWS

_WORTH = 2  # times the needed records: a capture that is not larger is computed whole


def frame_of(records: Records, shown: Bools, inside: Ints, gpu: Gpu | None = None) -> tuple[Frame, Ints]:
    """A frame from which everything can be read of some of the records that are shown, and their rows in it.

    shown: of each record whether it is of a kind that is shown; inside: positions of some of these, ascending.
    """
    if len(inside) * _WORTH <= np.count_nonzero(shown) and not pairs_all(records) and not _sparse(records):
        needed = around(records, inside)
        if len(needed) * _WORTH <= len(records):
            some, of_kinds = records.select(needed), shown[needed]
            rows = _ranks(of_kinds, np.searchsorted(needed, inside))
            return Nearby(some.select(of_kinds), gpu, some, records, _ranks(shown, needed[of_kinds])), rows
    return Frame(records.select(shown), gpu, records), _ranks(shown, inside)


def _ranks(shown: Bools, positions: Ints) -> Ints:
    """For each of some positions, ascending, how many are shown before it."""
    found, before = np.empty(len(positions), np.int64), 0
    for part in pieces(len(shown)):
        begin, end = np.searchsorted(positions, (part.start, part.stop)).tolist()
        if end > begin:
            count = np.cumsum(shown[part])
            found[begin:end] = before + count[positions[begin:end] - part.start] - 1
        before += int(np.count_nonzero(shown[part]))
    return found


class Nearby(Frame):
    """A frame of some records of a capture: it knows their numbers there, and all that ran."""

    def __init__(self, records: Records, gpu: Gpu | None, whole: Records, capture: Records, numbers: Ints) -> None:
        """records: those to show; whole: with the others that they were chosen from; capture: all that there are."""
        super().__init__(records, gpu, whole)
        self._ran, self._numbers = capture, numbers

    def numbers_of(self, rows: Ints) -> Ints:
        return self._numbers[rows]


def around(records: Records, inside: Ints) -> Ints:
    """The positions of some records and of all of the same ops, of their forward and their backward, ascending."""
    wanted = _Instances()
    for begin in range(0, len(inside), PART_ROWS):
        wanted.add(*_instances(records, inside[begin : begin + PART_ROWS]))
    found, known = inside, -1
    while known != wanted.count:  # until no instance belongs to these that is not among them
        known, places = wanted.count, Growing(row_type(len(records)))
        for rows in _stretches(records, inside, wanted):
            own, forward = _instances(records, rows)
            near = wanted.hold(own) | wanted.hold(forward)
            wanted.add(own[near], forward[near])
            near[inside[slice(*np.searchsorted(inside, (rows.start, rows.stop)))] - rows.start] = True  # those of no op
            places.append((np.flatnonzero(near) + rows.start).astype(row_type(len(records))))
        found = places.whole()
    return found.astype(np.int64)


def _stretches(records: Records, inside: Ints, wanted: _Instances) -> Iterator[slice]:
    """The records that may be wanted, some that follow one another after others."""
    for rows, limits in records.stretches("instance", "fwd_instance"):
        near = inside[slice(*np.searchsorted(inside, (rows.start, rows.stop)))]
        if len(near) or any(wanted.any_within(each.least, each.most) for each in limits):
            for begin in range(rows.start, rows.stop, PART_ROWS):
                yield slice(begin, min(begin + PART_ROWS, rows.stop))


def _sparse(records: Records) -> bool:
    """Whether numbers of instances are far larger than there are records, as in some records of a long capture."""
    most = 64 * len(records) + (1 << 24)
    for rows, limits in records.stretches("instance", "fwd_instance"):
        if max(each.most for each in limits) > most:
            for begin in range(rows.start, rows.stop, PART_ROWS):
                part = slice(begin, min(begin + PART_ROWS, rows.stop))
                if any(int(numbers.max(initial=-1)) > most for numbers in _instances(records, part)):
                    return True
    return False


def _instances(records: Records, rows: Ints | slice) -> tuple[Array, Array]:
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

    def any_within(self, least: int, most: int) -> bool:
        """Whether one of them lies between two numbers, both included."""
        return bool(self._there[max(least, 0) : max(most + 1, 0)].any())

    def hold(self, instances: Array) -> Bools:
        """Which of some numbers are among them."""
        return self._there[np.where(instances < len(self._there), instances, -1)]
