"""Ops of inference engines, by definition and by counting: vLLM, SGLang, aiter and what they call.

Signatures as in the given captures, or as the projects register them.
"""

import itertools
from typing import Any

import pytest

from pyprof.model.opcall import OpCall
from pyprof.prof.formulas import enginegemm, evaluate, evaluate_backward, known, least_bytes, matmul_class, streamed
from tests.prof.formulas.formula_oracles import call, t

B, F8, U8 = "bfloat16", "float8_e4m3fn", "uint8"


def _cost(name: str, *args: Any, **facts: Any) -> tuple[int | None, int | None]:
    found = evaluate(call(name, *args)._replace(kwargs=tuple(facts.items())))
    assert not found.reason, found.reason
    return found.cost.flops, found.cost.bytes


# name, arguments, FLOPs, bytes
STREAMED: list[tuple[str, tuple[Any, ...], int, int]] = [
    ("sgl_kernel::silu_and_mul", (t(7, 6, dtype=B), t(7, 12, dtype=B)), 6 * 42, 2 * (42 + 84)),
    ("_C::silu_and_mul", (t(7, 6, dtype=B), t(7, 12, dtype=B)), 6 * 42, 2 * (42 + 84)),
    ("_C::gelu_tanh_and_mul", (t(7, 6, dtype=B), t(7, 12, dtype=B)), 10 * 42, 2 * (42 + 84)),
    ("_C::rms_norm", (t(7, 6, dtype=B), t(7, 6, dtype=B), t(6, dtype=B), 1e-6), 4 * 42, 2 * (84 + 6)),
    ("aiter::rms_norm", (t(7, 6, dtype=B), t(6, dtype=B), 1e-6, 0), 4 * 42, 2 * (84 + 6)),
    ("vllm::rocm_aiter_rms_norm", (t(7, 6, dtype=B), t(6, dtype=B), 1e-6), 4 * 42, 2 * (84 + 6)),
    # In place: the input and the residual are read and written.
    ("_C::fused_add_rms_norm", (t(7, 6, dtype=B), t(7, 6, dtype=B), t(6, dtype=B), 1e-6), 5 * 42, 2 * (4 * 42 + 6)),
    ("aiter::add_rmsnorm", (*[t(7, 6, dtype=B)] * 4, t(6, dtype=B), 1e-6), 5 * 42, 2 * (4 * 42 + 6)),
    ("vllm::rocm_aiter_rmsnorm2d_fwd_with_add", (t(7, 6, dtype=B), t(7, 6, dtype=B), t(6, dtype=B), 1e-6), 5 * 42,
     2 * (4 * 42 + 6)),
    ("_C::static_scaled_fp8_quant", (t(7, 6, dtype=F8), t(7, 6, dtype=B), t(1)), 3 * 42, 42 + 84 + 4),
    ("_C::dynamic_per_token_scaled_fp8_quant", (t(7, 6, dtype=F8), t(7, 6, dtype=B), t(7, 1), None), 5 * 42, 42 + 84 + 28),
    ("_C::per_token_group_fp8_quant", (t(7, 8, dtype=B), t(7, 8, dtype=F8), t(7, 2), 4, 1e-6, -448.0, 448.0, False), 5 * 56,
     112 + 56 + 56),
    ("_C::rms_norm_dynamic_per_token_quant", (t(7, 6, dtype=F8), t(7, 6, dtype=B), t(6, dtype=B), t(7, 1), 1e-6, None, None), 9 * 42,
     42 + 84 + 12 + 28),
    ("_C::rms_norm_dynamic_per_token_quant",
     (t(7, 6, dtype=F8), t(7, 6, dtype=B), t(6, dtype=B), t(7, 1), 1e-6, None, t(7, 6, dtype=B)), 10 * 42, 42 + 84 + 12 + 28 + 168),
    ("vllm::rocm_aiter_rmsnorm_with_add_fp8_group_quant", (t(7, 8, dtype=B), t(7, 8, dtype=B), t(8, dtype=B), 1e-6, 4), 10 * 56,
     3 * 112 + 16 + 56 + 4 * 14),
    ("_moe_C::topk_softmax", (t(7, 2), t(7, 2, dtype="int32"), t(7, 2, dtype="int32"), t(7, 8)), 6 * 56, 4 * (3 * 14 + 56)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "flops", "moved"), STREAMED, ids=lambda v: v if isinstance(v, str) else None)
