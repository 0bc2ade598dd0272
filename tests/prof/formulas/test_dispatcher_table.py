"""Costs, worked out by hand, of ops of the dispatcher that no build for a CPU runs, or that only libraries and compilers call."""

from typing import Any

import pytest

from pyprof.model.opcall import DTypeArg
from pyprof.prof.formulas import evaluate, evaluate_backward, gives_way, is_copy
from tests.prof.formulas.formula_oracles import call, t

H, B, E4 = "float16", "bfloat16", "float8_e4m3fn"

# name, arguments, FLOPs, bytes
TABLE: list[tuple[str, tuple[Any, ...], int | None, int | None]] = [
    # 2 of 4 values: half of 2·M·N·K, M = 32, K = 64, N = 16; the kept half is (32, 32), its places 2 bits each
    (
        "aten::_sparse_semi_structured_addmm",
        (t(32, 16, dtype=H), t(32, 32, dtype=H), t(32, 4, dtype="int16"), t(64, 16, dtype=H), 1, 1, None),
        32 * 16 * 64,
        2 * (512 + 1024 + 128 + 1024 + 512),
    ),
    (
        "aten::_sparse_semi_structured_addmm",  # beta 0 leaves the first alone
        (t(32, 16, dtype=H), t(32, 32, dtype=H), t(32, 4, dtype="int16"), t(64, 16, dtype=H), 1, 0, DTypeArg("float32")),
        32 * 16 * 64,
        2 * (1024 + 128 + 1024) + 4 * 512,
    ),
    ("aten::_cslt_compress", (t(32, 64, dtype=H),), 0, 2 * (2048 + 1152)),
    ("aten::_cslt_sparse_mm", (t(32, 36, dtype=H), t(64, 16, dtype=H)), 32 * 16 * 64, 2 * (1152 + 1024 + 512)),
    ("aten::_cslt_sparse_mm", (t(1152, dtype=H), t(64, 16, dtype=H)), 32 * 16 * 64, 2 * (1152 + 1024 + 512)),
    ("aten::_to_sparse_semi_structured", (t(32, 64, dtype=H),), 0, 4096 + 2048 + 256),
    ("aten::_sparse_semi_structured_tile", (t(32, 64, dtype=H), "", True), 4 * 2048, 4096 + 2 * (2048 + 256) + 256),
    ("aten::_sparse_semi_structured_apply", (t(32, 64, dtype=H), t(4, 8, 8, dtype="uint8")), 0, 4096 + 256 + 4096),
    ("aten::_sparse_semi_structured_apply_dense", (t(32, 64, dtype=H), t(4, 8, 8, dtype="uint8")), 0, 4096 + 256 + 4096),
    # low precision: (16, 32) by (32, 48), a scale for 32 values of a row
    (
        "aten::_scaled_mm_v2",
        (t(16, 32, dtype=E4), t(32, 48, dtype=E4), [t(16, dtype="float8_e8m0fnu")], [3], [1], [t(48, dtype="float8_e8m0fnu")],
         [3], [1], None, DTypeArg(B)),
        2 * 16 * 32 * 48,
        512 + 1536 + 16 + 48 + 2 * 768,
    ),
    (
        "aten::_scaled_grouped_mm_v2",  # 96 rows in four groups
        (t(96, 32, dtype=E4), t(4, 32, 48, dtype=E4), [t(96)], [0], [0], [t(4, 48)], [0], [0], t(4, dtype="int32"), None, DTypeArg(B)),
        2 * 96 * 32 * 48,
        3072 + 6144 + 384 + 768 + 16 + 2 * 4608,
    ),
    (
        "aten::_weight_int4pack_mm_for_cpu",
        (t(8, 64, dtype=B), t(32, 32, dtype="uint8"), 32, t(2, 32, 2, dtype=B)),
        2 * 8 * 32 * 64,
        2 * 512 + 1024 + 2 * 128 + 2 * 256,
    ),
    (
        "aten::_weight_int4pack_mm_with_scales_and_zeros",
        (t(8, 64, dtype=B), t(32, 8, dtype="int32"), 32, t(2, 32, dtype=B), t(2, 32, dtype="int8")),
        2 * 8 * 32 * 64,
        2 * 512 + 1024 + 128 + 64 + 2 * 256,
    ),
    ("aten::_dyn_quant_matmul_4bit", (t(8, 64), t(1100, dtype="uint8"), 32, 64, 32), 2 * 8 * 32 * 64, 4 * 512 + 1100 + 4 * 256),
    (
        "aten::_mixed_dtypes_linear",
        (t(8, 64, dtype=H), t(64, 32, dtype="int8"), t(32, dtype=H), t(32, dtype=H), None),
        2 * 8 * 32 * 64,
        1024 + 2048 + 64 + 64 + 512,
    ),
    ("aten::_convert_weight_to_int4pack", (t(32, 32, dtype="uint8"), 8), 0, 2048),
    ("aten::_foreach_mm", ([t(2, 3), t(4, 5)], [t(3, 6), t(5, 7)]), 2 * (36 + 140), 4 * (6 + 18 + 12 + 20 + 35 + 28)),
    ("aten::matmul_backward", (t(2, 3, 5), t(2, 3, 4), t(4, 5), [True, False]), 240, 4 * (30 + 20 + 24)),
    ("aten::matmul_backward", (t(2, 3, 5), t(2, 3, 4), t(4, 5), [True, True]), 480, 4 * (30 + 20 + 24 + 24 + 20)),
    # attention: two batches of three heads, 5 queries, 7 keys, size 4
    (
        "aten::_cudnn_attention_forward",
        (t(2, 3, 5, 4), t(2, 3, 7, 4), t(2, 3, 7, 4), None, None, None, 5, 7, True),
        4 * 6 * 35 * 4,
        (120 + 168 + 168 + 120 + 30) * 4,
    ),
    (
        "aten::_flash_attention_forward_no_dropout_inplace",  # (batch, sequence, heads, size)
        (t(2, 5, 3, 4), t(2, 5, 3, 4), t(2, 7, 3, 4), t(2, 7, 3, 4), None, None, 5, 7, 0.0, False, False),
        4 * 6 * 35 * 4,
        (120 + 168 + 168 + 120 + 30) * 4,
    ),
    ("aten::_transform_bias_rescale_qkv", (t(2, 5, 24), t(24), 2), 240 + 80, (240 + 24 + 240) * 4),
    # gates of recurrent cells: two rows, state 4
    ("aten::_thnn_fused_lstm_cell_backward_impl", (t(2, 4), None, t(2, 4), t(2, 4), t(2, 16), True), 27 * 8, (24 + 32 + 32 + 8 + 16) * 4),
    ("aten::_thnn_fused_gru_cell_backward", (t(2, 4), t(2, 20), False), 15 * 8, (8 + 40 + 48 + 8) * 4),
    ("aten::_pack_padded_sequence_backward", (t(9, 4), [3, 5, 4], t(5, dtype="int64"), False), 0, 4 * (36 + 60)),
    ("aten::pad_sequence", ([t(3, 4), t(5, 4)],), 0, 4 * (32 + 40)),
    ("aten::_jagged_to_padded_dense_forward", (t(9, 4), [t(4, dtype="int64")], [5], 0.0), 0, 4 * 36 + 32 + 4 * 60),
    ("aten::_padded_dense_to_jagged_forward", (t(3, 5, 4), [t(4, dtype="int64")], 9), 0, 4 * 36 + 32 + 4 * 36),
    # norms
    ("aten::_weight_norm_interface", (t(6, 10), t(6, 1), 0), 180 + 12, 4 * (60 + 6 + 60 + 6)),
    ("aten::_weight_norm_interface", (t(6, 10, dtype=H), t(6, 1, dtype=H), 0), 192, 2 * (60 + 6 + 60) + 4 * 6),
    ("aten::_weight_norm_interface_backward", (t(6, 10), t(6, 10), t(6, 1), t(6, 1), 0), 300 + 24, 4 * (60 + 60 + 6 + 6 + 60 + 6)),
    ("aten::batch_norm_gather_stats", (t(2, 3, 4), t(8, 3), t(8, 3), None, None, 0.1, 1e-5, 64), 19 * 24 + 9, 4 * (24 + 24 + 6)),
    ("aten::batch_norm_update_stats", (t(2, 3, 4), t(3), t(3), 0.1), 96 + 18, 4 * (24 + 12 + 6)),
    ("aten::quantized_batch_norm", (t(2, 3, 4, dtype="quint8"), t(3), t(3), t(3), t(3), 1e-5, 0.1, 0), 96, 48 + 48),
    # quantisation
    ("aten::quantize_per_tensor", (t(10), 0.1, 0, DTypeArg("quint8")), 50, 40 + 10),
    ("aten::quantize_per_channel", (t(4, 5), t(4, dtype="float64"), t(4, dtype="int64"), 0, DTypeArg("qint8")), 100, 80 + 32 + 32 + 20),
    ("aten::dequantize", (t(10, dtype="quint8"),), 20, 10 + 40),
    ("aten::dequantize", ([t(10, dtype="quint8"), t(5, dtype="qint8")],), 30, 15 + 60),
    ("aten::int_repr", (t(10, dtype="quint8"),), 0, 20),
    ("aten::fake_quantize_per_tensor_affine_cachemask", (t(10), 0.1, 0, 0, 255), 90, 40 + 40 + 10),
    ("aten::fake_quantize_per_tensor_affine_cachemask_backward", (t(10), t(10, dtype="bool")), 10, 40 + 10 + 40),
    ("aten::_fake_quantize_learnable_per_tensor_affine_backward", (t(10), t(10), t(1), t(1), 0, 255, 1.0), 140, 4 * (20 + 2 + 12)),
    # pooling, sampling, convolution by other libraries
    ("aten::mkldnn_max_pool2d", (t(1, 2, 8, 8), [2, 2]), 128, 512 + 128),
    ("aten::mkldnn_adaptive_avg_pool2d_backward", (t(1, 2, 1, 1), t(1, 2, 8, 8)), 128, 8 + 512),
    ("aten::fractional_max_pool2d_backward", (t(1, 2, 3, 3), t(1, 2, 8, 8), [2, 2], [3, 3], t(1, 2, 3, 3, dtype="int64")), 18, 72 + 144 + 512),
    ("aten::_upsample_bilinear2d_aa", (t(1, 2, 8, 8), [4, 4], False), 2 * 16 * 32, 512 + 128),  # twice as wide each way
    ("aten::_upsample_lanczos2d_aa", (t(1, 2, 4, 4), [8, 8], False), 2 * 36 * 128, 128 + 512),
    ("aten::cudnn_grid_sampler_backward", (t(1, 2, 4, 4), t(1, 3, 3, 2), t(1, 2, 3, 3)), 4 * 4 * 18, 4 * (32 + 18 + 18 + 32 + 18)),
    ("aten::conv_tbc", (t(9, 2, 4), t(3, 4, 6), t(6), 1), 2 * 9 * 2 * 6 * 12, 4 * (72 + 72 + 6 + 108)),
    ("aten::conv_tbc_backward", (t(9, 2, 6), t(9, 2, 4), t(3, 4, 6), t(6), 1), 4 * 9 * 2 * 6 * 12 + 108, 4 * (108 + 72 + 72 + 72 + 72 + 6)),
    ("aten::_nnpack_spatial_convolution", (t(2, 4, 8, 8), t(6, 4, 3, 3), None, [1, 1], 1), 2 * 2 * 6 * 64 * 36, 4 * (512 + 216 + 768)),
    ("aten::miopen_convolution_transpose", (t(2, 4, 5, 5), t(4, 6, 3, 3), None, 0, 0, 2, 1, 1, False, False), 2 * 2 * 4 * 25 * 54, 4 * (200 + 216 + 1452)),
    ("aten::_slow_conv2d_backward", (t(2, 6, 6, 6), t(2, 4, 8, 8), t(6, 4, 3, 3), [3, 3], [1, 1], [0, 0], [True, True, False]),
     4 * 432 * 36, 4 * (432 + 216 + 512 + 512 + 216)),
    # losses and look-ups
    ("aten::_cdist_backward", (t(3, 4), t(3, 5), t(4, 5), 2.0, t(3, 4)), 16 * 12, 4 * (12 + 15 + 20 + 12 + 15)),
    ("aten::multilabel_margin_loss_backward", (t(), t(3, 4), t(3, 4, dtype="int64"), 1, t(3, 4)), 4 * 12 * 4, 4 + 48 + 96 + 48 + 48),
    ("aten::_embedding_bag_per_sample_weights_backward", (t(2, 4), t(10, 4), t(5, dtype="int64"), t(2, dtype="int64"), t(5, dtype="int64"), 0),
     40, 32 + 80 + 40 + 40 + 20),
    ("aten::embedding_sparse_backward", (t(5, 4), t(5, dtype="int64"), 10, -1, False), 0, 0),
    ("aten::embedding_renorm_", (t(10, 4), t(5, dtype="int64"), 1.0, 2.0), 60, 40 + 80 + 80),
    # the rest
    ("aten::select_copy", (t(3, 4, 5), 1, 2), 0, 120),
    ("aten::slice_copy", (t(3, 8), 1, 1, 7, 2), 0, 72),
    ("aten::diagonal_copy", (t(3, 5), 1, 0, 1), 0, 24),
    ("aten::_cast_Half", (t(10), False), 0, 60),
    ("aten::_add_relu", (t(10), t(10), 1), 20, 120),
    ("aten::segment_reduce", (t(9, 4), "mean", t(3, dtype="int64"), None, None, 0), 36 + 12, 4 * 36 + 24 + 4 * 12),
    ("aten::cumprod_backward", (t(10), t(10), 0, t(10)), 30, 160),
    ("aten::cov", (t(3, 10), 1, None, None), 2 * 3 * 30 + 60 + 9, 4 * (30 + 9)),
    ("aten::vander", (t(5), 4), 10, 4 * (5 + 20)),
    ("aten::trapz", (t(3, 5), t(5), -1), 4 * 12, 4 * (15 + 5 + 3)),
    ("aten::histogramdd", (t(10, 2), [4, 3]), 70, 4 * (20 + 12 + 9)),
    ("aten::_philox_uniform_", (t(10), t(2, dtype="uint64"), 0.0, 1.0), 30, 56),
    ("aten::linalg_lu_factor", (t(6, 4), True), 75, 96 + 96 + 16),
    ("aten::_convert_indices_from_coo_to_csr", (t(20, dtype="int64"), 6, False), 20, 160 + 56),
    ("torch.nn.attention.flex_attention.flex_attention", (t(2, 3, 5, 4), t(2, 3, 7, 4), t(2, 3, 7, 4)), 4 * 6 * 35 * 4, 606 * 4),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "flops", "size"), TABLE, ids=[f"{i}-{row[0]}" for i, row in enumerate(TABLE)])
