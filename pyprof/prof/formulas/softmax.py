"""Softmax and its relatives: softmax, log_softmax, softmin, gumbel_softmax's core, logsumexp, and their dispatcher backward.

5 operations an element: maximum, subtract, exp, sum, divide (log_softmax: maximum, subtract, exp, sum, subtract the log). Each
element is read once and written once; the backward reads the incoming gradient and the output.
"""

from __future__ import annotations

from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import dims, dtype_of, grad, gradient, promote, reduced, result, spec, vector
from pyprof.prof.formulas.registry import Cost, Op, op

SOFTMAX_OPERATIONS = 5
SOFTMAX_BACKWARD_OPERATIONS = 4  # grad·y, its sum, subtract, multiply
LOG_SOFTMAX_BACKWARD_OPERATIONS = 4  # sum of grad, exp, multiply, subtract


@op("softmax", "log_softmax", places="tTasAF")
@op("torch._safe_softmax", "aten::_safe_softmax", "torch.nn.functional.softmin")
def softmax(input: TensorSpec, dtype: object = None, out: object = None) -> Op:
    written = dtype_of(dtype) or promote(input, to_float=True)
    yield vector(SOFTMAX_OPERATIONS * input.numel, input, result(out, input.shape, written))
    incoming = spec(input.shape, dtype_of(dtype) or input.dtype)
    yield from grad("input", input, SOFTMAX_BACKWARD_OPERATIONS * input.numel, incoming, incoming)


@op("_softmax", "_log_softmax", places="ta")
def aten_softmax(input: TensorSpec, half_to_float: object = False, out: object = None) -> Cost:
    written = "float32" if half_to_float is True else input.dtype
    return vector(SOFTMAX_OPERATIONS * input.numel, input, result(out, input.shape, written))


@op("aten::_softmax_backward_data", "aten::_log_softmax_backward_data")
def aten_softmax_backward(grad_output: TensorSpec, output: TensorSpec, input_dtype: object = None) -> Cost:
    # The last argument is a dtype today, the input itself in older releases.
    given = input_dtype.dtype if isinstance(input_dtype, TensorSpec) else dtype_of(input_dtype)
    written = spec(grad_output.shape, given or grad_output.dtype)
    return vector(SOFTMAX_BACKWARD_OPERATIONS * grad_output.numel, grad_output, output, written)


@op("_masked_softmax", places="ta")
def masked_softmax(input: TensorSpec, mask: TensorSpec) -> Cost:
    return vector(6 * input.numel, input, mask, gradient(input))


@op("aten::_masked_softmax_backward")
def masked_softmax_backward(grad_output: TensorSpec, output: TensorSpec, mask: TensorSpec) -> Cost:
    return vector(5 * output.numel, grad_output, output, mask, gradient(output))


@op("logsumexp", places="tTasA")
def logsumexp(input: TensorSpec, dim: object, keepdim: object = False, out: object = None) -> Op:
    # Maximum, subtract, exp, sum of each element; a log and an addition of each result.
    axes = dims(None if dim is UNKNOWN else dim, len(input.shape))
    output = result(out, reduced(input.shape, axes, bool(keepdim)), promote(input, to_float=True))
    yield vector(4 * input.numel + 2 * output.numel, input, output)
    small = spec(reduced(input.shape, dims(dim, len(input.shape)), False), input.dtype)
    yield from grad("input", input, 3 * input.numel, small, small, input)
