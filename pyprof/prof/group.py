"""Records with costs -> tables of groups: by any columns (`--group-by`), or by layer with its sublayers (`--tree layer`).

A group counts op executions (calls) and kernels, and adds up time, FLOPs, bytes and lost time. Costs are already shared among
the kernels of an op, so sums are right however rows are grouped. A sum with unknown rows is unknown where `sums` says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import copy

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.types import Bools, Floats, Ints
from pyprof.prof.columns import SUMS, TREE, RecordTable
from pyprof.prof.frame import Frame
from pyprof.prof.sums import exact_sum, is_enough
from pyprof.tables.table import AnyInts, Fractions, Header, Integers, Table, Texts, Values, coded, sort_key


class GroupedRows:
    """Rows of a frame in groups: a table whose columns are computed when asked for. A row may be in several groups.

    rows: rows of the frame; group: the group of each, 0 to count - 1; of_all: the time that is 100 % of `share`, in ns.
    """

    def __init__(self, frame: Frame, rows: Ints, group: Ints, count: int, of_all: float) -> None:
        self.frame, self.rows, self.group, self.count, self.of_all = frame, rows, group, count, of_all
        self.ns = np.maximum(frame.records["dur_ns"][rows], 0)
        self.total_ns = exact_sum(self.ns, group, count)
        self.kernels = np.bincount(group, minlength=count)
        self.shown: Ints | slice = slice(None)

    def name(self, keys: Sequence[Header], values: Sequence[Values], order: Ints) -> None:
        """Set the columns that name each group, and the order of the groups."""
        self.headers, self.names, self.order = [*keys, *SUMS], Table(keys, values), order

    def of(self, key: str) -> Values:
        """The values of one column."""
        compute = _COMPUTE.get(key)
        return (self.names.of(key) if compute is None else compute(self)).take(self.shown)

    def take(self, groups: Ints) -> GroupedRows:
        """Some groups; columns are still computed for all and then cut."""
        taken = copy(self)
        taken.shown = groups
        return taken

    def amount(self, values: AnyInts) -> Integers:
        """Per group: the exact sum of the values that are not negative (known); unknown if too many are unknown."""
        known = values[self.rows] >= 0
        return Integers(exact_sum(np.where(known, values[self.rows], 0), self.group, self.count), ~self.enough(known))

    def rate(self, values: AnyInts, scale: float, digits: int) -> Fractions:
        """Per group: the sum of known values over the time of their rows."""
        amount = self.amount(values)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = amount.values.astype(np.float64) / self.sum_of(np.where(values[self.rows] >= 0, self.ns, 0)) / scale
        unseen = self.sum_of(self.frame.host_times[self.rows]) > 0
        return Fractions(ratio, amount.unknown | unseen | ~np.isfinite(ratio), digits)

    def sum_of(self, values: AnyInts | Floats) -> Floats:
        """Per group: the sum of a number per row."""
        return np.bincount(self.group, values, self.count).astype(np.float64, copy=False)

    def known(self, known: Bools) -> Floats:
        """Per group: share of the time in rows of a mask; 1 if all rows are, NaN if the group took no time."""
        with np.errstate(invalid="ignore"):
            share = self.sum_of(np.where(known, self.ns, 0)) / self.sum_of(self.ns)
        return np.where((self.sum_of(~known) == 0) & (self.kernels > 0), 1.0, share)

    def enough(self, known: Bools) -> Bools:
        """Per group: whether the rows of a mask are enough to call their sum the group's."""
        times = self.sum_of(np.where(known, self.ns, 0)), self.sum_of(self.ns)
        return np.asarray(is_enough(*times, self.sum_of(known), self.kernels), np.bool_)

    def calls(self) -> Integers:
        """Executions of ops; a row of no instance is one by itself."""
        instance = self.frame.records["instance"]
        alone = int(instance.max(initial=-1)) + 1 + self.rows
        number = np.where(instance[self.rows] >= 0, instance[self.rows], alone)
        return Integers.known(np.bincount(self.group[distinct_rows(self.group, number).first], minlength=self.count))

    def peak(self) -> Fractions:
        """The mean share of the roofline, weighted by time."""
        peak = self.frame.roofline.peak[self.rows]
        known = ~np.isnan(peak)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = self.sum_of(np.where(known, peak * self.ns, 0)) / self.sum_of(np.where(known, self.ns, 0))
        return Fractions(share, ~self.enough(known) | ~np.isfinite(share), 1)

    def mean(self) -> Fractions:
        """The mean time of a row."""
        return Fractions(self.sum_of(self.ns) / np.maximum(self.kernels, 1), self.kernels == 0, 1)

    def spread(self) -> Fractions:
        """The standard deviation of the times of the rows."""
        mean = self.mean().values
        squares = self.sum_of((self.ns - mean[self.group]) ** 2)
        return Fractions(np.sqrt(squares / np.maximum(self.kernels, 1)), self.kernels == 0, 1)

    def extreme(self, ufunc: np.ufunc, start: int) -> Integers:
        """The least or the greatest time of a row."""
        result = np.full(self.count, start, np.int64)
        ufunc.at(result, self.group, self.ns)
        return Integers(result, self.kernels == 0)


