"""A call -> calls to compare it with: padded sizes, another dtype, another memory format, its parts. Must not know torch.

Their results differ from the call's: each shows what a change of shapes, types or layout would gain on this machine.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from pyprof.dtypes import lookup
from pyprof.opcall import OpCall, TensorSpec, contiguous_strides, dense_strides
from pyprof.prof import formulas
from pyprof.timers.replay import Work

KINDS = ("reduced_precision", "gemm_alignment", "channels_last", "fused_attention", "fused_optimizer")
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
    """The alternatives that apply, most promising first. gpu: include those of a GPU."""
    found = [padded(call), in_tf32(call) if gpu else None, *other_dtypes(call), other_format(call), in_parts(call)]
    return [entry for entry in found if entry is not None]


def _reshaped(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    return replace(spec, shape=shape, strides=dense_strides(shape, spec.strides or contiguous_strides(spec.shape)))


def _is_conv(call: OpCall) -> bool:
    return formulas.matmul_class(call.name) and "conv" in call.op and "transpose" not in call.op and "backward" not in call.op


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit if size > 1 else size


def padded(call: OpCall) -> Alternative | None:
    """The sizes of a matrix product, or the channels of a convolution, rounded up to whole aligned loads."""
    bits = {found.bits for tensor in call.tensors if (found := lookup(tensor.dtype)) is not None}
    if len(bits) != 1:
        return None
    unit = max(_UNIT_BYTES * 8 // max(bits), 1)
    if call.op in _GEMMS and formulas.matmul_class(call.name):
        rows = call.tensors[0] if call.op == "linear" else None  # its rows need no alignment
        new = call.map_tensors(lambda spec: _reshaped(spec, _pad_matrix(spec.shape, unit, 1 if spec is rows else 2)))
    elif _is_conv(call) and _groups(call) == 1:
        new = call.map_tensors(lambda spec: _pad_channels(call, spec, unit))
    else:
        return None
    if [t.shape for t in new.tensors] == [t.shape for t in call.tensors]:
        return None
    return Alternative(f"padded to {unit}", (new,), kind="gemm_alignment")


def _pad_matrix(shape: tuple[int, ...], unit: int, sizes: int) -> tuple[int, ...]:
    """The last `sizes` dimensions padded; those before count matrices or rows."""
    return (*shape[:-sizes], *(_up(size, unit) for size in shape[-sizes:]))


def _pad_channels(call: OpCall, spec: TensorSpec, unit: int) -> TensorSpec:
    """Pad the channels of the first tensor (input), both of the second (weight), the size of the third (bias)."""
    place = next(at for at, tensor in enumerate(call.tensors) if tensor is spec)
    wide = {0: (1,), 1: (0, 1), 2: (0,)}.get(place, ())
    return _reshaped(spec, tuple(_up(size, unit) if at in wide else size for at, size in enumerate(spec.shape)))


def _groups(call: OpCall) -> int | None:
    """The groups of a convolution: channels of the input over those of the weight; None if the shapes do not fit."""
    shapes = [tensor.shape for tensor in call.tensors[:2]]
    if len(shapes) < 2 or not 3 <= len(shapes[0]) == len(shapes[1]) or not shapes[1][1]:
        return None
    return shapes[0][1] // shapes[1][1]


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
    kind = "reduced_precision" if old in ("float32", "float64") and formulas.matmul_class(call.name) else ""
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
