"""The figures of a ledger, and the verdict on two: what counts as a step of the program's own, and what as noise."""

from dataclasses import replace

import numpy as np
import pytest

from pyprof.columns.types import Floats
from pyprof.model.ledger import CompileEvent, Ledger
from pyprof.report.diff.noise import run_difference
from pyprof.report.run_steps import run_steps, sentences


def ledger(wall_ns: list[int], recorded: tuple[int, ...] = (), traced: tuple[int, ...] = (), **more: object) -> Ledger:
    """A ledger of steps that took this long."""
    count = len(wall_ns)
    step, unknown = np.arange(count), np.full(count, -1, np.int64)
    wall = np.array(wall_ns, np.int64)
    found = Ledger(
        "step", step, np.cumsum(wall) - wall, wall, *[unknown] * 5, np.isin(step, recorded), np.isin(step, traced),
        np.ones(count, np.bool_),
    )  # fmt: skip
    return replace(found, **more)


def test_steps_that_a_profiler_changed_are_not_judged() -> None:
    times = [900, 500, 30, 30, 20, *range(101, 201)]  # two of warm-up, two recorded, one after them
    run = run_steps(ledger(times, recorded=(2, 3)))
    assert run is not None and (run.steps, run.judged, run.recorded) == (105, 100, 2)
    assert (run.p50_ns, run.p90_ns, run.p99_ns) == (150, 190, 199) and (run.slowest, run.slowest_ns) == (104, 200)
    assert run.recorded_ns == 30 and run.slowdown == 30 / 150
    assert run.drift == pytest.approx(195.5 / 105.5 - 1)
    assert run.over[0].step == 2 and run.over[0].recorded and len(run.over) == 103
    first, second = sentences(run)
    assert first == "105 steps in the whole run: p50 150 ns, p90 190 ns, p99 199 ns, slowest 200 ns (step 104)"
    assert second.startswith(
        "the 2 recorded steps took 0.2 x as long as the others, drift +85.3% from its first tenth to its last"
    )


def test_a_run_whose_steps_are_all_recorded() -> None:
    run = run_steps(ledger([9, 9, 10, 11, 12, 13, 14], recorded=(2, 3, 4, 5, 6)))
    assert run is not None and (run.judged, run.p50_ns, run.slowdown, run.drift) == (5, 12, None, None)
    assert next(sentences(run)).startswith("7 steps in the whole run, 5 of them recorded and judged: p50 12 ns")
    assert run_steps(ledger([9, 9, 10, 11, 12, 13, 14], traced=tuple(range(7)))) == run._replace(
        over=tuple(part._replace(recorded=False) for part in run.over)
    )


@pytest.mark.parametrize(
    ("by", "several", "one"),
    [("module", "calls of the model timed", "call"), ("loader", "batches", "batch"), ("profiler", "steps", "step")],
)
def test_marks_that_are_no_steps_are_not_called_so(by: str, several: str, one: str) -> None:
    run = run_steps(ledger([9, 9, 10, 11, 12], recorded=(2, 3, 4), by=by, device_ns=np.full(5, 7)))
    assert run is not None and [*sentences(run)] == [
        f"5 {several} in the whole run, 3 of them recorded and judged: p50 11 ns, p90 12 ns, p99 12 ns, slowest 12 ns ({one} 4)",
        f"device 7 ns a {one}",
    ]


def test_a_run_of_which_too_little_is_known() -> None:
    run = run_steps(ledger([9, 9, 9], traced=(0, 1)))
    assert run is not None and [*sentences(run)] == ["3 steps in the whole run, too few to judge it"]
    assert run_steps(None) is None and run_steps(ledger([], compiled=(CompileEvent(0, "recompile", "f", "", "", 0),))) is None


def test_tokens_memory_and_compilations_are_told_where_they_are_known() -> None:
    events = tuple(CompileEvent(n, "recompile", "f", "size", "net.py", 3) for n in range(2))
    known = ledger([10**6] * 20, tokens=np.full(20, 512), peak=np.arange(20), device_ns=np.full(20, 7), compiled=events)
    run = run_steps(known)
    assert run is not None and (run.tokens_per_s, run.peak, run.device_ns) == (512_000, 19, 7)
    assert [*sentences(run)][1] == "512,000 tokens/s, device 7 ns a step, peak memory 19 B, 2 recompiles in all"


def _steps(seed: int, ns: float, disturbed: float) -> Floats:
    """600 steps of a program, each up to 1 % longer, and for a share of the run in stretches of 40 up to three times as long."""
    rng = np.random.default_rng(seed)
    times = ns * (1 + 0.01 * rng.exponential(0.3, 600))
    busy = np.repeat(rng.random(15) < disturbed, 40)
    return np.where(busy, times * rng.uniform(1, 3, 600), times)


@pytest.mark.parametrize("disturbed", [0.0, pytest.param(0.2, marks=pytest.mark.slow), 0.5])
def test_the_same_program_is_the_same_and_a_slower_one_slower(disturbed: float) -> None:
    for seed in range(8):
        before, same, slower = (_steps(3 * seed + at, ns, disturbed) for at, ns in enumerate((1e6, 1e6, 1.05e6)))
        assert not run_difference(before, same).beyond_noise
        judged = run_difference(before, slower)
        assert judged.beyond_noise and judged.low > 0
        assert run_difference(slower, before).high < 0