_COMPUTE: dict[str, Callable[[GroupedRows], Values]] = {
    "calls": GroupedRows.calls,
    "kernels": lambda g: Integers.known(g.kernels),
    "time": lambda g: Integers.known(g.total_ns),
    "share": lambda g: Fractions.not_nan(100 * g.total_ns.astype(np.float64) / (g.of_all or np.nan), 1),
    "flops": lambda g: g.amount(g.frame.costs.sure_flops_of(slice(None))),
    "bytes": lambda g: g.amount(g.frame.costs.bytes),
    "tflops": lambda g: g.rate(g.frame.costs.sure_flops_of(slice(None)), 1e3, 3),
    "gbs": lambda g: g.rate(g.frame.costs.bytes, 1.0, 2),
    "known": lambda g: Fractions.not_nan(100 * g.known(g.frame.costs.sure_flops_of(g.rows) >= 0), 1),
    "lost": lambda g: g.amount(g.frame.roofline.lost_ns),
    "peak": GroupedRows.peak,
    "mean": GroupedRows.mean,
    "min": lambda g: g.extreme(np.minimum, np.iinfo(np.int64).max),
    "max": lambda g: g.extreme(np.maximum, 0),
    "spread": GroupedRows.spread,
}


def group_by(frame: Frame, rows: Ints, keys: Sequence[Header]) -> GroupedRows:
    """One group per distinct combination of printed key values, most time first."""
    values = [RecordTable(frame).of(key.key).take(rows) for key in keys]
    codes = [coded(key.shown(v))[0] for key, v in zip(keys, values, strict=True)]
    first, group = distinct_rows(*codes)[1:]
    groups = GroupedRows(
        frame, rows, group, len(first), float(np.maximum(frame.records["dur_ns"][rows], 0).sum(dtype=np.float64))
    )
    order = np.lexsort([*(code[first] for code in codes[::-1]), sort_key(Integers.known(groups.total_ns))])
    groups.name(keys, [v.take(first) for v in values], order)
    return groups


def layer_tree(frame: Frame, rows: Ints, drawn: bool = False) -> GroupedRows:
    """One row per layer, with everything inside it; parents before children, siblings with most time first. drawn: names
    indented by bars in place of whole paths.
    """
    scope = frame.records["scope"][rows].astype(np.int64)
    used, inverse = np.unique(scope, return_inverse=True)
    nodes: dict[tuple[str, ...], int] = {(): 0}
    around: list[list[int]] = []  # for each stack its node and those above it
    for code in used.tolist():
        path = layer_names(frame.records.stacks[code].layer) if code >= 0 else ()
        around.append([nodes.setdefault(path[:depth], len(nodes)) for depth in range(len(path) + 1)])
    lengths = np.array([len(chain) for chain in around], np.int64)[inverse.ravel()]
    repeated = np.repeat(np.arange(len(rows)), lengths)
    node = np.array([n for code in inverse.ravel().tolist() for n in around[code]], np.int64)
    whole = float(np.maximum(frame.records["dur_ns"][rows], 0).sum(dtype=np.float64))
    groups = GroupedRows(frame, rows[repeated], node, len(nodes), whole)
    names = ["(all)" if not p else "| " * len(p) + p[-1][1:] if drawn else "".join(p)[1:] for p in nodes]
    values: list[Values] = [Texts(np.arange(len(nodes)), names), Integers.known(np.array([len(path) for path in nodes]))]
    groups.name(TREE, values, _depth_first(list(nodes), groups.total_ns.tolist()))
    return groups


def layer_names(layers: tuple[str, ...]) -> tuple[str, ...]:
    """Names from the outermost in, each with its separator: `.` within a module path, else `:`."""
    parts: list[str] = []
    for layer in layers:
        inner = layer.split(".") if re.fullmatch(r"\w+(\.\w+)+", layer) else [layer]
        parts += [f":{inner[0]}", *(f".{name}" for name in inner[1:])]
    return tuple(parts)


def _depth_first(paths: list[tuple[str, ...]], time: list[int]) -> Ints:
    inside: dict[tuple[str, ...], list[int]] = {}
    for number, path in enumerate(paths):
        if path:
            inside.setdefault(path[:-1], []).append(number)
    order: list[int] = []
    waiting = [0] if paths else []
    while waiting:
        number = waiting.pop()
        order.append(number)
        waiting += sorted(inside.get(paths[number], ()), key=lambda n: (-time[n], paths[n]), reverse=True)
    return np.array(order, np.int64)
