"""autograd.Functions and ops of training libraries: against torch's own ops of the same meaning, by counting, by definition."""

import itertools
from typing import Any

import pytest

from pyprof.prof.formulas import Cost, Piece, evaluate, evaluate_backward
from tests.prof.formulas.formula_oracles import call, t

B = "bfloat16"
X, W, BIAS = t(4, 6, 8, dtype=B), t(8, dtype=B), t(8, dtype=B)
F = "torch.nn.functional."

# a library's function, and the op of torch that means the same
SAME: list[tuple[str, tuple[Any, ...], str, tuple[Any, ...]]] = [
    ("autograd::LigerRMSNormFunction", (X, W, 1e-6, 0.0, None, True), F + "rms_norm", (X, (8,), W)),
    ("autograd::FusedRMSNormAffineFunction", (X, W, [8], 1e-6), F + "rms_norm", (X, (8,), W)),
    ("autograd::FusedRMSNormFunction", (X, [8], 1e-6), F + "rms_norm", (X, (8,))),
    ("autograd::LigerLayerNormFunction", (X, W, BIAS, 1e-6), F + "layer_norm", (X, (8,), W, BIAS)),
    ("autograd::FusedLayerNormAffineFunction", (X, W, BIAS, [8], 1e-6), F + "layer_norm", (X, (8,), W, BIAS)),
    ("autograd::FusedLayerNormFunction", (X, [8], 1e-6), F + "layer_norm", (X, (8,))),
    ("autograd::LigerSoftmaxFunction", (X,), F + "softmax", (X, -1)),
    ("autograd::LigerCrossEntropyFunction", (t(24, 8, dtype=B), t(24, dtype="int64"), None), F + "cross_entropy",
     (t(24, 8, dtype=B), t(24, dtype="int64"))),
    ("autograd::FusedDenseFunc", (X, t(5, 8, dtype=B), t(5, dtype=B)), F + "linear", (X, t(5, 8, dtype=B), t(5, dtype=B))),
    ("autograd::_Linear", (t(5, 8, dtype=B), X, t(5, dtype=B), None, False), F + "linear", (X, t(5, 8, dtype=B), t(5, dtype=B))),
    # A release that has the weight's copies in fp8 between the weight and the input.
    ("autograd::_Linear", (t(5, 8, dtype=B), t(5, 8, dtype="uint8"), None, X, t(5, dtype=B)), F + "linear",
     (X, t(5, 8, dtype=B), t(5, dtype=B))),
]  # fmt: skip


def _numbers(cost: Cost) -> tuple[int | None, int | None, int | None]:
    return cost.matmul_flops, cost.vector_flops, cost.bytes


@pytest.mark.parametrize(("name", "args", "torchs", "given"), SAME, ids=lambda v: v if isinstance(v, str) else None)
def test_as_torchs_own(name: str, args: tuple[Any, ...], torchs: str, given: tuple[Any, ...]) -> None:
    ours, theirs = call(name, *args), call(torchs, *given)
    assert not evaluate(ours).reason
    assert _numbers(evaluate(ours).cost) == _numbers(evaluate(theirs).cost)
    mine, others = evaluate_backward(ours), evaluate_backward(theirs)
    assert others
    assert sorted((p.name, _numbers(p.cost)) for p in mine) == sorted((p.name, _numbers(p.cost)) for p in others)


def test_transformer_engine_runs_the_inputs_gradient_first_and_norms_before() -> None:
    wide = t(5, 8, dtype=B)
    assert [p.name for p in evaluate_backward(call("autograd::_Linear", wide, X, None, None))] == ["dgrad", "wgrad"]
    fused = call("autograd::_LayerNormLinear", X, W, None, wide, t(5, dtype=B), 1e-6)
    assert _numbers(evaluate(fused).cost)[:2] == (2 * 24 * 5 * 8, 4 * X.numel)
    assert [p.name for p in evaluate_backward(fused)] == ["dgrad", "wgrad", "norm"]
    biased = call("autograd::_LayerNormLinear", X, W, BIAS, wide, t(5, dtype=B), 1e-6)
    assert evaluate(biased).cost.vector_flops == 8 * X.numel
    gated = call("autograd::_LayerNormMLP", X, W, BIAS, t(24, 8, dtype=B), t(24, dtype=B), t(8, 12, dtype=B), t(8, dtype=B))
    assert evaluate(gated).cost.matmul_flops == 2 * 24 * 8 * (24 + 12)
    assert sum(p.cost.matmul_flops or 0 for p in evaluate_backward(gated)) == 4 * 24 * 8 * (24 + 12)
    assert evaluate(call("autograd::_LayerNormMLP", X, W, BIAS, t(24, 8, dtype=B))).cost.flops is None


