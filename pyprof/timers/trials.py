"""Records -> trials for a kind of advice: the work that took most time, and the alternatives to compare it with.

The kinds are those of `alternatives.KINDS`. A kind that cannot be tried with this capture has a reason instead. Nothing is run
here; must not know torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.model.dtypes import DTYPES
from pyprof.model.opcall import OpCall, TensorSpec
from pyprof.model.records import PHASES, Records
from pyprof.prof import formulas
from pyprof.prof.missing_dtypes import elements, typed
from pyprof.timers.alternatives import Alternative, alternatives
from pyprof.timers.replay import OptimizerStep, Work, replayable

NO_OP = "no op was recorded that it applies to"
_PRODUCTS = frozenset({"matmul", "__matmul__", "bmm", "baddbmm"})
_SOFTMAX = frozenset({"softmax", "_softmax", "_safe_softmax"})
_MASKING = frozenset({"add", "add_", "__add__", "__iadd__", "masked_fill", "masked_fill_", "where"})
_NEAR = 16  # ops, views and copies too, between the softmax of attention and each of its products


class Spent(NamedTuple):
    """The executions of a call. ns: total time; times: how many; row: the first one's."""

    ns: int
    times: int
    row: int


class Trial(NamedTuple):
    """work: as recorded; others: the alternatives to compare it with; spent: its executions."""

    work: Work
    others: list[Alternative]
    spent: Spent


def calls_that_ran(records: Records) -> dict[int, Spent]:
    """The executions of each call that can be repeated. A row ran its op; in backward its own op, else the innermost one."""
    backward = records["dir"] == 1
    keys = np.where(backward, records["own"], records["call"]), np.where(backward, records["inner"], -1)
    distinct, _, inverse = distinct_rows(*keys, backward)
    able = [not replayable(call) for call in records.calls]
    chosen = [
        next((code for code in (own, inner) if code >= 0 and able[code]), -1) if back else own
        for own, inner, back in distinct.T.tolist()
    ]
    code = np.array(chosen, np.int64)[inverse]
    rows = np.flatnonzero(code >= 0)
    each = distinct_rows(code[rows], records["instance"][rows]).columns[0]
    found, first, of = distinct_rows(code[rows])
    ns = np.bincount(of, np.maximum(records["dur_ns"][rows], 0), len(first)).astype(np.int64)
    count = np.bincount(np.searchsorted(found[0], each), minlength=len(first))
    columns = found[0].tolist(), ns.tolist(), count.tolist(), rows[first].tolist()
    return {code: Spent(*spent) for code, *spent in zip(*columns, strict=True)}


def find_trials(kind: str, records: Records, *, gpu: bool) -> Iterator[Trial | str]:
    """Trials for a kind of advice, the most time first; at most once the reason why something cannot be run.

    gpu: for a GPU, which has more to try.
    """
    if kind in _OF_SEVERAL:
        yield _OF_SEVERAL[kind](records)
        return
    ran, reason = calls_that_ran(records), ""
    applies = False
    for code in sorted(ran, key=lambda code: (-ran[code].ns, code)):
        call = records.calls[code]
        others = [other for other in alternatives(call, gpu=gpu) if other.kind == kind]
        applies = applies or bool(others)
        if others and not (why := replayable(call)):
            yield Trial((call,), others, ran[code])
        elif others and not reason:
            yield (reason := f"{call.name} cannot be run alone: {why}")
    if not applies:
        yield NO_OP


