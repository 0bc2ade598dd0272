"""Trace -> Records: kernel -> launch -> range stack -> op instance, and backward joined to forward.

The rules are those of the README's "How a kernel finds its op". A capture is attributed slice by slice of its time; what only
the whole tells is joined in `assemble`. Numpy over all rows; Python only over distinct stacks. No file formats, no formulas:
what must be known of ops is asked through `OpRules`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.arrays.distinct import distinct_places
from pyprof.arrays.growing import narrowest
from pyprof.errors import EmptyCapture
from pyprof.markers import Kind
from pyprof.opcall import OpRules
from pyprof.parse.attribution.assemble import Assembly
from pyprof.parse.attribution.capture import Whole
from pyprof.parse.attribution.cpu import cpu_rows
from pyprof.parse.attribution.crossing import NEVER
from pyprof.parse.attribution.launches import launched
from pyprof.parse.attribution.ranges import nest_all
from pyprof.parse.attribution.slice_results import Found
from pyprof.parse.attribution.slices import MOST_KERNELS, Slice, Slices
from pyprof.parse.attribution.stacks import Paths, sequence_numbers
from pyprof.parse.attribution.walk import Walk
from pyprof.parse.records.records import Records
from pyprof.parse.sources.trace import Trace

__all__ = ["attribute", "innermost_ranges", "place", "walk_all"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Rows = dict[str, Any]


def attribute(trace: Trace, rules: OpRules, most: int = MOST_KERNELS) -> Records:
    """Give every activity of a capture its launch, stack, op and phase; without GPU activity, every op its time on the CPU.

    most: how many kernels are attributed at a time, about; the result does not depend on it.
    Raises EmptyCapture where there are neither activities nor op ranges.
    """
    run = _Run(Whole(trace, rules))
    del trace  # columns are given up on the way, where the caller keeps none
    return run.records(most)


def innermost_ranges(trace: Trace, rules: OpRules) -> tuple[Bools, npt.NDArray[Any]]:
    """For each activity whether it has a launch, and the row of the innermost range that it was launched in, -1 none."""
    run = _Run(Whole(trace, rules))
    rows = launched(run.whole.trace)
    found = run.on_gpu(rows, MOST_KERNELS, with_ranges=True)
    assert found.range is not None  # asked for
    return rows["launched"], found.range


def walk_all(whole: Whole) -> Walk:
    """All ranges of a capture at once, for those who ask for more than kernels."""
    nested, crossed = nest_all(whole.trace, whole.facts, np.flatnonzero(whole.kept))
    if len(crossed):
        whole.set_aside(crossed)
    return Walk(whole.trace.ranges, nested, whole.facts, whole.any_numbers)


def place(whole: Whole, walk: Walk, thread: Ints, when: Ints) -> tuple[Ints, Bools, Ints]:
    """The position of the range that each kernel was launched in (-1 none), whether that is by time, and the thread of it.

    Launches on a thread without ranges take those of the user's that are open on the process's main thread.
    """
    at = np.full(len(thread), -1, np.int64)
    known = np.flatnonzero(thread >= 0)
    at[known] = walk.nested.innermost(thread[known], when[known])
    by_time, thread = np.zeros(len(at), np.bool_), thread.copy()
    bare = known[at[known] < 0]
    bare = bare[~whole.loose.open(thread[bare], when[bare])]
    main = whole.main_thread(whole.process(thread[bare]))
    other = (main >= 0) & (main != thread[bare])
    bare, main = bare[other], main[other]
    if not len(bare):
        return at, by_time, thread
    found = walk.nested.innermost(main, when[bare])
    found = np.append(walk.context(), -1)[found]
    taken = (found >= 0) | whole.loose.open(main, when[bare])
    at[bare], by_time[bare] = found, taken
    thread[bare[taken]] = main[taken]
    return at, by_time, thread


class _Run:
    """One run over one capture."""

    def __init__(self, whole: Whole) -> None:
        self.whole, self.trace, self.facts = whole, whole.trace, whole.facts

    def records(self, most: int) -> Records:
        if len(self.trace.activities["kind"]):
            rows = launched(self.trace)
            self.trace.launches.clear()
            del self.trace.activities["end_ns"]  # dur_ns says it
            found = self.on_gpu(rows, most)
        else:
            rows, found = self.on_cpu()
        found.step = self.whole.steps(np.where(rows["launched"], rows["launch_thread"], -1), rows["launch_ns"])
        thread = np.where(found.by_time, -1, rows["range_thread"])
        found.optimizer |= self.whole.aside(Kind.OPTIMIZER, thread, rows["when"], leaks=False) >= 0
        del rows["when"]
        self.trace.ranges.clear()
        return Assembly(self.whole, rows, found, self.paths).records()

    def on_gpu(self, rows: Rows, most: int, *, with_ranges: bool = False) -> Found:
        """What is found of each activity; rows: what `launched` says of them; with_ranges: the row of its range as well."""
        slices = Slices(self.trace.ranges, self.whole.kept, self._engine_labels(), rows["when"], most)
        found = self._start(len(rows["when"]))
        if with_ranges:
            found.range = np.full(len(rows["when"]), -1, np.int32)
        for one in slices:
            nested, crossed = nest_all(self.trace, self.facts, one.ranges)
            if len(crossed) and len(slices) > 1:
                # Which of several that cross goes may depend on others far away: it is found out on all of them at once.
                self.whole.set_aside(nest_all(self.trace, self.facts, np.flatnonzero(self.whole.kept))[1])
                return self.on_gpu(rows, most, with_ranges=with_ranges)
            if len(crossed):
                self.whole.set_aside(crossed)
                self.paths = Paths(self.trace, self.whole.loose)
            walk = Walk(self.trace.ranges, nested, self.facts, self.whole.any_numbers)
            kernels = one.kernels
            placed = place(self.whole, walk, rows["range_thread"][kernels], rows["when"][kernels])
            self._take(found, walk, one, *placed, rows["when"][kernels])
        return found

    def on_cpu(self) -> tuple[Rows, Found]:
        """Ops in place of activities, and what is found of them."""
        walk = walk_all(self.whole)
        if not self.facts.is_op[walk.label].any():
            raise EmptyCapture(
                "the capture holds neither GPU activity nor ranges of ops",
                "call pyprof.nvtx.init() in the program before its model is built, or run it inside "
                "torch.autograd.profiler.emit_nvtx(), and record with `nsys profile -t cuda,nvtx`",
            )
        rows = cpu_rows(self.trace, walk, self.whole.rules.moves)
        at = rows.pop("at")
        found = self._start(len(at))
        whole = Slice(-1 - NEVER, NEVER, walk.nested.row, np.arange(len(at)))
        self._take(found, walk, whole, at, np.zeros(len(at), np.bool_), rows["range_thread"], rows["when"])
        return rows, found

    def _start(self, rows: int) -> Found:
        self.paths = Paths(self.trace, self.whole.loose)
        return Found(rows, len(self.trace.threads["tid"]))

    def _engine_labels(self) -> Bools:
        """What autograd's engine runs, and the engine itself: told by all that lies inside."""
        return np.isin(self.facts.kind, (Kind.BACKWARD, Kind.ENGINE))

    # ------------------------------------------------------------------ one slice

    def _take(self, found: Found, walk: Walk, one: Slice, at: Ints, by_time: Bools, thread: Ints, when: Ints) -> None:
        """Put what is known of the kernels of a slice, and of its forward ranges, to the rest."""
        rows = one.kernels
        found.by_time[rows] = by_time
        if found.range is not None:
            found.range[rows] = np.append(walk.nested.row, -1)[at]
        found.stack[rows] = self.paths.codes(walk.nested, at, by_time, thread, when, walk.seq)
        own = np.where(by_time, -1, at)
        offsets, numbers = sequence_numbers(walk.nested, own, walk.seq)
        found.numbers.append((rows.astype(np.int32), narrowest(offsets), narrowest(numbers)))
        state = np.append(walk.recomputed.state, -1)[own]
        found.state[rows] = state
        function = np.where(state == 1, -1, np.append(walk.function, -1)[own])
        found.function[rows] = self._functions(found, walk, one, function)
        inner = np.append(walk.inner, -1)[own]
        found.inner[rows] = np.where(inner >= 0, np.append(walk.label, -1)[inner], -1)
        found.in_engine[rows] = (np.append(walk.engine, -1)[own] >= 0) & (state != 1)
        found.optimizer[rows] = np.append(walk.optimizer, -1)[own] >= 0
        forward = self._forward(walk, one)
        roots = walk.root(np.concatenate([own, forward]))
        places = self._ops(found, walk, one, roots)
        found.root[rows] = places[: len(own)]
        self._put_forward(found, walk, forward, places[len(own) :])
        self._tell_threads(found, walk, one)

    def _shared(self, one: Slice, row: Ints) -> Bools:
        """Whether these ranges may lie in other slices as well."""
        ranges = self.trace.ranges
        return np.asarray((ranges["start_ns"][row] < one.begin) | (ranges["end_ns"][row] >= one.end))

    def _ops(self, found: Found, walk: Walk, one: Slice, position: Ints) -> Ints:
        """The places of op instances, -1 for none."""
        distinct, inverse = distinct_places(position, len(walk.label))
        row = walk.nested.row[distinct]
        places = found.ops.add(
            self._shared(one, row), row=row, start=walk.start[distinct], thread=walk.thread[distinct],
            label=walk.label[distinct], depth=walk.nested.depth(distinct),
        )  # fmt: skip
        return np.append(places, -1)[inverse]

    def _functions(self, found: Found, walk: Walk, one: Slice, position: Ints) -> Ints:
        """The places of autograd functions, -1 for none."""
        distinct, inverse = distinct_places(position, len(walk.label))
        row, parent = walk.nested.row[distinct], walk.nested.parent[distinct]
        around = np.where(parent >= 0, walk.nested.row[parent], row)  # the engine's range
        places = found.functions.add(
            self._shared(one, row) | self._shared(one, around), row=row, start=walk.start[distinct],
            thread=walk.thread[distinct], label=walk.label[distinct], seq=walk.seq[distinct],
            hint=self.trace.ranges["fwd_thread"][row],
        )  # fmt: skip
        return np.append(places, -1)[inverse]

    def _forward(self, walk: Walk, one: Slice) -> Ints:
        """Positions of the ranges begun in this slice that an autograd function may name by number.

        Of several in a row with one number only the last can be meant, where no function asks before it begins.
        """
        own = (walk.kind == Kind.DISPATCH) & (walk.seq >= 0) & (walk.start >= one.begin) & (walk.start < one.end)
        position = np.flatnonzero(own & ~walk.discarded())
        asked = self.whole.first_asked(walk.seq[position])
        position, asked = position[asked < NEVER], asked[asked < NEVER]
        thread, seq, start = walk.thread[position], walk.seq[position], walk.start[position]
        dominated = np.zeros(len(position), np.bool_)
        dominated[:-1] = (thread[1:] == thread[:-1]) & (seq[1:] == seq[:-1]) & (start[1:] < asked[:-1])
        return position[~dominated]

    def _put_forward(self, found: Found, walk: Walk, position: Ints, root: Ints) -> None:
        own = np.zeros(len(position), np.bool_)
        thread = walk.thread[position].astype(np.int64)
        stack = self.paths.codes_of_ranges(walk.nested, position, thread, walk.start[position], walk.seq)
        found.forward.add(
            own, row=walk.nested.row[position], start=walk.start[position], thread=thread, label=walk.label[position],
            seq=walk.seq[position], root=root, stack=stack,
        )  # fmt: skip

    def _tell_threads(self, found: Found, walk: Walk, one: Slice) -> None:
        """What this slice adds to what is known of threads."""
        threads, kind = found.threads, walk.kind
        backward = self.facts.backward[walk.label]
        outside = (walk.backward < 0) & (walk.engine < 0)
        threads.runs[walk.thread[backward]] = True
        threads.python[walk.thread[outside & np.isin(kind, (Kind.OP, Kind.TRACE, Kind.LAYER))]] = True
        threads.python[walk.thread[(kind == Kind.BACKWARD) & ~backward]] = True
        own = (kind == Kind.DISPATCH) & (walk.seq >= 0) & ~walk.discarded()
        threads.own_numbers(walk.thread[own], walk.seq[own])
        again = walk.recomputed.numbered & (walk.start >= one.begin) & (walk.start < one.end)
        threads.numbers_in_functions(walk.thread[again], walk.seq[again])
