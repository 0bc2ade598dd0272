"""The ranges of a capture -> its steps: the repetitions of the program's main loop.

Steps are of the first kind that is present: those of torch.profiler, of pyprof.step(), annotations of serving engines, the
optimizer (its end ends a step), user ranges that repeat. Repeats inside ranges numbered as layers, or inside one range that
occurs once, are parts of a step and no steps; neither are the ranges of a library around its C++ scopes. Set-up, everything
until the end of a range named warm-up, holds no steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.intervals import latest
from pyprof.columns.types import Bools, Integers, Ints
from pyprof.model.host import MarkedSteps
from pyprof.model.markers import Kind, Marker
from pyprof.model.records import MarkedStep, Records, engine_rows
from pyprof.model.scheduler_steps import EngineStep, form, read
from pyprof.model.trace import ActivityKind, Trace
from pyprof.parse.attribution.ranges import NEVER, CaptureFacts

_WARM_UP = re.compile(r"(?:^|[|/.:])\W*warm[-_ ]?up\b", re.IGNORECASE)  # a name, or one part of it
# A word between blanks, signs or underscores: `train_step 3`, `epoch|2`, but not `stepper`.
_COUNTED = re.compile(r"(?<![^\W_])(?:step|iter|iteration|batch|epoch)(?![^\W_])", re.IGNORECASE)
# Names of a whole pass, and of what holds many: such passes side by side are steps although one range holds them all.
_PASS = re.compile(r"^\W*(?:forward|backward|fwd|bwd|train|inference|infer|predict|generate|iter|step)", re.IGNORECASE)
_LOOP = re.compile(r"bench|loop|\brun|train|main|epoch|profil|measure|steps|iter|timed", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_SCOPE = re.compile(r"\w+::[\w.]+$")
_MOST_PER_STEP = 64  # ranges side by side in one step; more are layers or calls
_LEAST = np.iinfo(np.int64).min
_LEAST_HELD = 0.8  # of the launches between the first range and the last: what repeats and holds less is a part of a step


class HostRanges(NamedTuple):
    """Closed ranges, one row each, in order of begin. thread: row of the trace's threads; label: of its markers."""

    start_ns: Ints
    end_ns: Ints
    thread: Ints
    label: Ints
    markers: list[Marker]

    @classmethod
    def of(cls, trace: Trace, kinds: tuple[Kind, ...], named: Callable[[str], bool] = lambda _: True) -> HostRanges:
        """Closed ranges of these kinds whose name passes."""
        good = np.array([marker.kind in kinds and named(marker.name) for marker in trace.markers], np.bool_)
        ranges = trace.ranges
        rows = np.flatnonzero(good[ranges["label"]] & (ranges["open"] == 0)) if len(good) else np.empty(0, np.int64)
        rows = rows[np.lexsort((-ranges["end_ns"][rows], ranges["start_ns"][rows]))]
        start, end, thread, label = (ranges[name][rows].astype(np.int64) for name in ("start_ns", "end_ns", "thread", "label"))
        return cls(start, end, thread, label, trace.markers)

    def take(self, rows: Ints | Bools) -> HostRanges:
        return HostRanges(self.start_ns[rows], self.end_ns[rows], self.thread[rows], self.label[rows], self.markers)

    def outermost(self) -> Ints:
        """Rows of the ranges that no other of their thread is around."""
        order = np.lexsort((-self.end_ns, self.start_ns, self.thread))
        thread, start, end = self.thread[order], self.start_ns[order], self.end_ns[order]
        top = np.ones(len(order), np.bool_)
        top[1:] = (thread[1:] != thread[:-1]) | (start[1:] >= end[latest(thread, end)[:-1]])
        return np.sort(order[top])

    def __len__(self) -> int:
        return len(self.start_ns)

    def names(self) -> list[str]:
        return [self.markers[label].name for label in self.label.tolist()]


class Marks(NamedTuple):
    """Candidates for steps; scopes: C++ scopes of a program that runs no op of torch."""

    steps: HostRanges
    optimizers: HostRanges
    user: HostRanges
    scopes: HostRanges

    @classmethod
    def of(cls, trace: Trace) -> Marks:
        """All candidates of a trace."""
        torch_seen = any(marker.name.startswith("aten::") for marker in trace.markers)
        scopes = (lambda _: False) if torch_seen else (lambda name: _SCOPE.match(name) is not None)
        steps, optimizers, user = (HostRanges.of(trace, (kind,)) for kind in (Kind.STEP, Kind.OPTIMIZER, Kind.USER))
        return cls(steps, optimizers, user, HostRanges.of(trace, (Kind.USER, Kind.DISPATCH), scopes))


_Found = tuple[str, Ints, Ints, Ints] | None
"""Name of the first step; number, begin and end of each."""


