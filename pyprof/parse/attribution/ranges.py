"""Rule 2, the part without kernels: a Trace's ranges -> which nest, which are set aside, and the meaning of each label.

Ranges that were never closed are set aside before nesting, those that cross others while nesting: ops among them name nothing;
layers, steps, optimizers and user ranges stay as context. Facts that need the whole capture are in `CaptureFacts`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.columns.distinct import distinct_rows, distinct_values, row_type
from pyprof.columns.nesting import Forest, any_order, by_thread, crossing, nest, sort_ranges
from pyprof.columns.types import Array, Bools, Integers, Ints, Positions, Rows
from pyprof.model.dtypes import lookup
from pyprof.model.markers import Kind, Marker, is_wrapper
from pyprof.model.opcall import CONVERSIONS, OpRules
from pyprof.model.trace import Table, Trace
from pyprof.parse.attribution.launches import gather, ranks

NEVER = np.iinfo(np.int64).max  # the end of a range that was never closed
CONTEXT = (Kind.USER, Kind.LAYER, Kind.STEP, Kind.OPTIMIZER)
_CHECKPOINT = "CheckpointFunctionBackward"  # runs the forward again inside: a composite, not the backward of one op
_COMPILED = "CompiledFunctionBackward"  # the backward graph of torch.compile
_CASTS = frozenset({"aten::to", "aten::_to_copy"})
# Namespaces of ops between processes; others of theirs only wait or wrap a result.
COLLECTIVES = frozenset({"c10d", "_c10d_functional", "nccl", "gloo", "mpi", "ucc", "hccl", "xccl", "mccl", "cncl"})
# Ops on no tensor: they show no sequence number even where gradients are recorded, so that the lack of one means nothing.
_FACTORIES = frozenset(
    "aten::" + name
    for name in (
        "arange", "empty", "empty_strided", "eye", "full", "linspace", "logspace", "ones", "rand", "randint", "randn",
        "randperm", "scalar_tensor", "tril_indices", "triu_indices", "zeros",
    )
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- labels


class LabelFacts(NamedTuple):
    """For each label (distinct range text) the kind of its ranges; one more element, for label -1."""

    kind: npt.NDArray[np.int8]
    is_op: Bools  # may name the op of a kernel
    candidate: Bools  # an op with a formula that does work
    collective: Bools  # an op between processes with a formula
    has_formula: Bools  # a call whose op has a formula, be it only that it does no work
    copy: Bools
    converts: Bools  # a copy that is made only where the tensor is not yet as it is wanted
    backward: Bools  # an autograd function running backward, checkpoints excepted
    inner: Bools  # may be the innermost op: dispatcher ops and autograd functions
    context: Bools  # layers, steps, optimizers and the user's ranges
    factory: Bools  # makes a tensor of none
    compiled: Bools  # the backward graph of torch.compile
    name: Ints  # code of a dispatcher op's name, -1 none
    bare_cast: Bools  # a cast recorded with sizes only
    makes_casts: Bools  # a marker that knows what autocast cast for the op
    constant: Bools  # has no gradient: an op that makes a tensor of none, or of integers only
    asks_inside: Bools  # its formula wants to know the ops inside it
    asks_step: Bools  # its formula wants to know the step of the serving engine
    wrapper: Bools  # passes a call on to the ops inside, see `is_wrapper`
    telling: Bools  # says something to the op around it
    weight: Ints  # which of two that cross is set aside: the lighter


def facts_of_labels(markers: list[Marker], rules: OpRules) -> LabelFacts:
    """Look at each distinct marker once."""
    kinds, names, answers = [], [], []
    codes: dict[str, int] = {}
    for marker in markers:
        call, name = marker.call, "" if marker.call is None else marker.call.name
        copy = known = formula = collective = factory = converts = bare_cast = constant = telling = False
        asks: frozenset[str] = frozenset()
        if call is not None and name:
            copy, factory, converts = rules.is_copy(name), name in _FACTORIES, name in CONVERSIONS
            bare_cast = name in _CASTS and any(tensor.dtype is None for tensor in call.tensors)
            dtypes = [lookup(tensor.dtype) for tensor in call.tensors]
            integers = bool(dtypes) and all(one is not None and one.kind not in ("float", "complex") for one in dtypes)
            constant = factory or integers
            structural = rules.is_structural(name)
            formula = rules.known(name) or copy
            known = rules.known(name) and not structural and not rules.gives_way(call)
            collective = known and call.module in COLLECTIVES
            # A view of a tensor of three dimensions may be all that tells the weights of experts.
            is_stack = any(len(tensor.shape) == 3 for tensor in call.tensors[:1])
            asks, telling = rules.asks(name), call.described and (not structural or is_stack)
        kinds.append(int(marker.kind))
        names.append(codes.setdefault(name, len(codes)) if marker.kind == Kind.DISPATCH else -1)
        functions = (_CHECKPOINT in marker.name, _COMPILED in marker.name)
        said = ("inside" in asks, "engine_step" in asks, telling)
        ops = (known, formula, collective, copy, converts, factory)
        answers.append((*ops, *functions, bare_cast, bool(marker.casts), constant, *said))
    kind = np.array([*kinds, -1], np.int8)
    table = np.array([*answers, (False,) * 14], np.bool_)
    known_, formula_, collective_, copy_, converts_, factory_ = table[:, :6].T
    checkpoint, compiled, cast, casts, constant_, inside, step, telling_ = table[:, 6:].T
    function, call_ = kind == Kind.BACKWARD, np.isin(kind, (Kind.OP, Kind.DISPATCH))
    context = np.isin(kind, CONTEXT)
    return LabelFacts(
        kind=kind,
        is_op=call_ | (function & ~checkpoint),
        candidate=call_ & known_,
        collective=call_ & collective_,
        has_formula=call_ & formula_,
        copy=call_ & copy_,
        converts=call_ & converts_,
        backward=function & ~checkpoint,
        inner=np.isin(kind, (Kind.DISPATCH, Kind.BACKWARD)),
        context=context,
        factory=factory_,
        compiled=compiled,
        name=np.array([*names, -1], np.int64),
        bare_cast=cast,
        makes_casts=casts,
        constant=constant_,
        asks_inside=inside,
        asks_step=step,
        wrapper=np.array([*(is_wrapper(marker.name) for marker in markers), False], np.bool_),
        telling=telling_,
        weight=np.select([call_ | function | (kind == Kind.ENGINE), ~context, kind != Kind.USER], [4, 3, 2], 1),
    )


# ---------------------------------------------------------------------------------------------- nesting


class Nested(NamedTuple):
    """Ranges of all threads; position p is row `row[p]` of the trace's ranges.

    start: ns; parent: position of the enclosing range, -1 none; levels: at each depth, outermost first, the positions there and
    their parents (in 64 bits: numpy looks up by narrower ones at a third of the speed); forests: of each thread, with the
    position of its first range.
    """

    row: Rows
    start: Ints
    parent: npt.NDArray[np.int32]
    levels: list[tuple[Ints, Ints]]
    forests: dict[int, tuple[Forest, int]]

    def innermost(self, thread: Integers, times: Ints) -> Positions:
        """The innermost range open on each thread at each time, -1 none."""
        result = np.full(len(times), -1, np.int64)
        # Times in ascending order are found in the processor's caches.
        wanted = any_order(times)
        for number, rows in by_thread(thread[wanted], wanted).items():
            if number in self.forests:
                forest, offset = self.forests[number]
                found = forest.innermost(times[rows])
                result[rows] = np.where(found >= 0, found + offset, -1)
        return Positions(result)


def nest_all(trace: Trace, labels: LabelFacts, rows: Rows) -> tuple[Nested, Rows]:
    """Nest these ranges on every thread. Returns the nesting, and the rows that were set aside since they cross others."""
    none = np.empty(0, np.int64)
    forests: dict[int, tuple[Forest, int]] = {}
    inside, aside, starts = [], [], []
    parents: list[Integers] = [np.empty(0, np.int32)]
    levels: list[list[Ints]] = []
    offset = 0
    for thread, own in by_thread(trace.ranges["thread"][rows], rows).items():
        own = own[nest_order(trace, Rows(own))]
        start, end, label, free = gather(trace.ranges, own, "start_ns", "end_ns", "label", "free")
        end = np.maximum(end, start)
        forest = nest(start, end)
        # Start/end ranges owe no order to the push/pop stack, nor the ranges of one domain to those of another.
        light = (free == 1) & labels.context[label]
        crosses = crossing(start, end, np.where(light, 0, 2 * labels.weight[label] - free), forest)
        if crosses.any():
            aside.append(own[crosses])
            own, forest = own[~crosses], nest(start[~crosses], end[~crosses])
        levels += [[]] * (len(forest.by_depth) - len(levels))
        for depth, indices in enumerate(forest.by_depth):
            levels[depth] = [*levels[depth], indices + offset if offset else indices]
        parents.append(np.where(forest.parent >= 0, forest.parent + offset, -1).astype(np.int32))
        forest.parent = none
        forests[thread] = forest, offset
        inside.append(own)
        starts.append(forest.start)
        offset += len(own)
    start, parent = _joined(starts), np.concatenate(parents)
    for forest, at in forests.values():
        forest.start = start[at : at + len(forest.start)]  # a view, where it was a column of its own
    at_depth = [(level, parent.take(level).astype(np.int64)) for level in map(_joined, levels)]
    nested = Nested(Rows(_joined(inside)), start, parent, at_depth, forests)
    return nested, Rows(_joined(aside))


def nest_order(trace: Trace, rows: Rows) -> Array:
    """An order of ranges in which an outer range of a thread comes before its inner ones, independent of the file's order."""
    start, end = gather(trace.ranges, rows, "start_ns", "end_ns")
    return sort_ranges(start, np.maximum(end, start), lambda at: _ties(trace, rows[at]))


