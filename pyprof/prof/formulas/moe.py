"""Mixtures of experts: products of each token with the matrices of the experts that were chosen for it.

T tokens that each take k of E experts make T·k rows: 2·T·k·K·N operations for experts' matrices of K x N, however the rows
are distributed. Which experts are chosen is data, so the weights read are taken to be min(E, T·k) experts' (all, given enough
tokens), and the bytes are marked `inferred`. Activations between two products that one op makes are not
counted, nor what stays in its own memory. Costs are known only where E and k are recorded, if in an op within (`inside`): an
engine's op for a whole layer has its weights in no argument, but the views of them inside it were recorded; scales were not.
Signatures: as for `streamed`; vLLM's Python ops (vllm/model_executor/layers/fused_moe).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from pyprof.model.dtypes import lookup
from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import gradient, nbytes, need, opt, product, spec, vector
from pyprof.prof.formulas.gemm import product_cost
from pyprof.prof.formulas.registry import Cost, Missing, op

_PACKED = (1, 2, 8)  # values in a stored element: two of 4 bits in a byte, eight in an int32


class _Matrices(NamedTuple):
    """An expert's matrix of depth x columns values, for so many experts; packed: values in an element that is stored."""

    experts: int
    depth: int
    columns: int
    packed: int
    stored: TensorSpec


def _matrices(weight: TensorSpec, depth: int, packed: int = 1) -> _Matrices:
    """Expert weights (E, ., .) with `depth` values along one side; values are packed along the contiguous side.

    packed: values per element if the other side is the depth.
    """
    if len(weight.shape) != 3:
        raise Missing("weights of experts not recorded")
    along = 1 if weight.strides is not None and weight.strides[1] == 1 != weight.strides[2] else 2
    kind = lookup(weight.dtype)
    integers = kind is not None and kind.kind in ("int", "uint")
    together = next((n for n in (_PACKED if integers else (1,)) if weight.shape[along] * n == depth), 0)
    if not together and weight.shape[3 - along] == depth:
        together = packed
    if not together:
        raise Missing(f"weights {list(weight.shape)} do not fit a depth of {depth}")
    columns = weight.shape[1] * weight.shape[2] * together // max(depth, 1)
    return _Matrices(weight.shape[0], depth, columns, together, weight)


def _chosen(rows: int, experts: int, *stored: object) -> Iterator[TensorSpec]:
    """The tensors that are read: of a tensor with one part per expert the chosen experts' parts, of others all."""
    read = min(experts, rows)
    for tensor in stored:
        if isinstance(tensor, TensorSpec):
            by_expert = bool(tensor.shape) and tensor.shape[0] == experts
            yield replace(tensor, shape=(read, *tensor.shape[1:]), strides=None) if by_expert else tensor


def _cost(rows: int, matrices: list[_Matrices], dtype: str | None, *moved: object, scales: tuple[object, ...] = ()) -> Cost:
    """Products of so many rows with each of the matrices; moved: tensors beside the weights; scales: theirs."""
    experts = matrices[0].experts
    weights = [*_chosen(rows, experts, *(m.stored for m in matrices), *scales)]
    one = product_cost(rows, matrices[0].columns, matrices[0].depth, weights, moved, dtype=dtype)
    if len(matrices) == 1:
        return replace(one, params=f"{one.params},E={experts},inferred", inferred=True)
    found = lookup(dtype)
    flops = sum(2 * rows * m.depth * m.columns for m in matrices)
    sizes = [f"rows={rows}", f"E={experts}", *(f"K{i}={m.depth},N{i}={m.columns}" for i, m in enumerate(matrices, 1))]
    text = ",".join([*sizes, *([found.tag] if found else []), "inferred"])
    return Cost(flops, 0, one.bytes, None, 1, text, one.operands, inferred=True)


# ---------------------------------------------------------------------------------------------- both products in one op


