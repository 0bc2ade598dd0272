"""The steps of a serving engine in a window -> prefill, decode and mixed apart: tokens a second, work, share of the roofline.

A step's time is from its begin to that of the next (of the last to the end of what it launched), so that what the engine does
between its annotations counts. Its kernels are those that were launched in its annotations.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.types import Ints
from pyprof.engine_steps import DECODE, STEP_PHASES
from pyprof.parse.records.records import MarkedStep, engine_rows
from pyprof.prof.group import exact_sum
from pyprof.report.summary.breakdown import Kernels
from pyprof.report.summary.model import StepPhase
from pyprof.report.time.overview import Overview

_OUTSIDE = "outside"  # of all steps
_MOST = 0.5  # of the time: a share of the roofline of less would mislead


def step_phases(overview: Overview, kernels: Kernels) -> tuple[StepPhase, ...]:
    """One for each step phase that there is, kernels outside of all steps last; nothing without steps of an engine."""
    records = overview.records
    phases: list[str | None] = [*STEP_PHASES, None, _OUTSIDE]
    code = np.array([*(phases.index(step.says.phase) for step in records.engine_steps), phases.index(_OUTSIDE)], np.int64)
    if len(code) == 1:
        return ()
    rows, time_ns = _steps(overview)
    work = _Work(kernels, code[records["engine_step"][kernels.rows]], len(phases))
    found = []
    for at, phase in enumerate(phases):
        mine = code[rows] == at
        steps = [records.engine_steps[row] for row in rows[mine].tolist()]
        if steps or work.kernels[at]:
            found.append(_phase(phase, steps, int(time_ns[mine].sum()) if steps else None, work, at))
    return tuple(found)


def _steps(overview: Overview) -> tuple[Ints, Ints]:
    """(places in the records' engine_steps, times in ns) of the steps in the window, as far as they lie in it; of a part that
    was asked for, of those that launched something of it, with their whole time."""
    records, window = overview.records, overview.window
    rows = np.array(engine_rows(records.engine_steps), np.int64)
    begin = np.array([records.engine_steps[at].begin_ns for at in rows.tolist()], np.int64)
    end = np.append(begin[1:], records.engine_steps[rows[-1]].end_ns)
    launched = np.flatnonzero(records["engine_step"] == rows[-1])
    ran = records["start_ns"][launched] + np.maximum(records["dur_ns"][launched], 0)
    end[-1] = ran.max(initial=end[-1])
    if overview.chosen is None:
        keep = (end > window.begin_ns) & (begin < window.end_ns)
        begin, end = np.maximum(begin, window.begin_ns), np.minimum(end, window.end_ns)
    else:
        keep = np.isin(rows, records["engine_step"][overview.chosen])
    return rows[keep], (end - begin)[keep]


class _Work:
    """Sums over kernels by step phase. flops, bytes: of those that are known; known_...: their share of the time; peak: least
    time over time where both are known, NaN where that is for less than most of the time."""

    def __init__(self, kernels: Kernels, group: Ints, count: int) -> None:
        frame, rows = kernels.frame, kernels.rows
        self.kernels = np.bincount(group, minlength=count).tolist()
        self.time_ns = exact_sum(kernels.time_ns, group, count).tolist()
        self.sums: dict[str, list[int | None]] = {}
        self.known: dict[str, list[float | None]] = {}
        for name, values in (("flops", frame.costs.flops_of(rows)), ("bytes", frame.costs.of("bytes", rows))):
            known = values >= 0
            some = np.bincount(group[known], minlength=count)
            sums = exact_sum(np.where(known, values, 0), group, count).tolist()
            times = exact_sum(np.where(known, kernels.time_ns, 0), group, count).tolist()
            self.sums[name] = [total if number else None for total, number in zip(sums, some.tolist(), strict=True)]
            self.known[name] = [part / whole if whole else None for part, whole in zip(times, self.time_ns, strict=True)]
        peak = frame.roofline.peak[rows] / 100
        known = ~np.isnan(peak)
        least = np.bincount(group, np.where(known, peak * kernels.time_ns, 0), count)
        with np.errstate(divide="ignore", invalid="ignore"):
            spent = np.bincount(group, np.where(known, kernels.time_ns, 0), count)
            self.peak = np.where(spent >= _MOST * np.array(self.time_ns), least / spent, np.nan)


def _phase(phase: str | None, steps: list[MarkedStep], time_ns: int | None, work: _Work, at: int) -> StepPhase:
    requests, tokens, generated = (
        _sum([getattr(step.says, name) for step in steps]) for name in ("requests", "tokens", "generated")
    )
    counted = generated if phase == DECODE else tokens
    rate = counted / time_ns * 1e9 if counted is not None and time_ns and phase != _OUTSIDE else None
    return StepPhase(
        phase, len(steps), requests, tokens, generated, time_ns, rate, work.kernels[at], work.time_ns[at],
        work.sums["flops"][at], work.sums["bytes"][at], work.known["flops"][at], work.known["bytes"][at],
        float(work.peak[at]) if np.isfinite(work.peak[at]) else None,
    )  # fmt: skip


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