def mark_steps(records: Records, marks: Marks, lost: Ints) -> None:
    """Find the steps of a capture, and number the records of steps that the optimizer or user ranges mark. lost: begins of the
    launches whose kernels were lost, which make a step no less complete."""
    on_cpu = records["kind"] == ActivityKind.CPU
    launched = np.where(on_cpu, records["start_ns"], records["launch_ns"]).astype(np.int64)
    launches = np.sort(launched[launched >= 0])
    # Set-up lasts to the end of the last range named warm-up that launched something, if something was launched after it.
    warm = marks.user.take(np.array([_WARM_UP.search(name) is not None for name in marks.user.names()], np.bool_))
    after = np.searchsorted(launches, warm.end_ns)
    ends = warm.end_ns[(after > np.searchsorted(launches, warm.start_ns)) & (after < len(launches))]
    set_up = int(ends.max(initial=_LEAST))
    marks = Marks(*(ranges.take(ranges.start_ns >= set_up) for ranges in marks))
    found: tuple[tuple[str, Callable[[], _Found]], ...] = (
        ("ProfilerStep", lambda: _marked(marks.steps, own=False)),
        ("pyprof.step", lambda: _marked(marks.steps, own=True)),
        ("engine", lambda: _engine(records.engine_steps, set_up)),
        ("optimizer", lambda: _optimizer(marks.optimizers)),
        ("range", lambda: _repeating(marks, launches)),
    )
    set_up_end_ns = None if set_up == _LEAST else set_up
    records.steps = MarkedSteps(set_up_end_ns=set_up_end_ns)
    for kind, find in found:
        if (steps := find()) is not None:
            name, number, begin, end = steps
            if kind in ("ProfilerStep", "pyprof.step", "optimizer"):  # a range of the user that was closed is complete
                whole = _complete(np.sort(np.concatenate([launches, lost])), begin, end)
                number, begin, end = number[whole], begin[whole], end[whole]
            records.steps = MarkedSteps(kind, name, number.tolist(), begin.tolist(), end.tolist(), set_up_end_ns)
            if kind in ("optimizer", "range"):
                at = np.searchsorted(begin, launched, "right") - 1
                inside = (launched >= 0) & (at >= 0) & (launched < end[at])
                records.columns["step"] = np.where(inside, number[at], -1).astype(np.int32)
            return


def _complete(launches: Ints, begin: Ints, end: Ints) -> slice:
    """The steps without a first or last one that launched less than half as much as the others: recording cut it short."""
    count = np.searchsorted(launches, end) - np.searchsorted(launches, begin)
    if len(count) < 2:
        return slice(None)
    last = len(count) - 1 if count[-1] * 2 < np.median(count[:-1]) else len(count)
    first = 1 if last > 2 and count[0] * 2 < np.median(count[1:last]) else 0
    return slice(first, last)


def _marked(ranges: HostRanges, own: bool) -> _Found:
    """Steps of torch.profiler, or of pyprof.step(), on the thread that marks most of them."""
    ranges = ranges.take(np.array([ranges.markers[label].own == own for label in ranges.label.tolist()], np.bool_))
    if not len(ranges):
        return None
    mine = ranges.take(ranges.thread == np.argmax(np.bincount(ranges.thread)))
    steps = [mine.markers[label].step for label in mine.label.tolist()]
    number = np.array([at if step is None else step for at, step in enumerate(steps)], np.int64)
    # Where numbers do not go on, the profiler's schedule began a new cycle: the pause before it is no step's.
    follows = np.append(np.diff(number) == 1, False)
    end = np.where(follows, np.append(mine.start_ns[1:], 0), mine.end_ns)
    return mine.names()[0], number, mine.start_ns, end


def _engine(steps: list[MarkedStep], after_ns: int) -> _Found:
    """Steps of a serving engine."""
    mine = [steps[at] for at in engine_rows(steps, after_ns)]
    if not mine:
        return None
    begin = np.array([step.begin_ns for step in mine], np.int64)
    return mine[0].texts[0], np.array([step.number for step in mine]), begin, np.append(begin[1:], mine[-1].end_ns)


def _optimizer(ranges: HostRanges) -> _Found:
    """From the end of one step of the optimizer to the end of the next."""
    ranges = ranges.take(ranges.outermost())
    if not len(ranges):
        return None
    # With several optimizers (GANs) the one that steps least often ends a step.
    pair = distinct_rows(ranges.thread, ranges.label).inverse
    counts = np.bincount(pair)
    several = np.flatnonzero(counts > 1)
    if not len(several):
        return None
    chosen = ranges.take(pair == several[np.argmin(counts[several])])
    return chosen.names()[0], np.arange(len(chosen) - 1), chosen.end_ns[:-1], chosen.end_ns[1:]


