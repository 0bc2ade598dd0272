"""Matrix products of low precision, in groups, and with 2 of 4 values stored: fp8, fp4, int8, int4, grouped, semi-structured.

A product stays 2·M·N·K, K being the depth in values and not in stored bytes; scales, zeros and metadata are read once. Turning
the weight back into floats on the way is not counted. A semi-structured product multiplies only the stored half: M·N·K.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, dtype_of, need, opt, product, result, spec, vector
from pyprof.prof.formulas.gemm import product_cost
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, formula

__all__: list[str] = []


def _packing(dtype: str | None) -> int:
    """Values in one stored element."""
    return 2 if dtype == "float4_e2m1fn_x2" else 1


@formula("torch._scaled_mm", "aten::_scaled_mm", kind="matmul")
def scaled_mm(
    input: TensorSpec, mat2: TensorSpec, scale_a: Any = None, scale_b: Any = None, bias: Any = None, scale_result: Any = None,
    out_dtype: Any = None, use_fast_accum: Any = False, out: Any = None,
) -> Cost:  # fmt: skip
    m, n, k = input.shape[0], mat2.shape[1], input.shape[1] * _packing(input.dtype)
    written = dtype_of(out_dtype) or (None if out_dtype is UNKNOWN else input.dtype)
    tensors = (input, mat2, opt(scale_a), opt(scale_b), opt(bias), result(out, (m, n), written))
    return product_cost(m, n, k, *tensors, dtype=input.dtype)


@formula("torch._int_mm", "aten::_int_mm", kind="matmul")
def int_mm(input: TensorSpec, mat2: TensorSpec, out: Any = None) -> Cost:
    (m, k), (_, n) = input.shape, mat2.shape
    return product_cost(m, n, k, input, mat2, result(out, (m, n), "int32"), dtype=input.dtype)


@formula(
    "torch._grouped_mm", "aten::_grouped_mm", "torch.nn.functional.grouped_mm", kind="matmul"
)  # fmt: skip
def grouped_mm(input: TensorSpec, mat2: TensorSpec, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Cost:
    return _grouped(input, mat2, opt(offs), opt(bias), dtype_of(out_dtype) or input.dtype)


@formula("torch._scaled_grouped_mm", "aten::_scaled_grouped_mm", kind="matmul")
def scaled_grouped_mm(
    input: TensorSpec, mat2: TensorSpec, scale_a: Any = None, scale_b: Any = None, offs: Any = None, bias: Any = None,
    scale_result: Any = None, out_dtype: Any = None, use_fast_accum: Any = False,
) -> Cost:  # fmt: skip
    written = dtype_of(out_dtype) or "bfloat16"
    return _grouped(input, mat2, opt(offs), opt(bias), written, scales=(opt(scale_a), opt(scale_b)))


def _grouped(
    a: TensorSpec, b: TensorSpec, offs: TensorSpec | None, bias: TensorSpec | None, written: str | None, scales: Any = ()
) -> Cost:
    # The groups split one dimension, which ends at offs; together they are one product of the whole dimension:
    # rows (2-d x 3-d), columns (3-d x 2-d), depth (2-d x 2-d); without a 2-d operand it is a bmm.
    k = a.shape[-1] * _packing(a.dtype)
    m, n = a.shape[-2], b.shape[-1]
    groups = offs.shape[0] if offs is not None and offs.shape else 1
    shape: tuple[int, ...] = (m, n)
    batch = 1
    if len(a.shape) == 2 and len(b.shape) == 2:
        shape = (groups, m, n)
    elif len(a.shape) == 3 and len(b.shape) == 3:
        batch = a.shape[0]
        shape = (batch, m, n)
    return product_cost(m, n, k, a, b, offs, bias, scales, spec(shape, written), batch=batch, dtype=a.dtype)


@formula("torch._weight_int8pack_mm", "aten::_weight_int8pack_mm", kind="matmul")
def weight_int8_mm(input: TensorSpec, mat2: TensorSpec, scales: TensorSpec) -> Cost:
    (m, k), n = input.shape, mat2.shape[0]
    return product_cost(m, n, k, input, mat2, scales, spec((m, n), input.dtype), dtype=input.dtype)


@formula(*spellings("_weight_int4pack_mm", "ta"), *spellings("_weight_int4pack_mm_for_cpu", "ta"), kind="matmul")
def weight_int4_mm(input: TensorSpec, mat2: TensorSpec, qGroupSize: Any, qScaleAndZeros: TensorSpec) -> Cost:
    # The packed weight is tiles of 8 columns; scales and zeros are (K/group, N, 2).
    (m, k), n = input.shape, qScaleAndZeros.shape[1]
    return product_cost(m, n, k, input, mat2, qScaleAndZeros, spec((m, n), input.dtype), dtype=input.dtype)


def _half_sparse(sparse: TensorSpec, meta: TensorSpec, dense: TensorSpec, sizes: tuple[int, int, int], *more: Any) -> Cost:
    # 2 of 4 values are stored, and only those are multiplied: half of 2·M·N·K, K being the depth of the dense operand.
    m, n, k = sizes
    one = product_cost(m, n, k, sparse, meta, dense, *more, dtype=dense.dtype)
    return Cost(m * n * k, 0, one.bytes, one.mnk, 1, one.params)


@formula("torch._sparse_semi_structured_mm", "aten::_sparse_semi_structured_mm", kind="matmul")
def semi_structured_mm(mat1: TensorSpec, mat1_meta: TensorSpec, mat2: TensorSpec, out_dtype: Any = None) -> Cost:
    m, (k, n) = mat1.shape[0], mat2.shape
    return _half_sparse(mat1, mat1_meta, mat2, (m, n, k), spec((m, n), dtype_of(out_dtype) or mat2.dtype))


@formula("torch._sparse_semi_structured_linear", "aten::_sparse_semi_structured_linear", kind="matmul")
def semi_structured_linear(
    input: TensorSpec, weight: TensorSpec, meta: TensorSpec, bias: Any = None, activation: Any = None, out_dtype: Any = None
) -> Cost:
    m, n, k = product(input.shape[:-1]), weight.shape[0], input.shape[-1]
    return _half_sparse(weight, meta, input, (m, n, k), opt(bias), spec((m, n), dtype_of(out_dtype) or input.dtype))


@formula(*spellings("_sparse_semi_structured_addmm", "ta"), kind="matmul")
def semi_structured_addmm(
    input: Any, mat1: TensorSpec, mat1_meta: TensorSpec, mat2: TensorSpec, alpha: Any = 1, beta: Any = 1, out_dtype: Any = None
) -> Cost:
    m, (k, n) = mat1.shape[0], mat2.shape
    added = None if beta == 0 and beta is not UNKNOWN else opt(input)
    return _half_sparse(mat1, mat1_meta, mat2, (m, n, k), added, spec((m, n), dtype_of(out_dtype) or mat2.dtype))


# cuSPARSELt keeps half of the values and 2 bits for the place of each: 9/16 of the dense size in 16 bits a value, 10/16 in 8
# (github.com/pytorch/pytorch, aten/src/ATen/native/sparse/cuda/cuSPARSELtOps.cpp).
def _sixteenths(dtype: str | None) -> int:
    return 10 if spec((), dtype).itemsize == 1 else 9


@formula(*spellings("_cslt_compress", "ta"), kind="copy")
def cslt_compress(input: TensorSpec) -> Cost:
    return copy_cost(input, spec((input.numel * _sixteenths(input.dtype) // 16,), input.dtype))


@formula(*spellings("_cslt_sparse_mm", "ta"), kind="matmul")
def cslt_sparse_mm(
    compressed_A: TensorSpec, dense_B: TensorSpec, bias: Any = None, alpha: Any = None, out_dtype: Any = None, *options: Any,
    **more: Any,
) -> Cost:  # fmt: skip
    # The values and their places are one tensor, of as many rows as A or, in older releases, of one dimension.
    k, n = dense_B.shape
    packed = compressed_A
    m = packed.shape[0] if len(packed.shape) == 2 else packed.numel * 16 // _sixteenths(packed.dtype) // max(k, 1)
    written = spec((m, n), dtype_of(out_dtype) or dense_B.dtype)
    one = product_cost(m, n, k, packed, dense_B, opt(bias), opt(alpha), written, dtype=dense_B.dtype)
    return Cost(m * n * k, 0, one.bytes, one.mnk, 1, one.params)


def _packed(dense: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """The kept half of a matrix, and its metadata: 2 bits a kept value, in whole bytes."""
    return spec((dense.numel // 2,), dense.dtype), spec((dense.numel // 8,), "uint8")


@formula(*spellings("_to_sparse_semi_structured", "ta"), kind="copy")
def to_semi_structured(dense: TensorSpec) -> Cost:
    return copy_cost(dense, *_packed(dense))


@formula(*spellings("_sparse_semi_structured_tile", "ta"))
def semi_structured_tile(input: TensorSpec, algorithm: Any = "", use_cutlass: Any = True) -> Cost:
    # Each tile of 4 x 4 is sorted, 4 comparisons an element, and its greatest values are kept by row and by column: both forms
    # are written with their metadata, and a bit an element to do the same to a gradient.
    packed = _packed(input)
    return vector(4 * input.numel, input, packed, packed, spec((input.numel // 8,), "uint8"))


@formula(*spellings("_sparse_semi_structured_apply", "ta"))
def semi_structured_apply(input: TensorSpec, thread_masks: TensorSpec) -> Cost:
    half = _packed(input)[0]
    return copy_cost(input, thread_masks, half, half)


@formula(*spellings("_sparse_semi_structured_apply_dense", "ta"))
def semi_structured_apply_dense(input: TensorSpec, thread_masks: TensorSpec) -> Cost:
    return copy_cost(input, thread_masks, spec(input.shape, input.dtype))


# ---------------------------------------------------------------------------------------------- scales as lists


@formula(*spellings("_scaled_mm_v2", "ta"), kind="matmul")
def scaled_mm_v2(
    input: TensorSpec, mat2: TensorSpec, scale_a: list[TensorSpec], recipe_a: Any, swizzle_a: Any, scale_b: list[TensorSpec],
    recipe_b: Any, swizzle_b: Any, bias: Any = None, out_dtype: Any = None, contraction_dim: Any = (),
    use_fast_accum: Any = False, out: Any = None,
) -> Cost:  # fmt: skip
    m, n, k = input.shape[0], mat2.shape[1], input.shape[1] * _packing(input.dtype)
    written = dtype_of(out_dtype) or (None if out_dtype is UNKNOWN else input.dtype)
    tensors = (input, mat2, scale_a, scale_b, opt(bias), result(out, (m, n), written))
    return product_cost(m, n, k, *tensors, dtype=input.dtype)


@formula(*spellings("_scaled_grouped_mm_v2", "ta"), kind="matmul")
def scaled_grouped_mm_v2(
    input: TensorSpec, mat2: TensorSpec, scale_a: list[TensorSpec], recipe_a: Any, swizzle_a: Any, scale_b: list[TensorSpec],
    recipe_b: Any, swizzle_b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None, contraction_dim: Any = (),
    use_fast_accum: Any = False,
) -> Cost:  # fmt: skip
    written = dtype_of(out_dtype) or "bfloat16"
    return _grouped(input, mat2, opt(offs), opt(bias), written, scales=(scale_a, scale_b))


# ---------------------------------------------------------------------------------------------- int4 and int8 weights


@formula(*spellings("_weight_int4pack_mm_with_scales_and_zeros", "ta"), kind="matmul")
def weight_int4_mm_with_zeros(
    input: TensorSpec, mat2: TensorSpec, qGroupSize: Any, qScale: TensorSpec, qZeros: TensorSpec
) -> Cost:
    (m, k), n = input.shape, mat2.shape[0]
    return product_cost(m, n, k, input, mat2, qScale, qZeros, spec((m, n), input.dtype), dtype=input.dtype)


@formula(*spellings("_dyn_quant_matmul_4bit", "ta"), kind="matmul")
def dyn_quant_matmul(
    input: TensorSpec, packed_weights: TensorSpec, block_size: Any, in_features: Any, out_features: Any
) -> Cost:
    k, n = need(in_features, "in_features"), need(out_features, "out_features")
    m = input.numel // max(k, 1)
    return product_cost(m, n, k, input, packed_weights, spec((m, n), input.dtype), dtype=input.dtype)


@formula(*spellings("_mixed_dtypes_linear", "ta"), kind="matmul")
def mixed_dtypes_linear(
    input: TensorSpec, weight: TensorSpec, scale: TensorSpec, bias: Any = None, activation: Any = None
) -> Cost:
    # A scale a column; two values of 4 bits share a byte of the weight.
    k, n = input.shape[-1], scale.numel
    m = product(input.shape[:-1])
    return product_cost(m, n, k, input, weight, scale, opt(bias), spec((m, n), input.dtype), dtype=input.dtype)


@formula(*spellings("_convert_weight_to_int4pack", "ta"), *spellings("_convert_weight_to_int4pack_for_cpu", "ta"), kind="copy")
def int4_pack(input: TensorSpec, innerKTiles: Any = None) -> Cost:
    # A byte holds two values already, an int32 one of them: half a byte each is written.
    values = input.numel * (1 if input.dtype == "int32" else 2)
    return copy_cost(input, spec((values // 2,), "uint8"))


@formula(*spellings("_dyn_quant_pack_4bit_weight", "ta"), kind="copy")
def dyn_quant_pack(weights: TensorSpec, scales_zeros: TensorSpec, bias: Any = None, *sizes: Any) -> Cost:
    parts = [t for t in (weights, scales_zeros, opt(bias)) if t is not None]
    return copy_cost(parts, parts)


@formula(
    *spellings("fbgemm_linear_fp16_weight", "ta"), *spellings("fbgemm_linear_fp16_weight_fp32_activation", "ta"), kind="matmul"
)
def fbgemm_linear_fp16(input: TensorSpec, packed_weight: TensorSpec, bias: Any = None, *more: Any) -> Cost:
    # The packed weight is an opaque tensor; the bias tells the columns.
    k, n = input.shape[-1], need(bias, "bias").numel
    m = product(input.shape[:-1])
    return product_cost(m, n, k, input, spec((k, n), "float16"), bias, spec((m, n), input.dtype), dtype=input.dtype)


@formula(
    *spellings("fbgemm_linear_int8_weight", "ta"), *spellings("fbgemm_linear_int8_weight_fp32_activation", "ta"), kind="matmul"
)
def fbgemm_linear_int8(input: TensorSpec, weight: TensorSpec, *more: Any) -> Cost:
    (n, k), m = weight.shape, product(input.shape[:-1])
    written = spec((m, n), input.dtype)
    return product_cost(m, n, k, input, weight, spec((n,), "int32"), spec((n,), "float32"), written, dtype=input.dtype)


@formula("aten::_wrapped_quantized_linear_prepacked", kind="matmul")
def wrapped_quantized_linear(
    input: TensorSpec, input_scale: Any, input_zero_point: Any, packed_weight: Any, output_scale: Any, output_zero_point: Any,
    out_channel: Any,
) -> Cost:  # fmt: skip
    k, n = input.shape[-1], need(out_channel, "out_channel")
    m = product(input.shape[:-1])
    return product_cost(m, n, k, input, spec((k, n), "int8"), spec((m, n), input.dtype), dtype=input.dtype)