def test_gates_softmaxes_and_positions() -> None:
    a = t(4, 6, dtype=B)
    assert _numbers(evaluate(call("autograd::LigerSiLUMulFunction", a, a)).cost) == (0, 6 * 24, 2 * 3 * 24)
    (gate,) = evaluate_backward(call("autograd::LigerSiLUMulFunction", a, a))
    assert _numbers(gate.cost) == (0, 16 * 24, 2 * 5 * 24)
    scaled = evaluate(call("autograd::ScaledMaskedSoftmax", t(2, 3, 4, 4, dtype=B), t(2, 1, 4, 4, dtype="bool"), 0.1)).cost
    assert _numbers(scaled) == (0, 7 * 96, 2 * 2 * 96 + 32)
    q, k, table = t(2, 6, 4, 8, dtype=B), t(2, 6, 2, 8, dtype=B), t(1, 6, 8, dtype=B)
    rope = evaluate(call("autograd::LigerRopeFunction", q, k, table, table)).cost
    assert _numbers(rope) == (0, 3 * (384 + 192), 2 * (2 * (384 + 192) + 2 * 48))
    added = evaluate(call("autograd::LigerFusedAddRMSNormFunction", X, X, W, 1e-6)).cost
    plain = evaluate(call("autograd::LigerRMSNormFunction", X, W, 1e-6)).cost
    assert (added.vector_flops or 0) - (plain.vector_flops or 0) == X.numel
    assert (added.bytes or 0) - (plain.bytes or 0) == 2 * 2 * X.numel


def _counted(batch: int, length: int, chunk: int, heads: int, size: int, groups: int, states: int) -> int:
    """Multiply-adds of state space duality, one by one: within chunks what the mask leaves, and the states between them."""
    done = 0
    for step in range(length):
        first = step - step % chunk
        for _ in range(first, step + 1):  # each step of its chunk up to its own
            done += groups * states  # C·B
            done += heads * size  # times the input
        done += heads * size * states  # into the chunk's state
        done += heads * size * states  # out of the state before
    return 2 * batch * done


@pytest.mark.parametrize(("length", "chunk"), [(8, 4), (12, 3), (6, 6)])
def test_a_scan_by_chunks_is_counted(length: int, chunk: int) -> None:
    batch, heads, size, groups, states = 2, 4, 3, 2, 5
    x, dt = t(batch, length, heads, size, dtype=B), t(batch, length, heads, dtype=B)
    bc = t(batch, length, groups, states, dtype=B)
    scan = call("autograd::MambaChunkScanCombinedFn", x, dt, t(heads), bc, bc, chunk)
    assert evaluate(scan).cost.matmul_flops == _counted(batch, length, chunk, heads, size, groups, states)
    (piece,) = evaluate_backward(scan)
    assert piece.cost.matmul_flops == 2 * (evaluate(scan).cost.matmul_flops or 0)
    inner, channels = heads * size, heads * size + 2 * groups * states
    zx, projection = t(batch, length, inner + channels + heads, dtype=B), t(7, inner, dtype=B)
    whole = call("autograd::MambaSplitConv1dScanCombinedFn", zx, t(channels, 4, dtype=B), t(channels, dtype=B), t(heads), t(heads),
                 t(heads), chunk, None, None, None, False, None, t(inner, dtype=B), 1e-5, projection, None, size, groups, True)  # fmt: skip
    cost = evaluate(whole).cost
    steps = batch * length
    assert cost.matmul_flops == _counted(batch, length, chunk, heads, size, groups, states) + 2 * steps * inner * 7
    assert cost.vector_flops == steps * (channels * (2 * 4 + 5) + inner * (5 + 1 + 4))


