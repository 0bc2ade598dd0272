"""Records -> the types that the record of an op lacks, from the op inside it, its kernel or its forward op.

Older traces of torch.profiler hold the options of no op, all of them no types of tensors in lists; emit_nvtx's text holds no
types at all. No costs here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pyprof.arrays.columns import distinct_rows, distinct_values
from pyprof.arrays.types import Bools, Ints
from pyprof.dtypes import DTYPES, lookup
from pyprof.hardware.kernels import element_type
from pyprof.opcall import CONVERSIONS, UNKNOWN, OpCall, TensorSpec
from pyprof.parse.records.records import Records
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof import formulas
from pyprof.prof.formulas import Cost


def recorded_inside(records: Records, classes: Records) -> Ints:
    """For each record the op within its own that recorded what that did not, -1 where its own is to be costed.

    NCCL's annotation within a collective whose tensors were in lists; the copy within a conversion, and the filling within
    `zeros_like`, where types were not recorded with the options. On the CPU a conversion without a copy: itself. classes: a
    record of each class.
    """
    calls, nothing = records.calls, np.broadcast_to(np.int64(-1), len(records))
    bare, untyped, converts = (
        _flags(calls, holds)
        for holds in (
            lambda call: call.module == "c10d" and not call.tensors,
            _moves_unknown,
            lambda call: call.name in CONVERSIONS,
        )
    )
    if not (bare | untyped | converts).any():
        return nothing
    told, written = _flags(calls, lambda call: call.module == "nccl" and bool(call.tensors)), _flags(calls, _writes_typed)
    own, inner = classes["own"], classes["inner"]
    cpu = (classes["kind"] == ActivityKind.CPU) & (inner == own) & converts[own]
    if not ((bare[own] & told[inner]) | (untyped[own] & written[inner]) | cpu).any():
        return nothing
    own, inner = records["own"], records["inner"].astype(np.int64)
    better = bare[own] & told[inner]
    if (moves := untyped[own]).any():
        better |= moves & written[inner] & _only(records, inner)
    cpu = records["kind"] == ActivityKind.CPU
    if cpu.any():
        better |= cpu & (inner == own) & converts[own]
    return np.where(better, inner, -1) if better.any() else nothing


def elements(records: Records, classes: Records | None = None) -> Ints:
    """For each record the place in DTYPES of the types in its own op's lists of tensors, which torch.profiler does not
    record, from the name of a kernel of the instance; -1 where they are known or no name says it. classes: a record of
    each, where they are known."""
    flags, nothing = _flags(records.calls, _lists_untyped), np.broadcast_to(np.int64(-1), len(records))
    if not flags[(records if classes is None else classes)["own"]].any():
        return nothing
    untyped = flags[records["own"]] & (records["instance"] >= 0)
    if not untyped.any():
        return nothing
    element = np.full(len(records), -1, np.int64)
    names = distinct_values(records["name"][untyped]).tolist()
    for name, found in zip(names, map(element_type, map(records.strings.__getitem__, names)), strict=True):
        if found is not None:
            element[untyped & (records["name"] == name)] = DTYPES.index(found)
    named = np.flatnonzero(element >= 0)
    if len(named):  # as well for the other kernels of those instances
        instances, first = np.unique(records["instance"][named], return_index=True)
        rows = np.flatnonzero(untyped & np.isin(records["instance"], instances))
        element[rows] = element[named[first]][np.searchsorted(instances, records["instance"][rows])]
    return element


def _only(records: Records, inner: Ints) -> Bools:
    """Whether all rows of a record's instance have its inner op."""
    instance = records["instance"].astype(np.int64)
    several = distinct_rows(*distinct_rows(instance, inner).columns[:1])
    return np.asarray(~np.isin(instance, several.columns[0][np.bincount(several.inverse) > 1]))


def _flags(calls: list[OpCall], holds: Callable[[OpCall], bool]) -> Bools:
    """For each call whether it holds, and False for code -1."""
    return np.array([*map(holds, calls), False], np.bool_)


def _moves_unknown(call: OpCall) -> bool:
    """Whether an op of the dispatcher only moves data, how much depending on an option that was not recorded."""
    return call.dispatcher and UNKNOWN in call.args and formulas.evaluate(call).cost == Cost(0, 0, None)


def _lists_untyped(call: OpCall) -> bool:
    """Whether a dispatcher op has lists of tensors of which only the sizes were recorded."""
    lists = [value for value in call.args if isinstance(value, list) and value and isinstance(value[0], TensorSpec)]
    return call.dispatcher and bool(lists) and not any(tensor.dtype for tensors in lists for tensor in tensors)


def typed(call: OpCall, dtype: str | None) -> OpCall:
    """The call with this type where a tensor has none."""
    return call.map_tensors(lambda tensor: tensor if tensor.dtype else replace(tensor, dtype=dtype))


def _writes_typed(call: OpCall) -> bool:
    """Whether a dispatcher op writes into its first tensor and does nothing else, all types recorded: `copy_`, `fill_`."""
    return call.op in ("copy_", "fill_", "zero_") and bool(call.tensors) and all(t.dtype for t in call.tensors)


# Ops with operands of another type than their data.
_OTHER_TYPES = (
    r"where|mask|logical|bitwise|index|gather|scatter|embedding|nll_loss|cross_entropy|max_pool|fractional|unpool"
    r"|dropout|take|put|select|sort|topk|kthvalue|median|mode|cummax|cummin|segment|ctc|one_hot|bucketize|searchsorted"
    r"|^(?:eq|ne|lt|le|gt|ge|to|_to_copy|copy_|isnan|isinf|isfinite|any|all)_?$"
)


def with_dtype(call: OpCall, forward: OpCall) -> OpCall:
    """A call whose tensors have no dtype, with the one floating dtype of its forward op.

    Unchanged where that has several, or where the call takes masks, indices or labels beside its data.
    """
    if all(t.dtype is not None for t in call.tensors) or re.search(_OTHER_TYPES, call.op):
        return call
    if formulas.is_copy(call.name) and re.search(_OTHER_TYPES, forward.op):  # perhaps of its mask or indices
        return call
    floats = {t.dtype for t in forward.tensors if (d := lookup(t.dtype)) is not None and d.kind in ("float", "complex")}
    if len(floats) != 1:
        return call
    return typed(call, floats.pop())
