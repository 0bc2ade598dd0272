"""Quantisation: tensors to and from integers of few bits, the rounding that training imitates, and what observes its range.

round(x / scale) + zero_point, clamped to the range, is 5 operations an element (divide, round, add, clamp 2); back again 2
(subtract, multiply). Imitating it does both and, where its gradient is wanted, marks what the range cut off: 2 comparisons, and
a mask of a byte an element. Bytes: the input, the scales, the result in its own dtype.
"""

from __future__ import annotations

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, dtype_from, grad, gradient, need, opt, spec, vector
from pyprof.prof.formulas.registry import Cost, Missing, Op, op

_TO, _FROM, _MASK, _RANGE = 5, 2, 2, 2  # operations an element; the range: least and greatest


# ---------------------------------------------------------------------------------------------- real conversions


@op("quantize_per_tensor", places="ta")
@op("quantize_per_channel", places="ta", scales="scale", zero_points="zero_point")
def quantize(input: object, scale: object, zero_point: object, dtype: object) -> Cost:
    tensor = opt(input)
    if tensor is None:  # a list of tensors, with as many scales
        raise Missing("lists of tensors were not kept apart")
    return vector(_TO * tensor.numel, tensor, opt(scale), opt(zero_point), spec(tensor.shape, dtype_from(dtype)))


@op("quantize_per_tensor_dynamic", places="ta")
def quantize_per_tensor_dynamic(input: TensorSpec, dtype: object) -> Cost:
    return vector((_RANGE + _TO) * input.numel, input, spec(input.shape, dtype_from(dtype)))


@op("dequantize", order="input ...")
def dequantize(input: object) -> Cost:
    """One tensor, or a list of them."""
    given = need(input, "input")
    found = [given] if isinstance(given, TensorSpec) else [t for t in given if isinstance(t, TensorSpec)]
    return vector(_FROM * sum(t.numel for t in found), found, [spec(t.shape, "float32") for t in found])


@op("int_repr", kind="copy")
def int_repr(input: TensorSpec) -> Cost:
    return copy_cost(input, spec(input.shape, {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}.get(str(input.dtype))))


@op("_make_per_tensor_quantized_tensor", "_make_per_channel_quantized_tensor", places="ta", kind="copy")
@op("fbgemm_pack_quantized_matrix", places="ta", kind="copy")
def as_quantized(input: TensorSpec, scale: object = None, zero_point: object = None) -> Cost:
    """The integers are copied as they are, into a tensor with a scale or into another layout."""
    return copy_cost(input, gradient(input), opt(scale), opt(zero_point))


@op("choose_qparams_optimized", places="ta")
def choose_qparams_optimized(input: TensorSpec) -> Cost:
    raise Missing("how many ranges its search tries is data, not recorded")


@op("_choose_qparams_per_tensor", places="ta")
def choose_qparams(input: TensorSpec) -> Cost:
    return vector(_RANGE * input.numel, input)


@op("_saturate_weight_to_fp16", places="ta")
def saturate(weight: TensorSpec) -> Cost:
    return vector(2 * weight.numel, weight, gradient(weight))


@op("fbgemm_linear_quantize_weight", places="ta")
def fbgemm_quantize_weight(input: TensorSpec) -> Cost:
    """The range, the integers, and the sum of each row of them."""
    rows = input.shape[0] if input.shape else 1
    return vector((_RANGE + _TO + 1) * input.numel, input, spec(input.shape, "int8"), spec((rows,), "int32"))


@op("fbgemm_pack_gemm_matrix_fp16", places="ta", kind="copy")
def pack_fp16(input: TensorSpec) -> Cost:
    return copy_cost(input, spec(input.shape, "float16"))


@op("_wrapped_linear_prepack", places="ta")
def wrapped_linear_prepack(weight: TensorSpec, bias: object = None) -> Cost:
    return vector(_TO * weight.numel, weight, opt(bias), spec(weight.shape, "int8"))


# ---------------------------------------------------------------------------------------------- imitated


@op("fake_quantize_per_tensor_affine", "fake_quantize_per_tensor_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", "fake_quantize_per_channel_affine",
    "fake_quantize_per_channel_affine_cachemask", places="ta")  # fmt: skip
def fake_quantize(input: TensorSpec, scale: object, zero_point: object) -> Op:
    """Backward: the gradient where the mask is set."""
    mask = spec(input.shape, "bool")
    yield vector((_TO + _FROM + _MASK) * input.numel, input, opt(scale), opt(zero_point), gradient(input), mask)
    yield from grad("input", input, input.numel, gradient(input), mask)


@op("aten::fake_quantize_per_tensor_affine_cachemask_backward", "aten::fake_quantize_per_channel_affine_cachemask_backward")
def fake_quantize_backward(grad: TensorSpec, mask: TensorSpec) -> Cost:
    return vector(grad.numel, grad, mask, gradient(grad))


@op("_fake_quantize_learnable_per_tensor_affine", "_fake_quantize_learnable_per_channel_affine", places="ta")
def fake_quantize_learnable(input: TensorSpec, scale: TensorSpec, zero_point: TensorSpec) -> Cost:
    return vector((_TO + _FROM) * input.numel, input, scale, zero_point, gradient(input))


@op("_fake_quantize_learnable_per_tensor_affine_backward", "_fake_quantize_learnable_per_channel_affine_backward", places="a")
def fake_quantize_learnable_backward(grad: TensorSpec, input: TensorSpec, scale: TensorSpec, zero_point: TensorSpec) -> Cost:
    """The integer again 3, within the range 2, and the gradients of three inputs.

    Of the input 1; of the scale 4 (the difference that rounding made, or the distance of the end of the range, times the
    gradient and its factor); of the zero point 2; and both sums 2.
    """
    return vector(14 * input.numel, grad, input, scale, zero_point, [gradient(t) for t in (input, scale, zero_point)])


@op("fused_moving_avg_obs_fake_quant", "_fused_moving_avg_obs_fq_helper", "_fused_moving_avg_obs_fq_helper_functional",
    places="ta")  # fmt: skip
def observed_fake_quantize(
    input: TensorSpec, running_min: object, running_max: object, scale: object, zero_point: object
) -> Cost:
    """Whether the observer and the rounding are on is data; both are while training. The statistics are read and written."""
    state = [opt(s) for s in (running_min, running_max, scale, zero_point)]
    mask = spec(input.shape, "bool")
    return vector((_RANGE + _TO + _FROM + _MASK) * input.numel, input, state, state, gradient(input), mask)
