"""Attention under all of its names: scaled_dot_product_attention and the flash, efficient, cuDNN and CPU ops behind it.

Forward 2·B·H·pairs·(Dqk + Dv), H being the query's heads and pairs the (query, key) pairs that the mask leaves: Sq·Sk without
one; causal from the top left, the i-th query sees min(i+1, Sk) keys; causal from the bottom right, min(i+1+Sk-Sq, Sk). The
softmax inside is not counted. Backward 5 products instead of 2 (scores again, dV, dP, dQ, dK): 2·B·H·pairs·(3·Dqk + 2·Dv),
2.5 times the forward, as the fused kernels do it. Bytes: Q, K, V and the mask read, the output and its log-sum-exp written;
backward also reads the output and its gradient. A mask given as a tensor is not known by its content: all pairs count.
"""

from __future__ import annotations

from typing import Any

from pyprof.dtypes import lookup
from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import gradient, nbytes, need, opt, product, spec, vector, wants
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__ = ["mask_pairs"]


def mask_pairs(queries: int, keys: int, mask: str = "full", left: int = -1, right: int = -1) -> int:
    """(query, key) pairs that a mask leaves of one head: `full`, `top_left` or `bottom_right` causal, or with a window.

    left, right: how many keys before and after its own a query sees, counted from the bottom right; -1: all of them.
    """
    if mask == "full" and left < 0 and right < 0:
        return queries * keys
    shift = 0 if mask == "top_left" else keys - queries
    if mask != "full":
        right = 0 if right < 0 else min(right, 0)
    total = 0
    if left < 0 and right == 0:  # sum of min(i + 1 + shift, keys) where positive, in closed form
        first = max(0, -shift)
        last = min(queries, max(keys - shift, 0))  # from here on every key is seen
        rows = max(last - first, 0)
        total = rows * (first + 1 + shift) + rows * (rows - 1) // 2
        return total + max(queries - max(last, first), 0) * keys
    for i in range(queries):
        begin = 0 if left < 0 else max(0, i + shift - left)
        end = keys if right < 0 else min(keys, i + shift + right + 1)
        total += max(0, end - begin)
    return total


class _Heads:
    """Sizes of one attention problem."""

    def __init__(self, q: TensorSpec, k: TensorSpec, v: TensorSpec, pairs: int, batch_heads: int, queries: int) -> None:
        self.q, self.k, self.v, self.pairs = q, k, v, pairs
        self.batch_heads, self.queries = batch_heads, queries
        self.d_qk, self.d_v = q.shape[-1], v.shape[-1]

    @property
    def out(self) -> TensorSpec:
        return spec((*self.q.shape[:-1], self.d_v), self.q.dtype)

    @property
    def lse(self) -> TensorSpec:
        return spec((self.batch_heads * self.queries,), "float32")

    def _cost(self, flops: int, text: str, *tensors: Any) -> Cost:
        return Cost(flops, 0, nbytes(*tensors), None, self.batch_heads, text)

    def _text(self, keys: int) -> str:
        found = lookup(self.q.dtype)
        parts = [f"BH={self.batch_heads}", f"Sq={self.queries}", f"Sk={keys}", f"D={self.d_qk}"]
        if self.d_v != self.d_qk:
            parts.append(f"Dv={self.d_v}")
        if self.pairs != self.queries * keys:
            parts.append(f"pairs={self.pairs}")
        return ",".join(parts + ([found.tag] if found else []))

    def forward(self, keys: int, *extra: Any) -> Cost:
        flops = 2 * self.batch_heads * self.pairs * (self.d_qk + self.d_v)
        return self._cost(flops, self._text(keys), self.q, self.k, self.v, extra, self.out, self.lse)

    def backward(self, keys: int, *extra: Any) -> Cost:
        flops = 2 * self.batch_heads * self.pairs * (3 * self.d_qk + 2 * self.d_v)
        read = (gradient(self.out), self.q, self.k, self.v, self.out, self.lse, extra)
        written = (gradient(self.q), gradient(self.k), gradient(self.v))
        return self._cost(flops, self._text(keys), read, written)


