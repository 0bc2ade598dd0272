"""Ranges of a Trace, nested for every thread at once, and what each range means for the kernels inside it.

Leaked ranges (never closed) are left out before nesting, and those that cross others while nesting: ops among them name
nothing, the user's own stay as context. `Nested` is positions 0..n-1 over the rest; each array below is indexed by position.
No kernels here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.arrays.nesting import Forest, crossing, nest, sort_ranges, stable_order
from pyprof.markers import Kind, Marker
from pyprof.opcall import OpRules
from pyprof.parse.attribution.launches import ranks
from pyprof.parse.sources.trace import Trace

__all__ = ["CONTEXT", "Facts", "Nested", "by_thread", "leaked", "nest_all", "ties", "top_down"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]
Positions = npt.NDArray[np.int32]

CONTEXT = (Kind.USER, Kind.LAYER, Kind.STEP, Kind.OPTIMIZER)
_CHECKPOINT = "CheckpointFunctionBackward"  # runs the forward again inside: a composite, not the backward of one op
_COMPILED = "CompiledFunctionBackward"  # the backward graph of torch.compile
# Ops on no tensor: they show no sequence number even where gradients are recorded, so that they say nothing of it.
_FACTORIES = frozenset(
    "aten::" + name
    for name in (
        "arange", "empty", "empty_strided", "eye", "full", "linspace", "logspace", "ones", "rand", "randint", "randn",
        "randperm", "scalar_tensor", "tril_indices", "triu_indices", "zeros",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """Per distinct label: what kind of range it is and how attribution treats it."""

    kind: npt.NDArray[np.int8]
    is_op: Bools  # may name the op of a kernel
    candidate: Bools  # an op with a formula that does work
    copy: Bools
    backward: Bools  # an autograd function running backward, checkpoints excepted
    inner: Bools  # may be the innermost op: dispatcher ops and autograd functions
    structural: Bools
    context: Bools  # layers, steps and the user's ranges
    factory: Bools  # makes a tensor of none
    compiled: Bools  # the backward graph of torch.compile
    weight: Ints  # which of two that cross is set aside: the lighter; what context is set aside is still told

    @staticmethod
    def of(markers: list[Marker], rules: OpRules) -> Facts:
        """Look at each distinct marker once."""
        names = [m.call.name if m.call is not None else "" for m in markers]
        opaque = np.array([m.call is not None and rules.gives_way(m.call) for m in markers], np.bool_)
        kind = np.array([m.kind for m in markers], np.int8)
        op = np.isin(kind, (Kind.OP, Kind.DISPATCH, Kind.BACKWARD))
        call = np.isin(kind, (Kind.OP, Kind.DISPATCH))
        structural = call & _ask(names, rules.is_structural)
        backward = (kind == Kind.BACKWARD) & ~_ask([m.name for m in markers], lambda name: _CHECKPOINT in name)
        return Facts(
            kind=kind,
            is_op=op & ~((kind == Kind.BACKWARD) & ~backward),
            candidate=call & ~structural & ~opaque & _ask(names, rules.known),
            copy=call & _ask(names, rules.is_copy),
            backward=backward,
            inner=np.isin(kind, (Kind.DISPATCH, Kind.BACKWARD)),
            structural=structural,
            context=np.isin(kind, CONTEXT),
            factory=_ask(names, lambda name: name in _FACTORIES),
            compiled=_ask([m.name for m in markers], lambda name: _COMPILED in name),
            weight=np.select([op | (kind == Kind.ENGINE), ~np.isin(kind, CONTEXT), kind != Kind.USER], [4, 3, 2], 1),
        )


def _ask(names: list[str], question: Callable[[str], bool]) -> Bools:
    return np.array([bool(name) and question(name) for name in names], np.bool_)


@dataclass(frozen=True)
class Nested:
    """Ranges of all threads; position p is row `row[p]` of trace.ranges.

    start: when it began; parent: position of the enclosing range, -1 none; levels: positions at each depth, outermost first;
    forests: per thread, with the position of its first range.
    """

    row: Ints
    start: Ints
    parent: Positions
    levels: list[Ints]
    forests: dict[int, tuple[Forest, int]]

    def depth(self, position: Ints) -> Positions:
        """In how many ranges each of these lies: the same in every slice that a range is nested in."""
        depth = np.empty(len(self.row), np.int32)
        for number, level in enumerate(self.levels):
            depth[level] = number
        return depth[position]

    def innermost(self, thread: Ints, times: Ints) -> Ints:
        """Position of the innermost range open on each thread at each time, -1 none."""
        result = np.full(len(times), -1, np.int64)
        # What is asked for in order is found in the processor's caches.
        asked = np.argsort(times) if (times[1:] < times[:-1]).any() else np.arange(len(times))
        for number, rows in by_thread(thread[asked], asked).items():
            if number in self.forests:
                forest, offset = self.forests[number]
                found = forest.innermost(times[rows])
                result[rows] = np.where(found >= 0, found + offset, -1)
        return result


def leaked(trace: Trace) -> Bools:
    """Which ranges were never closed: no end, or an end that is the session's."""
    ranges = trace.ranges
    end, open_ = ranges["end_ns"], ranges["open"] == 1
    if trace.session_end_ns >= 0:
        return np.asarray(open_ | (end >= trace.session_end_ns))
    if not len(end):
        return np.zeros(0, np.bool_)
    # Not told when the session ended: ranges do not end in the same nanosecond, clipped ones do.
    last = end.max()
    ends_last = end == last
    everything = max((int(t["end_ns"].max()) for t in (trace.activities, trace.launches) if len(t["end_ns"])), default=-1)
    return np.asarray(open_ | (ends_last & (ends_last.sum() > 1) & (last >= everything)))


