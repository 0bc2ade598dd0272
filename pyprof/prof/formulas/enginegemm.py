"""Matrix products of inference libraries: vLLM, SGLang, aiter, bitsandbytes and others, of any precision, by one table.

2·M·N·K, K being the depth in values and not in stored elements. Bytes: operands as they are stored (packed weights, scales,
zeros, bias), the result once. The weight may lie in any order (K x N, N x K, tiles): N is what its values and K leave. The
operands' type, not that of the result, says what can multiply them; a weight of fewer bits beside 16-bit activations is turned
into their type first, which is not counted. Signatures: as for `streamed`, bitsandbytes (_ops.py), FBGEMM (gen_ai).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import dtype_from, need, product, spec
from pyprof.prof.formulas.gemm import product_cost
from pyprof.prof.formulas.registry import Cost, Missing, op

_FLOATS = ("float16", "bfloat16", "float32")


class EngineGemm(NamedTuple):
    """One signature: values in a stored element of either operand (0: the columns say it), and the result's type."""

    names: tuple[str, ...]
    packed: tuple[int, int]
    made: str | None
    order: tuple[str, ...]


def rows() -> Iterator[EngineGemm]:
    """The lines of the table."""
    for line in Path(__file__).with_name("enginegemm.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            stored, order, names = (part.split() for part in line.split("|"))
            made = stored[2] if len(stored) > 2 else None
            yield EngineGemm(tuple(names), (int(stored[0]), int(stored[1])), made, tuple(order))


def _operand(given: dict[str, object], name: str) -> TensorSpec:
    found = given.get(name)
    if not isinstance(found, TensorSpec) or len(found.shape) < 2:
        raise Missing(f"{name} not recorded")
    return found


def _columns(row: EngineGemm, given: dict[str, object], b: TensorSpec, depth: int, batch: int) -> int:
    """N: of the result, of an argument, or what the values of the weight leave."""
    out = given.get("out")
    if isinstance(out, TensorSpec) and len(out.shape) > 1:
        return out.shape[-1]
    if "n" in row.order:
        return int(need(given.get("n", UNKNOWN), "n"))
    if not row.packed[1]:
        return b.shape[-1]
    columns, rest = divmod(b.numel * row.packed[1], max(depth * batch, 1))
    if rest:
        raise Missing(f"a weight of {list(b.shape)} does not fit a depth of {depth}")
    return columns


def _result(row: EngineGemm, given: dict[str, object], shape: tuple[int, ...], a: TensorSpec) -> TensorSpec:
    out = given.get("out")
    if isinstance(out, TensorSpec):
        return out
    told = dtype_from(given.get("out_dtype")) or row.made
    return spec(shape, told or (a.dtype if a.dtype in _FLOATS else None))


def _declare(row: EngineGemm) -> None:
    @op(*row.names, places="=", order="", kind="matmul")
    def multiplied(*args: object, **named: object) -> Cost:
        given = dict(zip(row.order, args, strict=False)) | named
        a, b = _operand(given, "a"), _operand(given, "b")
        depth = a.shape[-1] * row.packed[0]
        batch = a.shape[0] if len(a.shape) == len(b.shape) == 3 else 1
        rows = product(a.shape[:-1]) // max(batch, 1)
        columns = _columns(row, given, b, depth, batch)
        read = [value for name, value in given.items() if isinstance(value, TensorSpec) and name != "out" and name[0] != "_"]
        made = _result(row, given, (batch * rows, columns), a)
        return product_cost(rows, columns, depth, read, made, batch=batch, dtype=multiplied_as(a, row.packed[0]))


def multiplied_as(a: TensorSpec, packed: int) -> str | None:
    """The type in which the values of an operand are multiplied: of two in a byte fp4."""
    return "float4_e2m1fn_x2" if packed == 2 else a.dtype


for _row in rows():
    _declare(_row)


# ---------------------------------------------------------------------------------------------- sizes among the arguments


@op("_C::gptq_marlin_gemm", "_C::marlin_gemm", "_C::fp8_marlin_gemm", "_C::gptq_marlin_24_gemm", "sgl_kernel::gptq_marlin_gemm",
    "vllm::marlin_gemm", order="", kind="matmul")  # fmt: skip
def marlin(*args: object) -> Cost:
    """(a, ..., workspace, ..., M, N, K, ...): releases differ in what lies between; the last tensor is a workspace."""
    tensors = [arg for arg in args if isinstance(arg, TensorSpec)]
    if not tensors or len(tensors[0].shape) < 2:
        raise Missing("a not recorded")
    a = tensors[0]
    rows, depth = product(a.shape[:-1]), a.shape[-1]
    for m, n, k in zip(args, args[1:], args[2:], strict=False):
        if m == rows and k == depth and isinstance(n, int) and not isinstance(n, bool):
            return product_cost(rows, n, depth, tensors[:-1], spec((rows, n), a.dtype), dtype=a.dtype)
    raise Missing("M, N and K not recorded")


@op("_C::machete_mm", order="a b b_type out_type group_scales group_zeros group_size channel_scales token_scales ...",
    kind="matmul")  # fmt: skip
def machete(
    a: TensorSpec, b: TensorSpec, group_scales: object = None, group_zeros: object = None, channel_scales: object = None,
    token_scales: object = None,
) -> Cost:  # fmt: skip
    rows, columns = product(a.shape[:-1]), b.shape[-1]
    written = spec((rows, columns), a.dtype if a.dtype in _FLOATS else None)
    read = (a, b, group_scales, group_zeros, channel_scales, token_scales)
    return product_cost(rows, columns, a.shape[-1], read, written, dtype=a.dtype)


@op("bitsandbytes::gemv_4bit", "bitsandbytes::gemm_4bit", order="a b shape absmax code blocksize ...", kind="matmul")
def gemv_4bit(a: TensorSpec, b: TensorSpec, shape: object, absmax: TensorSpec, code: object = None) -> Cost:
    rows, columns = product(a.shape[:-1]), int(need(shape, "shape")[0])
    return product_cost(rows, columns, a.shape[-1], a, b, absmax, code, spec((rows, columns), a.dtype), dtype=a.dtype)


@op("tex_ts::te_gemm_ts", order="a a_scale a_fp8 a_type transa b b_scale b_fp8 b_type transb out ...", kind="matmul")
def te_gemm(a: TensorSpec, b: TensorSpec, out: TensorSpec) -> Cost:
    """Column-major like cuBLAS: the weight comes first; the result has the rows of b."""
    columns = out.shape[-1]
    rows, depth = out.numel // max(columns, 1), a.numel // max(columns, 1)
    return product_cost(rows, columns, depth, a, b, out, dtype=a.dtype)
