"""Rotary positions and the caches of keys and values in inference libraries: vLLM, SGLang, aiter.

Rotating a pair of values is 4 multiplications and 2 additions: 3 an element that is rotated, of each head the first `rot_dim`.
Of the table of cosines and sines the rows of the positions are read, of a cache only the slots of these tokens are touched,
never all of it. Writing into a cache of another type scales and clamps: 3 operations an element.
"""

from __future__ import annotations

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, gathered, need, opt, spec, vector
from pyprof.prof.formulas.registry import Cost, op

_ROTATION, _QUANTISE, _RMS_NORM = 3, 3, 4  # operations an element


def _rotated(heads: TensorSpec, head_size: int, rot_dim: int) -> TensorSpec:
    """The part of (tokens, heads x head_size) that is rotated."""
    return spec((heads.numel // max(head_size, 1) * min(rot_dim, head_size),), heads.dtype)


def _rotation(positions: TensorSpec, tensors: tuple[object, ...], head_size: object, *tables: TensorSpec) -> Cost:
    """In place: rotated elements are read and written. tables: one for both cosines and sines, or two of half the width."""
    rot_dim = sum(table.shape[-1] for table in tables)
    size = need(head_size, "head_size")
    parts = [_rotated(t, size, rot_dim) for t in tensors if isinstance(t, TensorSpec)]
    read = [gathered(table, (positions.shape[-1], table.shape[-1])) for table in tables]
    return vector(_ROTATION * sum(p.numel for p in parts), positions, read, parts, parts)


@op("_C::rotary_embedding", "sgl_kernel::rotary_embedding", "vllm::rotary_embedding",
    order="positions query key head_size cos_sin_cache is_neox ...")  # fmt: skip
def rotary_embedding(
    positions: TensorSpec, query: TensorSpec, head_size: object, cos_sin_cache: TensorSpec, key: object = None
) -> Cost:
    return _rotation(positions, (query, key), head_size, cos_sin_cache)


@op("aiter::rotary_embedding_fwd", "aiter::batched_rotary_embedding",
    order="positions query key head_size cos_cache sin_cache is_neox is_nope_first ...")  # fmt: skip
def rotary_embedding_two_tables(
    positions: TensorSpec,
    query: TensorSpec,
    head_size: object,
    cos_cache: TensorSpec,
    sin_cache: TensorSpec,
    key: object = None,
) -> Cost:
    return _rotation(positions, (query, key), head_size, cos_cache, sin_cache)


@op("sgl_kernel::apply_rope_pos_ids_cos_sin_cache", order="q k q_rope k_rope cos_sin_cache pos_ids ...")
def rope_from_cache(
    q: TensorSpec, k: TensorSpec, q_rope: TensorSpec, k_rope: TensorSpec, cos_sin_cache: TensorSpec, pos_ids: TensorSpec
) -> Cost:
    read = gathered(cos_sin_cache, (pos_ids.numel, cos_sin_cache.shape[-1]))
    return vector(_ROTATION * (q.numel + k.numel), q, k, q_rope, k_rope, read, pos_ids)


# aiter's: outputs (or gradients of inputs) first, then as many inputs, then the tables of which `read` rows are gathered.
_ROPES = {
    "fwd_impl": (1, 1), "2c_fwd_impl": (2, 1), "cached_fwd_impl": (1, 2), "cached_2c_fwd_impl": (2, 2), "thd_fwd_impl": (1, 2),
    "2d_fwd_impl": (1, 4), "bwd_impl": (1, 1), "2c_bwd_impl": (2, 1), "cached_bwd_impl": (1, 2), "cached_2c_bwd_impl": (2, 2),
    "thd_bwd_impl": (1, 2), "2d_bwd_impl": (1, 4),
}  # fmt: skip


def _declare_rope(name: str, inputs: int, tables: int) -> None:
    @op(f"aiter::rope_{name}", places="=", order="")
    def rope(*args: object) -> Cost:
        given = [opt(arg) for arg in args[: 2 * inputs + tables]]
        return vector(_ROTATION * sum(t.numel for t in given[:inputs] if t is not None), given)


for _name, _counts in _ROPES.items():
    _declare_rope(_name, *_counts)


def _declare_rope_of_positions(name: str, inputs: int) -> None:
    @op(f"aiter::rope_cached_positions_{name}", places="=", order="")
    def rope(*args: object) -> Cost:
        moved = [opt(arg) for arg in args[: 2 * inputs]]
        cos, sin, positions = (arg for arg in args[2 * inputs : 2 * inputs + 3] if isinstance(arg, TensorSpec))
        read = [gathered(table, (positions.numel, table.shape[-1])) for table in (cos, sin)]
        return vector(_ROTATION * sum(t.numel for t in moved[:inputs] if t is not None), moved, read, positions)


_declare_rope_of_positions("fwd_impl", 1)
_declare_rope_of_positions("2c_fwd_impl", 2)


# ---------------------------------------------------------------------------------------------- caches of keys and values


def _written(tokens: list[TensorSpec], caches: list[TensorSpec], *read: object) -> Cost:
    """Each tensor of tokens is written into its cache, in the cache's type."""
    slots = [spec((t.numel,), cache.dtype) for t, cache in zip(tokens, caches, strict=True)]
    scaled = sum(t.numel for t, slot in zip(tokens, slots, strict=True) if t.itemsize != slot.itemsize)
    return vector(_QUANTISE * scaled, tokens, slots, *read)


@op("_C_cache_ops::reshape_and_cache", "_C_cache_ops::reshape_and_cache_flash", "aiter::reshape_and_cache",
    "aiter::reshape_and_cache_flash", "sglang::store_cache",
    order="key value key_cache value_cache slot_mapping kv_cache_dtype k_scale v_scale ...")  # fmt: skip
def reshape_and_cache(
    key: TensorSpec, value: TensorSpec, key_cache: TensorSpec, value_cache: TensorSpec, slot_mapping: TensorSpec,
    k_scale: object = None, v_scale: object = None,
) -> Cost:  # fmt: skip
    return _written([key, value], [key_cache, value_cache], slot_mapping, opt(k_scale), opt(v_scale))


@op(*(f"{space}::concat_and_cache_mla" for space in ("_C_cache_ops", "aiter")),
    order="kv_c k_pe kv_cache slot_mapping kv_cache_dtype scale ...")  # fmt: skip
def concat_and_cache_mla(
    kv_c: TensorSpec, k_pe: TensorSpec, kv_cache: TensorSpec, slot_mapping: TensorSpec, scale: object = None
) -> Cost:
    return _written([kv_c, k_pe], [kv_cache, kv_cache], slot_mapping, opt(scale))


@op("_C_cache_ops::concat_mla_q", order="ql_nope q_pe q_out", kind="copy")
def concat_mla_q(ql_nope: TensorSpec, q_pe: TensorSpec, q_out: TensorSpec) -> Cost:
    return copy_cost(ql_nope, q_pe, q_out)


@op("_C_cache_ops::cp_gather_cache", "_C_cache_ops::gather_and_maybe_dequant_cache", order="src_cache dst block_table ...")
def gather_cache(src_cache: TensorSpec, dst: TensorSpec, block_table: TensorSpec) -> Cost:
    """As many values of the cache are read as are written, in the cache's type."""
    scaled = dst.numel if src_cache.itemsize != dst.itemsize else 0
    return vector(scaled, spec((dst.numel,), src_cache.dtype), dst, block_table)


# ---------------------------------------------------------------------------------------------- norms with options


@op("_C::rms_norm_dynamic_per_token_quant", "_C::rms_norm_per_block_quant",
    order="result input weight scale epsilon scale_ub residual ...")  # fmt: skip
def rms_norm_dynamic_quant(
    result: TensorSpec,
    input: TensorSpec,
    weight: TensorSpec,
    scale: TensorSpec,
    scale_ub: object = None,
    residual: object = None,
) -> Cost:
    """The residual, where there is one, is added first and updated in place. The scale is found in the result: 2 more."""
    added = opt(residual)
    operations = _RMS_NORM + (added is not None) + 2 + _QUANTISE
    return vector(operations * input.numel, result, input, weight, scale, opt(scale_ub), added, added)


@op("vllm::triton_per_token_group_quant_fp8", order="input group_size")
@op("vllm::rocm_aiter_rmsnorm_fp8_group_quant", order="input weight epsilon group_size")
@op("vllm::rocm_aiter_rmsnorm_with_add_fp8_group_quant", order="input residual weight epsilon group_size")
def group_quant(input: TensorSpec, group_size: object, weight: object = None, residual: object = None) -> Cost:
    """After a norm where there is a weight, of the sum where there is a residual, which is returned too."""
    norm, added = opt(weight), opt(residual)
    operations = 2 + _QUANTISE + (_RMS_NORM if norm else 0) + (1 if added else 0)
    scales = spec((input.numel // need(group_size, "group_size"),), "float32")
    return vector(operations * input.numel, input, norm, added, added, spec(input.shape, "float8_e4m3fn"), scales)


@op("_C::fused_qk_norm_rope", order="qkv num_heads_q num_heads_k num_heads_v head_dim eps q_weight k_weight "
    "cos_sin_cache is_neox position_ids ...")  # fmt: skip
def fused_qk_norm_rope(
    qkv: TensorSpec, num_heads_q: object, num_heads_k: object, head_dim: object, q_weight: TensorSpec, k_weight: TensorSpec,
    cos_sin_cache: TensorSpec, position_ids: TensorSpec,
) -> Cost:  # fmt: skip
    """Heads of queries and keys are normalised and rotated in place; heads of values are left alone."""
    heads = need(num_heads_q, "num_heads_q") + need(num_heads_k, "num_heads_k")
    part = spec((qkv.shape[0], heads * need(head_dim, "head_dim")), qkv.dtype)
    read = gathered(cos_sin_cache, (position_ids.numel, cos_sin_cache.shape[-1]))
    return vector((_RMS_NORM + _ROTATION) * part.numel, part, part, q_weight, k_weight, read, position_ids)


@op("sgl_kernel::sgl_per_tensor_quant_fp8", order="input output_q output_s is_static")
def per_tensor_quant(input: TensorSpec, output_q: TensorSpec, output_s: TensorSpec, is_static: object) -> Cost:
    operations = _QUANTISE + (0 if need(is_static, "is_static") else 2)
    return vector(operations * input.numel, input, output_q, output_s)