def test_flops_and_bytes(name: str, args: tuple[Any, ...], flops: int | None, size: int | None) -> None:
    result = evaluate(call(name, *args))
    assert (result.cost.flops, result.cost.bytes, result.reason) == (flops, size, "")


@pytest.mark.parametrize("name", ["torch.sparse.mm", "aten::_sparse_mm", "torch.sparse.addmm", "aten::_sparse_softmax"])
def test_what_depends_on_non_zeros_is_not_known(name: str) -> None:
    result = evaluate(call(name, t(100, 100), t(100, 10), t(10, 10)))
    assert (result.cost.flops, result.cost.bytes) == (None, None)
    assert "the number of non-zeros is data, not recorded" in result.reason


@pytest.mark.parametrize("name", ["aten::to_sparse", "aten::_pack_padded_sequence", "aten::_convolution_double_backward"])
def test_composites_of_unknown_size_give_way_to_what_they_call(name: str) -> None:
    assert gives_way(call(name, t(4, 5), t(4, dtype="int64"), False))


def test_copies_by_other_names_are_copies() -> None:
    assert all(
        map(is_copy, ("aten::select_copy", "aten::_cast_Float", "aten::_foreach_clone", "aten::to_mkldnn", "aten::int_repr"))
    )


def test_backward_of_vectors_distances_and_transforms() -> None:
    def pieces(name: str, *args: Any) -> list[tuple[int | None, int | None, int | None]]:
        return [(p.cost.matmul_flops, p.cost.vector_flops, p.cost.bytes) for p in evaluate_backward(call(name, *args))]

    assert pieces("torch.dot", t(9), t(9)) == [(0, 9, 76), (0, 9, 76)]
    assert pieces("torch.addmv", t(4), t(4, 3), t(3)) == [(0, 12, 4 * (4 + 3 + 12)), (24, 0, 4 * (4 + 12 + 3))]
    assert pieces("torch.cdist", t(3, 5), t(4, 5)) == [
        (0, 192, 4 * (12 + 15 + 20 + 12 + 15)),
        (0, 192, 4 * (12 + 20 + 15 + 12 + 20)),
    ]
    assert pieces("torch.fft.fft", t(8, dtype="complex64")) == [(0, 120, 128)]
    assert pieces("torch.nn.functional.unfold", t(1, 2, 4, 4), 2) == [(0, 72, 4 * (72 + 32))]
    assert pieces("torch.linalg.inv", t(6, 6)) == [(432, 0, 432), (432, 0, 432)]


