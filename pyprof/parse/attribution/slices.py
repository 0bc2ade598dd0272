"""Rules 2 and 3, slice by slice of a capture's time: where each kernel was launched, its stack, its op instance.

A slice has the kernels launched in it and every range that is open in it at any time, so that the ranges around each kernel are
all there. What autograd's engine ran depends on all that lies inside: such a range comes whole into each of the two slices that
it may lie in. So arrays by range take memory by the slice, and stay in the processor's caches. No range may cross another here.
Each slice adds to `KernelRanges` and `SliceResults`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import Growing, distinct_values, extent, narrowest, row_type
from pyprof.columns.nesting import stable_order
from pyprof.columns.types import Array, Bools, Integers, Ints, Positions, Rows
from pyprof.messages import done
from pyprof.model.markers import Kind
from pyprof.model.trace import Table
from pyprof.parse.attribution.derived import retyped, with_inside, with_local_sizes
from pyprof.parse.attribution.launches import Launched
from pyprof.parse.attribution.ops import OpsAround, nearest, with_none
from pyprof.parse.attribution.ranges import NEVER, CaptureFacts, nest_all
from pyprof.parse.attribution.stacks import Placed, Stacks, sequence_numbers

MOST_KERNELS = 1 << 16  # of a slice, about
_MOST_SLICES = 1 << 14
_SAMPLES = 256  # of each slice, to find the cuts
_MOST_OPEN = 4096  # ranges open at the edge of a slice, which both slices have


class Slice(NamedTuple):
    """One slice: time from begin to before end, in ns; rows of ranges, and of activities (without a GPU: of ops)."""

    number: int
    begin: int
    end: int
    ranges: Rows
    kernels: Ints


class Slices:
    """The slices of a capture, in order of time.

    ranges: the table; kept: which of its rows count; whole: for each label whether its ranges must not be cut; when: the time
    at which the ranges of each kernel are looked up, below 0 nowhere; most: kernels of a slice.
    """

    def __init__(self, ranges: Table, kept: Bools, whole: Bools, when: Ints, most: int) -> None:
        self.start, self.end, self.thread, self.kept = ranges["start_ns"], ranges["end_ns"], ranges["thread"], kept
        self.threads = extent(self.thread)[1] + 2  # and one more for what is on no thread, -1
        # Times that divide the kernels into about equal numbers.
        self.cuts, parts = when[:0], min(-(-len(when) // most), _MOST_SLICES)
        if parts > 1:
            sample = np.sort(when[:: max(len(when) // (parts * _SAMPLES), 1)])
            self.cuts = distinct_values(sample[np.arange(1, parts) * len(sample) // parts])
            self.cuts = self.cuts[self.cuts > 0]
        first: Array = np.zeros(len(self.start), np.int16)
        if len(self.cuts):
            first = np.searchsorted(self.cuts, self.start, "right").astype(np.int16)
        # The rows that are open where the slice in which they begin ends.
        self.open = np.flatnonzero(self.kept & (self.end > np.append(self.cuts, NEVER)[first]))
        self.open_first = first[self.open].astype(np.int64)
        self.open_last = np.searchsorted(self.cuts, self.end[self.open], "left")
        self.open_whole = whole[ranges["label"][self.open]]
        # Cuts at which too many ranges are open go, and all but one of those through a range that must not be cut.
        keep = np.ones(len(self.cuts), np.bool_)
        opened = np.bincount(self.open_first, minlength=len(self.cuts) + 1)
        opened -= np.bincount(self.open_last, minlength=len(self.cuts) + 1)
        keep[np.cumsum(opened)[:-1] > max(_MOST_OPEN, len(first) // (4 * len(opened)))] = False
        for row in np.flatnonzero(self.open_whole & (self.open_last - self.open_first > 1)).tolist():
            through = np.flatnonzero(keep[self.open_first[row] : self.open_last[row]]) + self.open_first[row]
            keep[through[1:]] = False
        number = np.concatenate([[0], np.cumsum(keep)]).astype(np.int16)  # of each former slice
        self.cuts = self.cuts[keep]
        self.open_first, self.open_last = number[self.open_first].astype(np.int64), number[self.open_last].astype(np.int64)
        still = self.open_last > self.open_first
        self.open, self.open_whole = self.open[still], self.open_whole[still]
        self.open_first, self.open_last = self.open_first[still], self.open_last[still]
        self.count = len(self.cuts) + 1
        self.rows = _RowsByGroup(number[first], self.count)
        self.kernels = _RowsByGroup(np.searchsorted(self.cuts, when, "right").astype(np.int16), self.count)

    def __iter__(self) -> Iterator[Slice]:
        edges = [-1 - NEVER, *self.cuts.tolist(), NEVER]
        for number in range(self.count):
            begin, end = edges[number], edges[number + 1]
            rows = self.rows[number]  # that begin in it
            if self.count > 1:
                before = self.open[(self.open_first < number) & (self.open_last >= number)]
                earlier, later = self._rest(number - 1, number, begin), self._rest(number + 1, number, end)
                rows = np.concatenate([before, earlier, rows, later])
            kept = self.kept[rows]
            yield Slice(number, begin, end, Rows(rows if kept.all() else rows[kept]), self.kernels[number])

    def _rest(self, neighbour: int, number: int, edge: int) -> Ints:
        """Rows of the slice before or after that lie in an uncut range across the edge, without those across it themselves."""
        first = min(neighbour, number)
        across = self.open[self.open_whole & (self.open_first == first)] if 0 <= neighbour < self.count else self.open[:0]
        if not len(across):
            return across
        rows = self.rows[neighbour]
        if neighbour < number:
            begin = np.full(self.threads, NEVER)
            np.minimum.at(begin, self.thread[across], self.start[across])
            return rows[(self.start[rows] >= begin[self.thread[rows]]) & (self.end[rows] <= edge)]
        until = np.full(self.threads, -1 - NEVER)
        np.maximum.at(until, self.thread[across], self.end[across])
        return rows[self.start[rows] < until[self.thread[rows]]]


class _RowsByGroup:
    """The rows of each group, by a group number from 0 on per row."""

    def __init__(self, number: Integers, count: int) -> None:
        self._bounds = np.append(0, np.cumsum(np.bincount(number, minlength=count))).tolist()
        self._order = None if (number[1:] >= number[:-1]).all() else stable_order(number).astype(row_type(len(number)))

    def __getitem__(self, number: int) -> Ints:
        """The rows of a group, ascending."""
        begin, end = self._bounds[number], self._bounds[number + 1]
        return np.arange(begin, end) if self._order is None else self._order[begin:end].astype(np.int64)


# ---------------------------------------------------------------------------------------------- what is found in slices


class NumberSpans:
    """Lowest, highest and number of some sequence numbers on each thread."""

    def __init__(self, threads: int) -> None:
        self.low, self.high = np.full(threads, np.iinfo(np.int64).max), np.full(threads, -1, np.int64)
        self.count = np.zeros(threads, np.int64)

    def add(self, thread: Array, seq: Ints) -> None:
        if len(thread):  # the ranges of a slice stand thread by thread, so that there are few runs of one
            heads = np.append(0, np.flatnonzero(thread[1:] != thread[:-1]) + 1)
            np.minimum.at(self.low, thread[heads], np.minimum.reduceat(seq, heads))
            np.maximum.at(self.high, thread[heads], np.maximum.reduceat(seq, heads))
        self.count += np.bincount(thread, minlength=len(self.count))


@dataclass(eq=False, repr=False)
class ThreadFacts:
    """Facts that need all ranges of a thread.

    own: the sequence numbers of its ops; again: those inside its functions; runs: it runs backward functions; python: it has
    ranges that only the program itself opens.
    """

    own: NumberSpans
    again: NumberSpans
    runs: Bools
    python: Bools


@dataclass(eq=False, repr=False)
class KernelRanges:
    """Rules 2 and 3: the ranges around each kernel, -1 none.

    stack: code into `SliceResults.stacks`; range_row, op_row, function_row: rows of `ranges`: the innermost range, the
    outermost of the op instance, the autograd function; user, outer_user: of the innermost user range and the one around it, by
    time too; inner: label of the innermost op; state: see `OpsAround`; alone: whether it belongs to its own op although a
    backward function is around it (a collective, or an op beside the function); in_engine, optimizer: inside a range of
    autograd's engine, of an optimizer; by_time: its ranges are those of the main thread at that time.
    """

    stack: Array
    range_row: Array
    op_row: Array
    function_row: Array
    inner: Array
    user: Array
    outer_user: Array
    state: Array
    alone: Bools
    in_engine: Bools
    optimizer: Bools
    by_time: Bools

    @classmethod
    def unknown(cls, count: int) -> KernelRanges:
        """For so many kernels, before anything is found."""
        stack, range_row, op_row, function_row, inner, user, outer = (np.full(count, -1, np.int32) for _ in range(7))
        alone, in_engine, optimizer, by_time = (np.zeros(count, np.bool_) for _ in range(4))
        state = np.full(count, -1, np.int8)
        rows = stack, range_row, op_row, function_row, inner, user, outer
        return cls(*rows, state, alone, in_engine, optimizer, by_time)


class SliceResults:
    """Findings of the slices beside the ranges around each kernel.

    forward: rows of ranges that a backward one may name by number, rows of their ops, and their stacks; retyped: rows of ops
    that ran in other types than they were called with, and the labels of those; numbers: the sequence numbers of each kernel's
    stack, outermost first; counts: kernels and how many numbers each has; threads: see there.
    """

    def __init__(self, capture: CaptureFacts) -> None:
        threads = len(capture.trace.threads["tid"])
        self.stacks = Stacks(capture.trace, capture.aside)
        self.threads = ThreadFacts(NumberSpans(threads), NumberSpans(threads), *np.zeros((2, threads), np.bool_))
        self.forward, self.retyped = _GrowingTable(3), _GrowingTable(2)
        self.counts, self.numbers = _GrowingTable(2), _GrowingTable(1)

    def take_numbers(self, order: Array) -> tuple[Ints, Ints]:
        """All sequence numbers with the kernels in an order, as (offsets, numbers). They are freed here."""
        (kernels, counts), (unordered,) = self.counts.take(), self.numbers.take()
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        place = place[kernels]
        offsets = np.zeros(len(order) + 1, np.int64)
        offsets[place + 1] = counts
        np.cumsum(offsets, out=offsets)
        before = np.cumsum(counts, dtype=np.int64) - counts
        at = np.repeat(offsets[place] - before, counts)
        at += np.arange(len(at))
        numbers = np.empty(len(unordered), np.int64)
        numbers[at] = unordered
        return offsets, numbers


class _GrowingTable:
    """Columns of numbers that grow together, each in 32 bits as long as all fit."""

    def __init__(self, columns: int) -> None:
        self._columns = [Growing(np.int32) for _ in range(columns)]

    def add(self, *values: Array) -> None:
        for column, piece in zip(self._columns, values, strict=True):
            column.append(narrowest(piece))

    def take(self) -> list[Array]:
        """All columns; they are freed here."""
        return [column.whole() for column in self._columns]


# ---------------------------------------------------------------------------------------------- rules 2 and 3, slice by slice


def attribute_slices(capture: CaptureFacts, launches: Launched, most: int) -> tuple[KernelRanges, SliceResults]:
    """Rules 2 and 3 for all kernels; most: kernels at a time, about."""
    whole = np.isin(capture.labels.kind, (Kind.BACKWARD, Kind.ENGINE)) | capture.labels.asks_inside  # depend on all inside
    slices = Slices(capture.ranges, capture.kept, whole, launches.when, most)
    found, results = KernelRanges.unknown(len(launches.dur_ns)), SliceResults(capture)
    for one in slices:
        done(one.number / slices.count)
        nested, crossed = nest_all(capture.trace, capture.labels, one.ranges)
        if len(crossed):
            # Which of several that cross goes may depend on others far away: look at all of them at once, and begin again.
            capture.set_aside(nest_all(capture.trace, capture.labels, Rows(np.flatnonzero(capture.kept)))[1])
            return attribute_slices(capture, launches, most)
        around = OpsAround(capture, nested)
        placed = locate(capture, around, launches.range_thread[one.kernels], launches.when[one.kernels])
        add_slice(capture, found, results, around, one, placed)
    return found, results


def locate(capture: CaptureFacts, around: OpsAround, thread: Array, when: Ints) -> Placed:
    """Rule 2: where each kernel was launched, from thread and time of its launch.

    Launches on a thread without ranges take the user ranges that are open on the process's main thread.
    """
    at = np.full(len(thread), -1, np.int64)
    known = np.flatnonzero(thread >= 0)
    at[known] = around.nested.innermost(thread[known], when[known])
    by_time, thread = np.zeros(len(at), np.bool_), thread.copy()
    bare = known[at[known] < 0]
    bare = bare[~capture.aside.open(thread[bare], when[bare])]
    main = capture.main[capture.process[thread[bare]]]
    other = (main >= 0) & (main != thread[bare])
    bare, main = bare[other], main[other]
    if len(bare):
        at[bare] = around.context()[around.nested.innermost(main, when[bare])]
        by_time[bare] = (at[bare] >= 0) | capture.aside.open(main, when[bare])
        thread[bare] = np.where(by_time[bare], main, thread[bare])
    return Placed(Positions(at), by_time, thread, when)


def add_slice(
    capture: CaptureFacts, found: KernelRanges, results: SliceResults, around: OpsAround, one: Slice, placed: Placed
) -> None:
    """Add the findings on the kernels of a slice to `found`, on forward ranges and threads to the results."""
    kernels, row = one.kernels, with_none(around.nested.row)
    # Rule 2: the stack.
    found.by_time[kernels] = placed.by_time
    found.range_row[kernels] = row[placed.at]
    begun = (around.start >= one.begin) & (around.start < one.end)
    begun[-1] = False
    numbered = (around.kind == Kind.DISPATCH) & (around.seq >= 0) & ~around.discarded
    forward = _forward_ranges(capture, around, numbered & begun)
    chains = results.stacks.chains(around.nested, around.seq, placed.at, forward)
    found.stack[kernels] = results.stacks.codes(placed, chains)
    own = Positions(np.where(placed.by_time, -1, placed.at))
    user = nearest(around.nested, around.kind == Kind.USER)
    found.user[kernels] = row[user[placed.at]]
    found.outer_user[kernels] = row[with_none(user[around.nested.parent])[user[placed.at]]]
    offsets, numbers = sequence_numbers(around.nested, own, around.seq)
    results.counts.add(kernels, np.diff(offsets))
    results.numbers.add(numbers)
    # Rule 3: the op instance.
    root = around.root(own)
    found.op_row[kernels] = row[root]
    found.inner[kernels] = around.label[around.inner[own]]
    collective = around.labels.collective[around.label[root]] & (root >= 0)
    found.alone[kernels] = around.beside[own] | collective  # also rule 4: whatever backward function is around
    found.optimizer[kernels] = around.optimizer[own] >= 0
    for of_ops in (with_inside, retyped, with_local_sizes):
        results.retyped.add(*of_ops(capture.trace, around))
    # Rule 4, what needs the ranges around: the autograd function, what ran again, the forward ranges.
    state = around.recomputed[own]
    found.state[kernels] = state
    found.function_row[kernels] = np.where(state == 1, -1, row[around.function[own]])
    found.in_engine[kernels] = (around.engine[own] >= 0) & (state != 1)
    begins = Placed(forward, np.zeros(len(forward), np.bool_), around.thread[forward], around.start[forward])
    results.forward.add(row[forward], row[around.owner(forward)], results.stacks.codes(begins, chains, count_cut=False))
    # Rule 4, what is seen of threads.
    threads, thread, backward = results.threads, around.thread, capture.labels.backward[around.label]
    outside = (around.backward < 0) & (around.engine < 0)
    threads.runs[thread[backward]] = True
    threads.python[thread[outside & np.isin(around.kind, (Kind.OP, Kind.TRACE, Kind.LAYER))]] = True
    threads.python[thread[(around.kind == Kind.BACKWARD) & ~backward]] = True
    threads.own.add(thread[numbered], around.seq[numbered])
    again = around.numbered & begun  # each once, whatever slices it lies in
    threads.again.add(thread[again], around.seq[again])


def _forward_ranges(capture: CaptureFacts, around: OpsAround, numbered: Bools) -> Positions:
    """Rule 4: of the ops with a number those that an autograd function may name by it.

    Among successive ranges with one number only the last can be meant, if no function names it before that begins.
    """
    position = np.flatnonzero(numbered)
    named = capture.first_backward(around.seq[position])
    position, named = position[named < NEVER], named[named < NEVER]
    thread, seq, start = around.thread[position], around.seq[position], around.start[position]
    dominated = np.zeros(len(position), np.bool_)
    dominated[:-1] = (thread[1:] == thread[:-1]) & (seq[1:] == seq[:-1]) & (start[1:] < named[:-1])
    return Positions(position[~dominated])
