"""The ranges of a capture -> its steps: one repetition after another of what the program does all the time.

Steps are of the first kind that is present: those of torch.profiler, of pyprof.step(), annotations of serving engines, the
optimizer (its end ends a step), the user's ranges that repeat. Records without a capture have the numbers of their steps only.
Set-up, whatever comes until a range named warm-up ends, holds no steps. Costs and devices are not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pyprof.arrays.columns import distinct_rows, distinct_values
from pyprof.arrays.intervals import latest, spans
from pyprof.arrays.types import Bools, Ints
from pyprof.markers import Kind, Marker
from pyprof.parse.records.records import Records
from pyprof.parse.sources.trace import Trace

_WARM_UP = re.compile(r"(?:^|[|/.:])\W*warm[-_ ]?up\b", re.IGNORECASE)  # a name, or one part of it
ENDING = ("ProfilerStep", "pyprof.step", "optimizer")  # kinds whose last step has an end of its own
_COUNTED = re.compile(r"\b(?:step|iter|iteration|batch|epoch)\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_MOST_PER_STEP = 64  # ranges side by side in one step; more are layers or calls
_LEAST = np.iinfo(np.int64).min
_LEAST_HELD = 0.8  # of the launches between the first range and the last: what repeats and holds less is a part of a step


@dataclass(frozen=True, eq=False, repr=False)
class Steps:
    """Steps in order, in ns on the host. kind: what marks them; name: of the first; begin_ns, end_ns: of each.

    A step ends where the next one begins. The last of several that are marked as steps ends with its own range; that of other
    ranges, which end when all is launched, and a single one end with the window.
    """

    kind: str
    name: str
    begin_ns: Ints
    end_ns: Ints

    def __len__(self) -> int:
        return len(self.begin_ns)

    @property
    def time_ns(self) -> Ints:
        """The time of each."""
        return self.end_ns - self.begin_ns


class HostRanges(NamedTuple):
    """Ranges that were closed, one row each. thread: row of the trace's threads; label: of its markers."""

    start_ns: Ints
    end_ns: Ints
    thread: Ints
    label: Ints
    markers: list[Marker]

    @classmethod
    def of(cls, trace: Trace, kinds: tuple[Kind, ...], named: Callable[[str], bool] = lambda _: True) -> HostRanges:
        """Those of these kinds whose name passes, in order of begin."""
        good = np.array([marker.kind in kinds and named(marker.name) for marker in trace.markers], np.bool_)
        ranges = trace.ranges
        rows = np.flatnonzero(good[ranges["label"]] & (ranges["open"] == 0)) if len(good) else np.empty(0, np.int64)
        rows = rows[np.lexsort((-ranges["end_ns"][rows], ranges["start_ns"][rows]))]
        start, end, thread, label = (ranges[name][rows].astype(np.int64) for name in ("start_ns", "end_ns", "thread", "label"))
        return cls(start, end, thread, label, trace.markers)

    def take(self, rows: Ints | Bools) -> HostRanges:
        """These rows only."""
        return HostRanges(self.start_ns[rows], self.end_ns[rows], self.thread[rows], self.label[rows], self.markers)

    def outermost(self) -> HostRanges:
        """Those that lie in no other of the same thread."""
        return self.take(self.lie_in_none())

    def lie_in_none(self) -> Ints:
        """The rows of those that lie in no other of the same thread."""
        order = np.lexsort((-self.end_ns, self.start_ns, self.thread))
        thread, start, end = self.thread[order], self.start_ns[order], self.end_ns[order]
        top = np.ones(len(order), np.bool_)
        top[1:] = (thread[1:] != thread[:-1]) | (start[1:] >= end[latest(thread, end)[:-1]])
        return np.sort(order[top])

    def __len__(self) -> int:
        return len(self.start_ns)

    def names(self) -> list[str]:
        """The name of each."""
        return [self.markers[label].name for label in self.label.tolist()]