def _both(
    hidden: TensorSpec, w1: TensorSpec, w2: TensorSpec, rows: int, *moved: object, scales: tuple[object, ...] = ()
) -> Cost:
    """hidden: (T, K); w1: K x N1 values an expert, w2: N2 x K, N1 being N2 or, with a gate, twice that."""
    pair = _fitting(w1, w2, hidden.shape[-1])
    if pair is None:
        raise Missing(f"weights {list(w1.shape)} and {list(w2.shape)} do not fit each other and {hidden.shape[-1]}")
    return _cost(rows, pair, hidden.dtype, hidden, spec(hidden.shape, hidden.dtype), *moved, scales=scales)


def _fitting(w1: TensorSpec, w2: TensorSpec, size: int) -> list[_Matrices] | None:
    """The expert matrices of both products, for hidden states of a size; None if sizes do not fit together."""
    try:
        up = _matrices(w1, size)
        down = _matrices(w2, size, up.packed)
    except Missing:
        return None
    fit = up.experts == down.experts and up.columns in (down.columns, 2 * down.columns)
    return [up, down._replace(depth=down.columns, columns=size)] if fit else None


_SCALES = "w1_scale w2_scale"
_EXPERTS = {
    "vllm::inplace_fused_experts": "hidden w1 w2 topk_weights topk_ids ...",
    "vllm::outplace_fused_experts": "hidden w1 w2 topk_weights topk_ids ...",
    "sglang::inplace_fused_experts": "hidden w1 w2 topk_weights topk_ids ...",
    "sglang::outplace_fused_experts": "hidden w1 w2 topk_weights topk_ids ...",
    "vllm::rocm_aiter_fused_moe": f"hidden w1 w2 topk_weights topk_ids mask activation quant stage {_SCALES} ...",
    "vllm::rocm_aiter_asm_moe_tkw1": f"hidden w1 w2 topk_weights topk_ids {_SCALES} ...",
    "aiter::fused_moe_": f"hidden w1 w2 topk_weights topk_ids mask activation quant stage {_SCALES} ...",
    "vllm::fused_marlin_moe": f"hidden w1 w2 bias1 bias2 {_SCALES} gating topk_weights topk_ids ...",
}


def _declare_experts(name: str, order: str) -> None:
    @op(name, order=order, kind="matmul")
    def fused_experts(
        hidden: TensorSpec, w1: TensorSpec, w2: TensorSpec, topk_weights: TensorSpec, topk_ids: TensorSpec,
        w1_scale: object = None, w2_scale: object = None,
    ) -> Cost:  # fmt: skip
        return _both(hidden, w1, w2, topk_ids.numel, topk_weights, topk_ids, scales=(opt(w1_scale), opt(w2_scale)))


for _name, _order in _EXPERTS.items():
    _declare_experts(_name, _order)


@op("aiter::fmoe", "aiter::fmoe_g1u1", "aiter::fmoe_g1u1_tkw1", "aiter::fmoe_int8_g1u0", "aiter::fmoe_fp8_blockscale_g1u1",
    order="out hidden w1 w2 sorted_ids sorted_weights expert_ids valid top_k input_scale w1_scale w2_scale ...",
    kind="matmul")  # fmt: skip
@op("aiter::fmoe_int8_g1u0_a16", "aiter::fmoe_g1u1_a16",
    order="out hidden w1 w2 sorted_ids sorted_weights expert_ids valid top_k w1_scale w2_scale ...", kind="matmul")  # fmt: skip
def fmoe(
    hidden: TensorSpec, w1: TensorSpec, w2: TensorSpec, top_k: object, w1_scale: object = None, w2_scale: object = None
) -> Cost:
    return _both(hidden, w1, w2, hidden.shape[0] * need(top_k, "top_k"), scales=(opt(w1_scale), opt(w2_scale)))


