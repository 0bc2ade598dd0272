"""Quantisation: tensors to and from integers of few bits, the rounding that training imitates, and what observes its range.

round(x / scale) + zero_point, held within the range, is 5 operations an element (divide, round, add, clamp 2); back again 2
(subtract, multiply). Imitating it does both and, where its gradient is wanted, marks what the range cut off: 2 comparisons, and
a mask of a byte an element. Bytes: the input, the scales, the result in its own dtype.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, dtype_from, gradient, need, opt, spec, vector, wants
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__: list[str] = []

_TO, _FROM, _MASK, _RANGE = 5, 2, 2, 2  # operations an element; the range: least and greatest


# ---------------------------------------------------------------------------------------------- real conversions


def _quantized(input: TensorSpec, dtype: Any, operations: int, *scales: Any) -> Cost:
    return vector(operations * input.numel, input, [opt(s) for s in scales], spec(input.shape, dtype_from(dtype)))


@formula(*spellings("quantize_per_tensor", "ta"))
def quantize_per_tensor(input: Any, scale: Any, zero_point: Any, dtype: Any) -> Cost:
    if isinstance(input, (list, tuple)):  # a list of tensors, with as many scales
        raise Missing("lists of tensors were not kept apart")
    return _quantized(input, dtype, _TO, scale, zero_point)


@formula(*spellings("quantize_per_tensor_dynamic", "ta"))
def quantize_per_tensor_dynamic(input: TensorSpec, dtype: Any, reduce_range: Any = False) -> Cost:
    return _quantized(input, dtype, _RANGE + _TO)


@formula(*spellings("quantize_per_channel", "ta"))
def quantize_per_channel(input: TensorSpec, scales: TensorSpec, zero_points: TensorSpec, axis: Any, dtype: Any) -> Cost:
    return _quantized(input, dtype, _TO, scales, zero_points)


@formula(*spellings("dequantize"))
def dequantize(input: Any, *more: Any) -> Cost:
    # One tensor, or a list of them.
    given = need(input, "input")
    found = [given] if isinstance(given, TensorSpec) else [t for t in given if isinstance(t, TensorSpec)]
    written = [spec(t.shape, "float32") for t in found]
    return vector(_FROM * sum(t.numel for t in found), found, written)


@formula(*spellings("int_repr"), kind="copy")
def int_repr(input: TensorSpec) -> Cost:
    return copy_cost(input, spec(input.shape, {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}.get(str(input.dtype))))


@formula("torch._make_per_tensor_quantized_tensor", "aten::_make_per_tensor_quantized_tensor",
         "torch._make_per_channel_quantized_tensor", "aten::_make_per_channel_quantized_tensor", kind="copy")  # fmt: skip
def as_quantized(input: TensorSpec, scale: Any, zero_point: Any, *axis: Any) -> Cost:
    # The integers are copied as they are into a tensor with a scale.
    return copy_cost(input, gradient(input), opt(scale), opt(zero_point))


@formula(*spellings("choose_qparams_optimized", "ta"))
def choose_qparams_optimized(input: TensorSpec, numel: Any, n_bins: Any, ratio: Any, bit_width: Any) -> Cost:
    raise Missing("how many ranges its search tries is data, not recorded")


@formula(*spellings("_choose_qparams_per_tensor", "ta"))
def choose_qparams(input: TensorSpec, reduce_range: Any = False) -> Cost:
    return vector(_RANGE * input.numel, input)


@formula(*spellings("_saturate_weight_to_fp16", "ta"))
def saturate(weight: TensorSpec) -> Cost:
    return vector(2 * weight.numel, weight, gradient(weight))


@formula(*spellings("fbgemm_linear_quantize_weight", "ta"))
def fbgemm_quantize_weight(input: TensorSpec) -> Cost:
    # Its range, the integers, and for each row the sum of them.
    rows = input.shape[0] if input.shape else 1
    return vector((_RANGE + _TO + 1) * input.numel, input, spec(input.shape, "int8"), spec((rows,), "int32"))


@formula(*spellings("fbgemm_pack_gemm_matrix_fp16", "ta"), kind="copy")
def pack_fp16(input: TensorSpec) -> Cost:
    return copy_cost(input, spec(input.shape, "float16"))


@formula(*spellings("fbgemm_pack_quantized_matrix", "ta"), kind="copy")
def pack_quantized(input: TensorSpec, *sizes: Any) -> Cost:
    return copy_cost(input, gradient(input))


@formula("torch._wrapped_linear_prepack", "aten::_wrapped_linear_prepack")
def wrapped_linear_prepack(weight: TensorSpec, weight_scale: Any, weight_zero_point: Any, bias: Any = None) -> Cost:
    return vector(_TO * weight.numel, weight, opt(bias), spec(weight.shape, "int8"))


# ---------------------------------------------------------------------------------------------- imitated

_FAKE = ("fake_quantize_per_tensor_affine", "fake_quantize_per_tensor_affine_cachemask",
         "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", "fake_quantize_per_channel_affine",
         "fake_quantize_per_channel_affine_cachemask")  # fmt: skip


@formula(*(name for op in _FAKE for name in spellings(op, "ta")))
def fake_quantize(input: TensorSpec, scale: Any, zero_point: Any, *options: Any, **more: Any) -> Cost:
    mask = spec(input.shape, "bool")
    return vector((_TO + _FROM + _MASK) * input.numel, input, opt(scale), opt(zero_point), gradient(input), mask)


@backward(*(name for op in _FAKE for name in spellings(op, "ta")))
def fake_quantize_back(input: TensorSpec, scale: Any, zero_point: Any, *options: Any, **more: Any) -> tuple[Piece, ...]:
    # The gradient where the mask is set.
    grad = gradient(input)
    return (Piece("input", vector(input.numel, grad, spec(input.shape, "bool"), grad)),) if wants(input) else ()


@formula(
    "aten::fake_quantize_per_tensor_affine_cachemask_backward", "aten::fake_quantize_per_channel_affine_cachemask_backward"
)
def fake_quantize_backward(grad: TensorSpec, mask: TensorSpec) -> Cost:
    return vector(grad.numel, grad, mask, gradient(grad))


_LEARNABLE = tuple(
    name for kind in ("tensor", "channel") for name in spellings(f"_fake_quantize_learnable_per_{kind}_affine", "ta")
)


@formula(*_LEARNABLE)
def fake_quantize_learnable(input: TensorSpec, scale: TensorSpec, zero_point: TensorSpec, *options: Any, **more: Any) -> Cost:
    return vector((_TO + _FROM) * input.numel, input, scale, zero_point, gradient(input))


# The integer again 3, within the range 2; the gradients: of the input 1, of the scale 4 (the difference that rounding made,
# or the distance of the end of the range, times the gradient and its factor), of the zero point 2; and both sums 2.
_LEARNABLE_BACKWARD = 14


@formula(
    "aten::_fake_quantize_learnable_per_tensor_affine_backward", "aten::_fake_quantize_learnable_per_channel_affine_backward"
)
def fake_quantize_learnable_backward(
    grad: TensorSpec, input: TensorSpec, scale: TensorSpec, zero_point: TensorSpec, *options: Any, **more: Any
) -> Cost:
    written = (gradient(input), gradient(scale), gradient(zero_point))
    return vector(_LEARNABLE_BACKWARD * input.numel, grad, input, scale, zero_point, written)


_OBSERVED = ("fused_moving_avg_obs_fake_quant", "_fused_moving_avg_obs_fq_helper", "_fused_moving_avg_obs_fq_helper_functional")


@formula(*(name for op in _OBSERVED for name in spellings(op, "ta")))
def observed_fake_quantize(
    input: TensorSpec, observer_on: Any, fake_quant_on: Any, running_min: Any, running_max: Any, scale: Any, zero_point: Any,
    *options: Any, **more: Any,
) -> Cost:  # fmt: skip
    # Whether the observer and the rounding are on is data; both are while training. The statistics are read and written.
    state = [opt(s) for s in (running_min, running_max, scale, zero_point)]
    mask = spec(input.shape, "bool")
    return vector((_RANGE + _TO + _FROM + _MASK) * input.numel, input, state, state, gradient(input), mask)
