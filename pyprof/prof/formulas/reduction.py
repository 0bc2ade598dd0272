"""Reductions: sums, means, extremes, variances and norms.

A reduction reads every element once and costs one operation each, times what its definition does to an element (mean adds one
division a result, a variance is 4, a norm 2).
"""

from __future__ import annotations

from pyprof.model.dtypes import lookup
from pyprof.model.opcall import UNKNOWN, DTypeArg, TensorSpec
from pyprof.prof.formulas.algebra import (
    broadcast,
    dims,
    dtype_of,
    grad,
    nbytes,
    need,
    product,
    promote,
    reduced,
    result,
    spec,
    vector,
)
from pyprof.prof.formulas.pointwise import elementwise
from pyprof.prof.formulas.registry import Cost, Op, op


def _axes(input: TensorSpec, dim: object) -> tuple[int, ...]:
    """Reduced dimensions: all where a dtype or bool is in the place of dim: aten::sum(self, dtype), var(x, unbiased)."""
    return dims(None if isinstance(dim, (DTypeArg, bool)) else dim, len(input.shape))


def _kept(input: TensorSpec, dim: object, keepdim: object = False, dtype: str | None = None) -> TensorSpec:
    """The tensor reduced over `dim`, in its own dtype or the given one."""
    return spec(reduced(input.shape, _axes(input, dim), keepdim is True), dtype or input.dtype)


def sum_dtype(input: TensorSpec, dtype: object) -> str | None:
    """The dtype of a sum: the one given, else int64 for integers."""
    if (given := dtype_of(dtype)) is not None:
        return given
    found = lookup(input.dtype)
    if found is None:
        return None
    return "int64" if found.kind in ("bool", "int", "uint") and found.name != "uint64" else found.name


def _reduced_dtype(rule: str, input: TensorSpec, dtype: object) -> str | None:
    """The dtype of a result: the one given, else by the rule `sum`, `float` or `same`; any other rule is the dtype itself."""
    if rule == "sum":
        return sum_dtype(input, dtype)
    if rule == "float":
        return dtype_of(dtype) or promote(input, to_float=True)
    return dtype_of(dtype) or input.dtype if rule == "same" else rule


def placed(input: TensorSpec, shape: tuple[int, ...]) -> Op:
    """The gradient of elements that were selected: zeros, with the gradient written at their positions."""
    yield from grad("input", input, 0, spec(shape, input.dtype), spec(shape, "int64"))


# ---------------------------------------------------------------------------------------------- of one result


def _reduction(
    *names: str, rule: str, weight: int = 1, final: int = 0, back: int | None = None, reads: bool = False, whole: bool = False,
    places: str = "tTa",
) -> None:  # fmt: skip
    """Declare reductions of `weight` operations an input element, and `final` ones a result.

    rule: dtype of the result; back: operations of the backward an element (None: no gradient); reads: whether the backward
    reads the input; whole: whether all is reduced where only a dimension that was not recorded follows the tensor: the
    overload (self, dtype) of the dispatcher has one argument behind it, the one with dimensions three.
    """

    @op(*names, places=places, order="", backward=back is not None)
    def reduction(
        input: TensorSpec, dim: object = None, keepdim: object = False, dtype: object = None, out: object = None
    ) -> Op:
        written = _reduced_dtype(rule, input, dim if isinstance(dim, DTypeArg) else dtype)
        over = None if whole and dim is UNKNOWN and keepdim is not UNKNOWN else dim
        if over is not UNKNOWN or len(input.shape) <= 1:
            output = result(out, reduced(input.shape, _axes(input, over), keepdim is True), written)
            yield vector(weight * input.numel + final * output.numel, input, output)
        elif isinstance(out, TensorSpec):
            yield vector(weight * input.numel + final * out.numel, input, out)
        else:
            yield Cost(0, None if final else weight * input.numel, None)
        if back or reads:  # else the gradient is expanded, which costs nothing
            yield from grad("input", input, (back or 0) * input.numel, _kept(input, dim), input if reads else None)


