"""Rule 5 for serving engines: annotations around the steps of their schedulers -> one step each, and the launches of each step.

Several annotations may belong to one step: nested on a thread, or of different forms beside each other, if they do not
contradict each other. A launch inside an annotation belongs to its step, however late the device runs it; a launch on a thread
without annotations belongs to the step that its process makes at that time. `pyprof.engine_steps` reads the texts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.arrays.types import Bools, Integers, Ints
from pyprof.engine_steps import EngineStep, form, read
from pyprof.markers import Kind
from pyprof.parse.attribution.ranges import NEVER, CaptureFacts
from pyprof.parse.records.records import MarkedStep


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
    found = _steps(_annotations(capture))
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


def _annotations(capture: CaptureFacts) -> list[_Annotation]:
    """Closed annotations by process and begin, the outer before the inner."""
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
    return sorted(
        map(_Annotation, process.tolist(), start.tolist(), end.tolist(), thread.tolist(), text),
        key=lambda one: (one.process, one.start_ns, -one.end_ns, one.thread, one.text),
    )


def _steps(annotations: list[_Annotation]) -> list[_OpenStep]:
    """Annotations in order of begin -> steps in order of begin."""
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
    """Give each launch without an owner that of the last piece that began before it on the same thread (or in the same
    process), if that is not over. pieces: thread (or process), begin and end of each."""
    of, begin, end = pieces
    for one in np.unique(of[of >= 0]).tolist():
        mine = np.flatnonzero(of == one)
        mine = mine[np.argsort(begin[mine], kind="stable")]
        rows = np.flatnonzero((who == one) & (code < 0))
        at = np.searchsorted(begin[mine], when[rows], "right") - 1
        inside = (at >= 0) & (when[rows] < end[mine][at])
        code[rows[inside]] = owners[mine[at[inside]]]
