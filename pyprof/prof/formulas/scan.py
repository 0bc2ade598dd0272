"""Scans, differences, sorting and searching: ops whose results depend on the order along one dimension.

Scans cost one operation an element, 5 where exponentials are added. Sorting is log2(n) comparisons an element of rows of n, a
search log2(n) a value.
"""

from __future__ import annotations

from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import dims, grad, gradient, need, opt, product, promote, result, spec, vector, wants
from pyprof.prof.formulas.reduction import placed, sum_dtype
from pyprof.prof.formulas.registry import Cost, Missing, Op, Piece, op


@op("cumsum_", places="Ta", backward=False)
@op("cumsum")
def cumsum(input: TensorSpec, dtype: object = None, out: object = None) -> Op:
    yield vector(input.numel, input, result(out, input.shape, sum_dtype(input, dtype)))
    # A scan from the other end: flip, cumsum, flip.
    yield from grad("input", input, input.numel, gradient(input))


@op("cumprod_", places="Ta", backward=False)
@op("cumprod")
def cumprod(input: TensorSpec, dtype: object = None, out: object = None) -> Op:
    yield vector(input.numel, input, result(out, input.shape, sum_dtype(input, dtype)))
    if wants(input):
        yield Piece("input", cumprod_backward(gradient(input), gradient(input), gradient(input)))


@op("aten::cumprod_backward")
def cumprod_backward(grad: TensorSpec, input: TensorSpec, output: TensorSpec) -> Cost:
    # Where nothing is 0: (gradient · output), summed from the other end, divided by the input.
    return vector(3 * input.numel, grad, input, output, gradient(input))


@op("cummax", "cummin", order="input dim ...")
def cummax(input: TensorSpec) -> Op:
    positions = spec(input.shape, "int64")
    yield vector(input.numel, input, gradient(input), positions)
    if wants(input):
        yield Piece("input", cummaxmin_backward(gradient(input), input, positions))


@op("aten::cummaxmin_backward")
def cummaxmin_backward(grad: TensorSpec, input: TensorSpec, indices: TensorSpec) -> Cost:
    # Each gradient is added where its value came from, into zeros.
    return vector(grad.numel, grad, indices, gradient(input))


@op("_cummax_helper", "_cummin_helper", places="ta")
def cummax_into(input: TensorSpec, values: TensorSpec, indices: TensorSpec) -> Cost:
    return vector(input.numel, input, values, indices)


@op("logcumsumexp")
@op("_logcumsumexp", places="ta", backward=False)
def logcumsumexp(input: TensorSpec, out: object = None) -> Op:
    # The logarithm of a sum of two exponentials each: as logaddexp, 5.
    yield vector(5 * input.numel, input, result(out, input.shape, promote(input, to_float=True)))
    # Of the positive and the negative part of the gradient: its logarithm less the result, a scan from the other end, plus the
    # input, and exp; their difference.
    yield from grad("input", input, 11 * input.numel, gradient(input), input, gradient(input))


@op("diff")
def diff(
    input: TensorSpec, n: object = 1, dim: object = -1, prepend: object = None, append: object = None, out: object = None
) -> Op:
    joined = [p for p in (prepend, append) if isinstance(p, TensorSpec)]
    axis = dims(dim, len(input.shape))[0]
    shape, times = list(input.shape), need(n, "n")
    shape[axis] = max(shape[axis] + sum(p.shape[axis] if p.shape else 1 for p in joined) - times, 0)
    output = result(out, shape, input.dtype)
    yield vector(times * output.numel, input, joined, output)
    # Each element is in two differences: a subtraction an element, as often as differences were taken.
    yield from grad("input", input, times * input.numel, gradient(input))