def set_up_end(trace: Trace, launch_ns: Ints) -> int:
    """When the last range named warm-up ended in which something was launched; the least time where there is none, or where
    nothing was launched after it. launch_ns: of all launches."""
    warm = HostRanges.of(trace, (Kind.USER,), lambda name: _WARM_UP.search(name) is not None)
    ordered = np.sort(launch_ns)
    held = np.searchsorted(ordered, warm.end_ns) - np.searchsorted(ordered, warm.start_ns)
    ends = warm.end_ns[(held > 0) & (np.searchsorted(ordered, warm.end_ns) < len(ordered))]
    return int(ends.max(initial=np.iinfo(np.int64).min))


def find_steps(trace: Trace, records: Records, launch_ns: Ints, after_ns: int) -> Steps | None:
    """The steps of a capture that begin at `after_ns` or later, None where nothing marks any. launch_ns: of the records, or
    when ops on a CPU began."""
    ordered = np.sort(launch_ns)
    sought = _Sought(trace, records, ordered, after_ns)
    for kind, find in _KINDS:
        found = find(sought)
        if found is not None:
            name, begin, end = found
            end = np.append(begin[1:], end[-1:])
            whole = slice(None) if kind == "engine" else _complete(ordered, begin, end)
            return Steps(kind, name, begin[whole], end[whole])
    return None


def _complete(launches: Ints, begin: Ints, end: Ints) -> slice:
    """The steps without a first or last one that launched less than half of what the others did: recording cut it short.

    Steps of engines are left as they are: what one launches depends on the requests.
    """
    count = np.searchsorted(launches, end) - np.searchsorted(launches, begin)
    if len(count) < 2:
        return slice(None)
    last = len(count) - 1 if count[-1] * 2 < np.median(count[:-1]) else len(count)
    first = 1 if last > 2 and count[0] * 2 < np.median(count[1:last]) else 0
    return slice(first, last)


class _Sought(NamedTuple):
    """Where steps are looked for: launches in ascending order; nothing that begins before after_ns counts."""

    trace: Trace
    records: Records
    launches: Ints
    after_ns: int


_Found = tuple[str, Ints, Ints] | None


def _profiler(sought: _Sought) -> _Found:
    return _marked(sought.trace, sought.after_ns, own=False)


def _own(sought: _Sought) -> _Found:
    return _marked(sought.trace, sought.after_ns, own=True)


def _marked(trace: Trace, after_ns: int, own: bool) -> _Found:
    ranges = HostRanges.of(trace, (Kind.STEP,))
    ranges = ranges.take(np.array([trace.markers[label].own == own for label in ranges.label.tolist()], np.bool_))
    return _of_one_thread(ranges, after_ns)


def _engine(sought: _Sought) -> _Found:
    found = engine_steps(sought.records, sought.after_ns)
    return None if found is None else (found.name, found.begin_ns, found.end_ns)


def _optimizer(sought: _Sought) -> _Found:
    ranges = HostRanges.of(sought.trace, (Kind.OPTIMIZER,)).outermost()
    ranges = ranges.take(ranges.start_ns >= sought.after_ns)
    if not len(ranges):
        return None
    # With several optimizers (GANs) the one that steps least often ends a step.
    pair = distinct_rows(ranges.thread, ranges.label).inverse
    counts = np.bincount(pair)
    several = np.flatnonzero(counts > 1)
    if not len(several):
        return None
    chosen = ranges.take(pair == several[np.argmin(counts[several])])
    return chosen.names()[0], chosen.end_ns[:-1], chosen.end_ns[1:]


def _repeating(sought: _Sought) -> _Found:
    """The user's ranges that repeat and together hold most of what is launched between the first and the last."""
    ranges = HostRanges.of(sought.trace, (Kind.USER,))
    ranges = ranges.take(ranges.start_ns >= sought.after_ns)
    best: tuple[float, _Found] = (0.0, None)
    for thread in distinct_values(ranges.thread).tolist():
        mine = ranges.take(ranges.thread == thread)
        for numbered in (False, True):
            held, found = _periodic(mine, sought.launches, numbered)
            if found is not None and held > best[0]:
                best = held, found
    return best[1]


