"""Two sequences of codes -> which element of the second each one of the first is, in order and each used at most once.

It is the greedy algorithm of Myers ("An O(ND) Difference Algorithm and Its Variations", 1986): of all alignments in order one
with the most pairs, and with it what the others with as many pair. Its runs of equal elements are found by hashes of all
beginnings, so that a step takes all diagonals together. What the codes mean is not known here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.columns.types import Bools, Integers, Ints

_MOST_DIFFERENCES = 2000
_MOST_PAIRS = 1 << 25
_Hashes = npt.NDArray[np.uint64]
_Steps = list[tuple[Bools, Ints, Ints]]  # of each distance: whether it went down, where it began and ended equal runs


class Alignment(NamedTuple):
    """One alignment with the most pairs, and every pair that occurs in any alignment with as many.

    own: for each element of the first sequence its partner's index in the second, -1 none; first, second: the two elements of
    each possible pair; loose: elements of the first that some alignment leaves without a partner.
    """

    own: Ints
    first: Ints
    second: Ints
    loose: Bools


def aligned(first: Integers, second: Integers, most: int = _MOST_DIFFERENCES) -> Alignment | None:
    """Align two sequences with the most pairs; None if more than `most` elements of both remain without a partner."""
    n, m = len(first), len(second)
    if not n or not m:
        none = np.empty(0, np.int64)
        return Alignment(np.full(n, -1, np.int64), none, none, np.ones(n, np.bool_)) if n + m <= most else None
    steps = _steps(first, second, most)
    if steps is None:
        return None
    if len(steps) == 1:
        return Alignment(np.arange(n), np.arange(n), np.arange(n), np.zeros(n, np.bool_))
    index = _back(steps, n, m)
    pair = np.flatnonzero(index >= 0)
    index[pair[first[pair] != second[index[pair]]]] = -1  # of the hashes of two different runs that are equal by chance
    backward = _steps(first[::-1], second[::-1], most)
    return None if backward is None or len(backward) != len(steps) else _all(steps, backward, first, second, index)


def _steps(first: Integers, second: Integers, most: int) -> _Steps | None:
    """How far each diagonal x - y came with each number of differences, until the end of both."""
    n, m = len(first), len(second)
    run = _Runs(first, second)
    far = np.full(2 * min(most, n + m) + 3, -1, np.int64)  # of each diagonal how far x came; the middle is diagonal 0
    zero, steps = len(far) // 2, _Steps()
    far[zero + 1] = 0
    for distance in range(min(most, n + m) + 1):
        k = np.arange(-distance, distance + 1, 2)
        down = (k == -distance) | ((k != distance) & (far[zero + k - 1] < far[zero + k + 1]))
        begin = np.where(down, far[zero + k + 1], far[zero + k - 1] + 1)
        inside = (begin <= n) & (begin - k <= m) & (begin - k >= 0)
        end = begin.copy()
        end[inside] += run.lengths(begin[inside], (begin - k)[inside])
        far[zero + k] = end
        steps.append((down, begin, end))
        if ((end >= n) & (end - k >= m) & inside).any():
            return steps
    return None


def _all(forward: _Steps, backward: _Steps, first: Integers, second: Integers, index: Ints) -> Alignment | None:
    """A place is on a best way where the differences before it and those after it are together as few as there can be. On a
    diagonal the places up to the furthest one are those reached with as many differences or fewer."""
    n, m, last = len(first), len(second), len(forward) - 1
    parts, loose = list[Ints](), np.zeros(n + 2, np.int64)
    for distance in range(last + 1):
        k = np.arange(-distance, distance + 1, 2)
        least, until = np.maximum(k, 0), np.minimum(np.minimum(forward[distance][2], n), m + k)
        begin = np.maximum(_from(backward, last - distance, k, n, m), least)
        parts.append(np.stack([begin, until, k])[:, begin < until])
        if distance < last:  # one more of the first is passed over: on to the next diagonal
            begin = np.maximum(_from(backward, last - distance - 1, k + 1, n, m) - 1, least)
            until = np.minimum(until, n - 1)
            there = begin <= until
            np.add.at(loose, begin[there], 1)
            np.add.at(loose, until[there] + 1, -1)
    begin, until, k = np.concatenate(parts, axis=1)
    length = until - begin
    if length.sum() > _MOST_PAIRS:
        return None
    x = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length - begin, length)
    y = x - np.repeat(k, length)
    equal = first[x] == second[y]
    return Alignment(index, x[equal], y[equal], (np.cumsum(loose)[:n] > 0) | (index < 0))


def _from(backward: _Steps, distance: int, k: Ints, n: int, m: int) -> Ints:
    """The least x on each diagonal from where the end is at most so many differences away; n + 1 none."""
    other = n - m - k
    known = np.abs(other) <= distance
    far = backward[distance][2][np.where(known, (other + distance) // 2, 0)]
    return np.where(known, n - np.minimum(np.minimum(far, n), m + other), n + 1)


def _back(steps: _Steps, n: int, m: int) -> Ints:
    """The pairs on the way that ended at (n, m)."""
    result, k = np.full(n, -1, np.int64), n - m
    for distance in range(len(steps) - 1, -1, -1):
        down, begin, end = steps[distance]
        at = (k + distance) // 2
        x = np.arange(begin[at], end[at])
        result[x] = x - k
        k += 1 if down[at] else -1
    return result


class _Runs:
    """How long two sequences are equal from given places on, by hashes of 64 bits."""

    def __init__(self, first: Integers, second: Integers) -> None:
        self.first, self.second = first, second
        codes = np.concatenate([first, second]).astype(np.int64).view(np.uint64)
        with np.errstate(over="ignore"):
            mixed = (codes ^ (codes >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(0x9E3779B97F4A7C15)
            self.powers = np.cumprod(np.full(max(len(first), len(second)) + 1, 0x9E3779B97F4A7C15, np.uint64))
            self.sums = self._sums(mixed[: len(first)]), self._sums(mixed[len(first) :])

    def _sums(self, mixed: _Hashes) -> _Hashes:
        return np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed * self.powers[: len(mixed)], dtype=np.uint64)])

    def lengths(self, x: Ints, y: Ints) -> Ints:
        """The length of the run from each x in the first and y in the second."""
        longest = np.minimum(len(self.first) - x, len(self.second) - y)
        low, high = np.zeros(len(x), np.int64), longest.copy()  # equal up to low; not known up to high
        while (open_ := low < high).any():
            middle = (low + high + 1) // 2
            equal = self._equal(x, y, middle)
            low, high = np.where(open_ & equal, middle, low), np.where(open_ & ~equal, middle - 1, high)
        return low

    def _equal(self, x: Ints, y: Ints, length: Ints) -> Bools:
        (first, second), powers = self.sums, self.powers
        with np.errstate(over="ignore"):
            one, other = first[x + length] - first[x], second[y + length] - second[y]
            return np.asarray(one * powers[y] == other * powers[x])
