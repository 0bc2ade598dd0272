"""Backward of ops whose forward stands with their families: products with vectors, distances, transforms, places and parts.

As everywhere, each product of a backward counts on its own, and a piece is what one kernel would do: it reads the incoming
gradient and what the derivative needs, and writes the gradient of one input.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.gemm import number_backward, product_backward, product_cost
from pyprof.prof.formulas.loss import cdist_backward, pdist_backward
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward
from pyprof.prof.formulas.tensors import (
    broadcast,
    copy_cost,
    dims,
    gradient,
    nbytes,
    need,
    pair,
    product,
    promote,
    reduced,
    spec,
    vector,
    wants,
)  # fmt: skip
from pyprof.prof.formulas.transform import TRANSFORMS

__all__: list[str] = []

# ---------------------------------------------------------------------------------------------- products with vectors


@backward(*spellings("dot"), *spellings("vdot"), *spellings("inner"))
def dot_backward(input: TensorSpec, tensor: TensorSpec, out: Any = None) -> tuple[Piece, ...]:
    if len(input.shape) == 1 == len(tensor.shape) or not input.shape or not tensor.shape:
        return number_backward(input, tensor)
    k = input.shape[-1]
    m, n = input.numel // max(k, 1), tensor.numel // max(k, 1)
    return product_backward(input, tensor, input.shape[:-1] + tensor.shape[:-1], (m, n, k))


@backward("torch.addmv", "Tensor.addmv", "aten::addmv")
def addmv_backward(
    input: Any, mat: TensorSpec, vec: TensorSpec, beta: Any = 1, alpha: Any = 1, out: Any = None
) -> tuple[Piece, ...]:
    # The matrix's is an outer product, elementwise; the vector's a product again.
    m, k = mat.shape
    grad = spec((m,), mat.dtype)
    pieces = [Piece("dgrad", vector(m * k, grad, vec, gradient(mat)))] if wants(mat) else []
    if wants(vec):
        pieces.append(Piece("wgrad", product_cost(k, 1, m, grad, mat, gradient(vec), dtype=mat.dtype)))
    return tuple(pieces)


@backward("torch.addbmm", "Tensor.addbmm", "aten::addbmm")
def addbmm_backward(
    input: Any, batch1: TensorSpec, batch2: TensorSpec, beta: Any = 1, alpha: Any = 1, out: Any = None
) -> tuple[Piece, ...]:
    (b, m, k), (_, _, n) = batch1.shape, batch2.shape
    return product_backward(batch1, batch2, (m, n), (m, n, k), b, second_first=False)


@backward("torch.addr", "Tensor.addr", "aten::addr")
def addr_backward(
    input: Any, vec1: TensorSpec, vec2: TensorSpec, beta: Any = 1, alpha: Any = 1, out: Any = None
) -> tuple[Piece, ...]:
    m, n = vec1.numel, vec2.numel
    grad = spec((m, n), vec1.dtype)
    sizes = ((vec1, vec2, (m, 1, n)), (vec2, vec1, (n, 1, m)))
    return tuple(
        Piece(name, product_cost(*size, grad, other, gradient(x), dtype=x.dtype))
        for name, (x, other, size) in zip(("vec1", "vec2"), sizes, strict=True)
        if wants(x)
    )


@backward(*spellings("outer"), *spellings("ger"))
def outer_backward(input: TensorSpec, vec2: TensorSpec, out: Any = None) -> tuple[Piece, ...]:
    return _each_by_each(input, vec2)


@backward(*spellings("kron"))
def kron_backward(input: TensorSpec, other: TensorSpec, out: Any = None) -> tuple[Piece, ...]:
    return _each_by_each(input, other)


def _each_by_each(a: TensorSpec, b: TensorSpec) -> tuple[Piece, ...]:
    """The gradient times the other operand, summed over what is not the operand's own."""
    count = a.numel * b.numel
    grad = spec((count,), promote(a, b))
    pairs = (("input", a, b), ("other", b, a))
    return tuple(Piece(name, vector(2 * count, grad, y, gradient(x))) for name, x, y in pairs if wants(x))


@backward("torch.nn.functional.bilinear", "torch.bilinear", "aten::bilinear")
def bilinear_backward(input1: TensorSpec, input2: TensorSpec, weight: TensorSpec, bias: Any = None) -> tuple[Piece, ...]:
    # dx1 = Σ_n g_n W_n x2, dx2 = Σ_n g_n W_nᵀ x1, dW_n = Σ g_n x1 x2ᵀ: each as many products as the forward.
    n, i, j = weight.shape
    rows = product(input1.shape[:-1])
    grad = spec((rows, n), input1.dtype)
    parts = (("dgrad", input1, (input2, weight)), ("dgrad", input2, (input1, weight)), ("wgrad", weight, (input1, input2)))
    pieces = [
        Piece(name, Cost(2 * rows * n * i * j, 0, nbytes(grad, others, gradient(x)))) for name, x, others in parts if wants(x)
    ]
    if wants(bias):
        pieces.append(Piece("bias", vector(grad.numel, grad, gradient(bias))))
    return tuple(pieces)


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


@backward(*spellings("diag_embed"), *spellings("diagflat"), *spellings("diag"))
def diag_backward(input: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    part = spec((min(input.shape),), input.dtype) if len(input.shape) == 2 else gradient(input)
    return (Piece("input", copy_cost(part, gradient(input))),)


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


# ---------------------------------------------------------------------------------------------- linear systems


@backward("torch.linalg.inv", "torch.linalg.inv_ex", "aten::linalg_inv", "aten::linalg_inv_ex", *spellings("inverse"))
def inv_backward(input: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    # -A⁻ᴴ·g·A⁻ᴴ: two products.
    if not wants(input):
        return ()
    n, batch, same = input.shape[-1], product(input.shape[:-2]), gradient(input)
    one = product_cost(n, n, n, same, same, same, batch=batch, dtype=input.dtype)
    return (Piece("dgrad", one), Piece("dgrad", one))


@backward("torch.linalg.solve", "aten::linalg_solve", "torch.linalg.solve_ex", "aten::linalg_solve_ex",
          "aten::_linalg_solve_ex")  # fmt: skip
def solve_backward(A: TensorSpec, B: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    # dB = A⁻ᴴ·g with the factors kept, 2n² a column; dA = -dB·Xᴴ, a product of n by n.
    alone = len(B.shape) == 1 or B.shape == A.shape[:-1]
    outer = broadcast(A.shape[:-2], B.shape[:-1] if alone else B.shape[:-2])
    n, columns = A.shape[-1], 1 if alone else B.shape[-1]
    batch, x = product(outer), spec((*outer, n, columns), B.dtype)
    pieces = [Piece("input", Cost(0, 2 * n * n * columns * batch, nbytes(A, x, x)))]
    if wants(A):
        pieces.append(Piece("dgrad", product_cost(n, n, columns, x, x, gradient(A), batch=batch, dtype=A.dtype)))
    return tuple(pieces)
