"""All kinds on programs of any ops in any order: no more is saved than there is, by each and by all."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests import examples
from tests.timeline import Timeline

FLAT = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, at::detail::Array<char*, 3> >(int)"
ADD, MUL = (FLAT.format(name) for name in ("CUDAFunctor_add<float>", "binary_internal::MulFunctor<float>"))
X = "fp32[4096,4096]"
OPS: tuple[tuple[str | None, str, int], ...] = (
    ("mm(fp32[4096,4096], fp32[4096,4096])", "ampere_sgemm_128x64_tn", 700),
    ("bmm(fp16[96,1001,1001], fp16[96,1001,64])", "cutlass_80_tensorop_f16_s16816gemm_f16_128x128_32x5_nn_align1", 900),
    (f"add({X}, {X})", ADD, 100),
    (f"mul({X}, {X})", MUL, 90),
    (f"softmax({X}, -1)", "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false>(float*)", 60),
    (None, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 300),
    ("linear(bf16[8,64], bf16[256,64])", "ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn", 8),
    (None, "void cudnn::ops::nchwToNhwcKernel<__half>(int)", 40),
)
_STEPS = st.lists(st.tuples(st.integers(0, len(OPS)), st.integers(1, 20), st.integers(0, 3)), min_size=1, max_size=12)


@given(_STEPS)
@settings(max_examples=examples(24), deadline=None)
def test_no_more_is_saved_than_there_is(program: list[tuple[int, int, int]]) -> None:
    """program: which op, how often in a row, and how many 100 us the host comes late before it."""
    timeline = Timeline()
    for which, often, late in program:
        timeline.launched = max(timeline.launched, timeline.ends) + late * 100_000 if late else timeline.launched
        timeline.ends = max(timeline.ends, timeline.launched)
        for _ in range(often):
            if which == len(OPS):
                timeline.nsys.copy(1, timeline.launched + 1, timeline.ends, timeline.ends + 50_000, 8 << 20, (0, 2))
                timeline.launched, timeline.ends = timeline.launched + 1_000, timeline.ends + 50_000
            else:
                text, kernel, us = OPS[which]
                timeline.op(text, (kernel, us), grid=(40, 1, 1))
    with tempfile.TemporaryDirectory() as folder:
        overview = timeline.overview(Path(folder))
        found = timeline.advice(Path(folder))
    saved = [(one.saves_ns, one.alone_ns) for one in found.values() if one.saves_ns is not None and one.alone_ns is not None]
    assert all(0 <= time <= overview.division.wall_ns for pair in saved for time in pair)
    assert sum(saves for saves, _ in saved) <= overview.division.wall_ns
    changes = [one.change for one in found.values() if one.change is not None]
    assert overview.replay.saves_ns(*changes) == sum(saves for saves, _ in saved)
