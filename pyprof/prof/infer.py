"""Records -> records whose calls are completed from the other direction of the same op.

Old torch.profiler traces and emit_nvtx text record the sizes of tensors but no options: the output of a convolution and whether
a batch norm trained are missing. The backward tells both: the incoming gradient has the output's sizes, and only training has
such a backward. The forward in turn tells what a backward op makes: a gradient is summed to the size of the broadcast input,
gradients of a tensor's parts are joined to its size, the gradient of a cast is cast back. The original PyProf recorded dtypes
before the casts of mixed precision; there the kernel name tells the dtype of a matrix product. Filled-in calls are marked
(`INFERRED`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.columns.distinct import distinct_rows, distinct_values, extent
from pyprof.columns.types import Ints
from pyprof.hardware.kernels import classify
from pyprof.model.dtypes import lookup
from pyprof.model.opcall import UNKNOWN, DTypeArg, OpCall, TensorSpec
from pyprof.model.records import Records
from pyprof.parse.attribution.derived import INFERRED, summed, with_value
from pyprof.prof import formulas
from pyprof.prof.served import infer_served

"""Keyword that marks a completed call; its value names what was filled in."""

_CONVOLUTION = r"(?:^|_)conv(?:olution|_transpose)?(?:[123]d)?(?:$|_relu$)"
_CONVOLUTION_BACKWARD = r"convolution_backward(?:_overrideable)?$"
_BATCH_NORM_BACKWARD = r"batch_norm_backward$"


def infer(records: Records) -> Records:
    """Complete the calls of records. Returns the records themselves if nothing is missing, else a copy with more calls."""
    return _from_forward(_from_links(_from_kernels(_served(_look_ups(records)))))


def _served(records: Records) -> Records:
    """Complete the calls of inference engines."""
    calls, instances, codes = list(records.calls), list[Ints](), list[Ints]()
    for call, ran in infer_served(records):
        instances.append(ran)
        codes.append(np.full(len(ran), len(calls)))
        calls.append(call)
    if not instances:
        return records
    return _replaced_calls(records, calls, np.concatenate(instances), np.concatenate(codes).astype(np.int32))


_LOOK_UP = r"embedding_codegen_lookup\w*_function$"
_LOOK_UP_BACKWARD = r"CppNode<SplitLookupFunction_\w+>$"


def pairs_all(records: Records) -> bool:
    """Whether inference needs all records at once, because embedding look-ups are paired by their order."""
    return any(re.search(f"{_LOOK_UP}|{_LOOK_UP_BACKWARD}", call.op) for call in records.calls)


def _look_ups(records: Records) -> Records:
    """Fill in the width of fbgemm's embedding bags, known only from the incoming gradient (bags, total_D).

    The op has no sequence number to link its backward by, so the backward functions, in order of their numbers, are paired
    with the look-ups in order of launch. Nothing is filled in unless both are equally many and each pair agrees on the number
    of bags.
    """
    ops = [[re.search(pattern, call.op) is not None for pattern in (_LOOK_UP, _LOOK_UP_BACKWARD)] for call in records.calls]
    if not any(ahead for ahead, _ in ops) or not any(back for _, back in ops):
        return records
    is_forward, is_backward = np.array([*ops, [False, False]], np.bool_)[records["own"]].T
    forward, backward = np.flatnonzero(is_forward & (records["instance"] >= 0)), np.flatnonzero(is_backward)
    if not len(forward) or not len(backward) or len(distinct_values(records["pid"][np.concatenate([forward, backward])])) > 1:
        return records
    launched = records["launch_ns"]
    look_ups = sorted(_groups(records["instance"][forward], forward), key=lambda rows: int(launched[rows].min()))
    functions = _groups(records["seq"][backward], backward)
    if len(functions) != len(look_ups) or records["seq"][functions[0][0]] < 0:
        return records
    calls = list(records.calls)
    columns = {name: records[name].copy() for name in ("call", "own")}
    for ahead, back in zip(look_ups, functions, strict=True):
        filled = _wide(calls[int(records["own"][ahead[0]])], records.calls[int(records["own"][back[0]])])
        if filled is None or launched[ahead].max() > launched[back].min():
            return records
        columns["call"][ahead] = columns["own"][ahead] = columns["call"][back] = len(calls)
        calls.append(filled)
    return records.with_ops(columns, calls)


def _groups(keys: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """The rows of each key, in order of the keys."""
    order = np.argsort(keys, kind="stable")
    return np.split(rows[order], np.flatnonzero(np.diff(keys[order])) + 1)


def _wide(call: OpCall, own: OpCall) -> OpCall | None:
    """The look-up, completed by the width of its gradient; None if the two do not match."""
    dense = call.op.startswith("dense")
    place, least = (1, 9) if dense else (5, 13)  # weights_offsets, one per table; arguments up to offsets
    gradient = own.tensors[0] if own.tensors else None
    if len(call.args) < least or gradient is None or len(gradient.shape) != 2 or UNKNOWN not in call.args:
        return None
    tables, offsets = call.args[place], call.args[least - 1]
    if not isinstance(tables, TensorSpec) or not isinstance(offsets, TensorSpec):
        return None
    if offsets.numel - 1 != tables.numel * gradient.shape[0]:
        return None
    return call._replace(kwargs=(*call.kwargs, ("total_D", gradient.shape[1]), (INFERRED, "total_D")))


def _from_links(records: Records) -> Records:
    """Complete convolutions and batch norms from the backward linked by their sequence number."""
    fill = [_wanted(call) for call in records.calls]
    if all(found is None for found in fill):
        return records
    wanted = np.array([found is not None for found in fill] + [False], np.bool_)[records["call"]]
    rows = np.flatnonzero(wanted & (records["fwd_instance"] >= 0) & (records["own"] >= 0))
    if not len(rows):
        return records
    calls, made = list(records.calls), dict[tuple[int, int], int]()
    pairs, _, inverse = distinct_rows(records["call"][rows], records["own"][rows])
    for call, own in pairs.T.tolist():
        filler = fill[call]
        filled = None if filler is None else filler(calls[call], records.calls[own])
        if filled is not None:
            made[call, own] = len(calls)
            calls.append(filled)
    if not made:
        return records
    code = np.array([made.get((call, own), -1) for call, own in pairs.T.tolist()], np.int32)[inverse]
    return _replaced_calls(records, calls, records["fwd_instance"][rows[code >= 0]], code[code >= 0])


def _replaced_calls(
    records: Records, calls: list[OpCall], instances: npt.NDArray[np.int64], code: npt.NDArray[np.int32]
) -> Records:
    """Records with a new pool of calls, in which these forward instances and their backward get these codes."""
    instance, forward_instance = records["instance"], records["fwd_instance"]
    of_instance = np.full(max(extent(instance)[1], extent(forward_instance)[1]) + 2, -1, np.int32)
    of_instance[instances] = code

    forward, backward = of_instance[instance], of_instance[forward_instance]
    own = np.where(forward_instance >= 0, -1, forward)
    call = np.where(backward >= 0, backward, own)
    columns = {name: np.where(code >= 0, code, records[name]) for name, code in (("call", call), ("own", own))}
    return records.with_ops(columns, calls)


def _from_kernels(records: Records) -> Records:
    """Correct the dtype of matrix products that the original PyProf's markers call fp32 but whose kernel multiplied 16 bits."""
    wanted = np.zeros(len(records.calls) + 1, np.bool_)
    for at, call in enumerate(records.calls):  # the original's markers do not tell whether dtypes are from before a cast
        fp32 = any(tensor.dtype == "float32" for tensor in call.tensors)
        wanted[at] = fp32 and call.flat and not call.dispatcher and formulas.matmul_class(call.name)
    if not wanted.any():
        return records
    wanted = wanted[records["call"]]
    rows = np.flatnonzero(wanted & (records["instance"] >= 0) & (records["fwd_instance"] < 0))
    calls, made = list(records.calls), dict[tuple[int, int], int]()
    pairs, _, inverse = distinct_rows(records["call"][rows], records["name"][rows])
    for code, name in pairs.T.tolist():
        kernel = classify(records.strings[name])
        dtype = lookup(kernel.precision)
        if kernel.is_product and dtype is not None and dtype.bits == 16:
            cast = calls[code].map_tensors(lambda t, to=dtype.name: replace(t, dtype=to) if t.dtype == "float32" else t)
            made[code, name] = len(calls)
            calls.append(cast._replace(kwargs=(*cast.kwargs, (INFERRED, "types"))))
    if not made:
        return records
    code = np.array([made.get((call, name), -1) for call, name in pairs.T.tolist()], np.int32)[inverse]
    return _replaced_calls(records, calls, records["instance"][rows[code >= 0]], code[code >= 0])


