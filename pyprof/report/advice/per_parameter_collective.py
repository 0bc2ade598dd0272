"""One all_reduce for each parameter in place of one for each bucket of them -> fewer, larger collectives.

A collective takes a start-up time whatever it carries: the shortest one of the capture. Of many small ones all but one of
each 25 MB bucket save that.
"""

from __future__ import annotations

import numpy as np

from pyprof.model.records import PHASES
from pyprof.report.advice.base import Advice, counted, cut_ns, is_worth, mean_ns, told
from pyprof.report.ranks.collectives import of_records
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from pyprof.tables.units import human

_MANY = 32  # of a step: buckets of gradients are fewer
_SMALL, _BUCKET = 4 << 20, 25 << 20  # bytes: of one parameter, of a bucket of DistributedDataParallel
_DO = (
    "one all_reduce for many tensors: DistributedDataParallel(model), or torch._utils._flatten_dense_tensors(grads), "
    "all_reduce_coalesced, with dist._coalescing_manager()"
)


def find(overview: Overview) -> Advice | None:
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
    granted = cut_ns(overview, rows, np.minimum(time, time.min()) * (1 - buckets / len(rows)))
    if not is_worth(overview, mean_ns(overview, granted)):
        return None
    whole, mean = mean_ns(overview, time), human(float(sizes.mean()), "B")
    evidence = (
        f"{len(rows):,} all_reduces of {mean} on average, one a tensor, take {told(whole)}; the shortest takes "
        f"{human(int(time.min()), 'ns')} whatever it carries, {counted(buckets, 'bucket')} of {human(_BUCKET, 'B')} would do"
    )
    in_order = rows[np.lexsort((records["start_ns"][rows], division.device[rows]))]
    merged = in_order[np.arange(len(rows)) % -(-len(rows) // buckets) != 0]  # the launch of each bucket's first stays
    return Advice("per_parameter_collective", Change(rows=rows, cut_ns=granted, merged=merged), whole, evidence, _DO)