@op(
    "vllm::flashinfer_fused_moe_blockscale_fp8",
    order="routing bias hidden w1 w1_scale w2 w2_scale experts top_k ...",
    kind="matmul",
)
def flashinfer_moe(
    routing: TensorSpec, hidden: TensorSpec, w1: TensorSpec, w2: TensorSpec, top_k: object, w1_scale: object = None,
    w2_scale: object = None,
) -> Cost:  # fmt: skip
    return _both(hidden, w1, w2, hidden.shape[0] * need(top_k, "top_k"), routing, scales=(opt(w1_scale), opt(w2_scale)))


# ---------------------------------------------------------------------------------------------- one product


@op("_C::cutlass_moe_mm", order="out a b scale_a scale_b ...", kind="matmul")
@op("sgl_kernel::cutlass_w4a8_moe_mm", order="out a b scale_a scale_b ...", kind="matmul")
@op("sgl_kernel::fp8_blockwise_scaled_grouped_mm",
    order="out a_ptrs b_ptrs out_ptrs a_scale_ptrs b_scale_ptrs a b scale_a scale_b ...", kind="matmul")  # fmt: skip
def grouped(out: TensorSpec, a: TensorSpec, b: TensorSpec, scale_a: TensorSpec, scale_b: TensorSpec) -> Cost:
    """Rows in the order of their experts."""
    return _cost(a.shape[0], [_matrices(b, a.shape[-1])], a.dtype, a, scale_a, out, scales=(scale_b,))


@op("_C::cutlass_fp4_group_mm", "_C::cutlass_mxfp4_group_mm", "sgl_kernel::cutlass_fp4_group_mm",
    order="out a b scale_a scale_b alphas ...", kind="matmul")  # fmt: skip
def grouped_fp4(out: TensorSpec, a: TensorSpec, b: TensorSpec, scale_a: TensorSpec, scale_b: TensorSpec) -> Cost:
    depth = 2 * a.shape[-1]
    return _cost(a.shape[0], [_matrices(b, depth)], "float4_e2m1fn_x2", a, scale_a, out, scales=(scale_b,))


def _of_fbgemm(*names: str) -> list[str]:
    """Meta's ops, in both of their namespaces."""
    return [f"{space}::{name}" for space in ("fbgemm", "mslk") for name in names]


@op(*_of_fbgemm("bf16bf16bf16_grouped_stacked"), order="a b m_sizes ...", kind="matmul")
@op(*_of_fbgemm("f8f8bf16_rowwise_grouped_stacked", "f8f8bf16_groupwise_grouped", "mx8mx8bf16_grouped_mm"),
    order="a b scale_a scale_b ...", kind="matmul")  # fmt: skip
@op(*_of_fbgemm("bf16i4bf16_shuffled_grouped"), order="a b scale_b zero_b m_sizes", kind="matmul")
@op(*_of_fbgemm("f8i4bf16_shuffled_grouped"), order="a b scale_a scale_b zero_b m_sizes", kind="matmul")
def stacked(a: TensorSpec, b: TensorSpec, scale_a: object = None, scale_b: object = None, zero_b: object = None) -> Cost:
    """Rows of all groups one after the other, weights (G, N, K), perhaps of 4 bits; the result is bf16."""
    matrices = _matrices(b, a.shape[-1])
    made = spec((a.shape[0], matrices.columns), "bfloat16")
    return _cost(a.shape[0], [matrices], a.dtype, a, opt(scale_a), made, scales=(opt(scale_b), opt(zero_b)))


