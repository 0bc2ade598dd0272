"""The array types that columns are made of, and into which table an index points. Nothing is computed here.

A range is found in three ways, which are different types so that one is never used for another: by its position in a nesting,
by its row in the trace's table `ranges`, and by its place in a table of distinct things made from those.
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