def _dense(q: TensorSpec, k: TensorSpec, v: TensorSpec, is_causal: Any) -> _Heads:
    """Tensors (..., heads, sequence, size), as scaled_dot_product_attention takes them; causal begins at the top left."""
    causal = need(is_causal, "is_causal")
    queries, keys = q.shape[-2], k.shape[-2]
    return _Heads(q, k, v, mask_pairs(queries, keys, "top_left" if causal else "full"), product(q.shape[:-2]), queries)


_SDPA = (
    "torch.nn.functional.scaled_dot_product_attention", "torch.scaled_dot_product_attention",
    "aten::scaled_dot_product_attention", "torch._C._nn.scaled_dot_product_attention",
    "torch._scaled_dot_product_attention_math", "aten::_scaled_dot_product_attention_math",
)  # fmt: skip
_WITH_BIAS = (
    "torch._scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_efficient_attention",
    "torch._scaled_dot_product_cudnn_attention", "aten::_scaled_dot_product_cudnn_attention",
)  # fmt: skip
_FLASH = ("torch._scaled_dot_product_flash_attention", "aten::_scaled_dot_product_flash_attention")
_CPU = ("torch._scaled_dot_product_flash_attention_for_cpu", "aten::_scaled_dot_product_flash_attention_for_cpu")
_OVERRIDEABLE = (
    "torch._scaled_dot_product_fused_attention_overrideable", "aten::_scaled_dot_product_fused_attention_overrideable",
)  # fmt: skip


@formula(*_SDPA, kind="matmul")
def sdpa(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, attn_mask: Any = None, dropout_p: Any = 0.0, is_causal: Any = False,
    scale: Any = None, enable_gqa: Any = False, *more: Any,
) -> Cost:  # fmt: skip
    return _dense(query, key, value, is_causal).forward(key.shape[-2], opt(attn_mask))


@backward(*_SDPA)
def sdpa_backward(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, attn_mask: Any = None, dropout_p: Any = 0.0, is_causal: Any = False,
    scale: Any = None, enable_gqa: Any = False, *more: Any,
) -> tuple[Piece, ...]:  # fmt: skip
    return _one_piece(_dense(query, key, value, is_causal), key.shape[-2], attn_mask)


def _one_piece(heads: _Heads, keys: int, mask: Any = None) -> tuple[Piece, ...]:
    if not any(map(wants, (heads.q, heads.k, heads.v))):
        return ()
    return (Piece("attention", heads.backward(keys, opt(mask))),)


@formula(*_WITH_BIAS, kind="matmul")
def sdpa_with_bias(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, attn_bias: Any, compute_log_sumexp: Any, dropout_p: Any = 0.0,
    is_causal: Any = False, return_debug_mask: Any = False, scale: Any = None,
) -> Cost:  # fmt: skip
    return _dense(query, key, value, is_causal).forward(key.shape[-2], opt(attn_bias))


@backward(*_WITH_BIAS)
def sdpa_with_bias_backward(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, attn_bias: Any, compute_log_sumexp: Any, dropout_p: Any = 0.0,
    is_causal: Any = False, return_debug_mask: Any = False, scale: Any = None,
) -> tuple[Piece, ...]:  # fmt: skip
    return _one_piece(_dense(query, key, value, is_causal), key.shape[-2], attn_bias)


@formula(*_FLASH, *_CPU, kind="matmul")
def sdpa_flash(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, dropout_p: Any = 0.0, is_causal: Any = False, *more: Any,
    attn_mask: Any = None, scale: Any = None, return_debug_mask: Any = False,
) -> Cost:  # fmt: skip
    return _dense(query, key, value, is_causal).forward(key.shape[-2], [m for m in (attn_mask, *more) if opt(m)])


