"""Collectives that nothing hides: only what holds the device, nothing in jobs that hide them or of pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyprof.report.advice.base import Advice
from tests.timeline import Timeline

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def _job(folder: Path, kernel: str, start_us: int, end_us: int, around: str = "") -> dict[str, Advice]:
    """Products from 0 to 100 us and from 200 us on, communication on a stream of its own."""
    timeline = Timeline()
    n = timeline.nsys
    n.kernel(GEMM, 100, 1_000, 101_000)
    n.kernel(kernel, 400, start_us * 1_000 + 1_000, end_us * 1_000 + 1_000, stream=20)
    n.kernel(GEMM, 700, 201_000, 301_000)
    if around:
        n.range(around, 300, 500)
    return timeline.advice(folder)


def test_what_no_computation_hides(tmp_path: Path) -> None:
    advice = _job(tmp_path, REDUCE, 60, 180, 'all_reduce(fp32[250000]) #pyprof{"mod":"torch.distributed"}')[
        "exposed_communication"
    ]
    # The product is launched long before: it would begin at the end of the other, 20 us of pause after the collective go too.
    assert (advice.saves_ns, advice.time_ns) == (100_000, 80_000)
    assert advice.evidence.startswith("80.0 us of 120 us of communication runs while nothing computes: ")
    assert "1 x all_reduce of 1.00 MB, 80.0 us exposed (the fastest 120 us)" in advice.evidence
    assert "waiting for a late rank one file cannot tell" in advice.evidence
    assert advice.do.startswith("start it earlier")


@pytest.mark.parametrize(
    ("kernel", "around", "do"),
    [
        (REDUCE, "DistributedDataParallel.forward", "static_graph=True"),
        (REDUCE, 'layers.3.mlp #pyprof{"layer":"MLP"}', "two micro-batches"),
        (REDUCE, 'all_reduce(fp32[8]) #pyprof{"mod":"torch.distributed"}', "async_op=True"),
        (GATHER, "FSDP::pre_forward (blocks.4)", "fully_shard"),
        (GATHER, "", "fully_shard"),
        (SEND, 'all_to_all(fp32[8]) #pyprof{"mod":"torch.distributed"}', "async_op=True"),
    ],
)
def test_what_to_do_depends_on_who_communicates(tmp_path: Path, kernel: str, around: str, do: str) -> None:
    assert do in _job(tmp_path, kernel, 100, 200, around)["exposed_communication"].do


def test_one_for_each_parameter(tmp_path: Path) -> None:
    timeline = Timeline().op(None, (GEMM, 100))
    for _ in range(100):
        timeline.op(None, (REDUCE, 10))
    timeline.nsys.range('SGD.step #pyprof{"optimizer":"SGD"}', timeline.launched, timeline.launched + 900)
    timeline.launched += 10
    timeline.op(None, ("triton_for_fused_0", 10))
    advice = timeline.advice(tmp_path)["exposed_communication"]
    assert advice.saves_ns == pytest.approx(1_000_000, rel=0.01) and "not one for each parameter" in advice.do


def test_more_communication_than_there_is_computation_to_hide_it(tmp_path: Path) -> None:
    timeline = Timeline().op(None, (REDUCE, 900)).op(None, (GEMM, 100))
    advice = timeline.advice(tmp_path)["exposed_communication"]
    assert advice.saves_ns == pytest.approx(900_000, rel=0.01) and "overlap alone can hide 100 us at most" in advice.evidence


@pytest.mark.parametrize(("exposed_us", "found"), [(15, False), (25, True)])
def test_the_last_bucket_of_what_is_well_hidden(tmp_path: Path, exposed_us: int, found: bool) -> None:
    timeline = Timeline()
    timeline.nsys.kernel(GEMM, 100, 1_000, 1_001_000)
    timeline.nsys.kernel(REDUCE, 200, 501_000, 1_001_000 + exposed_us * 1_000, stream=20)
    assert ("exposed_communication" in timeline.advice(tmp_path)) == found


def test_silent_where_it_is_hidden_or_a_pipeline_waits(tmp_path: Path) -> None:
    assert "exposed_communication" not in _job(tmp_path, REDUCE, 10, 101)  # 1 us of 300
    assert "exposed_communication" not in _job(tmp_path, SEND, 100, 200)
    assert "exposed_communication" not in _job(tmp_path, SEND, 100, 200, 'recv(fp32[8], 0) #pyprof{"mod":"torch.distributed"}')
