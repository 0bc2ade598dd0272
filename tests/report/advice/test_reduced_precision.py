"""fp32 products where half types or TF32 multiply faster: how much time goes, and silence where nothing would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyprof.report.time.overview import Overview
from tests.timeline import A100, H100, RTX_3070_TI, V100, Timeline, advice_of, overview_of

SGEMM = "ampere_sgemm_128x64_tn"
MM = "mm(fp32[4096,4096], fp32[4096,4096])"
FLOPS, BYTES = 2 * 4096**3, 3 * 4096 * 4096 * 4


def test_a_product_saves_down_to_the_roofline_of_a_half_type(tmp_path: Path) -> None:
    found = Timeline().op(MM, (SGEMM, 8_000)).op("relu(fp32[4096,4096])", ("void relu_kernel()", 100)).advice(tmp_path)
    advice = found["reduced_precision"]
    assert advice.time_ns == 8_000_000
    assert advice.saves_ns == pytest.approx(8e6 - FLOPS / 312e12 * 1e9, abs=1_001)  # less the launch of 1 us
    tf32 = 8e6 - FLOPS / 156e12 * 1e9
    assert "dtype=torch.bfloat16" in advice.do and f"TF32, at most {tf32 / 1e6:.2f} ms" in advice.do
    assert "GradScaler" not in advice.do and advice.places[0].op == "mm" and "FLOPs not known" not in advice.evidence


def test_never_below_the_time_of_the_bytes(tmp_path: Path) -> None:
    """A product with eight rows only moves its weight: half of the bytes is all that can go, and TF32 moves as many."""
    weight = 8192 * 8192
    timeline = Timeline().op("mm(fp32[8,8192], fp32[8192,8192])", (SGEMM, 300))
    advice = timeline.advice(tmp_path)["reduced_precision"]
    assert advice.saves_ns == pytest.approx(300_000 - (weight + 2 * 8 * 8192) * 2 / 2039e9 * 1e9, abs=1_001)
    assert 'set_float32_matmul_precision("high")' in advice.do  # fp32 had not reached the bandwidth either


@pytest.mark.parametrize(
    ("gpu", "sgemm", "dtype", "share"),
    [
        (A100, SGEMM, "torch.bfloat16", 1 - 19.5 / 312),
        (RTX_3070_TI, SGEMM, "torch.bfloat16", 0.5),
        (V100, "volta_sgemm_128x64_nn", "torch.float16", 1 - 15.7 / 125),
        (H100, "cutlass_80_simt_sgemm_128x128_8x4_tn_align1", "torch.bfloat16", 1 - 66.9 / 989.4),
    ],
)
def test_without_shapes_a_product_keeps_its_share_of_the_peak(
    tmp_path: Path, gpu: tuple[object, ...], sgemm: str, dtype: str, share: float
) -> None:
    timeline = Timeline(gpu).op(None, (sgemm, 1_000), (sgemm, 3_000), grid=(64, 64, 1))
    advice = timeline.advice(tmp_path)["reduced_precision"]
    assert advice.saves_ns == pytest.approx(4e6 * share, rel=0.01) and dtype in advice.do
    assert "FLOPs not known" in advice.evidence
    assert ("TF32" in advice.do) == (gpu in (A100, H100))  # the RTX has no faster TF32, the V100 none


def test_without_shapes_the_bytes_of_a_narrow_grid_bound(tmp_path: Path) -> None:
    """32 rows by 320 columns of tiles: each element of the weight is used for 32 rows, 2 FLOPs each, and takes 2 bytes then."""
    kernel = "ampere_sgemm_32x32_sliced1x4_tn"
    advice = Timeline().op(None, (kernel, 4_000), grid=(320, 1, 1)).advice(tmp_path)["reduced_precision"]
    used = 2 * 32 * 10240 / (32 + 10240)
    assert advice.saves_ns == pytest.approx(4e6 * (1 - 19.5e12 / 2039e9 * 2 / used), rel=0.001)
    wide = Timeline().op(None, (kernel, 4_000), grid=(320, 320, 1)).advice(tmp_path)["reduced_precision"]
    assert wide.saves_ns == pytest.approx(4e6 * (1 - 19.5 / 312), rel=0.001)


def test_transforms_of_convolutions_on_cuda_cores_go_as_well(tmp_path: Path) -> None:
    conv = "F.conv2d({0}[32,256,14,14], {0}[256,256,3,3], None, [1, 1], [1, 1], [1, 1], 1)"
    tiles = "void cudnn::winograd_nonfused::winogradForwardData4x4<{0}, {0}>(int)"
    timeline = Timeline(V100).op(conv.format("fp32"), (tiles.format("float"), 200), ("volta_sgemm_64x64_nn", 500))
    timeline.op(conv.format("fp16"), (tiles.format("__half"), 200), ("volta_fp16_s884cudnn_fp16_128x128_ldg8_relu", 500))
    advice = timeline.advice(tmp_path)["reduced_precision"]
    least = 2 * 32 * 256 * 14 * 14 * 256 * 9 / 125e12 * 1e9
    assert advice.time_ns == 700_000 and advice.saves_ns == pytest.approx(700_000 - least, abs=2_000)


def test_half_precision_of_a_training_on_a_v100_needs_a_scaler(tmp_path: Path) -> None:
    timeline = Timeline(V100).op(None, ("volta_sgemm_128x64_nn", 1_000))
    timeline.nsys.range('SGD.step #pyprof{"optimizer":"SGD"}', timeline.launched, timeline.launched + 2_000)
    timeline.op("add_(fp32[1000], fp32[1000])", ("void add_kernel()", 10))
    assert "GradScaler" in timeline.advice(tmp_path)["reduced_precision"].do


@pytest.mark.parametrize(
    ("op", "kernel"),
    [
        (MM, "cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4"),  # TF32 already
        ("mm(bf16[4096,4096], bf16[4096,4096])", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"),
        (MM, "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"),  # autocast: arguments are still fp32
        ("mm(fp64[4096,4096], fp64[4096,4096])", "void cutlass::Kernel2<cutlass_80_simt_dgemm_128x64_8x3_nn_align1>()"),
        ("mm(c64[4096,4096], c64[4096,4096])", "ampere_cgemm_64x64_nn"),
        ("relu(fp32[4096,4096])", "void relu_kernel()"),
    ],
)
def test_silent_about_what_needs_no_other_precision(tmp_path: Path, op: str, kernel: str) -> None:
    assert "reduced_precision" not in Timeline().op(op, (kernel, 8_000)).advice(tmp_path)


def test_where_the_host_is_what_bounds_it_needs_that_first(tmp_path: Path) -> None:
    """Each kernel is launched after the one before has ended: shorter ones alone would wait longer."""
    timeline = Timeline()
    for at in range(50):  # the last one alone would end earlier
        timeline.launched = timeline.ends = 100_000 * at
        timeline.op("mm(fp32[512,512], fp32[512,512])", (SGEMM, 20))
    found = timeline.advice(tmp_path)
    assert list(found)[:2] == ["launch_bound", "reduced_precision"]
    advice = found["reduced_precision"]
    assert advice.after == "launch_bound" and advice.alone_ns is not None and advice.alone_ns < 20_000  # of the last one
    assert advice.saves_ns == pytest.approx(50 * (20_000 - 2_000), rel=0.15)  # no kernel is shorter than 2 us


def test_a_little_fp32_beside_half_precision_is_not_worth_a_line(tmp_path: Path) -> None:
    half = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
    timeline = Timeline().op("mm(bf16[4096,4096], bf16[4096,4096])", (half, 10_000))
    assert "reduced_precision" not in timeline.op("mm(fp32[512,512], fp32[512,512])", (SGEMM, 40)).advice(tmp_path)


def test_what_it_takes_no_other_kind_gets(tmp_path: Path) -> None:
    """Naive attention in fp32: the scores' kernels are fused_attention's, the products reduced_precision's."""
    timeline, shape = Timeline(), "fp32[8,1024,1024]"
    timeline.op("bmm(fp32[8,1024,64], fp32[8,64,1024])", (SGEMM, 500)).op(
        f"F.softmax({shape}, -1)", ("softmax_warp_forward", 400)
    )
    timeline.op(f"bmm({shape}, fp32[8,1024,64])", (SGEMM, 500))
    found = timeline.advice(tmp_path)
    overview: Overview = timeline.overview(tmp_path)
    assert set(found) >= {"fused_attention", "reduced_precision"}
    assert sum(one.saves_ns or 0 for one in found.values()) <= overview.division.wall_ns
    # fused_attention leaves of each product what its FLOPs take in fp32, of which the bytes of half types remain.
    flops, moved = 2 * 8 * 1024 * 1024 * 64, 2 * (2 * 8 * 1024 * 64 + 8 * 1024 * 1024)
    assert found["reduced_precision"].saves_ns == pytest.approx(2 * (flops / 19.5e12 - moved / 2039e9) * 1e9, abs=10)


