"""Pooling and windows laid out as columns: ops that make each output element of a window of the input.

One operation for each element of each window, those in the padding included. Bytes: input and output once, and 8 an index where
indices are returned; the ones that autograd keeps are read by the backward only.
"""

from __future__ import annotations

from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, grad, gradient, nbytes, need, opt, pair, product, spec, vector
from pyprof.prof.formulas.registry import Cost, Missing, Op, op

# ---------------------------------------------------------------------------------------------- windows


def _pooled(
    input: TensorSpec, rank: int, kernel: object, stride: object, padding: object, dilation: object, ceil: object
) -> TensorSpec:
    """The input with its last `rank` dimensions pooled."""
    kernels = pair(kernel, rank, "kernel_size")
    steps = kernels if stride is None or stride == [] or stride == () else pair(stride, rank, "stride")
    pads, gaps = pair(padding, rank, "padding"), pair(dilation, rank, "dilation")
    out = []
    for n, r, s, p, d in zip(input.shape[-rank:], kernels, steps, pads, gaps, strict=True):
        span = n + 2 * p - d * (r - 1) - 1
        count = (-(-span // s) if need(ceil, "ceil_mode") else span // s) + 1
        # With ceil_mode a window may not begin beyond the padded input.
        out.append(count - 1 if ceil and (count - 1) * s >= n + p else count)
    return spec((*input.shape[:-rank], *out), input.dtype)


def _window(kernel: object, rank: int) -> int:
    return product(pair(kernel, rank, "kernel_size"))


def _pool(input: TensorSpec, rank: int, kernel: object, output: TensorSpec, positions: TensorSpec | None = None) -> Cost:
    if kernel is UNKNOWN:
        return Cost(0, None, nbytes(input, output, positions))
    return vector(_window(kernel, rank) * output.numel, input, output, positions)


def _positions(output: TensorSpec) -> TensorSpec:
    return spec(output.shape, "int64")


# oneDNN's and the quantised ones keep no positions for the user; their backward finds the greatest again.
_WITHOUT_POSITIONS = {1: ("quantized",), 2: ("mkldnn", "quantized"), 3: ("mkldnn", "quantized")}
_FINDS_AGAIN = {2: ("aten::mkldnn_max_pool2d_backward", "aten::max_pool2d_backward"), 3: ("aten::mkldnn_max_pool3d_backward",)}


def _declare_max_pool(rank: int, *names: str, keeps_positions: bool = True, returns_positions: bool = False) -> None:
    @op(*names, places="ta", backward=keeps_positions)
    def max_pool(
        input: TensorSpec, kernel_size: object, stride: object = None, padding: object = 0, dilation: object = 1,
        ceil_mode: object = False, return_indices: object = False, out: object = None,
    ) -> Op:  # fmt: skip
        output = opt(out) or _pooled(input, rank, kernel_size, stride, padding, dilation, ceil_mode)
        positions = _positions(output) if keeps_positions else None
        returned = returns_positions or return_indices is True
        yield _pool(input, rank, kernel_size, output, positions if returned else None)
        yield from grad("input", input, output.numel, output, positions)


def _declare_pools(rank: int) -> None:
    functional = f"torch.nn.functional.max_pool{rank}d"
    _declare_max_pool(rank, f"max_pool{rank}d", functional)
    _declare_max_pool(rank, f"aten::max_pool{rank}d_with_indices", f"{functional}_with_indices", returns_positions=True)
    _declare_max_pool(rank, *(f"{library}_max_pool{rank}d" for library in _WITHOUT_POSITIONS[rank]), keeps_positions=False)

    @op(*_FINDS_AGAIN.get(rank, ()))
    def max_pool_again(grad_output: TensorSpec, input: TensorSpec, kernel_size: object) -> Cost:
        return vector((_window(kernel_size, rank) + 1) * grad_output.numel, grad_output, input, gradient(input))

    @op(f"avg_pool{rank}d", places="Fta")
    def avg_pool(
        input: TensorSpec, kernel_size: object, stride: object = None, padding: object = 0, ceil_mode: object = False,
        out: object = None,
    ) -> Op:  # fmt: skip
        output = opt(out) or _pooled(input, rank, kernel_size, stride, padding, 1, ceil_mode)
        yield _pool(input, rank, kernel_size, output)
        yield from grad("input", input, _window(kernel_size, rank) * output.numel, output)


@op("aten::avg_pool2d_backward", "aten::avg_pool3d_backward")
def avg_pool_backward(grad_output: TensorSpec, input: TensorSpec, kernel_size: object) -> Cost:
    window = _window(kernel_size, 3 if len(input.shape) == 5 else 2)
    return vector(window * grad_output.numel, grad_output, gradient(input))


@op("aten::max_pool2d_with_indices_backward", "aten::max_pool3d_with_indices_backward", "aten::adaptive_max_pool2d_backward",
    "aten::adaptive_max_pool3d_backward", "aten::fractional_max_pool2d_backward",
    "aten::fractional_max_pool3d_backward")  # fmt: skip
def max_pool_backward(grad_output: TensorSpec, input: TensorSpec, indices: object = None) -> Cost:
    return vector(grad_output.numel, grad_output, opt(indices) or _positions(grad_output), gradient(input))


# ---------------------------------------------------------------------------------------------- to a given size


def targets(size: object, input: TensorSpec, rank: int) -> tuple[int, ...]:
    """The shape of an output whose last `rank` sizes are given as one or several numbers, None for the input's own."""
    wanted = need(size, "output_size")
    items = [wanted] * rank if isinstance(wanted, int) else list(wanted)
    items *= rank if len(items) == 1 else 1
    sizes = [n if want is None else int(want) for want, n in zip(items, input.shape[-rank:], strict=True)]
    return (*input.shape[:-rank], *sizes)


def adaptive_windows(input: TensorSpec, output: TensorSpec) -> int:
    """Elements of all windows of an adaptive pool: the i-th of m over n begins at ⌊i·n/m⌋ and ends before ⌈(i+1)·n/m⌉."""
    return product(
        n if n == m else sum(-(-(i + 1) * n // m) - i * n // m for i in range(m))
        for n, m in zip(input.shape, output.shape, strict=True)
    )


_ADAPTIVE = {
    1: ("torch.adaptive_avg_pool1d",),
    2: ("aten::_adaptive_avg_pool2d", "torch._adaptive_avg_pool2d", "aten::mkldnn_adaptive_avg_pool2d",
        "torch.mkldnn_adaptive_avg_pool2d"),
    3: ("aten::_adaptive_avg_pool3d", "torch._adaptive_avg_pool3d"),
}  # fmt: skip
_ADAPTIVE_ORDER = "input output_size ..."


def _declare_adaptive(rank: int) -> None:
    def resized(input: TensorSpec, size: object, out: object) -> TensorSpec:
        return opt(out) or spec(targets(size, input, rank), input.dtype)

    @op(f"adaptive_avg_pool{rank}d", *_ADAPTIVE[rank], places="Fa", order=_ADAPTIVE_ORDER)
    def adaptive_avg_pool(input: TensorSpec, output_size: object, out: object = None) -> Op:
        # The windows cover the input, and overlap only where the sizes do not divide.
        if output_size is UNKNOWN and not opt(out):
            yield Cost(0, input.numel, None)
        small = resized(input, output_size, out)
        yield vector(adaptive_windows(input, small), input, small)
        yield from grad("input", input, adaptive_windows(input, small), small)

    def largest(input: TensorSpec, output_size: object, out: object = None, **options: object) -> Op:
        small = resized(input, output_size, out)
        returned = _positions(small) if options.get("return_indices") is True else None
        yield vector(adaptive_windows(input, small), input, small, returned)
        yield from grad("input", input, small.numel, small, _positions(small))

    def largest_and_where(input: TensorSpec, output_size: object, out: object = None, **options: object) -> Op:
        yield from largest(input, output_size, out, return_indices=True)

    functional = f"torch.nn.functional.adaptive_max_pool{rank}d"
    op(functional, order=_ADAPTIVE_ORDER)(largest)
    more = ["torch.adaptive_max_pool1d"] if rank == 1 else []
    op(f"aten::adaptive_max_pool{rank}d", f"{functional}_with_indices", *more, order=_ADAPTIVE_ORDER)(largest_and_where)


for _rank in (1, 2, 3):
    _declare_pools(_rank)
    _declare_adaptive(_rank)


@op("aten::_adaptive_avg_pool2d_backward", "aten::mkldnn_adaptive_avg_pool2d_backward", "aten::_adaptive_avg_pool3d_backward",
    "aten::adaptive_avg_pool3d_backward")  # fmt: skip
def adaptive_avg_pool_backward(grad_output: TensorSpec, input: TensorSpec) -> Cost:
    return vector(adaptive_windows(input, grad_output), grad_output, gradient(input))


@op("fractional_max_pool2d", "fractional_max_pool3d", places="F", _random_samples="random_samples",
    order="input kernel_size output_size output_ratio return_indices _random_samples")  # fmt: skip
def fractional_max_pool(
    input: TensorSpec, kernel_size: object, output_size: object = None, random_samples: object = None,
    return_indices: object = False,
) -> Op:  # fmt: skip
    rank = 3 if len(input.shape) > 4 else 2
    if output_size is None:
        raise Missing("output_size not recorded")
    small = spec(targets(output_size, input, rank), input.dtype)
    operations = _window(kernel_size, rank) * small.numel
    yield vector(operations, input, opt(random_samples), small, _positions(small) if return_indices is True else None)
    yield from grad("input", input, small.numel, small, _positions(small))


@op("fractional_max_pool2d", "fractional_max_pool3d", places="a", order="input kernel_size output_size random_samples ...")
def fractional_max_pool_and_where(
    input: TensorSpec, kernel_size: object, output_size: object = None, random_samples: object = None
) -> Op:
    return fractional_max_pool(input, kernel_size, output_size, random_samples, True)


@op("max_unpool2d", "max_unpool3d", places="Fa")
def max_unpool(input: TensorSpec, indices: TensorSpec, output_size: object = None) -> Op:
    rank = 3 if len(input.shape) > 4 else 2
    if not isinstance(output_size, (list, tuple)) or len(output_size) < rank:
        yield Missing("output_size not recorded")  # which the backward does not need
    else:
        yield vector(0, input, indices, spec((*input.shape[:-rank], *output_size[-rank:]), input.dtype))
    # What was put somewhere is gathered from there.
    yield from grad("input", input, 0, gradient(input), indices)


# ---------------------------------------------------------------------------------------------- windows as columns


@op("im2col", "torch.nn.functional.unfold", places="aF")
def im2col(input: TensorSpec, kernel_size: object, dilation: object = 1, padding: object = 0, stride: object = 1) -> Op:
    kernels = pair(kernel_size, 2, "kernel_size")
    places = _pooled(input, 2, kernels, pair(stride, 2, "stride"), padding, dilation, False)
    columns = spec((*places.shape, *kernels), input.dtype)
    yield copy_cost(input, columns)
    # Each column's element is added back to where it came from.
    yield from grad("input", input, columns.numel, columns)


@op("col2im", "torch.nn.functional.fold", places="aF")
def col2im(input: TensorSpec, output_size: object, kernel_size: object) -> Op:
    shape = (*input.shape[:-2], input.shape[-2] // _window(kernel_size, 2), *pair(output_size, 2, "output_size"))
    image = spec(shape, input.dtype)
    yield vector(input.numel, input, image)
    yield from grad("input", input, 0, image)