def _repeating(marks: Marks, launches: Ints) -> _Found:
    """User ranges that repeat and together hold most launches between the first and the last."""
    best: tuple[float, _Found] = (0.0, None)
    for thread in distinct_values(marks.user.thread).tolist():
        mine = marks.user.take(marks.user.thread == thread)
        scopes = marks.scopes.take(marks.scopes.thread == thread)
        for numbered in (False, True):
            held, found = _periodic(mine, scopes, launches, numbered)
            if found is not None and held > best[0]:
                best = held, found
    return best[1]


def _periodic(ranges: HostRanges, scopes: HostRanges, launches: Ints, numbered: bool) -> tuple[float, _Found]:
    """(share of the launches in them, steps) of one thread's outermost ranges with names that repeat. numbered: names that
    differ only in their numbers are one, if they say that they count steps."""
    names = ranges.names()
    if numbered:
        names = [_NUMBER.sub("N", name) if _COUNTED.search(name) else "" for name in names]
    codes: dict[str, int] = {}
    code = np.array([codes.setdefault(name, len(codes)) for name in names], np.int64)
    count = np.bincount(code, minlength=1)
    repeated = (count[code] > 1) & (code != codes.get("", -1))
    chosen, code = ranges.take(repeated), code[repeated]
    top = chosen.outermost()
    chosen, code = chosen.take(top), code[top]
    if len(code) < 2 or _are_parts(ranges, chosen):
        return 0.0, None
    held_scopes = np.searchsorted(scopes.start_ns, chosen.end_ns) - np.searchsorted(scopes.start_ns, chosen.start_ns)
    if len(scopes) and (held_scopes > 0).all():  # each is a range of a library around its C++ scopes
        return 0.0, None
    again = np.flatnonzero(code == code[0])
    period = int(again[1]) if len(again) > 1 else 0
    if not 0 < period <= _MOST_PER_STEP or (code[period:] != code[:-period]).any():
        return 0.0, None
    inside = np.searchsorted(launches, chosen.end_ns) - np.searchsorted(launches, chosen.start_ns)
    first, last = np.searchsorted(launches, [chosen.start_ns[0], chosen.end_ns[-1]])
    held = float(inside.sum() / (last - first)) if last > first else 0.0
    if held < _LEAST_HELD:
        return 0.0, None
    begin = chosen.start_ns[again]
    end = np.append(begin[1:], chosen.end_ns[min(int(again[-1]) + period, len(code)) - 1])
    return held, (chosen.names()[0], np.arange(len(again)), begin, end)


def _are_parts(ranges: HostRanges, chosen: HostRanges) -> bool:
    """Whether repeats of one thread all lie in ranges numbered as layers, or in one range that occurs once, and neither their
    names nor its name say that they are steps."""
    if any(map(_COUNTED.search, set(chosen.names()))):
        return False
    names = np.array(ranges.names(), object)
    around = (ranges.start_ns <= chosen.start_ns[0]) & (ranges.end_ns >= chosen.end_ns[-1])
    once = [name for name in names[around].tolist() if (names == name).sum() == 1 and not _LOOP.search(name)]
    if once and not any(map(_PASS.search, chosen.names()[:_MOST_PER_STEP])):
        return True
    layers = np.array([bool(_NUMBER.search(name)) and not _COUNTED.search(name) for name in names.tolist()], np.bool_)
    outer = ranges.take(layers)
    outer = outer.take(outer.outermost())
    at = np.searchsorted(outer.start_ns, chosen.start_ns, "right") - 1
    return len(outer) > 1 and bool(((at >= 0) & (chosen.end_ns <= outer.end_ns[at])).all())


# ---------------------------------------------------------------------------------------------- scheduler steps of engines

# Several annotations may belong to one step of a serving engine: nested on a thread, or of different forms beside each other
# that do not contradict each other. A launch inside an annotation belongs to its step, however late the device runs it. On a
# thread without annotations a launch belongs to the step that its process makes at that time.


class _Annotation(NamedTuple):
    """A range around a step. process, thread: rows of the trace's tables."""

    process: int
    start_ns: int
    end_ns: int
    thread: int
    text: str


class _OpenStep:
    """A step to which more annotations may be added."""

    def __init__(self, first: _Annotation, says: EngineStep) -> None:
        self.process, self.begin_ns, self.end_ns = first.process, first.start_ns, first.end_ns
        self.says, self.texts, self.forms = says, [first.text], {form(first.text)}
        self.pieces = [first]  # those that lie in no other of their thread

    def holds(self, one: _Annotation) -> bool:
        """Whether an annotation lies in one of this step on its thread."""
        return any(piece.thread == one.thread and one.end_ns <= piece.end_ns for piece in self.pieces)

    def take(self, one: _Annotation, says: EngineStep) -> bool:
        """Add an annotation that begins after those so far, if it belongs to this step."""
        together, inside = self.says.merged(says), self.holds(one)
        if not inside and (form(one.text) in self.forms or together is None):
            return False
        self.says = together or self.says
        self.forms.add(form(one.text))
        if one.text not in self.texts:
            self.texts.append(one.text)
        if not inside:
            self.pieces.append(one)
            self.end_ns = max(self.end_ns, one.end_ns)
        return True


