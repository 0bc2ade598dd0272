"""Elements in another order or place: flip, roll, repeat, tile, pad, pixel shuffle, and writes into a part of a copy.

They do no arithmetic. The input is read once and the result written once; the gradient of what was repeated is summed.
"""

from __future__ import annotations

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, dims, grad, gradient, need, opt, result, spec, vector
from pyprof.prof.formulas.registry import Cost, Missing, Op, op


@op("flip", "fliplr", "flipud", "roll", "rot90", "tril", "triu")
@op("tril_", "triu_", places="Ta")
def rearrange(input: TensorSpec, out: object = None) -> Op:
    yield copy_cost(input, result(out, input.shape, input.dtype))
    yield from grad("input", input, 0, gradient(input))


def _repeated(input: TensorSpec, sizes: tuple[object, ...]) -> TensorSpec:
    given = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (list, tuple)) else sizes
    if not sizes or not isinstance(given, (list, tuple)) or any(not isinstance(n, int) for n in given):
        raise Missing("repeats not recorded")
    rank = max(len(given), len(input.shape))
    counts = (1,) * (rank - len(given)) + tuple(given)
    shape = (1,) * (rank - len(input.shape)) + input.shape
    return spec((n * c for n, c in zip(shape, counts, strict=True)), input.dtype)


@op("Tensor.repeat", "aten::repeat", "torch.tile", "Tensor.tile", "aten::tile")
def repeat(input: TensorSpec, *sizes: object, **more: object) -> Op:
    output = _repeated(input, sizes or tuple(more.values()))
    yield copy_cost(input, output)
    yield from grad("input", input, output.numel, output)


@op("repeat_interleave")
def repeat_interleave(input: TensorSpec, repeats: object = None, dim: object = None, output_size: object = None) -> Op:
    length = input.numel if dim is None else input.shape[dims(dim, len(input.shape))[0]]
    count = output_size if isinstance(output_size, int) else length * repeats if isinstance(repeats, int) else None
    if count is None:
        raise Missing("repeats are data, not recorded")
    output = spec((input.numel // max(length, 1) * count,), input.dtype)
    yield copy_cost(input, opt(repeats), output)
    yield from grad("input", input, output.numel, output)


@op("torch.nn.functional.pad", "aten::pad", "aten::constant_pad_nd", "torch.constant_pad_nd")
@op("_pad_circular", "_pad_enum", places="Fa")
@op("reflection_pad1d", "reflection_pad2d", "reflection_pad3d", places="Fa", padding="pad")
@op("replication_pad1d", "replication_pad2d", "replication_pad3d", places="Fa", padding="pad")
def pad(input: TensorSpec, pad: object) -> Op:
    sizes = [need(n, "pad") for n in need(pad, "pad")]
    shape = list(input.shape)
    for axis in range(len(sizes) // 2):
        shape[-1 - axis] += sizes[2 * axis] + sizes[2 * axis + 1]
    output = spec(shape, input.dtype)
    yield copy_cost(input, output)
    yield from grad("input", input, 0, output)


@op(*(f"aten::{kind}_pad{rank}d_backward" for kind in ("reflection", "replication") for rank in (1, 2, 3)))
def pad_backward(grad_output: TensorSpec, input: TensorSpec) -> Cost:
    return vector(grad_output.numel, grad_output, gradient(input))


@op("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle", places="tFa")
def pixel_shuffle(input: TensorSpec) -> Op:
    yield copy_cost(input, gradient(input))
    yield from grad("input", input, 0, gradient(input))


@op("combinations", places="ta")
def combinations(input: TensorSpec) -> Cost:
    """The count of the result depends on options of several forms: bytes are not known."""
    return Cost(0, 0, None)


@op("slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter")
def slice_scatter(input: TensorSpec, src: TensorSpec) -> Op:
    """A copy of the input with the source in a part of it: that part of the input is not needed.

    Backward: a copy of the gradient with zeros in that part; the source's gradient is a view.
    """
    yield copy_cost(spec((max(input.numel - src.numel, 0),), input.dtype), src, gradient(input))
    yield from grad("input", input, 0, gradient(input))


@op("unfold_copy", places="ta")
@op("torch.nn.functional.unfold_copy", backward=False)
def unfold_copy(input: TensorSpec, dimension: object, size: object, step: object) -> Op:
    """Windows along one dimension. Backward: the elements of overlapping windows are added into zeros."""
    axis = dims(dimension, len(input.shape))[0]
    length = need(size, "size")
    count = (input.shape[axis] - length) // need(step, "step") + 1 if input.shape else 1
    windows = spec((*input.shape[:axis], count, *input.shape[axis + 1 :], length), input.dtype)
    yield copy_cost(input, windows)
    if input.shape:
        yield from grad("input", input, windows.numel, windows)


@op("Tensor.unfold", "aten::unfold", kind="structural")
def unfold(input: TensorSpec, dimension: object, size: object, step: object) -> Op:
    """A view, which costs nothing; its backward is a copy."""
    yield Cost(0, 0, 0)
    _, *backward = unfold_copy(input, dimension, size, step)
    yield from backward
