"""Slices of one tensor in a loop: what their backward passes fill and add up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.timeline import Timeline

FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)"
COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>(int)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)"


def _op(timeline: Timeline, text: str, kernel: str, us: int) -> None:
    begin = timeline.launched
    timeline.op(None, (kernel, us)).nsys.range(text, begin, timeline.launched)


def _of(slices: int, whole: str = "[16,128,512]", op: str = "select", in_layer: int = 99) -> Timeline:
    """Forward of n slices, then each one's backward: 100 us of zeros, 10 us of the slice, 150 us to add it to the others.
    in_layer: so many of them are in one layer."""
    timeline = Timeline()
    for at in range(slices):
        begin = timeline.launched
        timeline.nsys.range(f"aten::{op}, seq = {at}, sizes = [{whole}, [], []]", begin, begin + 10)
        timeline.op(None, ("own_product(int)", 20))
        timeline.nsys.range(f"layer {at // in_layer}", begin, timeline.launched)
    behind = timeline.launched
    for at in reversed(range(slices)):
        begin = timeline.launched
        _op(timeline, f"aten::fill_, op_id = {at}, sizes = [{whole}, []]", FILL, 100)
        timeline.op(None, (COPY, 10))
        timeline.nsys.range(f"{op.title()}Backward0, seq = {at}, sizes = [[128,512]]", begin, timeline.launched)
        if at < slices - 1:
            _op(timeline, f"aten::add_, op_id = {99 + at}, sizes = [{whole}, {whole}, []]", ADD, 150)
    timeline.nsys.range("backward", behind, timeline.launched)
    return timeline


@pytest.mark.parametrize(("op", "word"), [("select", "unbind(0)"), ("index", ".split(sizes)")])
def test_fills_and_sums_of_all_slices_but_one_go(tmp_path: Path, op: str, word: str) -> None:
    advice = _of(8, op=op).advice(tmp_path)["indexing_backward"]
    assert advice.time_ns == 8 * 110_000 + 7 * 150_000
    assert advice.saves_ns == pytest.approx((8 * 100_000 + 7 * 150_000) * 7 / 8, rel=0.01)
    assert advice.evidence.startswith(
        "backward of 8 slices fills the whole tensor for each: 1.93 ms, 92 % of the busy time; 800 us "
    )
    assert word in advice.do and advice.places[0].op in (op, "add_")


def test_a_few_slices_are_no_loop(tmp_path: Path) -> None:
    assert "indexing_backward" not in _of(3).advice(tmp_path)


@pytest.mark.parametrize("in_layer", [3, 6])
def test_slices_of_several_layers_are_no_loop(tmp_path: Path, in_layer: int) -> None:
    """As queries, keys and values of attention, three in each layer."""
    assert ("indexing_backward" in _of(12, in_layer=in_layer).advice(tmp_path)) == (in_layer == 6)
