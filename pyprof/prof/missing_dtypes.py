"""Records -> dtypes missing from the record of an op, taken from the op inside it, its kernel or its forward op.

Older torch.profiler traces record no options, and no torch.profiler trace records dtypes of tensors in lists; emit_nvtx text
has no dtypes at all.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.types import Ints
from pyprof.hardware.kernels import element_type
from pyprof.model.dtypes import DTYPES, lookup
from pyprof.model.opcall import CONVERSIONS, UNKNOWN, OpCall, TensorSpec
from pyprof.model.records import Records
from pyprof.model.trace import ActivityKind
from pyprof.prof import formulas
from pyprof.prof.formulas import Cost

_MOVES_UNKNOWN = Cost(0, 0, None)
_FILLS = ("copy_", "fill_", "zero_")


def recorded_inside(records: Records, classes: Records) -> Ints:
    """For each record the call inside its own op that has what the op lacks; -1 to cost the op itself.

    NCCL's annotation in a collective whose tensors were in lists; the copy in a conversion and the fill in `zeros_like` whose
    dtypes were not recorded. On the CPU, a conversion without a copy: the conversion itself. classes: one record per class.
    """
    calls, nothing = records.calls, np.broadcast_to(np.int64(-1), len(records))
    # One value per call, and False for code -1.
    bare = np.array([*(call.module == "c10d" and not call.tensors for call in calls), False], np.bool_)
    converts = np.array([*(call.name in CONVERSIONS for call in calls), False], np.bool_)
    # Ops that only move data, but how much depends on an unrecorded option.
    lacking = (call.dispatcher and UNKNOWN in call.args and formulas.evaluate(call).cost == _MOVES_UNKNOWN for call in calls)
    untyped = np.array([*lacking, False], np.bool_)
    if not (bare | untyped | converts).any():
        return nothing
    told = np.array([*(call.module == "nccl" and bool(call.tensors) for call in calls), False], np.bool_)
    # Ops that only write into their first tensor, all dtypes recorded.
    fills = (call.op in _FILLS and bool(call.tensors) and all(tensor.dtype for tensor in call.tensors) for call in calls)
    written = np.array([*fills, False], np.bool_)
    own, inner = classes["own"], classes["inner"]
    cpu = (classes["kind"] == ActivityKind.CPU) & (inner == own) & converts[own]
    if not ((bare[own] & told[inner]) | (untyped[own] & written[inner]) | cpu).any():
        return nothing
    own, inner = records["own"], records["inner"].astype(np.int64)
    better = bare[own] & told[inner]
    if (moves := untyped[own]).any():
        instance = records["instance"].astype(np.int64)
        pairs = distinct_rows(*distinct_rows(instance, inner).columns[:1])
        several = pairs.columns[0][np.bincount(pairs.inverse) > 1]  # instances with more than one inner op
        better |= moves & written[inner] & ~np.isin(instance, several)
    cpu = records["kind"] == ActivityKind.CPU
    if cpu.any():
        better |= cpu & (inner == own) & converts[own]
    return np.where(better, inner, -1) if better.any() else nothing


def elements(records: Records, classes: Records | None = None) -> Ints:
    """For each record the index into DTYPES of the tensors in its op's lists, whose dtypes torch.profiler does not record, from
    the name of a kernel of the instance; -1 if recorded or if no name tells. classes: one record per class, if at hand."""
    nothing = np.broadcast_to(np.int64(-1), len(records))
    flags = np.zeros(len(records.calls) + 1, np.bool_)
    for at, call in enumerate(records.calls):  # only sizes are recorded of the tensors in its lists
        lists = [value for value in call.args if isinstance(value, list) and value and isinstance(value[0], TensorSpec)]
        typeless = not any(tensor.dtype for tensors in lists for tensor in tensors)
        flags[at] = call.dispatcher and bool(lists) and typeless
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
    if len(named):  # and the other kernels of those instances
        instances, first = np.unique(records["instance"][named], return_index=True)
        rows = np.flatnonzero(untyped & np.isin(records["instance"], instances))
        element[rows] = element[named[first]][np.searchsorted(instances, records["instance"][rows])]
    return element


def typed(call: OpCall, dtype: str | None) -> OpCall:
    """The call with this dtype for tensors that have none."""
    return call.map_tensors(lambda tensor: tensor if tensor.dtype else replace(tensor, dtype=dtype))


# Ops whose operands may have another dtype than their data.
_OTHER_TYPES = (
    r"where|mask|logical|bitwise|index|gather|scatter|embedding|nll_loss|cross_entropy|max_pool|fractional|unpool"
    r"|dropout|take|put|select|sort|topk|kthvalue|median|mode|cummax|cummin|segment|ctc|one_hot|bucketize|searchsorted"
    r"|^(?:eq|ne|lt|le|gt|ge|to|_to_copy|copy_|isnan|isinf|isfinite|any|all)_?$"
)


def with_dtype(call: OpCall, forward: OpCall) -> OpCall:
    """The call with missing dtypes set to the one floating dtype of its forward op.

    Unchanged if the forward op has several, or if the call takes masks, indices or labels beside its data.
    """
    if all(t.dtype is not None for t in call.tensors) or re.search(_OTHER_TYPES, call.op):
        return call
    if formulas.is_copy(call.name) and re.search(_OTHER_TYPES, forward.op):  # perhaps of its mask or indices
        return call
    floats = {t.dtype for t in forward.tensors if (d := lookup(t.dtype)) is not None and d.kind in ("float", "complex")}
    if len(floats) != 1:
        return call
    return typed(call, floats.pop())