@op(*_of_fbgemm("bf16bf16bf16_grouped", "bf16bf16bf16_grouped_cat"), order="a[] b[]", kind="matmul")
@op(*_of_fbgemm("f8f8bf16_rowwise_grouped", "f8f8bf16_rowwise_grouped_cat"), order="a[] b[] scale_a[] scale_b[]", kind="matmul")
def listed(a: list[TensorSpec], b: list[TensorSpec], scale_a: object = None, scale_b: object = None) -> Cost:
    """A product a pair of (M, K) and (N, K); the results are bf16."""
    sizes = [(product(x.shape[:-1]), w.shape[-2], x.shape[-1]) for x, w in zip(a, b, strict=True)]
    made = [spec((m, n), "bfloat16") for m, n, _ in sizes]
    flops = sum(2 * m * n * k for m, n, k in sizes)
    return Cost(flops, 0, nbytes(a, b, scale_a, scale_b, made), operands=a[0].dtype if a else None)


@op("_moe_C::moe_wna16_gemm", order="a out b scales zeros topk_weights sorted_ids expert_ids padded top_k ...", kind="matmul")
def grouped_packed(
    a: TensorSpec, out: TensorSpec, b: TensorSpec, scales: TensorSpec, top_k: object, zeros: object = None
) -> Cost:
    rows = a.shape[0] * need(top_k, "top_k")
    return _cost(rows, [_matrices(b, a.shape[-1])], a.dtype, a, out, scales=(scales, opt(zeros)))


@op(
    "aiter::ck_moe_stage1",
    order="hidden w1 w2 sorted_ids expert_ids valid out top_k kernel w1_scale a1_scale ...",
    kind="matmul",
)
def stage_1(
    hidden: TensorSpec, w1: TensorSpec, out: TensorSpec, top_k: object, w1_scale: object = None, a1_scale: object = None
) -> Cost:
    rows = hidden.shape[0] * need(top_k, "top_k")
    return _cost(rows, [_matrices(w1, hidden.shape[-1])], hidden.dtype, hidden, out, opt(a1_scale), scales=(opt(w1_scale),))


@op(
    "aiter::ck_moe_stage2",
    order="inner w1 w2 sorted_ids expert_ids valid out top_k kernel w2_scale a2_scale ...",
    kind="matmul",
)
def stage_2(inner: TensorSpec, w2: TensorSpec, out: TensorSpec, w2_scale: object = None, a2_scale: object = None) -> Cost:
    rows = product(inner.shape[:-1])
    return _cost(rows, [_matrices(w2, inner.shape[-1])], inner.dtype, inner, out, opt(a2_scale), scales=(opt(w2_scale),))


@op("aiter::moe_cktile2stages_gemm1_ck", "aiter::moe_cktile2stages_gemm2_ck", kind="matmul",
    order="a b out sorted_ids expert_ids valid top_k n_zeros k_zeros weights scale_a scale_b bias ...")  # fmt: skip
def stage_of_tiles(
    a: TensorSpec, b: TensorSpec, out: TensorSpec, top_k: object, scale_a: object = None, scale_b: object = None,
    bias: object = None,
) -> Cost:  # fmt: skip
    """In the first stage each token becomes top_k rows; the second stage gets those rows."""
    rows = product(a.shape[:-1]) * (need(top_k, "top_k") if len(a.shape) == 2 else 1)
    return _cost(rows, [_matrices(b, a.shape[-1])], a.dtype, a, out, opt(scale_a), scales=(opt(scale_b), opt(bias)))


# ---------------------------------------------------------------------------------------------- a layer of an engine


# Ops that choose experts, and where they have k: an argument, or a tensor of (T, k).
_TOP_K = {
    "autograd::TopK": 1, "aten::topk": 1, "_moe_C::topk_softmax": 0, "_moe_C::topk_sigmoid": 0, "aiter::topk_softmax": 0,
    "aiter::topk_softmax_asm": 0, "aiter::topk_sigmoid": 0, "sgl_kernel::topk_softmax": 0, "sgl_kernel::topk_sigmoid": 0,
    "aiter::grouped_topk": 1, "aiter::biased_grouped_topk_hip": 2, "vllm::rocm_aiter_topk_softmax": 0,
}  # fmt: skip