def test_each_tensor_once_and_those_updated_in_place_twice(name: str, args: tuple[Any, ...], flops: int, moved: int) -> None:
    assert _cost(name, *args) == (flops, moved)


def test_tables_name_each_op_once_and_count_an_argument_that_they_have() -> None:
    names = [name for row in (*streamed.rows(), *enginegemm.rows()) for name in row.names]
    assert len(names) == len(set(names)) > 120
    assert all(known(name) for name in names)
    for row in streamed.rows():
        assert {row.of, *row.updated, *(name for name, _ in row.made)} <= set(row.order), row
        assert row.weight > 0
    for gemm in enginegemm.rows():
        assert {"a", "b"} <= set(gemm.order), gemm
        assert all(map(matmul_class, gemm.names))


def test_what_was_not_recorded_is_not_known() -> None:
    assert evaluate(call("_C::rms_norm")).reason == "rms_norm: input not recorded"
    assert evaluate(OpCall("_C", "silu_and_mul", described=False, dispatcher=True)).cost.flops is None


def test_rotation_touches_the_rotated_part_of_heads_and_the_rows_of_its_positions() -> None:
    """32 tokens, 64 + 8 heads of 64, all of each rotated; of the 131,072 rows of the table 32."""
    q, k, table, positions = t(32, 4096, dtype=B), t(32, 512, dtype=B), t(131072, 64, dtype=B), t(32, dtype="int64")
    moved = 2 * 2 * 32 * 4608 + 2 * 32 * 64 + 8 * 32
    assert _cost("_C::rotary_embedding", positions, q, k, 64, table, True) == (3 * 32 * 4608, moved)
    half = t(131072, 32, dtype=B)  # half of each head
    assert _cost("_C::rotary_embedding", positions, q, k, 64, half, True)[0] == 3 * 32 * 2304
    alone = _cost("_C::rotary_embedding", positions, q, None, 64, table, True)
    assert alone == (3 * 32 * 4096, 2 * 2 * 32 * 4096 + 2 * 32 * 64 + 8 * 32)
    few = t(4, 64, dtype=B)  # no more of the table than there is
    assert _cost("_C::rotary_embedding", positions, q, None, 64, few, True)[1] == (alone[1] or 0) - 2 * 28 * 64


def test_writing_to_a_cache_touches_the_slots_of_its_tokens() -> None:
    kv, cache, slots = t(32, 8, 64, dtype=B), t(224304, 32, 8, 64, dtype=B), t(32, dtype="int64")
    flash = "_C_cache_ops::reshape_and_cache_flash"
    assert _cost(flash, kv, kv, cache, cache, slots, None, t(), t()) == (0, 4 * 2 * 32 * 512 + 8 * 32 + 8)
    packed = t(224304, 32, 8, 64, dtype=U8)  # scaled and clamped to fp8
    assert _cost(flash, kv, kv, packed, packed, slots, None, t(), t()) == (3 * 2 * 32 * 512, 2 * 3 * 32 * 512 + 8 * 32 + 8)
    rows, pool = t(15, 1024, dtype=B), t(835874, 1024, dtype=B)
    assert _cost("sglang::store_cache", rows, rows, pool, pool, t(15, dtype="int64"), 2048, 0) == (0, 4 * 2 * 15 * 1024 + 120)


