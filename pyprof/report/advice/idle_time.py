"""The idle time of one cause -> what of it a change would save, and where it lies; shared by the kinds about the host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.arrays.intervals import summed
from pyprof.arrays.types import Ints
from pyprof.report.advice.base import Budget
from pyprof.report.time.overview import Overview

_SEVERAL = 3  # steps that show what is usual


class IdleTime(NamedTuple):
    """time_ns: idle for a cause, mean over the devices; saves_ns: without what only the first step has; rows: of the
    division's gaps, those with most of it first; own_ns: what each of these has of it."""

    time_ns: int
    saves_ns: int
    rows: Ints
    own_ns: Ints


def idle_time(overview: Overview, cause: str, budget: Budget | None = None) -> IdleTime:
    """The idle time of a window for one cause; budget: without gaps that other kinds have claimed."""
    rows, own = overview.idle.rows_of(cause)
    gaps, devices = overview.division.gaps, max(overview.division.count, 1)
    claimed = 0
    if budget is not None:
        free = budget.free_gaps[rows]
        claimed = int(own[~free].sum()) // devices
        rows, own = rows[free], own[free]
    order = np.argsort(-own, kind="stable")
    rows, own = rows[order], own[order]
    total, steps = overview.parts[cause] - claimed, overview.steps
    once = 0
    if steps is not None and len(steps) >= _SEVERAL:
        step = np.maximum(np.searchsorted(steps.begin_ns, gaps.end_ns[rows], "left") - 1, 0)
        by_step = summed(step, own, len(steps)) // devices
        usual = int(by_step[1:].max())
        once = int(by_step[0]) - usual if by_step[0] > 2 * usual else 0
    return IdleTime(total, total - once, rows, own)


def ms(time_ns: float) -> str:
    """A time in ms: 285, 6.3 or 0.07."""
    value = time_ns / 1e6
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 1 else f"{value:.2g} ms"


def counted(number: int, what: str) -> str:
    """`1 gap`, `5 gaps`."""
    return f"{number:,} {what}{'s' * (number != 1)}"