def _ties(trace: Trace, rows: Array) -> list[Array]:
    """Keys that order ranges with equal begin and end, outer first."""
    ranges = trace.ranges
    labels, label = np.unique(ranges["label"][rows], return_inverse=True)
    texts = []
    for name in ("domain", "src"):
        codes, code = np.unique(ranges[name][rows], return_inverse=True)
        texts.append(ranks([trace.strings[code] for code in codes.tolist()])[code.ravel()])
    text = ranks([trace.markers[code].text for code in labels.tolist()])[label.ravel()]
    return [ranges["op_id"][rows], text, texts[0], ranges["free"][rows], ranges["seq"][rows], texts[1]]


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])


# ---------------------------------------------------------------------------------------------- ranges set aside


def leaked(trace: Trace) -> Bools:
    """Mask of ranges that were never closed: without an end, or ending with the session."""
    ranges = trace.ranges
    end, open_ = ranges["end_ns"], ranges["open"]
    if trace.session_end_ns >= 0:
        return np.asarray((open_ == 1) | (end >= trace.session_end_ns))
    if not len(end):
        return np.zeros(0, np.bool_)
    # The session's end is unknown: ranges do not end in the same nanosecond, clipped ones do.
    last = end.max()
    ends_last = end == last
    everything = max(trace.activities["end_ns"].max(initial=-1), trace.launches["end_ns"].max(initial=-1))
    return np.asarray((open_ == 1) | (ends_last & (ends_last.sum() > 1) & (last >= everything)))