# name, arguments, (M, N, K), bytes, type of the operands
GEMMS: list[tuple[str, tuple[Any, ...], tuple[int, int, int], int, str]] = [
    ("vllm::rocm_unquantized_gemm", (t(32, 2880, dtype=B), t(5120, 2880, dtype=B), t(5120, dtype=B)), (32, 5120, 2880),
     2 * (32 * 2880 + 5120 * 2880 + 5120 + 32 * 5120), B),
    ("aiter::gemm_a16w16", (t(8, 16, dtype=B), t(24, 16, dtype=B), None, 15, None, None, None), (8, 24, 16),
     2 * (128 + 384 + 192), B),
    ("_C::cutlass_scaled_mm", (t(8, 24, dtype=B), t(8, 16, dtype=F8), t(16, 24, dtype=F8), t(8, 1), t(1, 24), None), (8, 24, 16),
     2 * 192 + 128 + 384 + 4 * 32, F8),
    ("sgl_kernel::fp8_scaled_mm", (t(8, 16, dtype=F8), t(16, 24, dtype=F8), t(8, 1), t(24), 15, None), (8, 24, 16),
     128 + 384 + 4 * 32 + 2 * 192, F8),
    # Two values a byte, a scale of a byte for 16 of them.
    ("_C::cutlass_scaled_fp4_mm", (t(8, 24, dtype=B), t(8, 32, dtype=U8), t(24, 32, dtype=U8), t(8, 4, dtype=F8), t(24, 4, dtype=F8), t(1)),
     (8, 24, 64), 2 * 192 + 8 * 32 + 24 * 32 + 32 + 96 + 4, "float4_e2m1fn_x2"),
    ("vllm::gemm_with_dynamic_quant", (t(8, 64, dtype=B), t(24, 32, dtype=U8), t(24, 2, dtype=U8)), (8, 24, 64),
     2 * 8 * 64 + 24 * 32 + 48 + 2 * 192, B),
    ("bitsandbytes::int8_linear_matmul", (t(8, 16, dtype="int8"), t(24, 16, dtype="int8")), (8, 24, 16), 128 + 384 + 4 * 192, "int8"),
    # Eight values of 4 bits an int32, along the columns (AWQ) or the rows (GPTQ).
    ("_C::awq_gemm", (t(8, 16, dtype="float16"), t(16, 3, dtype="int32"), t(1, 24, dtype="float16"), t(1, 3, dtype="int32"), 8),
     (8, 24, 16), 2 * 128 + 4 * 48 + 48 + 12 + 2 * 192, "float16"),
    ("_C::gptq_gemm", (t(8, 16, dtype="float16"), t(2, 24, dtype="int32"), t(1, 3, dtype="int32"), t(1, 24, dtype="float16"),
                       t(16, dtype="int32"), True, 4), (8, 24, 16), 2 * 128 + 4 * 48 + 12 + 48 + 64 + 2 * 192, "float16"),
    ("_C::gptq_marlin_gemm", (t(8, 16, dtype="float16"), None, t(1, 48, dtype="int32"), t(1, 24, dtype="float16"), None, None, None, None,
                              t(64, dtype="int32"), 99, 8, 24, 16, True), (8, 24, 16), 2 * 128 + 4 * 48 + 48 + 2 * 192, "float16"),
    ("bitsandbytes::gemv_4bit", (t(1, 16, dtype=B), t(192, 1, dtype=U8), [24, 16], t(6), t(16), 64), (1, 24, 16),
     32 + 192 + 24 + 64 + 48, B),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "mnk", "moved", "operands"), GEMMS, ids=lambda v: v if isinstance(v, str) else None)
def test_products_read_what_is_stored_and_multiply_its_values(
    name: str, args: tuple[Any, ...], mnk: tuple[int, int, int], moved: int, operands: str
) -> None:
    cost = evaluate(call(name, *args)).cost
    m, n, k = mnk
    assert (cost.matmul_flops, cost.mnk, cost.bytes, cost.operands) == (2 * m * n * k, mnk, moved, operands)


def test_a_weight_that_does_not_fit_is_refused() -> None:
    assert "does not fit" in evaluate(call("vllm::rocm_unquantized_gemm", t(8, 7), t(5, 9), None)).reason


DECODE = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)"


def _pairs(requests: list[tuple[int, int]]) -> int:
    """By counting: query i of a request of q queries and k keys sees the keys up to its own."""
    return sum(1 for q, k in requests for i, j in itertools.product(range(q), range(k)) if j <= i + k - q)


def _text(context: list[tuple[int, int]], generation: list[tuple[int, int]]) -> str:
    """The annotation of a step that computes these (queries, keys)."""
    sums = [
        f"{len(part)}(sq{sum(q for q, _ in part)}sk{sum(k for _, k in part)}sqsq{sum(q * q for q, _ in part)}sqsk{sum(q * k for q, k in part)})"
        for part in (context, generation)
    ]
    return f"execute_{len(context) + len(generation)}_context_{sums[0]}_generation_{sums[1]}"


def _unified(tokens: int, heads: int = 4, shared: int = 2, size: int = 8) -> tuple[Any, ...]:
    q, kv = t(tokens, heads, size, dtype=B), t(tokens, shared, size, dtype=B)
    return q, kv, kv, q, None


