"""Attention of the flash-attention family as packages call it: flash-attn 2 and 3, vLLM's and SGLang's builds, aiter, xFormers.

Queries are (B, S, H, D) or packed (T, H, D), keys and values the same or pages of a cache. How long each packed sequence is, is
data. It is known where all are of one length, the number of requests times the longest being exactly the number of tokens (and,
under a causal mask, where no request has more keys than the longest has queries), or from the sums over requests in the
annotation of the engine's step; else the cost is unknown. Costs as in `attention`; of a cache the keys and values of these
requests are read. A causal mask and a window begin at the bottom right. Signatures: the packages' own schemas and interfaces.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from pyprof.model import scheduler_steps as engine_steps
from pyprof.model.dtypes import lookup
from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import nbytes, need, opt, product, spec
from pyprof.prof.formulas.attention import Heads, mask_pairs, rows_first
from pyprof.prof.formulas.registry import Cost, Missing, Op, op

_RAGGED = "lengths of sequences are data: neither all of one length nor in the annotation of an engine's step"
_NO_SUMS = "the annotation of the engine's step has no sums over requests"


# ---------------------------------------------------------------------------------------------- the requests of a step


def step_pairs(text: object, tokens: int, *, padded: bool = False) -> tuple[int, int]:
    """(query, key) pairs under a causal mask, and keys, of the requests in an engine's step of `tokens` tokens.

    padded: the batch may be larger than its requests, as in CUDA graphs. Raises Missing if the annotation does not tell.
    """
    step = engine_steps.read(text) if isinstance(text, str) else None
    if step is None:
        raise Missing(_RAGGED)
    parts = [part for part in (step.context, step.generation, step.total) if part is not None and part.sq]
    fits = {(part.pairs, part.sk) for part in parts if part.sq == tokens}
    if not fits and all(part.sq is None for part in (step.context or step.total, step.generation or step.total, step.total)):
        raise Missing(_NO_SUMS)
    if not fits and padded and 0 < (step.total.sq or 0) < tokens:
        fits = {(step.total.pairs, step.total.sk)}
    if len(fits) != 1:
        raise Missing("the annotation of the engine's step is of another number of tokens")
    pairs, keys = fits.pop()
    if pairs is None or keys is None:
        raise Missing(_NO_SUMS)
    return pairs, keys


def ragged(query: TensorSpec, d_v: int, cached: list[TensorSpec], sums: tuple[int, int], note: str = "") -> Cost:
    """Forward of requests of different lengths: sums, their pairs of queries and keys, and their keys.

    cached: what a cache holds of one key or value, in its type. Queries and these are read, the output is written, no sums of
    logarithms. note: what was assumed, for `params`; then there may be fewer pairs and keys than these.
    """
    pairs, keys = sums
    tokens, heads, d_qk = product(query.shape[:-2]), query.shape[-2], query.shape[-1]
    read = [spec((keys, *entry.shape), entry.dtype) for entry in cached]
    found = lookup(query.dtype)
    text = [f"T={tokens}", f"H={heads}", f"D={d_qk}", *([f"Dv={d_v}"] if d_v != d_qk else []), f"pairs={pairs}", f"keys={keys}"]
    text += [part for part in (found.tag if found else "", note) if part]
    moved = nbytes(query, read, spec((tokens, heads, d_v), query.dtype))
    cost = Cost(2 * heads * pairs * (d_qk + d_v), 0, moved, None, heads, ",".join(text), query.dtype)
    return replace(cost, inferred=True, bound="upper") if note else cost


# ---------------------------------------------------------------------------------------------- packages


class _Sequences(NamedTuple):
    """Offsets of packed queries and keys, the longest of each; paged: keys are in a cache, of which not all is theirs."""

    cu_q: object
    cu_k: object
    max_q: object
    max_k: object
    paged: bool


def _one_length(q: TensorSpec, k: TensorSpec, given: _Sequences, causal: bool) -> tuple[int, int, int] | None:
    """Number of sequences, and queries and keys of each, if all are of one length; else None."""
    offsets, tokens = opt(given.cu_q), product(q.shape[:-2])
    if offsets is None:
        if len(q.shape) < 4:
            return None
        count, queries = q.shape[0], q.shape[1]
    else:
        count = offsets.numel - 1
        queries = tokens if count == 1 else given.max_q if isinstance(given.max_q, int) else 0
        if count < 1 or count * queries != tokens:
            return None
    stored = product(k.shape[:-2])
    if not given.paged and opt(given.cu_k) is None and len(k.shape) == 4:
        return count, queries, k.shape[1]
    if not given.paged and (count == 1 or (isinstance(given.max_k, int) and count * given.max_k == stored)):
        return count, queries, stored // count
    return (count, queries, queries) if causal and given.max_k == queries else None


def _attention(
    tensors: tuple[TensorSpec, TensorSpec, TensorSpec], given: _Sequences, is_causal: object, window: tuple[object, object],
    engine_step: object,
) -> Heads | Cost:  # fmt: skip
    """Sizes of one attention problem; of sequences of different lengths its forward cost."""
    q, k, v = tensors
    causal = bool(need(is_causal, "is_causal"))
    left, right = (side if isinstance(side, int) else -1 for side in window)
    alike = _one_length(q, k, given, causal)
    if alike is None:
        if left >= 0 or not causal:
            raise Missing(_RAGGED)
        cached = [spec(t.shape[-2:], t.dtype) for t in (k, v)]
        return ragged(q, v.shape[-1], cached, step_pairs(engine_step, product(q.shape[:-2])))
    count, queries, keys = alike
    pairs = mask_pairs(queries, keys, "bottom_right" if causal else "full", left, right)
    own = [spec((count, keys, *t.shape[-2:]), t.dtype) for t in (k, v)] if given.paged else [k, v]
    return Heads(q, own[0], own[1], pairs, (count * q.shape[-2], queries, keys))


# What follows q, k and v; `out` of a backward is before them.
_PLAIN = "dropout_p softmax_scale is_causal window_left window_right ..."
_OFFSETS = "cu_q cu_k max_q max_k"
_FLASH_3 = (
    "k_new v_new q_v out cu_q cu_k cu_k_new seqused_q seqused_k max_q max_k page_table batch_idx leftpad_k cos sin "
    "seqlens_rotary q_descale k_descale v_descale softmax_scale is_causal window_left window_right ..."
)
_FLASH_3_LENGTHS = "cu_q cu_k seqused_q seqused_k max_q max_k"
_BACKWARD = "dout q k v out softmax_lse"

FORWARD = {
    "flash_attn::_flash_attn_forward": _PLAIN,
    "flash_attn::_flash_attn_varlen_forward": f"{_OFFSETS} {_PLAIN.replace(' ...', '')} softcap alibi softmax page_table ...",
    "flash_attn_3::fwd": _FLASH_3, "flash_attn_3::_flash_attn_forward": _FLASH_3, "_vllm_fa3_C::fwd": _FLASH_3,
    "sgl_kernel::fwd": _FLASH_3,
    "_vllm_fa2_C::varlen_fwd": "out cu_q cu_k seqused_k leftpad_k page_table alibi max_q max_k dropout_p softmax_scale zero "
    "is_causal window_left window_right ...",
    "aiter::_flash_attn_forward": _PLAIN, "aiter::mha_fwd": _PLAIN, "aiter::fmha_v3_fwd": _PLAIN,
    "aiter::wrapper_fmha_v3_fwd": _PLAIN,
    **dict.fromkeys(
        ("aiter::mha_varlen_fwd", "aiter::fmha_v3_varlen_fwd"),
        f"{_OFFSETS} min_q dropout_p softmax_scale softcap zero is_causal window_left window_right ...",
    ),
    "aiter::mha_batch_prefill": "cu_q kv_indptr page_table max_q max_k dropout_p softmax_scale softcap zero is_causal "
    "window_left window_right ...",
    "xformers_flash::flash_fwd": "cu_q cu_k seqused_k max_q max_k dropout_p softmax_scale is_causal window_left window_right "
    "softmax page_table ...",
}  # fmt: skip
BACKWARD = {
    "flash_attn::_flash_attn_backward": f"dq dk dv {_PLAIN}",
    "flash_attn::_flash_attn_varlen_backward": f"dq dk dv {_OFFSETS} {_PLAIN}",
    "flash_attn_3::bwd": f"dq dk dv {_FLASH_3_LENGTHS} softmax_scale is_causal window_left window_right ...",
    "flash_attn_3::_flash_attn_backward": f"{_FLASH_3_LENGTHS} dq dk dv softmax_scale is_causal window_left window_right ...",
    "aiter::_flash_attn_backward": f"dq dk dv dbias {_PLAIN}",
    "aiter::mha_bwd": _PLAIN, "aiter::fmha_v3_bwd": _PLAIN, "aiter::wrapper_fmha_v3_bwd": _PLAIN,
    **dict.fromkeys(
        ("aiter::mha_varlen_bwd", "aiter::fmha_v3_varlen_bwd"),
        f"{_OFFSETS} dropout_p softmax_scale zero is_causal window_left window_right ...",
    ),
}  # fmt: skip
# torch.autograd.Functions of these packages, by their classes' names; where a trace has none of their arguments the ops inside
# them may have been recorded.
FUNCTIONS = {
    "FlashAttnFunc": "q k v dropout_p softmax_scale is_causal ...",
    "FlashAttnVarlenFunc": f"q k v {_OFFSETS} dropout_p softmax_scale is_causal ...",
}


def _declare(name: str, order: str) -> None:
    @op(name, order=f"q k v {order}", kind="matmul")
    def forward(
        q: TensorSpec, k: TensorSpec, v: TensorSpec, is_causal: object = UNKNOWN, cu_q: object = None, cu_k: object = None,
        max_q: object = None, max_k: object = None, window_left: object = -1, window_right: object = -1,
        seqused_k: object = None, page_table: object = None, *, engine_step: object = None,
    ) -> Cost:  # fmt: skip
        paged = opt(page_table) is not None or opt(seqused_k) is not None
        given = _Sequences(cu_q, cu_k, max_q, max_k, paged)
        made = _attention((q, k, v), given, is_causal, (window_left, window_right), engine_step)
        return made if isinstance(made, Cost) else made.forward()


def _declare_backward(name: str, order: str) -> None:
    @op(name, order=f"{_BACKWARD} {order}", kind="matmul")
    def backward(
        q: TensorSpec, k: TensorSpec, v: TensorSpec, is_causal: object = UNKNOWN, cu_q: object = None, cu_k: object = None,
        max_q: object = None, max_k: object = None, window_left: object = -1, window_right: object = -1,
    ) -> Cost:  # fmt: skip
        made = _attention((q, k, v), _Sequences(cu_q, cu_k, max_q, max_k, False), is_causal, (window_left, window_right), None)
        if isinstance(made, Cost):
            raise Missing(_RAGGED)
        return made.backward()


def _declare_function(name: str, order: str) -> None:
    @op(f"autograd::{name}", order=order, kind="matmul", composed=True)
    def function(
        q: TensorSpec, k: TensorSpec, v: TensorSpec, is_causal: object = UNKNOWN, cu_q: object = None, cu_k: object = None,
        max_q: object = None, max_k: object = None,
    ) -> Op:  # fmt: skip
        made = _attention((q, k, v), _Sequences(cu_q, cu_k, max_q, max_k, False), is_causal, (-1, -1), None)
        if isinstance(made, Cost):
            raise Missing(_RAGGED)
        yield made.forward()
        yield from made.piece()


for _name, _order in FORWARD.items():
    _declare(_name, _order)
for _name, _order in BACKWARD.items():
    _declare_backward(_name, _order)
for _name, _order in FUNCTIONS.items():
    _declare_function(_name, _order)


@op("xformers::efficient_attention_forward_cutlass", kind="matmul",
    order="query key value bias cu_seqlens_q cu_seqlens_k max_seqlen_q dropout_p lse custom_mask_type ...")  # fmt: skip
def xformers_cutlass(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, bias: object, cu_seqlens_q: object, cu_seqlens_k: object,
    max_seqlen_q: object, custom_mask_type: object = UNKNOWN,
) -> Cost:  # fmt: skip
    """The mask's kind: none, causal from the top left or from the bottom right. Packed keys are as long as the queries."""
    mask = ("full", "top_left", "bottom_right")[need(custom_mask_type, "custom_mask_type")]
    longest = (max_seqlen_q, max_seqlen_q)
    return rows_first((query, key, value), (cu_seqlens_q, cu_seqlens_k), longest, mask).forward(opt(bias))


