"""The gaps of a window and their causes -> where the device idles: before which op in which layer, how long, why.

Columnar until places are grouped: a window has as many gaps as kernels. No layout here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.intervals import summed
from pyprof.arrays.spool import computed, pieces, taken
from pyprof.arrays.types import Ints
from pyprof.prof.group import layer_names
from pyprof.report.time.causes import CAUSES
from pyprof.report.time.overview import Overview
from pyprof.tables.names import text_of

_MOST = 40


def places_of(overview: Overview) -> list[dict[str, Any]]:
    """The ops before which the devices idled longest: op (None: a kernel without one, named; or the window's end), layer, gaps,
    time_ns, causes with their ns, both mean over the devices."""
    gaps, records, idle = overview.division.gaps, overview.records, overview.idle
    if not len(gaps):
        return []
    after = gaps.after
    ops, op_of = _codes([one.op for one in records.calls])
    layers, layer_of = _codes(["".join(layer_names(one.layer))[1:] for one in records.stacks])

    def of_op(part: slice) -> Ints:
        return np.where(after[part] >= 0, op_of[records["call"][after[part]]], -2)

    def of_name(part: slice) -> Ints:
        return np.where(of_op(part) == -1, records["name"][after[part]].astype(np.int64), -1)

    def of_layer(part: slice) -> Ints:
        return np.where(after[part] >= 0, layer_of[records["scope"][after[part]]], -1)

    op, name, layer = (computed(len(after), np.int32, of) for of in (of_op, of_name, of_layer))
    (op, name, layer), _, group = distinct_rows(op, name, layer)
    count = len(op)
    devices = max(overview.division.count, 1)
    time, gaps_of = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for part in pieces(len(group)):
        time += summed(group[part], gaps.time_ns[part].astype(np.int64), count)
        gaps_of += np.bincount(group[part], minlength=count)
    time //= devices
    causes = {}
    for cause in CAUSES:
        rows, ns = idle.rows_of(cause)
        causes[cause] = summed(taken(group, rows), ns, count) // devices

    def what(at: int) -> str:
        if op[at] == -2:
            return "the window's end"
        return text_of(ops[op[at]] if op[at] >= 0 else records.strings[int(name[at])])

    return [
        {
            "op": what(at), "layer": text_of(layers[layer[at]]) if layer[at] >= 0 else "", "gaps": int(gaps_of[at]),
            "time_ns": int(time[at]),
            "causes": sorted(([cause, int(ns[at])] for cause, ns in causes.items() if ns[at]), key=lambda one: -one[1]),
        }
        for at in np.argsort(-time, kind="stable")[:_MOST].tolist()
    ]  # fmt: skip


def _codes(texts: Sequence[str]) -> tuple[list[str], Ints]:
    """Distinct texts, and the code of each; at the end -1, of what has none."""
    known = dict.fromkeys(texts)
    code = {text: number for number, text in enumerate(known)}
    return [*known], np.array([*map(code.__getitem__, texts), -1], np.int64)
