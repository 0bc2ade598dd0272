"""Attention under all of its names: scaled_dot_product_attention and the flash, efficient, cuDNN and CPU ops behind it.

Forward 2·B·H·pairs·(Dqk + Dv), H being the query's heads and pairs the (query, key) pairs that the mask leaves: Sq·Sk without
one; causal from the top left, the i-th query sees min(i+1, Sk) keys; causal from the bottom right, min(i+1+Sk-Sq, Sk). The
softmax inside is not counted. Backward 5 products instead of 2 (scores again, dV, dP, dQ, dK): 2·B·H·pairs·(3·Dqk + 2·Dv),
2.5 times the forward, as the fused kernels do it. Bytes: Q, K, V and the mask read, the output and its log-sum-exp written;
backward also reads the output and its gradient. A mask given as a tensor is not known by its content: all pairs count.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyprof.model.dtypes import lookup
from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import gradient, nbytes, need, opt, product, spec, vector, wants
from pyprof.prof.formulas.registry import Cost, Missing, Op, Piece, op


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


class Heads:
    """Sizes of one attention problem; extra: tensors read besides queries, keys and values."""

    def __init__(self, q: TensorSpec, k: TensorSpec, v: TensorSpec, pairs: int, sizes: tuple[int, int, int]) -> None:
        self.q, self.k, self.v, self.pairs = q, k, v, pairs
        self.batch_heads, self.queries, self.keys = sizes
        self.d_qk, self.d_v = q.shape[-1], v.shape[-1]
        self.out = spec((*q.shape[:-1], self.d_v), q.dtype)
        self.lse = spec((self.batch_heads * self.queries,), "float32")

    def _cost(self, flops: int, *tensors: object) -> Cost:
        found = lookup(self.q.dtype)
        parts = [f"BH={self.batch_heads}", f"Sq={self.queries}", f"Sk={self.keys}", f"D={self.d_qk}"]
        if self.d_v != self.d_qk:
            parts.append(f"Dv={self.d_v}")
        if self.pairs != self.queries * self.keys:
            parts.append(f"pairs={self.pairs}")
        text = ",".join(parts + ([found.tag] if found else []))
        return Cost(flops, 0, nbytes(*tensors), None, self.batch_heads, text, self.q.dtype)

    def forward(self, *extra: object) -> Cost:
        flops = 2 * self.batch_heads * self.pairs * (self.d_qk + self.d_v)
        return self._cost(flops, self.q, self.k, self.v, extra, self.out, self.lse)

    def backward(self, *extra: object) -> Cost:
        flops = 2 * self.batch_heads * self.pairs * (3 * self.d_qk + 2 * self.d_v)
        read = (gradient(self.out), self.q, self.k, self.v, self.out, self.lse, extra)
        return self._cost(flops, read, gradient(self.q), gradient(self.k), gradient(self.v))

    def piece(self, *extra: object) -> Iterator[Piece]:
        """All gradients in one kernel."""
        if any(map(wants, (self.q, self.k, self.v))):
            yield Piece("attention", self.backward(*extra))


def _dense(q: TensorSpec, k: TensorSpec, v: TensorSpec, is_causal: object) -> Heads:
    """Tensors (..., heads, sequence, size), as scaled_dot_product_attention takes them; causal begins at the top left."""
    queries, keys = q.shape[-2], k.shape[-2]
    pairs = mask_pairs(queries, keys, "top_left" if need(is_causal, "is_causal") else "full")
    return Heads(q, k, v, pairs, (product(q.shape[:-2]), queries, keys))


@op(
    "scaled_dot_product_attention", "torch._C._nn.scaled_dot_product_attention", "torch._scaled_dot_product_attention_math",
    "aten::_scaled_dot_product_attention_math", places="Fta", kind="matmul",
)  # fmt: skip
@op("_scaled_dot_product_fused_attention_overrideable", places="ta", kind="matmul", backward=False, attn_bias="attn_mask")
def sdpa(query: TensorSpec, key: TensorSpec, value: TensorSpec, attn_mask: object = None, is_causal: object = False) -> Op:
    heads = _dense(query, key, value, is_causal)
    yield heads.forward(opt(attn_mask))
    yield from heads.piece(opt(attn_mask))


@op("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention", places="ta", kind="matmul")
def sdpa_with_bias(query: TensorSpec, key: TensorSpec, value: TensorSpec, attn_bias: object, is_causal: object = False) -> Op:
    """The bias has no default: where it was not recorded, neither was whether the mask is causal."""
    return sdpa(query, key, value, attn_bias, is_causal)


@op("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu", places="ta", kind="matmul")
def sdpa_flash(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, attn_mask: object = None, is_causal: object = False
) -> Op:
    heads = _dense(query, key, value, is_causal)
    yield heads.forward(opt(attn_mask))
    yield from heads.piece()


@op(*(f"aten::_scaled_dot_product_{way}_backward" for way in (
    "flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention", "fused_attention_overrideable",
)), kind="matmul", attn_bias="attn_mask")  # fmt: skip
def sdpa_backward(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, is_causal: object = UNKNOWN, attn_mask: object = None
) -> Cost:
    return _dense(query, key, value, is_causal).backward(opt(attn_mask))


@op("_triton_scaled_dot_attention", places="ta", kind="matmul")
def triton_scaled_dot_attention(q: TensorSpec, k: TensorSpec, v: TensorSpec) -> Cost:
    return _dense(q, k, v, False).forward()


@op("torch.nn.attention.flex_attention.flex_attention", kind="matmul", composed=True,
    order="query key value score_mod block_mask ...")  # fmt: skip
def flex_attention(query: TensorSpec, key: TensorSpec, value: TensorSpec, block_mask: object = None, **options: object) -> Cost:
    # A change of the scores is a function of each pair; which blocks a mask leaves is data.
    if block_mask is not None:
        raise Missing("the blocks of a mask are data, not recorded")
    return _dense(query, key, value, False).forward()


# ---------------------------------------------------------------------------------------------- (batch, sequence, heads, size)

_Two = tuple[object, object]


def _lengths(t: TensorSpec, cu_seqlens: object, longest: object) -> tuple[int, int]:
    """Number of sequences and the length of each, of a (B, S, H, D) or a packed (T, H, D) tensor.

    Raises Missing if packed sequences differ in length: what they are is data.
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