def _trapezoids(y: TensorSpec, x: object, dx: object, dim: object, cumulative: bool) -> Op:
    """The trapezoids between neighbours: y + y, times the width, halved and summed: 3 an interval, 1 more for x - x."""
    if isinstance(x, TensorSpec) and isinstance(dx, int) and not isinstance(dx, bool):
        dim = dx  # the overload (y, x, dim) has its dimension where (y, *, dx, dim) has its width
    rank = len(y.shape)
    axis = need(dim, "dim") % max(rank, 1) if isinstance(dim, int) else rank - 1
    intervals = [max(n - (d == axis), 0) for d, n in enumerate(y.shape)]
    kept = intervals if cumulative else [n for d, n in enumerate(y.shape) if d != axis]
    operations = (4 if isinstance(x, TensorSpec) else 3) * product(intervals)
    yield vector(operations, y, x, spec(kept, promote(y, x, to_float=True)))
    # Half of the widths on both sides, times the gradient.
    yield from grad("y", y, 3 * y.numel, gradient(y), opt(x))


@op("trapz", "trapezoid", places="ta", order="y x dx dim")
def trapezoid(y: TensorSpec, x: object = None, dx: object = None, dim: object = -1) -> Op:
    return _trapezoids(y, x, dx, dim, False)


@op("cumulative_trapezoid", places="ta", order="y x dx dim")
def cumulative_trapezoid(y: TensorSpec, x: object = None, dx: object = None, dim: object = -1) -> Op:
    return _trapezoids(y, x, dx, dim, True)


@op("vander", places="talL")
def vander(x: TensorSpec, N: object = None) -> Cost:
    # Powers of each element, each a product of the one before.
    count = need(N, "N") if N is not None else (x.shape[-1] if x.shape else 1)
    return vector(x.numel * max(count - 2, 0), x, spec((x.numel, count), promote(x)))


# ---------------------------------------------------------------------------------------------- sorting and searching


def _length(input: TensorSpec, dim: object) -> int:
    return input.shape[need(dim, "dim") % len(input.shape)] if input.shape and dim is not None else input.numel


def _comparisons(length: int) -> int:
    """ceil(log2(length)): comparisons an element of a merge sort."""
    return max(length - 1, 0).bit_length()


@op("sort", order="input dim descending stable ...")
def sort(input: TensorSpec, dim: object = -1, descending: object = False) -> Op:
    # aten::sort.stable has `stable` in the place of dim, and sorts along the next argument.
    if isinstance(dim, bool) or dim is None:
        dim = descending
    length = _length(input, -1 if dim is UNKNOWN or isinstance(dim, bool) else dim)
    yield vector(_comparisons(length) * input.numel, input, gradient(input), spec(input.shape, "int64"))
    yield from placed(input, input.shape)


@op("argsort", order="input dim descending stable ...")
def argsort(input: TensorSpec, dim: object = -1) -> Cost:
    length = _length(input, -1 if isinstance(dim, bool) else dim)
    return vector(_comparisons(length) * input.numel, input, spec(input.shape, "int64"))


@op("msort")
def msort(input: TensorSpec, out: object = None) -> Cost:
    length = input.shape[0] if input.shape else 1
    return vector(_comparisons(length) * input.numel, input, result(out, input.shape, input.dtype))


@op("topk", order="input k dim largest sorted ...")
def topk(input: TensorSpec, k: object, dim: object = -1) -> Op:
    shape = list(input.shape)
    if shape:
        shape[dims(dim if dim is not None else -1, len(shape))[0]] = need(k, "k")
    yield vector(input.numel, input, spec(shape, input.dtype), spec(shape, "int64"))
    yield from placed(input, tuple(shape))


@op("searchsorted", places="ta")
@op("bucketize", places="ta", boundaries="sorted_sequence")
def searchsorted(sorted_sequence: TensorSpec, input: object, out_int32: object = False) -> Cost:
    length = sorted_sequence.shape[-1] if sorted_sequence.shape else 1
    queries = input if isinstance(input, TensorSpec) else spec((), sorted_sequence.dtype)
    written = "int32" if out_int32 is True else "int64"
    return vector(_comparisons(length + 1) * queries.numel, sorted_sequence, queries, spec(queries.shape, written))