_PARTS = frozenset("split split_with_sizes chunk unbind tensor_split unsafe_split unsafe_split_with_sizes unsafe_chunk".split())


def _from_forward(records: Records) -> Records:
    """Complete sums, joins and zeros within a backward from the linked forward op."""
    lacks = [c.dispatcher and c.op in _FILL and UNKNOWN in c.args for c in records.calls]
    if not any(lacks):
        return records
    wanted = np.array([*lacks, False], np.bool_)[records["own"]]
    rows = np.flatnonzero(wanted & (records["fwd_instance"] >= 0) & (records["call"] >= 0))
    if not len(rows):
        return records
    calls = list(records.calls)
    pairs, _, inverse = distinct_rows(records["own"][rows], records["call"][rows])
    codes = pairs[0].copy()
    for index, (own, call) in enumerate(pairs.T.tolist()):
        filled = _FILL[calls[own].op](calls[own], calls[call])
        if filled is not None:
            codes[index] = len(calls)
            calls.append(filled)
    if len(calls) == len(records.calls):
        return records
    column = records["own"].copy()
    column[rows] = codes[inverse]
    return records.with_ops({"own": column}, calls)


def _joined(own: OpCall, forward: OpCall) -> OpCall | None:
    """Gradients of a tensor's parts are joined to the tensor's shape."""
    whole = forward.tensors[0] if forward.op in _PARTS and forward.tensors else None
    if whole is None or own.args[0] is not UNKNOWN:
        return None
    return with_value(own, 0, [TensorSpec(whole.shape, whole.dtype)], "sizes")


