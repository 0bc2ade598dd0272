"""Records and trace of a capture -> what it lacks, in shares of the window's kernel time; for the kinds about the capture."""

from __future__ import annotations

import re

import numpy as np

from pyprof.arrays.types import Bools, Ints
from pyprof.parse.sources.trace import ActivityKind
from pyprof.report.overview import Overview

_GRAPH_LAUNCH = re.compile(r"(?:cuda|hip|cu)GraphLaunch")
_TIMED = (ActivityKind.KERNEL, ActivityKind.GRAPH)


def kernels(overview: Overview) -> Ints:
    """The rows of the window's kernels and whole graphs."""
    return np.flatnonzero(overview.inside & np.isin(overview.records["kind"], _TIMED))


def share(overview: Overview, rows: Ints, which: Bools) -> float:
    """What share of the time of these kernels those have; 0 without kernels."""
    time = overview.records["dur_ns"][rows]
    return float(time[which].sum() / max(time.sum(), 1))


def without_op(overview: Overview, rows: Ints) -> Bools:
    """Which have no op."""
    return np.asarray(overview.records["call"][rows] < 0)


def replayed(overview: Overview, rows: Ints) -> Bools:
    """Which ran in the replay of a graph."""
    records, calls = overview.records, overview.calls
    found = (records["kind"][rows] == ActivityKind.GRAPH) | (records["graph_node"][rows] >= 0)
    if calls is not None:
        graph = calls.of_names(_GRAPH_LAUNCH.match)
        if graph.any():
            found |= np.isin(records["launch_ns"][rows], calls.start_ns[graph])
    return np.asarray(found)
