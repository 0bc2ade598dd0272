"""Scans, differences, sorting and searching: ops whose results depend on the order along one dimension.

Scans cost one operation an element, 5 where exponentials are added. Sorting is log2(n) comparisons an element of rows of n, a
search log2(n) a value.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import dims, gradient, nbytes, need, opt, product, promote, result, spec, vector, wants
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.reduction import sum_dtype
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__: list[str] = []

_SCANS = (*spellings("cumsum"), *spellings("cumprod"))


@formula(*_SCANS)
def cumsum(input: TensorSpec, dim: Any, dtype: Any = None, out: Any = None) -> Cost:
    return vector(input.numel, input, result(out, input.shape, sum_dtype(input, dtype)))


@formula(*(f"{name}_" for name in _SCANS if not name.startswith("torch")))
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


@formula(*spellings("logcumsumexp"), *spellings("_logcumsumexp", "ta"))
def logcumsumexp(input: TensorSpec, dim: Any, out: Any = None) -> Cost:
    # The logarithm of a sum of two exponentials each: as logaddexp, 5.
    return vector(5 * input.numel, input, result(out, input.shape, promote(input, to_float=True)))


@formula("torch._cummax_helper", "aten::_cummax_helper", "torch._cummin_helper", "aten::_cummin_helper")
def cummax_into(input: TensorSpec, values: TensorSpec, indices: TensorSpec, dim: Any) -> Cost:
    return vector(input.numel, input, values, indices)


@backward(*spellings("cumprod"))
def cumprod_back(input: TensorSpec, dim: Any, dtype: Any = None, out: Any = None) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    return (Piece("input", cumprod_backward(gradient(input), gradient(input), dim, gradient(input))),)


@formula("aten::cumprod_backward")
def cumprod_backward(grad: TensorSpec, input: TensorSpec, dim: Any, output: TensorSpec) -> Cost:
    # Where nothing is 0: (gradient · output), summed from the other end, divided by the input.
    return vector(3 * input.numel, grad, input, output, gradient(input))


@backward(*spellings("cummax"), *spellings("cummin"))
def cummax_back(input: TensorSpec, dim: Any, out: Any = None) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    return (Piece("input", cummaxmin_backward(gradient(input), input, spec(input.shape, "int64"), dim)),)


@formula("aten::cummaxmin_backward")
def cummaxmin_backward(grad: TensorSpec, input: TensorSpec, indices: TensorSpec, dim: Any) -> Cost:
    # Each gradient is added where its value came from, into zeros.
    return vector(grad.numel, grad, indices, gradient(input))


@backward(*spellings("logcumsumexp"))
def logcumsumexp_back(input: TensorSpec, dim: Any, out: Any = None) -> tuple[Piece, ...]:
    # Of the positive and the negative part of the gradient: its logarithm less the result, a scan from the other end, plus the
    # input, and exp; their difference.
    if not wants(input):
        return ()
    return (Piece("input", vector(11 * input.numel, gradient(input), input, gradient(input), gradient(input))),)


def _integrated(y: TensorSpec, x: Any, dim: Any, kept: bool) -> Cost:
    """The trapezoids between neighbours: y + y, times the width, halved and summed: 3 an interval, 1 more for x - x."""
    rank = len(y.shape)
    axis = need(dim, "dim") % max(rank, 1) if isinstance(dim, int) else rank - 1
    intervals = list(y.shape)
    if intervals:
        intervals[axis] = max(intervals[axis] - 1, 0)
    small = spec(intervals if kept else [n for d, n in enumerate(y.shape) if d != axis], promote(y, x, to_float=True))
    return vector((4 if isinstance(x, TensorSpec) else 3) * product(intervals), y, x, small)


def _along(x: Any, dx: Any, dim: Any) -> Any:
    """The overload (y, x, dim) has its dimension where (y, *, dx, dim) has its width."""
    return dx if isinstance(x, TensorSpec) and isinstance(dx, int) and not isinstance(dx, bool) else dim


@formula(*spellings("trapz", "ta"), *spellings("trapezoid", "ta"))
def trapezoid(y: TensorSpec, x: Any = None, dx: Any = None, dim: Any = -1) -> Cost:
    return _integrated(y, x, _along(x, dx, dim), False)


@formula(*spellings("cumulative_trapezoid", "ta"))
def cumulative_trapezoid(y: TensorSpec, x: Any = None, dx: Any = None, dim: Any = -1) -> Cost:
    return _integrated(y, x, _along(x, dx, dim), True)


@formula(*spellings("vander", "ta"), "torch.linalg.vander", "aten::linalg_vander")
def vander(x: TensorSpec, N: Any = None, increasing: Any = False) -> Cost:
    # Powers of each element, each a product of the one before.
    count = need(N, "N") if N is not None else (x.shape[-1] if x.shape else 1)
    return vector(x.numel * max(count - 2, 0), x, spec((x.numel, count), promote(x)))


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


@formula(*spellings("histc"))
def histc(input: TensorSpec, bins: Any = 100, min: Any = 0, max: Any = 0, out: Any = None) -> Cost:
    # The bin is a subtraction, a product and a division; its count is added to.
    return vector(4 * input.numel, input, spec((need(bins, "bins"),), input.dtype))


@formula(*spellings("histogram"))
def histogram(input: TensorSpec, bins: Any, *options: Any, **more: Any) -> Cost:
    # The edges are returned too; given as a tensor they are searched, and copied.
    weight = more.get("weight", next((o for o in options if isinstance(o, TensorSpec)), None))
    each = _comparisons(bins.numel) if isinstance(bins, TensorSpec) else 3
    edges = bins.numel if isinstance(bins, TensorSpec) else need(bins, "bins") + 1
    written = (spec((edges,), input.dtype), spec((max(edges - 1, 0),), input.dtype))
    return vector((each + 1) * input.numel, input, bins, opt(weight), written)


@formula("torch.quantile", "Tensor.quantile", "aten::quantile", "torch.nanquantile", "Tensor.nanquantile", "aten::nanquantile")
def quantile(input: TensorSpec, q: Any, dim: Any = None, keepdim: Any = False, *options: Any, **more: Any) -> Cost:
    length = input.numel if dim is None else _length(input, dim)
    count = q.numel if isinstance(q, TensorSpec) else 1
    rows = input.numel // max(length, 1)
    return vector(_comparisons(length) * input.numel + 3 * count * rows, input, q, spec((count * rows,), input.dtype))


# ---------------------------------------------------------------------------------------------- histograms of several columns


def _rows_of(input: TensorSpec) -> tuple[int, int]:
    """Samples, and values of each."""
    columns = input.shape[-1] if input.shape else 1
    return input.numel // max(columns, 1), columns


def _histogram(input: TensorSpec, edges: list[int], operations: int, weight: Any) -> Cost:
    rows, _ = _rows_of(input)
    return vector(operations + rows, input, opt(weight), spec((product(edges),), input.dtype))


@formula(*spellings("_histogramdd_from_bin_cts", "ta"))
def histogram_of_counts(input: TensorSpec, bins: Any, range: Any = None, weight: Any = None, density: Any = False) -> Cost:
    # The bin is a subtraction, a product and a division; its count or weight is added.
    return _histogram(input, list(need(bins, "bins")), 3 * input.numel, weight)


@formula(*spellings("_histogramdd_from_bin_tensors", "ta"))
def histogram_of_edges(input: TensorSpec, bins: list[TensorSpec], weight: Any = None, density: Any = False) -> Cost:
    rows, _ = _rows_of(input)
    one = _histogram(input, [b.numel - 1 for b in bins], sum(rows * _comparisons(b.numel) for b in bins), weight)
    return _with(one, bins)


def _with(cost: Cost, *tensors: Any) -> Cost:
    more = nbytes(*tensors)
    return Cost(0, cost.vector_flops, None if cost.bytes is None or more is None else cost.bytes + more)


@formula(*spellings("histogramdd", "ta"))
def histogramdd(input: TensorSpec, bins: Any, *options: Any, **more: Any) -> Cost:
    weight = more.get("weight", next((o for o in options if isinstance(o, TensorSpec)), None))
    if isinstance(bins, (list, tuple)) and bins and isinstance(bins[0], TensorSpec):
        return histogram_of_edges(input, list(bins), weight)
    counts = [bins] * _rows_of(input)[1] if isinstance(bins, int) else bins
    edges = spec((sum(n + 1 for n in need(counts, "bins")),), input.dtype)
    return _with(histogram_of_counts(input, counts, None, weight), edges)


@formula(*spellings("_histogramdd_bin_edges", "ta"))
def histogram_edges(input: TensorSpec, bins: Any, range: Any = None, weight: Any = None, density: Any = False) -> Cost:
    # The least and the greatest of each column where no range is given, then the edges between.
    edges = spec((sum(n + 1 for n in need(bins, "bins")),), input.dtype)
    return vector((2 * input.numel if range is None else 0) + 2 * edges.numel, input if range is None else None, edges)


# ---------------------------------------------------------------------------------------------- backward


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
