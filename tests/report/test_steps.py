"""Steps of captures whose truth is on the screen: which ranges are steps, which are parts of one, and what is set-up."""

from pathlib import Path

import numpy as np
import pytest

from pyprof.loading.load import load
from pyprof.prof.frame import Frame
from pyprof.report.time.overview import Overview
from pyprof.report.time.steps import Steps
from tests.timeline import overview_of
from tests.tiny import Nsys

GEMM = "ampere_sgemm_128x64_tn"


def steps_of(n: Nsys, path: Path) -> Steps | None:
    return overview_of(n, path).steps


def launches(n: Nsys, *times: int) -> None:
    """Kernels of 50 ns, each 50 ns after its launch."""
    for time in times:
        n.kernel(GEMM, time, time + 50, time + 100)


def test_marked_steps_come_before_the_optimizers(tmp_path: Path) -> None:
    n = Nsys()
    for number, begin in enumerate((1_000, 2_000, 3_100)):
        n.range(f'step {number} #pyprof{{"step":{number}}}', begin, begin + 900)
        launches(n, begin + 100)
        n.range('SGD.step #pyprof{"optimizer":"SGD"}', begin + 500, begin + 600)
    launches(n, 500, 5_000)  # before the first step and after the last
    overview = overview_of(n, tmp_path)
    steps = overview.steps
    assert steps is not None and (steps.kind, steps.name, len(steps)) == ("pyprof.step", "step 0", 3)
    assert steps.time_ns.tolist() == [1_000, 1_100, 900]
    assert (overview.window.begin_ns, overview.window.end_ns) == (1_000, 4_000)
    assert (overview.window.set_up_ns, overview.window.after_ns) == (450, 1_100)


def test_the_window_holds_what_the_last_step_launched(tmp_path: Path) -> None:
    n = Nsys()
    n.range('step 0 #pyprof{"step":0}', 1_000, 2_000)
    n.kernel(GEMM, 1_900, 2_500, 3_000)
    overview = overview_of(n, tmp_path)
    assert overview.window.end_ns == 3_000
    assert overview.steps is not None and overview.steps.time_ns.tolist() == [1_000]  # its own range's


def test_an_optimizers_end_ends_a_step(tmp_path: Path) -> None:
    n = Nsys()
    for begin in (1_000, 2_000, 3_500):
        launches(n, begin + 10)
        for inner in range(2):  # the discriminator steps twice
            n.range('Adam.step #pyprof{"optimizer":"Adam"}', begin + 100 * inner, begin + 50 + 100 * inner)
        n.range('SGD.step #pyprof{"optimizer":"SGD"}', begin + 500, begin + 600)
    steps = steps_of(n, tmp_path)
    assert steps is not None and (steps.kind, steps.name) == ("optimizer", "SGD.step")
    assert steps.begin_ns.tolist() == [1_600, 2_600] and steps.time_ns.tolist() == [1_000, 1_500]


def test_ranges_that_repeat_and_hold_the_launches_are_steps(tmp_path: Path) -> None:
    n = Nsys()
    n.range("Warm-up", 100, 900)
    n.range("forward", 200, 300)  # of the warm-up
    launches(n, 250)
    for begin in (1_000, 2_000, 3_200):
        n.range("forward", begin, begin + 300)
        n.range("attention", begin + 10, begin + 60)
        n.range("backward", begin + 300, begin + 800)
        launches(n, begin + 20, begin + 400, begin + 600)
    overview = overview_of(n, tmp_path)
    steps = overview.steps
    assert steps is not None and (steps.kind, steps.name) == ("range", "forward")
    assert steps.begin_ns.tolist() == [1_000, 2_000, 3_200]
    assert steps.time_ns.tolist() == [1_000, 1_200, 800]
    assert overview.window.set_up_ns == 1_000 - 300


@pytest.mark.parametrize(("name", "set_up"), [("[bench|alexnet|0|warmup|forward]", True), ("run without warmup", False)])
def test_warm_up_may_be_one_part_of_a_name(tmp_path: Path, name: str, set_up: bool) -> None:
    n = Nsys()
    n.range(name, 100, 900)
    launches(n, 250, 1_000, 2_000)
    assert (overview_of(n, tmp_path).window.begin_ns > 900) == set_up


def test_ranges_that_hold_little_are_no_steps(tmp_path: Path) -> None:
    n = Nsys()
    for begin in (1_000, 2_000, 3_000, 4_000):
        n.range("attention", begin, begin + 100)
        launches(n, begin + 10, *(begin + 200 + 100 * k for k in range(7)))
    assert steps_of(n, tmp_path) is None


