"""Two sequences of codes -> which element of the second each one of the first is, in order and each used at most once.

What both begin and end with is equal at once; between them it is the greedy algorithm of Myers ("An O(ND) Difference Algorithm
and Its Variations", 1986): of all alignments in order one with the most pairs. Its runs of equal elements are found by hashes
of all beginnings, so that a step takes all diagonals together. What the codes mean is not known here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pyprof.arrays.types import Integers, Ints

_MOST_DIFFERENCES = 2000
_Hashes = npt.NDArray[np.uint64]


def aligned(first: Integers, second: Integers, most: int = _MOST_DIFFERENCES) -> Ints | None:
    """For each element of the first the index of its own in the second, -1 none; None where more than `most` elements of both
    together have no counterpart."""
    shorter = min(len(first), len(second))
    differ = np.flatnonzero(first[:shorter] != second[:shorter])
    head = int(differ[0]) if len(differ) else shorter
    rest = shorter - head
    differ = np.flatnonzero(first[len(first) - rest :][::-1] != second[len(second) - rest :][::-1])
    tail = int(differ[0]) if len(differ) else rest
    result = np.full(len(first), -1, np.int64)
    result[:head] = np.arange(head)
    result[len(first) - tail :] = np.arange(len(second) - tail, len(second))
    middle = _between(first[head : len(first) - tail], second[head : len(second) - tail], most)
    if middle is None:
        return None
    result[head : len(first) - tail] = np.where(middle >= 0, middle + head, -1)
    pair = np.flatnonzero(result >= 0)
    result[pair[first[pair] != second[result[pair]]]] = -1  # of the hashes of two different runs that are equal by chance
    return result


def _between(first: Integers, second: Integers, most: int) -> Ints | None:
    """As `aligned`, of sequences that neither begin nor end alike."""
    n, m = len(first), len(second)
    if not n or not m:
        return np.full(n, -1, np.int64) if n + m <= most else None
    run = _Runs(first, second)
    far = np.full(2 * min(most, n + m) + 3, -1, np.int64)  # of each diagonal x - y how far x came; the middle is diagonal 0
    zero, steps = len(far) // 2, []
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
            return _back(steps, n, m)
    return None


def _back(steps: list[tuple[npt.NDArray[np.bool_], Ints, Ints]], n: int, m: int) -> Ints:
    """The pairs on the way that ended at (n, m): of each distance whether it went down, where it began and ended equal runs."""
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

    def _equal(self, x: Ints, y: Ints, length: Ints) -> npt.NDArray[np.bool_]:
        (first, second), powers = self.sums, self.powers
        with np.errstate(over="ignore"):
            one, other = first[x + length] - first[x], second[y + length] - second[y]
            return np.asarray(one * powers[y] == other * powers[x])
