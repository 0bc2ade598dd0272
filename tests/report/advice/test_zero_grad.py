"""Gradients that are filled with zeros, and one all_reduce a parameter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.timeline import Timeline

FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)"
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def _op(timeline: Timeline, text: str, kernel: str, us: int) -> None:
    begin = timeline.launched
    timeline.op(None, (kernel, us)).nsys.range(text, begin, timeline.launched)


@pytest.mark.parametrize("passes", [1, 2])
def test_fills_go_and_additions_but_for_sums_of_several_passes(tmp_path: Path, passes: int) -> None:
    timeline = Timeline().op(None, ("own_product(int)", 500))
    begin = timeline.launched
    for at in range(8):
        _op(timeline, f"aten::zero_, op_id = {at}, sizes = [[100,100]]", FILL, 10)
    timeline.nsys.range("Optimizer.zero_grad#SGD.zero_grad", begin, timeline.launched)
    begin = timeline.launched
    for at in range(8 * passes):
        _op(timeline, f"aten::add_, op_id = {50 + at}, sizes = [[100,100], [100,100], []]", ADD, 20)
    timeline.nsys.range("backward", begin, timeline.launched)
    found = timeline.advice(tmp_path)["zero_grad"]
    assert found.saves_ns == (240_000 if passes == 1 else 80_000) and "set_to_none=True" in found.do
    added = ", and backward adds to 8, 160 us" if passes == 1 else ""
    assert found.evidence == f"zero_grad fills 8 gradients, 80.0 us{added}"


def test_one_all_reduce_a_parameter(tmp_path: Path) -> None:
    """Of 40 of 30 us or more, 4 kB each, one bucket is enough: 39 times the shortest go."""
    timeline = Timeline()
    begin = timeline.launched
    timeline.op(None, ("own_product(int)", 500))
    timeline.nsys.range("backward", begin, timeline.launched)
    for at in range(40):
        _op(timeline, f"c10d::allreduce_, op_id = {at}, sizes = [[1000]]", REDUCE, 30 + at)
    found = timeline.advice(tmp_path).get("per_parameter_collective")
    assert found is None  # of unknown size: the type of the tensors is not recorded
    timeline = Timeline()
    timeline.op(None, ("own_product(int)", 500)).nsys.range("backward", 0, timeline.launched)
    for at in range(40):
        timeline.op(None, (REDUCE, 30 + at))
        text = 'all_reduce(fp32[1000]) #pyprof{"mod":"torch.distributed"}'
        timeline.nsys.range(text, timeline.launched - 1_000, timeline.launched)
    found = timeline.advice(tmp_path)["per_parameter_collective"]
    assert found.saves_ns == 39 * 30_000
    assert found.evidence.startswith(
        "40 all_reduces of 4.00 kB on average, one a tensor, take 1.98 ms; the shortest takes 30.0 us"
    )
