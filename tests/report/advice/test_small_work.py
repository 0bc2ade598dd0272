"""Kernels too small to fill the device, where many do the same; silence in graphs and where launching bounds the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.timeline import Timeline

GEMM = "ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn"
CELL = "linear(bf16[8,64], bf16[256,64])"


def _cells(timeline: Timeline, count: int, grid: tuple[int, int, int] = (8, 4, 1)) -> Timeline:
    for _ in range(count):
        timeline.op(CELL, (GEMM, 20), grid=grid)
    return timeline


def test_what_of_the_device_was_empty(tmp_path: Path) -> None:
    advice = _cells(Timeline(), 40).advice(tmp_path)["small_work"]
    assert advice.saves_ns == pytest.approx(40 * 20_000 * (1 - 32 / 108), rel=0.01) and advice.time_ns == 800_000
    assert "40 kernels with blocks for 30 % of the multiprocessors" in advice.evidence and "linear" in advice.evidence


def test_silent_where_the_device_is_full_or_few_are_alike(tmp_path: Path) -> None:
    assert "small_work" not in _cells(Timeline(), 40, (108, 1, 1)).advice(tmp_path)
    assert "small_work" not in _cells(Timeline(), 8).advice(tmp_path)


def test_silent_in_graphs(tmp_path: Path) -> None:
    timeline = Timeline()
    n = timeline.nsys
    n.api(10, 1_000, name="cudaGraphLaunch_v10000")
    n.range(f'{CELL} #pyprof{{"mod":"torch"}}', 0, 100)
    for at in range(40):
        n.kernel(GEMM, None, 1_000 + 20_000 * at, 21_000 + 20_000 * at, corr=1_000, grid=(8, 4, 1))
    assert "small_work" not in timeline.advice(tmp_path)


def test_where_launching_takes_longer_it_needs_that_first(tmp_path: Path) -> None:
    timeline = Timeline()
    for _ in range(40):
        timeline.launched, timeline.ends = timeline.launched + 50_000, timeline.launched + 60_000
        timeline.op(CELL, (GEMM, 20), grid=(8, 4, 1))
    advice = timeline.advice(tmp_path)["small_work"]
    assert (advice.alone_ns, advice.after) == (0, "launch_bound")


def test_a_kernel_for_most_of_the_device_is_not_small(tmp_path: Path) -> None:
    assert "small_work" not in _cells(Timeline(), 400, (100, 1, 1)).advice(tmp_path)
