"""When a recording is stopped, and why; what steps take that are recorded, by a clock that the test moves."""

from __future__ import annotations

import threading
from itertools import count
from types import SimpleNamespace

import pytest

from pyprof.recording import limits as limits_module
from pyprof.recording.growth import Growth, _Heap
from pyprof.recording.limits import Bounds, Pace, ns_per_byte

LARGE = "since its trace becomes too large: --steps A:B records a few steps, --limit 0 all"
LONG = "since it would cost more than 5 minutes ({}): --steps A:B records a few steps, --limit-time 0 all"


@pytest.mark.parametrize(
    ("limits", "trace_gb", "longer_s", "reason"),
    [
        (Bounds(2e9, 300, 100), 1.9, 0, ""),
        (Bounds(2e9, 300, 100), 2.1, 0, LARGE),
        (Bounds(2e9, 300, 200), 1.6, 0, LONG.format("writing and reading its trace does")),  # 320 s
        (Bounds(0, 300, 100), 2.9, 0, ""),
        (Bounds(0, 300, 100), 1.0, 201, LONG.format("recorded steps take that much longer")),
        (Bounds(2e9, 300, 100), 0.0, 301, LONG.format("recorded steps take that much longer")),
        (Bounds(0, 0, 0), 1e6, 1e9, ""),
    ],
)
def test_the_bound_that_is_passed_first(limits: Bounds, trace_gb: float, longer_s: float, reason: str) -> None:
    assert limits.passed(trace_gb * 1e9, longer_s) == reason


class Clock:
    """time.monotonic, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)


def test_recorded_steps_are_held_against_the_longest_that_was_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pace = Pace(recorded=False)
    # the step's own seconds, whether it is recorded, our own seconds at its end; `longer` before that end and after
    steps = [
        (90.0, False, 0.0, 0, 0),  # the first holds the program's beginning: it tells nothing
        (2.0, False, 0.0, 0, 0),
        (3.0, False, 0.0, 0, 0),
        (10.0, True, 4.0, 7, 11),  # 10 - 3, then the trace is written
        (1.0, True, 0.0, 11, 11),  # none of the others was that short, and nothing is gained
        (50.0, False, 0.0, 11, 11),
    ]
    for (took, _, ours, before, after), (_, next_recorded, *_) in zip(steps, [*steps[1:], steps[-1]], strict=True):
        clock.now += took
        assert pace.longer() == before
        pace.ends()
        clock.now += ours
        pace.begins(next_recorded)
        assert pace.longer() == after


def test_nothing_is_known_of_a_program_that_is_recorded_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pace = Pace(recorded=True)
    for _ in range(3):
        clock.now += 1000
        pace.ends()
        pace.begins(recorded=True)
    assert pace.longer() == 0


@pytest.mark.parametrize(("frames", "told"), [(True, ", --no-stacks less of each"), (False, None)])
def test_a_recording_that_would_fill_the_memory_is_stopped(
    frames: bool, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python calls take 32 times as much once it ends, ops 8 times."""
    monkeypatch.setattr("pyprof.recording.growth.free_bytes", lambda: 10e9)
    growth = Growth(Bounds(), lambda: True, lambda _: None, frames=frames)
    assert growth._reason(39_000_000) == ""
    reason = growth._reason(40_000_000)
    why = "since writing more of it might take 1.3 GB of memory: --steps A:B records a few steps"
    assert reason == (f"{why}{told}" if told else "")
    assert frames or "might take 1.3 GB" in growth._reason(160_000_000)
    monkeypatch.setattr("pyprof.recording.growth.free_bytes", lambda: 320e9)  # a sixteenth is more
    assert growth._reason(600_000_000) == "" and "might take" in growth._reason(2_600_000_000)


def test_a_machine_that_takes_twice_as_long_may_record_half_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = count()
    monkeypatch.setattr("pyprof.recording.limits.time.thread_time", lambda: next(readings) * 2 * limits_module._COMPRESSING_S)
    assert ns_per_byte() == pytest.approx(2 * limits_module._NS_PER_BYTE)
    monkeypatch.undo()
    assert ns_per_byte() > 0


@pytest.mark.parametrize("measured", [True, False])
def test_a_recording_that_only_takes_long_is_stopped(measured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace stays small, or nobody knows; the steps do not."""
    monkeypatch.setattr("pyprof.recording.growth._SAMPLE_S", 0.001)
    monkeypatch.setattr("pyprof.recording.growth._tensor_bytes", lambda: 0)
    monkeypatch.setattr("pyprof.recording.growth._allocator", lambda: (lambda: (1000, 0)) if measured else None)
    reasons: list[str] = []
    stopped = threading.Event()

    def over(reason: str) -> None:
        reasons.append(reason)
        stopped.set()

    Growth(Bounds(2e9, 300, 100), lambda: True, over, lambda: 301.0).start()
    assert stopped.wait(30)
    assert reasons == [LONG.format("recorded steps take that much longer")]


def test_freed_memory_that_lies_between_events_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 512 MiB beyond what was loose at first; and not again for 50 times as long as that took."""
    clock, resident, trimmed = Clock(monkeypatch), [1 << 30], list[float]()

    def trim(_keep: int) -> None:
        trimmed.append(clock.now)
        clock.now, resident[0] = clock.now + 0.1, 1 << 30

    monkeypatch.setattr("pyprof.recording.growth._resident", lambda: resident[0])
    monkeypatch.setattr("pyprof.recording.growth.ctypes.CDLL", lambda _: SimpleNamespace(malloc_trim=trim))
    heap, begin = _Heap(), clock.now
    for _ in range(100):
        clock.now, resident[0] = clock.now + 1, resident[0] + (200 << 20)
        heap.trim(300 << 20)
    assert [round(when - begin) for when in trimmed[:3]] == [4, 10, 16]