def test_a_selective_scan_is_counted() -> None:
    u, A, bc = t(2, 6, 10), t(6, 4), t(2, 4, 10)
    assert _numbers(evaluate(call("autograd::SelectiveScanFn", u, u, A, bc, bc)).cost) == (
        0,
        8 * 120 * 4,
        4 * (3 * 120 + 24 + 160),
    )
    gated = evaluate(call("autograd::SelectiveScanFn", u, u, A, bc, bc, t(6), u)).cost
    assert gated.vector_flops == (8 * 4 + 2 + 6) * 120
    x, w = t(2, 6, 10, dtype=B), t(6, 4, dtype=B)
    conv = evaluate(call("DaoAILab::_causal_conv1d_fwd_cpp", x, w, None, None, None, x, None, True)).cost
    assert _numbers(conv) == (0, (8 + 5) * 120, 2 * (240 + 24))


def test_detection() -> None:
    image, boxes = t(1, 3, 32, 32), t(5, 5)
    cost = evaluate(call("torchvision::roi_align", image, boxes, 1.0, 7, 7, 2, True)).cost
    assert _numbers(cost) == (0, (8 * 4 + 1) * 5 * 3 * 49, 4 * (3 * 1024 + 25 + 735))
    assert "data" in evaluate(call("torchvision::roi_align", image, boxes, 1.0, 7, 7, -1, True)).reason
    assert "data" in evaluate(call("torchvision::nms", t(9, 4), t(9), 0.5)).reason
    weight, offset, mask = t(4, 3, 3, 3), t(1, 18, 30, 30), t(1, 9, 30, 30)
    options = (t(4), 1, 1, 0, 0, 1, 1, 1, 1, True)
    deformed = evaluate(call("torchvision::deform_conv2d", image, weight, offset, mask, *options)).cost
    plain = evaluate(call(F + "conv2d", image, weight, t(4))).cost
    assert deformed.matmul_flops == plain.matmul_flops == 2 * 900 * 4 * 27
    assert deformed.vector_flops == 9 * 900 * 27


def test_four_and_eight_bits() -> None:
    a = t(8, 64, dtype="float16")
    assert _numbers(evaluate(call("bitsandbytes::quantize_4bit", a, 64, None, 0)).cost) == (0, 7 * 512, 1024 + 256 + 32)
    back = call("bitsandbytes::dequantize_4bit", t(256, 1, dtype="uint8"), t(8), 64, None, [8, 64], 5)
    assert _numbers(evaluate(back).cost) == (0, 512, 256 + 32 + 1024)
    assert _numbers(evaluate(call("bitsandbytes::int8_vectorwise_quant", a, 0.0)).cost) == (0, 4 * 512, 1024 + 512 + 32)
    product = call("bitsandbytes::int8_mm_dequant", t(8, 5, dtype="int32"), t(8), t(5), 5, None)
    assert _numbers(evaluate(product).cost) == (0, 80, 160 + 32 + 20 + 80)


def test_attention_of_proteins() -> None:
    q = t(1, 2, 6, 4, 8, dtype=B)
    cost = evaluate(call("autograd::EvoformerFusedAttention", q, q, q, None, None)).cost
    assert cost.matmul_flops == sum(4 * 8 for _ in itertools.product(range(2 * 4), range(6), range(6)))
    assert all(isinstance(piece, Piece) for piece in evaluate_backward(call("autograd::EvoformerFusedAttention", q, q, q)))


