"""Copies, casts and changes of layout: no arithmetic; the source read once at its stored size, the result written once."""

from __future__ import annotations

from typing import Any

from pyprof.opcall import DTypeArg, TensorSpec, contiguous_strides
from pyprof.prof.formulas.algebra import copy_cost, dtype_from, gradient, need, opt, spec, wants
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__: list[str] = []

NOTHING = Cost(0, 0, 0)


def _converted(input: TensorSpec, dtype: str | None) -> Cost:
    return copy_cost(input, spec(input.shape, dtype))


_CLONE = ("torch.clone", "Tensor.clone", "aten::clone", "aten::lift_fresh_copy", "aten::alias_copy",
    "torch.alias_copy", "aten::detach_copy", "torch.detach_copy", *spellings("_conj_copy", "ta"),
    *spellings("_neg_view_copy", "ta"), *spellings("_reshape_alias_copy", "ta"), *spellings("_fw_primal_copy", "ta"),
    *spellings("_make_dual_copy", "ta"), "aten::_mkldnn_transpose", "aten::_mkldnn_transpose_", "aten::_mkldnn_reshape",
          "Tensor.__deepcopy__", "aten::_reshape_copy", "aten::_lazy_clone",
          "Tensor.pin_memory", "aten::pin_memory", "aten::_pin_memory")  # fmt: skip


_VIEW_COPIES = tuple(
    f"{place}{op}_copy"
    for op in "permute split split_with_sizes squeeze t transpose unbind unsqueeze view view_as_complex view_as_real".split()
    for place in ("torch.", "aten::")
)


@formula(*_CLONE, *_VIEW_COPIES, kind="copy")
def clone(input: TensorSpec, *options: Any, **more: Any) -> Cost:
    return copy_cost(input, gradient(input))


@formula(*spellings("expand_copy", "ta"), kind="copy")
def expand_copy(input: TensorSpec, size: Any, *options: Any, **more: Any) -> Cost:
    rank = len(size) - len(input.shape)
    shape = [input.shape[i - rank] if n == -1 else n for i, n in enumerate(size)]
    return copy_cost(input, spec(shape, input.dtype))


@formula(*spellings("as_strided_copy", "ta"), kind="copy")
def as_strided_copy(input: TensorSpec, size: Any, stride: Any, storage_offset: Any = None) -> Cost:
    shape = tuple(need(size, "size"))
    return copy_cost(TensorSpec(shape, input.dtype, tuple(need(stride, "stride"))), spec(shape, input.dtype))


