"""Rules 3, 4 and 6: nested ranges -> the op instance and the autograd function of a kernel launched in each range, ops that run
again inside backward, the forward range of each backward one, and the numbers of op instances.

Arrays by position in `Nested` have one more element, for position -1: -1, and no label. Knows no kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.sorting import order_by, rows_of_spans
from pyprof.columns.types import Array, Bools, Integers, Ints, Places, Positions, Rows
from pyprof.model.markers import Kind, Marker, same_function
from pyprof.model.trace import Trace
from pyprof.parse.attribution.launches import Launched, gather, take
from pyprof.parse.attribution.ranges import CaptureFacts, Nested, nest_all, nest_order

UNSETTLED = -2  # a state of recomputation: not 1; 0 or -1 depends on the whole thread


# ---------------------------------------------------------------------------------------------- from a range to those inside it


def with_none(values: Array) -> Array:
    """The values and -1, the value at position -1."""
    return np.append(values, values.dtype.type(-1))


def nearest(nested: Nested, mask: Bools, reset: Bools | None = None) -> Positions:
    """For each range itself or the innermost one around it where the mask holds, -1 none; a `reset` hides everything around
    it."""
    result = np.full(len(mask), -1, np.int32)  # narrow: there are many, and several columns of them
    if not mask.any():
        return Positions(np.broadcast_to(np.int32(-1), len(mask)))
    for level, above in nested.levels:
        inherited = result.take(above)  # parent -1 reads the last element, which stays -1
        if reset is not None:
            inherited[reset.take(level)] = -1
        result[level] = np.where(mask.take(level), level, inherited)
    return Positions(result)


def outermost(nested: Nested, mask: Bools, reset: Bools, apart: Array | None = None) -> Positions:
    """For each range itself or the outermost one around it where the mask holds, -1 none; a `reset` starts anew and has none.

    apart: ranges count by themselves inside one with a smaller number.
    """
    result = np.full(len(mask), -1, np.int32)
    for level, above in nested.levels:
        inherited = result.take(above)
        own = inherited < 0
        if apart is not None:
            own |= apart.take(level) > apart.take(inherited)
        found = np.where(own, np.where(mask.take(level), level, -1), inherited)
        found[reset.take(level)] = -1
        result[level] = found
    return Positions(result)


class OpsAround:
    """The ranges around each position, by their role for a kernel that is launched there.

    label, seq, thread, start, kind: of the range itself; last_op: the innermost op; formula_root: the outermost op with a
    formula, copies and collectives apart; backward, engine, inner, optimizer: the innermost range of that kind; function: the
    autograd function that the kernel serves; beside: the engine runs it around that function, not inside; recomputed, numbered:
    see `_find_recomputed`; discarded: ops that run again only for the tensors that they keep, to which no backward function
    belongs.
    """

    def __init__(self, capture: CaptureFacts, nested: Nested) -> None:
        ranges, labels = capture.ranges, capture.labels
        self.nested, self.labels = nested, labels
        self.label = with_none(ranges["label"][nested.row])
        self.seq = with_none(ranges["seq"][nested.row])
        self.thread = with_none(ranges["thread"][nested.row])
        self.start = with_none(nested.start)
        self.kind = labels.kind[self.label]
        self._find_recomputed(capture.any_numbers)
        copy, backward = labels.copy[self.label], labels.backward[self.label]
        boundary = np.isin(self.kind, (Kind.BACKWARD, Kind.ENGINE))
        self.last_op = nearest(nested, labels.is_op[self.label])
        # Rule 3: copies are instances of their own wherever they are nested. Exceptions: the copy with which an op makes its
        # own result (the clone that `masked_fill` fills), which its formula counts; a copy that a copy calls; a conversion
        # that called nothing, since the tensor had the wanted type already.
        caller, converts = with_none(self.last_op[nested.parent]), labels.converts[self.label]
        collective = labels.collective[self.label]
        works = labels.candidate[self.label] & ~copy & ~collective  # a collective makes no result by copying
        calls = np.zeros(len(copy), np.bool_)
        calls[caller[labels.is_op[self.label]]] = True
        apart = 2 * (copy & ~copy[caller] & np.where(converts, calls, ~works[caller]))
        # A collective too, wherever it is nested; another that it calls belongs to it, a copy beside that one does not.
        passes = np.zeros(len(copy), np.bool_)
        passes[caller[collective]] = True
        around = nearest(nested, collective)
        apart[(around >= 0) & ~passes[around]] //= 2
        apart = np.maximum(apart, collective & ~collective[caller])
        self.formula_root = outermost(nested, labels.candidate[self.label] | copy, boundary, apart)
        self.backward = nearest(nested, backward, boundary & ~backward)
        self.engine = nearest(nested, self.kind == Kind.ENGINE)
        # Rule 4: around a function the engine runs hooks, adds gradients up and sums them to the size of what was broadcast.
        # That is no part of the function, but belongs to its layer.
        edge, ran = nearest(nested, boundary), np.full(len(backward), -1, np.int32)
        functions = np.flatnonzero(backward)[::-1]  # of several within one range of the engine the first
        ran[nested.parent[functions]] = functions
        ran[-1] = -1
        self.beside = (self.backward < 0) & (edge >= 0) & (self.engine == edge)
        self.function = Positions(np.where(self.beside, ran[edge], self.backward))
        self.inner = nearest(nested, labels.inner[self.label])
        self.optimizer = nearest(nested, self.kind == Kind.OPTIMIZER)

    def context(self) -> Positions:
        """The innermost layer, step, optimizer or user range."""
        return nearest(self.nested, self.labels.context[self.label])

    def root(self, position: Positions) -> Positions:
        """Rule 3: the op instance (its outermost range) of kernels launched directly inside these ranges."""
        formula_root = self.formula_root[position]
        return Positions(np.where(formula_root >= 0, formula_root, self.last_op[position]))

    def owner(self, position: Positions) -> Positions:
        """Rule 4: the op instance whose backward has the number of these ranges, -1 if `op_after` must find it. An op without a
        gradient shows the number of the op around it."""
        labels = self.labels
        owning = nearest(self.nested, (labels.is_op & ~labels.constant)[self.label])
        return self.root(Positions(owning[position]))

    def _find_recomputed(self, any_numbers: bool) -> None:
        """Rule 4: which ranges run a forward op again inside backward, as activation checkpointing does.

        There are two kinds, recognised by the autograd sequence numbers, which an op shows only while gradients are recorded.
        Reentrant: a function runs the forward and then the engine inside itself (torch.utils.checkpoint with
        use_reentrant=True, Megatron's, DeepSpeed's). Otherwise the forward runs when a function needs a tensor that was not
        kept: first come numbered ops, then the function's own, without numbers. With create_graph=True both have numbers, and
        the state is unknown.

        recomputed: 1 inside an op that runs forward again, 0 not, -1 unknown or outside of ops, UNSETTLED; numbered: inside a
        function's op and with a number of its own. any_numbers: whether the capture has any.
        """
        nested, labels, label = self.nested, self.labels, self.label
        function, engine = self.kind == Kind.BACKWARD, self.kind == Kind.ENGINE
        boundary, dispatched = function | engine, self.kind == Kind.DISPATCH
        op = dispatched | (self.kind == Kind.OP)
        around = with_none(nearest(nested, function, engine)[nested.parent])
        # Of the ops directly or indirectly inside a function the outermost, whatever layers and ranges of the user's lie
        # between.
        item = outermost(nested, op & (around >= 0), boundary)
        self.recomputed = np.where(nearest(nested, op | boundary) >= 0, np.int8(0), np.int8(-1))
        self.discarded = self.numbered = np.zeros(len(label), np.bool_)
        items = np.flatnonzero(item == np.arange(len(item)))
        if not len(items):
            return
        reentrant = function & ~labels.backward[label]
        reentrant[around[engine & (around >= 0)]] = True
        numbered = dispatched & (self.seq >= 0) & (item >= 0)
        has_number = np.zeros(len(label), np.bool_)
        has_number[item[numbered]] = True
        has_number &= ~dispatched | numbered
        state = _state_of_items(
            items, around[items], has_number[items], ~labels.factory[label[items]], reentrant[around[items]]
        )
        state[labels.compiled[label[around[items]]]] = -1  # fused kernels may make again what was not kept, and do not show it
        by_item = np.zeros(len(label), np.int8)
        by_item[items] = state if any_numbers else -1
        self.recomputed = np.where(item >= 0, by_item[item], self.recomputed)
        # The backward functions inside a reentrant one belong to the ops that it runs again.
        self.discarded = (self.recomputed == 1) & ~((around >= 0) & reentrant[around])
        self.numbered = numbered


def ops_around(capture: CaptureFacts) -> OpsAround:
    """Rules 2 and 3 for all ranges of a capture at once, for callers that need more than kernels."""
    nested, crossed = nest_all(capture.trace, capture.labels, Rows(np.flatnonzero(capture.kept)))
    if len(crossed):
        capture.set_aside(crossed)
    return OpsAround(capture, nested)


def _state_of_items(position: Ints, function: Array, numbered: Bools, telling: Bools, reentrant: Bools) -> Array:
    """State of each outermost op of a function; positions grow with time. An op without a number between two that run again was
    run again too, without gradients."""
    size = int(function.max()) + 1
    first, last = np.full(size, np.iinfo(np.int64).max), np.full(size, -1, np.int64)
    plain = np.full(size, -1, np.int64)  # the last of the function's own ops
    np.minimum.at(first, function[numbered], position[numbered])
    np.maximum.at(last, function[numbered], position[numbered])
    own = ~numbered & telling
    np.maximum.at(plain, function[own], position[own])
    proven = reentrant | (plain[function] > last[function])
    between = (position >= first[function]) & (position <= last[function])
    return np.where(between, np.where(proven, 1, UNSETTLED), 0)


# ----------------------------------------------------------------------------------------- backward ranges and their forward


class NumberedRanges(NamedTuple):
    """Forward or backward ranges. start: ns."""

    process: Ints
    thread: Integers
    seq: Ints
    start: Ints
    label: Integers


def owners(
    forward: NumberedRanges, backward: NumberedRanges, forward_thread: Integers, markers: list[Marker]
) -> tuple[Places, int, int]:
    """Rule 4: for each backward range the last forward range of its process that has its number and began before it.

    Numbers are counted per thread and printed as a peek at the counter: several ranges of a forward op share one number, and
    its owner is the last and deepest of them. forward_thread: the thread that ran forward if the source records it, else -1. If
    several threads have such a range, the owner is the one whose op gave the autograd function its name; if that does not
    settle it, it is unknown.

    Returns the index of the forward range of each (-1 none), the number of ranges with undecided owners on several threads, and
    the number of ranges without any owner.
    """
    owner = np.full(len(backward.seq), -1, np.int64)
    if not len(forward.seq) or not len(backward.seq):
        return Places(owner), 0, len(owner)
    order = np.lexsort((forward.start, forward.thread, forward.seq, forward.process))
    process, seq, thread = forward.process[order], forward.seq[order], forward.thread[order]
    new_group = np.ones(len(order), np.bool_)
    new_group[1:] = (np.diff(process) != 0) | (np.diff(seq) != 0) | (np.diff(thread) != 0)
    group = np.cumsum(new_group) - 1  # one (process, number, thread)
    first = np.flatnonzero(new_group)
    code = distinct_rows(np.concatenate([process[first], backward.process]), np.concatenate([seq[first], backward.seq])).inverse
    groups, wanted = code[: len(first)], code[len(first) :]
    low, high = np.searchsorted(groups, wanted, "left"), np.searchsorted(groups, wanted, "right")
    # One row for each backward range and each thread that could own it.
    of, at_group = rows_of_spans(low, high)
    found = _last_before(group, forward.start[order], at_group, backward.start[of])
    allowed = (forward_thread[of] < 0) | (thread[first][at_group] == forward_thread[of])
    keep = (found >= 0) & allowed
    of, found = of[keep], order[found[keep]]
    candidates = np.bincount(of, minlength=len(owner))
    single = candidates[of] == 1
    owner[of[single]] = found[single]
    ties = _settle_ties(owner, of, found, (forward.label, backward.label), markers)
    return Places(owner), ties, int((candidates == 0).sum())


def op_after(capture: CaptureFacts, rows: Rows) -> Rows:
    """Rule 4: for each range of an op without a gradient and with no op around it the op that its number belongs to, -1
    unknown.

    Ops of libraries may show no number (FBGEMM's look-ups): it is the first op after the range on its thread, in no other, if
    that begins before any op with the next number. An op of a library itself may hold weights that are none of its arguments.
    """
    ranges = capture.ranges
    result = np.full(len(rows), -1, np.int64)
    for thread in distinct_values(ranges["thread"][rows]).tolist():
        mine = np.flatnonzero(ranges["thread"][rows] == thread)
        result[mine] = _op_after_on(capture, thread, ranges["start_ns"][rows[mine]])
    markers = capture.trace.markers
    for at in np.flatnonzero(result < 0).tolist():
        call = markers[int(ranges["label"][rows[at]])].call
        result[at] = -1 if call is None or call.module == "aten" else rows[at]
    return Rows(result)


def _op_after_on(capture: CaptureFacts, thread: int, start_ns: Ints) -> Array:
    """`op_after` for the begins of some ranges of one thread."""
    ranges, labels = capture.ranges, capture.labels
    own = capture.rows_where(labels.kind == Kind.DISPATCH, ranges["thread"] == thread)
    own = Rows(own[nest_order(capture.trace, own)])
    start, end, label, seq = gather(ranges, own, "start_ns", "end_ns", "label", "seq")
    ended = np.maximum.accumulate(np.append(-1, end))[:-1]  # the last end of those before each
    free = (seq < 0) & ~labels.constant[label] & (start >= ended)
    behind = np.searchsorted(start, start_ns, "right")
    first = _first_from(np.flatnonzero(free), behind, len(own))
    numbered = _first_from(np.flatnonzero(seq >= 0), behind, len(own))
    return np.where(first < numbered, take(own, np.where(first < len(own), first, -1)), -1)


def _first_from(places: Array, since: Ints, none: int) -> Ints:
    """For each element of `since` the first of the ascending places that is >= it, else `none`."""
    at = np.searchsorted(places, since)
    found = np.full(len(since), none, np.int64)
    there = at < len(places)
    found[there] = places[at[there]]
    return found


def _last_before(group: Ints, start: Ints, wanted_group: Ints, before: Ints) -> Ints:
    """Index of the last row of a group that began before a time, -1 none; rows are sorted by (group, start)."""
    times = distinct_values(start)
    rank = np.searchsorted(times, start)
    limit = np.searchsorted(times, before, "left")  # how many distinct times lie before
    width = len(times) + 1
    position = np.searchsorted(group * width + rank, wanted_group * width + limit, "left") - 1
    good = (position >= 0) & (group[np.maximum(position, 0)] == wanted_group)
    return np.where(good, position, -1)


def _settle_ties(owner: Ints, of: Ints, found: Ints, label: tuple[Integers, Integers], markers: list[Marker]) -> int:
    """Choose among several candidates the one whose op gave the function its name, and put it into `owner`. Returns how many
    stay undecided. label: of forward and backward ranges."""
    ties = 0
    order = np.argsort(of, kind="stable")
    several, begin, counts = np.unique(of[order], return_index=True, return_counts=True)
    for number in np.flatnonzero(counts > 1).tolist():
        backward = int(several[number])
        rows = found[order[begin[number] : begin[number] + counts[number]]].tolist()
        function = _op_name(markers[label[1][backward]])
        named = [row for row in rows if same_function(_op_name(markers[label[0][row]]), function)]
        if len(named) == 1:
            owner[backward] = named[0]
        ties += len(named) != 1
    return ties


def _op_name(marker: Marker) -> str:
    return marker.name if marker.call is None else marker.call.op


# ---------------------------------------------------------------------------------------------- op instances


class OpTable(NamedTuple):
    """The ranges of op instances in order of begin, the outer first, with one more element for place -1. start: ns."""

    start: Ints
    thread: Array
    label: Array


class KernelOps(NamedTuple):
    """The table of op instances, and the places in it of each kernel's own op and of its forward op, -1 none."""

    table: OpTable
    op: Places
    forward: Places


def op_table(trace: Trace, op: Rows, forward: Rows, retyped: tuple[Rows, Ints]) -> KernelOps:
    """The distinct ranges of kernels' own ops and of their forward ops, and the places of both.

    retyped: ranges that get another label than their own, and that label.
    """
    place_of = np.full(len(trace.ranges["label"]) + 1, -1, np.int32)
    place_of[op] = place_of[forward] = 0
    place_of[-1] = -1
    rows = np.flatnonzero(place_of == 0)
    rows = rows[nest_order(trace, Rows(rows))]
    place_of[rows] = np.arange(len(rows))
    columns = gather(trace.ranges, rows, "start_ns", "thread", "label")
    if len(retyped[0]):
        place, label = place_of[retyped[0]], retyped[1]
        columns[2] = columns[2].astype(np.int64)
        columns[2][place[place >= 0]] = label[place >= 0]
    return KernelOps(OpTable(*map(with_none, columns)), Places(place_of[op]), Places(place_of[forward]))


def instances(capture: CaptureFacts, ops: KernelOps, launches: Launched) -> tuple[Ints, Ints]:
    """Rule 6: the numbers of the op instances of kernels and of their forward ops, in order of begin.

    If two begin together on one thread, the outer comes first. Each replay of a CUDA graph is an instance of its own.
    """
    replay, (table, op, forward) = launches.replay, ops
    inverse: list[Integers] = [op, forward]
    place: Array = np.arange(len(table.start) - 1)
    turn, begin = np.zeros(len(place), np.int8), table.start[:-1]
    if (replay >= 0).any():
        both = np.concatenate([op, forward])
        ran = np.concatenate([replay, _forward_replay(op, forward, launches, capture.trace.activities["start_ns"])])
        (place, turn), _, number = distinct_rows(both, np.where(both >= 0, ran, -1))
        inverse = np.split(number, 2)
        begin_of = np.full(int(replay.max()) + 1, -1, np.int64)
        begin_of[replay[replay >= 0]] = launches.replay_ns[replay >= 0]
        begin = np.where(turn >= 0, begin_of[turn], table.start[place])

    def ties(at: Array) -> list[Array]:
        thread = table.thread[place[at]]
        pid = take(capture.trace.processes["pid"], capture.process[thread])
        return [pid, take(capture.trace.threads["tid"], thread), thread, place[at], turn[at]]

    order = order_by(begin, ties)
    known = place[order] >= 0
    result = np.full(len(place) + 1, -1, np.int64)
    result[order] = np.where(known, np.cumsum(known) - 1, -1)
    return result[inverse[0]], result[inverse[1]]


def _forward_replay(op: Places, forward: Places, launches: Launched, start_ns: Ints) -> Ints:
    """For a forward op that CUDA graphs ran several times, the last replay begun before each backward kernel.

    A forward op without kernels has no replays: the backward kernel's are taken.
    """
    replay, own = launches.replay, op >= 0
    executions = distinct_rows(op[own], launches.replay_ns[own], replay[own]).columns
    times = distinct_values(executions[1])
    known = executions[0] * (len(times) + 1) + np.searchsorted(times, executions[1]) + 1
    wanted = forward.astype(np.int64) * (len(times) + 1) + np.searchsorted(times, start_ns, "right")
    at = np.searchsorted(known, wanted, "right") - 1
    found = (forward >= 0) & (at >= 0) & (take(executions[0], at) == forward)
    return np.where(found, take(executions[2], at), replay)