def test_attention_of_a_decode_step_has_its_known_cost() -> None:
    q, kv = t(32, 64, 64, dtype=B), t(32, 8, 64, dtype=B)
    given = call("vllm::unified_attention_with_output", q, kv, kv, q, None, None, None, t(0, dtype=B))
    found = evaluate(given._replace(kwargs=(("engine_step", DECODE),))).cost
    assert found.flops == 902_529_024 == 4 * 64 * 64 * 55086
    assert found.bytes == 2 * (2 * 32 * 64 * 64 + 2 * 55086 * 8 * 64)
    assert "full-attention-assumed" in (found.params or "")
    assert evaluate(given).reason.endswith("in the annotation of an engine's step")


@pytest.mark.parametrize(
    ("context", "generation"),
    [([(5, 5)], []), ([(5, 5), (3, 9)], []), ([], [(1, 7), (1, 1)]), ([(5, 5), (2, 6)], [(1, 7), (1, 12), (1, 3)])],
)
def test_attention_of_a_step_counts_the_pairs_that_the_mask_leaves(
    context: list[tuple[int, int]], generation: list[tuple[int, int]]
) -> None:
    requests = context + generation
    tokens, keys = sum(q for q, _ in requests), sum(k for _, k in requests)
    flops, moved = _cost("vllm::unified_attention_with_output", *_unified(tokens), engine_step=_text(context, generation))
    assert flops == 4 * 4 * 8 * _pairs(requests)
    assert moved == 2 * (2 * tokens * 4 * 8 + 2 * keys * 2 * 8)
    # A graph's batch is larger than its requests.
    padded, _ = _cost("vllm::unified_attention_with_output", *_unified(tokens + 3), engine_step=_text(context, generation))
    assert padded == flops
    # Packed prompts alone: of the step's two parts the one with as many tokens.
    if context and generation:
        alone = sum(q for q, _ in context)
        prompts = t(alone, 4, 8, dtype=B), t(99, 2, 8, dtype=B), t(99, 2, 8, dtype=B)
        args = (
            *prompts,
            t(len(context) + 1, dtype="int32"),
            t(3, dtype="int32"),
            t(90, dtype="int32"),
            5,
            9,
            0.0,
            0.1,
            0.0,
            False,
            True,
            -1,
            -1,
        )
        assert _cost("aiter::mha_batch_prefill", *args, engine_step=_text(context, generation))[0] == 4 * 4 * 8 * _pairs(
            context
        )


def test_latent_attention_of_a_step_that_decodes_counts_its_weights_too() -> None:
    """3 requests of 7, 12 and 3 keys; 4 heads of 5 + 2 queries, 6 values, a cache of 8 + 2."""
    q, kv, pe, out = t(3, 4, 7, dtype=B), t(3, 8, dtype=B), t(3, 1, 2, dtype=B), t(3, 24, dtype=B)
    name, text = "vllm::unified_mla_attention_with_output", _text([], [(1, 7), (1, 12), (1, 3)])
    flops, moved = _cost(name, q, kv, pe, out, engine_step=text)
    assert flops == 2 * 4 * 22 * (8 + 2 + 8) + 2 * 3 * 4 * 8 * (5 + 6)
    assert moved == 2 * (3 * 28 + 3 * 24 + 22 * 10 + 4 * 8 * (5 + 6))
    assert evaluate(call(name, q, kv, pe, out)._replace(kwargs=(("engine_step", text),))).cost.bound == "upper"
    mixed = call(name, q, kv, pe, out)._replace(kwargs=(("engine_step", _text([(2, 2)], [(1, 7)])),))
    assert evaluate(mixed).cost.flops is None and "with prefill" in evaluate(mixed).reason


def test_a_step_of_other_tokens_or_without_sums_says_nothing() -> None:
    for text, reason in (
        (_text([(5, 5)], []), "of another number of tokens"),
        ("step[EXTEND bs=2 toks=4]", "no sums over requests"),
        ("execute_context_1(888_788544)_generation_0(0)", "of another number of tokens"),
        ("execute_context_1(4_16)_generation_0(0)", "no sums over requests"),
        ("MyModel::step", "nor in the annotation"),
    ):
        found = evaluate(call("vllm::unified_attention_with_output", *_unified(4))._replace(kwargs=(("engine_step", text),)))
        assert found.cost.flops is None
        assert reason in found.reason


