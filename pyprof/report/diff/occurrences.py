"""A capture -> occurrences of its ops, which match those of another capture: op, layer, shape, direction, number.

An op that runs several times in a step has several occurrences; the same occurrence of all steps is one row, with its time in
each step. Kernels without an op share one row. Knows no second capture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.intervals import summed
from pyprof.columns.nesting import stable_order
from pyprof.columns.sorting import places_in_runs
from pyprof.columns.types import Floats, Ints
from pyprof.model.trace import ActivityKind
from pyprof.prof.columns import RecordTable
from pyprof.prof.sums import KnownSums, sums_of
from pyprof.report.time.overview import Overview
from pyprof.tables.table import Texts

TIMED = (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU)
VARIES = "shapes vary"
_LEAST_VARYING = 3  # steps needed before a shape counts as varying
SHOWN = ("kernel", "math", "tc")  # columns of prof whose changes are worth a word


class OpKey(NamedTuple):
    """The key for matching ops. op: None for kernels without one; layer, shape, direction: "" unknown."""

    op: str | None
    layer: str
    shape: str
    direction: str


@dataclass(frozen=True)
class Occurrences:
    """One row per occurrence, in order of first begin.

    key: place in `keys`; nth: number among those with this key in a step; instances: executions; kernels, time_ns, flops,
    bytes: of all executions; shown: for each column of SHOWN the value with most time, "" unknown; pair_row,
    pair_step, pair_ns: time of an occurrence in one of the `steps`.
    """

    keys: list[OpKey]
    key: Ints
    nth: Ints
    instances: Ints
    kernels: Ints
    time_ns: Ints
    flops: KnownSums
    bytes: KnownSums
    shown: dict[str, list[str]]
    pair_row: Ints
    pair_step: Ints
    pair_ns: Ints
    steps: int

    def __len__(self) -> int:
        return len(self.key)

    def step_times(self, group: Ints, groups: int) -> Floats:
        """(groups, steps): ns of each group in each step. group: of each occurrence, -1 none."""
        of = group[self.pair_row]
        flat = np.where(of >= 0, of * self.steps + self.pair_step, groups * self.steps)
        return summed(flat, self.pair_ns, groups * self.steps + 1)[:-1].reshape(groups, self.steps).astype(np.float64)


def occurrences(overview: Overview) -> Occurrences:
    """The occurrences of a whole capture. Its steps are the complete ones of its window."""
    frame = overview.frame
    rows = np.flatnonzero(np.isin(frame.records["kind"], TIMED))
    records, costs = frame.records, frame.costs
    time = np.maximum(records["dur_ns"][rows], 0)
    # A unit is an execution of an op, or a kernel without an op.
    instance = records["instance"][rows].astype(np.int64)
    alone = int(instance.max(initial=-1)) + 1 + np.arange(len(rows))
    unit, first = _in_order(np.where((instance >= 0) & (records["call"][rows] >= 0), instance, alone))
    keys, key = _keys(overview, rows[first])
    step = _steps(overview, rows[first])
    keys, key = _without_varying_shapes(keys, key, step)
    nth = np.where(np.array([one.op is not None for one in keys])[key], _running_number(key, step), 0)
    row, leader = _in_order(distinct_rows(key, nth).inverse)
    count, of_record = len(leader), row[unit]
    unit_ns = summed(unit, time, len(first))
    inside = step >= 0
    (pair_row, pair_step), _, pair = distinct_rows(row[inside], step[inside])
    return Occurrences(
        keys=keys,
        key=key[leader],
        nth=nth[leader],
        instances=np.bincount(row, minlength=count),
        kernels=np.bincount(of_record, minlength=count),
        time_ns=summed(row, unit_ns, count),
        flops=sums_of(costs.sure_flops_of(rows), time, of_record, count),
        bytes=sums_of(costs.of("bytes", rows), time, of_record, count),
        shown={name: _longest(RecordTable(frame).of(name), rows, of_record, time) for name in SHOWN},
        pair_row=pair_row,
        pair_step=pair_step,
        pair_ns=summed(pair, unit_ns[inside], len(pair_row)),
        steps=0 if overview.steps is None else len(overview.steps),
    )


def _in_order(code: Ints) -> tuple[Ints, Ints]:
    """(codes renumbered in order of first row, first row of each)."""
    _, first, inverse = distinct_rows(code)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place[inverse], first[order]


def _keys(overview: Overview, rows: Ints) -> tuple[list[OpKey], Ints]:
    """(the distinct keys, the key of each of these records)."""
    table = RecordTable(overview.frame)
    texts: list[Texts] = []
    for name in ("op", "layer", "params", "dir"):
        values = table.of(name)
        assert isinstance(values, Texts)
        texts.append(values)
    codes = [np.where(overview.records["call"][rows] >= 0, values.codes[rows].astype(np.int64), -1) for values in texts]
    distinct, _, inverse = distinct_rows(*codes)
    found: dict[OpKey, int] = {}
    place = []
    for op, *rest in distinct.T.tolist():
        other = (values.pool[code] if code >= 0 else "" for values, code in zip(texts[1:], rest, strict=True))
        key = OpKey(texts[0].pool[op] if op >= 0 else None, *other)
        place.append(found.setdefault(key, len(found)))
    return list(found), np.array(place, np.int64)[inverse]


def _without_varying_shapes(keys: list[OpKey], key: Ints, step: Ints) -> tuple[list[OpKey], Ints]:
    """Merge keys whose shapes depend on the data, since they change from step to step.

    A shape varies if fewer than half of the steps have it, while most steps have its op in that layer.
    """
    inside = step >= 0
    (number,), (seen, _) = distinct_rows(step[inside]).columns, distinct_rows(key[inside], step[inside]).columns
    often = np.bincount(seen, minlength=len(keys))
    rare = (often > 0) & (often * 2 < len(number))
    if len(number) < _LEAST_VARYING or not rare.any():
        return keys, key
    merged: dict[OpKey, int] = {}
    varying = [one._replace(shape=VARIES) for one in keys]
    parents: dict[OpKey, int] = {}
    parent = np.array([parents.setdefault(one, len(parents)) for one in varying], np.int64)
    rare_rows = inside & rare[key]
    of_parent = distinct_rows(parent[key[rare_rows]], step[rare_rows]).columns[0]
    varies = rare & (np.bincount(of_parent, minlength=len(parents)) * 2 >= len(number))[parent]
    new = [
        merged.setdefault(one if change else old, len(merged)) for one, old, change in zip(varying, keys, varies, strict=True)
    ]
    return list(merged), np.array(new, np.int64)[key]


def _steps(overview: Overview, rows: Ints) -> Ints:
    """The step that launched each of these records (an op on the CPU: began it), -1 for none."""
    steps, records = overview.steps, overview.records
    if steps is None:
        return np.full(len(rows), -1, np.int64)
    when = np.where(records["launch_ns"][rows] >= 0, records["launch_ns"][rows], records["start_ns"][rows])
    step = np.searchsorted(steps.begin_ns, when, "right") - 1
    return np.where((step >= 0) & (when < steps.end_ns[np.maximum(step, 0)]), step, -1)


def _running_number(key: Ints, step: Ints) -> Ints:
    """Per row: how many earlier rows have the same key and step."""
    code = distinct_rows(key, step).inverse
    order = stable_order(code)
    number = np.empty(len(code), np.int64)
    number[order] = places_in_runs(np.diff(code[order], prepend=-1) != 0)
    return number


def _longest(values: object, rows: Ints, group: Ints, time: Ints) -> list[str]:
    """The text with most time in each group."""
    assert isinstance(values, Texts)
    (of, code), _, pair = distinct_rows(group, values.codes[rows].astype(np.int64))
    spent = summed(pair, time, len(of))
    order = np.lexsort((-spent, code < 0, of))
    first = order[np.flatnonzero(np.diff(of[order], prepend=-1) != 0)]
    return [values.pool[at] if at >= 0 else "" for at in code[first].tolist()]
