"""Nested ranges -> what the ranges around each make of a kernel launched inside it: its op, autograd function, layer, step.

By position in `Nested`, -1 for none; all of it is told by what is around a range, and by what autograd's engine ran inside. No
kernels here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.markers import Kind
from pyprof.parse.attribution.ranges import Facts, Nested, top_down
from pyprof.parse.attribution.recompute import recomputed
from pyprof.parse.sources.trace import Table

__all__ = ["Walk"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]


class Walk:
    """label, seq, thread, start: of each position; formula_root: the outermost op with a formula, copies apart; last_op: the
    innermost op; backward, engine, inner, optimizer: the innermost range of that kind; function: the autograd function that a
    kernel launched there serves; recomputed: see there."""

    def __init__(self, ranges: Table, nested: Nested, facts: Facts, any_numbers: bool) -> None:
        self.nested, self.facts = nested, facts
        self.label: Array = ranges["label"][nested.row]
        self.seq: Ints = ranges["seq"][nested.row]
        self.thread: Array = ranges["thread"][nested.row]
        self.start = nested.start
        self.kind = facts.kind[self.label]
        self.recomputed = recomputed(nested, facts, self.label, self.seq, any_numbers)
        self._here = np.arange(len(self.label), dtype=np.int32)  # narrow: there are many, and several columns of them
        copy, backward = facts.copy[self.label], facts.backward[self.label]
        boundary = np.isin(self.kind, (Kind.BACKWARD, Kind.ENGINE))
        self.formula_root = top_down(nested, self._here, self._root(copy, boundary))
        self.last_op = self._nearest(facts.is_op[self.label])
        self.backward = self._nearest(backward, boundary & ~backward)
        self.engine = self._nearest(self.kind == Kind.ENGINE)
        self.function = self._functions(self._nearest(boundary), backward)
        self.inner = self._nearest(facts.inner[self.label])
        self.optimizer = self._nearest(self.kind == Kind.OPTIMIZER)

    def _root(self, copy: Bools, boundary: Bools) -> Callable[[Array, Array], Array]:
        candidate, none = self.facts.candidate[self.label] | copy, np.int32(-1)

        def takes(own: Array, inherited: Array) -> Array:
            of_copy = (inherited >= 0) & copy[np.maximum(inherited, 0)]
            keep = (inherited >= 0) & ~(copy[own] & ~of_copy)
            found = np.where(keep, inherited, np.where(candidate[own], own, none))
            return np.where(boundary[own], none, found)

        return takes

    def _nearest(self, mask: Bools, reset: Bools | None = None) -> Array:
        none = np.int32(-1)

        def takes(own: Array, inherited: Array) -> Array:
            kept = inherited if reset is None else np.where(reset[own], none, inherited)
            return np.where(mask[own], own, kept)

        if not mask.any():
            return np.broadcast_to(none, len(mask))
        return top_down(self.nested, self._here, takes)

    def _functions(self, edge: Array, backward: Bools) -> Array:
        """For each range the autograd function that a kernel launched in it serves.

        The engine sums a gradient to the size of what was broadcast (a bias) and adds gradients up after the function has
        returned, still within its own range around it: that is work of the function too. edge: the innermost of both.
        """
        ran = np.full(len(edge) + 1, -1, np.int32)
        functions = np.flatnonzero(backward)[::-1]  # of several within one range of the engine the first
        ran[self.nested.parent[functions]] = functions
        ran[-1] = -1
        outside = (self.backward < 0) & (edge >= 0) & (self.engine == edge)
        return np.where(outside, ran[edge], self.backward)

    def context(self) -> Array:
        """The innermost layer, step or range of the user's."""
        return self._nearest(self.facts.context[self.label])

    def root(self, position: Ints) -> Ints:
        """The op instance (its outermost range) of kernels launched directly inside these ranges."""
        if not len(self.label):
            return np.full(len(position), -1, np.int64)
        inside = np.maximum(position, 0)
        found = np.where(self.formula_root[inside] >= 0, self.formula_root[inside], self.last_op[inside])
        return np.where(position >= 0, found, -1).astype(np.int64)

    def discarded(self) -> Bools:
        """Ops run again only for the tensors that they keep: no backward function is theirs."""
        return np.asarray((self.recomputed.state == 1) & ~self.recomputed.reentrant)
