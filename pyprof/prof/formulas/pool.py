"""Pooling and windows laid out as columns: ops that make each output element of a window of the input.

One operation for each element of each window, those in the padding included. Bytes: input and output once, and 8 an index where
indices are made.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, gradient, nbytes, need, pair, product, result, spec, vector, wants
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__ = ["adaptive_windows", "targets"]


# ---------------------------------------------------------------------------------------------- windows


def _pooled(input: TensorSpec, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: Any) -> tuple[int, ...]:
    sizes = input.shape[-rank:]
    kernels = pair(kernel, rank, "kernel_size")
    steps = kernels if stride is None or stride == [] or stride == () else pair(stride, rank, "stride")
    pads, gaps = pair(padding, rank, "padding"), pair(dilation, rank, "dilation")
    out = []
    for n, r, s, p, d in zip(sizes, kernels, steps, pads, gaps, strict=True):
        span = n + 2 * p - d * (r - 1) - 1
        count = (-(-span // s) if need(ceil, "ceil_mode") else span // s) + 1
        # With ceil_mode a window may not begin beyond the padded input.
        out.append(count - 1 if ceil and (count - 1) * s >= n + p else count)
    return (*input.shape[:-rank], *out)


def _pool(input: TensorSpec, rank: int, kernel: Any, shape: tuple[int, ...], out: Any, indices: bool) -> Cost:
    output = result(out, shape, input.dtype)
    if kernel is UNKNOWN:
        return Cost(0, None, nbytes(input, output, spec(output.shape, "int64") if indices else None))
    window = product(pair(kernel, rank, "kernel_size"))
    positions = spec(output.shape, "int64") if indices else None
    return vector(window * output.numel, input, output, positions)


def _result_shape(out: Any) -> tuple[int, ...]:
    return out.shape if isinstance(out, TensorSpec) else ()


def _register_pool(rank: int) -> None:
    max_names = (f"torch.nn.functional.max_pool{rank}d", f"torch.max_pool{rank}d", f"aten::max_pool{rank}d")
    with_indices = (f"torch.nn.functional.max_pool{rank}d_with_indices", f"aten::max_pool{rank}d_with_indices")

    def max_pool(
        input: TensorSpec, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: Any = False,
        return_indices: Any = False, out: Any = None,
    ) -> Cost:  # fmt: skip
        shape = _result_shape(out) or _pooled(input, rank, kernel_size, stride, padding, dilation, ceil_mode)
        return _pool(input, rank, kernel_size, shape, out, True)

    def max_back(
        input: TensorSpec, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: Any = False,
        return_indices: Any = False, out: Any = None,
    ) -> tuple[Piece, ...]:  # fmt: skip
        if not wants(input):
            return ()
        shape = _result_shape(out) or _pooled(input, rank, kernel_size, stride, padding, dilation, ceil_mode)
        small = spec(shape, input.dtype)
        return (Piece("input", vector(small.numel, small, spec(small.shape, "int64"), gradient(input))),)

    def avg_pool(
        input: TensorSpec, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: Any = False,
        count_include_pad: Any = True, divisor_override: Any = None, out: Any = None,
    ) -> Cost:  # fmt: skip
        shape = _result_shape(out) or _pooled(input, rank, kernel_size, stride, padding, 1, ceil_mode)
        return _pool(input, rank, kernel_size, shape, out, False)

    def avg_back(
        input: TensorSpec, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: Any = False,
        count_include_pad: Any = True, divisor_override: Any = None, out: Any = None,
    ) -> tuple[Piece, ...]:  # fmt: skip
        if not wants(input):
            return ()
        small = spec(_pooled(input, rank, kernel_size, stride, padding, 1, ceil_mode), input.dtype)
        window = product(pair(kernel_size, rank, "kernel_size"))
        return (Piece("input", vector(window * small.numel, small, gradient(input))),)

    for function in (max_pool, avg_pool):
        function.__qualname__ = f"{function.__name__}{rank}d"
    formula(*max_names, *with_indices)(max_pool)
    backward(*max_names, *with_indices)(max_back)
    avg_names = (f"torch.nn.functional.avg_pool{rank}d", f"torch.avg_pool{rank}d", f"aten::avg_pool{rank}d")
    formula(*avg_names)(avg_pool)
    backward(*avg_names)(avg_back)


for _rank in (1, 2, 3):
    _register_pool(_rank)


@formula("aten::max_pool2d_with_indices_backward", "aten::max_pool3d_with_indices_backward")
def max_pool_backward(grad_output: TensorSpec, input: TensorSpec, *options: Any) -> Cost:
    indices = spec(grad_output.shape, "int64")
    return vector(grad_output.numel, grad_output, indices, gradient(input))


# oneDNN's and the quantised ones keep no positions for the user; their backward finds the greatest again.
_WITHOUT_INDICES = {1: ("quantized",), 2: ("mkldnn", "quantized"), 3: ("mkldnn", "quantized")}


def _register_alone(rank: int, libraries: tuple[str, ...]) -> None:
    def max_pool_alone(
        input: TensorSpec, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: Any = False
    ) -> Cost:
        shape = _pooled(input, rank, kernel_size, stride, padding, dilation, ceil_mode)
        return _pool(input, rank, kernel_size, shape, None, False)

    formula(*(f"{place}{library}_max_pool{rank}d" for library in libraries for place in ("torch.", "aten::")))(max_pool_alone)


for _rank, _libraries in _WITHOUT_INDICES.items():
    _register_alone(_rank, _libraries)


@formula("aten::mkldnn_max_pool2d_backward")
def mkldnn_max_pool2d_backward(
    grad_output: TensorSpec, output: TensorSpec, input: TensorSpec, kernel_size: Any, *options: Any
) -> Cost:
    return _pool_again(grad_output, input, kernel_size, 2)


@formula("aten::mkldnn_max_pool3d_backward")
def mkldnn_max_pool3d_backward(
    grad_output: TensorSpec, output: TensorSpec, input: TensorSpec, kernel_size: Any, *options: Any
) -> Cost:
    return _pool_again(grad_output, input, kernel_size, 3)


@formula("aten::max_pool2d_backward")
def max_pool2d_backward(grad_output: TensorSpec, input: TensorSpec, kernel_size: Any, *options: Any) -> Cost:
    return _pool_again(grad_output, input, kernel_size, 2)


def _pool_again(grad: TensorSpec, input: TensorSpec, kernel: Any, rank: int) -> Cost:
    window = product(pair(kernel, rank, "kernel_size"))
    return vector((window + 1) * grad.numel, grad, input, gradient(input))


@formula("aten::avg_pool2d_backward", "aten::avg_pool3d_backward")
def avg_pool_backward(grad_output: TensorSpec, input: TensorSpec, kernel_size: Any, *options: Any) -> Cost:
    window = product(pair(kernel_size, 3 if len(input.shape) == 5 else 2, "kernel_size"))
    return vector(window * grad_output.numel, grad_output, gradient(input))


# ---------------------------------------------------------------------------------------------- to a given size


def targets(size: Any, input: TensorSpec, rank: int) -> tuple[int, ...]:
    """The shape of an output whose last `rank` sizes are given as one or several numbers, None for the input's own."""
    size = need(size, "output_size")
    items = [size] * rank if isinstance(size, int) else list(size)
    sizes = [
        n if want is None else int(want)
        for want, n in zip(items * (rank if len(items) == 1 else 1), input.shape[-rank:], strict=True)
    ]
    return (*input.shape[:-rank], *sizes)


