"""Reductions, scans, sorting and searching.

A reduction reads every element once and costs one operation each, times what its definition does to an element (mean adds one
division a result, a variance is 4, a norm 2). Scans cost one an element. Sorting is log2(n) comparisons an element of rows of
n.
"""

from __future__ import annotations

from typing import Any

from pyprof.dtypes import lookup
from pyprof.opcall import UNKNOWN, DTypeArg, TensorSpec
from pyprof.prof.formulas.pointwise import elementwise, spellings
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula
from pyprof.prof.formulas.tensors import (
    broadcast,
    dims,
    dtype_of,
    gradient,
    need,
    promote,
    reduced,
    result,
    spec,
    vector,
    wants,
)

__all__: list[str] = []


def _axes(input: TensorSpec, dim: Any) -> tuple[int, ...]:
    """Reduced dimensions; a dtype in the place of dim (aten::sum(self, dtype)) means all of them."""
    if isinstance(dim, DTypeArg):
        return tuple(range(len(input.shape)))
    return dims(dim, len(input.shape))


def _sum_dtype(input: TensorSpec, dtype: Any) -> str | None:
    if (given := dtype_of(dtype)) is not None:
        return given
    found = lookup(input.dtype)
    if found is None:
        return None
    return "int64" if found.kind in ("bool", "int", "uint") and found.name != "uint64" else found.name


_FLOAT, _SAME, _BOOL, _SUM = "float", "same", "bool", "sum"


def _out_dtype(rule: str, input: TensorSpec, dtype: Any = None) -> str | None:
    if rule == _SUM:
        return _sum_dtype(input, dtype)
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


@formula(*spellings("median"), *spellings("nanmedian"), *spellings("mode"))
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


# ---------------------------------------------------------------------------------------------- scans

_SCANS = (*spellings("cumsum"), *spellings("cumprod"), *spellings("logcumsumexp"))


@formula(*_SCANS)
def cumsum(input: TensorSpec, dim: Any, dtype: Any = None, out: Any = None) -> Cost:
    return vector(input.numel, input, result(out, input.shape, _sum_dtype(input, dtype)))


@formula(*(f"{name}_" for name in _SCANS[:6] if not name.startswith("torch")))
def cumsum_(input: TensorSpec, dim: Any, dtype: Any = None) -> Cost:
    return vector(input.numel, input, input)


@backward(*spellings("cumsum"))
def cumsum_backward(input: TensorSpec, dim: Any, dtype: Any = None, out: Any = None) -> tuple[Piece, ...]:
    # A scan from the other end: flip, cumsum, flip.
    if not wants(input):
        return ()
    return (Piece("input", vector(input.numel, gradient(input), gradient(input))),)


@formula(*spellings("cummax"), *spellings("cummin"))
def cummax(input: TensorSpec, dim: Any, out: Any = None) -> Cost:
    return vector(input.numel, input, gradient(input), spec(input.shape, "int64"))


@formula(*spellings("diff"))
def diff(input: TensorSpec, n: Any = 1, dim: Any = -1, prepend: Any = None, append: Any = None, out: Any = None) -> Cost:
    joined = [p for p in (prepend, append) if isinstance(p, TensorSpec)]
    axis = dims(dim, len(input.shape))[0]
    shape = list(input.shape)
    shape[axis] = max(shape[axis] + sum(p.shape[axis] if p.shape else 1 for p in joined) - need(n, "n"), 0)
    output = result(out, shape, input.dtype)
    return vector(n * output.numel, input, joined, output)


