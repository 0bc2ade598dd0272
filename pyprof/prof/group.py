"""Records with costs -> tables of groups: by any columns (`--group-by`), or by layer with all inside it (`--tree layer`).

A group counts the executions of ops (calls) and kernels, and adds time, FLOPs and bytes. Costs were shared among the kernels of
an op beforehand, so every sum is right, however rows are grouped. What is unknown adds nothing, and rates leave its time out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.arrays.distinct import distinct_rows
from pyprof.prof.columns import Column, unknown_as
from pyprof.prof.frame import Floats, Frame, Numbers, Texts, Values
from pyprof.prof.select import ordered

__all__ = ["Table", "group_by", "layer_tree"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Table:
    """Columns with their values, equally long."""

    columns: list[Column]
    values: list[Values]

    def take(self, rows: Ints) -> Table:
        """These rows only."""
        return Table(self.columns, [values.take(rows) for values in self.values])

    @property
    def rows(self) -> Ints:
        """The numbers of all rows."""
        return np.arange(len(_data(self.values[0])))


def group_by(frame: Frame, rows: Ints, keys: Sequence[Column]) -> Table:
    """One row for each distinct combination of what the key columns print, most time first."""
    coded = [_coded(key.compute(frame).take(rows)) for key in keys]
    if not len(rows):
        return Table([*keys, *_SUMS], [*(Texts(rows, []) for _ in keys), *(Numbers(rows) for _ in _SUMS)])
    _, first, group = distinct_rows(*(key.codes for key in coded))
    table = _summed(frame, rows, group, len(first))
    values = [key.take(first) for key in coded]
    whole = Table([*keys, *table.columns], [*values, *table.values])
    return whole.take(ordered([table.values[2], *values], whole.rows))


def _coded(values: Values) -> Texts:
    """What a column prints, as codes into a pool of distinct texts in order."""
    if isinstance(values, Texts):
        used, inverse = np.unique(values.codes, return_inverse=True)
        texts = unknown_as(Texts(used, values.pool))
    else:
        distinct, inverse = np.unique(values.values, return_inverse=True)
        texts = unknown_as(Floats(distinct, values.digits) if isinstance(values, Floats) else Numbers(distinct))
    pool = sorted(set(texts))
    code = {text: number for number, text in enumerate(pool)}
    return Texts(np.array([code[text] for text in texts], np.int64)[inverse.ravel()], pool)


def layer_tree(frame: Frame, rows: Ints, drawn: bool = False) -> Table:
    """One row for each layer and all around it, each with everything inside; a layer stands before those inside it, and of
    layers side by side the one with more time first. drawn: names with bars before them in place of whole paths.
    """
    scope = frame.records["scope"][rows].astype(np.int64)
    used, inverse = np.unique(scope, return_inverse=True)
    nodes: dict[tuple[str, ...], int] = {(): 0}
    around: list[list[int]] = []  # for each stack its node and those above it
    for code in used.tolist():
        path = _parts(frame.records.stacks[code].layer) if code >= 0 else ()
        around.append([nodes.setdefault(path[:depth], len(nodes)) for depth in range(len(path) + 1)])
    lengths = np.array([len(chain) for chain in around], np.int64)[inverse.ravel()]
    repeated = np.repeat(np.arange(len(rows)), lengths)
    node = np.array([n for code in inverse.ravel().tolist() for n in around[code]], np.int64)
    table = _summed(frame, rows[repeated], node, len(nodes), total_of=rows)
    time = _data(table.values[2])
    order = _depth_first(list(nodes), time.tolist())
    names = ["(all)" if not p else "| " * len(p) + p[-1][1:] if drawn else "".join(p)[1:] for p in nodes]
    columns = [Column("layer", "Layer", "the layer, and all inside it", _with_its_table, 20, True), _DEPTH, *table.columns]
    values: list[Values] = [Texts(np.arange(len(nodes)), names), Numbers(np.array([len(p) for p in nodes]))]
    return Table(columns, [*values, *table.values]).take(order)


def _parts(layers: tuple[str, ...]) -> tuple[str, ...]:
    """Names from the outside in, each with what joins it to the one before: `.` in a module's path, `:` else."""
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


# ---------------------------------------------------------------------------------------------- sums


def _with_its_table(frame: Frame) -> Values:
    raise TypeError("sums of groups are computed with their table, not from records alone")


def _column(key: str, header: str, text: str, width: int = 7) -> Column:
    return Column(key, header, text, _with_its_table, width)


_DEPTH = _column("depth", "Depth", "layers around it", 5)
_SUMS = [
    _column("calls", "Calls", "executions of ops", 7),
    _column("kernels", "Kernels", "kernels, or other rows", 7),
    _column("time", "Time(ns)", "time of all of them", 12),
    _column("share", "Share(%)", "of the time of all rows of the table", 8),
    _column("flops", "FLOPs", "operations that the algorithm needs, where known", 12),
    _column("bytes", "Bytes", "least bytes, where known", 12),
    _column("tflops", "TFLOP/s", "rate of those whose FLOPs are known", 8),
    _column("gbs", "GB/s", "rate of those whose bytes are known", 8),
]


def _summed(frame: Frame, rows: Ints, group: Ints, groups: int, total_of: Ints | None = None) -> Table:
    """The columns of sums over the rows of each group; a row may stand in several groups."""
    records = frame.records
    duration = np.maximum(records["dur_ns"][rows], 0)
    time = _sum(duration, group, groups)
    everything = np.maximum(records["dur_ns"][rows if total_of is None else total_of], 0).sum(dtype=np.float64)
    instance = records["instance"][rows]
    alone = int(records["instance"].max(initial=-1)) + 1 + rows
    executions = group[distinct_rows(group, np.where(instance >= 0, instance, alone)).first]
    share = 100 * time.astype(np.float64) / everything if everything else np.full(groups, np.nan)
    values: list[Values] = [
        Numbers(np.bincount(executions, minlength=groups)),
        Numbers(np.bincount(group, minlength=groups)),
        Numbers(time),
        Floats(share, 1),
    ]
    rates: list[Values] = []
    for cost, scale in ((frame.costs.flops, 1e3), (frame.costs.bytes, 1.0)):
        known = cost[rows] >= 0
        added = _sum(np.where(known, cost[rows], 0), group, groups)
        spent = np.bincount(group, np.where(known, duration, 0), groups)
        some = np.bincount(group[known], minlength=groups) > 0
        values.append(Numbers(np.where(some, added, -1)))
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = added.astype(np.float64) / spent / scale
        rates.append(Floats(np.where(some & (spent > 0), rate, np.nan), 3 if scale > 1 else 2))
    return Table(list(_SUMS), [*values, *rates])


def _sum(values: Ints, group: Ints, groups: int) -> npt.NDArray[np.object_] | Ints:
    """Exact sums of numbers that are not negative; Python's own integers where 64 bits do not hold one."""
    low, high = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    np.add.at(low, group, values & 0xFFFFFFFF)
    np.add.at(high, group, values >> 32)
    if not groups or int(high.max()) + (int(low.max()) >> 32) < 1 << 30:
        return (high << 32) + low
    return np.array([(h << 32) + n for h, n in zip(high.tolist(), low.tolist(), strict=True)], object)


def _data(values: Values) -> npt.NDArray[Any]:
    return values.codes if isinstance(values, Texts) else values.values
