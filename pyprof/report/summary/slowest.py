"""The steps of an overview -> how long they take, which is the slowest, and what in it takes longer than in the median step."""

from __future__ import annotations

import numpy as np

from pyprof.arrays.intervals import summed
from pyprof.arrays.types import Floats, Ints
from pyprof.parse.records.records import PHASES
from pyprof.report.summary.model import Slowest, StepTimes
from pyprof.report.time.causes import CAUSES
from pyprof.report.time.overview import Overview
from pyprof.report.time.steps import Steps

_FEWEST = 3  # steps, for one of them to be called slower than usual
_LEAST_SLOWER = 0.02  # of the median
_LEAST_PART = 0.5  # of what the slowest step takes longer: a part that explains less is not its reason


def step_times(overview: Overview) -> StepTimes | None:
    """Of the complete steps of the window; None where there are none."""
    steps = overview.steps
    if steps is None or not len(steps):
        return None
    times = steps.time_ns
    low, high, median = int(times.min()), int(times.max()), round(float(np.median(times)))
    slowest = _slowest(overview, steps, median) if len(steps) >= _FEWEST and high > (1 + _LEAST_SLOWER) * median else None
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
    """(CAUSES, steps): ns, mean over the devices. A gap at a step's end belongs to each step by its part in it."""
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
    """(records of the division that began in a step, which)."""
    rows = overview.division.row
    start = overview.records["start_ns"][rows]
    step = np.searchsorted(steps.begin_ns, start, "right") - 1
    inside = (step >= 0) & (start < steps.end_ns[step])
    return rows[inside], step[inside]


def _busy(overview: Overview, steps: Steps) -> Floats:
    """(PHASES and unknown, steps): the time in which records hold their device, mean over the devices."""
    rows, step = _step_of(overview, steps)
    phase = overview.records["phase"][rows].astype(np.int64)
    group = np.where(phase < 0, len(PHASES), phase) * len(steps) + step
    held = summed(group, overview.division.held_ns[rows], (len(PHASES) + 1) * len(steps))
    return held.reshape(-1, len(steps)) / max(overview.division.count, 1)


def _op(overview: Overview, steps: Steps, at: int, phase: int) -> str | None:
    """The op of a phase that takes so much longer in one step than in the median one; None where it is not known."""
    rows, step = _step_of(overview, steps)
    records = overview.records
    mine = records["phase"][rows] == (phase if phase < len(PHASES) else -1)
    rows, step = rows[mine], step[mine]
    names: dict[str, int] = {}
    op = np.array([*(names.setdefault(call.op, len(names)) for call in records.calls), -1], np.int64)[records["call"][rows]]
    named = op >= 0
    if not named.any():
        return None
    held = summed(op[named] * len(steps) + step[named], overview.division.held_ns[rows[named]], len(names) * len(steps))
    by_step = held.reshape(-1, len(steps))
    return list(names)[int((by_step[:, at] - np.median(by_step, axis=1)).argmax())]