E4, I8 = "float8_e4m3fn", "int8"
PACKED, FP8, W8 = t(5, 8, dtype=I8), t(6, 16, dtype=E4), t(5, 16, dtype=E4)  # 16 values of 4 bits in 8 bytes
Q4, OUT4 = t(2, 6, 4, 8, dtype=I8), t(2, 6, 4, 8, dtype=B)  # (B, S, H, D)
MORE: list[tuple[str, tuple[Any, ...], int, str]] = [
    ("fbgemm::bf16i4bf16_rowwise", (t(6, 16, dtype=B), PACKED, t(2, 5), t(2, 5)), 2 * 6 * 5 * 16, ""),
    ("mslk::f8f8bf16_rowwise", (FP8, W8, t(6), t(5)), 2 * 6 * 5 * 16, ""),
    ("fbgemm::f8i4bf16_shuffled", (FP8, PACKED, t(6), t(5), t(2, 5)), 2 * 6 * 5 * 16, ""),
    ("torchao::mx_fp8_bf16", (FP8, t(16, 5, dtype=E4), t(6), t(5)), 2 * 6 * 5 * 16, ""),
    ("torchao::rowwise_scaled_linear_cutlass_s8s4", (t(6, 16, dtype=I8), t(6, dtype=B), PACKED, t(5, dtype=B), None, t(0, dtype=B)), 2 * 6 * 5 * 16, ""),
    ("mslk::f4f4bf16", (t(6, 8, dtype="uint8"), t(5, 8, dtype="uint8"), t(6), t(5)), 2 * 6 * 5 * 16, ""),
    ("fbgemm::f8f8bf16_rowwise_grouped", ([FP8, t(3, 16, dtype=E4)], [W8, W8], [t(6), t(3)], [t(5), t(5)]), 2 * 9 * 5 * 16, ""),
    ("mslk::bf16bf16bf16_grouped_stacked", (t(9, 16, dtype=B), t(2, 5, 16, dtype=B), t(2, dtype="int64")), 2 * 9 * 5 * 16, ""),
    ("fbgemm::bf16i4bf16_shuffled_grouped", (t(9, 16, dtype=B), t(2, 5, 8, dtype=I8), t(2, 2, 5), t(2, 2, 5), t(2)), 2 * 9 * 5 * 16, ""),
    ("sageattention_sm89::qk_int8_sv_f8_accum_f32_fuse_v_scale_attn", (Q4, Q4, t(2, 8, 4, 64, dtype=E4), OUT4, t(2, 4), t(2, 4), t(2, 8), 0, 0, 3, 0.1, 0), 4 * 8 * 36 * 8, ""),
    ("sageattention::qk_int8_sv_f16_accum_f32_attn", (Q4, Q4, OUT4, OUT4, t(2), t(2), 1, 1, 3, 0.1, 0), 4 * 12 * 10 * 8, ""),  # 4 queries, causal
    ("autograd::_GroupedLinear", (t(9, 16, dtype=B), None, *[t(5, 16, dtype=B)] * 3), 2 * 9 * 5 * 16, ""),
    ("autograd::FusedAttnFunc", (True, 6, 6, t(3), t(3), t(3), t(3), None, None, OUT4, OUT4, OUT4), 4 * 8 * 36 * 8, "upper"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "products", "bound"), MORE, ids=[row[0] for row in MORE])
def test_products_of_todays_libraries(name: str, args: tuple[Any, ...], products: int, bound: str) -> None:
    result = evaluate(call(name, *args))
    assert (result.cost.matmul_flops, result.cost.bound, result.cost.bytes is None) == (products, bound, False), result.reason


def test_backwards_of_todays_libraries() -> None:
    q = t(2, 6, 4, 8, dtype=B)
    lengths = (None,) * 6
    gradient = evaluate(call("flash_attn_3::bwd", q, q, q, q, q, t(2, 4, 6), q, q, q, *lengths, 0.1, True, -1, -1))
    assert gradient.cost.matmul_flops == 10 * 8 * 21 * 8
    assert [p.cost.matmul_flops for p in evaluate_backward(call(*(MORE[-2][0], *MORE[-2][1])))] == [1440, 1440]


def test_exchanges_of_symmetric_memory() -> None:
    a = t(6, 8, dtype=B)
    assert _numbers(evaluate(call("symm_mem::one_shot_all_reduce_copy", a, a, "sum", "0")).cost) == (0, 48, 3 * 96)
    assert (
        evaluate(call("symm_mem::all_to_all_vdev", a, a, t(2, dtype="int64"), t(2, 2, dtype="int64"), "0")).cost.at_least == 16
    )
