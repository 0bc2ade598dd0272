"""Kernels far below the roofline: what they save, what they are told to try, and which are not to blame."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.timeline import Timeline, advice_of, overview_of

GEMM = (
    "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_tensor16x8x16_execute_kernel__5x_cublas"
)
FLASH = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t> >(Flash_fwd_params)"
MM, MM_US = "mm(bf16[4096,4096], bf16[4096,4096])", 2 * 4096**3 / 312e12 * 1e6  # 441 us at an A100's 312 TFLOP/s


def test_alone_in_its_family_it_saves_down_to_70_percent(tmp_path: Path) -> None:
    advice = Timeline().op(MM, (GEMM, 2_000), grid=(2048, 1, 1)).advice(tmp_path)["slow_kernel"]
    assert advice.saves_ns == pytest.approx(2e6 - MM_US / 0.7 * 1e3, rel=0.01) and advice.time_ns == 2_000_000
    assert advice.evidence.startswith("1.56 ms of 2.00 ms above the roofline (78 % of the wall) in 1 kernel limited by compute")
    assert "at mm 22 % of it: 1 x mm (M=4096,N=4096,K=4096,bf16)" in advice.evidence
    assert "max-autotune" in advice.do and "split-K" not in advice.do and advice.places[0].op == "mm"


def test_beside_faster_ones_of_its_family_it_saves_down_to_theirs(tmp_path: Path) -> None:
    timeline = Timeline().op(MM, (GEMM, 2_000)).op("mm(bf16[8192,4096], bf16[4096,4096])", (GEMM, 1_470))
    advice = timeline.advice(tmp_path)["slow_kernel"]
    assert advice.saves_ns == pytest.approx(2e6 - MM_US / 0.6 * 1e3, rel=0.01)
    assert advice.evidence.endswith("; others of its kernels' family reach 60 %")
    assert "its grid fills 1 % of the device: split-K" in advice.do


@pytest.mark.parametrize(("text", "kernel", "word"), [
    ("F.scaled_dot_product_attention(bf16[8,16,4096,128], bf16[8,16,4096,128], bf16[8,16,4096,128])", FLASH, "sdpa_kernel"),
    ("F.gelu(bf16[8192,8192])", "void vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>(int)", "torch.compile, whose"),
    ("F.conv2d(bf16[32,256,56,56], bf16[256,256,3,3], None, 1, 1)", "sm80_xmma_fprop_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_"
     "tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn", "cudnn.benchmark"),
])  # fmt: skip
def test_what_to_try_is_that_of_its_kind(tmp_path: Path, text: str, kernel: str, word: str) -> None:
    assert word in Timeline().op(text, (kernel, 20_000), grid=(2048, 1, 1)).advice(tmp_path)["slow_kernel"].do


@pytest.mark.parametrize(("text", "kernel", "us"), [
    (MM, GEMM, 700),  # 63 % of the roofline
    ("mm(bf16[64,64], bf16[64,64])", GEMM, 900),  # latency, not compute: nothing to multiply
    ("F.embedding(int64[1000000], fp32[1000000,64])", "void indexSelectLargeIndex<float, long, unsigned int, 2>(int)", 9_000),
])  # fmt: skip
def test_silent_where_the_kernel_is_not_to_blame(tmp_path: Path, text: str, kernel: str, us: int) -> None:
    assert "slow_kernel" not in Timeline().op(text, (kernel, us), grid=(2048, 1, 1)).advice(tmp_path)


def test_five_percent_of_the_wall_is_what_counts(tmp_path: Path) -> None:
    timeline = Timeline().op(MM, (GEMM, 2_000), grid=(2048, 1, 1)).op(None, ("void own_kernel(int)", 40_000), grid=(999, 1, 1))
    assert "slow_kernel" not in timeline.advice(tmp_path)


def test_long_kernels_on_few_multiprocessors(tmp_path: Path) -> None:
    few = Timeline().op(None, ("saxpy(double*, int)", 20_000), grid=(2, 1, 1)).advice(tmp_path)["slow_kernel"]
    assert few.evidence == "1 long kernel on few multiprocessors, 20.0 ms: saxpy has 2 blocks for 108"
    assert few.saves_ns == pytest.approx(20e6 * (1 - 2 / 108), rel=0.01) and "108 blocks" in few.do
    talks = Timeline().op(None, ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 20_000), grid=(2, 1, 1))
    assert "slow_kernel" not in talks.advice(tmp_path)


def test_of_a_decode_is_what_the_raw_trace_says(captures: Path) -> None:
    """All kernels of two products of experts in each of 24 layers: number and time."""
    path = captures / "kineto/serving/vllm_decode_full.run.json.gz"
    overview = overview_of(path)
    advice = advice_of(overview)
    (kind,) = [name for name, one in advice.items() if one.saves_ns is not None]
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    raw = [float(one["dur"]) for one in events if one.get("cat") == "kernel" and "matmul_ogs" in one["name"]]
    assert kind == "slow_kernel" and len(raw) == 48 and advice[kind].places[0].op == "moe_forward"
    assert sum(raw) * 1e3 == pytest.approx(advice[kind].time_ns, rel=0.01) and advice[kind].places[0].number == 48