# SageAttention's: queries and keys in int8, values in fp16 or fp8, transposed and padded; by device and accumulator.
_SAGE = {
    "sageattention": "f16_accum_f16_attn f16_accum_f32_attn f16_accum_f16_attn_inst_buf f16_accum_f16_fuse_v_mean_attn",
    "sageattention_sm89": "f8_accum_f32_fuse_v_scale_attn f8_accum_f32_fuse_v_scale_attn_inst_buf "
    "f8_accum_f16_fuse_v_scale_attn_inst_buf f8_accum_f32_fuse_v_scale_fuse_v_mean_attn",
    "sageattention_sm90": "f8_accum_f32_attn_inst_buf f8_accum_f32_fuse_v_scale_attn_inst_buf",
}


@op(*(f"{space}::qk_int8_sv_{name}" for space, listed in _SAGE.items() for name in listed.split()), order="", kind="matmul")
def sage(*args: object) -> Cost:
    """(queries, keys, values, output, scales ..., layout, is_causal, ...); layout 0: (B, S, H, D), 1: (B, H, S, D)."""
    q, k, _, out = (opt(arg) for arg in (*args[:4], *(None,) * 4)[:4])
    numbers = [arg for arg in args[4:] if isinstance(arg, int)]
    if q is None or k is None or out is None or len(numbers) < 2:
        raise Missing("layout and mask not recorded")
    at = (2, 1)[numbers[0] == 0]  # where the sequence is
    queries, keys, heads = q.shape[at], k.shape[at], product(q.shape[:3]) // max(q.shape[at], 1)
    pairs = mask_pairs(queries, keys, "top_left" if numbers[1] else "full")
    text = (
        f"BH={heads},Sq={queries},Sk={keys},D={q.shape[-1]}" + (f",pairs={pairs}" if pairs != queries * keys else "") + ",int8"
    )
    moved = nbytes(*(arg for arg in args if isinstance(arg, TensorSpec)))
    return Cost(2 * heads * pairs * (q.shape[-1] + out.shape[-1]), 0, moved, None, heads, text, q.dtype)


