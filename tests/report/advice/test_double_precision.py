"""Ops in fp64: what fp32 would save of them, and silence about what was converted or is short."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.timeline import A100, V100, Timeline

RTX_4090 = (0, "NVIDIA GeForce RTX 4090", 0, 128, 8, 9)
MM, DGEMM = "mm(fp64[4096,4096], fp64[4096,4096])", "void cutlass::Kernel<cutlass_80_simt_dgemm_128x64_8x4_nn>(Params)"
ADD = ("add(fp64[4096,4096], fp64[4096,4096])", ("void add_kernel()", 400))


@pytest.mark.parametrize(
    ("gpu", "us", "saved"),
    [
        (RTX_4090, 110_000, 1 - 1.29 / 82.6),  # 2 x 4096^3 FLOPs at the peaks of the device
        (V100, 20_000, 1 - 7.8 / 15.7),
        (A100, 8_000, 0),  # its Tensor Cores multiply fp64 as fast as others fp32
    ],
)
def test_a_product_is_as_much_faster_as_the_peaks(tmp_path: Path, gpu: tuple[object, ...], us: int, saved: float) -> None:
    found = Timeline(gpu).op(MM, (DGEMM, us)).advice(tmp_path).get("double_precision")
    assert (found is None) == (not saved)
    if found is not None:
        assert found.time_ns == us * 1_000 and found.saves_ns == pytest.approx(us * 1_000 * saved, rel=0.01)
        assert found.evidence.startswith("1 kernel of fp64 tensors") and "torch.from_numpy" in found.do


def test_other_ops_move_half_of_the_bytes(tmp_path: Path) -> None:
    timeline = Timeline().op(*ADD).op(*ADD)
    timeline.op("add(fp32[4096,4096], fp32[4096,4096])", ("void add_kernel()", 200))
    advice = timeline.advice(tmp_path)["double_precision"]
    assert advice.time_ns == 800_000 and advice.saves_ns == pytest.approx(400_000, abs=1_001)  # less the launch of 1 us
    assert advice.places[0][1:5] == ("add", "[4096,4096]fp64;[4096,4096]fp64", None, 2)


@pytest.mark.parametrize(
    "text",
    [
        "clone(fp64[4096,4096])",
        "add(fp64[4096,4096], fp32[4096,4096])",
        "add(c128[4096,4096], c128[4096,4096])",
        "add(int64[4096,4096], int64[4096,4096])",
    ],
)
def test_silent_about_copies_and_other_types(tmp_path: Path, text: str) -> None:
    assert "double_precision" not in Timeline().op(text, ("void add_kernel()", 400)).advice(tmp_path)


def test_silent_about_a_loss_and_about_short_kernels(tmp_path: Path) -> None:
    timeline = Timeline().op("relu(fp32[4096,4096])", ("void relu_kernel()", 9_000)).op(*ADD)
    assert "double_precision" not in timeline.op("relu(fp32[4096,4096])", ("void relu_kernel()", 9_000)).advice(tmp_path)
    short = Timeline()
    for _ in range(50):
        short.op("add(fp64[8], fp64[8])", ("void add_kernel()", 2))
    assert "double_precision" not in short.advice(tmp_path)
