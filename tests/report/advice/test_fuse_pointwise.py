"""Runs of pointwise kernels on the same tensors: what lies between them goes, and nothing of products, lists or other sizes."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.report.advice import fuse_pointwise
from pyprof.report.advice.shared_pointwise import function
from tests.timeline import Timeline

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
FLAT = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, at::detail::Array<char*, {}> >(int)"
MUL = FLAT.format("BUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >", 2)
BOTH = FLAT.format("BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >", 3)
ADD = FLAT.format("CUDAFunctor_add<float>", 3)
POW = FLAT.format("(anonymous namespace)::pow_tensor_scalar_kernel_impl<float, float>(at::TensorIteratorBase&, float)", 2)
RSQRT = FLAT.format("rsqrt_kernel_cuda(at::TensorIteratorBase&)", 2)
EPS = FLAT.format("CUDAFunctorOnSelf_add<float>", 2)
COPY = FLAT.format("direct_copy_kernel_cuda(at::TensorIteratorBase&)", 2)
MEAN = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>, unsigned int, float, 4> >"
X = "fp32[8192,4096]"
GRID, ROWS = (65536, 1, 1), (16, 1, 1)  # of 512 elements each


def _rms_norm(timeline: Timeline, shapes: bool) -> Timeline:
    ops = (
        (f"pow({X}, 2)", POW, 100, GRID), (f"mean({X}, -1, True)", MEAN, 60, GRID), ("add(fp32[8192,1], 1e-6)", EPS, 2, ROWS),
        ("rsqrt(fp32[8192,1])", RSQRT, 2, ROWS), (f"mul({X}, fp32[8192,1])", MUL, 90, GRID), (f"mul({X}, fp32[4096])", MUL, 80, GRID),
    )  # fmt: skip
    for text, kernel, us, grid in ops:
        timeline.op(text if shapes else None, (kernel, us), grid=grid)
    return timeline


@pytest.mark.parametrize("shapes", [True, False])
def test_a_norm_by_hand_keeps_one_read_and_one_write(tmp_path: Path, shapes: bool) -> None:
    timeline = _rms_norm(Timeline().op(None, (GEMM, 500)), shapes).op(None, (GEMM, 500))
    advice = timeline.advice(tmp_path)["fuse_pointwise"]
    between = 50 + 60 + 2 + 2 + 90 + 40  # all but half of the first, which is its read, and half of the last, its write
    assert advice.saves_ns == pytest.approx(between * 1_000, abs=20) and advice.time_ns == 334_000
    assert advice.evidence.startswith("6 kernels in 1 runs") and "1 x pow, mean, add, rsqrt, mul, mul" in advice.evidence
    assert advice.do == "torch.compile(model), or torch.nn.functional.rms_norm in place of their parts"
    assert not shapes or advice.places[0].op == "mul"


def test_a_tensor_from_outside_is_still_read(tmp_path: Path) -> None:
    """silu(gate) * up: of the product's three tensors only the one that silu wrote need not be read."""
    silu = FLAT.format("(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)", 2)
    timeline = Timeline().op(f"silu({X})", (silu, 100)).op(f"mul({X}, {X})", (BOTH, 150))
    assert timeline.advice(tmp_path)["fuse_pointwise"].saves_ns == pytest.approx(50_000 + 50_000, abs=10)


def test_a_product_ends_a_run(tmp_path: Path) -> None:
    timeline = Timeline()
    for _ in range(3):
        timeline.op(f"mul({X}, 2)", (MUL, 100)).op("mm(fp32[8192,4096], fp32[4096,4096])", (GEMM, 100))
    assert "fuse_pointwise" not in timeline.advice(tmp_path)


def test_tensors_of_a_list_are_no_chain(tmp_path: Path) -> None:
    timeline = Timeline()
    for size in (4096, 4096, 8192, 4096):
        timeline.op(f"add_(fp32[{size},4096], fp32[{size},4096])", (ADD, 100))
    assert "fuse_pointwise" not in timeline.advice(tmp_path)


@pytest.mark.parametrize("shapes", [True, False])
def test_neighbours_of_other_sizes_are_no_chain(tmp_path: Path, shapes: bool) -> None:
    timeline = Timeline().op(f"mul({X}, 2)" if shapes else None, (MUL, 100), grid=GRID)
    timeline.op("add(fp32[1024,4096], fp32[1024,4096])" if shapes else None, (ADD, 50), grid=(8192, 1, 1))
    assert "fuse_pointwise" not in timeline.advice(tmp_path)


