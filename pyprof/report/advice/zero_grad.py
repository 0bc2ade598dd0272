"""Gradients that are filled with zeros, so that backward adds to them -> set_to_none: backward then writes them at once.

The fills go, and of each parameter the addition to its gradient, unless gradients are summed over several backward passes.
"""

from __future__ import annotations

import numpy as np

from pyprof.model.records import PHASES
from pyprof.report.advice.base import Advice, is_worth, mean_ns, told
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from pyprof.tables.units import human

_FILLS = ("zero_", "_foreach_zero_", "fill_")
_ONCE = 1.05  # additions for each fill: with more, gradients are summed on purpose
_DO = "optimizer.zero_grad(set_to_none=True), torch's default since 2.0; model.zero_grad(set_to_none=True)"


def find(overview: Overview) -> Advice | None:
    """Fills inside zero_grad and the additions that they make necessary."""
    records, classes = overview.records, overview.frame.classes
    alike, calls = classes.records, records.calls
    inside = np.array([any("zero_grad" in text for text in one.ranges) for one in records.stacks] + [False], np.bool_)
    fills, adds = (np.array([one.op in names for one in calls] + [False], np.bool_) for names in (_FILLS, ("add_", "add")))
    rows = classes.rows(fills[alike["call"]])
    rows = rows[overview.inside[rows] & inside[records["stack"][rows]]]
    added = classes.rows((alike["phase"] == PHASES.index("backward")) & adds[alike["call"]])
    added = added[overview.inside[added] & (records["fwd_instance"][added] < 0)]
    if not len(rows):
        return None
    if len(added) > _ONCE * len(rows):
        added = added[:0]
    gone = np.concatenate([rows, added])
    gaps, idle = overview.idle.rows_of("launch")
    own = np.isin(overview.division.gaps.after[gaps], rows)  # backward is late for more than its sums
    held, late = overview.division.exclusive_ns, mean_ns(overview, idle[own])
    taken = mean_ns(overview, held[gone])
    if not is_worth(overview, taken + late):
        return None
    evidence = f"zero_grad fills {len(rows):,} gradients, {human(mean_ns(overview, held[rows]), 'ns')}"
    evidence += f", and backward adds to {len(added):,}, {human(mean_ns(overview, held[added]), 'ns')}" if len(added) else ""
    evidence += f"; the device waits {told(late)} for their launches" if late else ""
    return Advice("zero_grad", Change(removed=gone), taken + late, evidence, _DO)
