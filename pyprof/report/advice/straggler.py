"""One rank of several in a capture that the others wait for in collectives -> what it does meanwhile.

It costs the time that the others' collectives spend waiting for it. The ranks must be in one file; ranks in files of their own
are compared by `pyprof ranks` and in the summary of a folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyprof.model.records import PHASES
from pyprof.report.advice.base import Advice, cut_ns, is_worth, mean_ns, places
from pyprof.report.time.division import COMMUNICATION
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from pyprof.tables.units import human

if TYPE_CHECKING:
    from pyprof.report.ranks.advice import Straggler
    from pyprof.report.ranks.units import Unit

DO = {
    "compute": "give each rank the same work: lengths of its batches, experts, table shards",
    "host": "look at what its host does before these launches",
    "begin": "begin all ranks' recordings in the same step",
}
LISTS = "`pyprof ranks` of the file lists every collective"


def find(overview: Overview) -> Advice | None:
    """Advice on a late rank that the others wait for, None if no rank stands out."""
    division = overview.division
    if division.count < 2 or not (division.busy_ns[COMMUNICATION] > 0).all():
        return None
    from pyprof.report.ranks.advice import straggler
    from pyprof.report.ranks.survey import Survey

    whole = Survey()
    for device in range(division.count):
        whole.add(_unit(overview, device), 0)
    found = straggler(whole)
    if found is None:
        return None
    late = int(np.flatnonzero(whole.rank_numbers == found.rank)[0])
    others = (division.device >= 0) & (division.device != late)
    rows = np.flatnonzero(others & (overview.records["phase"] == PHASES.index("communication")) & (division.exclusive_ns > 0))
    held = division.exclusive_ns[rows]
    waited = np.float64(min(found.waited_ns / max(int(held.sum()), 1), 1.0))
    granted = cut_ns(overview, rows, held.astype(np.float64) * waited)
    saves = mean_ns(overview, granted)
    if not is_worth(overview, saves):
        return None
    do = DO.get(found.cause or "", LISTS)
    known = int(overview.records["rank"][division.first_of(late)]) >= 0
    name = f"rank {found.rank}" if known else f"process {division.pids[late]} on device {division.devices[late]}"
    return Advice(
        "straggler",
        Change(rows=rows, cut_ns=granted),
        mean_ns(overview, held),
        in_words(found, name),
        do,
        places(overview, rows, granted),
    )


def _unit(overview: Overview, device: int) -> Unit:
    """One device's activities in the window as a rank of the job."""
    from pyprof.report.ranks.units import Unit

    rows = np.flatnonzero(overview.division.device == device)
    records = overview.records.select(rows)
    rank = int(records["rank"][0])
    return Unit(rank, "", records, overview.records.utc_ns, overview.division.begin_ns, True)


def in_words(found: Straggler, name: str) -> str:
    """How late a rank is, what the others wait, and what it did meanwhile. name: of the rank."""
    latest = human(found.last_ns, "ns")
    often = f"{name} enters {found.collectives} of {found.met} collectives last, {latest} after the first at most"
    meanwhile = f"; {found.meanwhile}" if found.meanwhile else "; nothing recorded explains it"
    return f"{often}: the others wait {human(found.time_ns, 'ns')} for it{meanwhile}"