def _mark_scopes(trace: Trace, rules: OpRules) -> None:
    """Make ranges of NVTX that look like ops of the dispatcher (`FusionExecutor::runFusion`) ranges of the user, unless
    something says that they are ops: numbers or sizes in their text, a namespace that torch or a formula has, or, where torch
    recorded no op ids (old releases), other ops on their threads."""
    if trace.source == "kineto":  # which says itself what is an op
        return
    markers, ranges = trace.markers, trace.ranges
    unsure = np.array(
        [
            one.kind == Kind.DISPATCH
            and one.call is not None
            and not one.call.described
            and "::" in one.text
            and one.call.module not in rules.namespaces
            for one in markers
        ]
        + [False],
        np.bool_,
    )
    rows = np.flatnonzero(unsure[ranges["label"]])
    if not len(rows):
        return
    label, seq, op_id, thread = gather(ranges, rows, "label", "seq", "op_id", "thread")
    unsure[label[(seq >= 0) | (op_id >= 0)]] = False
    dispatched = np.array([*(one.kind == Kind.DISPATCH for one in markers), False], np.bool_) & ~unsure
    ops = np.flatnonzero(dispatched[ranges["label"]])
    if not (ranges["op_id"][ops] >= 0).any():
        with_ops = distinct_values(ranges["thread"][ops])
        unsure[label[np.isin(thread, with_ops)]] = False
    for code in np.flatnonzero(unsure).tolist():
        markers[code] = Marker(Kind.USER, markers[code].text, markers[code].text)