def test_packed_sequences_of_one_length_are_known() -> None:
    """15 requests of 1024 tokens each, 15,360 in all, from a cache: nobody has more keys than queries."""
    q, cache, offsets = t(15360, 32, 128, dtype=B), t(835874, 8, 128, dtype=B), t(16, dtype="int32")
    args = [q, cache, cache, offsets, offsets, t(15616, dtype="int32"), 1024, 1024, 0.0, 0.09, 0.0, False, True, -1, -1]
    pairs = 15 * 1024 * 1025 // 2
    flops, moved = _cost("aiter::mha_batch_prefill", *args)
    assert flops == 4 * 32 * 128 * pairs
    assert moved == 2 * (2 * 15360 * 32 * 128 + 2 * 15360 * 8 * 128) + 4 * 15360 * 32
    args[6] = args[7] = 1025  # the longest times the number is not the tokens
    assert evaluate(call("aiter::mha_batch_prefill", *args)).cost.flops is None
    args[6], args[7] = 1024, 2048  # keys that were there before: how many is data
    assert evaluate(call("aiter::mha_batch_prefill", *args)).cost.flops is None


def test_the_packages_of_flash_attention_agree() -> None:
    q, k = t(2, 6, 4, 8, dtype=B), t(2, 6, 2, 8, dtype=B)
    packed, keys, cu = t(12, 4, 8, dtype=B), t(12, 2, 8, dtype=B), t(3, dtype="int32")
    flops = 4 * 4 * 8 * 2 * 21
    plain = (q, k, k, 0.0, 0.3, True, -1, -1)
    assert _cost("flash_attn::_flash_attn_forward", *plain)[0] == flops
    assert _cost("aiter::mha_fwd", *plain)[0] == flops
    varlen = (packed, keys, keys, cu, cu, 6, 6, 0.0, 0.3, True, -1, -1, 0.0, None, False)
    assert _cost("flash_attn::_flash_attn_varlen_forward", *varlen)[0] == flops
    third = (packed, keys, keys, None, None, None, packed, cu, cu, None, None, None, 6, 6, *[None] * 9, 0.3, True, -1, -1)
    assert _cost("flash_attn_3::fwd", *third)[0] == _cost("_vllm_fa3_C::fwd", *third)[0] == flops
    second = (packed, keys, keys, packed, cu, cu, None, None, None, None, 6, 6, 0.0, 0.3, False, True, -1, -1)
    assert _cost("_vllm_fa2_C::varlen_fwd", *second)[0] == flops
    assert _cost("autograd::FlashAttnFunc", q, k, k, 0.0, 0.3, True)[0] == flops
    assert _cost("autograd::FlashAttnVarlenFunc", packed, keys, keys, cu, cu, 6, 6, 0.0, 0.3, True)[0] == flops
    both = t(2, 6, 3, 4, 8, dtype=B)
    assert _cost("autograd::FlashAttnQKVPackedFunc", both, 0.0, 0.3, True)[0] == flops
    one, shared = t(1, 12, 4, 8, dtype=B), t(1, 12, 4, 8, dtype=B)
    assert (
        _cost("xformers::efficient_attention_forward_cutlass", one, shared, shared, None, cu, cu, 6, 0.0, True, 1)[0] == flops
    )
    windowed = sum(min(i + 1, 3) for i in range(6))
    assert _cost("flash_attn::_flash_attn_forward", *plain[:6], 2, 0)[0] == 4 * 4 * 8 * 2 * windowed
    # Backward 2.5 times as much, in one kernel, and as an op of its own.
    (piece,) = evaluate_backward(call("autograd::FlashAttnFunc", q, k, k, 0.0, 0.3, True))
    lse = t(2, 4, 6)
    own = _cost("flash_attn::_flash_attn_backward", q, q, k, k, q, lse, q, k, k, 0.0, 0.3, True, -1, -1)
    assert 2 * (piece.cost.flops or 0) == 5 * flops == 2 * (own[0] or 0)
    apart = _cost("flash_attn::_flash_attn_varlen_backward", packed, packed, keys, keys, packed, lse, packed, keys, keys, cu, cu, 6, 6,
                  0.0, 0.3, True, -1, -1)  # fmt: skip
    assert apart[0] == own[0]


