"""Copies, casts and changes of layout: no arithmetic; the source read once at its stored size, the result written once."""

from __future__ import annotations

from collections.abc import Iterable

from pyprof.model.opcall import DTypeArg, TensorSpec, contiguous_strides
from pyprof.prof.formulas.algebra import copy_cost, dtype_from, gathered, grad, gradient, need, opt, spec
from pyprof.prof.formulas.registry import Cost, Missing, Op, op


@op("clone", kind="copy", order="input ...")
@op("Tensor.pin_memory", "aten::pin_memory", "aten::_pin_memory", "Tensor.__deepcopy__", kind="copy", order="input ...")
@op("alias_copy", "detach_copy", "_conj_copy", "_neg_view_copy", "_reshape_alias_copy", "_fw_primal_copy", "_make_dual_copy",
    "permute_copy", "split_copy", "split_with_sizes_copy", "squeeze_copy", "t_copy", "transpose_copy", "unbind_copy",
    "unsqueeze_copy", "view_copy", "view_as_complex_copy", "view_as_real_copy",
    places="ta", kind="copy", order="input ...")  # fmt: skip
@op("lift_fresh_copy", "_mkldnn_transpose", "_mkldnn_transpose_", "_mkldnn_reshape", "_reshape_copy", "_lazy_clone",
    *(f"{place}mkldnn_reorder_conv{rank}d_weight" for rank in (2, 3) for place in ("torch._C._nn.", "aten::")),
    places="a", kind="copy", order="input ...")  # fmt: skip
def clone(input: TensorSpec, **options: object) -> Cost:
    return copy_cost(input, gradient(input))


@op("expand_copy", places="ta", kind="copy")
def expand_copy(input: TensorSpec, size: object) -> Cost:
    sizes = need(size, "size")
    rank = len(sizes) - len(input.shape)
    shape = [input.shape[i - rank] if n == -1 else n for i, n in enumerate(sizes)]
    return copy_cost(input, spec(shape, input.dtype))


@op("as_strided_copy", places="ta", kind="copy")
def as_strided_copy(input: TensorSpec, size: object, stride: object) -> Cost:
    shape = tuple(need(size, "size"))
    return copy_cost(TensorSpec(shape, input.dtype, tuple(need(stride, "stride"))), spec(shape, input.dtype))


@op("Tensor.contiguous", "aten::contiguous", kind="copy")
def contiguous(input: TensorSpec, memory_format: object = None) -> Cost:
    """A contiguous tensor is returned as it is; where the strides were not recorded, a copy is assumed."""
    if input.strides is not None and input.strides == contiguous_strides(input.shape) and memory_format is None:
        return Cost(0, 0, 0)
    return copy_cost(input, gradient(input))


@op("Tensor.copy_", "aten::copy_", kind="copy", order="input src ...")
@op("copy", "_copy_from", "_copy_from_and_resize", places="a", kind="copy", order="input src ...", backward=False)
def copy_(input: object, src: object = None) -> Op:
    """Backward: the gradient in the dtype of the source, where that is another one."""
    target = opt(input)
    if target is None:
        raise Missing("destination not recorded")
    yield copy_cost(src, target)
    if isinstance(src, TensorSpec) and src.dtype != target.dtype:
        yield from grad("source", src, 0, gradient(target))


@op("_foreach_clone", "_to_cpu", "aten::flatten_dense_tensors", places="ta", kind="copy", order="tensors[] ...")
@op("_nested_tensor_from_tensor_list", places="ta", kind="copy", order="tensors[] ...", list="tensors")
@op("_cudnn_rnn_flatten_weight", places="ta", kind="copy", weight_arr="tensors")
def foreach_clone(tensors: list[TensorSpec]) -> Cost:
    return copy_cost(tensors, [gradient(t) for t in tensors])


@op("_foreach_copy_", "_foreach_copy", places="ta", kind="copy", order="input[] src ...")
def foreach_copy(input: list[TensorSpec], src: object = None) -> Cost:
    if not isinstance(src, (list, tuple)):
        raise Missing("lists of tensors were not kept apart")
    return copy_cost(list(src), input)


# FSDP2 (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py) moves shards into and out of one flat buffer, whose dtype
# theirs is: torch.profiler records none for lists.


@op("fsdp::all_gather_copy_in", kind="copy", order="tensors[] flat ...")
def gathered_in(tensors: object, flat: object = None) -> Cost:
    if not isinstance(tensors, list) or not isinstance(flat, TensorSpec):
        return Cost(0, 0, None)
    moved = spec((sum(tensor.numel for tensor in tensors),), flat.dtype)
    return copy_cost(moved, moved)


@op("fsdp::split_with_sizes_copy", kind="copy", order="flat ...")
def gathered_out(flat: TensorSpec) -> Cost:
    return copy_cost(flat, gradient(flat))


