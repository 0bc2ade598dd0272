"""Copies between host and device in each step, told apart from a batch of inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyprof
from pyprof.report.advice.base import Advice
from tests.timeline import Timeline, advice_of, overview_of

GEMM = "ampere_sgemm_128x64_tn"
TO_DEVICE, TO_HOST = 1, 2


def _steps(folder: Path, layers: int, copies: int, kind: int = TO_DEVICE, nbytes: int = 4 << 20) -> dict[str, Advice]:
    """Two marked steps of 20 layers of 40 us; the first `layers` copy tensors for 10 us each."""
    timeline, n = Timeline(), None
    n = timeline.nsys
    for step in range(2):
        begin = timeline.launched
        for layer in range(20):
            for _ in range(copies if layer < layers else 0):
                n.copy(kind, timeline.launched + 10, timeline.ends, timeline.ends + 10_000, nbytes)
                timeline.launched, timeline.ends = timeline.launched + 1_000, timeline.ends + 10_000
            timeline.op(None, (GEMM, 40))
        n.range(f'step {step} #pyprof{{"step":{step}}}', begin, timeline.launched)
    return timeline.advice(folder)


def test_weights_that_travel_layer_by_layer(tmp_path: Path) -> None:
    advice = _steps(tmp_path, 20, 2)["host_copy"]
    assert advice.saves_ns == pytest.approx(2 * 20 * 2 * 10_000, rel=0.02)  # the first kernel waits for its own launch then
    assert advice.evidence.startswith("80 copies travel between host and device: 168 MB a step, 2 steps, at 419 GB/s")
    assert "non_blocking=True" in advice.do


def test_what_is_copied_to_the_host_once_a_step(tmp_path: Path) -> None:
    assert _steps(tmp_path, 1, 1, TO_HOST)["host_copy"].saves_ns == pytest.approx(20_000, rel=0.3)


@pytest.mark.parametrize(("layers", "copies", "nbytes"), [(1, 30, 4 << 20), (4, 2, 4 << 20), (20, 2, 4096)])
def test_silent_of_inputs_and_of_few_bytes(tmp_path: Path, layers: int, copies: int, nbytes: int) -> None:
    """A batch of 30 tensors, four micro-batches, and 40 copies of 4 kB."""
    assert "host_copy" not in _steps(tmp_path, layers, copies, nbytes=nbytes)


@pytest.mark.parametrize(("memory", "found"), [((0, 2), True), ((1, 2), False), ((None, None), False)])
def test_inputs_from_pageable_memory_that_take_long(tmp_path: Path, memory: tuple[int | None, int | None], found: bool) -> None:
    timeline = Timeline().op(None, (GEMM, 400))
    timeline.nsys.copy(TO_DEVICE, timeline.launched, timeline.ends, timeline.ends + 20_000, 4 << 20, memory)
    timeline.ends += 20_000
    advice = timeline.op(None, (GEMM, 400)).advice(tmp_path).get("host_copy")
    assert (advice is not None) == found
    assert advice is None or (advice.saves_ns == 20_000 and "pin_memory=True" in advice.do)


@pytest.mark.parametrize("copies", [16, 15])
def test_weights_that_come_once_before_the_first_kernel(tmp_path: Path, copies: int) -> None:
    """In pageable memory; fewer may be a batch."""
    timeline = Timeline()
    for _ in range(copies):
        timeline.nsys.copy(TO_DEVICE, timeline.launched, timeline.ends, timeline.ends + 20_000, 4 << 20, (0, 2))
        timeline.launched, timeline.ends = timeline.launched + 1_000, timeline.ends + 20_000
    timeline.op("F.linear", (GEMM, 400))
    found = pyprof.summary(timeline.nsys.write(tmp_path / "net.sqlite"))
    note = (
        "before the first kernel 16 copies bring 67.1 MB to the device in 320 us, as of a model's weights: no advice counts them, "
        "since they come once"
    )
    assert (note in found.notes) == (copies == 16)
    assert ("host_copy" in {one.kind for one in found.advice}) == (copies != 16)


def test_what_runs_beside_kernels_costs_nothing(tmp_path: Path) -> None:
    timeline = Timeline()
    for _ in range(20):
        timeline.nsys.copy(TO_DEVICE, timeline.launched + 500, timeline.ends, timeline.ends + 30_000, 4 << 20)
        timeline.op(None, (GEMM, 40))
    assert "host_copy" not in timeline.advice(tmp_path)


def test_inputs_that_take_most_of_a_step(tmp_path: Path) -> None:
    """60 tensors of 10 us against 20 products of 40 us."""
    advice = _steps(tmp_path, 1, 60)["host_copy"]
    assert advice.saves_ns == pytest.approx(2 * 60 * 10_000, rel=0.01) and "Stream()" in advice.do


def test_migrations_of_unified_memory(tmp_path: Path) -> None:
    """To the device while a kernel waits for them, and back after it."""
    timeline = Timeline().op(None, (GEMM, 1_000))
    for page in range(10):
        timeline.nsys.copy(11, timeline.launched, 5_000 + 90_000 * page, 8_000 + 90_000 * page, 27_000)
    for _ in range(20):
        timeline.nsys.copy(12, timeline.launched, timeline.ends, timeline.ends + 8_000, 174_000)
        timeline.ends += 8_000
    advice = timeline.advice(tmp_path)["unified_memory"]
    assert (advice.saves_ns, advice.time_ns) == (160_000, 190_000)
    assert advice.evidence.endswith("10 to the device (270 kB, 30.0 us), 20 back to the host (3.48 MB, 160 us)")


def test_a_device_that_idles_while_the_host_touches_page_after_page(captures: Path) -> None:
    """1,500 pages that the host reads in the 600 ms after the kernel, 12 ms of copies."""
    advice = advice_of(overview_of(captures / "cases/nsys/unified_memory.sqlite"))["unified_memory"]
    assert advice.evidence.endswith("; between two of them the device idles, 588 ms in all")
