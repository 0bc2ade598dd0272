"""Activation functions, dropout and glu, with the dispatcher's own backward ops of them.

One line of the table an activation: operations of its definition an element, and of its backward, which reads one saved tensor.
"""

from __future__ import annotations

from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import broadcast, grad, gradient, need, promote, result, spec, vector
from pyprof.prof.formulas.pointwise import elementwise
from pyprof.prof.formulas.registry import Cost, Missing, Op, op, spellings

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


def _declare(name: str, places: str, weight: int, back: int, inplace: bool) -> None:
    @op(*spellings(name, places), *(spellings(f"{name}_", places) if inplace else ()), order="input ...")
    def activation(input: TensorSpec, out: object = None, **options: object) -> Op:
        yield elementwise(weight, input, dtype=promote(input, to_float=weight > 2), out=out)
        yield from grad("input", input, back * input.numel, gradient(input), gradient(input))


for _name, _row in _ACTIVATIONS.items():
    _declare(_name, *_row)


@op("gelu_", places="aF", backward=False)
@op("gelu", places="aF")
def gelu(input: TensorSpec, approximate: object = "none", out: object = None) -> Op:
    # x/2·(1 + erf(x/√2)): 5; with tanh(√(2/π)·(x + 0.044715·x³)) for erf: 9.
    yield elementwise(9 if approximate == "tanh" else 5, input, dtype=input.dtype, out=out)
    yield from grad("input", input, _gelu_slope(approximate) * input.numel, gradient(input), gradient(input))


def _gelu_slope(approximate: object) -> int:
    # Φ(x) + x·φ(x): 4 for Φ, 4 for φ, 2 to join, 1 for the gradient; the tanh form has the forward's inner terms and its slope.
    return 20 if approximate == "tanh" else 11


