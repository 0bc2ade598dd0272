"""Matrix products of low precision, in groups, and with 2 of 4 values stored: fp8, fp4, int8, int4, grouped, semi-structured.

A product stays 2·M·N·K, K being the depth in values and not in stored bytes; scales, zeros and metadata are read once. Turning
the weight back into floats on the way is not counted. A semi-structured product multiplies only the stored half: M·N·K.
"""

from __future__ import annotations

from dataclasses import replace

from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, dtype_of, gradient, need, product, result, spec, vector
from pyprof.prof.formulas.gemm import product_cost
from pyprof.prof.formulas.registry import Cost, op


def _packing(dtype: str | None) -> int:
    """Values in one stored element."""
    return 2 if dtype == "float4_e2m1fn_x2" else 1


@op("_scaled_mm", "_scaled_mm_v2", places="ta", kind="matmul")
def scaled_mm(
    input: TensorSpec, mat2: TensorSpec, scale_a: object = None, scale_b: object = None, bias: object = None,
    out_dtype: object = None, out: object = None,
) -> Cost:  # fmt: skip
    # The scales are tensors or, in the second version, lists of them.
    m, n, k = input.shape[0], mat2.shape[1], input.shape[1] * _packing(input.dtype)
    written = dtype_of(out_dtype) or (None if out_dtype is UNKNOWN else input.dtype)
    tensors = (input, mat2, scale_a, scale_b, bias, result(out, (m, n), written))
    return product_cost(m, n, k, *tensors, dtype=input.dtype)


@op("_int_mm", places="ta", kind="matmul")
def int_mm(input: TensorSpec, mat2: TensorSpec, out: object = None) -> Cost:
    (m, k), (_, n) = input.shape, mat2.shape
    return product_cost(m, n, k, input, mat2, result(out, (m, n), "int32"), dtype=input.dtype)


@op("_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2", places="ta", kind="matmul")
@op("torch.nn.functional.grouped_mm", kind="matmul", order="input mat2 offs bias out_dtype")
def grouped_mm(
    input: TensorSpec, mat2: TensorSpec, scale_a: object = None, scale_b: object = None, offs: object = None,
    bias: object = None, out_dtype: object = None,
) -> Cost:  # fmt: skip
    # The groups split one dimension, which ends at offs; together they are one product of the whole dimension:
    # rows (2-d x 3-d), columns (3-d x 2-d), depth (2-d x 2-d); without a 2-d operand it is a bmm.
    m, n, k = input.shape[-2], mat2.shape[-1], input.shape[-1] * _packing(input.dtype)
    ranks, batch = (len(input.shape), len(mat2.shape)), 1
    shape: tuple[int, ...] = (m, n)
    if ranks == (2, 2):
        shape = (offs.shape[0] if isinstance(offs, TensorSpec) and offs.shape else 1, m, n)
    elif ranks == (3, 3):
        batch = input.shape[0]
        shape = (batch, m, n)
    written = spec(shape, dtype_of(out_dtype) or (input.dtype if scale_a is None else "bfloat16"))
    return product_cost(m, n, k, input, mat2, offs, bias, scale_a, scale_b, written, batch=batch, dtype=input.dtype)


# ---------------------------------------------------------------------------------------------- int4 and int8 weights


def _by_weight(input: TensorSpec, columns: int, *read: object) -> Cost:
    """A product of the input's rows with a weight of so many columns, in the input's dtype; read: the weight's tensors."""
    rows, depth = product(input.shape[:-1]), input.shape[-1]
    return product_cost(rows, columns, depth, input, read, spec((rows, columns), input.dtype), dtype=input.dtype)


@op("_weight_int8pack_mm", "_weight_int4pack_mm_with_scales_and_zeros", places="ta", kind="matmul", qScale="scales")
def weight_int8_mm(input: TensorSpec, mat2: TensorSpec, scales: TensorSpec, qZeros: object = None) -> Cost:
    return _by_weight(input, mat2.shape[0], mat2, scales, qZeros)


@op("_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu", places="ta", kind="matmul")
def weight_int4_mm(input: TensorSpec, mat2: TensorSpec, qScaleAndZeros: TensorSpec) -> Cost:
    # The packed weight is tiles of 8 columns; scales and zeros are (K/group, N, 2).
    return _by_weight(input, qScaleAndZeros.shape[1], mat2, qScaleAndZeros)


@op("_dyn_quant_matmul_4bit", places="ta", kind="matmul", inp="input")
def dyn_quant_matmul(input: TensorSpec, packed_weights: TensorSpec, out_features: object) -> Cost:
    return _by_weight(input, need(out_features, "out_features"), packed_weights)


@op("_mixed_dtypes_linear", places="ta", kind="matmul")
def mixed_dtypes_linear(input: TensorSpec, weight: TensorSpec, scale: TensorSpec, bias: object = None) -> Cost:
    # A scale a column; two values of 4 bits share a byte of the weight.
    return _by_weight(input, scale.numel, weight, scale, bias)


@op("fbgemm_linear_fp16_weight", "fbgemm_linear_fp16_weight_fp32_activation", places="ta", kind="matmul")
def fbgemm_linear_fp16(input: TensorSpec, bias: TensorSpec) -> Cost:
    # The packed weight is an opaque tensor; the columns are those of the bias.
    return _by_weight(input, bias.numel, spec((input.shape[-1], bias.numel), "float16"), bias)


