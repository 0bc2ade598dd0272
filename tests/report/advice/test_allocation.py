"""Devices that wait while the host allocates or frees memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.timeline import Timeline, advice_of, overview_of

OWN, TORCH = "own_kernel(int)", "void at::native::vectorized_elementwise_kernel<4, AddFunctor<float> >(int)"


def _of(kernel: str, took_us: list[int], name: str = "cudaMalloc_v3020") -> Timeline:
    """Kernels of 100 us, before each of which the device idles as long as a call of the host takes."""
    timeline = Timeline().op(None, (kernel, 100))
    for number, us in enumerate(took_us):
        timeline.launched = timeline.ends
        timeline.nsys.api(timeline.launched, 900 + number, name=name, took=us * 1_000)
        timeline.launched += us * 1_000
        timeline.ends = timeline.launched + 20
        timeline.op(None, (kernel, 100))
    return timeline


@pytest.mark.parametrize(("kernel", "took", "word"), [
    (TORCH, [2_000, 500], "run an iteration before"), (TORCH, [300] * 12, "PyTorch's cache: no"), (OWN, [2_000], "cudaMallocAsync"),
])  # fmt: skip
def test_calls_are_named_and_counted(tmp_path: Path, kernel: str, took: list[int], word: str) -> None:
    timeline = _of(kernel, took)
    overview = timeline.overview(tmp_path)
    advice = advice_of(overview)["allocation"]
    assert advice.time_ns == overview.parts["allocation"] == pytest.approx(sum(took) * 1_000, rel=0.02)
    assert f" device: {len(took)} x cudaMalloc, " in advice.evidence and word in advice.do
    assert advice.evidence.endswith(", as in a first iteration") == (len(took) < 8)


def test_calls_while_the_device_is_busy_cost_nothing(tmp_path: Path) -> None:
    timeline = Timeline().op(None, (TORCH, 9_000), (TORCH, 100))
    timeline.nsys.api(3_000, 900, name="cudaMalloc_v3020", took=5_000_000)
    assert "allocation" not in timeline.advice(tmp_path)


def test_one_call_of_a_cold_iteration_is_what_the_raw_rows_say(captures: Path) -> None:
    """nvprof: 21.5 of 46 ms idle in one cudaMalloc; torch: five in the measured forward, three of them where it idles."""
    advice = advice_of(overview_of(captures / "nvprof/v100_lm/net.sql"))
    assert (
        next(iter(advice)) == "allocation" and "2 x cudaMalloc, 21.8 ms, the longest 21.5 ms" in advice["allocation"].evidence
    )
    alexnet = advice_of(overview_of(captures / "more/a100_alexnet_param.json.gz"))
    assert next(iter(alexnet)) == "allocation" and "x cudaMalloc, " in alexnet["allocation"].evidence
