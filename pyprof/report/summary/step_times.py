"""The steps of an overview -> how long they take and why the slowest does, and the step phases of a serving engine.

A step lasts to the next one's begin (the last step to the end of what it launched), so that an engine's work between its
annotations counts. The kernels of an engine's step were launched in its annotations.
"""

from __future__ import annotations

import numpy as np

from pyprof.columns.intervals import summed
from pyprof.columns.types import Floats, Ints
from pyprof.model.records import PHASES, MarkedStep, engine_rows
from pyprof.model.scheduler_steps import DECODE, STEP_PHASES
from pyprof.prof.sums import sums_of
from pyprof.report.summary.breakdown import Kernels
from pyprof.report.summary.model import Slowest, StepPhase, StepTimes
from pyprof.report.time.causes import CAUSES
from pyprof.report.time.overview import Overview
from pyprof.report.time.steps import Steps

_FEWEST = 3  # steps needed before one is called slow
_LEAST_SLOWER = 0.02  # of the median
_LEAST_PART = 0.5  # of the extra time of the slowest step: a part that explains less is not its reason
_OUTSIDE = "outside"  # kernels launched outside of all steps
_MOST = 0.5  # of the time: a share of the roofline from less of it would mislead


def step_times(overview: Overview) -> StepTimes | None:
    """Times of the complete steps of the window; None without steps."""
    steps = overview.steps
    if steps is None or not len(steps):
        return None
    times = steps.time_ns
    low, high, median = int(times.min()), int(times.max()), round(float(np.median(times)))
    slow = len(steps) >= _FEWEST and high > (1 + _LEAST_SLOWER) * median and overview.records.unseen is None
    slowest = _slowest(overview, steps, median) if slow else None
    each = tuple(times.tolist())
    return StepTimes(steps.kind, steps.name, len(steps), median, high - low, low, high, each, slowest)


def _slowest(overview: Overview, steps: Steps, median: int) -> Slowest:
    """The slowest step, and the part of it that differs most from the median over the steps."""
    at = int(steps.time_ns.argmax())
    names = [*(("idle", cause) for cause in CAUSES), *(("busy", phase) for phase in (*PHASES, "unknown"))]
    parts = np.concatenate([_idle(overview, steps), _busy(overview, steps)])
    more = parts[:, at] - np.median(parts, axis=1)
    part = int(more.argmax())
    whole = int(steps.time_ns[at])
    if more[part] < _LEAST_PART * (whole - median):
        return Slowest(at, whole, None, None, None)
    op = _op(overview, steps, at, part - len(CAUSES)) if part >= len(CAUSES) else None
    return Slowest(at, whole, names[part], op, round(float(more[part])))


def _idle(overview: Overview, steps: Steps) -> Floats:
    """(CAUSES, steps): idle ns, mean over the devices. A gap across the end of a step is divided between both steps."""
    division = overview.division
    gaps = division.gaps
    edges = np.stack([steps.begin_ns, steps.end_ns]).astype(np.float64)
    result = np.zeros((len(CAUSES), len(steps)))
    for device in range(division.count):
        for cause in CAUSES:
            rows, time = overview.idle.rows_of(cause)
            mine = gaps.device[rows] == device
            rows, time = rows[mine], time[mine]
            times = np.stack([gaps.start_ns[rows], gaps.end_ns[rows]], axis=1).ravel().astype(np.float64)
            spent = np.zeros(len(times))
            spent[1::2] = time
            begin, end = np.interp(edges, times, np.cumsum(spent)) if len(times) else np.zeros((2, len(steps)))
            result[CAUSES.index(cause)] += (end - begin) / division.count
    return result


def _step_of(overview: Overview, steps: Steps) -> tuple[Ints, Ints]:
    """(rows of records that began in a step, the step of each)."""
    rows = overview.division.row
    start = overview.records["start_ns"][rows]
    step = np.searchsorted(steps.begin_ns, start, "right") - 1
    inside = (step >= 0) & (start < steps.end_ns[step])
    return rows[inside], step[inside]