@op("fbgemm_linear_int8_weight", "fbgemm_linear_int8_weight_fp32_activation", places="ta", kind="matmul")
def fbgemm_linear_int8(input: TensorSpec, weight: TensorSpec) -> Cost:
    n = weight.shape[0]
    return _by_weight(input, n, weight, spec((n,), "int32"), spec((n,), "float32"))


@op("aten::_wrapped_quantized_linear_prepacked", kind="matmul")
def wrapped_quantized_linear(input: TensorSpec, out_channel: object) -> Cost:
    n = need(out_channel, "out_channel")
    return _by_weight(input, n, spec((input.shape[-1], n), "int8"))


@op("_convert_weight_to_int4pack", "_convert_weight_to_int4pack_for_cpu", places="ta", kind="copy")
def int4_pack(input: TensorSpec) -> Cost:
    # A byte holds two values already, an int32 one of them: half a byte each is written.
    values = input.numel * (1 if input.dtype == "int32" else 2)
    return copy_cost(input, spec((values // 2,), "uint8"))


@op("_dyn_quant_pack_4bit_weight", places="ta", kind="copy")
def dyn_quant_pack(weights: TensorSpec, scales_zeros: TensorSpec, bias: object = None) -> Cost:
    parts = (weights, scales_zeros, bias)
    return copy_cost(parts, parts)


# ---------------------------------------------------------------------------------------------- 2 of 4 values stored


def _half_sparse(sizes: tuple[int, int, int], dense: TensorSpec, out_dtype: object, *stored: object) -> Cost:
    """A product with one operand stored as `stored`: only that half is multiplied; K is the depth of the dense operand."""
    m, n, k = sizes
    written = spec((m, n), dtype_of(out_dtype) or dense.dtype)
    return replace(product_cost(m, n, k, dense, stored, written, dtype=dense.dtype), matmul_flops=m * n * k)


@op("_sparse_semi_structured_mm", "_sparse_semi_structured_addmm", places="ta", kind="matmul")
def semi_structured_mm(
    mat1: TensorSpec, mat1_meta: TensorSpec, mat2: TensorSpec, input: object = None, beta: object = 1, out_dtype: object = None
) -> Cost:
    m, (k, n) = mat1.shape[0], mat2.shape
    return _half_sparse((m, n, k), mat2, out_dtype, mat1, mat1_meta, None if beta == 0 else input)


@op("_sparse_semi_structured_linear", places="ta", kind="matmul")
def semi_structured_linear(
    input: TensorSpec, weight: TensorSpec, meta: TensorSpec, bias: object = None, out_dtype: object = None
) -> Cost:
    sizes = product(input.shape[:-1]), weight.shape[0], input.shape[-1]
    return _half_sparse(sizes, input, out_dtype, weight, meta, bias)


# cuSPARSELt keeps half of the values and 2 bits for the place of each: 9/16 of the dense size in 16 bits a value, 10/16 in 8
# (github.com/pytorch/pytorch, aten/src/ATen/native/sparse/cuda/cuSPARSELtOps.cpp).
def _sixteenths(dtype: str | None) -> int:
    return 10 if spec((), dtype).itemsize == 1 else 9


@op("_cslt_compress", places="ta", kind="copy")
def cslt_compress(input: TensorSpec) -> Cost:
    return copy_cost(input, spec((input.numel * _sixteenths(input.dtype) // 16,), input.dtype))


@op("_cslt_sparse_mm", places="ta", kind="matmul")
def cslt_sparse_mm(
    compressed_A: TensorSpec, dense_B: TensorSpec, bias: object = None, alpha: object = None, out_dtype: object = None
) -> Cost:
    # The values and their places are one tensor, of as many rows as A or, in older releases, of one dimension.
    k, n = dense_B.shape
    packed = compressed_A
    m = packed.shape[0] if len(packed.shape) == 2 else packed.numel * 16 // _sixteenths(packed.dtype) // max(k, 1)
    return _half_sparse((m, n, k), dense_B, out_dtype, packed, bias, alpha)


def _packed(dense: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """The kept half of a matrix, and its metadata: 2 bits a kept value, in whole bytes."""
    return spec((dense.numel // 2,), dense.dtype), spec((dense.numel // 8,), "uint8")


@op("_to_sparse_semi_structured", places="ta", kind="copy")
def to_semi_structured(dense: TensorSpec) -> Cost:
    return copy_cost(dense, *_packed(dense))


@op("_sparse_semi_structured_tile", places="ta")
def semi_structured_tile(input: TensorSpec) -> Cost:
    # Each tile of 4 x 4 is sorted, 4 comparisons an element, and its greatest values are kept by row and by column: both forms
    # are written with their metadata, and a bit an element to do the same to a gradient.
    packed = _packed(input)
    return vector(4 * input.numel, input, packed, packed, spec((input.numel // 8,), "uint8"))


@op("_sparse_semi_structured_apply", places="ta")
def semi_structured_apply(input: TensorSpec, thread_masks: TensorSpec) -> Cost:
    half = _packed(input)[0]
    return copy_cost(input, thread_masks, half, half)


@op("_sparse_semi_structured_apply_dense", places="ta")
def semi_structured_apply_dense(input: TensorSpec, thread_masks: TensorSpec) -> Cost:
    return copy_cost(input, thread_masks, gradient(input))
