"""Reductions: sums, means, extremes, variances and norms.

A reduction reads every element once and costs one operation each, times what its definition does to an element (mean adds one
division a result, a variance is 4, a norm 2).
"""

from __future__ import annotations

from typing import Any

from pyprof.dtypes import lookup
from pyprof.opcall import UNKNOWN, DTypeArg, TensorSpec
from pyprof.prof.formulas.algebra import (
    broadcast,
    copy_cost,
    dims,
    dtype_of,
    gradient,
    nbytes,
    need,
    product,
    promote,
    reduced,
    result,
    spec,
    vector,
    wants,
)
from pyprof.prof.formulas.pointwise import elementwise, spellings
from pyprof.prof.formulas.registry import Cost, Piece, backward, formula

__all__ = ["sum_dtype"]


def _axes(input: TensorSpec, dim: Any) -> tuple[int, ...]:
    """Reduced dimensions; a dtype in the place of dim (aten::sum(self, dtype)) means all of them."""
    if isinstance(dim, DTypeArg):
        return tuple(range(len(input.shape)))
    return dims(dim, len(input.shape))


def sum_dtype(input: TensorSpec, dtype: Any) -> str | None:
    """The dtype of a sum: the one given, else int64 for integers."""
    if (given := dtype_of(dtype)) is not None:
        return given
    found = lookup(input.dtype)
    if found is None:
        return None
    return "int64" if found.kind in ("bool", "int", "uint") and found.name != "uint64" else found.name


_FLOAT, _SAME, _BOOL, _SUM = "float", "same", "bool", "sum"


def _out_dtype(rule: str, input: TensorSpec, dtype: Any = None) -> str | None:
    if rule == _SUM:
        return sum_dtype(input, dtype)
    if rule == _BOOL:
        return "bool"
    return dtype_of(dtype) or (promote(input, to_float=True) if rule == _FLOAT else input.dtype)


# op: (places, operations an input element, operations a result, dtype of the result, operations of the backward an element,
# whether the backward reads the input)
_REDUCTIONS: dict[str, tuple[str, int, int, str, int | None, bool]] = {
    "sum": ("tTa", 1, 0, _SUM, 0, False),
    "nansum": ("tTa", 2, 0, _SUM, 1, True),
    "mean": ("tTa", 1, 1, _FLOAT, 1, False),
    "nanmean": ("tTa", 2, 1, _FLOAT, 2, True),
    "prod": ("tTa", 1, 0, _SUM, 2, True),
    "all": ("tTa", 1, 0, _BOOL, None, False),
    "any": ("tTa", 1, 0, _BOOL, None, False),
    "amax": ("tTa", 1, 0, _SAME, 2, True),
    "amin": ("tTa", 1, 0, _SAME, 2, True),
    "count_nonzero": ("tTa", 1, 0, "int64", None, False),
}


def _register_reduction(op: str, places: str, each: int, final: int, rule: str, back: int | None, reads: bool) -> None:
    def forward(input: TensorSpec, dim: Any = None, keepdim: Any = False, dtype: Any = None, out: Any = None) -> Cost:
        if dim is UNKNOWN and len(input.shape) > 1 and not isinstance(out, TensorSpec):
            return Cost(0, None if final else each * input.numel, None)
        axes = () if dim is UNKNOWN and isinstance(out, TensorSpec) else _axes(input, dim)
        given = dim if isinstance(dim, DTypeArg) else dtype
        written = "int64" if rule == "int64" else _out_dtype(rule, input, given)
        output = result(out, reduced(input.shape, axes, keepdim is True), written)
        return vector(each * input.numel + final * output.numel, input, output)

    def back_(
        input: TensorSpec, dim: Any = None, keepdim: Any = False, dtype: Any = None, out: Any = None
    ) -> tuple[Piece, ...]:
        if not wants(input) or (not operations and not reads):
            return ()  # the gradient is expanded, which costs nothing
        small = spec(reduced(input.shape, _axes(input, dim), False), input.dtype)
        return (Piece("input", vector(operations * input.numel, small, input if reads else None, gradient(input))),)

    def of_dispatcher(input: TensorSpec, dim: Any = None, keepdim: Any = False, dtype: Any = None, out: Any = None) -> Cost:
        # The overload (self, dtype) has one argument behind the tensor, the one with dimensions three.
        whole = dim is UNKNOWN and keepdim is not UNKNOWN
        return forward(input, None if whole else dim, keepdim, dtype, out)

    forward.__name__ = forward.__qualname__ = of_dispatcher.__name__ = of_dispatcher.__qualname__ = op
    names = spellings(op, places)
    both = op in ("sum", "mean", "prod")
    formula(*(name for name in names if not (both and name.startswith("aten::"))))(forward)
    if both:
        formula(*(name for name in names if name.startswith("aten::")))(of_dispatcher)
    if back is not None:
        operations = back
        backward(*spellings(op, places))(back_)


for _op, _row in _REDUCTIONS.items():
    _register_reduction(_op, *_row)


# ---------------------------------------------------------------------------------------------- with positions


