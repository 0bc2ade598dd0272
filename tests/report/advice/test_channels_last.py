"""Conversions between channels first and last around convolutions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.timeline import MI300X, Timeline

CONV = "conv2d(fp16[8,64,56,56]{}, fp16[64,64,3,3]{}, None, [1, 1], [1, 1], [1, 1], 1)"
TO, BACK = "void cudnn::ops::nchwToNhwcKernel<__half>(int)", "void cudnn::ops::nhwcToNchwKernel<__half>(int)"
MAIN = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128"


def test_their_whole_time_goes(tmp_path: Path) -> None:
    timeline = Timeline().op(CONV.format("", ""), (TO, 5), (MAIN, 84), (BACK, 4)).op(None, (TO, 3))
    timeline.op("contiguous(fp16[8,64,56,56])", ("void at::native::nchw2nhwc_copy(int)", 6))  # not a convolution's
    advice = timeline.advice(tmp_path)["channels_last"]
    assert advice.time_ns == 12_000 and "3 kernels" in advice.evidence
    assert advice.saves_ns == 11_000  # the convolution is launched 1 us after the first of them
    assert "memory_format=torch.channels_last" in advice.do and "MIOPEN" not in advice.do


@pytest.mark.parametrize("name", ["batched_transpose_32x32_half", "batched_transpose_16x64_dword"])
def test_of_miopen(tmp_path: Path, name: str) -> None:
    timeline = Timeline(MI300X).op(CONV.format("", ""), (name, 500), (MAIN, 1_000), (name, 300)).op(None, (name, 100))
    advice = timeline.advice(tmp_path)["channels_last"]
    assert advice.time_ns == 900_000 and "PYTORCH_MIOPEN_SUGGEST_NHWC=1" in advice.do


def test_silent_without_conversions_or_where_channels_are_last(tmp_path: Path) -> None:
    assert "channels_last" not in Timeline().op(CONV.format("", ""), (MAIN, 84)).advice(tmp_path)
    last = "{" + "200704,1,3584,64" + "}"
    assert "channels_last" not in Timeline().op(CONV.format(last, ""), (TO, 50), (MAIN, 84)).advice(tmp_path)


def test_a_single_one_of_a_long_program_is_not_worth_a_line(tmp_path: Path) -> None:
    timeline = Timeline().op(CONV.format("", ""), (TO, 20), (MAIN, 90))
    assert "channels_last" not in timeline.op("relu(fp16[1000])", ("relu_kernel", 8_000)).advice(tmp_path)