@formula("torch.narrow_copy", "Tensor.narrow_copy", "aten::narrow_copy", kind="copy")
def narrow_copy(input: TensorSpec, dim: Any, start: Any, length: Any) -> Cost:
    part = spec((input.numel // max(input.shape[dim], 1) * length,), input.dtype)
    return copy_cost(part, part)


@formula("Tensor.contiguous", "aten::contiguous", kind="copy")
def contiguous(input: TensorSpec, memory_format: Any = None) -> Cost:
    # A tensor that is contiguous already is returned as it is; where strides were not recorded, a copy is assumed to be why the
    # op is looked at at all.
    if input.strides is not None and input.strides == contiguous_strides(input.shape) and memory_format is None:
        return NOTHING
    return copy_cost(input, gradient(input))


@formula("Tensor.copy_", "aten::copy_", "aten::copy", "aten::_copy_from", "aten::_copy_from_and_resize", kind="copy")
def copy_(input: Any, src: Any = None, non_blocking: Any = False) -> Cost:
    target = opt(input)
    if target is None:
        raise Missing("destination not recorded")
    return copy_cost(src, target)


@backward("Tensor.copy_", "aten::copy_")
def copy_backward(input: Any, src: Any = None, non_blocking: Any = False) -> tuple[Piece, ...]:
    if not isinstance(src, TensorSpec) or not wants(src) or src.dtype == getattr(input, "dtype", None):
        return ()
    return (Piece("source", copy_cost(gradient(input), gradient(src))),)


def _target(options: tuple[Any, ...], more: dict[str, Any], numbers: bool) -> str | None:
    for option in (*options, more.get("dtype"), more.get("other")):
        coded = numbers and isinstance(option, int) and not isinstance(option, bool)
        if coded or isinstance(option, (DTypeArg, TensorSpec)):
            return dtype_from(option)
    return ""


@formula("aten::_to_copy", "aten::to", "aten::_autocast_to_reduced_precision", "aten::_autocast_to_full_precision", kind="copy")
def aten_to(input: TensorSpec, *options: Any, **more: Any) -> Cost:
    # Whether the dtype changed is only known where it was recorded; the copy's target is then taken as wide as its source.
    dtype = _target(options[:1] if options else (), more, True)
    return _converted(input, input.dtype if dtype == "" else dtype)


@formula("Tensor.to", "Tensor.type", "Tensor.type_as", "aten::type_as", "Tensor.cuda", "Tensor.cpu", "Tensor.xpu",
    "aten::cuda", "aten::cpu", "Tensor.to_dense", "aten::to_dense", "aten::_to_dense", kind="copy")  # fmt: skip
def to(input: TensorSpec, *options: Any, **more: Any) -> Cost:
    dtype = _target(options, more, False)
    return _converted(input, input.dtype if dtype == "" else dtype)


@backward("Tensor.to", "aten::to", "aten::_to_copy", "Tensor.type", "Tensor.type_as")
def to_backward(input: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    dtype = _target(options, more, False) or input.dtype
    return _cast_backward(input, dtype)


def _cast_backward(input: TensorSpec, dtype: str | None) -> tuple[Piece, ...]:
    if not wants(input) or dtype == input.dtype:
        return ()
    return (Piece("input", copy_cost(spec(input.shape, dtype), gradient(input))),)


_CASTS = {
    "bfloat16": "bfloat16", "bool": "bool", "byte": "uint8", "char": "int8", "double": "float64", "float": "float32",
    "half": "float16",
    "int": "int32", "long": "int64", "short": "int16", "cdouble": "complex128", "cfloat": "complex64", "chalf": "complex32",
}  # fmt: skip


_CAST_OPS = {  # of the dispatcher; most casts are aten::to
    op: (f"aten::_cast_{op.capitalize()}", f"torch._cast_{op.capitalize()}")
    for op in ("byte", "char", "double", "float", "half", "int", "long", "short")
} | {"chalf": ("aten::chalf",)}


def _register_cast(op: str, dtype: str) -> None:
    def cast(input: TensorSpec, memory_format: Any = None) -> Cost:
        # torch returns the tensor itself where it has the dtype.
        return NOTHING if input.dtype == dtype else _converted(input, dtype)

    def back(input: TensorSpec, memory_format: Any = None) -> tuple[Piece, ...]:
        return _cast_backward(input, dtype)

    cast.__name__ = cast.__qualname__ = op
    formula(f"Tensor.{op}", *_CAST_OPS.get(op, ()), kind="copy")(cast)
    backward(f"Tensor.{op}")(back)


for _op, _dtype in _CASTS.items():
    _register_cast(_op, _dtype)


@formula(*spellings("select_copy", "ta"), kind="copy")
def select_copy(input: TensorSpec, dim: Any, index: Any) -> Cost:
    part = spec((input.numel // max(input.shape[need(dim, "dim")], 1),), input.dtype)
    return copy_cost(part, part)


@formula(*spellings("slice_copy", "ta"), kind="copy")
def slice_copy(input: TensorSpec, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> Cost:
    length = input.shape[need(dim, "dim")]
    taken = len(range(*slice(need(start, "start"), need(end, "end"), need(step, "step")).indices(length)))
    part = spec((input.numel // max(length, 1) * taken,), input.dtype)
    return copy_cost(part, part)


@formula(*spellings("diagonal_copy", "ta"), kind="copy")
def diagonal_copy(input: TensorSpec, offset: Any = 0, dim1: Any = 0, dim2: Any = 1) -> Cost:
    rows, columns = input.shape[need(dim1, "dim1")], input.shape[need(dim2, "dim2")]
    shift = need(offset, "offset")
    length = max(0, min(rows + min(shift, 0), columns - max(shift, 0)))
    part = spec((input.numel // max(rows * columns, 1) * length,), input.dtype)
    return copy_cost(part, part)


@formula("torch._foreach_clone", "aten::_foreach_clone", "aten::_to_cpu", "aten::flatten_dense_tensors", "torch._to_cpu",
         kind="copy")  # fmt: skip
def foreach_clone(tensors: list[TensorSpec], memory_format: Any = None) -> Cost:
    return copy_cost(tensors, [gradient(t) for t in tensors])


@formula("aten::_foreach_copy_", "torch._foreach_copy_", "torch._foreach_copy", "aten::_foreach_copy", kind="copy")
def foreach_copy(input: list[TensorSpec], src: Any = None, non_blocking: Any = False) -> Cost:
    if not isinstance(src, (list, tuple)):
        raise Missing("lists of tensors were not kept apart")
    return copy_cost(list(src), input)
