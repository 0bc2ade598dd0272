"""A change of the recorded timeline: what a piece of advice makes shorter, or does away with. `replay.py` says what that saves.

A kind of advice states its whole change, whatever other kinds say: of several changes of one thing the largest
counts (of a collective their sum: waiting for a late rank and sending are two parts of it).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pyprof.columns.types import Floats, Ints


def _none() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Change:
    """rows, cut_ns: records that get shorter, and by how much (NaN and negative times are 0; at most their whole time goes).
    removed: records that are not launched any more: their time, their launch call and the host's time before it (that of their
    op) go; a launch with several activities goes with all of them. merged: records that run in the launch of one before them,
    as when kernels are fused: launch call and host's time go, and of their own time what cut_ns says. waits: rows of
    `Overview.waits`, calls in which the host no longer waits for the device. gaps, gap_ns: rows of `Division.gaps`, and the
    host's time in each that goes, as loading of data: the launch that ends the gap comes so much earlier (`base.IdleTime` has
    this change). cause: of that time; what several changes say of one gap adds up where their causes differ. graphed: launches
    take the host no time, as those of a CUDA graph, but in these gaps so much, which is no launching (gaps, ns); pauses and
    waits stay.
    """

    rows: Ints = field(default_factory=_none)
    cut_ns: Ints | Floats = field(default_factory=_none)
    removed: Ints = field(default_factory=_none)
    merged: Ints = field(default_factory=_none)
    waits: Ints = field(default_factory=_none)
    gaps: Ints = field(default_factory=_none)
    gap_ns: Ints = field(default_factory=_none)
    cause: str = ""
    graphed: tuple[Ints, Ints] | None = None