@op("fsdp::chunk_cat", kind="copy", order="tensors[] dim num_chunks flat ...")
def chunked_in(tensors: list[TensorSpec], flat: object = None) -> Cost:
    """Reads the gradients, perhaps in another dtype than that of the buffer, and writes all of it, padding too."""
    return copy_cost(*tensors, need(flat, "flat"))


# ---------------------------------------------------------------------------------------------- casts


def _target(input: TensorSpec, options: Iterable[object]) -> str | None:
    """The dtype that the options give; the input's where they give none."""
    return next((o.dtype for o in options if isinstance(o, (DTypeArg, TensorSpec))), input.dtype)


def _dispatched_target(input: TensorSpec, options: tuple[object, ...]) -> str | None:
    """The dtype among the dispatcher's options, first or after the device; None if it was not recorded."""
    first = options[1:2] if options and isinstance(options[0], str) else options[:1]
    if not first or first[0] is None:
        return input.dtype
    return dtype_from(first[0])


def _cast_backward(input: TensorSpec, dtype: str | None) -> Op:
    if dtype is not None and dtype != input.dtype:
        yield from grad("input", input, 0, spec(input.shape, dtype))


@op("aten::_to_copy", "aten::to", kind="copy")
@op("aten::_autocast_to_reduced_precision", "aten::_autocast_to_full_precision", kind="copy", backward=False)
def aten_to(input: TensorSpec, *options: object, dtype: object = None, other: object = None, **more: object) -> Op:
    named = tuple(value for value in (dtype, other) if value is not None)
    target = _dispatched_target(input, named or options)
    yield copy_cost(input, spec(input.shape, target))
    yield from _cast_backward(input, target)


@op("Tensor.to", "Tensor.type", "Tensor.type_as", kind="copy")
@op("aten::type_as", "Tensor.xpu", kind="copy", backward=False)
@op("cuda", "cpu", "to_dense", "aten::_to_dense", places="Ta", kind="copy", backward=False)
def to(input: TensorSpec, *options: object, dtype: object = None, other: object = None, **more: object) -> Op:
    target = _target(input, (*options, dtype, other))
    yield copy_cost(input, spec(input.shape, target))
    yield from _cast_backward(input, target)


_CASTS = {
    "bfloat16": "bfloat16", "bool": "bool", "byte": "uint8", "char": "int8", "double": "float64", "float": "float32",
    "half": "float16",
    "int": "int32", "long": "int64", "short": "int16", "cdouble": "complex128", "cfloat": "complex64", "chalf": "complex32",
}  # fmt: skip
# Casts that have an op of the dispatcher; the others are aten::to.
_CAST_OPS = {
    name: (f"aten::_cast_{name.capitalize()}", f"torch._cast_{name.capitalize()}")
    for name in ("byte", "char", "double", "float", "half", "int", "long", "short")
} | {"chalf": ("aten::chalf",)}


def _declare_cast(name: str, dtype: str) -> None:
    @op(f"Tensor.{name}", kind="copy")
    @op(*_CAST_OPS.get(name, ()), kind="copy", backward=False)
    def cast(input: TensorSpec) -> Op:
        """A tensor that has the dtype already is returned as it is."""
        yield Cost(0, 0, 0) if input.dtype == dtype else copy_cost(input, spec(input.shape, dtype))
        yield from _cast_backward(input, dtype)


for _name, _dtype in _CASTS.items():
    _declare_cast(_name, _dtype)


# ---------------------------------------------------------------------------------------------- parts


def _part(input: TensorSpec, taken: int, among: int) -> Cost:
    """A copy of `taken` of every `among` elements: only those are read."""
    part = spec((input.numel // max(among, 1) * taken,), input.dtype)
    return copy_cost(gathered(input, part.shape), part)


@op("narrow_copy", kind="copy")
def narrow_copy(input: TensorSpec, dim: object, length: object) -> Cost:
    return _part(input, need(length, "length"), input.shape[need(dim, "dim")])


@op("select_copy", places="ta", kind="copy")
def select_copy(input: TensorSpec, dim: object) -> Cost:
    return _part(input, 1, input.shape[need(dim, "dim")])


@op("slice_copy", places="ta", kind="copy")
def slice_copy(input: TensorSpec, dim: object = 0, start: object = None, end: object = None, step: object = 1) -> Cost:
    length = input.shape[need(dim, "dim")]
    taken = len(range(*slice(need(start, "start"), need(end, "end"), need(step, "step")).indices(length)))
    return _part(input, taken, length)


@op("diagonal_copy", places="ta", kind="copy")
def diagonal_copy(input: TensorSpec, offset: object = 0, dim1: object = 0, dim2: object = 1) -> Cost:
    rows, columns = input.shape[need(dim1, "dim1")], input.shape[need(dim2, "dim2")]
    shift = need(offset, "offset")
    return _part(input, max(0, min(rows + min(shift, 0), columns - max(shift, 0))), rows * columns)
