"""Ends of one kind of collective on two ranks, without step numbers -> which of them are the same one.

A rank that began to record later has fewer, and counting from the first would pair each with the wrong one. A collective ends
for all ranks at one time, so the times between ends show by how many a rank is behind; a pair whose ends differ by another time
than those of most pairs is not one. Clocks may differ by any time, and drift a little.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.types import Bools, Ints

FARTHEST = 64  # collectives of one kind that a rank may be behind or ahead
_LEAST = 8  # with fewer, times between them show nothing
_JITTER_NS = 2_000
_ROUNDING_NS = 200
_DRIFT = 50e-6


def pair_up(reference: Ints, ends: Ints) -> tuple[int, Bools]:
    """(shift, whether each pair fits): ends[i] and reference[i + shift] are of one collective; both in ns, ascending.

    With too few, they are counted from the first, and fit only where both have the same number.
    """
    fewer = min(len(reference), len(ends))
    if fewer < _LEAST:
        return 0, np.full(len(ends), len(reference) == len(ends))
    costs = {shift: _cost(reference, ends, shift) for shift in range(-FARTHEST, FARTHEST + 1)}
    best = min(costs, key=lambda shift: (costs[shift], abs(shift)))
    shift = 0 if costs[0] <= 2 * costs[best] + _ROUNDING_NS else best  # steady steps look the same at any shift
    at = np.arange(len(ends)) + shift
    inside = (at >= 0) & (at < len(reference))
    ahead = ends[inside] - reference[at[inside]]
    middle = np.median(ahead)
    far = np.abs(ends - np.median(ends)) * _DRIFT
    gap = float(np.median(np.diff(reference)))
    # What the reference did not record cannot be compared with it, but may be with other ranks.
    fits = np.full(len(ends), costs[shift] < gap / 4)
    fits[inside] &= np.abs(ahead - middle) <= gap / 2 + far[inside] + _JITTER_NS
    return shift, fits


def _cost(reference: Ints, ends: Ints, shift: int) -> float:
    """The median difference of times from one end to the next; infinite where too few are left."""
    own = ends[max(-shift, 0) :]
    other = reference[max(shift, 0) :]
    count = min(len(own), len(other))
    if count < max(_LEAST // 2, min(len(ends), len(reference)) // 2):
        return float("inf")
    return float(np.median(np.abs(np.diff(own[:count]) - np.diff(other[:count]))))