def test_backward_of_chosen_places_and_windows() -> None:
    def pieces(name: str, *args: Any) -> list[tuple[str, int | None, int | None]]:
        return [(p.name, p.cost.flops, p.cost.bytes) for p in evaluate_backward(call(name, *args))]

    index = [t(3, dtype="int64")]
    assert pieces("aten::index_put", t(10, 4), index, t(3, 4)) == [("input", 0, 344), ("values", 0, 48 + 24 + 48)]
    assert pieces("aten::index_put", t(10, 4), index, t(4), True) == [("values", 12, 48 + 24 + 16)]
    assert pieces("Tensor.unfold", t(2, 10), 1, 4, 2) == [("input", 32, 128 + 80)]
    assert pieces("Tensor.expand_as", t(1, 5), t(4, 5)) == [("input", 20, 100)]
    assert pieces("Tensor.expand_as", t(4, 5), t(4, 5)) == []


@pytest.mark.parametrize(
    ("name", "arguments", "moved"),
    [
        # c10's numbers of dtypes: bool 11, bfloat16 15, float64 7
        ("aten::zeros", ([4, 4], 11), 16),
        ("aten::zeros_like", (t(4, 4), 11), 16),
        ("aten::full_like", (t(4, 4), 3, 15), 32),
        ("aten::new_zeros", (t(4, 4), [4, 4], 11), 16),
        ("aten::new_full", (t(4, 4), [4, 4], 1, 7), 128),
        ("aten::full", ([4, 4], 1.0, 15), 32),
        ("aten::eye", (4, 11, None, None, None), 16),
        ("aten::eye", (4, 5, 11, None, None, None), 20),
        ("torch.eye", (4, 5), 80),
        ("aten::linalg_matrix_norm", (t(4, 4), "fro", [-2, -1], False, DTypeArg("float64")), 64 + 8),
        ("aten::linalg_matrix_norm", (t(4, 4, dtype="complex64"), "fro", [-2, -1], False, None), 128 + 4),
    ],
)
def test_dtypes_given_by_number_and_of_results(name: str, arguments: tuple[Any, ...], moved: int) -> None:
    assert evaluate(call(name, *arguments)).cost.bytes == moved