def _split(packed: TensorSpec) -> list[TensorSpec]:
    """Split a packed tensor (B, S, parts, H, D) into its parts."""
    return [spec((*packed.shape[:-3], *packed.shape[-2:]), packed.dtype)] * packed.shape[-3]


@op("autograd::FlashAttnQKVPackedFunc", order="qkv dropout_p softmax_scale is_causal ...", kind="matmul", composed=True)
def packed_qkv(qkv: TensorSpec, is_causal: object) -> Op:
    q, k, v = _split(qkv)
    return _dense(q, k, v, is_causal)


@op("autograd::FlashAttnKVPackedFunc", order="q kv dropout_p softmax_scale is_causal ...", kind="matmul", composed=True)
def packed_kv(q: TensorSpec, kv: TensorSpec, is_causal: object) -> Op:
    k, v = _split(kv)
    return _dense(q, k, v, is_causal)


def _dense(q: TensorSpec, k: TensorSpec, v: TensorSpec, is_causal: object) -> Op:
    made = _attention((q, k, v), _Sequences(None, None, None, None, False), is_causal, (-1, -1), None)
    if isinstance(made, Cost):
        raise Missing(_RAGGED)
    yield made.forward()
    yield from made.piece()


# ---------------------------------------------------------------------------------------------- inference engines