for _places, _whole in (("tT", False), ("a", True)):
    _reduction("sum", rule="sum", back=0, whole=_whole, places=_places)
    _reduction("mean", rule="float", final=1, back=1, whole=_whole, places=_places)
    _reduction("prod", rule="sum", back=2, reads=True, whole=_whole, places=_places)
_reduction("nansum", rule="sum", weight=2, back=1, reads=True)
_reduction("nanmean", rule="float", weight=2, final=1, back=2, reads=True)
_reduction("amax", "amin", rule="same", back=2, reads=True)
_reduction("all", "any", rule="bool")
_reduction("count_nonzero", rule="int64")


# ---------------------------------------------------------------------------------------------- with positions


def _with_positions(input: TensorSpec, dim: object, keepdim: object) -> Op:
    """One value and its position along a dimension; without a dimension one value, whose equals share the gradient."""
    if dim is None:
        yield vector(input.numel, input, spec((), input.dtype))
        yield from grad("input", input, 3 * input.numel, input)
    else:
        yield vector(input.numel, input, _kept(input, dim, keepdim), _kept(input, dim, keepdim, "int64"))
        yield from placed(input, _kept(input, need(dim, "dim")).shape)


@op("max", "min", order="input dim keepdim out")
def max_or_min(input: TensorSpec, dim: object = None, keepdim: object = False, out: object = None) -> Op:
    """max(x), max(x, other) and max(x, dim) with its positions."""
    if not isinstance(dim, TensorSpec):
        yield from _with_positions(input, dim if dim is None else dims(dim, len(input.shape)), keepdim)
        return
    yield elementwise(1, input, dim, dtype=promote(input, dim), out=out)
    made = spec(broadcast(input.shape, dim.shape), promote(input, dim))
    for name, x in (("other", dim), ("input", input)):
        yield from grad(name, x, 2 * made.numel, made, input, dim)


@op("median", "nanmedian", order="input dim keepdim ...")
def median(input: TensorSpec, dim: object = None, keepdim: object = False) -> Op:
    return _with_positions(input, dim, keepdim)


@op("mode", order="input dim keepdim ...")
@op("kthvalue", order="input k dim keepdim ...")
def mode(input: TensorSpec, dim: object = -1, keepdim: object = False) -> Op:
    return _with_positions(input, dim, keepdim)


@op("argmax", "argmin")
def argmax(input: TensorSpec, dim: object = None, keepdim: object = False, out: object = None) -> Cost:
    return vector(input.numel, input, result(out, _kept(input, dim, keepdim).shape if dim is not None else (), "int64"))


@op("aminmax", "aten::_aminmax", "torch._aminmax", order="input dim keepdim ...")
def aminmax(input: TensorSpec, dim: object = None, keepdim: object = False) -> Cost:
    output = _kept(input, dim, keepdim)
    return vector(2 * input.numel, input, output, output)


# ---------------------------------------------------------------------------------------------- variance and norms


@op("var", "std", order="input dim unbiased keepdim correction out")
def var(input: TensorSpec, dim: object = None, keepdim: object = False, out: object = None) -> Op:
    # Subtract the mean, square, sum.
    output = _kept(input, dim, keepdim)
    yield vector(4 * input.numel, input, result(out, output.shape, input.dtype))
    small = _kept(input, dim)
    yield from grad("input", input, 2 * input.numel, small, small, input)


@op("var_mean", "std_mean", places="ta", order="input dim unbiased keepdim correction")
def var_mean(input: TensorSpec, dim: object = None, keepdim: object = False) -> Op:
    output = _kept(input, dim, keepdim)
    yield vector(4 * input.numel, input, output, output)
    small = _kept(input, dim)
    # The variance's 2·(x - mean)·g, and the mean's g/n added to it.
    yield from grad("input", input, 3 * input.numel, small, small, small, input)