def _top_k(inside: list[list[object]]) -> int:
    found = set()
    for name, *args in inside:
        at = _TOP_K.get(str(name))
        value = args[at] if at is not None and at < len(args) else None
        value = value.shape[-1] if isinstance(value, TensorSpec) and len(value.shape) == 2 else value
        if isinstance(value, int) and not isinstance(value, bool):
            found.add(value)
    if len(found) != 1:
        raise Missing("how many experts a token takes is not recorded")
    return found.pop()


def _expert_weights(inside: list[list[object]], experts: int, size: int) -> tuple[TensorSpec, TensorSpec]:
    """The two tensors of (E, ., .) that fit hidden states of a size and each other. Raises Missing if not exactly two do."""
    tensors = {arg for _, *args in inside for arg in args if isinstance(arg, TensorSpec) and len(arg.shape) == 3}
    found = {t.shape: t for t in tensors if t.shape[0] == experts and t.itemsize is not None}.values()
    fits = [(w1, w2) for w1 in found for w2 in found if w1 is not w2 and _fitting(w1, w2, size)]
    if len(fits) != 1:
        raise Missing("the weights of the experts are not recorded")
    return fits[0]


@op("vllm::moe_forward", "vllm::moe_forward_shared", order="hidden router_logits ...", kind="matmul", composed=True)
def moe_forward(
    hidden: TensorSpec, router_logits: TensorSpec, top_k: object = None, sizes: object = None, padded: object = True,
    gated: object = True, *, inside: object = None,
) -> Cost:  # fmt: skip
    """A whole layer of experts: E from the scores of the router, k and the weights from the ops inside, else from tiles and the
    model (`top_k`, `sizes` of hidden states and between the products; padded: at most these)."""
    if isinstance(top_k, int) and isinstance(sizes, tuple):
        return _of_sizes(hidden, router_logits, top_k, sizes, padded=padded is True, halves=2 if gated else 1)
    if not isinstance(inside, list):
        raise Missing("neither the weights of the experts nor how many of them a token takes are recorded")
    rows = hidden.shape[0] * _top_k(inside)
    w1, w2 = _expert_weights(inside, router_logits.shape[-1], hidden.shape[-1])
    return _both(hidden, w1, w2, rows, router_logits)


def _of_sizes(hidden: TensorSpec, scores: TensorSpec, top_k: int, sizes: tuple[int, int], *, padded: bool, halves: int) -> Cost:
    """Products of hidden x halves·inner and inner x hidden; of the bytes only the activations are known."""
    size, inner = sizes
    rows = hidden.shape[0] * top_k
    text = f"rows={rows},E={scores.shape[-1]},K1={size},N1={halves * inner},K2={inner},N2={size},inferred"
    least = nbytes(hidden, spec(hidden.shape, hidden.dtype), scores)
    flops = 2 * rows * size * inner * (halves + 1)
    return Cost(flops, 0, None, params=text, inferred=True, at_least=least, bound="upper" if padded else "")


@op("autograd::TopK", order="scores k ...")
def choose(scores: TensorSpec, k: object) -> Cost:
    """triton_kernels': the k greatest of each row, their softmax, and a bit for each expert; a place has 16 bits."""
    rows, experts = scores.shape[0], scores.shape[-1]
    chosen = (rows, need(k, "k"))
    written = [spec(chosen, scores.dtype), spec(chosen, "int16"), spec((-(-rows * experts // 32),), "int32")]
    return vector(scores.numel + 5 * rows * chosen[1], scores, written)


@op("autograd::SortTokens", order="weights experts ...")
def sort_tokens(weights: TensorSpec, experts: TensorSpec) -> Cost:
    """triton_kernels': the chosen (token, expert) pairs in the order of their experts, and where each came from and went."""
    pairs = weights.numel
    places = spec((2, pairs), "int32")
    return vector(pairs * max(pairs - 1, 0).bit_length(), weights, experts, gradient(weights), places)
