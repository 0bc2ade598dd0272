"""Advice on captures whose truth fits on a screen: what was found, how much it can save at most, and silence elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyprof.loading import load_capture
from pyprof.prof.frame import Frame
from pyprof.report.old_advice import Advice, advise
from tests.tiny import Nsys

A100 = (0, "NVIDIA A100-SXM4-80GB", 0, 108, 8, 0)
DRAM = 2039e9  # bytes/s of that device


def _op(n: Nsys, text: str, start: int, end: int) -> None:
    n.range(f'{text} #pyprof{{"mod":"torch"}}', start, end)


def _advise(n: Nsys, folder: Path) -> dict[str, Advice]:
    """By the first word of the title."""
    n.rows["TARGET_INFO_GPU"].append(A100)
    found = advise(Frame(load_capture(n.write(folder / "net.sqlite"))))
    assert [advice.saves_ns for advice in found] == sorted((advice.saves_ns for advice in found), reverse=True)
    return {advice.title.split()[0]: advice for advice in found}


def test_products_with_narrow_loads(tmp_path: Path) -> None:
    n = Nsys()
    size = 1001
    _op(n, f"mm(fp16[{size},{size}], fp16[{size},{size}])", 10, 50)
    n.kernel("cutlass_80_tensorop_f16_s16816gemm_f16_128x128_32x5_nn_align1", 20, 1_000, 101_000)
    _op(n, "mm(fp16[1024,1024], fp16[1024,1024])", 60, 90)
    n.kernel("cutlass_80_tensorop_f16_s16816gemm_f16_128x128_32x5_nn_align8", 70, 101_000, 201_000)
    found = _advise(n, tmp_path)
    assert list(found) == ["fp16"]
    assert found["fp16"].title == "fp16 product with loads of 1 element at once"
    assert found["fp16"].change == "pad m 1001 to 1008, n 1001 to 1008, k 1001 to 1008"
    assert found["fp16"].saves_ns == pytest.approx(100_000 - 2 * size**3 / 312e12 * 1e9, rel=0.001)


def test_conversions_of_layout(tmp_path: Path) -> None:
    n = Nsys()
    _op(n, "conv2d(fp16[8,64,56,56], fp16[64,64,3,3], None, [1, 1], [1, 1], [1, 1], 1)", 10, 50)
    n.kernel("void cudnn::ops::nchwToNhwcKernel<__half>(int)", 20, 1_000, 6_000)
    n.kernel("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128", 25, 6_000, 90_000)
    n.kernel("void cudnn::ops::nhwcToNchwKernel<__half>(int)", 30, 90_000, 93_000)
    _op(n, "contiguous(fp16[8,64,56,56])", 60, 90)
    n.kernel("void cudnn::ops::nchwToNhwcKernel<__half>(int)", 70, 93_000, 99_000)  # not a convolution's
    advice = _advise(n, tmp_path)["conversions"]
    assert (advice.time_ns, advice.saves_ns) == (8_000, 8_000) and "channels_last" in advice.change
    assert advice.evidence.count("1 x ") == 2 and "nchwToNhwcKernel" in advice.evidence


@pytest.mark.parametrize("fused", [False, True])
def test_an_optimizer_of_many_kernels(tmp_path: Path, fused: bool) -> None:
    n = Nsys()
    parameters, begin = 4, 1_000
    n.range('AdamW.step #pyprof{"optimizer":"AdamW"}', 0, 900)
    functor = "FusedAdamMathFunctor<float, 4>" if fused else "BinaryFunctor<float, float>"
    for index in range(parameters * 2):
        op = "addcdiv_(fp32[1000000], fp32[1000000], fp32[1000000])" if index % 2 else "sqrt(fp32[1000000])"
        _op(n, op, 10 * index, 10 * index + 9)
        n.kernel(f"void at::native::vectorized_elementwise_kernel<4, {functor}>(int)", 10 * index + 1, begin, begin + 10_000)
        begin += 10_000
    found = _advise(n, tmp_path)
    assert ("an" in found) != fused
    if not fused:
        least = parameters * 4 * 4_000_000 / DRAM * 1e9  # addcdiv_ reads three and writes one
        assert found["an"].time_ns == 80_000 and found["an"].saves_ns == pytest.approx(80_000 - least, abs=2)
        assert found["an"].evidence == "8 kernels: 4 x addcdiv_, 4 x sqrt"


def test_short_kernels(tmp_path: Path) -> None:
    n = Nsys()
    for index in range(20):
        _op(n, "add(fp32[1000], fp32[1000])", 10 * index, 10 * index + 9)
        n.kernel("void at::native::vectorized_elementwise_kernel<4, AddFunctor>(int)", 10 * index + 1, 1_000 + 2_000 * index,
                 3_000 + 2_000 * index)  # fmt: skip
    advice = _advise(n, tmp_path)["kernels"]
    least = 20 * 12_000 / DRAM * 1e9
    assert advice.time_ns == 40_000 and advice.saves_ns == pytest.approx(40_000 - least, abs=20)
    assert advice.evidence == "20 kernels of 2.0 us on average: 20 x add"


def test_late_launches_and_copies_that_the_host_waits_for(tmp_path: Path) -> None:
    n = Nsys()
    _op(n, "mul(fp32[1000], fp32[1000])", 0, 100)
    n.kernel("void mul_kernel()", 50, 1_000, 2_000)
    _op(n, "item(fp32[])", 200, 4_000)
    n.copy(2, 300, 2_000, 3_000)
    _op(n, "add(fp32[1000], fp32[1000])", 10_000, 10_100)
    n.kernel("void add_kernel()", 10_050, 13_000, 14_000)  # 10 us behind the copy
    _op(n, "sub(fp32[1000], fp32[1000])", 40_000, 40_100)
    n.kernel("void sub_kernel()", 40_050, 44_000, 45_000)  # 30 us behind the kernel
    _op(n, "div(fp32[1000], fp32[1000])", 40_200, 40_300)
    n.kernel("void div_kernel()", 40_250, 49_000, 50_000)  # launched in time
    n.rows["TARGET_INFO_GPU"].append(A100)
    found = advise(Frame(load_capture(n.write(tmp_path / "net.sqlite"))))
    assert [(p.saves_ns, p.evidence) for p in found] == [(30_000, "1 gap, before 1 x sub"), (10_000, "1 gap, in 1 x item")]
    assert "CUDA graphs" in found[0].change and "non_blocking" in found[1].change


def test_silent_without_evidence(tmp_path: Path) -> None:
    """Ops without shapes, kernels without ops, and a device that no table has."""
    n = Nsys()
    for index in range(20):
        n.kernel("void at::native::vectorized_elementwise_kernel<4, AddFunctor>(int)", index, 1_000 + 2_000 * index,
                 3_000 + 2_000 * index)  # fmt: skip
    assert advise(Frame(load_capture(n.write(tmp_path / "net.sqlite")))) == []
