"""Backward of ops whose forward stands with their families: products with vectors, distances, transforms, places, losses.

As everywhere, each product of a backward counts on its own, and a piece is what one kernel would do: it reads the incoming
gradient and what the derivative needs, and writes the gradient of one input.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import (
    broadcast,
    copy_cost,
    dims,
    gradient,
    need,
    pair,
    product,
    promote,
    reduced,
    spec,
    vector,
    wants,
)  # fmt: skip
from pyprof.prof.formulas.index import selected
from pyprof.prof.formulas.loss import (
    cdist_backward,
    ctc_loss,
    ctc_loss_backward,
    multi_margin_loss_backward,
    pdist_backward,
)  # fmt: skip
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.pool import targets
from pyprof.prof.formulas.registry import Missing, Piece, backward
from pyprof.prof.formulas.transform import TRANSFORMS

__all__: list[str] = []

# ---------------------------------------------------------------------------------------------- distances


@backward("torch.cdist", "aten::cdist", "torch._cdist_forward", "aten::_cdist_forward")
def cdist_back(x1: TensorSpec, x2: TensorSpec, p: Any = 2.0, *mode: Any, **more: Any) -> tuple[Piece, ...]:
    outer = broadcast(x1.shape[:-2], x2.shape[:-2])
    distances = spec((*outer, x1.shape[-2], x2.shape[-2]), x1.dtype)
    return tuple(
        Piece(name, cdist_backward(distances, a, b, p, distances))
        for name, a, b in (("input", x1, x2), ("other", x2, x1))
        if wants(a)
    )


@backward("torch.pdist", "aten::pdist", "torch.nn.functional.pdist", "aten::_pdist_forward")
def pdist_back(input: TensorSpec, p: Any = 2.0) -> tuple[Piece, ...]:
    rows = input.shape[0]
    distances = spec((rows * (rows - 1) // 2,), input.dtype)
    return (Piece("input", pdist_backward(distances, input, p, distances)),) if wants(input) else ()


# ---------------------------------------------------------------------------------------------- Fourier


def _register_fft(op: str) -> None:
    forward = TRANSFORMS[op]

    def fft_back(input: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
        # The transform the other way, of the same sizes; what the forward read is written and the other way round.
        return (Piece("input", forward(input, *options, **more)),) if wants(input) else ()

    fft_back.__qualname__ = f"{op}_backward"
    backward(f"torch.fft.{op}", f"aten::fft_{op}")(fft_back)


for _op in TRANSFORMS:
    _register_fft(_op)


@backward("torch.fft.fftshift", "aten::fft_fftshift", "torch.fft.ifftshift", "aten::fft_ifftshift")
def fftshift_backward(input: TensorSpec, dim: Any = None) -> tuple[Piece, ...]:
    return (Piece("input", copy_cost(gradient(input), gradient(input))),) if wants(input) else ()


# ---------------------------------------------------------------------------------------------- places and parts


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


@backward(*spellings("diag_embed"), *spellings("diagflat"))
def diag_embed_backward(input: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    return (Piece("input", copy_cost(gradient(input), gradient(input))),) if wants(input) else ()


@backward(*spellings("diag"))
def diag_backward(input: TensorSpec, diagonal: Any = 0, out: Any = None) -> tuple[Piece, ...]:
    if len(input.shape) != 2:
        return diag_embed_backward(input)
    (rows, columns), shift = input.shape, need(diagonal, "diagonal")
    part = spec((max(0, min(rows + min(shift, 0), columns - max(shift, 0))),), input.dtype)
    return (Piece("input", copy_cost(part, gradient(input))),) if wants(input) else ()


@backward(*spellings("trace"))
def trace_back(input: TensorSpec) -> tuple[Piece, ...]:
    return (Piece("input", vector(0, spec((), input.dtype), gradient(input))),) if wants(input) else ()


@backward("aten::im2col", "torch.nn.functional.im2col", "torch.nn.functional.unfold")
def im2col_backward(
    input: TensorSpec, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> tuple[Piece, ...]:
    # Each column's element is added back to where it came from.
    if not wants(input):
        return ()
    options = [
        pair(v, 2, name)
        for v, name in ((kernel_size, "kernel_size"), (dilation, "dilation"), (padding, "padding"), (stride, "stride"))
    ]
    places = product((n + 2 * p - d * (r - 1) - 1) // s + 1 for n, r, d, p, s in zip(input.shape[-2:], *options, strict=True))
    columns = spec((*input.shape[:-2], *options[0], places), input.dtype)
    return (Piece("input", vector(columns.numel, columns, gradient(input))),)


@backward("aten::col2im", "torch.nn.functional.col2im", "torch.nn.functional.fold")
def col2im_backward(
    input: TensorSpec, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    window, sizes = product(pair(kernel_size, 2, "kernel_size")), pair(output_size, 2, "output_size")
    grad = spec((*input.shape[:-2], input.shape[-2] // window, *sizes), input.dtype)
    return (Piece("input", copy_cost(grad, gradient(input))),)


@backward(*spellings("index_put"), *spellings("index_put_"))
def index_put_backward(
    input: TensorSpec, indices: list[TensorSpec], values: Any = None, accumulate: Any = False, *more: Any
) -> tuple[Piece, ...]:
    # The input's is the incoming one, with zeros where it was overwritten; that of the values is gathered, and summed where
    # they were broadcast.
    shape, tensors = selected(input, indices)
    rows, grad = spec(shape, input.dtype), gradient(input)
    pieces = []
    if wants(input) and accumulate is not True:
        pieces.append(Piece("input", copy_cost(grad, grad, tensors)))
    if isinstance(values, TensorSpec) and wants(values):
        summed = rows.numel if values.shape != rows.shape else 0
        pieces.append(Piece("values", vector(summed, rows, tensors, gradient(values))))
    return tuple(pieces)


@backward("Tensor.unfold", "aten::unfold", *spellings("unfold_copy", "ta"))
def unfold_view_backward(input: TensorSpec, dimension: Any, size: Any, step: Any) -> tuple[Piece, ...]:
    # The elements of overlapping windows are added into zeros.
    if not wants(input) or not input.shape:
        return ()
    length, window = input.shape[need(dimension, "dimension")], need(size, "size")
    count = (length - window) // need(step, "step") + 1
    grad = spec((input.numel // max(length, 1) * count * window,), input.dtype)
    return (Piece("input", vector(grad.numel, grad, gradient(input))),)


@backward("Tensor.expand_as", "aten::expand_as")
def expand_as_backward(input: TensorSpec, other: TensorSpec) -> tuple[Piece, ...]:
    if not wants(input) or input.shape == other.shape:
        return ()
    grad = spec(other.shape, input.dtype)
    return (Piece("input", vector(grad.numel, grad, gradient(input))),)


@backward(*spellings("masked_select"))
def masked_select_back(input: TensorSpec, mask: TensorSpec, out: Any = None) -> tuple[Piece, ...]:
    # How much was selected is data: the gradient that is read is at the most as large as the input.
    raise Missing("how many elements a mask selects is data, not recorded")


@backward(*spellings("masked_scatter"), *spellings("masked_scatter_", "Ta"))
def masked_scatter_back(input: TensorSpec, mask: TensorSpec, source: TensorSpec) -> tuple[Piece, ...]:
    # The input's is the incoming one with zeros where the mask is; the source's what it selects there, at the most all of it.
    grad = gradient(input)
    pieces = [Piece("input", vector(input.numel, grad, mask, grad))] if wants(input) else []
    if wants(source):
        pieces.append(Piece("source", copy_cost(mask, gradient(source), gradient(source))))
    return tuple(pieces)


# ---------------------------------------------------------------------------------------------- reductions, differences


@backward(*spellings("var_mean", "ta"), *spellings("std_mean", "ta"))
def var_mean_backward(
    input: TensorSpec, dim: Any = None, unbiased: Any = None, keepdim: Any = False, correction: Any = None
) -> tuple[Piece, ...]:
    # The variance's 2·(x - mean)·g, and the mean's g/n added to it.
    if not wants(input):
        return ()
    axes = dims(None if isinstance(dim, bool) else dim, len(input.shape))
    small = spec(reduced(input.shape, axes, False), input.dtype)
    return (Piece("input", vector(3 * input.numel, small, small, small, input, gradient(input))),)


@backward(*spellings("mode"))
def mode_backward(input: TensorSpec, dim: Any = -1, keepdim: Any = False, out: Any = None) -> tuple[Piece, ...]:
    return _selected(input, dim)


@backward(*spellings("median"), *spellings("nanmedian"))
def median_backward(input: TensorSpec, dim: Any = None, keepdim: Any = False, out: Any = None) -> tuple[Piece, ...]:
    return _selected(input, dim)


@backward(*spellings("kthvalue"))
def kthvalue_backward(input: TensorSpec, k: Any, dim: Any = -1, keepdim: Any = False, out: Any = None) -> tuple[Piece, ...]:
    return _selected(input, dim)


def _selected(input: TensorSpec, dim: Any) -> tuple[Piece, ...]:
    """Zeros with the gradient where the chosen element was; without a dimension the elements equal to it share the gradient."""
    if not wants(input):
        return ()
    if dim is None:
        return (Piece("input", vector(3 * input.numel, input, gradient(input))),)
    small = spec(reduced(input.shape, dims(need(dim, "dim"), len(input.shape)), False), input.dtype)
    return (Piece("input", copy_cost(small, spec(small.shape, "int64"), gradient(input))),)


@backward(*spellings("cross"), "torch.linalg.cross", "aten::linalg_cross")
def cross_backward(input: TensorSpec, other: TensorSpec, dim: Any = None, out: Any = None) -> tuple[Piece, ...]:
    # A cross product with the other one each.
    grad = spec(broadcast(input.shape, other.shape), promote(input, other))
    return tuple(
        Piece(name, vector(3 * grad.numel, grad, y, gradient(x)))
        for name, x, y in (("other", other, input), ("input", input, other))
        if wants(x)
    )


@backward(*spellings("dist"))
def dist_backward(input: TensorSpec, other: TensorSpec, p: Any = 2) -> tuple[Piece, ...]:
    # The difference again, times gradient over distance; the other's is its negative.
    shape = broadcast(input.shape, other.shape)
    pairs = (("input", input), ("other", other))
    return tuple(
        Piece(name, vector(2 * product(shape), input, other, spec((), input.dtype), gradient(x)))
        for name, x in pairs
        if wants(x)
    )


@backward(*spellings("diff"))
def diff_backward(
    input: TensorSpec, n: Any = 1, dim: Any = -1, prepend: Any = None, append: Any = None, out: Any = None
) -> tuple[Piece, ...]:
    # Each element is in two differences: a subtraction an element, as often as differences were taken.
    return (Piece("input", vector(need(n, "n") * input.numel, gradient(input), gradient(input))),) if wants(input) else ()


@backward(*spellings("trapz", "ta"), *spellings("trapezoid", "ta"), *spellings("cumulative_trapezoid", "ta"))
def trapezoid_backward(y: TensorSpec, x: Any = None, dx: Any = None, dim: Any = -1) -> tuple[Piece, ...]:
    # Half of the widths on both sides, times the gradient.
    if not wants(y):
        return ()
    return (Piece("y", vector(3 * y.numel, gradient(y), x if isinstance(x, TensorSpec) else None, gradient(y))),)


# ---------------------------------------------------------------------------------------------- losses of few lines


@backward("torch.nn.functional.multi_margin_loss", "aten::multi_margin_loss")
def multi_margin_back(input: TensorSpec, target: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    number = spec((), input.dtype)
    return (Piece("input", multi_margin_loss_backward(number, input, target)),) if wants(input) else ()


@backward("torch.nn.functional.ctc_loss", "torch.ctc_loss", "aten::ctc_loss", "torch._ctc_loss", "aten::_ctc_loss")
def ctc_back(
    log_probs: TensorSpec,
    targets: TensorSpec,
    input_lengths: Any = None,
    target_lengths: Any = None,
    *options: Any,
    **more: Any,
) -> tuple[Piece, ...]:
    if not wants(log_probs):
        return ()
    once = ctc_loss(log_probs, targets, input_lengths, target_lengths).vector_flops or 0
    count = log_probs.shape[1] if len(log_probs.shape) > 2 else 1
    states, losses = spec((once // 6,), log_probs.dtype), spec((count,), log_probs.dtype)
    return (Piece("input", ctc_loss_backward(losses, log_probs, targets, input_lengths, target_lengths, losses, states)),)


@backward("torch.cosine_similarity", "aten::cosine_similarity", "torch.nn.functional.cosine_similarity")
def cosine_backward(x1: TensorSpec, x2: TensorSpec, dim: Any = 1, eps: Any = 1e-8) -> tuple[Piece, ...]:
    # g·(y/(|x||y|) - cos·x/|x|²): two products, a difference and the gradient.
    shape = broadcast(x1.shape, x2.shape)
    axis = need(dim, "dim") % max(len(shape), 1)
    small = spec([n for d, n in enumerate(shape) if d != axis], promote(x1, x2))
    pairs = (("input", x1, x2), ("other", x2, x1))
    return tuple(Piece(name, vector(4 * product(shape), small, small, x, y, gradient(x))) for name, x, y in pairs if wants(x))


@backward("torch.nn.functional.pairwise_distance", "torch.pairwise_distance", "aten::pairwise_distance")
def pairwise_backward(x1: TensorSpec, x2: TensorSpec, p: Any = 2.0, eps: Any = 1e-6, keepdim: Any = False) -> tuple[Piece, ...]:
    shape = broadcast(x1.shape, x2.shape)
    small = spec(shape[:-1], promote(x1, x2))
    pairs = (("input", x1), ("other", x2))
    return tuple(Piece(name, vector(3 * product(shape), small, small, x1, x2, gradient(x))) for name, x in pairs if wants(x))


# ---------------------------------------------------------------------------------------------- pools by drawn windows


@backward("torch.nn.functional.fractional_max_pool2d", "aten::fractional_max_pool2d",
          "torch.nn.functional.fractional_max_pool3d", "aten::fractional_max_pool3d")  # fmt: skip
def fractional_back(
    input: TensorSpec, kernel_size: Any, output_size: Any = None, *options: Any, **more: Any
) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    if output_size is None:
        raise Missing("output_size not recorded")
    small = spec(targets(output_size, input, 3 if len(input.shape) > 4 else 2), input.dtype)
    return (Piece("input", vector(small.numel, small, spec(small.shape, "int64"), gradient(input))),)


@backward("torch.nn.functional.max_unpool2d", "aten::max_unpool2d", "torch.nn.functional.max_unpool3d", "aten::max_unpool3d")
def max_unpool_backward(
    input: TensorSpec, indices: TensorSpec, output_size: Any = None, *options: Any, **more: Any
) -> tuple[Piece, ...]:
    # What was put somewhere is gathered from there.
    return (Piece("input", copy_cost(gradient(input), indices, gradient(input))),) if wants(input) else ()