@op("norm", "torch.functional.norm", order="input p dim keepdim dtype out")
@op("norm", "vector_norm", places="lL", order="input ord dim keepdim dtype out")
@op("frobenius_norm", places="ta", backward=False)
def norm(input: TensorSpec, dim: object = None, keepdim: object = False, dtype: object = None, out: object = None) -> Op:
    # |x|^p and a sum; a root of each result.
    output = result(out, _kept(input, dim, keepdim).shape, _reduced_dtype("float", input, dtype))
    yield vector(2 * input.numel + output.numel, input, output)
    small = _kept(input, dim)
    yield from grad("input", input, 2 * input.numel, small, small, input)


@op("aten::linalg__powsum")
def powsum(input: TensorSpec, dim: object = None, keepdim: object = False, dtype: object = None) -> Cost:
    # |x|^p and its sum, without the root.
    return vector(2 * input.numel, input, _kept(input, dim, keepdim, _reduced_dtype("float", input, dtype)))


@op("dist")
def dist(input: TensorSpec, other: TensorSpec) -> Op:
    count, distance = product(broadcast(input.shape, other.shape)), spec((), input.dtype)
    yield vector(3 * count + 1, input, other, distance)
    # The difference again, times gradient over distance; the other's is its negative.
    yield from grad("input", input, 2 * count, input, other, distance)
    yield from grad("other", other, 2 * count, input, other, distance)


@op("equal", "allclose")
def equal(input: TensorSpec, other: TensorSpec) -> Cost:
    return vector(input.numel, input, other)


# ---------------------------------------------------------------------------------------------- to a size, and to one word


@op("Tensor.sum_to_size", "aten::sum_to_size")
@op("aten::_grad_sum_to_size", backward=False)
def sum_to_size(input: TensorSpec, *size: object, **options: object) -> Op:
    given = size[0] if size and (size[0] is None or isinstance(size[0], (list, tuple))) else size or options.get("size")
    if given is None or tuple(need(given, "size")) == input.shape:
        yield Cost(0, 0, 0)
    else:
        yield vector(input.numel, input, spec(need(given, "size"), input.dtype))


@op("hash_tensor", places="ta")
def hash_tensor(input: TensorSpec, dim: object = None, keepdim: object = False) -> Cost:
    # The exclusive or of all elements.
    return vector(input.numel, input, _kept(input, dim, keepdim, "uint64"))


@op("_is_all_true", "_is_any_true", places="ta")
def is_all_true(input: TensorSpec) -> Cost:
    return vector(input.numel, input, spec((), "bool"))


@op("aten::trace_backward")
def trace_backward(grad: TensorSpec, sizes: object) -> Cost:
    return vector(0, grad, spec(need(sizes, "sizes"), grad.dtype))


# ---------------------------------------------------------------------------------------------- covariance


@op("cov")
def cov(input: TensorSpec, fweights: object = None, aweights: object = None) -> Cost:
    # Of V variables seen N times: the mean and the differences 2 an element, weights 1 each, X·Xᵀ, and a division a result.
    rows = input.shape[0] if len(input.shape) > 1 else 1
    weights = [w for w in (fweights, aweights) if isinstance(w, TensorSpec)]
    written = spec((rows, rows), promote(input, to_float=True))
    operations = (2 + len(weights)) * input.numel + rows * rows
    return Cost(2 * rows * input.numel, operations, nbytes(input, weights, written))


@op("corrcoef")
def corrcoef(input: TensorSpec) -> Cost:
    # The covariance, a root of each variance, and two divisions and a clamp of 2 a result.
    one = cov(input)
    rows = input.shape[0] if len(input.shape) > 1 else 1
    return Cost(one.matmul_flops, (one.vector_flops or 0) + rows + 4 * rows * rows, one.bytes)
