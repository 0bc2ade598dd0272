"""Elements in another order or place: flip, roll, repeat, tile, pad, pixel shuffle, and writes into a part of a copy.

They do no arithmetic. The input is read once and the result written once; the gradient of what was repeated is summed.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, dims, gradient, need, product, result, spec, vector, wants
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__: list[str] = []


_REARRANGE = (
    *spellings("flip"), *spellings("fliplr"), *spellings("flipud"), *spellings("roll"), *spellings("rot90"), *spellings("tril"),
    *spellings("triu"), *spellings("tril_", "Ta"), *spellings("triu_", "Ta"),
)  # fmt: skip


@formula(*_REARRANGE)
def rearrange(input: TensorSpec, *options: Any, out: Any = None, **more: Any) -> Cost:
    return copy_cost(input, result(out, input.shape, input.dtype))


@backward(*_REARRANGE)
def rearrange_backward(input: TensorSpec, *options: Any, out: Any = None, **more: Any) -> tuple[Piece, ...]:
    return (Piece("input", copy_cost(gradient(input), gradient(input))),) if wants(input) else ()


def _repeated(input: TensorSpec, sizes: tuple[Any, ...]) -> tuple[int, ...]:
    given = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (list, tuple)) else sizes
    if not sizes or not isinstance(given, (list, tuple)) or any(not isinstance(n, int) for n in given):
        raise Missing("repeats not recorded")
    rank = max(len(given), len(input.shape))
    counts = (1,) * (rank - len(given)) + tuple(given)
    shape = (1,) * (rank - len(input.shape)) + input.shape
    return tuple(n * c for n, c in zip(shape, counts, strict=True))


_REPEAT = ("Tensor.repeat", "aten::repeat", "torch.tile", "Tensor.tile", "aten::tile")


@formula(*_REPEAT)
def repeat(input: TensorSpec, *sizes: Any, **more: Any) -> Cost:
    return copy_cost(input, spec(_repeated(input, sizes or tuple(more.values())), input.dtype))


@backward(*_REPEAT)
def repeat_backward(input: TensorSpec, *sizes: Any, **more: Any) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    shape = _repeated(input, sizes or tuple(more.values()))
    return (Piece("input", vector(product(shape), spec(shape, input.dtype), gradient(input))),)


@formula(*spellings("repeat_interleave"))
def repeat_interleave(input: TensorSpec, repeats: Any = None, dim: Any = None, output_size: Any = None) -> Cost:
    axis = None if dim is None else dims(dim, len(input.shape))[0]
    length = input.numel if axis is None else input.shape[axis]
    count = output_size if isinstance(output_size, int) else None
    if count is None and isinstance(repeats, int):
        count = length * repeats
    if count is None:
        raise Missing("repeats are data, not recorded")
    written = spec((input.numel // max(length, 1) * count,), input.dtype)
    return copy_cost(input, repeats if isinstance(repeats, TensorSpec) else None, written)


_PAD = ("torch.nn.functional.pad", "aten::pad", "aten::constant_pad_nd", "torch.constant_pad_nd",
    "torch.nn.functional._pad_circular",
        "aten::_pad_circular", "aten::_pad_enum", "torch.nn.functional._pad_enum")  # fmt: skip
_PADS = tuple(f"{place}{kind}_pad{rank}d" for kind in ("reflection", "replication") for rank in (1, 2, 3)
              for place in ("aten::", "torch.nn.functional."))  # fmt: skip


def _padded(input: TensorSpec, pad: Any) -> TensorSpec:
    sizes = [need(n, "pad") for n in need(pad, "pad")]
    shape = list(input.shape)
    for axis in range(len(sizes) // 2):
        shape[-1 - axis] += sizes[2 * axis] + sizes[2 * axis + 1]
    return spec(shape, input.dtype)


@formula(*_PAD, *_PADS)
def pad(input: TensorSpec, pad: Any, mode: Any = "constant", value: Any = None) -> Cost:
    return copy_cost(input, _padded(input, pad))


@backward(*_PAD, *_PADS)
def pad_backward(input: TensorSpec, pad: Any, mode: Any = "constant", value: Any = None) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    return (Piece("input", copy_cost(_padded(input, pad), gradient(input))),)


_SHUFFLES = ("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle")


@formula(*(f"{place}{op}" for op in _SHUFFLES for place in ("torch.", "torch.nn.functional.", "aten::")))
def pixel_shuffle(input: TensorSpec, *factor: Any, **more: Any) -> Cost:
    return copy_cost(input, gradient(input))


@formula("torch.combinations", "aten::combinations")
def combinations(input: TensorSpec, *options: Any, **more: Any) -> Cost:
    """The count of the result depends on options of several forms: bytes are not known."""
    return Cost(0, 0, None)


@formula(*(f"aten::{kind}_pad{rank}d_backward" for kind in ("reflection", "replication") for rank in (1, 2, 3)))
def aten_pad_backward(grad_output: TensorSpec, input: TensorSpec, padding: Any = None) -> Cost:
    return vector(grad_output.numel, grad_output, gradient(input))


_PARTS = ("slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter")


@formula(*(name for op in _PARTS for name in spellings(op)))
def slice_scatter(input: TensorSpec, src: TensorSpec, *options: Any, **more: Any) -> Cost:
    # A copy of the input with the source in a part of it: that part of the input is not needed.
    return copy_cost(spec((max(input.numel - src.numel, 0),), input.dtype), src, gradient(input))


@backward(*(name for op in _PARTS for name in spellings(op)))
def slice_scatter_backward(input: TensorSpec, src: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    # A copy of the gradient with zeros in that part; the source's gradient is a view.
    return (Piece("input", copy_cost(gradient(input), gradient(input))),) if wants(input) else ()


@formula("torch.nn.functional.unfold_copy", "torch.unfold_copy", "aten::unfold_copy")
def unfold_copy(input: TensorSpec, dimension: Any, size: Any, step: Any) -> Cost:
    axis = dims(dimension, len(input.shape))[0]
    windows = (input.shape[axis] - need(size, "size")) // need(step, "step") + 1 if input.shape else 1
    shape = (*input.shape[:axis], windows, *input.shape[axis + 1 :], size)
    return copy_cost(input, spec(shape, input.dtype))


# ---------------------------------------------------------------------------------------------- backward


_SHUFFLES = ("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle")


@backward(*(f"{place}{op}" for op in _SHUFFLES for place in ("torch.", "torch.nn.functional.", "aten::")))
def shuffle_backward(input: TensorSpec, *factor: Any, **more: Any) -> tuple[Piece, ...]:
    return (Piece("input", copy_cost(gradient(input), gradient(input))),) if wants(input) else ()


@backward(*spellings("repeat_interleave"))
def repeat_interleave_backward(
    input: TensorSpec, repeats: Any = None, dim: Any = None, output_size: Any = None
) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    length = input.numel if dim is None else input.shape[dims(dim, len(input.shape))[0]]
    count = output_size if isinstance(output_size, int) else length * repeats if isinstance(repeats, int) else None
    if count is None:
        raise Missing("repeats are data, not recorded")
    grad = spec((input.numel // max(length, 1) * count,), input.dtype)
    return (Piece("input", vector(grad.numel, grad, gradient(input))),)
