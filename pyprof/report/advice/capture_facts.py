"""Records and trace of a capture -> what it lacks, in shares of the window's kernel time; for the kinds about the capture."""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import among
from pyprof.arrays.joining import rows_where
from pyprof.arrays.spool import computed, pieces
from pyprof.arrays.types import Bools, Ints
from pyprof.parse.sources.trace import ActivityKind
from pyprof.report.time.overview import Overview

_TIMED = (ActivityKind.KERNEL, ActivityKind.GRAPH)


def kernels(overview: Overview) -> Ints:
    """The rows of the window's kernels and whole graphs."""
    inside, kind = overview.inside, overview.records["kind"]
    return rows_where(len(kind), lambda part: inside[part] & among(kind[part], _TIMED))


def share(overview: Overview, rows: Ints, which: Bools) -> float:
    """What share of the time of these kernels those have; 0 without kernels."""
    return time_ns(overview, rows, which) / max(time_ns(overview, rows), 1)


def time_ns(overview: Overview, rows: Ints, which: Bools | None = None) -> int:
    """The time of these kernels, or of some of them."""
    dur_ns, total = overview.records["dur_ns"], 0
    for part in pieces(len(rows)):
        total += int(dur_ns[rows[part] if which is None else rows[part][which[part]]].sum())
    return total


def without_op(overview: Overview, rows: Ints) -> Bools:
    """Which have no op."""
    call = overview.records["call"]
    return computed(len(rows), np.bool_, lambda part: call[rows[part]] < 0)


def replayed(overview: Overview, rows: Ints) -> Bools:
    """Which ran in the replay of a graph."""
    records, host = overview.records, overview.host
    launches = np.array([] if host is None else host.graph_launch_ns, np.int64)

    def of_part(part: slice) -> Bools:
        own = rows[part]
        found = (records["kind"][own] == ActivityKind.GRAPH) | (records["graph_node"][own] >= 0)
        return np.asarray(found | among(records["launch_ns"][own], launches))

    return computed(len(rows), np.bool_, of_part)
