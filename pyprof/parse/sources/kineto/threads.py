"""Which thread ran forward: Kineto's `Fwd thread id` of backward ops -> a row of the trace's threads.

The id is torch's own count of threads, not a thread id of the system, and forward ops do not carry theirs. It follows from
the `fwdbwd` arrows that newer releases draw between ranges, or else from the sequence numbers: the forward thread is the one
where most backward functions find an op that they are named after. It may be missing from the capture.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.markers import same_function

Ints = npt.NDArray[np.int64]
_SAMPLE = 5000
_SHARE_NAMED = 0.5  # of the sequence numbers of a forward thread at least so many must lead to an op of the same name


class Arrows:
    """The two ends of fwdbwd arrows by (process, id): the thread as it is first numbered, and the time."""

    def __init__(self) -> None:
        self.begin: dict[tuple[int, int | str | None], tuple[int, int]] = {}
        self.end: dict[tuple[int, int | str | None], tuple[int, int]] = {}

    def pairs(self, row: list[int]) -> Iterator[tuple[int, int, int]]:
        """(forward thread, backward thread, time of the backward range) of each whole arrow; row: of `threads`, by the first
        number of each thread, -1 where it is left out."""
        for key, (backward, when) in self.end.items():
            forward, _ = self.begin.get(key, (-1, 0))
            if forward >= 0 and row[forward] >= 0 and row[backward] >= 0:
                yield row[forward], row[backward], when


class NumberedOps(NamedTuple):
    """Ops that carry a sequence number; logical: `Fwd thread id`, 0 on forward ops; names[label]: the op's or function's."""

    process: Ints
    thread: Ints
    start: Ints
    seq: Ints
    logical: Ints
    label: Ints
    names: Sequence[str]


def forward_threads(ops: NumberedOps, arrows: Iterable[tuple[int, int, int]]) -> dict[tuple[int, int], int]:
    """(process, logical id) -> row of its thread; ids whose forward ops the capture does not hold are left out.

    arrows: `Arrows.pairs`.
    """
    backward = np.flatnonzero(ops.logical > 0)
    at: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row in backward.tolist():
        at[(int(ops.thread[row]), int(ops.start[row]))].append(row)
    votes: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for forward, thread, when in arrows:
        for row in at.get((thread, when), ()):
            votes[(int(ops.process[row]), int(ops.logical[row]))][forward] += 1
    if votes:
        return {key: count.most_common(1)[0][0] for key, count in votes.items()}
    return _by_names(ops, backward)


def _by_names(ops: NumberedOps, backward: Ints) -> dict[tuple[int, int], int]:
    """Without arrows: the pairs of id and thread with most functions named after the op of their number, best first."""
    backward = _sample(ops, backward)
    forward = np.flatnonzero((ops.logical <= 0) & np.isin(ops.seq, ops.seq[backward]))
    last: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)  # (process, number) -> thread -> its deepest op
    for row in forward[np.argsort(ops.start[forward], kind="stable")].tolist():
        last[(int(ops.process[row]), int(ops.seq[row]))][int(ops.thread[row])] = int(ops.label[row])
    named: Counter[tuple[tuple[int, int], int]] = Counter()
    met: Counter[tuple[tuple[int, int], int]] = Counter()
    for row in backward.tolist():
        key = (int(ops.process[row]), int(ops.logical[row]))
        for thread, label in last.get((key[0], int(ops.seq[row])), {}).items():
            met[key, thread] += 1
            named[key, thread] += same_function(ops.names[label], ops.names[ops.label[row]])
    result: dict[tuple[int, int], int] = {}
    taken: set[int] = set()
    for (key, thread), count in sorted(named.items(), key=lambda item: (-item[1], item[0])):
        if key not in result and thread not in taken and count >= _SHARE_NAMED * met[key, thread]:
            result[key] = thread
            taken.add(thread)
    return result


def _sample(ops: NumberedOps, backward: Ints) -> Ints:
    """Of each (process, logical id) the _SAMPLE backward ranges with the smallest sequence numbers: enough to decide."""
    order = backward[np.lexsort((ops.start[backward], ops.seq[backward], ops.logical[backward], ops.process[backward]))]
    if not len(order):
        return order
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(ops.process[order]) != 0) | (np.diff(ops.logical[order]) != 0)
    first = np.flatnonzero(new)
    place = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    return order[place < _SAMPLE]