def _attention(records: Records) -> Trial | str:
    """The softmax of most time that stands between two products over one batch of heads, as recorded and as one op."""
    ahead = np.flatnonzero((records["instance"] >= 0) & (records["fwd_instance"] < 0) & (records["call"] >= 0))
    order = np.lexsort(tuple(records[name][ahead] for name in ("instance", "tid", "pid")))
    instance, rows = records["instance"][ahead[order]], ahead[order]
    begins = np.flatnonzero(np.diff(instance, prepend=-1))
    if not len(begins):
        return "no op was recorded"
    ns = np.add.reduceat(np.maximum(records["dur_ns"][rows], 0), begins)
    codes = records["call"][rows][begins]
    calls, reason = records.calls, "no product, softmax and product over one batch of heads was recorded with its shapes"
    softmax = [code for code in np.unique(codes).tolist() if calls[code].op in _SOFTMAX and len(_shape(calls[code])) > 2]
    spent = {code: int(ns[codes == code].sum()) for code in softmax}
    for code in sorted(softmax, key=lambda code: (-spent[code], code)):
        places = np.flatnonzero(codes == code)
        at = int(places[len(places) // 2])  # the first and the last may be cut off
        first, last = max(at - _NEAR, 0), min(at + _NEAR + 1, len(codes))
        near = [calls[int(other)] for other in codes[first:last]]
        found = _around(near, at - first)
        if found is None:
            continue
        begin, end = found
        # Copies are mostly made by the ops beside them, which make them again when they are repeated.
        parts = [
            call
            for call in near[begin : end + 1]
            if _shape(call) and not formulas.is_copy(call.name) and formulas.evaluate(call).cost.bytes != 0
        ]
        lacking = next((f"{call.name} cannot be run alone: {why}" for call in parts if (why := replayable(call))), None)
        if lacking is None:
            each = int(ns[first + begin : first + end + 1].sum())
            fused = Alternative("one op", (_fused(near[begin], near[end], parts),), kind="fused_attention")
            return Trial(tuple(parts), [fused], Spent(each * len(places), len(places), int(rows[begins[at]])))
        reason = lacking
    return reason


def _shape(call: OpCall) -> tuple[int, ...]:
    return call.tensors[0].shape if call.tensors else ()


def _around(near: list[OpCall], at: int) -> tuple[int, int] | None:
    """The places of the product that makes the scores of a softmax, and of the one that takes its result."""
    *batch, rows, columns = _shape(near[at])

    def makes_scores(left: TensorSpec, right: TensorSpec) -> bool:
        sizes = (*left.shape[-2:-1], right.shape[-1])
        return sizes == (rows, columns) and same_batch(left) and left.shape[-1] == right.shape[-2]

    def takes_scores(left: TensorSpec, right: TensorSpec) -> bool:
        return left.shape[-2:] == (rows, columns) and same_batch(left) and right.shape[-2] == columns

    def same_batch(left: TensorSpec) -> bool:
        return math.prod(left.shape[:-2]) == math.prod(batch)

    before = next((i for i in range(at - 1, -1, -1) if (two := _operands(near[i])) and makes_scores(*two)), None)
    after = next((i for i in range(at + 1, len(near)) if (two := _operands(near[i])) and takes_scores(*two)), None)
    return None if before is None or after is None else (before, after)


def _operands(call: OpCall) -> tuple[TensorSpec, TensorSpec] | None:
    if call.op not in _PRODUCTS or len(call.tensors) < 2 or min(len(tensor.shape) for tensor in call.tensors[-2:]) < 3:
        return None
    return call.tensors[-2], call.tensors[-1]  # baddbmm has another one before


def _fused(scores: OpCall, mixing: OpCall, parts: list[OpCall]) -> OpCall:
    """scaled_dot_product_attention on the operands of two products; with a mask where something was added or filled, and with
    dropout where that was recorded."""
    (query, key), value = scores.tensors[-2:], mixing.tensors[-1]
    lead = query.shape[:-2]
    heads = (math.prod(lead[:-1]), lead[-1])  # fused kernels take four dimensions
    queries, size, keys = *query.shape[-2:], key.shape[-1]
    sizes = (queries, size), (keys, size), (keys, value.shape[-1])
    args = [TensorSpec((*heads, *two), query.dtype) for two in sizes]
    if any(call.op in _MASKING and len(call.tensors) > 1 for call in parts):
        args.append(TensorSpec((1, 1, queries, keys), query.dtype))
    dropped = []  # shares of elements that dropouts zero, where they train
    for call in parts:
        if "dropout" in call.op:
            _, share, train, *_ = (*call.args, None, None, None)
            named = dict(call.kwargs)
            trains = named.get("training", named.get("train", train)) is not False
            share = named.get("p", share)
            dropped += [share] if trains and isinstance(share, float) else []
    kwargs = (("dropout_p", dropped[0]),) if dropped else ()
    return OpCall("torch.nn.functional", "scaled_dot_product_attention", tuple(args), kwargs)


def _optimizer(records: Records) -> Trial | str:
    """The last step of an optimizer, by the parameters that its ops name, as it ran and fused."""
    rows = np.flatnonzero((records["phase"] == PHASES.index("optimizer")) & (records["instance"] >= 0))
    if not len(rows):
        return "no optimizer was recorded with its ops"
    rows = rows[records["step"][rows] == records["step"][rows].max()]
    if any("_fused_" in records.calls[code].op for code in np.unique(records["own"][rows]).tolist() if code >= 0):
        return "the optimizer is fused already"
    first = distinct_rows(records["instance"][rows]).first
    element = elements(records)[rows]
    calls = [(int(records["own"][rows[at]]), int(element[at]), int(records["inner"][rows[at]])) for at in first.tolist()]
    named = [(records.calls[own], code, inner) for own, code, inner in calls if own >= 0]
    ops = {call.op.removeprefix("_foreach_") for call, *_ in named if len(_largest(call))}
    name, op = ("AdamW", "addcdiv_") if "addcdiv_" in ops else ("SGD", "mul_" if "mul_" in ops else "add_")
    once = [one for one in named if one[0].op.removeprefix("_foreach_") == op and _largest(one[0])]
    tensors = [tensor for call, code, inner in once for tensor in _parameters(call, code, records, inner)]
    if not tensors:
        return "the sizes of the parameters were not recorded"
    if any(tensor.dtype is None for tensor in tensors):
        return "the types of the parameters were not recorded"
    how = "foreach" if any(call.op.startswith("_foreach_") for call, *_ in once) else "for-loop"
    sizes = tuple(TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors)
    step, fused = (OptimizerStep(name, way, sizes, 0.9 if op == "mul_" else 0.0) for way in (how, "fused"))
    ns = int(np.maximum(records["dur_ns"][rows], 0).sum())
    return Trial(step, [Alternative("fused=True", fused, kind="fused_optimizer")], Spent(ns, 1, int(rows[0])))


def _largest(call: OpCall) -> tuple[int, ...]:
    """The shape of an op's first tensor with dimensions; empty where all are numbers, as counters of steps."""
    return next((tensor.shape for tensor in call.tensors if tensor.shape), ())


def _parameters(call: OpCall, element: int, records: Records, inner: int) -> list[TensorSpec]:
    """The tensors that an optimizer's op updates; a missing dtype is taken from the kernel or op inside it."""
    found = typed(call, DTYPES[element].name) if element >= 0 else call
    if inner >= 0 and (inside := records.calls[inner].tensors):
        found = typed(found, inside[0].dtype)
    first = found.args[0] if found.args else None
    return [one for one in (first if isinstance(first, (list, tuple)) else [first]) if isinstance(one, TensorSpec)]


_OF_SEVERAL: dict[str, Callable[[Records], Trial | str]] = {"fused_attention": _attention, "fused_optimizer": _optimizer}
