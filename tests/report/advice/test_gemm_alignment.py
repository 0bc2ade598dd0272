"""Products whose sizes keep their kernels from loading 16 bytes at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.timeline import Timeline

NARROW = "cutlass_80_tensorop_{}_s16816gemm_{}_128x128_32x5_nn_align{}"


def _kernel(align: int, dtype: str = "bf16") -> str:
    return NARROW.format(dtype, dtype, align)


def test_a_vocabulary_is_padded_and_tokens_are_not(tmp_path: Path) -> None:
    timeline = Timeline().op("F.linear(bf16[2047,768], bf16[50257,768])", (_kernel(1), 2_000))
    timeline.op("F.linear(bf16[2047,768], bf16[768,768])", (_kernel(8), 100))
    found = timeline.advice(tmp_path)
    advice = found["gemm_alignment"]
    assert advice.do.startswith("pad N 50257 to 50264:") and advice.time_ns == 2_000_000
    assert advice.saves_ns == pytest.approx(2e6 - 2 * 2047 * 768 * 50264 / 312e12 * 1e9, abs=1_001)
    assert "take 2.00 ms, 507 us at the roofline" in advice.evidence and "reduced_precision" not in found


def test_what_else_is_done_to_the_rows_gains_as_well(tmp_path: Path) -> None:
    timeline = Timeline().op("F.linear(bf16[2047,768], bf16[50257,768])", (_kernel(1), 2_000))
    timeline.op("log_softmax(fp32[2047,50257])", ("cunn_SoftMaxForward", 900))  # 0.82 GB: 404 us at 2039 GB/s
    timeline.op("log_softmax(fp32[2048,50257])", ("cunn_SoftMaxForward", 900))  # of something else
    advice = timeline.advice(tmp_path)["gemm_alignment"]
    alone = 2e6 - 2 * 2047 * 768 * 50264 / 312e12 * 1e9
    assert advice.saves_ns == pytest.approx(alone + 9e5 - 2 * 4 * 2047 * 50257 / 2039e9 * 1e9, rel=0.01)
    assert "; 1 kernels on their results take 900 us: 1 x linear" in advice.evidence and advice.time_ns == 2_900_000


@pytest.mark.parametrize(
    ("op", "padded"),
    [
        ("mm(fp16[1001,1001], fp16[1001,1001])", "N 1001 to 1008, K 1001 to 1008"),
        ("mm(fp16[1001,1024]{1,1001}, fp16[1024,1024])", "M 1001 to 1008"),
        ("bmm(fp16[8,1024,1023], fp16[8,1023,1024])", "K 1023 to 1024"),
    ],
)
def test_the_sizes_that_rows_lie_along(tmp_path: Path, op: str, padded: str) -> None:
    found = Timeline().op(op, (_kernel(1, "f16"), 200)).advice(tmp_path)
    assert found["gemm_alignment"].do == f"pad {padded}: multiples of 16 bytes"


def test_off_the_tensor_cores(tmp_path: Path) -> None:
    found = (
        Timeline()
        .op("mm(fp16[1001,1001], fp16[1001,1001])", ("cutlass_80_simt_hgemm_128x64_8x3_nn_align1", 900))
        .advice(tmp_path)
    )
    assert "gemm_alignment" in found and "reduced_precision" not in found


@pytest.mark.parametrize(
    ("op", "kernel"),
    [
        ("mm(fp16[1024,1024], fp16[1024,1024])", _kernel(8, "f16")),  # aligned
        ("F.linear(bf16[2047,768], bf16[768,768])", _kernel(8)),  # an odd number of tokens
        ("mm(fp16[1024,1024], fp16[1024,1024])", _kernel(1, "f16")),  # sizes that need no padding
        ("F.linear(bf16[1,4095], bf16[4095,4095])", "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, float>()"),
        (None, _kernel(1)),  # without shapes nothing is known to pad
    ],
)
def test_silent(tmp_path: Path, op: str | None, kernel: str) -> None:
    assert "gemm_alignment" not in Timeline().op(op, (kernel, 500)).advice(tmp_path)