def find_engine_steps(capture: CaptureFacts, thread: Integers, when: Ints) -> tuple[list[MarkedStep], Ints]:
    """The scheduler steps of a capture by process and begin, and the index of each launch's step, -1 none. thread, when: of the
    launches."""
    found = _joined(capture)
    if not found:
        return [], np.broadcast_to(np.int64(-1), len(thread))
    code = np.full(len(thread), -1, np.int64)
    pid, numbers = capture.trace.processes["pid"], dict[int, int]()
    steps = []
    for one in found:
        numbers[one.process] = number = numbers.get(one.process, -1) + 1
        steps.append(MarkedStep(int(pid[one.process]), number, one.begin_ns, one.end_ns, tuple(one.texts)))
    owners, threads, begins, ends = (
        np.array(column, np.int64)
        for column in zip(
            *((at, piece.thread, piece.start_ns, piece.end_ns) for at, one in enumerate(found) for piece in one.pieces),
            strict=True,
        )
    )
    _place(code, owners, (threads, begins, ends), thread, when)
    # On other threads by time, where the process makes one step at a time.
    whole = [np.array([getattr(one, name) for one in found], np.int64) for name in ("process", "begin_ns", "end_ns")]
    alone = _alone(*whole)
    _place(code, np.flatnonzero(alone), tuple(column[alone] for column in whole), capture.process[thread], when)
    return steps, code


def _joined(capture: CaptureFacts) -> list[_OpenStep]:
    """The closed annotations of each process, joined to steps in order of begin."""
    markers = capture.trace.markers
    marked = np.array([*(one.kind == Kind.USER and read(one.name) is not None for one in markers), False], np.bool_)
    if not marked.any():
        return []
    ranges, aside = capture.ranges, capture.aside
    rows = capture.rows_where(marked)
    crossed = np.flatnonzero(marked[aside.label] & (aside.end < NEVER))
    start, end, thread, label = (
        np.concatenate([ranges[name][rows], values[crossed]]).astype(np.int64)
        for name, values in (("start_ns", aside.start), ("end_ns", aside.end), ("thread", aside.thread), ("label", aside.label))
    )
    process = capture.process[thread]
    text = [markers[code].name for code in label.tolist()]
    annotations = sorted(  # the outer before the inner
        map(_Annotation, process.tolist(), start.tolist(), end.tolist(), thread.tolist(), text),
        key=lambda one: (one.process, one.start_ns, -one.end_ns, one.thread, one.text),
    )
    found: list[_OpenStep] = []
    recent: list[_OpenStep] = []  # of the process: those that are not over yet, and the last
    for one in annotations:
        recent = [s for s in recent if s.process == one.process and (s.end_ns > one.start_ns or s is recent[-1])]
        says = read(one.text) or EngineStep()
        nested = [step for step in recent if step.holds(one)]
        if not any(step.take(one, says) for step in (*nested, *reversed(recent))):
            recent.append(_OpenStep(one, says))
            found.append(recent[-1])
    return found


def _alone(process: Ints, begin: Ints, end: Ints) -> Bools:
    """Which steps overlap no other step of their process. Steps are sorted by process and begin."""
    overlaps = np.zeros(len(begin), np.bool_)
    until = np.full(int(process.max(initial=-1)) + 1, np.iinfo(np.int64).min)
    last = np.full(len(until), -1, np.int64)
    for at, (of, start, stop) in enumerate(zip(process.tolist(), begin.tolist(), end.tolist(), strict=True)):
        if start < until[of]:
            overlaps[[at, last[of]]] = True
        if stop > until[of]:
            until[of], last[of] = stop, at
    return ~overlaps


def _place(code: Ints, owners: Ints, pieces: tuple[Ints, ...], who: Integers, when: Ints) -> None:
    """Give each launch without an owner the owner of the piece that is open at that time on its thread (or in its process),
    the last one to begin. pieces: thread (or process), begin and end of each."""
    of, begin, end = pieces
    for one in np.unique(of[of >= 0]).tolist():
        mine = np.flatnonzero(of == one)
        mine = mine[np.argsort(begin[mine], kind="stable")]
        rows = np.flatnonzero((who == one) & (code < 0))
        at = np.searchsorted(begin[mine], when[rows], "right") - 1
        inside = (at >= 0) & (when[rows] < end[mine][at])
        code[rows[inside]] = owners[mine[at[inside]]]
