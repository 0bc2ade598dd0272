"""Kernels of a window -> cells: sums over the kernels with the same op, shapes, phase, layer and kernel name.

All tables and charts of the page add up cells, so they agree and filter together. The number of cells does not grow with the
number of kernels. No layout here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pyprof.columns.distinct import distinct_rows, is_first
from pyprof.columns.intervals import summed
from pyprof.columns.types import Ints
from pyprof.hardware.names import short_name
from pyprof.model.records import PHASES
from pyprof.prof.frame import Frame, params
from pyprof.prof.group import layer_names
from pyprof.prof.roofline import BOUNDS
from pyprof.prof.sums import LEAST_KNOWN, exact_sum
from pyprof.tables.names import text_of

MOST = 12_000  # cells of a page; the smallest ones beyond it are summed up
_T = TypeVar("_T")


class _Codes:
    """Numbers distinct things in order of appearance."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}

    def all(self, things: Sequence[_T], key: Callable[[_T], object], none: object) -> Ints:
        """The number of each thing; the last is for records without one (code -1)."""
        return np.array([self.known.setdefault(one, len(self.known)) for one in [*map(key, things), none]], np.int64)


class _CellSums(NamedTuple):
    """Per cell: kernels, executions of ops that begin in it, ns; FLOPs, bytes and ns above the roofline, each where known with
    the time of these kernels; the least ns that the roofline allows."""

    kernels: Ints
    calls: Ints
    time_ns: Ints
    flops: Ints
    flops_ns: Ints
    bytes: Ints
    bytes_ns: Ints
    lost_ns: Ints
    lost_of_ns: Ints
    least_ns: Ints


def cells_of(frame: Frame, rows: Ints, most: int = MOST) -> dict[str, Any]:
    """The cells of these records as columns for JSON, with the lists that their codes point into."""
    records, tables = frame.records, [_Codes() for _ in range(4)]
    ops, paths, kernels, sources = tables
    verdict, verdicts = frame.verdicts
    columns = (records["call"], records["phase"], records["scope"], records["name"], verdict, frame.roofline.bound)
    raw = distinct_rows(*(column[rows] for column in columns))
    sums = _summed(frame, rows, raw.inverse, len(raw.first))
    call, phase, scope, name, verdict, bound = raw.columns
    names = [*map(records.strings.__getitem__, (used := np.unique(name)).tolist())]
    source = sources.all(records.stacks, lambda one: one.trace[-1] if one.trace else None, None)[scope]
    coded = (
        ops.all(records.calls, lambda one: (one.op, params(one)), (None, None))[call],
        np.where(phase < 0, len(PHASES), phase),
        paths.all(records.stacks, lambda one: layer_names(one.layer), ())[scope],
        kernels.all(names, str, None)[np.searchsorted(used, name)],
        verdict,
        np.where(bound < 0, len(BOUNDS), bound),
    )
    found = distinct_rows(*coded)
    merged = _CellSums(*(_sum(column, found.inverse, len(found.first)) for column in sums))
    order = np.argsort(-merged.time_ns, kind="stable")
    shown, rest = order[:most], order[most:]
    largest = np.lexsort((-sums.time_ns, found.inverse))
    source = source[largest[np.searchsorted(found.inverse[largest], np.arange(len(found.first)))]]
    op, phase, path, kernel, verdict, bound = (column[shown].tolist() for column in found.columns)
    return {
        "ops": [[name and text_of(name), shape and text_of(shape)] for name, shape in ops.known],
        "phases": [*PHASES, "unknown"],
        "least_known": LEAST_KNOWN,
        "layers": _tree([*paths.known], path),
        "names": [[text_of(short_name(one)) or "(no name)", text_of(one)] for one in kernels.known if one is not None],
        "verdicts": [[one.tc, one.math, one.reason] for one in verdicts],
        "bounds": [*BOUNDS, None],
        "sources": [None if one is None else text_of(one) for one in sources.known],
        "rest": {"cells": len(rest), "time_ns": int(merged.time_ns[rest].sum()), "kernels": int(merged.kernels[rest].sum())},
        "op": op, "phase": phase, "layer": path, "kernel": kernel, "verdict": verdict, "bound": bound,
        "source": source[shown].tolist(),
        **{name: column[shown].tolist() for name, column in merged._asdict().items()},
    }  # fmt: skip


def _summed(frame: Frame, rows: Ints, group: Ints, count: int) -> _CellSums:
    """Sums over these records by group. An execution of an op counts in the group of its first record."""
    instance, time = frame.records["instance"][rows], np.maximum(frame.records["dur_ns"][rows], 0).astype(np.int64)
    begins = (instance < 0) | is_first(instance)
    found = [np.bincount(group, minlength=count), np.bincount(group[begins], minlength=count), summed(group, time, count)]
    seen = ~frame.host_times[rows]
    for values in (frame.costs.sure_flops_of(rows), frame.costs.of("bytes", rows), frame.roofline.lost_ns[rows]):
        known = (values >= 0) & seen
        found.append(_sum(np.where(known, values, 0), group, count))
        found.append(summed(group, np.where(known, time, 0), count))
    least = np.rint(np.nan_to_num(frame.roofline.peak[rows] / 100 * time)).astype(np.int64)
    found.append(_sum(least, group, count))
    return _CellSums(*found)


def _sum(values: Ints, group: Ints, count: int) -> Ints:
    return np.asarray(exact_sum(values, group, count))


def _tree(paths: Sequence[tuple[str, ...]], used: list[int]) -> dict[str, list[Any]]:
    """The layers as a tree. parent: of each node, -1 for the first, which is everything; name: with the character that joins it
    to its parent; node: of each path."""
    nodes: dict[tuple[str, ...], int] = {(): 0}
    parent, name, node = [-1], [""], [0] * len(paths)
    for code in dict.fromkeys(used):
        for depth in range(1, len(paths[code]) + 1):
            path = paths[code][:depth]
            if path not in nodes:
                nodes[path] = len(nodes)
                parent.append(nodes[path[:-1]])
                name.append(path[-1][:1] + text_of(path[-1][1:]))
        node[code] = nodes[paths[code]]
    return {"parent": parent, "name": name, "node": node}
