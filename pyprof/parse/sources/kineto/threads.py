"""Which thread ran forward: Kineto's `Fwd thread id` of backward ops -> a row of the trace's threads.

The id is torch's own count of threads, not a thread id of the system, and forward ops do not carry theirs. It follows from
the `fwdbwd` arrows that newer releases draw between ranges, or else from the sequence numbers: the forward thread is the one
where most backward functions find an op that they are named after. It may be missing from the capture.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import Growing, distinct_rows
from pyprof.columns.nesting import any_order
from pyprof.columns.sorting import matching_rows, places_in_runs, rows_of_spans
from pyprof.columns.types import Array, Integers, Ints
from pyprof.model.markers import same_function
from pyprof.parse.sources.kineto.events import Event

_MOST_ID = 1 << 44  # smaller ids of arrows are packed with the number of their process, which is below 1 << 19
_SAMPLE = 5000
_SHARE_NAMED = 0.5  # of the sequence numbers of a forward thread at least so many must lead to an op of the same name


class Arrows:
    """The two ends of fwdbwd arrows: process and id as one number, the thread's number, and the time.

    threads: numbers of threads by pid and tid.
    """

    def __init__(self, threads: Mapping[tuple[int, int], int]) -> None:
        self._threads = threads
        self._begin = [Growing(np.int64), Growing(np.int32)]
        self._end = [Growing(np.int64), Growing(np.int32), Growing(np.int64)]
        self._processes: dict[int, int] = {}
        self._odd: dict[tuple[int, int | str | None], int] = {}  # ids that are not whole numbers of a usual size

    def add(self, begins: bool, events: Sequence[Event], thread: Array, when: Ints) -> None:
        pids, keys = [pid for pid, _ in self._threads], []
        for one, event in zip(thread.tolist(), events, strict=True):
            pid, number = pids[one], event.id
            if type(number) is int and 0 <= number < _MOST_ID:
                keys.append(self._processes.setdefault(pid, len(self._processes)) * _MOST_ID + number)
            else:
                keys.append(-1 - self._odd.setdefault((pid, number), len(self._odd)))
        columns = self._begin if begins else self._end
        for column, piece in zip(columns, (np.array(keys, np.int64), thread, when)[: len(columns)], strict=True):
            column.append(piece)

    def pairs(self, row: list[int]) -> ArrowEnds:
        """Whole arrows in order of the first of their ends. If several have one id, the last begin and the last end count. row:
        of `threads`, by each thread's number, -1 if it is left out."""
        rows = np.array(row, np.int32)
        (known, begun), (key, thread, when) = ([column.whole() for column in columns] for columns in (self._begin, self._end))
        begin, first, last = matching_rows(known, key, last=True), matching_rows(key, key), matching_rows(key, key, last=True)
        own = np.flatnonzero((begin >= 0) & (first == np.arange(len(key))))
        at, end = begin[own], last[own]
        forward, backward = rows[begun[at]], rows[thread[end]]
        used = (forward >= 0) & (backward >= 0)
        return ArrowEnds(forward[used], backward[used], when[end[used]])


class ArrowEnds(NamedTuple):
    """For each arrow the row of the forward thread, of the backward thread, and the begin of the backward range, in ns."""

    forward: Integers
    backward: Integers
    when: Ints


class NumberedOps(NamedTuple):
    """Ops that carry a sequence number; logical: `Fwd thread id`, 0 on forward ops; label: code of their name."""

    process: Array
    thread: Array
    start: Array
    seq: Array
    logical: Array
    label: Array

    def take(self, rows: Array) -> NumberedOps:
        return NumberedOps(*(column[rows] for column in self))


def forward_threads(ops: NumberedOps, names: Sequence[str], arrows: ArrowEnds) -> dict[tuple[int, int], int]:
    """(process, logical id) -> row of its thread; ids whose forward ops the capture does not hold are left out.

    names: by label; arrows: `Arrows.pairs`.
    """
    return _by_arrows(ops, arrows) or _by_names(ops, names)


def _by_arrows(ops: NumberedOps, arrows: ArrowEnds) -> dict[tuple[int, int], int]:
    """For each id the thread from which most arrows lead to its backward ops; in a tie, the first arrow's."""
    if not len(arrows.when):
        return {}
    order = any_order(arrows.when)
    when, own = arrows.when[order], ops.take(np.flatnonzero(ops.logical > 0))
    first, last = np.searchsorted(when, own.start, "left"), np.searchsorted(when, own.start, "right")
    at, place = rows_of_spans(first, last)
    arrow = order[place]
    same = arrows.backward[arrow] == own.thread[at]
    arrow, at = arrow[same], at[same]
    found = distinct_rows(own.process[at], own.logical[at], arrows.forward[arrow])
    count, earliest = np.bincount(found.inverse), np.full(len(found.first), np.iinfo(np.int64).max)
    np.minimum.at(earliest, found.inverse, arrow)
    best: dict[tuple[int, int], int] = {}
    for process, logical, forward in found.columns.T[np.lexsort((earliest, -count))].tolist():
        best.setdefault((process, logical), forward)
    return best


def _by_names(ops: NumberedOps, names: Sequence[str]) -> dict[tuple[int, int], int]:
    """Without arrows: the pairs of id and thread with most functions named after the op of their number, best first."""
    backward = _sample(ops)
    last: dict[tuple[int, int], dict[int, tuple[int, int]]] = defaultdict(dict)  # (process, number) -> thread -> its deepest op
    forward = ops.take(np.flatnonzero((ops.logical <= 0) & np.isin(ops.seq, backward.seq)))
    for process, thread, start, seq, _, label in zip(*(column.tolist() for column in forward), strict=True):
        deepest = last[process, seq].get(thread)
        if deepest is None or start >= deepest[0]:
            last[process, seq][thread] = start, label
    named: Counter[tuple[tuple[int, int], int]] = Counter()
    met: Counter[tuple[tuple[int, int], int]] = Counter()
    for process, _, _, seq, logical, own in zip(*(column.tolist() for column in backward), strict=True):
        for thread, (_, label) in last.get((process, seq), {}).items():
            met[(process, logical), thread] += 1
            named[(process, logical), thread] += same_function(names[label], names[own])
    result: dict[tuple[int, int], int] = {}
    used: set[int] = set()
    for (key, thread), count in sorted(named.items(), key=lambda item: (-item[1], item[0])):
        if key not in result and thread not in used and count >= _SHARE_NAMED * met[key, thread]:
            result[key] = thread
            used.add(thread)
    return result


def _sample(ops: NumberedOps) -> NumberedOps:
    """The _SAMPLE backward ranges with the smallest sequence numbers of each (process, logical id): enough to decide."""
    ops = ops.take(np.flatnonzero(ops.logical > 0))
    order = np.lexsort((ops.start, ops.seq, ops.logical, ops.process))
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(ops.process[order]) != 0) | (np.diff(ops.logical[order]) != 0)
    return ops.take(order[places_in_runs(new) < _SAMPLE])