def _zeroed(own: OpCall, forward: OpCall) -> OpCall | None:
    """The gradient of indexing is added into zeros of the indexed tensor's shape."""
    whole = forward.tensors[0] if forward.op in ("index", "index_select", "gather", "take") and forward.tensors else None
    if whole is None or len(own.args) < 2 or own.args[1] is not UNKNOWN:
        return None
    return with_value(own, 1, list(whole.shape), "size")


def _cast_back(own: OpCall, forward: OpCall) -> OpCall | None:
    """The gradient of a cast is cast the other way round."""
    source = forward.tensors[0] if forward.tensors and formulas.is_copy(forward.name) else None
    dtypes = [value.dtype for value in (*forward.args, *dict(forward.kwargs).values()) if isinstance(value, DTypeArg)]
    if source is None or source.dtype is None or len(dtypes) != 1 or [t.dtype for t in own.tensors] != [None]:
        return None
    gradient = replace(own.tensors[0], dtype=dtypes[0])
    return own._replace(args=(gradient, DTypeArg(source.dtype)), kwargs=(*own.kwargs, (INFERRED, "types")), flat=False)


_FILL = {
    "sum": summed, "cat": _joined, "stack": _joined, "new_zeros": _zeroed, "to": _cast_back, "_to_copy": _cast_back,
}  # fmt: skip


def _wanted(call: OpCall) -> Callable[[OpCall, OpCall], OpCall | None] | None:
    """The function that completes a call from its backward, None if nothing is missing."""
    if not call.described or len(call.tensors) < 2:
        return None
    if call.op in ("batch_norm", "native_batch_norm", "cudnn_batch_norm", "_batch_norm_impl_index", "miopen_batch_norm"):
        return _trained
    if re.search(_CONVOLUTION, call.op) and "depthwise" not in call.op:
        return _sized
    return None


def _lacks(call: OpCall) -> bool:
    """Whether options were not recorded: marked unknown, or absent from a text that lists only tensors."""
    scalars = [value for value in (*call.args, *(v for _, v in call.kwargs)) if not isinstance(value, (TensorSpec, type(None)))]
    return UNKNOWN in scalars or (call.flat and not scalars)


def _trained(call: OpCall, own: OpCall) -> OpCall | None:
    if not _lacks(call) or not re.search(_BATCH_NORM_BACKWARD, own.op):
        return None
    return call._replace(kwargs=(*call.kwargs, ("training", True), (INFERRED, "training")))


def _sized(call: OpCall, own: OpCall) -> OpCall | None:
    """The output has the shape of its gradient: the first argument of a convolution's backward, in old cuDNN ops the second."""
    if not _lacks(call) or not re.search(_CONVOLUTION_BACKWARD, own.op):
        return None
    place = 1 if own.op.startswith(("cudnn_", "miopen_", "mkldnn_")) else 0
    tensors: list[Any] = list(own.args)
    gradient = tensors[place] if len(tensors) > place else None
    first = call.tensors[0]
    if not isinstance(gradient, TensorSpec) or len(gradient.shape) < len(first.shape):
        return None
    return call._replace(kwargs=(*call.kwargs, ("out", TensorSpec(gradient.shape, first.dtype)), (INFERRED, "output sizes")))
