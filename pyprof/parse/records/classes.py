"""Records -> classes of those that are alike in all that is no time and no number of one execution.

A program does the same in each iteration: millions of records are of a few thousand classes. What depends on kernel, op,
shapes, layer, phase and device alone is worked out for one record of each class.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.arrays.columns import distinct_rows, extent
from pyprof.arrays.joining import rows_where
from pyprof.arrays.spool import computed, kept, touched
from pyprof.arrays.types import Array, Bools, Ints
from pyprof.parse.records.records import Records

ALIKE = (
    "kind", "gpu", "phase", "copykind", "recomputed", "pid", "rank", "device", "stream", "call", "own", "inner", "name",
    "scope", "grid_z", "grid_y", "block_x", "grid_x",
)  # fmt: skip
"""Columns in which the records of a class are equal; they are equal as well in whether they have a forward instance."""


class Classes(NamedTuple):
    """code: of each record its class; first: of each class the position of its first record; records: these, without the
    columns in which others of the class differ."""

    code: Ints
    first: Ints
    records: Records

    def __len__(self) -> int:
        return len(self.first)

    def rows(self, which: Bools) -> Ints:
        """The records of some classes."""
        if not which.any():
            return np.empty(0, np.int64)
        return rows_where(len(self.code), lambda part: which[self.code[part]])

    def of(self, values: Array) -> Array:
        """A column from a value of each class."""
        return computed(len(self.code), values.dtype, lambda part: values[self.code[part]])


def classes_of(records: Records) -> Classes:
    """The classes of some records."""
    forward, rows = records["fwd_instance"], len(records)
    batch, product = [computed(rows, np.bool_, lambda part: forward[part] >= 0)], 2
    for name in ALIKE:
        values = records[name]
        least, most = extent(values)
        width = most - least + 1
        if width > 1:
            if product * width > 4 * rows:  # what a table of all combinations is made for
                first, code = distinct_rows(*batch)[1:]
                batch, product = [kept(code.astype(np.int32))], len(first)
            batch.append(values)
            product *= width
    first, code = distinct_rows(*batch)[1:]
    columns: dict[str, Array] = {}
    for name in ALIKE:
        columns[name] = records[name][first]
        touched()  # the first of the classes lie anywhere
    pools = records.strings, records.stacks, records.calls, records.gpus, records.engine_steps
    return Classes(kept(code.astype(np.int32)), first, Records(columns, *pools, np.zeros(len(first) + 1, np.int64)))