@backward(*_FLASH, *_CPU)
def sdpa_flash_backward(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, dropout_p: Any = 0.0, is_causal: Any = False, *more: Any,
    attn_mask: Any = None, scale: Any = None, return_debug_mask: Any = False,
) -> tuple[Piece, ...]:  # fmt: skip
    return _one_piece(_dense(query, key, value, is_causal), key.shape[-2])


@formula(*_OVERRIDEABLE, kind="matmul")
def sdpa_overrideable(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, attn_bias: Any = None, dropout_p: Any = 0.0, is_causal: Any = False,
    return_debug_mask: Any = False, scale: Any = None,
) -> Cost:  # fmt: skip
    return _dense(query, key, value, is_causal).forward(key.shape[-2], opt(attn_bias))


@formula("torch.nn.attention.flex_attention.flex_attention", kind="matmul", composed=True)
def flex_attention(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, score_mod: Any = None, block_mask: Any = None, *more: Any,
    **options: Any,
) -> Cost:  # fmt: skip
    # A change of the scores is a function of each pair; which blocks a mask leaves is data.
    if block_mask is not None:
        raise Missing("the blocks of a mask are data, not recorded")
    return _dense(query, key, value, False).forward(key.shape[-2])


# ---------------------------------------------------------------------------------------------- (batch, sequence, heads, size)


def _lengths(t: TensorSpec, cu_seqlens: Any, longest: Any) -> tuple[int, int]:
    """Number of sequences and the length of each, of a (B, S, H, D) or a packed (T, H, D) tensor.

    Raises Missing where packed sequences differ in length: what they are is data.
    """
    offsets = opt(cu_seqlens)
    if offsets is None:
        if len(t.shape) < 4:
            raise Missing("sequence lengths not recorded")
        return t.shape[0], t.shape[1]
    count, total = offsets.numel - 1, product(t.shape[:-2])
    if count == 1 or (isinstance(longest, int) and count * longest == total):
        return count, total // max(count, 1)
    raise Missing("lengths of packed sequences are data, not recorded")


def _rows_first(
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    cu: tuple[Any, Any],
    longest: tuple[Any, Any],
    mask: str,
    window: tuple[int, int],
) -> tuple[_Heads, int]:
    count, queries = _lengths(q, cu[0], longest[0])
    _, keys = _lengths(k, cu[1], longest[1])
    pairs = mask_pairs(queries, keys, mask, *window)
    return _Heads(q, k, v, pairs, count * q.shape[-2], queries), keys


def _side(value: Any) -> int:
    return value if isinstance(value, int) else -1


def _flash_problem(
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    cu: tuple[Any, Any],
    longest: tuple[Any, Any],
    is_causal: Any,
    left: Any,
    right: Any,
) -> tuple[_Heads, int]:
    mask = "bottom_right" if need(is_causal, "is_causal") else "full"
    return _rows_first(q, k, v, cu, longest, mask, (_side(left), _side(right)))


@formula("aten::_flash_attention_forward", "torch._flash_attention_forward", kind="matmul")
def flash_forward(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, cum_seq_q: Any, cum_seq_k: Any, max_q: Any, max_k: Any,
    dropout_p: Any = 0.0, is_causal: Any = False, return_debug_mask: Any = False, scale: Any = None,
    window_size_left: Any = None,
    window_size_right: Any = None, seqused_k: Any = None, alibi_slopes: Any = None, *more: Any,
) -> Cost:  # fmt: skip
    cu, longest = (cum_seq_q, cum_seq_k), (max_q, max_k)
    heads, keys = _flash_problem(query, key, value, cu, longest, is_causal, window_size_left, window_size_right)
    return heads.forward(keys)


@formula(*spellings("_flash_attention_forward_no_dropout_inplace", "ta"), kind="matmul")
def flash_forward_into(
    out: TensorSpec, query: TensorSpec, key: TensorSpec, value: TensorSpec, cum_seq_q: Any, cum_seq_k: Any, max_q: Any,
    max_k: Any, *options: Any, **more: Any,
) -> Cost:  # fmt: skip
    return flash_forward(query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, *options, **more)