@op("vllm::unified_attention_with_output", order="query key value output ...", kind="matmul", composed=True)
@op("vllm::unified_attention", order="query key value ...", kind="matmul", composed=True)
def unified_attention(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, windowed: object = None, window: object = None, *,
    engine_step: object = None,
) -> Cost:  # fmt: skip
    """All requests of a step; keys and values in the cache are assumed to have the dtype of the ones passed.

    Whether the layer has a window is not recorded: full attention is an upper bound, unless a kernel's name or the model says
    that there is none (`windowed`, `window`).
    """
    q, k, v = (_by_heads(t, query) for t in (query, key, value))
    sums = step_pairs(engine_step, q.shape[0], padded=True)
    exact = windowed is False
    note = "" if exact else "window-not-recorded" if windowed else "full-attention-assumed"
    if isinstance(window, int) and windowed:
        sums, exact = _in_window(sums, engine_step, q.shape[0], window)
        note = f"window={window}" + ("" if exact else ",at-most")
    cost = ragged(q, v.shape[-1], [spec(t.shape[-2:], t.dtype) for t in (k, v)], sums, note)
    if exact:
        return replace(cost, bound="")
    if windowed and not isinstance(window, int):  # how many keys are read is not known either
        return replace(cost, bytes=None, at_least=nbytes(q, spec((*q.shape[:-1], v.shape[-1]), q.dtype)))
    return cost


def _in_window(sums: tuple[int, int], text: object, tokens: int, window: int) -> tuple[tuple[int, int], bool]:
    """Pairs and keys of a step in a window; whether exactly, as of one request, or at most these."""
    step = engine_steps.read(text) if isinstance(text, str) else None
    total = None if step is None else step.total
    pairs, keys = sums
    if total is not None and total.requests == 1 and total.sq:
        return (mask_pairs(total.sq, keys, "bottom_right", window - 1, 0), min(keys, total.sq + window - 1)), True
    requests = tokens if total is None or total.requests is None else total.requests
    return (min(pairs, tokens * window), min(keys, tokens + requests * (window - 1))), False