def nest_all(trace: Trace, facts: Facts, rows: Ints) -> tuple[Nested, Ints]:
    """Nest these rows of a trace's ranges on every thread: what nests, and the rows that were set aside since they cross."""
    forests: dict[int, tuple[Forest, int]] = {}
    rows_parts: list[Ints] = []
    aside: list[Ints] = []
    parents: list[Positions] = []
    offset = 0
    for thread, own in by_thread(trace.ranges["thread"][rows], rows).items():
        nesting, forest, crossed = _nest_thread(trace, facts, own)
        aside.append(crossed)
        parents.append(np.where(forest.parent >= 0, forest.parent + offset, -1).astype(np.int32))
        forests[thread] = forest.to_look_up(), offset
        rows_parts.append(nesting)
        offset += len(nesting)
    start = _joined([forest.start for forest, _ in forests.values()])
    for forest, at in forests.values():
        forest.start = start[at : at + len(forest.start)]
    deepest = max((len(f.by_depth) for f, _ in forests.values()), default=0)
    levels = [
        _joined([f.by_depth[d] + at if at else f.by_depth[d] for f, at in forests.values() if d < len(f.by_depth)])
        for d in range(deepest)
    ]
    none = np.empty(0, np.int32)
    return Nested(_joined(rows_parts), start, np.concatenate([none, *parents]), levels, forests), _joined(aside)


def _nest_thread(trace: Trace, facts: Facts, rows: Ints) -> tuple[Ints, Forest, Ints]:
    """Rows of one thread -> those that nest in order of begin, their forest, and those set aside."""
    ranges = trace.ranges
    start, end = ranges["start_ns"][rows], np.maximum(ranges["end_ns"][rows], ranges["start_ns"][rows])
    order = sort_ranges(start, end, lambda at: ties(trace, rows[at]))
    rows, start, end = rows[order], start[order], end[order]
    del order
    forest = nest(start, end)
    label, free = ranges["label"][rows], ranges["free"][rows]
    # Start/end ranges owe no order to the push/pop stack, nor the ranges of one domain to those of another.
    light = (free == 1) & facts.context[label]
    aside = crossing(start, end, np.where(light, 0, 2 * facts.weight[label] - free), forest)
    if not aside.any():
        return rows, forest, rows[:0]
    return rows[~aside], nest(start[~aside], end[~aside]), rows[aside]


def _joined(parts: list[Ints]) -> Ints:
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])


def ties(trace: Trace, rows: Ints) -> list[Ints]:
    """What orders ranges with one begin and one end, outer first; nothing of it depends on the order of rows in the file."""
    ranges = trace.ranges
    label = ranges["label"][rows]
    distinct, inverse = np.unique(label, return_inverse=True)
    return [
        ranges["op_id"][rows],
        ranks([trace.markers[code].text for code in distinct.tolist()])[inverse.ravel()],
        _code_ranks(trace, ranges["domain"][rows]),
        ranges["free"][rows],
        ranges["seq"][rows],
        _code_ranks(trace, ranges["src"][rows]),
    ]


def _code_ranks(trace: Trace, codes: Ints) -> Ints:
    """For codes into `strings` the rank of each text among those used."""
    distinct, inverse = np.unique(codes, return_inverse=True)
    return ranks([trace.strings[code] for code in distinct.tolist()])[inverse.ravel()]


def by_thread(thread: Array, rows: Ints) -> dict[int, Ints]:
    """Rows by their thread, each in the order given; thread: of each row, below 0 none."""
    order = stable_order(thread)
    threads, first = np.unique(thread[order], return_index=True)
    parts = np.split(rows[order], first[1:]) if len(order) else []
    return {int(t): part for t, part in zip(threads.tolist(), parts, strict=True) if t >= 0}


def top_down(nested: Nested, own: Array, takes: Callable[[Array, Array], Array]) -> Array:
    """Carry a value from each range to those inside it.

    own: the value that each range would give by itself, -1 none; takes(own, inherited) decides, level by level.
    """
    result = np.full(len(nested.row) + 1, -1, own.dtype)
    for level in nested.levels:
        result[level] = takes(own[level], result[nested.parent[level]])  # parent -1 reads the last element, which stays -1
    return result[:-1]
