"""Rules 2 and 3 for all kernels, slice by slice: where each was launched, its stack, its op instance.

Each slice adds to `KernelRanges` and `SliceResults`. No file formats, no formulas.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.types import Array, Bools, Ints, Positions, Rows
from pyprof.markers import Kind
from pyprof.messages import done
from pyprof.parse.attribution.derived import with_inside
from pyprof.parse.attribution.launches import Launched
from pyprof.parse.attribution.ops import OpsAround, with_none
from pyprof.parse.attribution.ranges import NEVER, CaptureFacts, nest_all
from pyprof.parse.attribution.run_types import retyped
from pyprof.parse.attribution.slices import KernelRanges, Slice, SliceResults, Slices
from pyprof.parse.attribution.stacks import Placed, Stacks, sequence_numbers


def attribute_slices(capture: CaptureFacts, launches: Launched, most: int) -> tuple[KernelRanges, SliceResults]:
    """Rules 2 and 3 for all kernels; most: how many at a time, about."""
    whole = np.isin(capture.labels.kind, (Kind.BACKWARD, Kind.ENGINE)) | capture.labels.asks_inside  # depend on all inside
    slices = Slices(capture.ranges, capture.kept, whole, launches.when, most)
    found, results = KernelRanges.unknown(len(launches)), no_results(capture)
    for one in slices:
        done(one.number / len(slices))
        nested, crossed = nest_all(capture.trace, capture.labels, one.ranges)
        if len(crossed):
            # Which of several that cross goes may depend on others far away: look at all of them at once, and begin again.
            capture.set_aside(nest_all(capture.trace, capture.labels, Rows(np.flatnonzero(capture.kept)))[1])
            return attribute_slices(capture, launches, most)
        around = OpsAround(capture, nested)
        placed = locate(capture, around, launches.range_thread[one.kernels], launches.when[one.kernels])
        add_slice(capture, found, results, around, one, placed)
    return found, results


def no_results(capture: CaptureFacts) -> SliceResults:
    """Before the first slice."""
    return SliceResults(Stacks(capture.trace, capture.aside), len(capture.trace.threads["tid"]))


def locate(capture: CaptureFacts, around: OpsAround, thread: Array, when: Ints) -> Placed:
    """Rule 2: where each kernel was launched, from thread and time of its launch.

    Launches on a thread without ranges take those of the user's that are open on the process's main thread.
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
    """Put what a slice shows of its kernels to `found`, of forward ranges and of threads to the results."""
    kernels, row = one.kernels, with_none(around.nested.row)
    # Rule 2: the stack.
    found.by_time[kernels] = placed.by_time
    found.range_row[kernels] = row[placed.at]
    begun = (around.start >= one.begin) & (around.start < one.end)
    begun[-1] = False
    forward = _forward_ranges(capture, around, begun)
    chains = results.stacks.chains(around.nested, around.seq, placed.at, forward)
    found.stack[kernels] = results.stacks.codes(placed, chains)
    own = Positions(np.where(placed.by_time, -1, placed.at))
    results.add_numbers(kernels, *sequence_numbers(around.nested, own, around.seq))
    # Rule 3: the op instance.
    found.op_row[kernels] = row[around.root(own)]
    found.inner[kernels] = around.label[around.inner[own]]
    found.optimizer[kernels] = around.optimizer[own] >= 0
    for labels in (with_inside(capture.trace, around), retyped(capture.trace, around)):
        results.retyped.add(*labels)
    # Rule 4, what needs the ranges around: the autograd function, what ran again, the forward ranges.
    state = around.recomputed[own]
    found.state[kernels] = state
    found.function_row[kernels] = np.where(state == 1, -1, row[around.function[own]])
    found.in_engine[kernels] = (around.engine[own] >= 0) & (state != 1)
    stack = results.stacks.codes_of_ranges(forward, around.thread[forward], around.nested, chains)
    results.forward.add(row[forward], row[around.owner(forward)], stack)
    _add_threads(capture, results, around, begun)


def _forward_ranges(capture: CaptureFacts, around: OpsAround, begun: Bools) -> Positions:
    """Rule 4: of the ranges that begin in a slice those that an autograd function may name by number.

    Of several in a row with one number only the last can be meant, where no function names it before that begins.
    """
    own = (around.kind == Kind.DISPATCH) & (around.seq >= 0) & begun
    position = np.flatnonzero(own & ~around.discarded())
    named = capture.first_backward(around.seq[position])
    position, named = position[named < NEVER], named[named < NEVER]
    thread, seq, start = around.thread[position], around.seq[position], around.start[position]
    dominated = np.zeros(len(position), np.bool_)
    dominated[:-1] = (thread[1:] == thread[:-1]) & (seq[1:] == seq[:-1]) & (start[1:] < named[:-1])
    return Positions(position[~dominated])


def _add_threads(capture: CaptureFacts, results: SliceResults, around: OpsAround, begun: Bools) -> None:
    """Rule 4: what a slice adds to what is known of threads."""
    threads, kind, thread = results.threads, around.kind, around.thread
    backward = capture.labels.backward[around.label]
    outside = (around.backward < 0) & (around.engine < 0)
    threads.runs[thread[backward]] = True
    threads.python[thread[outside & np.isin(kind, (Kind.OP, Kind.TRACE, Kind.LAYER))]] = True
    threads.python[thread[(kind == Kind.BACKWARD) & ~backward]] = True
    own = (kind == Kind.DISPATCH) & (around.seq >= 0) & ~around.discarded()
    threads.own.add(thread[own], around.seq[own])
    again = around.numbered & begun  # each once, whatever slices it lies in
    threads.again.add(thread[again], around.seq[again])