@formula(
    "flash_attn::_flash_attn_forward", "flash_attn_3::fwd", kind="matmul",
)  # fmt: skip
def flash_attn_forward(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, dropout_p: Any = 0.0, softmax_scale: Any = None, causal: Any = False,
    window_size_left: Any = -1, window_size_right: Any = -1, *more: Any,
) -> Cost:  # fmt: skip
    # Of the flash-attn package (github.com/Dao-AILab/flash-attention, flash_attn_interface.py).
    heads, keys = _flash_problem(q, k, v, (None, None), (None, None), causal, window_size_left, window_size_right)
    return heads.forward(keys)


@formula("aten::_efficient_attention_forward", "torch._efficient_attention_forward", kind="matmul")
def efficient_forward(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, bias: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: Any,
    max_seqlen_k: Any, dropout_p: Any = 0.0, custom_mask_type: Any = 0, compute_log_sumexp: Any = False, *more: Any,
) -> Cost:  # fmt: skip
    # custom_mask_type: 0 none, 1 causal from the top left, 2 from the bottom right.
    mask = ("full", "top_left", "bottom_right")[need(custom_mask_type, "custom_mask_type")]
    cu, longest = (cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k)
    heads, keys = _rows_first(query, key, value, cu, longest, mask, (-1, -1))
    return heads.forward(keys, opt(bias))


# ---------------------------------------------------------------------------------------------- backward ops of the dispatcher


@formula("aten::_scaled_dot_product_flash_attention_backward", kind="matmul")
def aten_sdpa_flash_backward(
    grad_out: TensorSpec, query: TensorSpec, key: TensorSpec, value: TensorSpec, out: TensorSpec, logsumexp: TensorSpec,
    cum_seq_q: Any = None, cum_seq_k: Any = None, max_q: Any = None, max_k: Any = None, dropout_p: Any = 0.0,
    is_causal: Any = UNKNOWN, *more: Any,
) -> Cost:  # fmt: skip
    return _dense(query, key, value, is_causal).backward(key.shape[-2])


@formula("aten::_scaled_dot_product_fused_attention_overrideable_backward", kind="matmul")
def aten_sdpa_overrideable_backward(
    grad_out: TensorSpec, query: TensorSpec, key: TensorSpec, value: TensorSpec, attn_bias: Any, grad_input_mask: Any,
    out: TensorSpec, logsumexp: TensorSpec, cum_seq_q: Any = None, cum_seq_k: Any = None, max_q: Any = None, max_k: Any = None,
    dropout_p: Any = 0.0, is_causal: Any = UNKNOWN, *more: Any,
) -> Cost:  # fmt: skip
    return _dense(query, key, value, is_causal).backward(key.shape[-2], opt(attn_bias))


@formula("aten::_scaled_dot_product_flash_attention_for_cpu_backward", kind="matmul")
def aten_sdpa_cpu_backward(
    grad_out: TensorSpec, query: TensorSpec, key: TensorSpec, value: TensorSpec, out: TensorSpec, logsumexp: TensorSpec,
    dropout_p: Any = 0.0, is_causal: Any = UNKNOWN, attn_mask: Any = None, scale: Any = None,
) -> Cost:  # fmt: skip
    return _dense(query, key, value, is_causal).backward(key.shape[-2], opt(attn_mask))


@formula("aten::_scaled_dot_product_efficient_attention_backward", kind="matmul")
def aten_sdpa_efficient_backward(
    grad_out_: TensorSpec, query: TensorSpec, key: TensorSpec, value: TensorSpec, attn_bias: Any, out: TensorSpec,
    logsumexp: TensorSpec, philox_seed: Any, philox_offset: Any, dropout_p: Any = 0.0, grad_input_mask: Any = None,
    is_causal: Any = False, scale: Any = None,
) -> Cost:  # fmt: skip
    return _dense(query, key, value, is_causal).backward(key.shape[-2], opt(attn_bias))