def adaptive_windows(input: TensorSpec, output: TensorSpec, rank: int) -> int:
    """Elements of all windows of an adaptive pool: the i-th of m over n begins at ⌊i·n/m⌋ and ends before ⌈(i+1)·n/m⌉."""
    spans = [
        sum(-(-(i + 1) * n // m) - i * n // m for i in range(m))
        for n, m in zip(input.shape[-rank:], output.shape[-rank:], strict=True)
    ]
    return product(input.shape[:-rank]) * product(spans)


def _register_adaptive(rank: int) -> None:
    def adaptive(input: TensorSpec, output_size: Any, *options: Any, out: Any = None, **more: Any) -> Cost:
        # The windows cover the input, and overlap only where the sizes do not divide.
        if output_size is UNKNOWN and not isinstance(out, TensorSpec):
            return Cost(0, input.numel, None)
        output = out if isinstance(out, TensorSpec) else spec(targets(output_size, input, rank), input.dtype)
        return vector(adaptive_windows(input, output, rank), input, output)

    def adaptive_max(input: TensorSpec, output_size: Any, *options: Any, out: Any = None, **more: Any) -> Cost:
        output = out if isinstance(out, TensorSpec) else spec(targets(output_size, input, rank), input.dtype)
        return vector(adaptive_windows(input, output, rank), input, output, spec(output.shape, "int64"))

    def back(input: TensorSpec, output_size: Any, *options: Any, out: Any = None, **more: Any) -> tuple[Piece, ...]:
        if not wants(input):
            return ()
        small = spec(targets(output_size, input, rank), input.dtype)
        return (Piece("input", vector(adaptive_windows(input, small, rank), small, gradient(input))),)

    def max_back(input: TensorSpec, output_size: Any, *options: Any, out: Any = None, **more: Any) -> tuple[Piece, ...]:
        if not wants(input):
            return ()
        small = spec(targets(output_size, input, rank), input.dtype)
        return (Piece("input", vector(small.numel, small, spec(small.shape, "int64"), gradient(input))),)

    avg = tuple(f"{place}adaptive_avg_pool{rank}d" for place in ("torch.nn.functional.", "aten::"))
    avg += (
        (f"aten::_adaptive_avg_pool{rank}d", f"torch._adaptive_avg_pool{rank}d") if rank > 1 else ("torch.adaptive_avg_pool1d",)
    )
    largest = tuple(f"{place}adaptive_max_pool{rank}d" for place in ("torch.nn.functional.", "aten::"))
    largest += ("torch.adaptive_max_pool1d",) if rank == 1 else ()
    avg += ("aten::mkldnn_adaptive_avg_pool2d", "torch.mkldnn_adaptive_avg_pool2d") if rank == 2 else ()
    adaptive.__qualname__ = f"adaptive_avg_pool{rank}d"
    adaptive_max.__qualname__ = f"adaptive_max_pool{rank}d"
    formula(*avg)(adaptive)
    largest += (f"torch.nn.functional.adaptive_max_pool{rank}d_with_indices",)
    formula(*largest)(adaptive_max)
    backward(*avg)(back)
    backward(*largest)(max_back)


for _rank in (1, 2, 3):
    _register_adaptive(_rank)


@formula("aten::adaptive_max_pool2d_backward", "aten::adaptive_max_pool3d_backward")
def adaptive_max_backward(grad_output: TensorSpec, input: TensorSpec, indices: TensorSpec) -> Cost:
    return vector(grad_output.numel, grad_output, indices, gradient(input))


@formula("aten::_adaptive_avg_pool2d_backward", "aten::mkldnn_adaptive_avg_pool2d_backward")
def adaptive_avg_pool2d_backward(grad_output: TensorSpec, input: TensorSpec) -> Cost:
    return vector(adaptive_windows(input, grad_output, 2), grad_output, gradient(input))


@formula("aten::_adaptive_avg_pool3d_backward", "aten::adaptive_avg_pool3d_backward")
def adaptive_avg_pool3d_backward(grad_output: TensorSpec, input: TensorSpec, grad_input: Any = None) -> Cost:
    return vector(adaptive_windows(input, grad_output, 3), grad_output, gradient(input))


@formula("torch.nn.functional.fractional_max_pool2d", "aten::fractional_max_pool2d",
    "torch.nn.functional.fractional_max_pool3d",
         "aten::fractional_max_pool3d")  # fmt: skip
def fractional_max_pool(input: TensorSpec, kernel_size: Any, output_size: Any = None, *options: Any, **more: Any) -> Cost:
    rank = 3 if len(input.shape) > 4 else 2
    if output_size is None:
        raise Missing("output_size not recorded")
    output = spec(targets(output_size, input, rank), input.dtype)
    samples = [o for o in (*options, *more.values()) if isinstance(o, TensorSpec)]
    window = product(pair(kernel_size, rank, "kernel_size"))
    return vector(window * output.numel, input, samples, output, spec(output.shape, "int64"))


@formula("aten::fractional_max_pool2d_backward", "aten::fractional_max_pool3d_backward")
def fractional_max_pool_backward(
    grad_output: TensorSpec, input: TensorSpec, kernel_size: Any, output_size: Any, indices: TensorSpec
) -> Cost:
    return vector(grad_output.numel, grad_output, indices, gradient(input))


@formula("torch.nn.functional.max_unpool2d", "aten::max_unpool2d", "torch.nn.functional.max_unpool3d", "aten::max_unpool3d")
def max_unpool(input: TensorSpec, indices: TensorSpec, output_size: Any = None, *options: Any, **more: Any) -> Cost:
    rank = 3 if len(input.shape) > 4 else 2
    if not isinstance(output_size, (list, tuple)) or len(output_size) < rank:
        raise Missing("output_size not recorded")
    return vector(0, input, indices, spec((*input.shape[:-rank], *output_size[-rank:]), input.dtype))


# ---------------------------------------------------------------------------------------------- windows as columns


@formula("aten::im2col", "torch.nn.functional.im2col", "torch.nn.functional.unfold")
def im2col(input: TensorSpec, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Cost:
    kernels = pair(kernel_size, 2, "kernel_size")
    shape = _pooled(input, 2, kernels, pair(stride, 2, "stride"), padding, dilation, False)
    return vector(0, input, spec((*shape, *kernels), input.dtype))


@formula("aten::col2im", "torch.nn.functional.col2im", "torch.nn.functional.fold")
def col2im(input: TensorSpec, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Cost:
    window = product(pair(kernel_size, 2, "kernel_size"))
    sizes = pair(output_size, 2, "output_size")
    shape = (*input.shape[:-2], input.shape[-2] // window, *sizes)
    return vector(input.numel, input, spec(shape, input.dtype))


# ---------------------------------------------------------------------------------------------- backward


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