def rows_first(
    tensors: tuple[TensorSpec, TensorSpec, TensorSpec], cu: _Two, longest: _Two, mask: str, window: _Two = (None, None)
) -> Heads:
    """cu: offsets of packed queries and keys, longest: the length of the longest of each; window: keys left and right."""
    q, k, v = tensors
    count, queries = _lengths(q, cu[0], longest[0])
    _, keys = _lengths(k, cu[1], longest[1])
    left, right = (side if isinstance(side, int) else -1 for side in window)
    return Heads(q, k, v, mask_pairs(queries, keys, mask, left, right), (count * q.shape[-2], queries, keys))


def _declare_both_ways(way: str, *more: str) -> None:
    """Ops of (B, S, H, D), or packed (T, H, D) with offsets, forward or backward: both take the same arguments.

    more: other names of the dispatcher's op.
    """
    back = way == "backward"
    places, cost = ("a", Heads.backward) if back else ("ta", Heads.forward)
    absent: object = UNKNOWN if back else 0  # a backward is given all arguments

    @op(f"_flash_attention_{way}", *more, places=places, kind="matmul")
    def flash(
        query: TensorSpec, key: TensorSpec, value: TensorSpec, cum_seq_q: object, cum_seq_k: object = None,
        max_q: object = None, max_k: object = None, is_causal: object = absent, window_size_left: object = None,
        window_size_right: object = None,
    ) -> Cost:  # fmt: skip
        mask = "bottom_right" if need(is_causal, "is_causal") else "full"
        window = (window_size_left, window_size_right)
        return cost(rows_first((query, key, value), (cum_seq_q, cum_seq_k), (max_q, max_k), mask, window))

    @op(f"_efficient_attention_{way}", places=places, kind="matmul")
    def efficient(
        query: TensorSpec, key: TensorSpec, value: TensorSpec, bias: object, cu_seqlens_q: object, cu_seqlens_k: object,
        max_seqlen_q: object, max_seqlen_k: object, custom_mask_type: object = absent,
    ) -> Cost:  # fmt: skip
        mask = ("full", "top_left", "bottom_right")[need(custom_mask_type, "custom_mask_type")]
        cu, longest = (cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k)
        return cost(rows_first((query, key, value), cu, longest, mask), opt(bias))

    @op(f"_cudnn_attention_{way}", places=places, kind="matmul")
    def cudnn(
        query: TensorSpec, key: TensorSpec, value: TensorSpec, attn_bias: object, cum_seq_q: object, cum_seq_k: object,
        max_q: object, max_k: object, is_causal: object = absent,
    ) -> Cost:  # fmt: skip
        if opt(cum_seq_q) is None:  # (B, H, S, D)
            return cost(_dense(query, key, value, is_causal), opt(attn_bias))
        mask = "top_left" if need(is_causal, "is_causal") else "full"
        return cost(rows_first((query, key, value), (cum_seq_q, cum_seq_k), (max_q, max_k), mask), opt(attn_bias))


