"""Some records of a long capture -> the records on which depends all that is computed of those; the others need not be read.

A cost is shared among the kernels of an op, a backward takes types from its forward, and a forward sizes from its backward: the
records of these ops are needed, which the numbers of instances name wherever they lie. Whether the device waited for a launch
depends on all that ran before. Nothing else does: each value here is that of the whole capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from pyprof.arrays.columns import Growing
from pyprof.arrays.spool import pieces, row_type
from pyprof.arrays.types import Array, Bools, Ints
from pyprof.hardware.devices import Gpu
from pyprof.parse.records.records import Limits, Records
from pyprof.prof.frame import Frame
from pyprof.prof.infer import pairs_all
from pyprof.tables.table import PART_ROWS

_WORTH = 2  # times the needed records: a capture that is not larger is computed whole


def frame_of(records: Records, shown: Bools, inside: Ints, gpu: Gpu | None = None) -> tuple[Frame, Ints]:
    """A frame from which everything can be read of some of the records that are shown, and their rows in it.

    shown: of each record whether it is of a kind that is shown; inside: positions of some of these, ascending.
    """
    if len(inside) * _WORTH <= np.count_nonzero(shown) and (needed := needed_for(records, inside)) is not None:
        some, of_kinds = records.select(needed), shown[needed]
        rows = _ranks(of_kinds, np.searchsorted(needed, inside))
        return Nearby(some.select(of_kinds), gpu, some, records, _ranks(shown, needed[of_kinds])), rows
    return Frame(records.select(shown), gpu, records), _ranks(shown, inside)


def needed_for(records: Records, inside: Ints) -> Ints | None:
    """The positions of the records on which depends what is computed of some, ascending; None where these are most of them."""
    if len(inside) * _WORTH > len(records) or pairs_all(records) or _sparse(records):
        return None
    needed = around(records, inside)
    return needed if len(needed) * _WORTH <= len(records) else None


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
    for _, own, forward, mine in _instances(records, inside, lambda _: False):
        wanted.add(own[mine], forward[mine])
    found, known = inside, -1
    while known != wanted.count:  # until no instance belongs to these that is not among them
        known, places = wanted.count, Growing(row_type(len(records)))
        for first, own, forward, mine in _instances(records, inside, wanted.any_within):
            near = wanted.hold(own) | wanted.hold(forward)
            wanted.add(own[near], forward[near])
            near[mine] = True  # those of no op
            places.append((np.flatnonzero(near) + first).astype(row_type(len(records))))
        found = places.whole()
    return found.astype(np.int64)


def _sparse(records: Records) -> bool:
    """Whether numbers of instances are far larger than there are records, as in some records of a long capture."""
    most, none = 64 * len(records) + (1 << 24), np.empty(0, np.int64)
    some = _instances(records, none, lambda limits: limits.most > most)
    return any(int(numbers.max(initial=-1)) > most for _, *both, _ in some for numbers in both)


def _instances(records: Records, inside: Ints, wanted: Callable[[Limits], bool]) -> Iterator[tuple[int, Array, Array, Array]]:
    """The instances and forward instances of records that follow one another, some after others: the first of them, both
    columns, and which of these records are inside. Only those with some inside, or with wanted limits of their numbers."""
    for rows, limits in records.stretches("instance", "fwd_instance"):
        begin, end = np.searchsorted(inside, (rows.start, rows.stop)).tolist()
        if begin == end and not any(map(wanted, limits)):
            continue
        for part, (own, forward) in records.pieces_of(("instance", "fwd_instance"), rows):
            for first in range(part.start, part.stop, PART_ROWS):
                here = slice(first - part.start, first - part.start + PART_ROWS)
                mine = inside[slice(*np.searchsorted(inside, (first, min(first + PART_ROWS, part.stop))))] - first
                yield first, own[here], forward[here], mine


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

    def any_within(self, limits: Limits) -> bool:
        """Whether one of them may be among numbers with these limits."""
        return bool(self._there[max(limits.least, 0) : max(limits.most + 1, 0)].any())

    def hold(self, instances: Array) -> Bools:
        """Which of some numbers are among them."""
        return self._there[np.where(instances < len(self._there), instances, -1)]