@formula("aten::_scaled_dot_product_cudnn_attention_backward", kind="matmul")
def aten_sdpa_cudnn_backward(
    grad_out: TensorSpec, query: TensorSpec, key: TensorSpec, value: TensorSpec, out: TensorSpec, logsumexp: TensorSpec,
    philox_seed: Any, philox_offset: Any, attn_bias: Any = None, cum_seq_q: Any = None, cum_seq_k: Any = None,
    max_q: Any = None,
    max_k: Any = None, dropout_p: Any = 0.0, is_causal: Any = UNKNOWN, *more: Any,
) -> Cost:  # fmt: skip
    return _dense(query, key, value, is_causal).backward(key.shape[-2], opt(attn_bias))


@formula(*spellings("_cudnn_attention_forward", "ta"), kind="matmul")
def cudnn_forward(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, attn_bias: Any, cum_seq_q: Any, cum_seq_k: Any, max_q: Any,
    max_k: Any, compute_log_sumexp: Any = False, dropout_p: Any = 0.0, is_causal: Any = False, *more: Any,
) -> Cost:  # fmt: skip
    heads, keys = _cudnn_problem(query, key, value, (cum_seq_q, cum_seq_k), (max_q, max_k), is_causal)
    return heads.forward(keys, opt(attn_bias))


def _cudnn_problem(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, cu: tuple[Any, Any], longest: tuple[Any, Any], is_causal: Any
) -> tuple[_Heads, int]:
    """(B, H, S, D), or packed (T, H, D) with offsets; causal from the top left in both."""
    if opt(cu[0]) is None:
        return _dense(q, k, v, is_causal), k.shape[-2]
    return _rows_first(q, k, v, cu, longest, "top_left" if need(is_causal, "is_causal") else "full", (-1, -1))


@formula("aten::_cudnn_attention_backward", kind="matmul")
def aten_cudnn_backward(
    grad_out: TensorSpec, query: TensorSpec, key: TensorSpec, value: TensorSpec, out: TensorSpec, logsumexp: TensorSpec,
    philox_seed: Any, philox_offset: Any, attn_bias: Any, cum_seq_q: Any, cum_seq_k: Any, max_q: Any, max_k: Any,
    dropout_p: Any = 0.0, is_causal: Any = UNKNOWN, *more: Any,
) -> Cost:  # fmt: skip
    heads, keys = _cudnn_problem(query, key, value, (cum_seq_q, cum_seq_k), (max_q, max_k), is_causal)
    return heads.backward(keys, opt(attn_bias))


@formula("aten::_flash_attention_backward", kind="matmul")
def aten_flash_backward(
    grad_out: TensorSpec, query: TensorSpec, key: TensorSpec, value: TensorSpec, out: TensorSpec, logsumexp: TensorSpec,
    cum_seq_q: Any = None, cum_seq_k: Any = None, max_q: Any = None, max_k: Any = None, dropout_p: Any = 0.0,
    is_causal: Any = UNKNOWN, rng_state: Any = None, unused: Any = None, scale: Any = None, window_size_left: Any = None,
    window_size_right: Any = None,
) -> Cost:  # fmt: skip
    cu, longest = (cum_seq_q, cum_seq_k), (max_q, max_k)
    heads, keys = _flash_problem(query, key, value, cu, longest, is_causal, window_size_left, window_size_right)
    return heads.backward(keys)


@formula("flash_attn::_flash_attn_backward", kind="matmul")
def flash_attn_backward(
    dout: TensorSpec, q: TensorSpec, k: TensorSpec, v: TensorSpec, out: TensorSpec, softmax_lse: TensorSpec, dq: Any = None,
    dk: Any = None, dv: Any = None, dropout_p: Any = 0.0, softmax_scale: Any = None, causal: Any = UNKNOWN,
    window_size_left: Any = -1,
    window_size_right: Any = -1, *more: Any,
) -> Cost:  # fmt: skip
    heads, keys = _flash_problem(q, k, v, (None, None), (None, None), causal, window_size_left, window_size_right)
    return heads.backward(keys)