@pytest.mark.parametrize(("name", "found"), [("iteration {}", True), ("train_step_{}", True), ("layer {}", False)])
def test_numbered_ranges_are_steps_where_they_say_so(tmp_path: Path, name: str, found: bool) -> None:
    n = Nsys()
    for number, begin in enumerate((1_000, 2_000, 3_000)):
        n.range(name.format(number), begin, begin + 900)
        launches(n, begin + 100)
    steps = steps_of(n, tmp_path)
    assert (steps is not None and len(steps) == 3) == found


def test_a_scheduler_named_after_warm_up_is_no_set_up(tmp_path: Path) -> None:
    n = Nsys()
    launches(n, 1_000, 2_000)
    n.range("warmup_lr", 1_500, 1_600)  # holds no launch
    assert overview_of(n, tmp_path).window.begin_ns == 1_050


def test_the_window_begins_after_work_that_was_lost(tmp_path: Path) -> None:
    n = Nsys()
    ms = 1_000_000
    n.kernel(GEMM, 0, 10, 1_000)
    n.kernel(GEMM, 500, 400 * ms, 500 * ms)  # launched at once and begun 400 ms later with nothing seen before it
    overview = overview_of(n, tmp_path)
    window = overview.window
    assert (window.begin_ns, window.end_ns, window.unrecorded_ns) == (400 * ms, 500 * ms, 400 * ms - 10)
    n.kernel(GEMM, 600, 800 * ms, 900 * ms)  # with kernels before it the gap stays, and is nobody's fault
    overview = overview_of(n, tmp_path)
    assert overview.window.begin_ns == 400 * ms and overview.parts["unrecorded"] == 300 * ms


@pytest.mark.parametrize(
    ("name", "kind", "count", "median_ms"),
    [
        ("nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite", "range", 10, 67.3),
        ("kineto/v100_resnet50_2021.json.gz", "ProfilerStep", 6, 176.3),
        ("kineto/serving/sglang_prefilldecode.json.gz", "engine", 1, 493.6),
        ("nsys/a100_gpt2.7b.nsys2024.6.sqlite", None, 0, 0),
    ],
)
def test_real_captures(captures: Path, name: str, kind: str | None, count: int, median_ms: float) -> None:
    overview = overview_of(captures / name)
    steps = overview.steps
    assert (steps and steps.kind) == kind
    if steps is not None:
        assert len(steps) == count and np.median(steps.time_ns) / 1e6 == pytest.approx(median_ms, rel=0.01)
    assert sum(overview.parts.values()) == overview.division.wall_ns


def test_a_step_that_recording_cut_short_is_none(tmp_path: Path) -> None:
    n = Nsys()
    for number, begin in enumerate((1_000, 2_000, 3_000, 4_000, 5_000)):
        n.range(f'step {number} #pyprof{{"step":{number}}}', begin, begin + 900)
        launches(n, *(begin + 100 * k for k in range(1, 2 if number in (0, 4) else 5)))
    steps = steps_of(n, tmp_path)
    assert steps is not None and steps.begin_ns.tolist() == [2_000, 3_000, 4_000]
    assert steps.time_ns.tolist() == [1_000] * 3


@pytest.mark.parametrize(("until", "begin"), [(1_900, 2_000), (2_400, 2_400), (2_990, 2_500)])
def test_chosen_steps_keep_their_begin_unless_earlier_ones_still_run(tmp_path: Path, until: int, begin: int) -> None:
    """until: the end of what step 0 runs; step 1 runs from 2500 on."""
    n = Nsys()
    for number, start in enumerate((1_000, 2_000, 3_000)):
        n.range(f'step {number} #pyprof{{"step":{number}}}', start, start + 1_000)
    n.kernel(GEMM, 1_100, 1_200, until)
    n.kernel(GEMM, 2_400, 2_500, 2_800)
    n.kernel(GEMM, 3_400, 3_500, 3_800)
    records = load(str(n.write(tmp_path / "net.sqlite")), with_host=True)
    overview = Overview(Frame(records), records["step"] >= 1)
    assert (overview.window.begin_ns, overview.window.end_ns) == (begin, 4_000)
    assert overview.steps is not None and overview.steps.time_ns.tolist() == [1_000, 1_000]
    one = Overview(Frame(records), np.arange(len(records)) == 1)  # by time, say: whatever it holds of steps
    assert one.steps is not None and one.steps.begin_ns.tolist() == [2_000]


def test_a_step_of_which_a_part_was_chosen_is_none(tmp_path: Path) -> None:
    n = Nsys()
    n.range('step 0 #pyprof{"step":0}', 1_000, 2_000)
    launches(n, 1_100, 1_500)
    records = load(str(n.write(tmp_path / "net.sqlite")), with_host=True)
    overview = Overview(Frame(records), np.arange(len(records)) == 0)
    assert overview.steps is None
    assert (overview.window.begin_ns, overview.window.end_ns) == (1_150, 1_200)