@op("glu", places="aF")
def glu(input: TensorSpec, out: object = None) -> Op:
    # a·sigmoid(b) over the two halves of the input: 5 an output element.
    made = spec((input.numel // 2,), input.dtype)
    yield vector(5 * made.numel, input, result(out, made.shape, input.dtype))
    yield from grad("input", input, 9 * made.numel, input, made)


# ---------------------------------------------------------------------------------------------- backward ops of the dispatcher

# op: operations an element; each takes the gradient and one saved tensor first, and returns a tensor like them.
_SLOPES = {
    "threshold_backward": 1, "hardtanh_backward": 2, "leaky_relu_backward": 2, "silu_backward": 9,
    "mish_backward": 10, "hardswish_backward": 4, "hardsigmoid_backward": 2, "softplus_backward": 4, "log_sigmoid_backward": 4,
    "hardshrink_backward": 2, "softshrink_backward": 2, "sigmoid_backward": 3, "tanh_backward": 3, "logit_backward": 3,
    "rrelu_with_noise_backward": 2,
}  # fmt: skip


def _declare_slope(name: str, weight: int) -> None:
    @op(f"aten::{name}")
    def slope(grad_output: TensorSpec, saved: TensorSpec, *options: object) -> Cost:
        shape = broadcast(grad_output.shape, saved.shape)
        kept = [o for o in options if isinstance(o, TensorSpec)]  # a noise, or what the forward left in a buffer
        return vector(weight * saved.numel, grad_output, saved, kept, spec(shape, promote(grad_output, saved)))


for _name, _weight in _SLOPES.items():
    _declare_slope(_name, _weight)


@op("aten::elu_backward")
def elu_backward(grad_output: TensorSpec, self_or_result: TensorSpec) -> Cost:
    return vector(3 * grad_output.numel, grad_output, self_or_result, gradient(grad_output))


@op("aten::gelu_backward", "aten::infinitely_differentiable_gelu_backward", grad="grad_output")
def gelu_backward(grad_output: TensorSpec, input: TensorSpec, approximate: object = "none") -> Cost:
    return vector(_gelu_slope(approximate) * input.numel, grad_output, input, gradient(input))


@op("aten::glu_backward")
def glu_backward(grad_output: TensorSpec, input: TensorSpec) -> Cost:
    return vector(9 * grad_output.numel, grad_output, input, gradient(input))


@op("glu_jvp", places="ta")
def glu_jvp(glu: TensorSpec, x: TensorSpec, dx: TensorSpec) -> Cost:
    # da·s + glu·(db - s·db), s = sigmoid(b) of 4: 9 an element of the result.
    return vector(9 * glu.numel, glu, x, dx, gradient(glu))


@op("glu_backward_jvp", places="ta")
def glu_backward_jvp(grad_glu: TensorSpec, x: TensorSpec, dgrad_glu: TensorSpec, dx: TensorSpec) -> Cost:
    # With s = sigmoid(b) and u = s·(1 - s), 6: the first half dg·s + g·u·db, 4; the second
    # (dg·a + g·da)·u + g·a·u·(1 - 2s)·db, 10.
    return vector(20 * grad_glu.numel, grad_glu, x, dgrad_glu, dx, gradient(x))


@op("prelu", places="tTFa")
def prelu(input: TensorSpec, weight: TensorSpec) -> Op:
    """One slope, or one a channel, which is the second dimension."""
    yield vector(2 * input.numel, input, weight, gradient(input))
    yield from grad("weight", weight, (2 + (weight.numel != input.numel)) * input.numel, gradient(input), input)
    yield from grad("input", input, 2 * input.numel, gradient(input), input, weight)


@op("_prelu_kernel", places="ta")
def prelu_kernel(input: TensorSpec, weight: TensorSpec) -> Cost:
    return elementwise(2, input, weight, dtype=input.dtype)


@op("aten::_prelu_kernel_backward")
def prelu_kernel_backward(grad_output: TensorSpec, input: TensorSpec, weight: TensorSpec) -> Cost:
    # The gradients of the input and, before it is summed, of the weight.
    return vector(4 * input.numel, grad_output, input, weight, gradient(input), gradient(input))


@op("rrelu_with_noise_functional", places="ta")
@op("aten::rrelu_with_noise", "aten::rrelu_with_noise_", "torch.nn.functional.rrelu_with_noise")
def rrelu_with_noise(input: TensorSpec, noise: TensorSpec, training: object = False) -> Cost:
    # While training the random slopes are written to `noise`; else there are none.
    return vector(3 * input.numel, input, noise if need(training, "training") else None, gradient(input))


# ---------------------------------------------------------------------------------------------- dropout

_DROPOUT_OPERATIONS = 5  # a random number (counted 2), compare, select, scale


@op("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "dropout_", "alpha_dropout_", "feature_dropout_",
    "feature_alpha_dropout_", places="ta", order="input p training inplace", train="training")  # fmt: skip
@op("dropout", "alpha_dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout", places="F",
    order="input p training inplace")  # fmt: skip
def dropout(input: TensorSpec, p: object = 0.5, training: object = True) -> Op:
    # Outside training, or with p = 0, the input is returned as it is.
    if training is False or (p == 0 and not isinstance(p, bool)):
        yield Cost(0, 0, 0)
        return
    if training is UNKNOWN:
        raise Missing("training not recorded")
    mask = spec(input.shape, "bool")
    yield vector(_DROPOUT_OPERATIONS * input.numel, input, gradient(input), mask)
    yield from grad("input", input, 2 * input.numel, gradient(input), mask)


@op("native_dropout", "_fused_dropout", places="ta")
def native_dropout(input: TensorSpec, train: object = True) -> Cost:
    # With train False (or None on some devices) it copies and writes a mask of ones all the same.
    operations = 0 if train is False else _DROPOUT_OPERATIONS
    return vector(operations * input.numel, input, gradient(input), spec(input.shape, "bool"))


@op("aten::native_dropout_backward", "aten::_masked_scale", "torch._masked_scale", input="grad_output")
def native_dropout_backward(grad_output: TensorSpec, mask: TensorSpec) -> Cost:
    return vector(2 * grad_output.numel, grad_output, mask, gradient(grad_output))
