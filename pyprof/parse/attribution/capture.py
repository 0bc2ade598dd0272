"""A Trace -> what only the whole capture tells: which ranges count, what nests with nothing, steps, main threads.

The ranges of a capture are looked at here without being nested, but for the few that mark steps.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.markers import Kind
from pyprof.opcall import OpRules
from pyprof.parse.attribution.crossing import NEVER, Loose
from pyprof.parse.attribution.launches import take
from pyprof.parse.attribution.ranges import Facts, leaked, nest_all
from pyprof.parse.sources.trace import Trace

__all__ = ["Whole"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]


class Whole:
    """One capture. kept: which rows of its ranges nest, as far as is known; loose: the others that are still told."""

    def __init__(self, trace: Trace, rules: OpRules) -> None:
        # Tables of its own, of which columns are given up as soon as they are not needed: there are millions of rows.
        tables = [dict(table) for table in (trace.activities, trace.launches, trace.ranges)]
        self.trace = replace(trace, activities=tables[0], launches=tables[1], ranges=tables[2])
        self.rules = rules
        self.facts = Facts.of(trace.markers, rules)
        never = leaked(trace)
        del tables[2]["open"]  # said by that
        self.kept: Bools = ~never
        self._never = self._of(self.facts.context) & never
        self.loose = Loose.of(self.trace, np.flatnonzero(self._never), np.ones(int(self._never.sum()), np.bool_))
        self._forget()

    def _of(self, labels: Bools) -> Bools:
        """Which ranges have one of these labels."""
        label = self.trace.ranges["label"]
        return labels[label] if len(labels) else np.zeros(len(label), np.bool_)

    def _forget(self) -> None:
        for name in ("any_numbers", "first_backward"):
            self.__dict__.pop(name, None)

    def set_aside(self, crossed: Ints) -> None:
        """Take out the rows of ranges that cross others."""
        self.kept[crossed] = False
        told = crossed[self._of(self.facts.context)[crossed]]
        rows = np.concatenate([np.flatnonzero(self._never), told])
        self.loose = Loose.of(self.trace, rows, self._never[rows])
        self._forget()

    # ------------------------------------------------------------------ sequence numbers

    @cached_property
    def any_numbers(self) -> bool:
        """Whether any op shows a sequence number."""
        own = self._of(self.facts.kind == Kind.DISPATCH)
        return bool((own & self.kept & (self.trace.ranges["seq"] >= 0)).any())

    @cached_property
    def first_backward(self) -> tuple[Ints, Ints]:
        """The sequence numbers of autograd functions, ascending, and when the first with each began."""
        ranges = self.trace.ranges
        rows = np.flatnonzero(self._of(self.facts.backward))
        rows = rows[self.kept[rows] & (ranges["seq"][rows] >= 0)]
        numbers, inverse = np.unique(ranges["seq"][rows], return_inverse=True)
        first = np.full(len(numbers) + 1, NEVER)
        np.minimum.at(first, inverse.ravel(), ranges["start_ns"][rows])
        return numbers, first

    def first_asked(self, seq: Ints) -> Ints:
        """When the first autograd function with each number began, NEVER where there is none."""
        numbers, first = self.first_backward
        if not len(numbers):
            return np.full(len(seq), NEVER)
        at = np.searchsorted(numbers, seq)
        return np.where(numbers[np.minimum(at, len(numbers) - 1)] == seq, first[at], NEVER)

    # ------------------------------------------------------------------ threads

    def process(self, thread: Ints) -> Ints:
        """The process of each thread, -1 for none."""
        return take(self.trace.threads["process"], thread)

    def main_thread(self, process: Ints) -> Ints:
        """The main thread of each process, -1 where it is not known."""
        threads = self.trace.threads
        mains = np.flatnonzero(threads["main"] == 1)
        mains = mains[np.argsort(-threads["tid"][mains], kind="stable")]  # of several the one with the lowest id
        main_of = np.full(max(len(self.trace.processes["pid"]), int(threads["process"].max(initial=-1)) + 1) + 1, -1, np.int64)
        main_of[threads["process"][mains]] = mains
        main_of[-1] = -1
        return main_of[process]

    # ------------------------------------------------------------------ steps, and other ranges of one kind

    def aside(self, kind: Kind, thread: Ints, when: Ints, *, leaks: bool = True) -> Ints:
        """Of the ranges that nest with nothing the label of the one of a kind open then on the thread, -1 none.

        The next range of the kind ends one that was never closed: the last step of a capture lasts to the end, a step that an
        exception left does not. leaks: whether those count at all.
        """
        loose, ranges = self.loose, self.trace.ranges
        result = np.full(len(thread), -1, np.int64)
        of_kind = self.facts.kind[loose.label] == kind if len(loose) else np.zeros(0, np.bool_)
        if not leaks:
            of_kind &= loose.end < NEVER
        if not of_kind.any():
            return result
        inside = np.flatnonzero(self._of(self.facts.kind == kind) & self.kept)
        for number in np.unique(loose.thread[of_kind]).tolist():
            own, mine = np.flatnonzero(of_kind & (loose.thread == number)), np.flatnonzero(thread == number)
            begun = np.append(loose.start[own], np.iinfo(np.int64).min)
            last = np.searchsorted(begun[:-1], when[mine], "right") - 1  # -1 reads the element put behind
            starts = ranges["start_ns"][inside[ranges["thread"][inside] == number]]
            nests = np.append(np.sort(starts), np.iinfo(np.int64).min)
            later = nests[np.searchsorted(nests[:-1], when[mine], "right") - 1] > begun[last]
            still = (last >= 0) & ~later & (np.append(loose.end[own], 0)[last] > when[mine])
            result[mine[still]] = loose.label[own[last[still]]]
        return result

    def _step_thread(self, steps: Ints, process: Ints) -> Ints:
        """The thread whose steps are those of its process: the main one, or the only one that marks any; -1 none."""
        aside = self.loose.thread[self.facts.kind[self.loose.label] == Kind.STEP] if len(self.loose) else steps[:0]
        marking = np.unique([*self.trace.ranges["thread"][steps].tolist(), *aside.tolist()]).astype(np.int64)
        owner = self.process(marking)
        main = self.main_thread(process)
        result = np.where(np.isin(main, marking), main, -1)
        for one in np.unique(process[(result < 0) & (process >= 0)]).tolist():
            mine = marking[owner == one]
            if len(mine) == 1:
                result[process == one] = mine[0]
        return result

    def steps(self, thread: Ints, when: Ints) -> Ints:
        """The step in which something was launched, -1 none: that of the step range around the launch; where there is none, of
        the one open then on the thread that marks the steps."""
        if not (self.facts.kind == Kind.STEP).any():
            return np.full(len(thread), -1, np.int64)
        step_of_label = np.array([-1 if m.step is None else m.step for m in self.trace.markers] + [-1], np.int64)
        rows = np.flatnonzero(self._of(self.facts.kind == Kind.STEP) & self.kept)
        nested, _ = nest_all(self.trace, self.facts, rows)
        around = np.append(self.trace.ranges["label"][nested.row], -1)
        label = np.full(len(thread), -1, np.int64)
        for who in (thread, self._step_thread(rows, self.process(thread))):
            asked = np.flatnonzero((label < 0) & (thread >= 0) & (who >= 0))
            within = around[nested.innermost(who[asked], when[asked])]
            aside = self.aside(Kind.STEP, who[asked], when[asked])
            label[asked] = np.where(within >= 0, within, aside)
        return step_of_label[label]
