"""Activation functions, dropout and glu, with the dispatcher's own backward ops of them.

One line of the table an activation: operations of its definition an element, and of its backward, which reads one saved tensor.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import broadcast, dims, gradient, nbytes, need, promote, result, spec, vector, wants
from pyprof.prof.formulas.pointwise import elementwise, spellings, unary_backward
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__: list[str] = []

# op: (places, operations forward, operations backward, has an in-place form with a trailing underscore)
_ACTIVATIONS: dict[str, tuple[str, int, int, bool]] = {
    "relu": ("tTaF", 1, 1, True),
    "relu6": ("aF", 2, 2, True),
    "hardtanh": ("aF", 2, 2, True),
    "threshold": ("taF", 1, 1, True),
    "leaky_relu": ("aF", 2, 2, True),  # compare, multiply
    "rrelu": ("taF", 3, 2, True),  # and a random slope
    "elu": ("aF", 3, 3, True),  # exp, subtract, multiply on the negative side
    "celu": ("taF", 4, 3, True),
    "selu": ("taF", 4, 3, True),
    "silu": ("aF", 5, 9, True),  # x·sigmoid(x); its slope s·(1 + x·(1 - s))
    "mish": ("aF", 5, 10, True),  # x·tanh(log(1 + exp x))
    "hardswish": ("aF", 5, 4, True),  # x·clamp(x + 3, 0, 6)/6
    "hardsigmoid": ("aF", 4, 2, True),
    "softplus": ("aF", 3, 4, False),  # log(1 + exp x)
    "logsigmoid": ("F", 5, 4, False),
    "log_sigmoid": ("aF", 5, 4, False),
    "log_sigmoid_forward": ("a", 5, 4, False),
    "hardshrink": ("tTaF", 2, 2, False),
    "softshrink": ("aF", 2, 2, False),
    "tanhshrink": ("F", 2, 3, False),
    "softsign": ("F", 3, 4, False),
}


def _register(op: str, places: str, weight: int, back: int, inplace: bool) -> None:
    def forward(input: TensorSpec, *options: Any, out: Any = None, **more: Any) -> Cost:
        return elementwise(weight, input, dtype=promote(input, to_float=weight > 2), out=out)

    def back_(input: TensorSpec, *options: Any, out: Any = None, **more: Any) -> tuple[Piece, ...]:
        return unary_backward(input, back, 1)

    forward.__name__ = forward.__qualname__ = op
    full = (*spellings(op, places), *(spellings(f"{op}_", places) if inplace else ()))
    formula(*full)(forward)
    backward(*full)(back_)


for _op, _row in _ACTIVATIONS.items():
    _register(_op, *_row)


@formula("aten::gelu", "aten::gelu_", "torch.nn.functional.gelu", "torch.nn.functional.gelu_")
def gelu(input: TensorSpec, approximate: Any = "none", out: Any = None) -> Cost:
    # x/2·(1 + erf(x/√2)): 5; with tanh(√(2/π)·(x + 0.044715·x³)) for erf: 9.
    return elementwise(9 if approximate == "tanh" else 5, input, dtype=input.dtype, out=out)


@backward("aten::gelu", "torch.nn.functional.gelu")
def gelu_backward(input: TensorSpec, approximate: Any = "none", out: Any = None) -> tuple[Piece, ...]:
    return unary_backward(input, _gelu_slope(approximate), 1)


def _gelu_slope(approximate: Any) -> int:
    # Φ(x) + x·φ(x): 4 for Φ, 4 for φ, 2 to join, 1 for the gradient; the tanh form has the forward's inner terms and its slope.
    return 20 if approximate == "tanh" else 11


@formula("aten::glu", "torch.nn.functional.glu")
def glu(input: TensorSpec, dim: Any = -1, out: Any = None) -> Cost:
    # a·sigmoid(b) over the two halves of the input: 5 an output element.
    return _halved(input, dim, out)


def _halved(input: TensorSpec, dim: Any, out: Any) -> Cost:
    half = list(input.shape)
    axis = dims(dim, len(half))[0]
    half[axis] //= 2
    output = result(out, half, input.dtype)
    return vector(5 * output.numel, input, output)


@backward("aten::glu", "torch.nn.functional.glu")
def glu_backward(input: TensorSpec, dim: Any = -1, out: Any = None) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    half = input.numel // 2
    return (Piece("input", vector(9 * half, input, spec((half,), input.dtype), gradient(input))),)


# ---------------------------------------------------------------------------------------------- backward ops of the dispatcher

# op: operations an element; each takes the gradient and one saved tensor first, and returns a tensor like them.
_SLOPES = {
    "threshold_backward": 1, "hardtanh_backward": 2, "leaky_relu_backward": 2, "silu_backward": 9,
    "mish_backward": 10, "hardswish_backward": 4, "hardsigmoid_backward": 2, "softplus_backward": 4, "log_sigmoid_backward": 4,
    "hardshrink_backward": 2, "softshrink_backward": 2, "sigmoid_backward": 3, "tanh_backward": 3, "logit_backward": 3,
    "rrelu_with_noise_backward": 2,
}  # fmt: skip


def _register_slope(op: str, weight: int) -> None:
    def slope(grad_output: TensorSpec, saved: TensorSpec, *options: Any, **more: Any) -> Cost:
        shape = broadcast(grad_output.shape, saved.shape)
        kept = [o for o in options if isinstance(o, TensorSpec)]  # a noise, or what the forward left in a buffer
        return vector(weight * saved.numel, grad_output, saved, kept, spec(shape, promote(grad_output, saved)))

    slope.__name__ = slope.__qualname__ = op
    formula(f"aten::{op}")(slope)


for _name, _weight in _SLOPES.items():
    _register_slope(_name, _weight)


@formula("aten::elu_backward")
def elu_backward(
    grad_output: TensorSpec, alpha: Any, scale: Any, input_scale: Any, is_result: Any, self_or_result: TensorSpec
) -> Cost:
    return vector(3 * grad_output.numel, grad_output, self_or_result, gradient(grad_output))


@formula("aten::gelu_backward")
def aten_gelu_backward(grad_output: TensorSpec, input: TensorSpec, approximate: Any = "none") -> Cost:
    return vector(_gelu_slope(approximate) * input.numel, grad_output, input, spec(input.shape, input.dtype))


@formula("aten::glu_backward")
def aten_glu_backward(grad_output: TensorSpec, input: TensorSpec, dim: Any = -1) -> Cost:
    return vector(9 * grad_output.numel, grad_output, input, gradient(input))


@formula("aten::infinitely_differentiable_gelu_backward")
def plain_gelu_backward(grad: TensorSpec, input: TensorSpec) -> Cost:
    return aten_gelu_backward(grad, input)


@formula(*spellings("glu_jvp", "ta"))
def glu_jvp(glu: TensorSpec, x: TensorSpec, dx: TensorSpec, dim: Any = -1) -> Cost:
    # da·s + glu·(db - s·db), s = sigmoid(b) of 4: 9 an element of the result.
    return vector(9 * glu.numel, glu, x, dx, gradient(glu))


@formula(*spellings("glu_backward_jvp", "ta"))
def glu_backward_jvp(
    grad_x: TensorSpec, grad_glu: TensorSpec, x: TensorSpec, dgrad_glu: TensorSpec, dx: TensorSpec, dim: Any = -1
) -> Cost:
    # With s = sigmoid(b) and u = s·(1 - s), 6: the first half dg·s + g·u·db, 4; the second
    # (dg·a + g·da)·u + g·a·u·(1 - 2s)·db, 10.
    return vector(20 * grad_glu.numel, grad_glu, x, dgrad_glu, dx, gradient(x))


@formula("aten::_prelu_kernel", "torch._prelu_kernel")
def prelu_kernel(input: TensorSpec, weight: TensorSpec) -> Cost:
    return elementwise(2, input, weight, dtype=input.dtype)


@formula("aten::_prelu_kernel_backward")
def prelu_kernel_backward(grad_output: TensorSpec, input: TensorSpec, weight: TensorSpec) -> Cost:
    # The gradients of the input and, before it is summed, of the weight.
    return vector(4 * input.numel, grad_output, input, weight, gradient(input), gradient(input))


@formula("aten::rrelu_with_noise_functional", "torch.rrelu_with_noise_functional")
def rrelu_functional(
    input: TensorSpec, noise: TensorSpec, lower: Any = 0.125, upper: Any = 1 / 3, training: Any = False, *options: Any
) -> Cost:
    return rrelu_with_noise(input, noise, lower, upper, training)


@formula("aten::rrelu_with_noise", "aten::rrelu_with_noise_", "torch.nn.functional.rrelu_with_noise")
def rrelu_with_noise(
    input: TensorSpec, noise: TensorSpec, lower: Any = 0.125, upper: Any = 1 / 3, training: Any = False, *options: Any
) -> Cost:
    # While training the random slopes are written to `noise`; else there are none.
    return vector(3 * input.numel, input, noise if need(training, "training") else None, gradient(input))


# ---------------------------------------------------------------------------------------------- dropout

_DROPOUT_OPERATIONS = 5  # a random number (counted 2), compare, select, scale

_DROPOUT = (
    "torch.dropout", "torch.dropout_", "aten::dropout", "aten::dropout_", "torch.nn.functional.dropout",
    "torch.alpha_dropout", "torch.alpha_dropout_", "aten::alpha_dropout", "torch.nn.functional.alpha_dropout",
    "torch.feature_dropout", "aten::feature_dropout", "torch.nn.functional.dropout1d", "torch.nn.functional.dropout2d",
    "torch.nn.functional.dropout3d", "torch.feature_dropout_", "torch.feature_alpha_dropout", "aten::feature_alpha_dropout",
    "torch.nn.functional.feature_alpha_dropout", "aten::alpha_dropout_", "aten::feature_dropout_",
    "aten::feature_alpha_dropout_", "torch.feature_alpha_dropout_",
)  # fmt: skip


def _drops(p: Any, training: Any) -> bool:
    """Whether anything runs: outside training, or with p = 0, the input is returned as it is."""
    if training is False or (p == 0 and p is not UNKNOWN and not isinstance(p, bool)):
        return False
    if training is UNKNOWN:
        raise Missing("training not recorded")
    return True


@formula(*_DROPOUT)
def dropout(input: TensorSpec, p: Any = 0.5, training: Any = True, inplace: Any = False) -> Cost:
    if not _drops(p, training):
        return Cost(0, 0, 0)
    mask = spec(input.shape, "bool")
    return vector(_DROPOUT_OPERATIONS * input.numel, input, gradient(input), mask)


@backward(*_DROPOUT)
def dropout_backward(input: TensorSpec, p: Any = 0.5, training: Any = True, inplace: Any = False) -> tuple[Piece, ...]:
    if not wants(input) or not _drops(p, training):
        return ()
    grad = gradient(input)
    return (Piece("input", vector(2 * input.numel, grad, spec(input.shape, "bool"), grad)),)


@formula("aten::native_dropout", "torch.native_dropout", "aten::_fused_dropout", "torch._fused_dropout")
def native_dropout(input: TensorSpec, p: Any, train: Any = True, generator: Any = None) -> Cost:
    # With train False (or None on some devices) it copies and writes a mask of ones all the same.
    operations = 0 if train is False else _DROPOUT_OPERATIONS
    return vector(operations * input.numel, input, gradient(input), spec(input.shape, "bool"))


@formula("aten::native_dropout_backward", "aten::_masked_scale", "torch._masked_scale")
def native_dropout_backward(grad_output: TensorSpec, mask: TensorSpec, scale: Any = 1.0) -> Cost:
    return Cost(0, 2 * grad_output.numel, nbytes(grad_output, mask, gradient(grad_output)))