@op("isin", places="ta")
def isin(elements: object, test_elements: object) -> Cost:
    # Each element is compared with each, or both are sorted: the smaller count.
    if not isinstance(elements, TensorSpec):
        raise Missing("elements not recorded")
    count = test_elements.numel if isinstance(test_elements, TensorSpec) else 1
    return vector(elements.numel * min(count, _comparisons(count) + 1), elements, test_elements, spec(elements.shape, "bool"))


@op("quantile", "nanquantile")
def quantile(input: TensorSpec, q: object, dim: object = None) -> Cost:
    length = input.numel if dim is None else _length(input, dim)
    count = q.numel if isinstance(q, TensorSpec) else 1
    rows = input.numel // max(length, 1)
    return vector(_comparisons(length) * input.numel + 3 * count * rows, input, q, spec((count * rows,), input.dtype))


# ---------------------------------------------------------------------------------------------- histograms


@op("bincount")
def bincount(input: TensorSpec) -> Cost:
    """The length of the result is the greatest value, which is data: bytes are not known."""
    return Cost(0, 2 * input.numel, None)


@op("histc")
def histc(input: TensorSpec, bins: object = 100) -> Cost:
    # The bin is a subtraction, a product and a division; its count is added to.
    return vector(4 * input.numel, input, spec((need(bins, "bins"),), input.dtype))


@op("histogram")
def histogram(input: TensorSpec, bins: object, range: object = None, weight: object = None) -> Cost:
    # The edges are returned too; given as a tensor they are searched, and copied, and the weight comes next.
    each = _comparisons(bins.numel) if isinstance(bins, TensorSpec) else 3
    edges = bins.numel if isinstance(bins, TensorSpec) else need(bins, "bins") + 1
    written = (spec((edges,), input.dtype), spec((max(edges - 1, 0),), input.dtype))
    return vector((each + 1) * input.numel, input, bins, opt(weight) or opt(range), written)


def _rows_of(input: TensorSpec) -> tuple[int, int]:
    """Samples, and values of each."""
    columns = input.shape[-1] if input.shape else 1
    return input.numel // max(columns, 1), columns


def _histogram(input: TensorSpec, counts: list[int], operations: int, weight: object, *edges: object) -> Cost:
    """A histogram of several columns, whose edges are read or written too; the count or weight of each sample is added."""
    rows, _ = _rows_of(input)
    return vector(operations + rows, input, opt(weight), spec((product(counts),), input.dtype), *edges)


@op("_histogramdd_from_bin_cts", places="ta")
def histogram_of_counts(input: TensorSpec, bins: object, weight: object = None) -> Cost:
    # The bin is a subtraction, a product and a division.
    return _histogram(input, list(need(bins, "bins")), 3 * input.numel, weight)


@op("_histogramdd_from_bin_tensors", places="ta")
def histogram_of_edges(input: TensorSpec, bins: list[TensorSpec], weight: object = None) -> Cost:
    rows, _ = _rows_of(input)
    return _histogram(input, [b.numel - 1 for b in bins], sum(rows * _comparisons(b.numel) for b in bins), weight, bins)


def _edges(input: TensorSpec, counts: object) -> TensorSpec:
    return spec((sum(n + 1 for n in need(counts, "bins")),), input.dtype)


@op("histogramdd", places="ta")
def histogramdd(input: TensorSpec, bins: object, range: object = None, weight: object = None) -> Cost:
    weight = opt(weight) or opt(range)
    if isinstance(bins, (list, tuple)) and bins and isinstance(bins[0], TensorSpec):
        return histogram_of_edges(input, list(bins), weight)
    counts = [bins] * _rows_of(input)[1] if isinstance(bins, int) else need(bins, "bins")
    return _histogram(input, list(counts), 3 * input.numel, weight, _edges(input, counts))


@op("_histogramdd_bin_edges", places="ta")
def histogram_edges(input: TensorSpec, bins: object, range: object = None) -> Cost:
    # The least and the greatest of each column where no range is given, then the edges between.
    edges = _edges(input, bins)
    return vector((2 * input.numel if range is None else 0) + 2 * edges.numel, input if range is None else None, edges)