@formula(*spellings("max"), *spellings("min"))
def max_or_min(input: TensorSpec, dim: Any = None, keepdim: Any = False, out: Any = None) -> Cost:
    """max(x), max(x, other) and max(x, dim) with its positions."""
    if isinstance(dim, TensorSpec):
        return elementwise(1, input, dim, dtype=promote(input, dim), out=out)
    if dim is None:
        return vector(input.numel, input, spec((), input.dtype))
    return _with_positions(input, dim, keepdim, 1)


@backward(*spellings("max"), *spellings("min"))
def max_or_min_backward(input: TensorSpec, dim: Any = None, keepdim: Any = False, out: Any = None) -> tuple[Piece, ...]:
    if isinstance(dim, TensorSpec):
        grad = spec(broadcast(input.shape, dim.shape), promote(input, dim))
        return tuple(
            Piece(name, vector(2 * grad.numel, grad, input, dim, gradient(x)))
            for name, x in (("other", dim), ("input", input))
            if wants(x)
        )
    if not wants(input):
        return ()
    if dim is None:  # compared with the result, and divided among equals
        return (Piece("input", vector(3 * input.numel, input, gradient(input))),)
    small = spec(reduced(input.shape, dims(dim, len(input.shape)), False), input.dtype)
    return (Piece("input", vector(0, small, spec(small.shape, "int64"), gradient(input))),)


def _with_positions(input: TensorSpec, dim: Any, keepdim: Any, operations: int) -> Cost:
    shape = reduced(input.shape, dims(dim, len(input.shape)), keepdim is True)
    return vector(operations * input.numel, input, spec(shape, input.dtype), spec(shape, "int64"))


@formula(*spellings("argmax"), *spellings("argmin"))
def argmax(input: TensorSpec, dim: Any = None, keepdim: Any = False, out: Any = None) -> Cost:
    shape = () if dim is None else reduced(input.shape, dims(dim, len(input.shape)), keepdim is True)
    return vector(input.numel, input, result(out, shape, "int64"))


@formula(*spellings("mode"))
def mode(input: TensorSpec, dim: Any = -1, keepdim: Any = False, out: Any = None) -> Cost:
    return _with_positions(input, dim, keepdim, 1)


@formula(*spellings("median"), *spellings("nanmedian"))
def median(input: TensorSpec, dim: Any = None, keepdim: Any = False, out: Any = None) -> Cost:
    if dim is None:
        return vector(input.numel, input, spec((), input.dtype))
    return _with_positions(input, dim, keepdim, 1)


@formula(*spellings("kthvalue"))
def kthvalue(input: TensorSpec, k: Any, dim: Any = -1, keepdim: Any = False, out: Any = None) -> Cost:
    return _with_positions(input, dim, keepdim, 1)


@formula(*spellings("aminmax"), "aten::_aminmax", "torch._aminmax")
def aminmax(input: TensorSpec, dim: Any = None, keepdim: Any = False, out: Any = None) -> Cost:
    output = spec(reduced(input.shape, _axes(input, dim), keepdim is True), input.dtype)
    return vector(2 * input.numel, input, output, output)


# ---------------------------------------------------------------------------------------------- variance and norms

_VARIANCE = (*spellings("var"), *spellings("std"))


@formula(*_VARIANCE)
def var(
    input: TensorSpec, dim: Any = None, unbiased: Any = None, keepdim: Any = False, correction: Any = None, out: Any = None
) -> Cost:
    # Subtract the mean, square, sum; var(x, unbiased) has a bool in the place of dim.
    axes = _axes(input, None if isinstance(dim, bool) else dim)
    return vector(4 * input.numel, input, result(out, reduced(input.shape, axes, keepdim is True), input.dtype))


@backward(*_VARIANCE)
def var_backward(
    input: TensorSpec, dim: Any = None, unbiased: Any = None, keepdim: Any = False, correction: Any = None, out: Any = None
) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    small = spec(reduced(input.shape, _axes(input, None if isinstance(dim, bool) else dim), False), input.dtype)
    return (Piece("input", vector(2 * input.numel, small, small, input, gradient(input))),)


@formula(*spellings("var_mean", "ta"), *spellings("std_mean", "ta"))
def var_mean(input: TensorSpec, dim: Any = None, unbiased: Any = None, keepdim: Any = False, correction: Any = None) -> Cost:
    output = spec(reduced(input.shape, _axes(input, None if isinstance(dim, bool) else dim), keepdim is True), input.dtype)
    return vector(4 * input.numel, input, output, output)


def _norm_cost(input: TensorSpec, dim: Any, keepdim: Any, dtype: Any, out: Any) -> Cost:
    # |x|^p and a sum; a root of each result.
    output = result(out, reduced(input.shape, _axes(input, dim), keepdim is True), _out_dtype(_FLOAT, input, dtype))
    return vector(2 * input.numel + output.numel, input, output)


def _norm_back(input: TensorSpec, dim: Any) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    small = spec(reduced(input.shape, _axes(input, dim), False), input.dtype)
    return (Piece("input", vector(2 * input.numel, small, small, input, gradient(input))),)


_NORM = (*spellings("norm"), "torch.functional.norm")