def _busy(overview: Overview, steps: Steps) -> Floats:
    """(PHASES and unknown, steps): exclusive time of records in ns, mean over the devices."""
    rows, step = _step_of(overview, steps)
    phase = overview.records["phase"][rows].astype(np.int64)
    group = np.where(phase < 0, len(PHASES), phase) * len(steps) + step
    spent = summed(group, overview.division.exclusive_ns[rows], (len(PHASES) + 1) * len(steps))
    return spent.reshape(-1, len(steps)) / max(overview.division.count, 1)


def _op(overview: Overview, steps: Steps, at: int, phase: int) -> str | None:
    """The op of a phase whose exclusive time exceeds its median over the steps most in one step; None if unknown."""
    rows, step = _step_of(overview, steps)
    records = overview.records
    mine = records["phase"][rows] == (phase if phase < len(PHASES) else -1)
    rows, step = rows[mine], step[mine]
    names: dict[str, int] = {}
    op = np.array([*(names.setdefault(call.op, len(names)) for call in records.calls), -1], np.int64)[records["call"][rows]]
    named = op >= 0
    if not named.any():
        return None
    spent = summed(op[named] * len(steps) + step[named], overview.division.exclusive_ns[rows[named]], len(names) * len(steps))
    by_step = spent.reshape(-1, len(steps))
    return list(names)[int((by_step[:, at] - np.median(by_step, axis=1)).argmax())]


def step_phases(overview: Overview, kernels: Kernels) -> tuple[StepPhase, ...]:
    """One for each step phase that occurs, kernels outside of steps last; empty without scheduler steps."""
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
    """(places in the records' engine_steps, times in ns) of the scheduler steps in the window, cut to it. If the user chose a
    part: the steps that launched some of it, with their whole time."""
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
    """Sums over kernels by step phase. flops, bytes: the amounts; known: the shares of the time with them; peak: share of the
    roofline, NaN if it is known for less than half of the time."""

    def __init__(self, kernels: Kernels, group: Ints, count: int) -> None:
        frame, rows = kernels.frame, kernels.rows
        values = frame.costs.sure_flops_of(rows), frame.costs.of("bytes", rows)
        sums = [sums_of(each, kernels.time_ns, group, count) for each in values]
        self.kernels, self.time_ns = sums[0].rows.tolist(), sums[0].all_ns.tolist()
        self.flops, self.bytes = (each.amounts() for each in sums)
        self.known = [each.shares() for each in sums]
        peak = frame.roofline.peak[rows] / 100
        known = ~np.isnan(peak)
        least = np.bincount(group, np.where(known, peak * kernels.time_ns, 0), count)
        with np.errstate(divide="ignore", invalid="ignore"):
            spent = np.bincount(group, np.where(known, kernels.time_ns, 0), count)
            self.peak = np.where(spent >= _MOST * np.array(self.time_ns), least / spent, np.nan)


def _phase(phase: str | None, steps: list[MarkedStep], time_ns: int | None, work: _Work, at: int) -> StepPhase:
    said = [[getattr(step.says, name) for step in steps] for name in ("requests", "tokens", "generated")]
    requests, tokens, generated = (sum(each) if each and None not in each else None for each in said)
    counted = generated if phase == DECODE else tokens
    rate = counted / time_ns * 1e9 if counted is not None and time_ns and phase != _OUTSIDE else None
    flops, moved = work.flops[at], work.bytes[at]
    return StepPhase(
        phase, len(steps), requests, tokens, generated, time_ns, rate, work.kernels[at], work.time_ns[at],
        flops.value, flops.least, moved.value, moved.least, work.known[0][at], work.known[1][at],
        float(work.peak[at]) if np.isfinite(work.peak[at]) else None,
    )  # fmt: skip