def test_the_names_of_kernels_tell_what_a_device_without_a_name_can_do(tmp_path: Path) -> None:
    """The oldest traces name no device: Volta's kernels run where half types are at least four times as fast."""
    unnamed, sgemm = (0, "", 0, 0, 0, 0), ("volta_sgemm_128x64_nn", 4_000)
    advice = Timeline(unnamed).op(None, sgemm, grid=(64, 64, 1)).advice(tmp_path)["reduced_precision"]
    assert advice.saves_ns == pytest.approx(3e6, rel=0.01)
    assert "torch.float16" in advice.do and "of compute capability 7.x" in advice.evidence
    silent = Timeline(unnamed).op(None, ("maxwell_sgemm_128x64_nn", 4_000), grid=(64, 64, 1)).advice(tmp_path)
    assert "reduced_precision" not in silent
    little = Timeline(unnamed).op(None, sgemm, ("void relu_kernel()", 150_000), grid=(64, 64, 1)).advice(tmp_path)
    assert "reduced_precision" not in little


def test_records_of_the_original_need_no_clock(captures: Path) -> None:
    """Of the same capture: its records without times name the same 21 products as the capture itself, and save nothing known."""
    by_name, of_capture = (advice_of(overview_of(captures / "nvprof/v100_lm" / name)) for name in ("net.dict", "net.sql"))
    found = by_name["reduced_precision"]
    assert found.saves_ns is None and found.time_ns == of_capture["reduced_precision"].time_ns
    assert found.evidence.startswith("21 products of fp32 matrices take 3.36 ms, 46 % of") and "float16" in found.do


@pytest.mark.parametrize(("architecture", "do"), [("maxwell", ""), ("ampere", r'bfloat16.*; or .*precision\("high"\): TF32$')])
def test_records_of_the_original_on_other_devices(captures: Path, tmp_path: Path, architecture: str, do: str) -> None:
    text = (captures / "nvprof/v100_lm/net.dict").read_text().replace("volta_", f"{architecture}_")
    (tmp_path / "net.dict").write_text(text)
    found = advice_of(overview_of(tmp_path / "net.dict")).get("reduced_precision")
    assert (found is None) == (not do) and (found is None or re.search(do, found.do))
