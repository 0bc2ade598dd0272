"""Nested ranges -> which of them run a forward op again inside backward, as activation checkpointing does.

Two kinds, told by the autograd sequence numbers that an op shows only where gradients are recorded. Reentrant: a function runs
the forward and then the engine inside itself (torch.utils.checkpoint with use_reentrant=True, Megatron's, DeepSpeed's).
Otherwise the forward runs when a function asks for a tensor that was not kept, so that numbered ops come first and the
function's own, without numbers, after them; with create_graph=True both have numbers, and what ran is not told apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.markers import Kind
from pyprof.parse.attribution.ranges import Facts, Nested, top_down

__all__ = ["UNSETTLED", "Recomputed", "recomputed", "settled"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

UNSETTLED = -2  # not 1; 0 or -1 depends on the whole thread


@dataclass(frozen=True)
class Recomputed:
    """By position in Nested.

    state: 1 inside an op that runs forward again, 0 not, -1 cannot be told, UNSETTLED what `settled` tells; reentrant: inside a
    function that runs the engine itself, whose backward functions belong to the ops run again; numbered: inside a function's op
    and with a number of its own, which is what `settled` looks at.
    """

    state: npt.NDArray[np.int8]
    reentrant: Bools
    numbered: Bools


def recomputed(nested: Nested, facts: Facts, label: Array, seq: Ints, any_numbers: bool) -> Recomputed:
    """label, seq: of each position; any_numbers: whether the capture has sequence numbers at all, here or elsewhere.

    Ranges outside every op, autograd function and the engine are -1.
    """
    kind = facts.kind[label]
    function, engine = kind == Kind.BACKWARD, kind == Kind.ENGINE
    boundary = function | engine
    here, none = np.arange(len(label), dtype=np.int32), np.int32(-1)
    nearest = top_down(nested, here, lambda own, above: np.where(function[own], own, np.where(engine[own], none, above)))
    around = np.where(nested.parent >= 0, nearest[nested.parent], none) if len(here) else here
    op = np.isin(kind, (Kind.OP, Kind.DISPATCH))
    # Of the ops directly or indirectly inside a function the outermost, whatever layers and ranges of the user's lie between.
    item = top_down(
        nested,
        here,
        lambda own, above: np.where(
            boundary[own], none, np.where(above >= 0, above, np.where(op[own] & (around[own] >= 0), own, none))
        ),
    )
    on_op = top_down(nested, here, lambda own, above: np.where(op[own] | boundary[own], np.int32(1), above)) >= 0
    state = np.where(on_op, np.int8(0), np.int8(-1))
    reentrant = np.zeros(len(label), np.bool_)
    items = np.flatnonzero(item == here)
    if not len(items):
        return Recomputed(state, reentrant, reentrant)
    reentrant |= function & ~facts.backward[label]
    reentrant[around[engine & (around >= 0)]] = True
    numbered = (kind == Kind.DISPATCH) & (seq >= 0)
    of_item = np.zeros(len(label), np.bool_)
    of_item[items] = _has(numbered, item)[items]
    of_item[items] &= (kind[items] != Kind.DISPATCH) | numbered[items]
    found = _items(items, around[items], of_item[items], ~facts.factory[label[items]], reentrant[around[items]])
    found[found < 0] = UNSETTLED
    found[facts.compiled[label[around[items]]]] = -1  # fused kernels may make again what was not kept: they do not say so
    if not any_numbers:
        found[:] = -1
    by_item = np.zeros(len(label), np.int8)
    by_item[items] = found
    state = np.where(item >= 0, by_item[item], state)
    return Recomputed(state, (around >= 0) & reentrant[around], numbered & (item >= 0))


def settled(state: Array, thread: Array, constant: Bools) -> Array:
    """States in which nothing is unsettled.

    thread: of each state, -1 none; constant: for each thread whether the numbers inside its functions stand still: torch before
    1.6 printed them in any mode, and where ops record gradients they grow.
    """
    unsettled = np.flatnonzero(state == UNSETTLED)
    result = state.copy()
    result[unsettled] = np.where(constant[thread[unsettled]], 0, -1)
    return result


def _has(mask: Bools, item: Array) -> Bools:
    """For each item whether anything in it has the property."""
    found = np.zeros(len(item), np.bool_)
    found[item[mask & (item >= 0)]] = True
    return found


def _items(position: Ints, function: Array, numbered: Bools, telling: Bools, reentrant: Bools) -> Ints:
    """State of each outermost op of a function; positions grow with time. What has no number between two that run again was
    run again as well, without gradients."""
    size = int(function.max()) + 1
    first, last = np.full(size, np.iinfo(np.int64).max), np.full(size, -1, np.int64)
    plain = np.full(size, -1, np.int64)  # the last of the function's own ops
    np.minimum.at(first, function[numbered], position[numbered])
    np.maximum.at(last, function[numbered], position[numbered])
    own = ~numbered & telling
    np.maximum.at(plain, function[own], position[own])
    proven = reentrant | (plain[function] > last[function])
    between = (position >= first[function]) & (position <= last[function])
    return np.where(between, np.where(proven, 1, -1), 0)
