"""Records -> the ops that took most time, one line for each op with its direction, shapes and types. No files, no torch."""

from __future__ import annotations

from typing import TextIO

import numpy as np

from pyprof.parse.records import Records
from pyprof.parse.trace import ActivityKind
from pyprof.prof.columns import choose, unknown_as
from pyprof.prof.frame import Frame

__all__ = ["print_top"]

_KINDS = (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU)


def print_top(records: Records, stream: TextIO, count: int, width: int) -> None:
    """Print the `count` ops with the largest sum of time over their kernels (without a GPU, their own time on the CPU).

    Calls: executions of the op; Share: of the time of all rows. Lines are cut at `width` characters.
    """
    rows = records.select(np.isin(records["kind"], _KINDS))
    frame = Frame(rows)
    texts = [unknown_as(column.compute(frame)) for column in choose("dir,op,params")]
    numbers: dict[tuple[str, ...], int] = {}
    group = np.array([numbers.setdefault(key, len(numbers)) for key in zip(*texts, strict=True)], np.int64)
    spent = np.bincount(group, rows["dur_ns"], len(numbers))
    alone = int(rows["instance"].max(initial=-1)) + 1 + np.arange(len(rows))
    calls = np.unique(np.stack([group, np.where(rows["instance"] >= 0, rows["instance"], alone)]), axis=1)[0]
    executions = np.bincount(calls, minlength=len(numbers))
    keys, total = list(numbers), spent.sum()
    stream.write(f"{'Time(ms)':>11} {'Share':>6} {'Calls':>7} {'Direc':5} {'Op':20} Params\n")
    for at in np.argsort(-spent, kind="stable")[:count].tolist():
        direction, op, params = keys[at]
        share = 100 * spent[at] / total if total else 0.0
        line = f"{spent[at] / 1e6:11.3f} {share:5.1f}% {executions[at]:7d} {direction:5} {op:20} {params}"
        stream.write(line[:width].rstrip() + "\n")
