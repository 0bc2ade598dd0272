"""Softmax and its relatives: softmax, log_softmax, softmin, gumbel_softmax's core, logsumexp, and their dispatcher backward.

5 operations an element: maximum, subtract, exp, sum, divide (log_softmax: maximum, subtract, exp, sum, subtract the log). Each
element is read once and written once; the backward reads the incoming gradient and the output.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import dims, dtype_of, gradient, promote, reduced, result, spec, vector, wants
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Piece, backward, formula

__all__: list[str] = []

SOFTMAX_OPERATIONS = 5
SOFTMAX_BACKWARD_OPERATIONS = 4  # grad·y, its sum, subtract, multiply
LOG_SOFTMAX_BACKWARD_OPERATIONS = 4  # sum of grad, exp, multiply, subtract

_SOFTMAX = (
    *spellings("softmax"), *spellings("softmax", "sA"), *spellings("log_softmax"), *spellings("log_softmax", "sA"),
    "torch._safe_softmax", "aten::_safe_softmax",
)  # fmt: skip
_FUNCTIONAL = ("torch.nn.functional.softmax", "torch.nn.functional.log_softmax", "torch.nn.functional.softmin")


def _forward(input: TensorSpec, dtype: Any, out: Any) -> Cost:
    written = dtype_of(dtype) or promote(input, to_float=True)
    return vector(SOFTMAX_OPERATIONS * input.numel, input, result(out, input.shape, written))


def _backward(input: TensorSpec, dtype: Any) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    grad = spec(input.shape, dtype_of(dtype) or input.dtype)
    return (Piece("input", vector(SOFTMAX_BACKWARD_OPERATIONS * input.numel, grad, grad, gradient(input))),)


@formula(*_SOFTMAX)
def softmax(input: TensorSpec, dim: Any = None, dtype: Any = None, out: Any = None) -> Cost:
    return _forward(input, dtype, out)


@backward(*_SOFTMAX)
def softmax_backward(input: TensorSpec, dim: Any = None, dtype: Any = None, out: Any = None) -> tuple[Piece, ...]:
    return _backward(input, dtype)


@formula(*_FUNCTIONAL)
def functional_softmax(input: TensorSpec, dim: Any = None, _stacklevel: Any = 3, dtype: Any = None) -> Cost:
    return _forward(input, dtype, None)


@backward(*_FUNCTIONAL)
def functional_softmax_backward(
    input: TensorSpec, dim: Any = None, _stacklevel: Any = 3, dtype: Any = None
) -> tuple[Piece, ...]:
    return _backward(input, dtype)


@formula("aten::_softmax", "torch._softmax", "aten::_log_softmax", "torch._log_softmax")
def aten_softmax(input: TensorSpec, dim: Any = -1, half_to_float: Any = False, out: Any = None) -> Cost:
    written = "float32" if half_to_float is True else input.dtype
    return vector(SOFTMAX_OPERATIONS * input.numel, input, result(out, input.shape, written))


@formula("aten::_softmax_backward_data", "aten::_log_softmax_backward_data")
def aten_softmax_backward(grad_output: TensorSpec, output: TensorSpec, dim: Any = -1, input_dtype: Any = None) -> Cost:
    # The last argument is a dtype today, the input itself in older releases.
    given = input_dtype.dtype if isinstance(input_dtype, TensorSpec) else dtype_of(input_dtype)
    written = spec(grad_output.shape, given or grad_output.dtype)
    return vector(SOFTMAX_BACKWARD_OPERATIONS * grad_output.numel, grad_output, output, written)


@formula("aten::_masked_softmax", "torch._masked_softmax")
def masked_softmax(input: TensorSpec, mask: TensorSpec, dim: Any = None, mask_type: Any = None) -> Cost:
    return vector(6 * input.numel, input, mask, gradient(input))


@formula("aten::_masked_softmax_backward")
def masked_softmax_backward(grad_output: TensorSpec, output: TensorSpec, mask: TensorSpec, dim: Any = None) -> Cost:
    return vector(5 * output.numel, grad_output, output, mask, gradient(output))


_LOGSUMEXP = (*spellings("logsumexp"), *spellings("logsumexp", "sA"))


@formula(*_LOGSUMEXP)
def logsumexp(input: TensorSpec, dim: Any, keepdim: Any = False, out: Any = None) -> Cost:
    # Maximum, subtract, exp, sum of each element; a log and an addition of each result.
    axes = dims(dim if dim is not UNKNOWN else None, len(input.shape))
    output = result(out, reduced(input.shape, axes, bool(keepdim)), promote(input, to_float=True))
    return vector(4 * input.numel + 2 * output.numel, input, output)


@backward(*_LOGSUMEXP)
def logsumexp_backward(input: TensorSpec, dim: Any, keepdim: Any = False, out: Any = None) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    axes = dims(dim, len(input.shape))
    small = spec(reduced(input.shape, axes, False), input.dtype)
    return (Piece("input", vector(3 * input.numel, small, small, input, gradient(input))),)
