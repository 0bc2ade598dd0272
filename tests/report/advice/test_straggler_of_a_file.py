"""One rank of two in a file that the other waits for, and ranks that come together."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyprof.report.advice.base import Advice
from tests.timeline import A100, Timeline

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def _job(folder: Path, times_us: tuple[int, int]) -> dict[str, Advice]:
    """Two processes that compute so long and then reduce in 20 us together, ten times."""
    timeline = Timeline()
    n, begin = timeline.nsys, 100_000
    n.rows["TARGET_INFO_GPU"].append((1, *A100[1:2], 1, *A100[3:]))
    for turn in range(10):
        end = begin + (max(times_us) + 20) * 1_000
        for rank, us in enumerate(times_us):
            n.kernel(GEMM, 100 + turn * 200, begin, begin + us * 1_000, pid=7 + rank, device=rank)
            n.kernel(REDUCE, 200 + turn * 200, begin + us * 1_000, end, pid=7 + rank, device=rank)
        begin = end
    return timeline.advice(folder)


def test_the_others_wait_for_the_last(tmp_path: Path) -> None:
    found = _job(tmp_path, (100, 180))
    assert found["straggler"].saves_ns == pytest.approx(10 * 80_000 / 2, rel=0.02)  # of one rank of two
    assert "process 8 on device 1 enters 10 of 10 collectives last, 80.0 us after the first" in found["straggler"].evidence
    communication = found["exposed_communication"]
    assert (
        communication.saves_ns == pytest.approx(10 * 20_000, rel=0.05)
        and "of it waits for a late rank" in communication.evidence
    )


def test_ranks_that_come_together(tmp_path: Path) -> None:
    assert "straggler" not in _job(tmp_path, (100, 101))
    assert "straggler" not in Timeline().op(None, (GEMM, 100)).op(None, (REDUCE, 100)).advice(tmp_path)