@formula(*_NORM)
def norm(input: TensorSpec, p: Any = "fro", dim: Any = None, keepdim: Any = False, dtype: Any = None, out: Any = None) -> Cost:
    return _norm_cost(input, dim, keepdim, dtype, out)


@backward(*_NORM)
def norm_backward(
    input: TensorSpec, p: Any = "fro", dim: Any = None, keepdim: Any = False, dtype: Any = None, out: Any = None
) -> tuple[Piece, ...]:
    return _norm_back(input, dim)


_LINALG_NORM = ("torch.linalg.norm", "aten::linalg_norm", "torch.linalg.vector_norm", "aten::linalg_vector_norm")


@formula(*_LINALG_NORM)
def vector_norm(
    input: TensorSpec, ord: Any = 2, dim: Any = None, keepdim: Any = False, dtype: Any = None, out: Any = None
) -> Cost:
    return _norm_cost(input, dim, keepdim, dtype, out)


@backward(*_LINALG_NORM)
def vector_norm_backward(
    input: TensorSpec, ord: Any = 2, dim: Any = None, keepdim: Any = False, dtype: Any = None, out: Any = None
) -> tuple[Piece, ...]:
    return _norm_back(input, dim)


@formula(*spellings("frobenius_norm", "ta"))
def frobenius_norm(input: TensorSpec, dim: Any = None, keepdim: Any = False, out: Any = None) -> Cost:
    return _norm_cost(input, dim, keepdim, None, out)


@formula(*spellings("dist"))
def dist(input: TensorSpec, other: TensorSpec, p: Any = 2) -> Cost:
    numel = spec(broadcast(input.shape, other.shape), None).numel
    return vector(3 * numel + 1, input, other, spec((), input.dtype))


@formula(*spellings("equal"), "aten::allclose", "torch.allclose", "Tensor.allclose")
def equal(input: TensorSpec, other: TensorSpec, *tolerances: Any, **more: Any) -> Cost:
    return vector(input.numel, input, other)


# ---------------------------------------------------------------------------------------------- to a size, and to one word


@formula("Tensor.sum_to_size", "aten::sum_to_size", "aten::_grad_sum_to_size")
def sum_to_size(input: TensorSpec, *size: Any, **more: Any) -> Cost:
    given = size[0] if size and (size[0] is None or isinstance(size[0], (list, tuple))) else size or more.get("size")
    if given is None or tuple(need(given, "size")) == input.shape:
        return Cost(0, 0, 0)
    return vector(input.numel, input, spec(given, input.dtype))


@backward("Tensor.sum_to_size", "aten::sum_to_size")
def sum_to_size_backward(input: TensorSpec, *size: Any, **more: Any) -> tuple[Piece, ...]:
    return ()  # the gradient is expanded, which costs nothing


@formula(*spellings("hash_tensor", "ta"))
def hash_tensor(input: TensorSpec, dim: Any = None, keepdim: Any = False, mode: Any = 0, out: Any = None) -> Cost:
    # The exclusive or of all elements.
    return vector(input.numel, input, spec(reduced(input.shape, _axes(input, dim), keepdim is True), "uint64"))


@formula("torch._is_all_true", "aten::_is_all_true", "torch._is_any_true", "aten::_is_any_true")
def is_all_true(input: TensorSpec) -> Cost:
    return vector(input.numel, input, spec((), "bool"))


@formula("aten::linalg__powsum")
def powsum(input: TensorSpec, ord: Any = 2, dim: Any = None, keepdim: Any = False, dtype: Any = None) -> Cost:
    # |x|^p and its sum, without the root.
    output = spec(reduced(input.shape, _axes(input, dim), keepdim is True), _out_dtype(_FLOAT, input, dtype))
    return vector(2 * input.numel, input, output)


@formula("aten::trace_backward")
def trace_backward(grad: TensorSpec, sizes: Any) -> Cost:
    return vector(0, grad, spec(need(sizes, "sizes"), grad.dtype))


# ---------------------------------------------------------------------------------------------- covariance


@formula(*spellings("cov"))
def cov(input: TensorSpec, correction: Any = 1, fweights: Any = None, aweights: Any = None) -> Cost:
    # Of V variables seen N times: the mean and the differences 2 an element, weights 1 each, X·Xᵀ, and a division a result.
    rows = input.shape[0] if len(input.shape) > 1 else 1
    weights = [w for w in (fweights, aweights) if isinstance(w, TensorSpec)]
    written = spec((rows, rows), promote(input, to_float=True))
    operations = (2 + len(weights)) * input.numel + rows * rows
    return Cost(2 * rows * input.numel, operations, nbytes(input, weights, written))


@formula(*spellings("corrcoef"))
def corrcoef(input: TensorSpec) -> Cost:
    # The covariance, a root of each variance, and two divisions and a clamp of 2 a result.
    one = cov(input)
    rows = input.shape[0] if len(input.shape) > 1 else 1
    return Cost(one.matmul_flops, (one.vector_flops or 0) + rows + 4 * rows * rows, one.bytes)


# ---------------------------------------------------------------------------------------------- backward


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