@formula("aten::_efficient_attention_backward", kind="matmul")
def aten_efficient_backward(
    grad_out_: TensorSpec, query: TensorSpec, key: TensorSpec, value: TensorSpec, bias: Any, out: TensorSpec, cu_seqlens_q: Any,
    cu_seqlens_k: Any, max_seqlen_q: Any, max_seqlen_k: Any, logsumexp: TensorSpec, dropout_p: Any, philox_seed: Any,
    philox_offset: Any, custom_mask_type: Any = UNKNOWN, *more: Any,
) -> Cost:  # fmt: skip
    mask = ("full", "top_left", "bottom_right")[need(custom_mask_type, "custom_mask_type")]
    cu, longest = (cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k)
    heads, keys = _rows_first(query, key, value, cu, longest, mask, (-1, -1))
    return heads.backward(keys, opt(bias))


# ---------------------------------------------------------------------------------------------- the fast path of nn.Transformer


def _self_attention_flops(source: TensorSpec) -> int:
    """Projections to Q, K, V and out, and attention, of (B, S, E)."""
    batch, length, size = source.shape
    return 2 * batch * length * size * 4 * size + 4 * batch * length * length * size


@formula(*spellings("_transform_bias_rescale_qkv", "ta"))
def transform_bias_rescale_qkv(qkv: TensorSpec, qkv_bias: TensorSpec, num_heads: Any) -> Cost:
    # The bias is added to all of (B, S, 3·E), Q is scaled; the three are written one after the other.
    return vector(qkv.numel + qkv.numel // 3, qkv, qkv_bias, gradient(qkv))


@formula(*spellings("_triton_scaled_dot_attention", "ta"), kind="matmul")
def triton_scaled_dot_attention(q: TensorSpec, k: TensorSpec, v: TensorSpec, dropout_p: Any = 0.0) -> Cost:
    return _dense(q, k, v, False).forward(k.shape[-2])


@formula(*spellings("_native_multi_head_attention", "ta"), *spellings("_triton_multi_head_attention", "ta"), kind="matmul")
def native_multi_head_attention(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, embed_dim: Any, num_head: Any, qkv_weight: TensorSpec,
    qkv_bias: TensorSpec, proj_weight: TensorSpec, proj_bias: TensorSpec, mask: Any = None, *more: Any,
) -> Cost:  # fmt: skip
    same = query.shape == key.shape == value.shape
    if not same:
        raise Missing("queries and keys of different shapes")
    weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
    return Cost(_self_attention_flops(query), 0, nbytes(query, weights, opt(mask), gradient(query)))


@formula("aten::_transformer_encoder_layer_fwd", "torch._transformer_encoder_layer_fwd", kind="matmul")
def transformer_encoder_layer(
    src: TensorSpec, embed_dim: Any, num_heads: Any, qkv_weight: TensorSpec, qkv_bias: TensorSpec, proj_weight: TensorSpec,
    proj_bias: TensorSpec, use_gelu: Any, norm_first: Any, eps: Any, norm_weight_1: TensorSpec, norm_bias_1: TensorSpec,
    norm_weight_2: TensorSpec, norm_bias_2: TensorSpec, ffn_weight_1: TensorSpec, ffn_bias_1: TensorSpec,
    ffn_weight_2: TensorSpec, ffn_bias_2: TensorSpec, mask: Any = None, mask_type: Any = None,
) -> Cost:  # fmt: skip
    rows = product(src.shape[:-1])
    flops = _self_attention_flops(src) + 2 * rows * (ffn_weight_1.numel + ffn_weight_2.numel)
    hidden = rows * ffn_weight_1.shape[0]
    # Two layer norms (8), two residual additions (1), the activation (gelu 5, relu 1).
    operations = 18 * src.numel + hidden * (5 if use_gelu else 1)
    weights = (qkv_weight, qkv_bias, proj_weight, proj_bias, norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2,
               ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2)  # fmt: skip
    return Cost(flops, operations, nbytes(src, weights, opt(mask), gradient(src)))