def test_attention_that_a_profiler_wraps_by_file_function_and_line() -> None:
    """SGLang's decode step of 32 requests with 32,785 keys."""
    q, cache, offsets = t(32, 32, 128, dtype=B), t(835874, 1, 8, 128, dtype=B), t(33, dtype="int32")
    text = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)"
    args = (q, t(10905190400, dtype=U8), q, cache, cache, offsets)
    flops, moved = _cost("sglang_profiler::attention_paged_attention_ragged_100", *args, engine_step=text)
    assert (flops, moved) == (537_149_440, 2 * (2 * 32 * 4096 + 2 * 32785 * 1024))
    assert not known("sglang_profiler::attention_paged_attention_ragged_of_100")


def test_latent_attention_shares_one_entry_of_the_cache_among_heads() -> None:
    """DeepSeek's: 16 heads, keys of 512 + 64, values the 512."""
    nope, pe, cache = t(3, 16, 512, dtype=B), t(3, 16, 64, dtype=B), t(900, 64, 576, dtype=B)
    text = _text([], [(1, 7), (1, 9), (1, 30)])
    flops, moved = _cost("sgl_kernel::cutlass_mla_decode", nope, nope, pe, cache, t(3), t(3, 9), engine_step=text)
    assert flops == 2 * 16 * 46 * (576 + 512)
    assert moved == 2 * (3 * 16 * 576 + 46 * 576 + 3 * 16 * 512)


def test_collectives_of_engines_read_combine_and_write() -> None:
    x, gathered = t(4, 6, dtype=B), t(8, 6, dtype=B)
    for name, args in (
        ("symm_mem::multimem_all_reduce_", (x, "sum", "tp")),
        ("symm_mem::one_shot_all_reduce", (x, "sum", "tp")),
        ("symm_mem::two_shot_all_reduce_", (x, "sum", "tp")),
        ("vllm::all_reduce", (x, "tp")),
        ("_C_custom_ar::all_reduce", (123, x, x, 0, 0)),
        ("sgl_kernel::all_reduce", (123, x, x, 0, 0)),
        ("c10d_functional::all_reduce", (x, "sum", "", [0, 1], 2)),
    ):
        assert _cost(name, *args) == (24, 2 * 48), name
    assert _cost("aiter::all_gather_reg", 123, x, gathered, 0) == (0, 48 + 96)
    assert _cost("vllm::all_gather", x, 0, 2, "tp") == (0, 48 + 96)
    assert _cost("vllm::reduce_scatter", x, 0, 2, "tp") == (24, 48 + 24)
    lists = [t(4, dtype=B), t(6, dtype=B)]
    assert _cost("_c10d_functional::all_gather_into_tensor_coalesced", lists, 2, "tp") == (0, 20 + 40)
    assert _cost("_c10d_functional::reduce_scatter_tensor_coalesced", lists, "sum", 2, "tp") == (10, 20 + 10)


def _inside(experts: int = 32, k: int = 4) -> list[list[Any]]:
    """Within a layer of gpt-oss in vLLM: hidden size 2880 kept as 3072, experts' inner size 2880 as 2944, mxfp4."""
    return [
        ["autograd::TopK", t(32, experts, dtype=B), k, True, 1, True, None, None],
        ["autograd::SortTokens", t(32, k, dtype=B), t(32, k, dtype="int16"), experts],
        ["aten::view", t(1, 128, 2944, dtype=B), [128, 2944]],
        ["aten::view", t(experts, 1536, 5888, dtype=U8, strides=(9043968, 1, 1536)), [experts, 1536, 5888]],
        ["aten::view", t(experts, 1472, 3072, dtype=U8, strides=(4521984, 1, 1472)), [experts, 1472, 3072]],
    ]