@pytest.mark.parametrize("shapes", [True, False])
def test_a_concatenation_counts_between_kernels_of_like_size_alone(tmp_path: Path, shapes: bool) -> None:
    """x * cos + rotated(x) * sin: negate a half, join the halves, multiply, add; and one whose result a product reads."""
    half, cat = "fp32[8192,2048]", "void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<4u> >(int)"
    neg = FLAT.format("neg_kernel_cuda(at::TensorIteratorBase&)", 2)
    ops = (
        (f"neg({half})", neg, 40, (32768, 1, 1)),
        (f"cat([{half}, {half}], -1)", cat, 90, (1, 1, 1)),
        (f"mul({X}, 2)", MUL, 80, GRID),
    )
    timeline = Timeline().op(None, (GEMM, 500))
    for text, kernel, us, grid in ops:
        timeline.op(text if shapes else None, (kernel, us), grid=grid)
    saves = timeline.advice(tmp_path)["fuse_pointwise"].saves_ns
    assert saves == pytest.approx((20 + 90 * (2 / 3 if shapes else 1) + 40) * 1_000, abs=20)
    timeline.op(None, (GEMM, 500)).op(ops[0][0] if shapes else None, (neg, 40), grid=(32768, 1, 1))
    timeline.op(ops[1][0] if shapes else None, (cat, 90)).op(None, (GEMM, 500))
    assert timeline.advice(tmp_path)["fuse_pointwise"].saves_ns == saves


def test_what_is_fused_already_stays(tmp_path: Path) -> None:
    timeline = Timeline()
    for name in ("triton_poi_fused_mul_0", "triton_red_fused_mean_1", "void vllm::rms_norm_kernel<float>", "flash_fwd_kernel"):
        timeline.op(None, (name, 100), (name.replace("0", "2"), 100))
    assert "fuse_pointwise" not in timeline.advice(tmp_path)


def test_what_a_compiled_program_leaves_out(tmp_path: Path) -> None:
    timeline = _rms_norm(Timeline().op(None, ("triton_poi_fused_mul_0", 100)), shapes=True)
    assert timeline.advice(tmp_path)["fuse_pointwise"].do.startswith("let torch.compile have what it left out")


def test_the_parts_of_one_norm_stay(tmp_path: Path) -> None:
    parts = [(f"void at::native::batch_norm_{name}_kernel<float>", 100) for name in ("collect_statistics", "transform_input")]
    text = "batch_norm(fp32[32,64,56,56], fp32[64], fp32[64], fp32[64], fp32[64], True, 0.1, 1e-5)"
    timeline = Timeline().op(text, *parts)
    assert "fuse_pointwise" not in timeline.advice(tmp_path)
    timeline.op("relu(fp32[32,64,56,56])", (FLAT.format("launch_clamp_scalar(at::TensorIteratorBase&)", 2), 60))
    assert timeline.advice(tmp_path)["fuse_pointwise"].saves_ns == pytest.approx(50_000 + 30_000, abs=10)


def test_kernels_that_the_device_waits_for_save_their_launches_alone(tmp_path: Path) -> None:
    timeline = Timeline().op(None, (GEMM, 10))
    for _ in range(20):  # each of 2 us, launched 50 us apart
        timeline.launched, timeline.ends = timeline.launched + 50_000, timeline.launched + 60_000
        timeline.op(f"mul({X}, 2)", (MUL, 2)).op(f"rsqrt({X})", (RSQRT, 2))
    found = timeline.advice(tmp_path)
    assert next(iter(found)) == "launch_bound" and (found["fuse_pointwise"].alone_ns or 0) < 20 * 2_100


def test_what_a_kernel_computes_by_its_name() -> None:
    named = {MUL: "mul", ADD: "add", POW: "pow", RSQRT: "rsqrt", EPS: "add", COPY: "copy", MEAN: "mean"}
    assert {name: function(name) for name in named} == named
    assert function("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
                    "at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda()#1}> > >") == "sum"  # fmt: skip
    assert function("ampere_sgemm_128x64_tn") is None


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30))
def test_three_of_a_kind_in_a_row(rows: list[tuple[int, int]]) -> None:
    name, stream = (np.array(column, np.int32) for column in zip(*rows, strict=True))
    runs = [len([*run]) for _, run in groupby(rows)]
    expected = [length > 2 for length in runs for _ in range(length)]
    assert fuse_pointwise._of_a_list(name, stream).tolist() == expected