class SetAside(NamedTuple):
    """Context ranges that do not nest, in order of begin. start, end: ns, NEVER if never closed; the rest as in `ranges`."""

    start: Ints
    end: Ints
    thread: Array
    label: Array
    domain: Array
    src: Array

    def open(self, thread: Integers, times: Ints) -> Bools:
        """Whether any is open on each thread at each time."""
        result = np.zeros(len(times), np.bool_)
        if not len(self.start):
            return result
        for number, rows in by_thread(thread, np.arange(len(thread))).items():
            mine = self.thread == number
            begun = np.searchsorted(self.start[mine], times[rows], "right")
            result[rows] = begun > np.searchsorted(np.sort(self.end[mine]), times[rows], "right")
        return result


# ---------------------------------------------------------------------------------------------- the whole capture


class CaptureFacts:
    """Facts that need the whole capture.

    trace: a copy whose tables `attribute` empties when no later rule reads them; labels: the meaning of each label; kept: which
    rows of ranges nest, as far as is known; aside: the context ranges that do not; any_numbers: whether any op shows a sequence
    number; notes: what to tell of ranges, one line each; process: of each thread; main: main thread of each process. The last
    two are -1 if unknown, and end with an element for -1.
    """

    def __init__(self, trace: Trace, rules: OpRules) -> None:
        _mark_scopes(trace, rules)
        self.trace, self.rules, self.labels = replace(trace), rules, facts_of_labels(trace.markers, rules)
        never = leaked(trace)
        rows = np.flatnonzero(never)
        self._leaked = rows[self.labels.context[self.ranges["label"][rows]]]
        # A program that opens a range again and again and forgets to close it: others of its text on its thread are left too.
        _, _, alike = distinct_rows(self.ranges["thread"][self._leaked], self.ranges["label"][self._leaked])
        again = np.bincount(alike, minlength=1)[alike] > 1
        labels, counts = np.unique(self.ranges["label"][self._leaked[again]], return_counts=True)
        most = np.argsort(-counts, kind="stable")[:3].tolist()
        named = ", ".join(f"{counts[at]} x `{trace.markers[labels[at]].name}`" for at in most)
        named += f" and {len(labels) - 3} more names" if len(labels) > 3 else ""
        self.notes = [f"ranges that were opened and never closed are in no layer: {named}"] if named else []
        self._leaked = self._leaked[~again]
        self.kept: Bools = np.logical_not(never, out=never)
        threads = trace.threads
        self.process = np.append(threads["process"].astype(np.int64), -1)
        mains = np.flatnonzero(threads["main"] == 1)
        mains = mains[np.argsort(-threads["tid"][mains], kind="stable")]  # of several the one with the lowest id
        self.main = np.full(max(len(trace.processes["pid"]), int(self.process.max()) + 1) + 1, -1, np.int64)
        self.main[self.process[mains]] = mains
        self.main[-1] = -1
        self.set_aside(Rows(self._leaked[:0]))

    @property
    def ranges(self) -> Table:
        return self.trace.ranges

    def cut_off(self) -> dict[str, int]:
        """Number of the context ranges that the end of the recording cut off, by a text with the names of some."""
        labels = distinct_values(self.ranges["label"][self._leaked]).tolist()
        names = sorted({self.trace.markers[label].name for label in labels})
        shown = ", ".join(name[:60] for name in names[:3]) + (" ..." if len(names) > 3 else "")
        return {f"of the user's ranges were still open when the recording ended: {shown}": len(self._leaked)} if names else {}

    def only(self, mask: Bools) -> CaptureFacts:
        """A copy of the capture in which only ranges in the mask nest."""
        found = copy(self)
        found.kept = self.kept & mask
        return found

    def set_aside(self, crossed: Rows) -> None:
        """Take out ranges that cross others. Finds out, without them, whether ops show sequence numbers, and when the first
        autograd function with each number began."""
        self.kept[crossed] = False
        ranges = self.ranges
        rows = np.concatenate([self._leaked, crossed[self.labels.context[ranges["label"][crossed]]]])
        never = np.arange(len(rows)) < len(self._leaked)
        start, end = ranges["start_ns"][rows], np.where(never, NEVER, ranges["end_ns"][rows])
        order = sort_ranges(start, end, lambda at: _ties(self.trace, rows[at]))
        self.aside = SetAside(start[order], end[order], *gather(ranges, rows[order], "thread", "label", "domain", "src"))
        backward = self.labels.backward
        numbered = self.rows_where((self.labels.kind == Kind.DISPATCH) | backward, ranges["seq"] >= 0)
        is_backward = backward[ranges["label"][numbered]]
        self.any_numbers = not is_backward.all()
        functions = numbered[is_backward]
        self._numbers, place = np.unique(ranges["seq"][functions].astype(np.int64), return_inverse=True)
        self._first = np.full(len(self._numbers) + 1, NEVER, np.int64)
        np.minimum.at(self._first, place, ranges["start_ns"][functions])

    def rows_where(self, of_label: Bools, also: Bools | None = None) -> Rows:
        """Rows of ranges that nest and whose label has a property, ascending; also: another mask of rows."""
        mask = of_label[self.ranges["label"]] & self.kept
        if also is not None:
            mask &= also
        return Rows(np.flatnonzero(mask).astype(row_type(len(mask))))

    def first_backward(self, seq: Ints) -> Ints:
        """When the first autograd function with each number began, NEVER if there is none."""
        if not len(self._numbers):
            return np.full(len(seq), NEVER)
        at = np.searchsorted(self._numbers, seq)
        return np.where(self._numbers[np.minimum(at, len(self._numbers) - 1)] == seq, self._first[at], NEVER)

    def aside_at(self, kind: Kind, thread: Integers, when: Ints, *, leaks: bool = True) -> Ints:
        """Label of the range of a kind that is set aside and open on the thread at that time, -1 none. leaks: whether ranges
        that were never closed count.

        The next range of the kind ends one that was never closed: the last step of a capture lasts to the end, but not a step
        that an exception left.
        """
        aside, ranges = self.aside, self.ranges
        result = np.full(len(thread), -1, np.int64)
        of_kind = (self.labels.kind[aside.label] == kind) & (leaks | (aside.end < NEVER))
        if not of_kind.any():
            return result
        inside = self.rows_where(self.labels.kind == kind)
        for number in distinct_values(aside.thread[of_kind]).tolist():
            own, mine = np.flatnonzero(of_kind & (aside.thread == number)), np.flatnonzero(thread == number)
            begun = np.append(aside.start[own], np.iinfo(np.int64).min)
            last = np.searchsorted(begun[:-1], when[mine], "right") - 1  # -1 reads the element appended
            starts = ranges["start_ns"][inside[ranges["thread"][inside] == number]]
            nests = np.append(np.sort(starts), np.iinfo(np.int64).min)
            later = nests[np.searchsorted(nests[:-1], when[mine], "right") - 1] > begun[last]
            still = (last >= 0) & ~later & (np.append(aside.end[own], 0)[last] > when[mine])
            result[mine[still]] = aside.label[own[last[still]]]
        return result

    def steps(self, thread: Integers, when: Ints) -> Array:
        """Number of the training step of each launch, -1 none: of the step range around it, else of the one open at that time
        on the thread that marks the steps."""
        if not (self.labels.kind == Kind.STEP).any():
            return np.broadcast_to(np.int32(-1), len(thread))
        step_of_label = np.array([-1 if m.step is None else m.step for m in self.trace.markers] + [-1], np.int64)
        rows = self.rows_where(self.labels.kind == Kind.STEP)
        nested, _ = nest_all(self.trace, self.labels, rows)
        around = np.append(self.ranges["label"][nested.row], -1)
        marks = self._step_threads(rows)

        label = np.full(len(thread), -1, np.int64)
        for who in (thread, marks[self.process[thread]]):
            unknown = np.flatnonzero((label < 0) & (thread >= 0) & (who >= 0))
            within = around[nested.innermost(who[unknown], when[unknown])]
            label[unknown] = np.where(within >= 0, within, self.aside_at(Kind.STEP, who[unknown], when[unknown]))
        return step_of_label[label].astype(np.int32)

    def _step_threads(self, steps: Rows) -> Ints:
        """For each process the thread that marks its steps: the main one, or the only one that marks any; -1 none. One more
        element, for process -1."""
        aside = self.aside.thread[self.labels.kind[self.aside.label] == Kind.STEP]
        marking = distinct_values(np.concatenate([self.ranges["thread"][steps], aside])).astype(np.int64)
        result = np.where(np.isin(self.main, marking), self.main, -1)
        for one in np.flatnonzero(result[:-1] < 0).tolist():
            mine = marking[self.process[marking] == one]
            if len(mine) == 1:
                result[one] = mine[0]
        return result
