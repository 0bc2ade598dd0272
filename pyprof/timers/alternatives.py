"""A call -> calls to compare it with: padded sizes, another dtype, another memory format, its parts. Must not know torch.

Their results differ from the call's: each shows what a change of shapes, types or layout would gain on this machine.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from pyprof.model.dtypes import lookup
from pyprof.model.opcall import OpCall, TensorSpec, contiguous_strides, dense_strides
from pyprof.prof import formulas
from pyprof.timers.replay import Work

KINDS = ("reduced_precision", "double_precision", "gemm_alignment", "channels_last", "fused_attention", "fused_optimizer")
"""Kinds of advice, as in a summary, that can be tried on one machine."""

_UNIT_BYTES = 16  # one aligned load of a Tensor Core kernel: 8 elements of fp16, 4 of fp32, 16 of fp8
_HALVES = {"float64": ("float32",), "float32": ("bfloat16", "float16"), "bfloat16": ("float16",), "float16": ("bfloat16",)}
_GEMMS = frozenset({"mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "__matmul__"})


class Alternative(NamedTuple):
    """name: the difference; work: the changed calls or step; tf32: compute products of fp32 in TF32; kind: of the advice that
    it tries, empty for none."""

    name: str
    work: Work
    tf32: bool = False
    kind: str = ""


def alternatives(call: OpCall, *, gpu: bool = False) -> list[Alternative]:
    """The alternatives that apply, most promising first. gpu: include those that need a GPU."""
    found = [padded(call), in_tf32(call) if gpu else None, *other_dtypes(call), other_format(call), in_parts(call)]
    return [entry for entry in found if entry is not None]


def _is_conv(call: OpCall) -> bool:
    return formulas.matmul_class(call.name) and "conv" in call.op and "transpose" not in call.op and "backward" not in call.op


def padded(call: OpCall) -> Alternative | None:
    """The sizes of a matrix product, or the channels of a convolution, rounded up to whole aligned loads."""
    bits = {found.bits for tensor in call.tensors if (found := lookup(tensor.dtype)) is not None}
    if len(bits) != 1:
        return None
    unit = max(_UNIT_BYTES * 8 // max(bits), 1)
    if _is_conv(call):
        shapes = [tensor.shape for tensor in call.tensors[:2]]
        if len(shapes) < 2 or not 3 <= len(shapes[0]) == len(shapes[1]) or not shapes[1][1]:
            return None
        if shapes[0][1] // shapes[1][1] != 1:  # groups: input channels over the weight's
            return None
    elif call.op not in _GEMMS or not formulas.matmul_class(call.name):
        return None

    def enlarged(spec: TensorSpec) -> TensorSpec:
        wide = _padded_dimensions(call, spec)
        shape = tuple(-(-size // unit) * unit if at in wide and size > 1 else size for at, size in enumerate(spec.shape))
        return replace(spec, shape=shape, strides=dense_strides(shape, spec.strides or contiguous_strides(spec.shape)))

    new = call.map_tensors(enlarged)
    if [t.shape for t in new.tensors] == [t.shape for t in call.tensors]:
        return None
    return Alternative(f"padded to {unit}", (new,), kind="gemm_alignment")


def _padded_dimensions(call: OpCall, spec: TensorSpec) -> Collection[int]:
    """The dimensions of one of the call's tensors that must be aligned.

    Of a matrix the last two, of the input of `linear` the last. Of a convolution the channels: of the input (its first tensor),
    both of the weight, of the bias.
    """
    place = next(at for at, tensor in enumerate(call.tensors) if tensor is spec)
    if _is_conv(call):
        return {0: (1,), 1: (0, 1), 2: (0,)}.get(place, ())
    rank = len(spec.shape)
    return range(rank - (1 if call.op == "linear" and not place else 2), rank)


def in_tf32(call: OpCall) -> Alternative | None:
    """A matrix product or convolution of fp32 with TF32 allowed."""
    types = {tensor.dtype for tensor in call.tensors}
    applies = types == {"float32"} and formulas.matmul_class(call.name)
    return Alternative("tf32", (call,), True, "reduced_precision") if applies else None


def other_dtypes(call: OpCall) -> list[Alternative]:
    """All its floating-point tensors in a smaller dtype, or in the other half type."""
    types = {tensor.dtype for tensor in call.tensors if tensor.dtype in _HALVES}
    if len(types) != 1:
        return []
    (old,) = types

    def changed(spec: TensorSpec, new: str) -> TensorSpec:
        return replace(spec, dtype=new) if spec.dtype == old else spec

    dtypes = [found for name in _HALVES[str(old)] if (found := lookup(name)) is not None]
    halved = "reduced_precision" if old == "float32" and formulas.matmul_class(call.name) else ""
    kind = "double_precision" if old == "float64" and not formulas.is_copy(call.name) else halved
    return [Alternative(dtype.tag, (call.map_tensors(partial(changed, new=dtype.name)),), kind=kind) for dtype in dtypes]


def other_format(call: OpCall) -> Alternative | None:
    """A convolution with its channels last in memory, or first if they are last."""
    if not _is_conv(call) or not call.tensors or len(call.tensors[0].shape) not in (4, 5):
        return None
    rank = len(call.tensors[0].shape)

    def strides(spec: TensorSpec, last: bool) -> tuple[int, ...]:
        if not last:
            return contiguous_strides(spec.shape)
        moved = contiguous_strides((spec.shape[0], *spec.shape[2:], spec.shape[1]))
        return (moved[0], moved[-1], *moved[1:-1])

    first = call.tensors[0]
    last = (first.strides or contiguous_strides(first.shape)) != strides(first, True)
    name = "channels-last" if last else "channels-first"
    changed = call.map_tensors(lambda spec: replace(spec, strides=strides(spec, last)) if len(spec.shape) == rank else spec)
    return Alternative(name, (changed,), kind="channels_last" if last else "") if changed != call else None


def in_parts(call: OpCall) -> Alternative | None:
    """Attention in one op, without a mask of tensors, as product, softmax and product."""
    if call.op != "scaled_dot_product_attention" or len(call.tensors) != 3:
        return None
    query, key, value = call.tensors
    if not len(query.shape) == len(key.shape) == len(value.shape) >= 3 or query.shape[:-2] != key.shape[:-2]:
        return None  # heads that share keys are expanded first
    *around, size, keys = range(len(key.shape))
    strides = key.strides or contiguous_strides(key.shape)
    turned = [*around, keys, size]
    transposed = replace(key, shape=tuple(key.shape[at] for at in turned), strides=tuple(strides[at] for at in turned))
    scores = TensorSpec((*query.shape[:-1], key.shape[-2]), query.dtype)
    calls = (
        OpCall("torch", "matmul", (query, transposed)),
        OpCall("torch", "softmax", (scores, -1)),
        OpCall("torch", "matmul", (scores, value)),
    )
    return Alternative("its parts", calls)
