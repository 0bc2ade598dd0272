"""Blocks -> what they are for: from the list of the model's tensors where the recording wrote one, else from when they live.

A gradient is made in backward and lives until the optimizer ran, or to the end; an activation is made in forward and freed in
backward; optimizer state is made in the optimizer and there at the end; a temporary is freed in the phase in which it was made.
"""

from __future__ import annotations

import numpy as np

from pyprof.columns.types import Ints
from pyprof.model.allocations import BACKWARD, FORWARD, OPTIMIZER, PHASES, AllocationSite
from pyprof.report.memory.replay import Replay

KINDS = ("parameters", "gradients", "optimizer state", "activations", "temporaries", "inputs", "older", "unknown")
_GRADIENTS, _STATE, _ACTIVATIONS, _TEMPORARIES, _INPUTS, _OLDER, _UNKNOWN = range(1, len(KINDS))


def kinds_of(found: Replay) -> Ints:
    """For each block its index into KINDS."""
    trace, lives, count = found.trace, found.lives, len(found.trace)
    sites = [*trace.places, AllocationSite()]
    phase = np.array([PHASES.index(one.phase) if one.phase in PHASES else -1 for one in sites], np.int64)[trace.place]
    known = np.maximum.accumulate(np.where(phase >= 0, np.arange(count), -1))
    during = np.where(known >= 0, np.append(phase, -1)[known], -1)  # a free outside of all ops happens in the phase before
    run = np.concatenate([[0], np.cumsum(during[1:] != during[:-1]), [-1]])  # which stretch of one phase
    in_optimizer = np.cumsum(phase == OPTIMIZER)
    if len(trace.optimizer_ns) and (trace.time_ns >= 0).all():
        in_optimizer = in_optimizer + np.searchsorted(trace.optimizer_ns, trace.time_ns, "right")
    alloc, free = lives.alloc, np.minimum(lives.free, count)
    there, freed = alloc >= 0, free < count
    ran = np.append(in_optimizer, -1)
    after_optimizer = ~freed | (ran[np.where(freed, free, -1)] > ran[alloc])
    born, died = np.append(phase, -1)[alloc], np.append(during, -1)[np.where(freed, free, -1)]
    from_host = np.array([one.from_host for one in sites], np.bool_)[np.append(trace.place, -1)[alloc]]
    kind = np.full(len(lives), _UNKNOWN)
    rules = (  # the last that holds counts
        (_INPUTS, there & from_host),
        (_TEMPORARIES, freed & (born >= 0) & (run[alloc] == run[np.where(freed, free, -1)])),
        (_STATE, (born == OPTIMIZER) & ~freed),
        (_ACTIVATIONS, (born == FORWARD) & (died == BACKWARD)),
        (_GRADIENTS, (born == BACKWARD) & after_optimizer),
        (_OLDER, ~there),
    )
    for code, holds in rules:
        kind[holds] = code
    if trace.listed:
        last = np.flatnonzero(lives.free >= count)
        at = dict(zip(lives.address[last].tolist(), last.tolist(), strict=True))
        for one in trace.listed:
            if (row := at.get(one.address)) is not None and one.kind in KINDS:
                kind[row] = KINDS.index(one.kind)
    return kind