@formula(*spellings("trapz", "t"), *spellings("trapezoid", "ta"), *spellings("cumulative_trapezoid", "ta"))
def trapezoid(y: TensorSpec, x: Any = None, dx: Any = None, dim: Any = -1) -> Cost:
    return vector(3 * y.numel, y, x, spec((y.numel // max(y.shape[-1] if y.shape else 1, 1),), promote(y, to_float=True)))


# ---------------------------------------------------------------------------------------------- sorting and searching


def _length(input: TensorSpec, dim: Any) -> int:
    need(dim, "dim")
    return input.shape[int(dim) % len(input.shape)] if input.shape and dim is not None else input.numel


def _comparisons(length: int) -> int:
    """ceil(log2(length)): comparisons an element of a merge sort."""
    return max(length - 1, 0).bit_length()


_SORT = spellings("sort")


@formula(*_SORT)
def sort(input: TensorSpec, dim: Any = -1, descending: Any = False, stable: Any = False, out: Any = None) -> Cost:
    # aten::sort.stable has `stable` in the place of dim, and sorts along the next argument.
    if isinstance(dim, bool) or dim is None:
        dim, descending = descending, stable
    length = _length(input, -1 if dim is UNKNOWN or isinstance(dim, bool) else dim)
    return vector(_comparisons(length) * input.numel, input, gradient(input), spec(input.shape, "int64"))


@backward(*_SORT)
def sort_backward(
    input: TensorSpec, dim: Any = -1, descending: Any = False, stable: Any = False, out: Any = None
) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    return (Piece("input", vector(0, gradient(input), spec(input.shape, "int64"), gradient(input))),)


@formula(*spellings("msort"))
def msort(input: TensorSpec, out: Any = None) -> Cost:
    return vector(
        _comparisons(input.shape[0] if input.shape else 1) * input.numel, input, result(out, input.shape, input.dtype)
    )


@formula(*spellings("bincount"))
def bincount(input: TensorSpec, weights: Any = None, minlength: Any = 0) -> Cost:
    """The length of the result is the greatest value, which is data: bytes are not known."""
    return Cost(0, 2 * input.numel, None)


@formula(*spellings("argsort"))
def argsort(input: TensorSpec, dim: Any = -1, descending: Any = False, stable: Any = False) -> Cost:
    length = _length(input, -1 if isinstance(dim, bool) else dim)
    return vector(_comparisons(length) * input.numel, input, spec(input.shape, "int64"))


@formula(*spellings("topk"))
def topk(input: TensorSpec, k: Any, dim: Any = -1, largest: Any = True, sorted: Any = True, out: Any = None) -> Cost:
    shape = list(input.shape)
    if shape:
        shape[dims(dim if dim is not None else -1, len(shape))[0]] = need(k, "k")
    return vector(input.numel, input, spec(shape, input.dtype), spec(shape, "int64"))


@backward(*spellings("topk"))
def topk_backward(
    input: TensorSpec, k: Any, dim: Any = -1, largest: Any = True, sorted: Any = True, out: Any = None
) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    shape = list(input.shape)
    if shape:
        shape[dims(dim, len(shape))[0]] = need(k, "k")
    small = spec(shape, input.dtype)
    return (Piece("input", vector(0, small, spec(shape, "int64"), gradient(input))),)


@formula(*spellings("searchsorted", "ta"))
def searchsorted(sorted_sequence: TensorSpec, input: Any, out_int32: Any = False, *options: Any, **more: Any) -> Cost:
    length = sorted_sequence.shape[-1] if sorted_sequence.shape else 1
    queries = input if isinstance(input, TensorSpec) else spec((), sorted_sequence.dtype)
    written = "int32" if out_int32 is True else "int64"
    return vector(_comparisons(length + 1) * queries.numel, sorted_sequence, queries, spec(queries.shape, written))


@formula(*spellings("bucketize", "ta"))
def bucketize(input: Any, boundaries: TensorSpec, out_int32: Any = False, right: Any = False, out: Any = None) -> Cost:
    return searchsorted(boundaries, input, out_int32)


@formula(*spellings("isin", "ta"))
def isin(elements: Any, test_elements: Any, *options: Any, **more: Any) -> Cost:
    # Each element is compared with each, or both are sorted: the smaller count.
    if not isinstance(elements, TensorSpec):
        raise Missing("elements not recorded")
    count = test_elements.numel if isinstance(test_elements, TensorSpec) else 1
    return vector(elements.numel * min(count, _comparisons(count) + 1), elements, test_elements, spec(elements.shape, "bool"))


@formula(*spellings("histc"), *spellings("histogram"))
def histc(input: TensorSpec, bins: Any = 100, *options: Any, **more: Any) -> Cost:
    count = bins if isinstance(bins, int) else 0
    return vector(2 * input.numel, input, spec((count,), input.dtype))


@formula("torch.quantile", "Tensor.quantile", "aten::quantile", "torch.nanquantile", "Tensor.nanquantile", "aten::nanquantile")
def quantile(input: TensorSpec, q: Any, dim: Any = None, keepdim: Any = False, *options: Any, **more: Any) -> Cost:
    length = input.numel if dim is None else _length(input, dim)
    count = q.numel if isinstance(q, TensorSpec) else 1
    rows = input.numel // max(length, 1)
    return vector(_comparisons(length) * input.numel + 3 * count * rows, input, q, spec((count * rows,), input.dtype))