def test_a_layer_of_experts_is_known_from_the_ops_inside_it() -> None:
    layer = call("vllm::moe_forward", t(32, 3072, dtype=B), t(32, 32, dtype=B), None, None)
    cost = evaluate(layer._replace(kwargs=(("inside", _inside()),))).cost
    assert cost.flops == 2 * 128 * (3072 * 5888 + 2944 * 3072)
    weights = 32 * (1536 * 5888 + 1472 * 3072)  # 128 rows reach all experts
    assert cost.bytes == weights + 2 * 2 * 32 * 3072 + 2 * 32 * 32
    assert (cost.operands, cost.inferred, (cost.params or "").endswith(",inferred")) == (B, True, True)
    one = call("vllm::moe_forward", t(1, 3072, dtype=B), t(1, 32, dtype=B), None, None)
    few = evaluate(one._replace(kwargs=(("inside", _inside()),))).cost
    assert few.bytes == weights // 8 + 2 * 2 * 3072 + 2 * 32  # of one token's four


def test_a_layer_of_experts_lacking_k_or_weights_is_not_known() -> None:
    layer = call("vllm::moe_forward", t(32, 3072, dtype=B), t(32, 32, dtype=B), None, None)
    for inside, reason in (
        (None, "neither the weights"),
        (_inside()[1:], "how many experts a token takes"),
        (_inside()[:3], "the weights of the experts are not recorded"),
        (_inside()[:4], "the weights of the experts are not recorded"),
        (_inside(experts=16), "the weights of the experts are not recorded"),
    ):
        found = evaluate(layer._replace(kwargs=(("inside", inside),)))
        assert found.cost.flops is None
        assert reason in found.reason


def test_choosing_experts_and_sorting_by_them() -> None:
    scores, chosen, places = t(32, 32, dtype=B), t(32, 4, dtype=B), t(32, 4, dtype="int16")
    bits = 4 * 32 * 32 // 32  # one for each expert of each token
    assert _cost("autograd::TopK", scores, 4, True, 1, True, None, None) == (1024 + 5 * 128, 2048 + 256 + 256 + bits)
    assert _cost("autograd::SortTokens", chosen, places, 32) == (7 * 128, 3 * 256 + 2 * 512)


def test_experts_given_as_tensors() -> None:
    """4 tokens, 2 of 8 experts each, hidden size 16, inner size 12 with a gate."""
    hidden, ids, scores = t(4, 16, dtype=B), t(4, 2, dtype="int32"), t(4, 2)
    w1, w2 = t(8, 24, 16, dtype=B), t(8, 16, 12, dtype=B)
    flops = 2 * 8 * (16 * 24 + 12 * 16)
    moved = 2 * (8 * 24 * 16 + 8 * 16 * 12 + 2 * 64) + 4 * 16
    assert _cost("vllm::outplace_fused_experts", hidden, w1, w2, scores, ids) == (flops, moved)
    assert _cost("vllm::outplace_fused_experts", hidden, t(8, 24, 8, dtype=U8), t(8, 16, 6, dtype=U8), scores, ids)[0] == flops
    scales = t(8, 24), t(8, 16)
    aiter = _cost("vllm::rocm_aiter_fused_moe", hidden, w1, w2, scores, ids, None, 0, 0, False, *scales)
    assert aiter == (flops, moved + 4 * 8 * 40)
    rows, out = t(8, 16, dtype=F8), t(8, 24, dtype=B)
    grouped = _cost(
        "_C::cutlass_moe_mm", out, rows, t(8, 16, 24, dtype=F8, strides=(384, 1, 16)), t(8, 1), t(8, 1), t(9, dtype="int32")
    )
    assert grouped == (2 * 8 * 16 * 24, 128 + 8 * 384 + 4 * 16 + 2 * 192)
    stage = _cost("aiter::ck_moe_stage2", t(4, 2, 12, dtype=B), w1, w2, None, None, None, hidden, 2)
    assert stage == (2 * 8 * 12 * 16, 2 * (96 + 8 * 192 + 64))
    assert evaluate(call("vllm::outplace_fused_experts", hidden, t(8, 24, 15, dtype=B), w2, scores, ids)).cost.flops is None


def test_of_an_op_without_a_formula_the_rows_of_its_tensors_are_a_lower_bound() -> None:
    rows, table = t(32, 6, dtype=B), t(1000, 6, dtype=B)
    own = call("mylib::fused", rows, table, t(32, dtype="int32"), t(6), 3)
    assert evaluate(own).cost.bytes is None
    assert least_bytes(own) == 2 * 192 + 4 * 32
    assert least_bytes(call("aten::nothing", rows)) is None
    assert least_bytes(call("mylib::nothing", 3)) is None
