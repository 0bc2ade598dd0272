"""Backward ranges -> the forward ranges whose sequence numbers they carry.

The numbers are counted per thread and printed as a peek at the counter: several ranges of a forward op share one number, and
its owner is the last and deepest of them. NVTX text does not say which thread ran forward; Kineto does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.arrays.distinct import distinct_rows
from pyprof.markers import same_function

__all__ = ["Pairing", "Side", "pair"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pairing:
    """owner: for each backward range the index of its forward range, -1 none; ties: how many had owners on several threads that
    nothing told apart; missing: how many had none at all."""

    owner: Ints
    ties: int
    missing: int


@dataclass(frozen=True)
class Side:
    """Ranges of one side: process, thread and sequence number of each, when it began, and the name it goes by, as a code into
    `names`."""

    process: Ints
    thread: Ints
    seq: Ints
    start: Ints
    names: list[str]
    name: npt.NDArray[Any]


def pair(forward: Side, backward: Side, forward_thread: Ints) -> Pairing:
    """For each backward range the last forward range of its process with its number begun before it.

    forward_thread: the thread that ran forward where the source says it, else -1. Where several threads have such a range, the
    one whose op the autograd function is named after is it; where that does not settle it the answer is none, counted.
    """
    owner = np.full(len(backward.seq), -1, np.int64)
    if not len(forward.seq) or not len(backward.seq):
        return Pairing(owner, 0, len(owner))
    order = np.lexsort((forward.start, forward.thread, forward.seq, forward.process))
    process, seq, thread = forward.process[order], forward.seq[order], forward.thread[order]
    new_group = np.ones(len(order), np.bool_)
    new_group[1:] = (np.diff(process) != 0) | (np.diff(seq) != 0) | (np.diff(thread) != 0)
    group = np.cumsum(new_group) - 1  # one (process, number, thread)
    first = np.flatnonzero(new_group)
    lo, hi = _groups_of(process[first], seq[first], backward)
    # One row for each backward range and each thread that could own it.
    counts = hi - lo
    of = np.repeat(np.arange(len(counts)), counts)
    at_group = np.repeat(lo - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts) + np.arange(len(of))
    found = _last_before(group, forward.start[order], at_group, backward.start[of])
    allowed = (forward_thread[of] < 0) | (thread[first][at_group] == forward_thread[of])
    keep = (found >= 0) & allowed
    of, found = of[keep], order[found[keep]]
    return _settle(owner, of, found, forward, backward)


def _groups_of(process: Ints, seq: Ints, backward: Side) -> tuple[Ints, Ints]:
    """The span of groups with each backward range's process and number."""
    code = distinct_rows(np.concatenate([process, backward.process]), np.concatenate([seq, backward.seq])).inverse
    groups, wanted = code[: len(process)], code[len(process) :]
    return np.searchsorted(groups, wanted, "left"), np.searchsorted(groups, wanted, "right")


def _last_before(group: Ints, start: Ints, wanted_group: Ints, before: Ints) -> Ints:
    """Index of the last row of a group that began before a time, -1 none; rows are sorted by (group, start)."""
    times = np.unique(start)
    rank = np.searchsorted(times, start)
    limit = np.searchsorted(times, before, "left")  # how many distinct times lie before
    width = len(times) + 1
    position = np.searchsorted(group * width + rank, wanted_group * width + limit, "left") - 1
    good = (position >= 0) & (group[np.maximum(position, 0)] == wanted_group)
    return np.where(good, position, -1)


def _settle(owner: Ints, of: Ints, found: Ints, forward: Side, backward: Side) -> Pairing:
    candidates = np.bincount(of, minlength=len(owner))
    single = candidates[of] == 1
    owner[of[single]] = found[single]
    ties = 0
    several = np.flatnonzero(candidates > 1)
    if len(several):
        order = np.argsort(of, kind="stable")
        bounds = np.searchsorted(of[order], several)
        for asked, at in zip(several.tolist(), bounds.tolist(), strict=True):
            rows = found[order[at : at + candidates[asked]]].tolist()
            function = backward.names[backward.name[asked]]
            named = [row for row in rows if same_function(forward.names[forward.name[row]], function)]
            if len(named) == 1:
                owner[asked] = named[0]
            else:
                ties += 1
    return Pairing(owner, ties, int((candidates == 0).sum()))
