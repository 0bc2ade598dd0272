"""Records and the source lines that a compiler says of its kernels -> records whose scope has those lines.

What is recorded of a generated kernel's launch is a line of the generated module; what it was made from says more.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.parse.records.records import Records, Stack


def give_lines(records: Records, lines: dict[str, tuple[str, ...]]) -> int:
    """Give kernels of these names the lines that they were made from; returns how many kernels."""
    codes = [code for code, text in enumerate(records.strings.values) if text in lines]
    rows = np.flatnonzero(np.isin(records["name"], codes))
    if not len(rows):
        return 0
    pairs, _, inverse = distinct_rows(records["scope"][rows], records["name"][rows])
    new = []
    for scope, name in pairs.T.tolist():
        new.append(len(records.stacks))
        stack = records.stacks[scope] if scope >= 0 else Stack()
        records.stacks.append(replace(stack, trace=lines[records.strings[name]]))
    column = records["scope"].copy()
    column[rows] = np.array(new, column.dtype)[inverse]
    records.columns["scope"] = column
    return len(rows)