def test_a_system_with_the_unknowns_on_the_left_has_as_many_columns_backward_as_forward() -> None:
    # X·A = B, B (7, 4): seven right hand sides of 2·4² each, and a product of (4, 7) by (7, 4).
    given = call("torch.linalg.solve", t(4, 4), t(7, 4), left=False)
    pieces = {piece.name: piece.cost for piece in evaluate_backward(given)}
    assert pieces["input"].vector_flops == 7 * 2 * 16 and pieces["dgrad"].matmul_flops == 2 * 4 * 4 * 7
    whole = call("torch.linalg.solve", t(4, 4, dtype="complex64"), t(4, 7, dtype="complex64"))
    assert next(p for p in evaluate_backward(whole) if p.name == "input").cost.vector_flops == 4 * 7 * 2 * 16


@pytest.mark.parametrize(
    ("name", "arguments", "moved"),
    [
        ("torch.diag", (t(3, 5),), 4 * (3 + 15)),
        ("torch.diag", (t(3, 5), 3), 4 * (2 + 15)),
        ("torch.diag", (t(5),), 4 * (5 + 5)),
        ("torch.diag_embed", (t(3, 5),), 4 * (15 + 15)),
        ("torch.diagflat", (t(3, 5),), 4 * (15 + 15)),
    ],
)
def test_gradients_of_diagonals(name: str, arguments: tuple[Any, ...], moved: int) -> None:
    (piece,) = evaluate_backward(call(name, *arguments))
    assert piece.cost.bytes == moved


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 3, 8, 8)])
def test_pools_of_libraries_take_inputs_without_a_batch(shape: tuple[int, ...]) -> None:
    # 3·4·4 windows of four values.
    small = (*shape[:-2], 4, 4)
    for name in ("aten::mkldnn_max_pool2d", "aten::quantized_max_pool2d"):
        cost = evaluate(call(name, t(*shape), [2, 2], [2, 2])).cost
        assert (cost.flops, cost.bytes) == (4 * 48, 4 * (192 + 48))
    assert evaluate(call("aten::max_pool2d_backward", t(*small), t(*shape), [2, 2])).cost.flops == 5 * 48
