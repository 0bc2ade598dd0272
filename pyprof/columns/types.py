"""Types of columns, and types of indices by the table that they point into.

A range has three kinds of index, whose types keep them apart: its position in a nesting, its row in the trace's table
`ranges`, and its place in a table of distinct ops or functions made from these rows.
"""

from __future__ import annotations

from typing import Any, NewType

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]  # a column of whatever type its table declares
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.signedinteger[Any]]  # of any width
Ints = npt.NDArray[np.int64]

Positions = NewType("Positions", Integers)  # in a `Nested`; -1 none
Rows = NewType("Rows", Integers)  # of the trace's `ranges`; -1 none
Places = NewType("Places", Integers)  # in a table of distinct ops, functions or forward ranges; -1 none
