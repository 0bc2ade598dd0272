"""Steps of optimizers of many kernels against one pass over the parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.timeline import Timeline

DRAM = 2039e9  # bytes/s of an A100
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float> >(int)"
ADDCDIV = "void at::native::vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel(at::TensorIteratorBase&)>(int)"
GEMM = "ampere_sgemm_128x64_tn"


def _adamw(timeline: Timeline, kernel: str = MUL, shapes: bool = True, name: str = "AdamW") -> Timeline:
    """Eight parameters of 4 MB, two kernels of 50 us each, behind 1 ms of products."""
    begin = timeline.op(None, (GEMM, 1_000)).launched
    sized, p = "fp32[1000000]", "addcdiv_"
    for _ in range(8):
        timeline.op(f"mul_({sized}, 0.9)" if shapes else None, (kernel, 50))
        timeline.op(f"{p}({sized}, {sized}, {sized})" if shapes else None, (ADDCDIV if kernel == MUL else kernel, 50))
    timeline.nsys.range(f'{name}.step #pyprof{{"optimizer":"{name}"}}', begin, timeline.launched)
    return timeline


def test_one_pass_reads_and_writes_parameter_gradient_and_states(tmp_path: Path) -> None:
    advice = _adamw(Timeline()).advice(tmp_path)["fused_optimizer"]
    least = 7 * 8 * 4_000_000 / DRAM * 1e9
    assert advice.saves_ns == pytest.approx(800_000 - least, abs=100) and advice.time_ns == 800_000
    assert advice.evidence.startswith("16 kernels of AdamW take 800 us, one pass over the parameters 110 us: 8 x ")
    assert advice.do == "AdamW(..., fused=True)"


def test_an_op_twice_a_step_is_no_second_parameter(tmp_path: Path) -> None:
    timeline = Timeline().op(None, (GEMM, 1_000))
    begin = timeline.launched
    for size in ("fp32[1000000]", "fp32[2000,1000]"):
        for _ in range(4):
            for text in (f"mul_({size}, 0.9)", f"mul_({size}, 0.9)", f"addcdiv_({size}, {size}, {size})", f"sqrt({size})"):
                timeline.op(text, (MUL, 20))
    timeline.nsys.range('Adam.step #pyprof{"optimizer":"Adam"}', begin, timeline.launched)
    advice = timeline.advice(tmp_path)["fused_optimizer"]
    least = 7 * 4 * (4_000_000 + 8_000_000) / DRAM * 1e9
    assert advice.saves_ns == pytest.approx(32 * 20_000 - least, abs=100)


def test_without_sizes_the_pass_takes_as_long_as_what_it_moves_more(tmp_path: Path) -> None:
    advice = _adamw(Timeline(), shapes=False).advice(tmp_path)["fused_optimizer"]
    assert advice.saves_ns == pytest.approx(800_000 - 400_000 * 7 / 4, abs=100)


def test_what_waits_for_its_launches_goes_with_them(tmp_path: Path) -> None:
    """Kernels of 2 us launched each 20 us: the device waits, and that is the optimizer's, not launch_bound's."""
    timeline = Timeline().op(None, (GEMM, 100))
    begin = timeline.launched = timeline.ends
    for _ in range(40):
        timeline.launched, timeline.ends = timeline.launched + 19_000, timeline.launched + 20_000
        timeline.op("addcdiv_(fp32[1000], fp32[1000], fp32[1000])", (ADDCDIV, 2))
    timeline.nsys.range('AdamW.step #pyprof{"optimizer":"AdamW"}', begin, timeline.launched)
    found = timeline.advice(tmp_path)
    assert next(iter(found)) == "fused_optimizer" and found["fused_optimizer"].saves_ns == pytest.approx(40 * 20_000, rel=0.005)
    assert found["launch_bound"].saves_ns == 0 and found["launch_bound"].alone_ns == pytest.approx(40 * 18_000, rel=0.03)
    assert "the device waits" in found["fused_optimizer"].evidence


def test_of_other_optimizers(tmp_path: Path) -> None:
    assert "torch.compile(optimizer.step)" in _adamw(Timeline(), name="RMSprop").advice(tmp_path)["fused_optimizer"].do


@pytest.mark.parametrize("kernel", [
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float> >",
    "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)",
    "triton_for_fused__foreach_addcdiv_0",
])  # fmt: skip
def test_silent_where_it_is_fused(tmp_path: Path, kernel: str) -> None:
    assert "fused_optimizer" not in _adamw(Timeline(), kernel).advice(tmp_path)


def test_the_time_of_a_step_is_its_own_kind_alone(tmp_path: Path) -> None:
    """Neither pointwise kernels to fuse nor small work: what the optimizer's advice leaves is no other's."""
    assert set(_adamw(Timeline()).advice(tmp_path)) & {"fuse_pointwise", "small_work", "fused_optimizer"} == {"fused_optimizer"}


def test_a_short_step_of_a_long_program_is_not_worth_a_line(tmp_path: Path) -> None:
    assert "fused_optimizer" not in _adamw(Timeline().op(None, (GEMM, 400_000))).advice(tmp_path)


def test_products_no_longer_wait_for_the_launches_that_go_with_it(tmp_path: Path) -> None:
    """1 ms of fp32 products ahead of 900 launches of 1 us each, that their kernels take too: without these nothing
    bounds how short the products may be."""
    timeline = Timeline().op(None, (GEMM, 1_000))
    begin = timeline.launched
    for _ in range(450):
        timeline.op("mul_(fp32[1000], 0.9)", (MUL, 1)).op("sqrt(fp32[1000])", (MUL, 1))
    timeline.nsys.range('AdamW.step #pyprof{"optimizer":"AdamW"}', begin, timeline.launched)
    advice = timeline.advice(tmp_path)
    assert (advice["fused_optimizer"].saves_ns or 0) > 800_000
    alone = Timeline().op(None, (GEMM, 1_000)).advice(tmp_path)["reduced_precision"]
    assert advice["reduced_precision"].saves_ns == alone.saves_ns
