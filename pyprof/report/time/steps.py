"""Records -> their steps: as the capture marks them, else from the numbers that records have."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.intervals import spans
from pyprof.columns.types import Bools, Ints
from pyprof.model.host import MarkedSteps
from pyprof.model.records import Records, engine_rows


@dataclass(frozen=True, eq=False, repr=False)
class Steps:
    """Steps in order, in ns on the host. kind: what marks them; name: of the first; number: as `--step` counts them.

    A step ends where the next one begins, the last with its own range. Where a profiler's schedule paused after a step, that
    one too has an end of its own, before the next begins.
    """

    kind: str
    name: str
    number: Ints
    begin_ns: Ints
    end_ns: Ints

    def __len__(self) -> int:
        return len(self.begin_ns)

    @property
    def time_ns(self) -> Ints:
        """Length of each."""
        return self.end_ns - self.begin_ns

    def take(self, rows: Bools) -> Steps:
        """Some of them."""
        return replace(self, number=self.number[rows], begin_ns=self.begin_ns[rows], end_ns=self.end_ns[rows])


def steps_of(records: Records) -> Steps | None:
    """The complete steps of records, None if nothing marks any."""
    marked = records.steps or _numbered(records)
    if not marked.begin_ns:
        return None
    columns = (np.array(column, np.int64) for column in (marked.number, marked.begin_ns, marked.end_ns))
    return Steps(marked.kind, marked.name, *columns)


def _numbered(records: Records) -> MarkedSteps:
    """Steps of records without their capture, by number: a serving engine's if only it numbers them; else each begins with its
    first launch, or without launches with its first activity."""
    engine = [records.engine_steps[at] for at in engine_rows(records.engine_steps)]
    numbers = np.array([*(step.number for step in records.engine_steps), -1], np.int64)
    if engine and (numbers[records["engine_step"]] == records["step"]).all():
        starts = [step.begin_ns for step in engine]
        ends = [*starts[1:], engine[-1].end_ns]
        return MarkedSteps("engine", engine[0].texts[0], [step.number for step in engine], starts, ends)
    known = np.flatnonzero(records["step"] >= 0)
    if not len(known):
        return MarkedSteps()
    begin = np.where(records["launch_ns"] >= 0, records["launch_ns"], records["start_ns"])[known]
    end = records["start_ns"][known] + np.maximum(records["dur_ns"][known], 0)
    (number,), _, step = distinct_rows(records["step"][known])
    first, last = spans(step, begin, end, len(number))
    order = np.argsort(first)
    until = np.append(first[order][1:], last[order][-1:])
    return MarkedSteps("step", f"step {number[order[0]]}", number[order].tolist(), first[order].tolist(), until.tolist())
