"""Some records of a long capture -> the records on which depends all that is computed of those; the others need not be read.

A cost is shared among the kernels of an op, a backward takes types from its forward, and a forward sizes from its backward: the
records of these ops are needed, which the numbers of instances name wherever they lie. Whether the device waited for a launch
depends on all that ran before. Nothing else does: each value here is that of the whole capture.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import among, distinct_values
from pyprof.arrays.spool import pieces
from pyprof.arrays.types import Bools, Ints
from pyprof.hardware.devices import Gpu
from pyprof.parse.records.records import Records
from pyprof.prof.frame import Frame
from pyprof.prof.infer import pairs_all

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
    if len(inside) * _WORTH > len(records) or pairs_all(records):
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
    """Positions of some records and of all of the same ops, of their forward and their backward, ascending."""
    needed, known = inside, -1
    while True:
        instances = np.concatenate([records.of_rows("instance", needed), records.of_rows("fwd_instance", needed)])
        instances = distinct_values(instances[instances >= 0])
        if len(instances) in (0, known):
            return needed
        known, near = len(instances), np.zeros(len(records), np.bool_)
        near[inside] = True  # those of no op
        for name in "instance", "fwd_instance":
            rows = np.flatnonzero(records.within(name, int(instances[0]), int(instances[-1]) + 1))
            near[rows] |= among(records.of_rows(name, rows), instances)
        needed = np.flatnonzero(near)