_declare_both_ways("forward", "_flash_attention_forward_no_dropout_inplace")
_declare_both_ways("backward")


# ---------------------------------------------------------------------------------------------- the fast path of nn.Transformer


def _self_attention_flops(source: TensorSpec) -> int:
    """Projections to Q, K, V and out, and attention, of (B, S, E)."""
    batch, length, size = source.shape
    return 2 * batch * length * size * 4 * size + 4 * batch * length * length * size


@op("_transform_bias_rescale_qkv", places="ta")
def transform_bias_rescale_qkv(qkv: TensorSpec, qkv_bias: TensorSpec) -> Cost:
    # The bias is added to all of (B, S, 3·E), Q is scaled; the three are written one after the other.
    return vector(qkv.numel + qkv.numel // 3, qkv, qkv_bias, gradient(qkv))


@op("_native_multi_head_attention", "_triton_multi_head_attention", places="ta", kind="matmul")
def native_multi_head_attention(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, qkv_weight: TensorSpec, qkv_bias: TensorSpec,
    proj_weight: TensorSpec, proj_bias: TensorSpec, mask: object = None,
) -> Cost:  # fmt: skip
    if not query.shape == key.shape == value.shape:
        raise Missing("queries and keys of different shapes")
    weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
    return Cost(_self_attention_flops(query), 0, nbytes(query, weights, opt(mask), gradient(query)))


@op("_transformer_encoder_layer_fwd", places="ta", kind="matmul")
def transformer_encoder_layer(
    src: TensorSpec, qkv_weight: TensorSpec, qkv_bias: TensorSpec, proj_weight: TensorSpec, proj_bias: TensorSpec,
    use_gelu: object, norm_weight_1: TensorSpec, norm_bias_1: TensorSpec, norm_weight_2: TensorSpec, norm_bias_2: TensorSpec,
    ffn_weight_1: TensorSpec, ffn_bias_1: TensorSpec, ffn_weight_2: TensorSpec, ffn_bias_2: TensorSpec, mask: object = None,
) -> Cost:  # fmt: skip
    rows = product(src.shape[:-1])
    flops = _self_attention_flops(src) + 2 * rows * (ffn_weight_1.numel + ffn_weight_2.numel)
    hidden = rows * ffn_weight_1.shape[0]
    # Two layer norms (8), two residual additions (1), the activation (gelu 5, relu 1).
    operations = 18 * src.numel + hidden * (5 if use_gelu else 1)
    weights = (qkv_weight, qkv_bias, proj_weight, proj_bias, norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2,
               ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2)  # fmt: skip
    return Cost(flops, operations, nbytes(src, weights, opt(mask), gradient(src)))
