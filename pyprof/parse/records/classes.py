"""Records -> groups of records that differ only in times and in numbers of single executions.

A program repeats itself: a million records form a few thousand groups. Values that depend only on kernel, op, shapes, layer,
phase and device are computed once per group and gathered by `code`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.types import Array, Bools, Ints
from pyprof.model.records import COLUMNS, Records

ALIKE = (
    "kind", "gpu", "phase", "copykind", "recomputed", "pid", "rank", "device", "stream", "call", "own", "inner", "name",
    "scope", "grid_z", "grid_y", "block_x", "grid_x",
)  # fmt: skip
"""Columns in which the records of a group are equal; they also all have a forward instance, or none has."""


class Classes(NamedTuple):
    """code: group number of each record; first: position of each group's first record; records: one row per group, with the
    columns in ALIKE; linked: whether the group's records have a forward instance."""

    code: Array
    first: Ints
    records: Records
    linked: Bools

    def __len__(self) -> int:
        return len(self.first)

    def rows(self, which: Bools) -> Ints:
        """Positions of the records of the groups in a mask, ascending."""
        return np.flatnonzero(which.take(self.code))

    def of(self, values: Array) -> Array:
        """A column of records from one value per group."""
        return values.take(self.code)


def classes_of(records: Records) -> Classes:
    """Group the records; groups ascend by `linked`, then by the columns of ALIKE in their order."""
    alike = (records.of_rows(name, slice(None)) for name in ALIKE)  # of a file not kept: most are needed here only
    found = distinct_rows(records["fwd_instance"] >= 0, *alike)
    linked, *values = found.columns
    columns = {name: own.astype(COLUMNS[name][0]) for name, own in zip(ALIKE, values, strict=True)}
    pools = records.strings, records.stacks, records.calls, records.gpus, records.engine_steps
    firsts = Records(columns, *pools, np.zeros(len(found.first) + 1, np.int64))
    return Classes(found.inverse.astype(np.int32), found.first, firsts, linked != 0)