def _periodic(ranges: HostRanges, launches: Ints, numbered: bool) -> tuple[float, _Found]:
    """(share of the launches that they hold, steps) of one thread's outermost ranges of names that repeat; numbered: names that
    differ in their numbers are one, if they say that they count steps."""
    names = ranges.names()
    if numbered:
        names = [_NUMBER.sub("N", name) if _COUNTED.search(name.replace("_", " ")) else "" for name in names]
    codes: dict[str, int] = {}
    code = np.array([codes.setdefault(name, len(codes)) for name in names], np.int64)
    count = np.bincount(code, minlength=1)
    repeated = (count[code] > 1) & (code != codes.get("", -1))
    chosen, code = ranges.take(repeated), code[repeated]
    top = chosen.lie_in_none()
    chosen, code = chosen.take(top), code[top]
    if len(code) < 2:
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
    ends = chosen.end_ns[np.minimum(again + period, len(code)) - 1]
    return held, (chosen.names()[0], chosen.start_ns[again], ends)


def _of_one_thread(ranges: HostRanges, after_ns: int) -> _Found:
    """Steps of the thread that marks most of them."""
    ranges = ranges.take(ranges.start_ns >= after_ns)
    if not len(ranges):
        return None
    mine = ranges.take(ranges.thread == np.argmax(np.bincount(ranges.thread)))
    return mine.names()[0], mine.start_ns, mine.end_ns


_KINDS: tuple[tuple[str, Callable[[_Sought], _Found]], ...] = (
    ("ProfilerStep", _profiler),
    ("pyprof.step", _own),
    ("engine", _engine),
    ("optimizer", _optimizer),
    ("range", _repeating),
)


@dataclass(frozen=True, eq=False, repr=False)
class EngineSteps(Steps):
    """Steps of a serving engine; rows: of each its place in the records' engine_steps."""

    rows: list[int]


def engine_steps(records: Records, after_ns: int = _LEAST) -> EngineSteps | None:
    """The steps that the records' serving engine made and that begin at `after_ns` or later, None without any; of several
    processes those of the one that made most. The last ends with its annotations."""
    pids = np.array([step.pid for step in records.engine_steps if step.begin_ns >= after_ns], np.int64)
    if not len(pids):
        return None
    found, counts = np.unique(pids, return_counts=True)
    pid = int(found[counts.argmax()])
    rows = [at for at, step in enumerate(records.engine_steps) if step.pid == pid and step.begin_ns >= after_ns]
    rows.sort(key=lambda at: records.engine_steps[at].begin_ns)
    begin = np.array([records.engine_steps[at].begin_ns for at in rows], np.int64)
    end = np.append(begin[1:], records.engine_steps[rows[-1]].end_ns)
    return EngineSteps("engine", records.engine_steps[rows[0]].texts[0], begin, end, rows)


def steps_of_records(records: Records) -> Steps | None:
    """Steps of records that have their numbers: a serving engine's where it alone numbers them, else each begins with its first
    launch, or without any with what it ran first."""
    numbers = np.array([*(step.number for step in records.engine_steps), -1], np.int64)
    if records.engine_steps and (numbers[records["engine_step"]] == records["step"]).all():
        return engine_steps(records)
    known = np.flatnonzero(records["step"] >= 0)
    if not len(known):
        return None
    begin = np.where(records["launch_ns"] >= 0, records["launch_ns"], records["start_ns"])[known]
    end = records["start_ns"][known] + np.maximum(records["dur_ns"][known], 0)
    (number,), _, step = distinct_rows(records["step"][known])
    first, last = spans(step, begin, end, len(number))
    order = np.argsort(first)
    return Steps("step", f"step {number[order[0]]}", first[order], np.append(first[order][1:], last[order][-1:]))