def _by_heads(t: TensorSpec, query: TensorSpec) -> TensorSpec:
    """The tensor as (tokens, heads, size). Raises Missing for (tokens, heads x size), which does not show the heads."""
    if len(t.shape) != 3:
        raise Missing("the number of heads is not recorded")
    return t


@op(
    "_C::paged_attention_v1",
    "aiter::paged_attention_v1",
    order="out query key_cache value_cache num_kv_heads ...",
    kind="matmul",
)
@op(
    "_C::paged_attention_v2",
    order="out exp_sums max_logits tmp_out query key_cache value_cache num_kv_heads ...",
    kind="matmul",
)
def paged_attention(
    query: TensorSpec, key_cache: TensorSpec, value_cache: TensorSpec, num_kv_heads: object, *, engine_step: object = None
) -> Cost:
    shared, size = need(num_kv_heads, "num_kv_heads"), query.shape[-1]
    cached = [spec((shared, size), cache.dtype) for cache in (key_cache, value_cache)]
    return ragged(query, size, cached, step_pairs(engine_step, query.shape[0], padded=True))


@op("aiter::paged_attention_ragged", "sglang_profiler::attention_paged_attention_ragged",
    order="out workspace query key_cache value_cache ...", kind="matmul")  # fmt: skip
def paged_attention_ragged(
    query: TensorSpec, key_cache: TensorSpec, value_cache: TensorSpec, *, engine_step: object = None
) -> Cost:
    """Pages of (page, heads, size)."""
    cached = [spec(cache.shape[-2:], cache.dtype) for cache in (key_cache, value_cache)]
    return ragged(query, query.shape[-1], cached, step_pairs(engine_step, query.shape[0], padded=True))


@op("sgl_kernel::cutlass_mla_decode", order="out q_nope q_pe cache ...", kind="matmul")
@op("_C::sm100_cutlass_mla_decode", order="out lse q_nope q_pe cache ...", kind="matmul")
def latent_decode(q_nope: TensorSpec, q_pe: TensorSpec, cache: TensorSpec, *, engine_step: object = None) -> Cost:
    """Keys are the whole entry of the cache, values its part without positions; all heads share it."""
    query = spec((*q_nope.shape[:-1], q_nope.shape[-1] + q_pe.shape[-1]), q_nope.dtype)
    sums = step_pairs(engine_step, query.shape[0], padded=True)
    return ragged(query, q_nope.shape[-1], [spec(cache.shape[-1:], cache.dtype)], sums)


@op("vllm::unified_mla_attention_with_output", order="q kv_c k_pe output ...", kind="matmul", composed=True)
def latent_step(q: TensorSpec, kv_c: TensorSpec, k_pe: TensorSpec, output: TensorSpec, *, engine_step: object = None) -> Cost:
    """A step that only decodes: queries by the keys' weights, attention over the cache, its result by the values' weights.

    A step with prefill takes other products, by other ops inside; a sparse layer attends to fewer keys than these.
    """
    q = _by_heads(q, q)
    tokens, heads, latent, positions = q.shape[0], q.shape[1], kv_c.shape[-1], k_pe.shape[-1]
    step = engine_steps.read(engine_step) if isinstance(engine_step, str) else None
    if step is None or step.phase != engine_steps.DECODE:
        raise Missing("which products a step with prefill takes is not recorded")
    own, made = q.shape[-1] - positions, output.numel // max(tokens * heads, 1)
    query, cached = spec((tokens, heads, latent + positions), q.dtype), spec((latent + positions,), kv_c.dtype)
    sums = step_pairs(engine_step, tokens, padded=True)
    cost = ragged(query, latent, [cached], sums, "full-attention-assumed")
    products = spec((heads, latent, own + made), q.dtype)
    moved = nbytes(q, spec((sums[1], *cached.shape), cached.dtype), output, products)
    return replace(cost, matmul_flops=(cost.matmul_flops or 0) + 2 * tokens * products.numel, bytes=moved)


@op("aiter::mla_decode_stage1_asm_fwd", order="q cache qo_indptr kv_indptr kv_page_indices kv_last_page_lens splits metadata "
    "work work_info max_q page_size heads scale split_data split_lse output ...", kind="matmul")  # fmt: skip
def latent_decode_aiter(q: TensorSpec, cache: TensorSpec, output: TensorSpec, *, engine_step: object = None) -> Cost:
    sums = step_pairs(engine_step, q.shape[0], padded=True)
    return ragged(q, output.shape[-1], [spec(cache.shape[-1:], cache.dtype)], sums)
