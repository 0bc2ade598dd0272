"""A capture without a GPU -> rows of ops on the CPU: one for each op instance, with the time that is its own.

The instance's time is its range's, less the instances nested in it (copies and casts), so that the rows of a thread add up to
the time its ops took. Views and allocations inside an op belong to it. The name is the part of the op that took most time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.markers import Kind
from pyprof.opcall import OpCall
from pyprof.parse.attribution.ranges import Facts, Nested, top_down
from pyprof.parse.attribution.walk import Walk
from pyprof.parse.sources.trace import ActivityKind, Trace

__all__ = ["cpu_rows"]

Ints = npt.NDArray[np.int64]


def cpu_rows(trace: Trace, walk: Walk, moves: Callable[[OpCall], bool]) -> dict[str, Any]:
    """The rows that `attribute` takes in place of GPU activities, with the position of each in `walk` (`at`); moves: whether a
    call copies or fills and computes nothing."""
    nested, facts, label, start, formula_root = walk.nested, walk.facts, walk.label, walk.start, walk.formula_root
    thread = walk.thread.astype(np.int64)
    duration = np.maximum(trace.ranges["end_ns"][nested.row] - start, 0)
    here = np.arange(len(label))
    roots = formula_root == here
    known = {int(i): trace.markers[i].call for i in np.unique(label[roots]).tolist()}
    idle = np.zeros(len(trace.markers) + 1, np.bool_)
    idle[[i for i, call in known.items() if call is not None and moves(call)]] = True
    roots |= _without_formula(nested, facts, label, formula_root, roots, roots & ~idle[label])
    owner = top_down(nested, np.where(roots, here, -1), lambda own, inherited: np.where(own >= 0, own, inherited))
    above = np.where(nested.parent >= 0, owner[np.maximum(nested.parent, 0)], -1)
    nested_in = above[roots]
    own_time = duration.copy()
    np.subtract.at(own_time, nested_in[nested_in >= 0], duration[roots][nested_in >= 0])
    at = np.flatnonzero(roots)
    busiest = _busiest(nested, owner, duration, facts.inner[label] | facts.is_op[label])[at]
    names = [m.call.name if m.call is not None else m.name for m in trace.markers]
    code = {int(i): trace.strings.code(names[i]) for i in np.unique(label[busiest]).tolist()}
    return {
        "at": busiest,
        "launched": np.ones(len(at), np.bool_),
        "launch_ns": start[at],
        "launch_dur_ns": np.full(len(at), -1, np.int64),
        "launch_thread": thread[at],
        "when": start[at],
        "range_thread": thread[at],
        "in_graph": np.zeros(len(at), np.bool_),
        "replay": np.full(len(at), -1, np.int64),
        "replay_ns": np.full(len(at), -1, np.int64),
        "dur_ns": np.maximum(own_time[at], 0),
        "start_ns": start[at],
        "kind": np.full(len(at), ActivityKind.CPU),
        "name": np.array([code[int(i)] for i in label[busiest].tolist()], np.int64),
    }


def _without_formula(nested: Nested, facts: Facts, label: Ints, formula_root: Ints, roots: Any, working: Any) -> Any:
    """Ops outside every formula, outermost first, in which no instance with a formula lies; of a backward function its ops.

    A dispatcher op in which such instances only copy and fill does the work itself. working: those that do more.
    """
    op = facts.is_op[label]
    own = facts.kind[label] == Kind.DISPATCH
    holds = np.stack([roots, working])
    has_op = np.zeros(len(label), np.bool_)
    for level in reversed(nested.levels):
        above = nested.parent[level]
        has_op[above[(above >= 0) & (op | has_op)[level]]] = True
    holds |= facts.backward[label] & has_op
    for level in reversed(nested.levels):
        above = nested.parent[level]
        for one in holds:
            one[above[(above >= 0) & one[level]]] = True
    leaf = op & ~np.where(own, holds[1], holds[0]) & (formula_root < 0)
    covered = top_down(nested, np.arange(len(label)), lambda own, inherited: np.where((inherited >= 0) | leaf[own], 1, -1))
    above_covered = np.where(nested.parent >= 0, covered[np.maximum(nested.parent, 0)], -1)
    return leaf & (above_covered < 0)


def _busiest(nested: Nested, owner: Ints, duration: Ints, named: Any) -> Ints:
    """For each root the range of its instance with most time outside other ranges; the outermost of equals."""
    alone = duration.copy()
    inner = nested.parent >= 0
    np.subtract.at(alone, nested.parent[inner], duration[inner])
    rows = np.flatnonzero((owner >= 0) & named)
    order = rows[np.lexsort((rows, -alone[rows], owner[rows]))]
    owners, first = np.unique(owner[order], return_index=True)
    result = np.arange(len(owner))
    result[owners] = order[first]
    return result
