"""Forward ops that run a second time inside backward (activation checkpointing): where memory allows, their time can go."""

from __future__ import annotations

from pyprof.report.advice.base import Advice, is_worth, mean_ns, named, places
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from pyprof.tables.units import human


def find(overview: Overview) -> Advice | None:
    """All that is recomputed in the window."""
    rows = overview.frame.classes.rows(overview.frame.classes.records["recomputed"] == 1)
    rows = rows[overview.inside[rows]]
    held = overview.division.exclusive_ns[rows]
    time = mean_ns(overview, held)
    if not is_worth(overview, time):
        return None
    found = places(overview, rows, held)
    share = 100 * time / max(overview.busy_ns, 1)
    evidence = (
        f"{len(rows)} kernels of the forward pass run again in backward, {human(time, 'ns')} ({share:.0f} % of the busy time)"
    )
    do = (
        "only if memory allows: checkpoint fewer layers, or keep the results of costly ops: torch.utils.checkpoint.checkpoint("
        "..., use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, ops_to_save))"
    )
    return Advice("recomputation", Change(removed=rows), time, f"{evidence}: {named(found)}", do, found)
