"""A pipeline in which one stage's microbatch takes longer than the others' -> even stages.

It saves what a step takes less with even stages, by a replay of the schedule that the order of the recorded actions proves.
Advice on jobs: each rank of a pipeline is recorded in a file of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyprof.report.advice.base import Advice
from pyprof.report.ranks.pipeline import uneven

if TYPE_CHECKING:
    from pyprof.report.ranks.pipeline import Pipeline


def advice_of(found: Pipeline) -> Advice | None:
    """Advice on the stages of a job, None where they are even or what they save is unknown."""
    if found.longest is None or found.saves is None:
        return None
    saves = int(found.saves * found.steps)
    do = f"give rank {found.rank[found.longest]} fewer layers, the others more"
    return Advice("pipeline_bubble", None, found.bubble_ns, uneven(found), do, (), saves, saves)
