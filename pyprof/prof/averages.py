"""Executions -> the table that torch users know from `key_averages()`: one row for each op, or op and input shapes.

Times are in ns, as everywhere. self: without the ops inside it; total: with them, so that totals of nested ops count twice, as
in torch's table. flops and bytes come from our formulas and include the ops inside (torch has them for few ops); they are
unknown if they are unknown for some calls, as in other tables.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyprof.columns.types import Ints
from pyprof.errors import UsageError
from pyprof.model.opcall import OpCall, TensorSpec
from pyprof.parse.attribution.op_executions import Executions
from pyprof.prof import formulas
from pyprof.prof.columns import TORCH_COLUMNS, TORCH_KEYS
from pyprof.prof.sums import is_enough
from pyprof.tables.output import ordered
from pyprof.tables.table import Fractions, Integers, Table, Texts, Values


def keys_of(text: str) -> list[str]:
    """The keys of `--group-by` for this table: `op`, or `op` and `shape`. Raises UsageError for others."""
    spelled = {"op": "op", "shape": "shape", "params": "shape"}
    keys = [spelled.get(part.strip().lower(), "") for part in text.split(",") if part.strip()]
    if "op" not in keys or not all(keys):
        raise UsageError(f"torch's columns group by op, or op,shape, not by {text!r}", "for example --group-by op,shape")
    return ["op", "shape"] if "shape" in keys else ["op"]


def averages(found: Executions, keys: list[str]) -> Table:
    """One row for each op (and input shapes), most self time on the device first (on the CPU if nothing ran on a device)."""
    used, inverse = np.unique(found.label, return_inverse=True)
    pools: dict[tuple[str, ...], int] = {}
    calls = [found.markers[label].call for label in used.tolist()]
    # As torch prints input shapes: a list for each input, empty for anything but a tensor.
    shapes = ["[]" if c is None or not c.described else str([*map(_shape, c.args)]) for c in calls]
    texts = [(found.names[label], shape)[: len(keys)] for label, shape in zip(used.tolist(), shapes, strict=True)]
    code = np.array([pools.setdefault(text, len(pools)) for text in texts], np.int64)
    group, size = code[inverse.ravel()] if len(used) else np.empty(0, np.int64), len(pools)

    def total(name: str) -> Ints:
        result = np.zeros(size, np.int64)
        np.add.at(result, group, getattr(found, name))
        return result

    count = np.bincount(group, minlength=size)
    times = {name: total(name) for name in ("self_cpu_ns", "cpu_ns", "self_device_ns", "device_ns", "kernels")}
    memory = [total(name) for name in ("cpu_mem", "self_cpu_mem", "device_mem", "self_device_mem")]
    device = found.on_device
    values: list[Values] = [Texts(np.arange(size), [text[place] for text in pools]) for place in range(len(keys))]
    for kind, known in (("cpu", True), ("device", device)):
        own, whole = times[f"self_{kind}_ns"], times[f"{kind}_ns"]
        values += [_known(own, known), _ratio(100 * own, own.sum(), known), _known(whole, known), _ratio(whole, count, known)]
    values += [_known(part, found.with_memory) for part in memory]
    values += [Integers.known(count), _known(times["kernels"], device)]
    values += _costs(calls, inverse.ravel(), found.device_ns if device else found.cpu_ns, code, size)
    table = Table([*TORCH_KEYS[: len(keys)], *TORCH_COLUMNS], values)
    return table.take(ordered([table.of("self_device" if device else "self_cpu")], table.rows))


def _known(values: Ints, known: bool) -> Integers:
    return Integers(values, np.full(len(values), not known))


def _ratio(part: Ints, whole: Ints | np.int64, known: bool) -> Fractions:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = part / np.asarray(whole, np.float64)
    return Fractions(ratio, ~(np.isfinite(ratio) & known))


def _shape(value: Any) -> list[Any]:
    if isinstance(value, TensorSpec):
        return list(value.shape)
    if isinstance(value, list) and any(isinstance(item, TensorSpec) for item in value):
        return [_shape(item) for item in value]
    return []


def _costs(calls: list[OpCall | None], execution: Ints, spent: Ints, code: Ints, size: int) -> list[Values]:
    """FLOPs, bytes and the share of time with known FLOPs of each group.

    execution: call of each execution; spent: time of each execution; code: group of each call.
    """
    each = np.bincount(execution, minlength=len(calls))
    weight = np.bincount(execution, spent, len(calls))
    weight = np.where(np.bincount(code, weight, size)[code] > 0, weight, each)  # a group that took no time: by count
    costs = [formulas.evaluate(call).cost if call is not None else None for call in calls]
    parts: list[Values] = []
    share = np.zeros(size)
    for name in ("bytes", "flops"):
        values = [None if cost is None else getattr(cost, name) for cost in costs]
        known = np.array([value is not None for value in values], np.bool_)
        of_known, of_all = np.bincount(code, weight * known, size), np.bincount(code, weight, size)
        share, number = of_known / of_all, np.bincount(code, each * known, size)
        sums = [0] * size
        for value, times, group in zip(values, each.tolist(), code.tolist(), strict=True):
            sums[group] += times * (value or 0)
        total = np.array(sums, object if max(sums, default=0) >= 1 << 62 else np.int64)
        parts.insert(0, Integers(total, ~is_enough(of_known, of_all, number, np.bincount(code, each, size))))
    return [*parts, Fractions.not_nan(100 * share, 1)]
