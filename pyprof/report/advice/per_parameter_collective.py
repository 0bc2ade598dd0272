"""One all_reduce for each parameter in place of one for each bucket of them -> fewer, larger collectives.

A collective takes a start-up time whatever it carries: the shortest one of the capture. Of many small ones all but one of
each 25 MB bucket save that.
"""

from __future__ import annotations

import numpy as np

from pyprof.model.records import PHASES
from pyprof.report.advice.base import Advice, Budget, is_worth, ms
from pyprof.report.ranks.collectives import of_records
from pyprof.report.time.overview import Overview
from pyprof.tables.units import human

_MANY = 32  # of a step: buckets of gradients are fewer
_SMALL, _BUCKET = 4 << 20, 25 << 20  # bytes: of one parameter, of a bucket of DistributedDataParallel
_DO = (
    "one all_reduce for many tensors: DistributedDataParallel(model), or torch._utils._flatten_dense_tensors(grads), "
    "all_reduce_coalesced, with dist._coalescing_manager()"
)


def find(overview: Overview, budget: Budget) -> Advice | None:
    """Many small all_reduces of backward or after it, one a tensor."""
    records, division = overview.records, overview.division
    rows, which, collectives = of_records(records)
    small = [one.kind == "all_reduce" and one.group_size != 1 and 0 < (one.nbytes or 0) < _SMALL for one in collectives]
    keep = overview.inside[rows] & np.array([*small, False], np.bool_)[which]
    rows, which = rows[keep], which[keep]
    steps = 1 if overview.steps is None else len(overview.steps)
    trains = (records["phase"][overview.inside] == PHASES.index("backward")).any()
    if len(rows) < _MANY * steps * max(division.count, 1) or not trains:
        return None
    sizes = np.array([one.nbytes or 0 for one in collectives], np.int64)[which]
    time = np.maximum(records["dur_ns"][rows], 0)
    buckets = max(int(sizes.sum() // _BUCKET), steps * max(division.count, 1))
    granted = budget.take(rows, np.minimum(time, time.min()) * (1 - buckets / len(rows)), awaited=True)
    saves = budget.wall_ns(granted)
    if not is_worth(overview, saves):
        return None
    whole, mean = budget.wall_ns(time), human(float(sizes.mean()), "B")
    evidence = (
        f"{len(rows):,} all_reduces of {mean} on average, one a tensor, take {ms(whole)}; the shortest takes "
        f"{human(int(time.min()), 'ns')} whatever it carries, {buckets} buckets of {human(_BUCKET, 'B')} would do"
    )
    return Advice("per_parameter_collective", saves, whole, evidence, _DO)
