"""bitsandbytes: weights and activations to and from 8 and 4 bits, by blocks or rows (its products: `enginegemm`).

A block's or row's greatest magnitude is 2 operations an element, scaling and rounding to 8 bits 2, to the nearest entry of a
table of 16 or 256 a search of 4 or 8 comparisons after the scaling; back again 1. Two values of 4 bits share a byte.
Signatures: bitsandbytes-foundation/bitsandbytes (bitsandbytes/_ops.py).
"""

from __future__ import annotations

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import dtype_from, need, opt, product, spec, vector
from pyprof.prof.formulas.registry import Cost, op

_RANGE, _ROUND, _BACK = 2, 2, 1
_SEARCH = {8: 8, 4: 4}  # comparisons in a table of 2 to the power of so many bits


def _blocks(values: int, blocksize: object) -> TensorSpec:
    """A scale a block."""
    return spec((-(-values // need(blocksize, "blocksize")),), "float32")


@op("bitsandbytes::int8_vectorwise_quant", order="A threshold")
def int8_quant(A: TensorSpec) -> Cost:
    scales = spec((product(A.shape[:-1]),), "float32")
    return vector((_RANGE + _ROUND) * A.numel, A, spec(A.shape, "int8"), scales)


@op("bitsandbytes::int8_double_quant", order="A threshold")
def int8_double_quant(A: TensorSpec) -> Cost:
    """By rows and by columns."""
    scales = spec((product(A.shape[:-1]) + A.shape[-1],), "float32")
    return vector(2 * (_RANGE + _ROUND) * A.numel, A, spec((2, *A.shape), "int8"), scales)


@op("bitsandbytes::int8_vectorwise_dequant", order="A stats")
def int8_dequant(A: TensorSpec, stats: TensorSpec) -> Cost:
    return vector(_BACK * A.numel, A, stats, spec(A.shape, "float32"))


@op("bitsandbytes::int8_mm_dequant", order="A row_stats col_stats dtype bias")
def int8_mm_dequant(
    A: TensorSpec, row_stats: TensorSpec, col_stats: TensorSpec, dtype: object = None, bias: object = None
) -> Cost:
    """A product of integers times both scales; float16 where no type was asked for."""
    operations = 2 + (opt(bias) is not None)
    return vector(operations * A.numel, A, row_stats, col_stats, opt(bias), spec(A.shape, dtype_from(dtype) or "float16"))


@op("bitsandbytes::quantize_blockwise", order="A code blocksize")
def quantize_blockwise(A: TensorSpec, code: TensorSpec, blocksize: object) -> Cost:
    return vector((_RANGE + 1 + _SEARCH[8]) * A.numel, A, code, spec(A.shape, "uint8"), _blocks(A.numel, blocksize))


@op("bitsandbytes::dequantize_blockwise", order="A absmax code blocksize dtype")
def dequantize_blockwise(A: TensorSpec, absmax: TensorSpec, code: TensorSpec, dtype: object) -> Cost:
    return vector(_BACK * A.numel, A, absmax, code, spec(A.shape, dtype_from(dtype)))


@op("bitsandbytes::quantize_4bit", order="A blocksize quant_type quant_storage")
def quantize_4bit(A: TensorSpec, blocksize: object) -> Cost:
    packed = spec((-(-A.numel // 2),), "uint8")
    return vector((_RANGE + 1 + _SEARCH[4]) * A.numel, A, packed, _blocks(A.numel, blocksize))


@op("bitsandbytes::dequantize_4bit", order="A absmax blocksize quant_type shape dtype")
def dequantize_4bit(A: TensorSpec, absmax: TensorSpec, shape: object, dtype: object) -> Cost:
    made = spec(need(shape, "shape"), dtype_from(dtype))
    return vector(_BACK * made.numel, A, absmax, made)
